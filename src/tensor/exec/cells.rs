//! The cells of a coarser level: which values of a finer one lie in each.

use std::ops::Range;

use crate::batch::Layout;
use crate::tensor::Level;

/// The stretches of `from`-level values that lie in a cell of the coarser (or same) level `to`, in batch order.
pub(super) fn stretches(layout: &Layout, from: Level, to: Level, cell: usize) -> Vec<Range<usize>> {
    let one = |stretch: Range<usize>| Vec::from([stretch]);
    let members = |group: usize| layout.members(group).iter().map(|&member| member as usize);
    match (from, to) {
        (from, to) if from == to => one(cell..cell + 1),
        (from, Level::Batch) => one(0..layout.size(from)),
        (Level::Token, Level::Response) => one(layout.tokens_of(cell)),
        (Level::Position, Level::Group) => one(layout.positions_of(cell)),
        (Level::Token, Level::Group) => members(cell)
            .map(|member| layout.tokens_of(member))
            .collect(),
        (Level::Response, Level::Group) => members(cell).map(|member| member..member + 1).collect(),
        (Level::Token, Level::Position) => {
            let (group, index) = layout.group_of_position(cell);
            members(group)
                .map(|member| layout.tokens_of(member))
                .filter(|tokens| index < tokens.len())
                .map(|tokens| tokens.start + index..tokens.start + index + 1)
                .collect()
        }
        (from, to) => {
            unreachable!("{to} is not coarser than {from}: checked when the node was built")
        }
    }
}

/// The indices of all values in a cell, in batch order.
pub(super) fn indices(layout: &Layout, from: Level, to: Level, cell: usize) -> Vec<usize> {
    stretches(layout, from, to, cell)
        .into_iter()
        .flatten()
        .collect()
}

/// How many values of a finer (or the same) level a cell has.
pub(super) fn count(layout: &Layout, from: Level, to: Level, cell: usize) -> usize {
    match (from, to) {
        (Level::Response, Level::Group) => layout.members(cell).len(),
        (Level::Token, Level::Response) => layout.tokens_of(cell).len(),
        (from, to) => stretches(layout, from, to, cell)
            .iter()
            .map(Range::len)
            .sum(),
    }
}
