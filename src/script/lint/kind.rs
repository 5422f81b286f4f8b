//! What the lint knows of a value before the script runs: whether it can be a batch.

use crate::script::explain::type_named;
use crate::script::members::{MEMBERS, Owner, ops};

/// The kind of a value as far as the text of the script shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Batch,
    /// The batches of `batch.groups`.
    Batches,
    /// The parameters of a recipe, in a hook.
    Parameters,
    /// A recipe's state, or a value in it or in the parameters: no batch.
    Data,
    Integer,
    /// The integers of a range.
    Integers,
    /// Any other value, such as a tensor: no batch. What is in it is unknown.
    Other,
    Unknown,
}

impl ValueKind {
    /// The kind of a type by the name that the engine or a declaration has for it.
    pub(super) fn of_type(name: &str) -> ValueKind {
        match type_named(name).0 {
            "batch" => ValueKind::Batch,
            "i64" => ValueKind::Integer,
            "range" => ValueKind::Integers,
            "" if name != "batch tensor" => ValueKind::Unknown,
            _ => ValueKind::Other,
        }
    }

    /// The kind of a function's parameter by its name: certain in hooks, a convention elsewhere.
    pub(super) fn of_parameter(name: &str) -> ValueKind {
        match name {
            "batch" => ValueKind::Batch,
            "p" => ValueKind::Parameters,
            _ => ValueKind::Unknown,
        }
    }

    pub(super) fn may_be_batch(self) -> bool {
        matches!(self, ValueKind::Batch | ValueKind::Unknown)
    }

    pub(super) fn property(self, name: &str) -> ValueKind {
        match self {
            ValueKind::Batch if name == "groups" => ValueKind::Batches,
            ValueKind::Batch => of_member(name, Owner::Batch).unwrap_or(ValueKind::Other),
            ValueKind::Parameters | ValueKind::Data => ValueKind::Data,
            _ => ValueKind::Unknown,
        }
    }

    /// The kind of an element, or of each step of a loop over the value.
    pub(super) fn element(self) -> ValueKind {
        match self {
            ValueKind::Batches => ValueKind::Batch,
            ValueKind::Integers => ValueKind::Integer,
            ValueKind::Data => ValueKind::Data,
            _ => ValueKind::Unknown,
        }
    }

    /// The kind of the result for arguments of these kinds, the receiver first.
    pub(super) fn of_call(name: &str, kinds: &[ValueKind]) -> ValueKind {
        let are_integers = kinds.iter().all(|kind| *kind == ValueKind::Integer);
        let owner = match kinds.first() {
            Some(ValueKind::Batch) => Owner::Batch,
            _ => Owner::Tensor,
        };
        match name {
            ".." | "..=" | "range" => ValueKind::Integers,
            "+" | "-" | "*" | "/" | "%" if are_integers => ValueKind::Integer,
            name if ops(name).next().is_some() => ValueKind::Other,
            name => of_member(name, owner).unwrap_or(ValueKind::Unknown),
        }
    }
}

/// The kind of a member's value.
fn of_member(name: &str, owner: Owner) -> Option<ValueKind> {
    let mut members = MEMBERS.iter();
    let member = members.find(|member| member.name == name && member.of == owner)?;
    (!member.gives.is_empty()).then(|| ValueKind::of_type(member.gives))
}
