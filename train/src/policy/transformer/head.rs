//! The head: log-probs, entropies and their gradient, a chunk of rows at a time, so that the logits of a whole batch
//! `[tokens, vocabulary]` are never there.

use tch::{Kind, Tensor, no_grad_guard};

use crate::torch::Result;

/// Rows whose logits are in memory at a time. Another number may round otherwise, and no more.
const CHUNK: i64 = 1024;

/// Rows of hidden states, and the token that each is to give.
pub(super) struct Head<'a> {
    /// `[vocabulary, hidden]`.
    pub weight: &'a Tensor,
    /// `[rows, hidden]`.
    pub hidden: &'a Tensor,
    /// int64 `[rows]`.
    pub tokens: &'a Tensor,
}

impl Head<'_> {
    /// The chunks' first rows and numbers of rows.
    fn chunks(&self) -> impl Iterator<Item = (i64, i64)> {
        let rows = self.hidden.size()[0];
        let starts = (0..rows).step_by(CHUNK as usize);
        starts.map(move |start| (start, CHUNK.min(rows - start)))
    }

    /// A chunk's hidden states, tokens `[rows, 1]`, and logits.
    fn chunk(&self, (start, rows): (i64, i64)) -> Result<(Tensor, Tensor, Tensor)> {
        let hidden = self.hidden.f_narrow(0, start, rows)?;
        let tokens = self.tokens.f_narrow(0, start, rows)?.f_unsqueeze(1)?;
        let logits = hidden.f_linear(self.weight, None::<Tensor>)?;
        Ok((hidden, tokens, logits))
    }

    /// The log-prob of each row's token, and the entropy of the distribution that it is from; nats, float32 `[rows]`.
    pub(super) fn scores(&self) -> Result<(Tensor, Tensor)> {
        let _guard = no_grad_guard();
        let (mut logp, mut entropy) = (Vec::new(), Vec::new());
        for chunk in self.chunks() {
            let (_, tokens, logits) = self.chunk(chunk)?;
            let all = logits.f_log_softmax(-1, Kind::Float)?;
            logp.push(all.f_gather(1, &tokens, false)?.f_squeeze_dim(1)?);
            let summed = all.f_exp()?.f_mul(&all)?;
            let summed = summed.f_sum_dim_intlist([-1i64].as_slice(), false, Kind::Float)?;
            entropy.push(summed.f_neg()?);
        }
        Ok((Tensor::f_cat(&logp, 0)?, Tensor::f_cat(&entropy, 0)?))
    }

    /// The gradient of sum(`dlogp` * logp), `dlogp` being `[rows]`, with respect to the hidden states; that with respect to the
    /// head's weight is added to `dweight`.
    ///
    /// By hand, as autograd would keep the logits of all chunks: with respect to a row's logits it is dlogp * (one-hot of its
    /// token - softmax).
    pub(super) fn gradient(&self, dlogp: &Tensor, dweight: &mut Tensor) -> Result<Tensor> {
        let _guard = no_grad_guard();
        let mut dhidden = Vec::new();
        for (start, rows) in self.chunks() {
            let (hidden, tokens, logits) = self.chunk((start, rows))?;
            let dlogp = dlogp.f_narrow(0, start, rows)?.f_unsqueeze(1)?;
            let mut dlogits = logits.f_softmax(-1, Kind::Float)?;
            let _ = dlogits.f_mul_(&dlogp.f_neg()?)?;
            let _ = dlogits.f_scatter_add_(1, &tokens, &dlogp)?;
            let _ = dweight.f_addmm_(&dlogits.f_tr()?, &hidden)?;
            dhidden.push(dlogits.f_matmul(self.weight)?);
        }
        Ok(Tensor::f_cat(&dhidden, 0)?)
    }
}
