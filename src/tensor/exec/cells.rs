//! The cells of a coarser level: which values of a finer one lie in each.

use std::ops::Range;

use crate::batch::Layout;
use crate::tensor::Level;

/// Calls `f` with each stretch of `from`-level values that lies in a cell of the coarser (or same) level `to`, in
/// batch order.
pub(super) fn stretches(
    layout: &Layout,
    from: Level,
    to: Level,
    cell: usize,
    mut f: impl FnMut(Range<usize>),
) {
    match (from, to) {
        (from, to) if from == to => f(cell..cell + 1),
        (from, Level::Batch) => f(0..layout.size(from)),
        (Level::Token, Level::Response) => f(layout.tokens_of(cell)),
        (Level::Position, Level::Group) => f(layout.positions_of(cell)),
        (Level::Token, Level::Group) => {
            for &member in layout.members(cell) {
                f(layout.tokens_of(member as usize));
            }
        }
        (Level::Response, Level::Group) => {
            for &member in layout.members(cell) {
                f(member as usize..member as usize + 1);
            }
        }
        (Level::Token, Level::Position) => {
            let (group, index) = layout.group_of_position(cell);
            for &member in layout.members(group) {
                let tokens = layout.tokens_of(member as usize);
                if index < tokens.len() {
                    f(tokens.start + index..tokens.start + index + 1);
                }
            }
        }
        (from, to) => {
            unreachable!("{to} is not coarser than {from}: checked when the node was built")
        }
    }
}

/// The indices of all values in a cell, in batch order.
pub(super) fn indices(layout: &Layout, from: Level, to: Level, cell: usize) -> Vec<usize> {
    let mut indices = Vec::new();
    stretches(layout, from, to, cell, |stretch| indices.extend(stretch));
    indices
}
