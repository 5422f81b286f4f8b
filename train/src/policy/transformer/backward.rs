//! From the gradient by hidden states to that by the weights: through all layers at once, or layer by layer, each computed
//! again from its input (gradient checkpointing, arXiv 1604.06174).

use std::ops::Range;

use tch::{Kind, Tensor, no_grad_guard};

use super::decoder::Decoder;
use super::layers::Heads;
use super::micro_batch::Sight;
use crate::torch::Result;

/// A forward pass that is waiting for its gradient.
pub(super) struct Graph<'a> {
    decoder: Decoder<'a>,
    sight: &'a Sight,
    /// Layers that are computed together, with what goes into them; the first take the tokens.
    parts: Vec<(Range<usize>, Option<Tensor>)>,
    /// `[places, hidden]`, with the graph of the last part.
    pub hidden: Tensor,
}

impl<'a> Graph<'a> {
    /// Passes forward. With `is_checkpointed` each layer is a part of its own, and else all are one.
    pub(super) fn new(
        decoder: Decoder<'a>,
        sight: &'a Sight,
        is_checkpointed: bool,
    ) -> Result<Self> {
        let attend = |_, heads: Heads| sight.attend(&heads);
        let layers = decoder.weights.layers.len();
        let last = if is_checkpointed { layers - 1 } else { 0 };
        let (mut parts, mut input) = (Vec::new(), None);
        for layer in 0..last {
            // What is computed on the way is kept for the last part alone.
            let _guard = no_grad_guard();
            let output = decoder.pass(layer..layer + 1, input.as_ref(), attend)?;
            parts.push((layer..layer + 1, input));
            input = Some(output.f_set_requires_grad(true)?);
        }
        let hidden = decoder.pass(last..layers, input.as_ref(), attend)?;
        parts.push((last..layers, input));
        Ok(Graph {
            decoder,
            sight,
            parts,
            hidden,
        })
    }

    /// Adds the gradient of sum(`dhidden` * hidden) by each parameter to `sums`, which are in the parameters' order.
    pub(super) fn backward(self, dhidden: Tensor, sums: &mut [Tensor]) -> Result<()> {
        let weights = self.decoder.weights;
        let attend = |_, heads: Heads| self.sight.attend(&heads);
        let parameters: Vec<&Tensor> = weights.parameters().map(|p| &p.tensor).collect();
        let (mut output, mut doutput) = (Some(self.hidden), dhidden);
        for (part, input) in self.parts.into_iter().rev() {
            let output = match output.take() {
                Some(output) => output,
                None => self.decoder.pass(part.clone(), input.as_ref(), attend)?,
            };
            // The derivative of this product's sum by the output is doutput, and from there on it is autograd's.
            let product = output.f_mul(&doutput)?.f_sum(Kind::Float)?;
            let own = weights.indices_of(part);
            let by = parameters[own.clone()].iter().copied().chain(&input);
            let by: Vec<&Tensor> = by.collect();
            let mut gradients = Tensor::f_run_backward(&[product], &by, false, false)?;
            if input.is_some()
                && let Some(dinput) = gradients.pop()
            {
                doutput = dinput;
            }
            for (sum, gradient) in sums[own].iter_mut().zip(gradients) {
                // An untied head has no part in it.
                if gradient.defined() {
                    let _ = sum.f_add_(&gradient)?;
                }
            }
        }
        Ok(())
    }
}
