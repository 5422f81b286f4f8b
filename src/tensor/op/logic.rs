//! Rows that compare numbers, exactly as IEEE does, or combine truth values; each result is 0 or 1.

use super::param::{Param, tensor};
use super::row::{self, Class, Op};
use crate::tensor::kernel::{Binary, Kernel, Unary};

const A_B: &[Param] = &[tensor("a"), tensor("b")];

const ROW: Op = Op {
    class: Class::Logic,
    ..row::ROW
};

rows! {
    ROWS, ROW;
    LESS = "<", A_B, "1 where a is less than b";
        "batch.length < 2" => [0.0, 0.0, 1.0, 0.0, 1.0]; Two(Binary::Less);
    LESS_EQUAL = "<=", A_B, "1 where a is at most b";
        "batch.length <= 2" => [1.0, 0.0, 1.0, 1.0, 1.0]; Two(Binary::LessEqual);
    GREATER = ">", A_B, "1 where a is greater than b";
        "batch.length > 2" => [0.0, 1.0, 0.0, 0.0, 0.0]; Two(Binary::Greater);
    GREATER_EQUAL = ">=", A_B, "1 where a is at least b";
        "batch.length >= 2" => [1.0, 1.0, 0.0, 1.0, 0.0]; Two(Binary::GreaterEqual);
    EQUAL = "==", A_B, "1 where a and b are the same number, exactly";
        "batch.length == 2" => [1.0, 0.0, 0.0, 1.0, 0.0]; Two(Binary::Equal);
    NOT_EQUAL = "!=", A_B, "1 where a and b differ";
        "batch.length != 2" => [0.0, 1.0, 1.0, 0.0, 1.0]; Two(Binary::NotEqual);
    AND = "&", A_B, "1 where neither a nor b is 0 (`&&` works only for single values)";
        "batch.correct & (batch.length < 2)" => [0.0, 0.0, 1.0, 0.0, 0.0]; Two(Binary::And);
    OR = "|", A_B, "1 where a or b is not 0 (`||` works only for single values)";
        "batch.correct | (batch.length < 2)" => [1.0, 0.0, 1.0, 0.0, 1.0]; Two(Binary::Or);
    NOT = "!", &[tensor("x")], "1 where x is 0, else 0";
        "!batch.correct" => [0.0, 1.0, 0.0, 1.0, 1.0]; One(Unary::Not);
}
