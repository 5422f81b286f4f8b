//! The op table: the operations on tensors, one per row, ordered by class.
//!
//! A row is the single definition of an operation. The script bindings, the documentation and the executor read it. So do the
//! tests: they run its example, compare its derivative with finite differences, and check that plans give the same bits if their
//! steps run one at a time. To add an operation, add a row to the file of its class. For a new function of numbers, also add the
//! function to `kernel.rs`. Write a new kernel only if none of the existing kernels fits.

#[macro_use]
mod row;
mod combinatorics;
pub(in crate::tensor) mod elementwise;
mod field;
mod logic;
mod order;
pub(super) mod param;
pub(in crate::tensor) mod reduction;
pub(in crate::tensor) mod scan;
mod statistics;

#[cfg(test)]
pub(crate) use elementwise::sub;
pub(crate) use elementwise::{add, greater, mul};
pub(crate) use field::FAR;
pub(crate) use order::subset;
pub use param::{Argument, Param, ParamKind};
#[cfg(test)]
pub(crate) use reduction::sum;
pub(crate) use reduction::sum_of_tokens;
#[cfg(test)]
pub(crate) use row::Derivative;
pub use row::{Class, Op};
pub(crate) use scan::at_last_token;

/// Returns all rows, class by class.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

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
