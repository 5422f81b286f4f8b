//! AdamW (arXiv 1711.05101), with the order of operations of `torch.optim.AdamW`.

/// The settings of AdamW; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first and of the second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, a share of the parameters per step and lr.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// The optimizer's state for a list of parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    config: AdamWConfig,
    pub(super) updates: u64,
    /// The gradient's moving average.
    pub(super) first: Vec<f32>,
    /// The squared gradient's moving average.
    pub(super) second: Vec<f32>,
}

impl AdamW {
    /// For `count` parameters, before the first update.
    pub fn new(config: AdamWConfig, count: usize) -> Self {
        Self {
            config,
            updates: 0,
            first: vec![0.0; count],
            second: vec![0.0; count],
        }
    }

    /// Moves the parameters one step against the gradient (both as long as the state).
    pub fn update(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        let AdamWConfig {
            lr,
            betas: (beta1, beta2),
            eps,
            weight_decay,
        } = self.config;
        self.updates += 1;
        // Long before 2^31 updates both corrections have become 1.
        let updates = i32::try_from(self.updates).unwrap_or(i32::MAX);
        // The scalars are worked out in f64 and rounded once, as torch does with Python's floats.
        let keep = (1.0 - lr * weight_decay) as f32;
        let size = (lr / (1.0 - beta1.powi(updates))) as f32;
        let correction = (1.0 - beta2.powi(updates)).sqrt() as f32;
        let (toward, decay, add) = ((1.0 - beta1) as f32, beta2 as f32, (1.0 - beta2) as f32);
        let eps = eps as f32;

        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((parameter, &g), (first, second)) in parameters.iter_mut().zip(gradient).zip(moments) {
            *first += toward * (g - *first);
            *second = decay * *second + add * (g * g);
            let scale = second.sqrt() / correction + eps;
            *parameter = keep * *parameter - size * (*first / scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_updates_by_hand() {
        // lr 0.1, weight decay 0.5, betas 0.5 and 0.75, eps 0, parameter 2, gradients 4 and then -2.
        // 1: p = 2 * (1 - 0.05) = 1.9; m = 2, mhat = 2/0.5 = 4; v = 4, vhat = 4/0.25 = 16; p -= 0.1 * 4/4 -> 1.8
        // 2: p = 1.8 * 0.95 = 1.71; m = 1 - 1 = 0; p stays
        let config = AdamWConfig {
            lr: 0.1,
            betas: (0.5, 0.75),
            eps: 0.0,
            weight_decay: 0.5,
        };
        let mut adamw = AdamW::new(config, 1);
        let mut p = [2.0];
        adamw.update(&mut p, &[4.0]);
        assert!((p[0] - 1.8).abs() < 1e-6, "{p:?}");
        assert_eq!((adamw.first[0], adamw.second[0]), (2.0, 4.0));
        adamw.update(&mut p, &[-2.0]);
        assert!((p[0] - 1.71).abs() < 1e-6, "{p:?}");
        assert_eq!((adamw.first[0], adamw.second[0]), (0.0, 4.0));
    }

    #[test]
    fn the_defaults_follow_the_formula_in_f64_over_many_updates() {
        let (mut p, mut m, mut v) = (0.3f64, 0.0f64, 0.0f64);
        let mut adamw = AdamW::new(AdamWConfig::default(), 1);
        let mut parameter = [0.3f32];
        for t in 1..=200 {
            let g = (f64::from(t) * 0.7).sin() + 0.2;
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            let mhat = m / (1.0 - 0.9f64.powi(t));
            let vhat = v / (1.0 - 0.999f64.powi(t));
            p = p * (1.0 - 1e-3 * 0.01) - 1e-3 * mhat / (vhat.sqrt() + 1e-8);
            adamw.update(&mut parameter, &[g as f32]);
        }
        // 200 roundings of a number near 0.3.
        assert!((f64::from(parameter[0]) - p).abs() < 200.0 * 3e-8);
    }

    #[test]
    fn the_first_update_moves_every_parameter_by_the_learning_rate() {
        let config = AdamWConfig {
            weight_decay: 0.0,
            ..AdamWConfig::default()
        };
        let mut adamw = AdamW::new(config, 3);
        let mut p = [1.0; 3];
        adamw.update(&mut p, &[1e-4, -5.0, 0.0]);
        for (found, expected) in p.iter().zip([0.999, 1.001, 1.0]) {
            assert!((found - expected).abs() < 1e-6, "{p:?}");
        }
    }
}
