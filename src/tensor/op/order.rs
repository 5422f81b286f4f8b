//! Rows that place values within the cells of a level: ranks and indices.

use super::build::like;
use super::{Argument, Class, Op, framed, level, level_at, tensor, tensor_at};
use crate::tensor::Level;
use crate::tensor::error::TensorError;
use crate::tensor::graph::{Prim, Tensor};

const ROW: Op = Op {
    class: Class::Order,
    params: &[tensor("x"), level("level")],
    build: |op, args| within(op, args, Prim::Rank),
    ..super::ROW
};

pub(super) const ROWS: &[&Op] = &[&RANK, &INDEX];

static RANK: Op = Op {
    name: "rank",
    doc: "the rank of each value in its cell of a level: 0 for the smallest, ties in batch order, NaN last",
    example: "batch.length.rank(\"batch\")",
    shows: &[2.0, 4.0, 0.0, 3.0, 1.0],
    ..ROW
};

static INDEX: Op = Op {
    name: "index",
    doc: "the index of each value in its cell of a level, in batch order from 0",
    example: "batch.length.index(\"group\")",
    shows: &[0.0, 1.0, 2.0, 0.0, 1.0],
    build: |op, args| within(op, args, Prim::Index),
    ..ROW
};

fn within(
    op: &'static Op,
    args: &[Argument],
    prim: fn(Level) -> Prim,
) -> Result<Tensor, TensorError> {
    let (x, to) = (tensor_at(args, 0), level_at(args, 1));
    framed(op, &x)?;
    if !to.contains(x.level()) {
        return Err(TensorError::not_coarser(op.name, x.level(), to));
    }
    like(prim(to), &x)
}
