//! What can be known of a value from the text alone.

use std::collections::HashMap;

use rhai::{Expr, FnCallExpr};

use crate::tensor::op::{self, Class};

/// What is known of an expression's value.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A tensor of a finer level than batch.
    Tensor,
    /// A batch tensor: one value.
    One,
    /// The batch.
    Batch,
    /// The parameters, in a hook.
    Parameters,
    /// Anything else, or not known.
    Other,
}

pub(super) type Variables = HashMap<String, Kind>;

/// What is known of a function's parameters: by convention, and in all hooks, `batch` and `p` are what they say.
pub(super) fn parameters(names: &[&str]) -> Variables {
    let kind = |name: &str| match name {
        "batch" => Kind::Batch,
        "p" => Kind::Parameters,
        _ => Kind::Other,
    };
    names
        .iter()
        .map(|name| (name.to_string(), kind(name)))
        .collect()
}

/// What is known of a variable.
pub(super) fn known(expression: &Expr, variables: &Variables) -> Kind {
    match expression {
        Expr::Variable(variable, ..) => variables.get(variable.1.as_str()).copied(),
        _ => None,
    }
    .unwrap_or(Kind::Other)
}

pub(super) fn is_groups(expression: &Expr) -> bool {
    matches!(expression, Expr::Dot(chain, ..)
        if matches!(&chain.rhs, Expr::Property(property, _) if property.2.as_str() == "groups"))
}

pub(super) fn meet(kinds: &[Kind]) -> Kind {
    if kinds.contains(&Kind::Tensor) {
        Kind::Tensor
    } else if kinds.contains(&Kind::One) {
        Kind::One
    } else {
        Kind::Other
    }
}

/// What a call gives.
pub(super) fn result(call: &FnCallExpr, kinds: &[Kind]) -> Kind {
    let Some(row) = op::table().find(|op| op.name == call.name.as_str()) else {
        return match (call.name.as_str(), kinds.first()) {
            ("random" | "map_groups", Some(Kind::Batch)) => Kind::Tensor,
            ("regroup", Some(Kind::Batch)) => Kind::Batch,
            _ => Kind::Other,
        };
    };
    let to = call.args.iter().find_map(|argument| match argument {
        Expr::StringConstant(level, _) => Some(level.as_str()),
        _ => None,
    });
    // `min` and `max` are rows of two classes: with a level they reduce.
    let reduces = op::table().any(|op| op.name == row.name && op.class == Class::Reduction);
    match (row.class, to, meet(kinds)) {
        (_, Some("batch"), Kind::Tensor | Kind::One) if reduces && row.name != "others_mean" => {
            Kind::One
        }
        // A comparison of single values is a plain true or false.
        (Class::Logic, _, Kind::One) => Kind::Other,
        (_, _, kind) => kind,
    }
}
