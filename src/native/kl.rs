//! The estimators of a KL at each token.

use crate::tensor::op::{FAR, Unary};
use crate::tensor::{Precision, k3};

#[derive(Clone, Copy)]
pub(super) enum Kl {
    K1,
    K2,
    K3,
    Abs,
}

/// The estimators by their names.
pub(super) const KINDS: [(&str, Kl); 4] = [
    ("k1", Kl::K1),
    ("k2", Kl::K2),
    ("k3", Kl::K3),
    ("abs", Kl::Abs),
];

impl Kl {
    /// Hands on the KL of each pair of log-probs, and its derivative by the first of them times `grad`.
    #[inline(always)]
    pub(super) fn each<T: Precision>(
        self,
        grad: T,
        (logp, reference): (&[T], &[T]),
        mut take: impl FnMut(usize, T, T),
    ) {
        let reference = &reference[..logp.len()];
        // Each estimator has a loop of its own, which the compiler makes vector code of.
        macro_rules! each {
            ($d:ident => $of:expr) => {
                for (index, (logp, reference)) in logp.iter().zip(reference).enumerate() {
                    let $d = T::narrow(logp.widen() - reference.widen()).widen();
                    let (value, slope): (T, T) = $of;
                    take(index, value, slope);
                }
            };
        }
        match self {
            Kl::K1 => each!(d => (T::narrow(d), grad)),
            Kl::K2 => {
                let half = T::narrow(grad.widen() / 2.0).widen();
                each!(d => {
                    let square = T::narrow(d * d).widen();
                    let slope = T::narrow(2.0 * d).widen();
                    (T::narrow(square / 2.0), T::narrow(half * slope))
                });
            }
            Kl::K3 => each!(d => {
                let k3 = T::narrow(k3(d));
                let near = T::narrow(d - k3.widen());
                let slope = if FAR < d { T::narrow(1.0) } else { near };
                (k3, T::narrow(grad.widen() * slope.widen()))
            }),
            Kl::Abs => {
                each!(d => (T::narrow(d.abs()), T::narrow(grad.widen() * Unary::Sign.of(d))))
            }
        }
    }
}
