//! The operations of graphs, which executors compute.

use std::sync::Arc;

use super::op::Op;
use super::{Level, Value};
use crate::batch::TokenValues;

/// The operations of an executor: all rows of the op table reduce to these.
#[derive(Clone, Debug)]
pub(crate) enum Prim {
    /// A number; a batch tensor.
    Number(f64),
    /// Values that are there already.
    Values(Arc<Value>),
    Column(TokenValues),
    /// An elementwise row of the op table; its arguments are broadcast to the node's level.
    Map(&'static Op),
    /// The same value in each finer cell.
    Expand,
    /// A reduction row of the op table; the values count for which the second argument, if there is one, is not 0.
    Reduce(&'static Op),
    /// How many values of a finer level each cell has.
    Count(Level),
    /// A row of the op table that gives each value a separate result within its cell of a coarser level.
    Within(&'static Op, Level),
    /// A scan row over the tokens of each response, with its number (a discount or a fill); a second argument has a
    /// discount for each response instead.
    Scan(&'static Op, f64),
    /// A response's value on its last token, 0 on the others.
    AtLastToken,
    /// Uniform numbers in [0, 1), determined by a key and the index of the value.
    Random(u64),
    /// The part of the argument that belongs to one group, in that group's own frame.
    Select(usize),
    /// Puts tensors of the groups' own frames together; 0 for groups that no argument has.
    Assemble(Arc<[usize]>),
}

impl Prim {
    /// The name of the operation, as scripts write it or as messages call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Prim::Number(_) => "number",
            Prim::Values(_) => "values",
            Prim::Column(_) => "column",
            Prim::Map(op) | Prim::Reduce(op) | Prim::Scan(op, _) | Prim::Within(op, _) => op.name,
            Prim::Expand => "expand",
            Prim::Count(_) => "count",
            Prim::AtLastToken => "at_last_token",
            Prim::Random(_) => "random",
            Prim::Select(_) => "groups",
            Prim::Assemble(_) => "map_groups",
        }
    }

    /// Identifies the operation among those on the same arguments, at the same level and in the same frame; `None` for
    /// given values, and for operations that take groups apart.
    pub(super) fn signature(&self) -> Option<[u64; 3]> {
        let row = |op: &'static Op| std::ptr::from_ref(op) as u64;
        Some(match self {
            Prim::Number(value) => [0, 0, value.to_bits()],
            Prim::Map(op) => [1, row(op), 0],
            Prim::Expand => [2, 0, 0],
            Prim::Reduce(op) => [3, row(op), 0],
            Prim::Count(level) => [4, *level as u64, 0],
            Prim::Within(op, level) => [5, row(op), *level as u64],
            Prim::Scan(op, number) => [7, row(op), number.to_bits()],
            Prim::AtLastToken => [8, 0, 0],
            Prim::Random(key) => [9, 0, *key],
            Prim::Values(_) | Prim::Column(_) | Prim::Select(_) | Prim::Assemble(_) => return None,
        })
    }
}
