//! The op table: every operation that scripts have, one row each, by class.
//!
//! A row is the single definition of an operation: the script bindings, the documentation, the executors' dispatch
//! and the tests (its example runs, its derivative agrees with finite differences, executors agree) all read it. To add
//! an operation, add a row to the file of its class (for a new function of numbers, also the function to `functions`); write a
//! kernel only if none of the existing ones serves.

/// Rows with a kernel, and the list of them: `NAME = "name", parameters, "doc"; "example" => [its values]; kernel,
/// gradients;`. A row without gradients is piecewise constant. All other fields are `$base`'s.
macro_rules! rows {
    ($rows:ident, $base:expr; $(
        $row:ident = $name:literal, $params:expr, $doc:literal;
        $example:literal => [$($shows:expr),+]; $kernel:ident($f:expr) $(, $gradients:expr)?;
    )+) => {
        $(pub(in crate::tensor::op) static $row: Op = Op {
            name: $name,
            params: $params,
            doc: $doc,
            example: $example,
            shows: &[$($shows),+],
            kernel: Kernel::$kernel($f),
            $(derivative: Derivative::Of($gradients),)?
            ..$base
        };)+

        pub(super) const $rows: &[&Op] = &[$(&$row),+];
    };
}

mod build;
mod combinatorics;
mod elementwise;
mod field;
mod logic;
mod order;
mod param;
mod reduction;
mod scalar_functions;
mod scan;
mod statistics;

use std::fmt;

use super::error::TensorError;
use super::grad;
use super::graph::Tensor;

pub(crate) use build::Term;
pub(crate) use build::{add, at_last_token, greater, mul, sum_of_tokens, sum_to};
#[cfg(test)]
pub(crate) use build::{sub, sum};
pub(crate) use field::FAR;
pub(crate) use order::{Within, subset};
pub use param::{Argument, Param, ParamKind};
use param::{choice, level, level_at, number, number_at, optional, tensor, tensor_at};
pub(crate) use reduction::Reduction;
pub(crate) use scalar_functions::{Binary, Ternary, Unary, VisitBinary, VisitTernary, VisitUnary};
pub(crate) use scan::{Scan, at_last_token_grad};

/// The kinds of operation, in the order in which the reference lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Value by value, at the join of the arguments' levels.
    Elementwise,
    /// Comparisons and logic, 0 or 1 value by value.
    Logic,
    /// From a level to a coarser one.
    Reduction,
    /// A separate result for each value, within its cell of a level.
    Order,
    /// Along the tokens of each response, or along the turns of each trajectory.
    Scan,
    /// Counting subsets.
    Combinatorics,
    /// The field's own formulas.
    Field,
}

impl Class {
    /// All classes in the order of the reference.
    pub const ALL: [Class; 7] = [
        Class::Elementwise,
        Class::Logic,
        Class::Reduction,
        Class::Order,
        Class::Scan,
        Class::Combinatorics,
        Class::Field,
    ];

    /// The class's effect on levels, in one sentence.
    pub const fn levels(self) -> &'static str {
        match self {
            Class::Elementwise | Class::Logic | Class::Combinatorics => {
                "arguments of any levels; the result is at the coarsest level that is finer than each"
            }
            Class::Reduction => "from the tensor's level to the named coarser one",
            Class::Order => "the result is at the tensor's own level",
            Class::Scan => {
                "along the tokens of each response; a response tensor along the turns of its trajectory"
            }
            Class::Field => "the level depends on the formula",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Elementwise => "elementwise",
            Class::Logic => "comparisons and logic",
            Class::Reduction => "reductions",
            Class::Order => "within a level",
            Class::Scan => "scans",
            Class::Combinatorics => "combinatorics",
            Class::Field => "the field's own",
        })
    }
}

/// One row of the op table.
pub struct Op {
    /// The name that scripts call, or the operator's sign.
    pub name: &'static str,
    /// Its kind.
    pub class: Class,
    /// Its parameters; the first is the receiver if it is called as a method.
    pub params: &'static [Param],
    /// The effect, in one line.
    pub doc: &'static str,
    /// The source of the formula; empty for plain arithmetic.
    pub source: &'static str,
    /// A script on the example batch.
    pub example: &'static str,
    /// All values of the example, in order.
    pub shows: &'static [f64],
    pub(crate) kernel: Kernel,
    pub(crate) derivative: Derivative,
    pub(crate) build: fn(&'static Op, &[Argument]) -> Result<Tensor, TensorError>,
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Op({})", self.name)
    }
}

/// The defaults of a row's fields.
const ROW: Op = Op {
    name: "",
    class: Class::Elementwise,
    params: &[],
    doc: "",
    source: "",
    example: "",
    shows: &[],
    kernel: Kernel::Composed,
    derivative: Derivative::Zero,
    build: elementwise_node,
};

/// How a row is computed.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    /// Elementwise, of one value.
    One(Unary),
    /// Elementwise, of two values.
    Two(Binary),
    /// Elementwise, of three values.
    Three(Ternary),
    /// Elementwise, but an error with a message for values that allow no result.
    Checked(fn(&[f64]) -> Result<f64, String>),
    /// A reduction of the values of a cell.
    Reduce(Reduction),
    /// A separate result for each value, within its cell.
    Within(Within),
    /// A scan over a response's tokens.
    Scan(Scan),
    /// Composed of other rows, or built from a primitive of its own.
    Composed,
}

impl Kernel {
    pub(crate) fn scan(self) -> Scan {
        match self {
            Kernel::Scan(scan) => scan,
            _ => unreachable!("a scan's node has a scan's row"),
        }
    }

    pub(crate) fn reduction(self) -> Reduction {
        match self {
            Kernel::Reduce(reduction) => reduction,
            _ => unreachable!("a reduction's node has a reduction's row"),
        }
    }

    /// An elementwise kernel on single numbers; `None` for any other kernel or number of arguments.
    pub(crate) fn on_numbers(self, x: &[f64]) -> Option<Result<f64, String>> {
        match (self, x) {
            (Kernel::One(f), &[a]) => Some(Ok(f.of(a))),
            (Kernel::Two(f), &[a, b]) => Some(Ok(f.of(a, b))),
            (Kernel::Three(f), &[a, b, c]) => Some(Ok(f.of(a, b, c))),
            (Kernel::Checked(f), x) => Some(f(x)),
            _ => None,
        }
    }
}

/// The derivative of a row.
#[derive(Clone, Copy)]
pub(crate) enum Derivative {
    /// Piecewise constant.
    Zero,
    /// The gradient that each argument gets, as graphs, at the result's level or the argument's.
    Of(fn(&Vjp<'_>) -> Vec<Term>),
    /// There is none, and why.
    None(&'static str),
    /// The derivative follows from the rows that it is composed of.
    Composed,
}

/// A node with the gradient of the loss with respect to its result: the inputs of a derivative.
pub(crate) struct Vjp<'a> {
    pub(crate) args: &'a [Tensor],
    pub(crate) result: &'a Tensor,
    pub(crate) grad: &'a Tensor,
}

impl Vjp<'_> {
    fn grad(&self) -> Term {
        self.grad.into()
    }

    fn result(&self) -> Term {
        self.result.into()
    }

    /// The first argument.
    fn x(&self) -> Term {
        self.arg(0)
    }

    fn arg(&self, index: usize) -> Term {
        (&self.args[index]).into()
    }
}

/// All rows, class by class.
pub fn table() -> impl Iterator<Item = &'static Op> {
    [
        elementwise::ROWS,
        logic::ROWS,
        reduction::ROWS,
        reduction::COMPOSED,
        statistics::ROWS,
        order::ROWS,
        scan::ROWS,
        combinatorics::ROWS,
        field::ROWS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

impl Op {
    /// Builds the operation's node.
    ///
    /// # Errors
    /// [`TensorError`] if an argument is not of its parameter's kind, or if the levels do not fit.
    pub fn apply(&'static self, args: &[Argument]) -> Result<Tensor, TensorError> {
        let needed = self.params.iter().filter(|param| !param.optional).count();
        if args.len() < needed || args.len() > self.params.len() {
            let name = self.params.get(args.len()).map_or("", |param| param.name);
            let found = format!("{} arguments for {}", args.len(), self.signature());
            return Err(TensorError::argument(
                self.name,
                name,
                "as many arguments as parameters",
                &found,
            ));
        }
        for (param, arg) in self.params.iter().zip(args) {
            if !param.kind.takes(arg) {
                let found = format!("{arg:?}");
                return Err(TensorError::argument(
                    self.name,
                    param.name,
                    param.kind.what(),
                    &found,
                ));
            }
        }
        let is_of_view = |arg: &Argument| match arg {
            Argument::Tensor(tensor) => tensor.frame().is_some_and(|frame| frame.is_open_view()),
            _ => false,
        };
        if !args.iter().any(is_of_view) {
            return (self.build)(self, args);
        }
        // In a view, each group is a batch.
        let args = args.iter().map(|arg| match arg {
            Argument::Level(super::Level::Batch) => Argument::Level(super::Level::Group),
            arg => arg.clone(),
        });
        (self.build)(self, &args.collect::<Vec<Argument>>())
    }

    /// The form of a call: `x.mean(level)`, `a + b`, `where(c, a, b)`.
    pub fn signature(&self) -> String {
        let names: Vec<String> = self
            .params
            .iter()
            .map(|param| match (param.optional, param.kind) {
                (true, _) => format!("[{}]", param.name),
                _ => param.name.to_string(),
            })
            .collect();
        let sign = !self.name.starts_with(|c: char| c.is_alphabetic());
        match (&names[..], sign) {
            ([x], true) => format!("{}{x}", self.name),
            ([a, b], true) => format!("{a} {} {b}", self.name),
            _ if matches!(self.class, Class::Reduction | Class::Order | Class::Scan)
                || self.name == "whiten" =>
            {
                format!("{}.{}({})", names[0], self.name, names[1..].join(", "))
            }
            _ => format!("{}({})", self.name, names.join(", ")),
        }
    }
}

fn elementwise_node(op: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    Tensor::map(
        op,
        (0..args.len())
            .map(|index| tensor_at(args, index))
            .collect(),
    )
}

/// The frame of the tensor, for an operation over cells; an error for a single number, which has none.
fn framed(op: &'static Op, x: &Tensor) -> Result<std::sync::Arc<super::Frame>, TensorError> {
    x.frame().cloned().ok_or_else(|| unframed(op))
}

fn unframed(op: &'static Op) -> TensorError {
    TensorError::argument(op.name, "x", "a tensor of a batch", "a plain number")
}

fn grad_node(_: &'static Op, args: &[Argument]) -> Result<Tensor, TensorError> {
    grad::grad(&tensor_at(args, 0), &tensor_at(args, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_are_documented_and_unique() {
        let mut seen = HashSet::new();
        for op in table() {
            let first = op.params.get(1).map(|param| param.kind);
            assert!(
                seen.insert((op.name, op.params.len(), format!("{first:?}"))),
                "two rows for {}",
                op.name
            );
            assert!(
                op.doc.len() > 5 && !op.doc.ends_with('.'),
                "{}: one line without a full stop",
                op.name
            );
            assert!(
                !op.example.is_empty() && !op.shows.is_empty(),
                "{} needs an example",
                op.name
            );
        }
    }
}
