//! The parameters of operations, and the arguments passed for them.

use crate::batch::Level;
use crate::tensor::graph::Tensor;

/// A parameter of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The parameter's name in the documentation and in messages.
    pub name: &'static str,
    /// The kind of argument that the parameter takes.
    pub kind: ParamKind,
    /// Whether the parameter may be omitted, together with all parameters after it.
    pub optional: bool,
}

/// The kind of argument that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A tensor or a number.
    Tensor,
    /// The name of a level.
    Level,
    /// A plain number; a tensor is not allowed.
    Number,
    /// One of the given names.
    Choice(&'static [&'static str]),
}

impl ParamKind {
    pub(super) fn takes(self, arg: &Argument) -> bool {
        match (self, arg) {
            (ParamKind::Tensor, Argument::Tensor(_) | Argument::Number(_)) => true,
            (ParamKind::Level, Argument::Level(_)) => true,
            (ParamKind::Number, Argument::Number(_)) => true,
            (ParamKind::Choice(choices), Argument::Choice(index)) => *index < choices.len(),
            _ => false,
        }
    }

    /// Returns the kind in words, for messages.
    pub(super) const fn what(self) -> &'static str {
        match self {
            ParamKind::Tensor => "a tensor or a number",
            ParamKind::Level => "a level",
            ParamKind::Number => "a number",
            ParamKind::Choice(_) => "one of its choices",
        }
    }
}

const fn required(name: &'static str, kind: ParamKind) -> Param {
    Param {
        name,
        kind,
        optional: false,
    }
}

pub(super) const fn tensor(name: &'static str) -> Param {
    required(name, ParamKind::Tensor)
}

pub(super) const fn level(name: &'static str) -> Param {
    required(name, ParamKind::Level)
}

pub(super) const fn number(name: &'static str) -> Param {
    required(name, ParamKind::Number)
}

pub(super) const fn choice(name: &'static str, of: &'static [&'static str]) -> Param {
    required(name, ParamKind::Choice(of))
}

pub(super) const fn optional(param: Param) -> Param {
    Param {
        optional: true,
        ..param
    }
}

/// An argument that is passed for a parameter.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A tensor, or a number as a batch tensor.
    Tensor(Tensor),
    /// A level.
    Level(Level),
    /// A number.
    Number(f64),
    /// One of the parameter's choices, by its index.
    Choice(usize),
}

/// Returns the argument at an index, which is a tensor or a number because [`Op::apply`] checks all arguments.
pub(super) fn tensor_at(args: &[Argument], index: usize) -> Tensor {
    match &args[index] {
        Argument::Tensor(tensor) => tensor.clone(),
        Argument::Number(number) => Tensor::number(*number),
        other => unreachable!("argument {index} must be a tensor, but is {other:?}"),
    }
}

pub(super) fn level_at(args: &[Argument], index: usize) -> Level {
    match args[index] {
        Argument::Level(level) => level,
        ref other => unreachable!("argument {index} must be a level, but is {other:?}"),
    }
}

pub(super) fn number_at(args: &[Argument], index: usize) -> f64 {
    match args[index] {
        Argument::Number(number) => number,
        ref other => unreachable!("argument {index} must be a number, but is {other:?}"),
    }
}
