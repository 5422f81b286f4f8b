//! The kinds of a script's values, and what the functions of scripts give: for the lint, which follows them through a
//! script, for completion, and for what messages call them.

use rhai::Dynamic;

use super::token::{Token, TokenKind};
use crate::script::members::{MEMBERS, Owner};
use crate::tensor::op::{self, Class, Op};
use crate::tensor::{Level, Tensor};

/// The kind of a value, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// A tensor of any level, or of one that is finer than batch.
    Tensor,
    /// A batch tensor: one value.
    BatchTensor,
    Batch,
    /// The batches of `batch.groups`.
    Batches,
    /// What tells responses apart by name.
    Key,
    /// The parameters of a recipe, in a hook.
    Parameters,
    /// A recipe's state, or a value in it or in the parameters: no batch.
    Data,
    Map,
    Array,
    String,
    Character,
    Integer,
    Number,
    Boolean,
    Range,
    /// A range or an array, for a loop.
    Iterable,
    /// A function, or a closure.
    Function,
    Nothing,
    Error,
    Unknown,
}

/// A kind, as messages call it, and the names that the engine, its parser and declarations have for it.
const KINDS: [(ValueKind, &str, &str); 18] = [
    (ValueKind::Tensor, "a tensor", "tensor"),
    (ValueKind::BatchTensor, "a batch tensor", "batch tensor"),
    (ValueKind::Batch, "a batch", "batch"),
    (ValueKind::Batches, "an array", "batches"),
    (ValueKind::Key, "a key", "key"),
    (ValueKind::Array, "an array", "array, Array, an array"),
    (ValueKind::Parameters, "a map", "parameters"),
    (ValueKind::Map, "a map", "map, Map, an object map"),
    (ValueKind::String, "a string", "string"),
    (ValueKind::Character, "a character", "char, a character"),
    // The parser calls an integer "a number".
    (ValueKind::Integer, "an integer", "i64, INT, int, a number"),
    (
        ValueKind::Number,
        "a float",
        "f64, FLOAT, float, a floating-point number",
    ),
    (
        ValueKind::Boolean,
        "true or false",
        "bool, a boolean, a boolean expression",
    ),
    (ValueKind::Range, "a range", "range"),
    (
        ValueKind::Iterable,
        "an array or a range",
        "an iterable value",
    ),
    (ValueKind::Function, "a function", "Fn"),
    (ValueKind::Nothing, "nothing, `()`", "()"),
    (ValueKind::Error, "a caught error", "error"),
];

impl ValueKind {
    pub(crate) fn of(value: &Dynamic) -> ValueKind {
        match value.read_lock::<Tensor>() {
            Some(tensor) if tensor.level() == Level::Batch => ValueKind::BatchTensor,
            _ => ValueKind::of_type(value.type_name()),
        }
    }

    /// The kind of a type by the name that the engine, its parser or a declaration has for it.
    pub(crate) fn of_type(name: &str) -> ValueKind {
        let name = name.trim();
        let mut kinds = KINDS.into_iter();
        if let Some((kind, ..)) = kinds.find(|(.., names)| names.split(", ").any(|n| n == name)) {
            return kind;
        }
        // Of longer names, as of paths of types.
        let parts = [
            ("tring", ValueKind::String),
            ("str", ValueKind::String),
            ("Tensor", ValueKind::Tensor),
            ("ScriptBatch", ValueKind::Batch),
            ("ange", ValueKind::Range),
            ("Problem", ValueKind::Error),
        ];
        let part = parts.into_iter().find(|(part, _)| name.contains(part));
        part.map_or(ValueKind::Unknown, |(_, kind)| kind)
    }

    /// As a message calls it: "an integer".
    pub(crate) fn described(self) -> &'static str {
        let row = KINDS.into_iter().find(|(kind, ..)| *kind == self);
        row.map_or("a value of unknown type", |(_, described, _)| described)
    }

    pub(crate) fn is_tensor(self) -> bool {
        matches!(self, ValueKind::Tensor | ValueKind::BatchTensor)
    }

    /// The kind of a function's parameter by its name: certain in hooks, a convention elsewhere.
    pub(crate) fn of_parameter(name: &str) -> ValueKind {
        match name {
            "batch" => ValueKind::Batch,
            "p" => ValueKind::Parameters,
            _ => ValueKind::Unknown,
        }
    }

    pub(crate) fn property(self, name: &str) -> ValueKind {
        let owner = match self {
            ValueKind::Batch if name == "groups" => return ValueKind::Batches,
            ValueKind::Parameters | ValueKind::Data => return ValueKind::Data,
            ValueKind::Batch => Owner::Batch,
            kind if kind.is_tensor() => Owner::Tensor,
            _ => return ValueKind::Unknown,
        };
        match (declared(name, owner), owner) {
            (Some(kind), _) => kind,
            (None, Owner::Batch) => ValueKind::Tensor,
            _ => ValueKind::Unknown,
        }
    }

    /// The kind of an element, or of each step of a loop over the value.
    pub(crate) fn element(self) -> ValueKind {
        match self {
            ValueKind::Batches => ValueKind::Batch,
            ValueKind::Range => ValueKind::Integer,
            ValueKind::Data => ValueKind::Data,
            _ => ValueKind::Unknown,
        }
    }

    /// The kind of an operation on such values, or that an assignment such as `x += y` leaves in `x`.
    pub(crate) fn joined(kinds: &[ValueKind]) -> ValueKind {
        let has = |kind| kinds.contains(&kind);
        if has(ValueKind::Tensor) {
            ValueKind::Tensor
        } else if has(ValueKind::BatchTensor) {
            ValueKind::BatchTensor
        } else {
            ValueKind::Unknown
        }
    }

    /// The kind of the result for such arguments, the receiver first; `level` is the string among them.
    pub(crate) fn of_call(name: &str, arguments: &[ValueKind], level: Option<&str>) -> ValueKind {
        let owner = match arguments.first() {
            Some(ValueKind::Batch) => Owner::Batch,
            _ => Owner::Tensor,
        };
        let are_integers = arguments.iter().all(|kind| *kind == ValueKind::Integer);
        match name {
            ".." | "..=" | "range" => return ValueKind::Range,
            "+" | "-" | "*" | "/" | "%" if are_integers => return ValueKind::Integer,
            _ => {}
        }
        let Some(row) = rows(name).next() else {
            return declared(name, owner).unwrap_or(ValueKind::Unknown);
        };
        // `min` and `max` are rows of two classes: with a level they reduce.
        let reduces = rows(name).any(|op| op.class == Class::Reduction);
        match (row.class, level, ValueKind::joined(arguments)) {
            (_, Some("batch"), kind) if kind.is_tensor() && reduces && name != "others_mean" => {
                ValueKind::BatchTensor
            }
            // A comparison of single values is a plain true or false.
            (Class::Logic, _, ValueKind::BatchTensor) => ValueKind::Boolean,
            (_, _, kind) => kind,
        }
    }

    /// The kind of the expression that ends with these tokens; `variable` gives the kinds of variables.
    pub(crate) fn at_end(code: &[Token<'_>], variable: &impl Fn(&str) -> ValueKind) -> ValueKind {
        let Some((last, before)) = code.split_last() else {
            return ValueKind::Unknown;
        };
        let after_dot = |code: &[Token<'_>]| {
            let dot = code.last().is_some_and(|token| token.text == ".");
            dot.then(|| ValueKind::at_end(&code[..code.len() - 1], variable))
        };
        match (last.kind, last.text) {
            (TokenKind::String, _) => ValueKind::String,
            (TokenKind::Number, number) if number.contains(['.', 'e']) => ValueKind::Number,
            (TokenKind::Number, _) => ValueKind::Integer,
            (TokenKind::Name, name) => match after_dot(before) {
                Some(receiver) => receiver.property(name),
                None => variable(name),
            },
            (_, "()" | ")" | "]") => {
                let opening = match last.text {
                    "()" => before.len(),
                    _ => opening(before),
                };
                match (code[..opening].split_last(), last.text) {
                    (None, "]") => ValueKind::Array,
                    (None, _) => ValueKind::Unknown,
                    (_, "]") => ValueKind::at_end(&code[..opening], variable).element(),
                    (Some((function, head)), _) if function.kind == TokenKind::Name => {
                        let receiver = after_dot(head).unwrap_or(ValueKind::Unknown);
                        ValueKind::of_call(function.text, &[receiver], None)
                    }
                    // A formula in brackets is most likely a tensor's.
                    _ => ValueKind::Tensor,
                }
            }
            _ => ValueKind::Unknown,
        }
    }
}

/// The rows of the op table with this name: `min` and `max` have two.
pub(crate) fn rows(name: &str) -> impl Iterator<Item = &'static Op> {
    op::table().filter(move |op| op.name == name)
}

/// The index of the bracket that is closed after these tokens.
fn opening(before: &[Token<'_>]) -> usize {
    let mut depth = 1;
    let opening = before.iter().rposition(|token| {
        depth -= token.nesting();
        depth == 0
    });
    opening.unwrap_or(0)
}

/// The kind of a member, from its declaration for editors.
fn declared(name: &str, owner: Owner) -> Option<ValueKind> {
    let mut members = MEMBERS.iter();
    let member = members.find(|member| member.name == name && member.of == owner)?;
    let (_, kind) = member.declared.split_once("-> ")?;
    Some(ValueKind::of_type(kind.trim_end_matches(';')))
}
