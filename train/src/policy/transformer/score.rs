//! Computes scores of responses, and the gradient of a loss of their log-probs, one forward pass after the other.
//!
//! The output layer is computed for a chunk of tokens at a time, so that the logits `[tokens, vocabulary]` of only one chunk
//! are in memory.

use tch::{Kind, Tensor, no_grad_guard};

use super::Transformer;
use super::batch::{ModelInputs, passes};
use super::decoder::hidden_states;
use crate::policy::{Responses, Scores};
use crate::torch::{TorchResult, floats, to_vec};

/// The number of tokens whose logits are in memory at a time.
const CHUNK: i64 = 1024;

/// Returns chunks of the hidden states `[targets, hidden]`, with their targets and with the logits that the output layer's
/// `weight` gives.
fn chunks<'a>(
    weight: &'a Tensor,
    hidden: &'a Tensor,
    targets: &'a Tensor,
) -> impl Iterator<Item = TorchResult<(Tensor, Tensor, Tensor)>> + 'a {
    let count = hidden.size()[0];
    (0..count).step_by(CHUNK as usize).map(move |start| {
        let size = CHUNK.min(count - start);
        let hidden = hidden.f_narrow(0, start, size)?;
        let targets = targets.f_narrow(0, start, size)?.f_unsqueeze(1)?;
        let logits = hidden.f_linear(weight, None::<Tensor>)?;
        Ok((hidden, targets, logits))
    })
}

impl Transformer {
    /// Returns the scores of responses under the policy's or the reference's weights.
    pub(super) fn scores(&self, weights: &[Tensor], responses: &Responses) -> TorchResult<Scores> {
        let _guard = no_grad_guard();
        let count = responses.tokens().len();
        let mut scores = Scores {
            logp: vec![0.0; count],
            entropy: vec![0.0; count],
        };
        for pass in passes(responses, self.options.config.tokens_per_forward) {
            let inputs = ModelInputs::new(responses, &pass, self.options.device)?;
            let attend = |_, heads| inputs.attend(&heads);
            let hidden = hidden_states(&self.config, weights, &inputs.tokens, attend)?;
            let (mut logp, mut entropy) = (Vec::new(), Vec::new());
            for chunk in chunks(&weights[self.head], &hidden, &inputs.targets) {
                let (_, targets, logits) = chunk?;
                let all = logits.f_log_softmax(-1, Kind::Float)?;
                logp.push(all.f_gather(1, &targets, false)?.f_squeeze_dim(1)?);
                let terms = all.f_exp()?.f_mul(&all)?;
                let sums = terms.f_sum_dim_intlist([-1i64].as_slice(), false, Kind::Float)?;
                entropy.push(sums.f_neg()?);
            }
            let [logp, entropy] = [Tensor::f_cat(&logp, 0)?, Tensor::f_cat(&entropy, 0)?];
            let values = to_vec(&logp)?.into_iter().zip(to_vec(&entropy)?);
            let places = pass.iter().flat_map(|&response| responses.range(response));
            for (place, values) in places.zip(values) {
                (scores.logp[place], scores.entropy[place]) = values;
            }
        }
        Ok(scores)
    }

    /// Adds the gradient of the sum of dlogp * logp over the targets of a forward pass.
    pub(super) fn add_gradient(
        &mut self,
        pass: &[usize],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> TorchResult<()> {
        let device = self.options.device;
        let places = pass.iter().flat_map(|&response| responses.range(response));
        let dlogp: Vec<f32> = places.map(|place| dloss_dlogp[place] as f32).collect();
        let dlogp = floats(&dlogp, device)?;
        let inputs = ModelInputs::new(responses, pass, device)?;
        for weight in &self.state.weights {
            let _ = weight.f_set_requires_grad(true)?;
        }
        let attend = |_, heads| inputs.attend(&heads);
        let weights = &self.state.weights;
        let hidden = hidden_states(&self.config, weights, &inputs.tokens, attend)?;
        let dhidden = self.head_gradient(&hidden.f_detach()?, &inputs.targets, &dlogp)?;
        // The derivative of this sum with respect to the hidden states is dhidden, so autograd continues from there.
        let product = hidden.f_mul(&dhidden)?.f_sum(Kind::Float)?;
        let gradients = Tensor::f_run_backward(&[product], &self.state.weights, false, false)?;
        for (sum, gradient) in self.gradient.iter_mut().zip(gradients) {
            // A gradient is undefined if the weight was not used here, as with a separate output layer.
            if gradient.defined() {
                let _ = sum.f_add_(&gradient)?;
            }
        }
        Ok(())
    }

    /// Adds the output layer's gradient, and returns the gradient of the hidden states.
    ///
    /// This gradient is computed by hand, because autograd would keep the logits of all chunks in memory. The gradient of a row's
    /// logits is dlogp * (one-hot of its target - softmax).
    fn head_gradient(
        &mut self,
        hidden: &Tensor,
        targets: &Tensor,
        dlogp: &Tensor,
    ) -> TorchResult<Tensor> {
        let _guard = no_grad_guard();
        let weight = &self.state.weights[self.head];
        let (mut dhidden, mut rest) = (Vec::new(), dlogp.shallow_clone());
        for chunk in chunks(weight, hidden, targets) {
            let (hidden, targets, logits) = chunk?;
            let size = hidden.size()[0];
            let dlogp = rest.f_narrow(0, 0, size)?.f_unsqueeze(1)?;
            rest = rest.f_narrow(0, size, rest.size()[0] - size)?;
            let mut dlogits = logits.f_softmax(-1, Kind::Float)?;
            let _ = dlogits.f_mul_(&dlogp.f_neg()?)?;
            let _ = dlogits.f_scatter_add_(1, &targets, &dlogp)?;
            let _ = self.gradient[self.head].f_addmm_(&dlogits.f_tr()?, &hidden)?;
            dhidden.push(dlogits.f_matmul(weight)?);
        }
        Ok(Tensor::f_cat(&dhidden, 0)?)
    }
}
