//! Where a value that is not finite comes from: the first operation that makes it of finite ones.

use super::explain::Script;
use crate::diagnostic::Diagnostic;
use crate::tensor::Tensor;

/// Steps back from the result; a formula has some dozens.
const STEPS: usize = 1000;

/// The operation, or the column, that NaN or an infinity came up in first.
pub(super) struct Culprit {
    tensor: Tensor,
    /// The last one on the way to it that a line of the script made.
    marked: Tensor,
}

/// Goes back from a tensor that is not finite, each time to an argument that is not.
///
/// `None` where a value on the way cannot be computed any more: time or memory has run out.
pub(super) fn blame(result: &Tensor) -> Option<Culprit> {
    let mut culprit = Culprit {
        tensor: result.clone(),
        marked: result.clone(),
    };
    for _ in 0..STEPS {
        let mut next = None;
        for arg in &culprit.tensor.inner().args {
            if arg.evaluate().ok()?.first_not_finite().is_some() {
                next = Some(arg.clone());
                break;
            }
        }
        let Some(arg) = next else {
            break;
        };
        if arg.origin().is_some() {
            culprit.marked = arg.clone();
        }
        culprit.tensor = arg;
    }
    Some(culprit)
}

impl Culprit {
    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The diagnostic with the location in the script, where a line of it made the operation, and what may help there.
    pub(super) fn told(&self, diagnostic: Diagnostic, script: &Script<'_>) -> Diagnostic {
        let op = self.tensor.inner().prim.name();
        let help = match op {
            "/" => "something is divided by 0 here: `safe_div(a, b)` is 0 where b is 0".to_string(),
            "ln" | "log1p" | "ln_binomial" => {
                "this is the logarithm of 0 or less here: `ln(max(x, 1e-12))`".to_string()
            }
            "sqrt" | "**" => {
                "this is a root or a power that is no number here: is its argument below 0?"
                    .to_string()
            }
            "exp" | "expm1" | "square" => {
                "this grows beyond all numbers here: limit what goes in with `x.clamp(-20, 20)`"
                    .to_string()
            }
            "number" => "a number of the script is not finite".to_string(),
            _ => format!("every value that `{op}` gets is finite here, and its result is not"),
        };
        let place = self
            .marked
            .origin()
            .and_then(|origin| script.place_of(origin));
        diagnostic.with_help(help).at(place)
    }
}
