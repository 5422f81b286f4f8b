//! The part of a loss that one response has: of a loss that is a sum over responses, each by its own tokens.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::plan::Plan;
use crate::plan::formula::{Arg, Formula, Node, RANDOM, SIZE};
use crate::script::Hook;
use crate::tensor::Level;

/// Rows whose functions run over the tokens, which takes as many steps as a response has tokens.
const OVER_TOKENS: [&str; 7] = [
    "suffix_sum",
    "cumsum",
    "next",
    "prev",
    "rank",
    "index",
    RANDOM,
];
const SUM_HELP: &str = "end the loss with `.sum(\"batch\")`; the losses of advlab do so with `--set aggregate=token_sum`";
const OWN_HELP: &str = "compute it before, and give it to the data as a column of its own";

impl Plan {
    /// The formula of the loss, if it is a sum over responses that depend on no other.
    pub(super) fn single(&self) -> Result<&Formula, Diagnostics> {
        let found = self
            .formulas
            .iter()
            .find(|formula| formula.hook == Hook::Loss);
        let Some(formula) = found else {
            let message = format!("`{}` has no loss", self.recipe.name());
            let help = "an advantage is of a whole batch: compute it before, and export the loss that reads it";
            return Err(Diagnostic::error(message).with_help(help).into());
        };
        let about = self.recipe.about();
        let refused = |node: Option<&Node>, message: String, help: &str| {
            let origin = node.and_then(|node| node.origin.as_ref());
            let span = origin.and_then(|origin| about.place_of(origin));
            Diagnostic::error(message).with_help(help).at(span)
        };
        let mut sums: Vec<&Arg> = vec![&formula.result];
        let mut own: Vec<usize> = Vec::new();
        while let Some(arg) = sums.pop() {
            let node = arg.node().map(|node| &formula.nodes[node]);
            match node.map(|node| (node.row, &node.args[..])) {
                Some(("+" | "-", [a, b])) => sums.extend([a, b]),
                Some(("neg" | "*" | "/", [a, rest @ ..]))
                    if rest.iter().all(|arg| arg.node().is_none()) =>
                {
                    sums.push(a)
                }
                Some(("*", [Arg::Number(..), a])) => sums.push(a),
                Some(("sum", [Arg::Node(of, _), Arg::Level(Level::Batch), ..])) => {
                    own.push(*of);
                    own.extend(node.iter().flat_map(|node| node.nodes().skip(1)));
                }
                _ => {
                    let message = "the loss is no sum over the responses, so none of them has a part of its own";
                    return Err(refused(node, message.to_string(), SUM_HELP).into());
                }
            }
        }
        let mut seen = vec![false; formula.nodes.len()];
        while let Some(index) = own.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let node = &formula.nodes[index];
            let is_own = |level: Level| matches!(level, Level::Token | Level::Response);
            let is_coarse = |arg: &Arg| matches!(arg, Arg::Level(level) if !is_own(*level));
            if OVER_TOKENS.contains(&node.row) {
                let message = format!(
                    "`{}` takes a step for each token, and torch.fx traces no loop",
                    node.row
                );
                return Err(refused(Some(node), message, OWN_HELP).into());
            }
            if !is_own(node.level) && (node.row == SIZE || node.nodes().next().is_some())
                || node.args.iter().any(is_coarse)
            {
                let message = format!(
                    "`{}` here is over several responses, and the function has one",
                    node.row
                );
                return Err(refused(Some(node), message, OWN_HELP).into());
            }
            own.extend(node.nodes());
        }
        Ok(formula)
    }
}
