//! A row of the op table: its fields, its derivative, and how scripts apply it.

use std::fmt;
use std::sync::Arc;

use super::param::{Argument, Param, tensor_at};
use crate::batch::Level;
use crate::number_text::counted;
use crate::tensor::error::{TensorError, TensorErrorKind};
use crate::tensor::frame::Frame;
use crate::tensor::graph::{Row, Tensor};
use crate::tensor::kernel::Kernel;
use crate::tensor::trace::Trace;

/// Defines rows with a kernel, and the list of these rows. The form of a row is `NAME = "name", parameters, "doc"; "example" =>
/// [its values]; kernel, gradients;`. A row without gradients lets no gradient through. `$base` supplies all other fields.
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

/// The kinds of operation, in the order in which the reference lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Functions of corresponding values; the result is at the join of the arguments' levels.
    Elementwise,
    /// Comparisons and logic on corresponding values; each result is 0 or 1.
    Logic,
    /// Reductions to a coarser level, statistics of the other values in a cell, and `expand`.
    Reduction,
    /// Operations with a result for each value, computed from all values in the same cell of a level.
    Order,
    /// Operations along the tokens of each response, or along the turns of each trajectory.
    Scan,
    /// Functions that count subsets.
    Combinatorics,
    /// Formulas of reinforcement learning.
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

    /// Returns a phrase about the levels of the class's arguments and results or, for scans, about their direction.
    pub const fn levels(self) -> &'static str {
        match self {
            Class::Elementwise | Class::Logic => {
                "arguments of any levels; the result is at the coarsest level that is at least as fine as each argument's level"
            }
            Class::Combinatorics => {
                "arguments of any level except token; the result is at the coarsest level that is at least as fine as each argument's level"
            }
            Class::Reduction => "to the named level; `others_mean` and `others_std` keep the level",
            Class::Order => "the result is at the tensor's own level",
            Class::Scan => {
                "along the tokens of each response; for a response tensor, along the turns of each trajectory"
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
            Class::Field => "formulas of the field",
        })
    }
}

/// One row of the op table.
pub struct Op {
    /// The name that scripts call, or the operator's sign.
    pub name: &'static str,
    /// The kind of operation.
    pub class: Class,
    /// The parameters; if scripts call the operation as a method, the first parameter is the receiver.
    pub params: &'static [Param],
    /// A description of the result, in one line.
    pub doc: &'static str,
    /// The publication or program that defines the formula; empty if the row needs none.
    pub source: &'static str,
    /// A script that runs on the example batch.
    pub example: &'static str,
    /// All values of the example's result, in order.
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

/// The default values of a row's fields.
pub(super) const ROW: Op = Op {
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

impl Row for Op {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kernel(&self) -> Kernel {
        self.kernel
    }

    fn is_constant(&self) -> bool {
        matches!(self.derivative, Derivative::Zero)
    }

    fn gradients(&self, node: &Tensor, grad: &Tensor) -> Result<Vec<Tensor>, TensorError> {
        let vjp = Vjp {
            args: &node.inner().args,
            result: node,
            grad,
        };
        match self.derivative {
            Derivative::Of(derivative) => derivative(&vjp).into_iter().map(Term::built).collect(),
            Derivative::None(why) => {
                let error = TensorError::new(self.name, TensorErrorKind::NoDerivative(why));
                Err(error.or_at(node.origin()))
            }
            Derivative::Zero | Derivative::Composed => Ok(Vec::new()),
        }
    }
}

/// The derivative of a row.
#[derive(Clone, Copy)]
pub(crate) enum Derivative {
    /// The derivative is 0, because the row is piecewise constant or is `detach`.
    Zero,
    /// A function that returns the gradients of the arguments as graphs, each at the level of the result or of the argument, or
    /// at a coarser level.
    Of(fn(&Vjp<'_>) -> Vec<Term>),
    /// The row has no derivative, for the given reason.
    None(&'static str),
    /// The derivative follows from the rows of which the row is composed or, for a row with a primitive of its own, is in
    /// `backprop.rs`.
    Composed,
}

/// The inputs of a derivative (a vector-Jacobian product): a node, and the gradient of the loss with respect to its result.
pub(crate) struct Vjp<'a> {
    pub(crate) args: &'a [Tensor],
    pub(crate) result: &'a Tensor,
    pub(crate) grad: &'a Tensor,
}

impl Vjp<'_> {
    pub(super) fn grad(&self) -> Term {
        self.grad.into()
    }

    pub(super) fn result(&self) -> Term {
        self.result.into()
    }

    /// Returns the first argument.
    pub(super) fn x(&self) -> Term {
        self.arg(0)
    }

    pub(super) fn arg(&self, index: usize) -> Term {
        (&self.args[index]).into()
    }
}

pub(super) type Built = Result<Tensor, TensorError>;

/// A tensor that is being built, or the first error in building it. Derivatives and composed rows are written as formulas of
/// terms; at the end, [`Term::built`] returns the tensor or the error.
#[derive(Clone)]
pub(crate) struct Term(Built);

impl Term {
    pub(crate) fn built(self) -> Built {
        self.0
    }

    /// Applies `make`, which can fail, to the tensor.
    pub(super) fn then(self, make: impl FnOnce(Tensor) -> Built) -> Term {
        Term(self.0.and_then(make))
    }

    pub(super) fn map<const N: usize>(op: &'static Op, args: [Term; N]) -> Term {
        let args: Result<Vec<Tensor>, TensorError> = args.into_iter().map(Term::built).collect();
        Term(args.and_then(|args| Tensor::map(op, args)))
    }
}

impl From<&Tensor> for Term {
    fn from(tensor: &Tensor) -> Term {
        Term(Ok(tensor.clone()))
    }
}

impl From<&Term> for Term {
    fn from(term: &Term) -> Term {
        term.clone()
    }
}

impl From<f64> for Term {
    fn from(number: f64) -> Term {
        Term(Ok(Tensor::number(number)))
    }
}

impl Op {
    /// Builds the operation's result.
    ///
    /// # Errors
    /// [`TensorError`] if the number of arguments, or an argument's kind, level, batch or value does not fit the operation, or if
    /// a limit is exceeded.
    pub fn apply(&'static self, args: &[Argument]) -> Result<Tensor, TensorError> {
        let needed = self.params.iter().filter(|param| !param.optional).count();
        if args.len() < needed || args.len() > self.params.len() {
            let given = counted(args.len(), "argument");
            let message = format!("got {given}; the call is `{}`", self.signature());
            return Err(TensorError::new(
                self.name,
                TensorErrorKind::Argument(message),
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
            return self.built(args);
        }
        // In a view, each group is treated as a batch, so the level "batch" means the group.
        let of_group = args.iter().map(|arg| match arg {
            Argument::Level(Level::Batch) => Argument::Level(Level::Group),
            arg => arg.clone(),
        });
        self.built(&of_group.collect::<Vec<Argument>>())
    }

    /// Builds the node from checked arguments. The trace records the call of a composed row, because the
    /// graph holds only the operations of which the row is composed.
    fn built(&'static self, args: &[Argument]) -> Result<Tensor, TensorError> {
        let tensor = (self.build)(self, args)?;
        if let (Some(trace), Derivative::Composed) = (Trace::of(tensor.frame()), self.derivative) {
            trace.note_call(self.name, self.params, args, &tensor);
        }
        Ok(tensor)
    }

    /// Returns the form of a call, such as `x.mean(level, [selection])`, `a + b` or `where(c, a, b)`.
    pub fn signature(&self) -> String {
        let names: Vec<String> = self
            .params
            .iter()
            .map(|param| {
                if param.optional {
                    format!("[{}]", param.name)
                } else {
                    param.name.to_string()
                }
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

/// Returns the frame of the tensor, for an operation over cells. Fails for a single number, which has no frame.
pub(super) fn framed(op: &'static Op, x: &Tensor) -> Result<Arc<Frame>, TensorError> {
    x.frame().cloned().ok_or_else(|| unframed(op.name))
}

pub(super) fn unframed(op: &'static str) -> TensorError {
    TensorError::argument(op, "x", "a tensor of a batch", "a plain number")
}
