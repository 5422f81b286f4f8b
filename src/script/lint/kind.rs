//! What the lint knows of a value before the script runs.

use rhai::{Dynamic, Expr};

use crate::script::explain::type_named;
use crate::script::members::{MEMBERS, Owner, ops};
use crate::tensor::op::Class;
use crate::tensor::{Level, Tensor};

/// The kind of a value as far as the text of the script shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// A tensor of any level.
    Tensor,
    /// A batch tensor: one value.
    BatchTensor,
    Batch,
    /// The batches of `batch.groups`.
    Batches,
    /// The parameters of a recipe, in a hook.
    Parameters,
    Integer,
    /// The integers of a range.
    Integers,
    /// A recipe's state, or a value in it or in the parameters: no batch.
    Data,
    /// Any other value that is no batch and no tensor; what is in it is unknown.
    Other,
    Unknown,
}

use ValueKind::{BatchTensor, Integer, Unknown};

impl ValueKind {
    pub(super) fn of(value: &Dynamic) -> ValueKind {
        match value.read_lock::<Tensor>() {
            Some(tensor) if tensor.level() == Level::Batch => BatchTensor,
            _ => ValueKind::of_type(value.type_name()),
        }
    }

    /// The kind of a type by the name that the engine or a declaration has for it.
    fn of_type(name: &str) -> ValueKind {
        match type_named(name).0 {
            _ if name == "batch tensor" => BatchTensor,
            "tensor" => ValueKind::Tensor,
            "batch" => ValueKind::Batch,
            "i64" => Integer,
            "range" => ValueKind::Integers,
            "" => Unknown,
            _ => ValueKind::Other,
        }
    }

    /// The kind of a function's parameter by its name: certain in hooks, a convention elsewhere.
    pub(super) fn of_parameter(name: &str) -> ValueKind {
        match name {
            "batch" => ValueKind::Batch,
            "p" => ValueKind::Parameters,
            _ => Unknown,
        }
    }

    pub(super) fn is_tensor(self) -> bool {
        matches!(self, ValueKind::Tensor | BatchTensor)
    }

    pub(super) fn may_be_batch(self) -> bool {
        matches!(self, ValueKind::Batch | Unknown)
    }

    pub(super) fn property(self, name: &str) -> ValueKind {
        match self {
            ValueKind::Batch if name == "groups" => ValueKind::Batches,
            ValueKind::Batch => of_member(name, Owner::Batch).unwrap_or(ValueKind::Tensor),
            ValueKind::Parameters | ValueKind::Data => ValueKind::Data,
            kind if kind.is_tensor() => of_member(name, Owner::Tensor).unwrap_or(Unknown),
            _ => Unknown,
        }
    }

    /// The kind of an element, or of each step of a loop over the value.
    pub(super) fn element(self) -> ValueKind {
        match self {
            ValueKind::Batches => ValueKind::Batch,
            ValueKind::Integers => Integer,
            ValueKind::Data => ValueKind::Data,
            _ => Unknown,
        }
    }

    /// The kind of an operation on such values, or that an assignment such as `x += y` leaves in `x`.
    pub(super) fn joined(kinds: &[ValueKind]) -> ValueKind {
        let tensors = [ValueKind::Tensor, BatchTensor];
        let tensor = tensors.into_iter().find(|kind| kinds.contains(kind));
        tensor.unwrap_or(Unknown)
    }

    /// The kind of the result for arguments of these kinds, the receiver first.
    pub(super) fn of_call(name: &str, kinds: &[ValueKind], arguments: &[Expr]) -> ValueKind {
        let are_integers = kinds.iter().all(|kind| *kind == Integer);
        match name {
            ".." | "..=" | "range" => return ValueKind::Integers,
            "+" | "-" | "*" | "/" | "%" if are_integers => return Integer,
            _ => {}
        }
        let Some(row) = ops(name).next() else {
            let owner = match kinds.first() {
                Some(ValueKind::Batch) => Owner::Batch,
                _ => Owner::Tensor,
            };
            return of_member(name, owner).unwrap_or(Unknown);
        };
        let kind = ValueKind::joined(kinds);
        // `min` and `max` are rows of two classes: with a level they reduce.
        let reduces = ops(name).any(|op| op.class == Class::Reduction) && name != "others_mean";
        let mut levels = arguments.iter().filter_map(|argument| match argument {
            Expr::StringConstant(level, _) => Some(level.as_str()),
            _ => None,
        });
        if reduces && kind.is_tensor() && levels.next() == Some("batch") {
            BatchTensor
        } else if row.class == Class::Logic && kind == BatchTensor {
            // A comparison of single values is a plain true or false.
            ValueKind::Other
        } else {
            kind
        }
    }
}

/// The kind of a member's value.
fn of_member(name: &str, owner: Owner) -> Option<ValueKind> {
    let mut members = MEMBERS.iter();
    let member = members.find(|member| member.name == name && member.of == owner)?;
    (!member.gives.is_empty()).then(|| ValueKind::of_type(member.gives))
}
