//! One response's part of a loss, if the loss is a sum over responses in which each summand depends on one response only.

use crate::diagnostic::Diagnostics;
use crate::plan::Plan;
use crate::plan::graph::{Arg, SIZE};
use crate::script::Hook;
use crate::tensor::Level;

/// The rows that a function of one response does not support. The two sums are among them because PyTorch computes them in a
/// loop over the tokens, which `torch.fx` cannot trace.
const OVER_TOKENS: &str = "suffix_sum cumsum next prev rank index random";
const NO_LOSS_HELP: &str = "an advantage is computed from a whole batch: compute it first, and export only the loss that reads it";
const NO_SUM: &str =
    "the loss is not a sum over the responses, so a response has no part of its own";
const SUM_HELP: &str = "end the loss with `.sum(\"batch\")`; most losses of advlab do so with `--set aggregate=token_sum`";
const OWN_HELP: &str = "compute it beforehand, and add it to the data as a column, unless it depends on `logp`: a column has no gradient";

impl Plan {
    /// Returns the loss, if it is a sum over responses and each summand depends on one response only.
    pub(super) fn single(&self) -> Result<&Arg, Diagnostics> {
        let mut results = self.graph.results.iter();
        let Some((_, result)) = results.find(|(hook, _)| *hook == Hook::Loss) else {
            let message = format!("`{}` has no loss", self.recipe.name());
            return Err(self.refused(None, &message, NO_LOSS_HELP).into());
        };
        let nodes = &self.graph.nodes;
        let (mut sums, mut own) = (vec![result], Vec::new());
        while let Some(arg) = sums.pop() {
            let node = arg.node().map(|node| &nodes[node]);
            match node.map(|node| (node.row, &node.args[..])) {
                Some(("+" | "-", [a, b])) => sums.extend([a, b]),
                Some(("neg" | "*" | "/", [a, rest @ ..]))
                    if rest.iter().all(|arg| arg.node().is_none()) =>
                {
                    sums.push(a);
                }
                Some(("*", [Arg::Number(..), a])) => sums.push(a),
                Some(("sum", [of, Arg::Level(Level::Batch), rest @ ..])) => {
                    own.extend([of].into_iter().chain(rest));
                }
                _ => return Err(self.refused(node, NO_SUM, SUM_HELP).into()),
            }
        }
        let is_own = |level: Level| matches!(level, Level::Token | Level::Response);
        let is_coarse = |arg: &Arg| matches!(arg, Arg::Level(level) if !is_own(*level));
        for index in own.into_iter().flat_map(|arg| self.graph.below(arg, &[])) {
            let node = &nodes[index];
            let is_of_several = node.row == SIZE || node.nodes().next().is_some();
            let what = if OVER_TOKENS.split(' ').any(|row| row == node.row) {
                "is not supported in a function of one response"
            } else if !is_own(node.level) && is_of_several || node.args.iter().any(is_coarse) {
                "combines several responses here, but the function gets only one"
            } else {
                continue;
            };
            let message = format!("`{}` {what}", node.row);
            return Err(self.refused(Some(node), &message, OWN_HELP).into());
        }
        Ok(result)
    }
}
