//! Tests of the tensors as claims about every row of the op table: a new row is tested by being in the table.

mod agreement;
mod cases;
mod definitions;
mod derivatives;
mod precision;
mod world;
