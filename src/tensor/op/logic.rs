//! Rows that compare numbers as defined by IEEE 754, or that combine truth values. Each result is 0 or 1.

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
    LESS = "<", A_B, "1 if a is less than b, else 0";
        "batch.length < 2" => [0.0, 0.0, 1.0, 0.0, 1.0]; Two(Binary::Less);
    LESS_EQUAL = "<=", A_B, "1 if a is at most b, else 0";
        "batch.length <= 2" => [1.0, 0.0, 1.0, 1.0, 1.0]; Two(Binary::LessEqual);
    GREATER = ">", A_B, "1 if a is greater than b, else 0";
        "batch.length > 2" => [0.0, 1.0, 0.0, 0.0, 0.0]; Two(Binary::Greater);
    GREATER_EQUAL = ">=", A_B, "1 if a is at least b, else 0";
        "batch.length >= 2" => [1.0, 1.0, 0.0, 1.0, 0.0]; Two(Binary::GreaterEqual);
    EQUAL = "==", A_B, "1 if a and b are exactly the same number, else 0";
        "batch.length == 2" => [1.0, 0.0, 0.0, 1.0, 0.0]; Two(Binary::Equal);
    NOT_EQUAL = "!=", A_B, "1 if a and b differ, else 0";
        "batch.length != 2" => [0.0, 1.0, 1.0, 0.0, 1.0]; Two(Binary::NotEqual);
    AND = "&", A_B, "1 if neither a nor b is 0, else 0 (`&&` works only for single values)";
        "batch.correct & (batch.length < 2)" => [0.0, 0.0, 1.0, 0.0, 0.0]; Two(Binary::And);
    OR = "|", A_B, "1 if a or b is not 0, else 0 (`||` works only for single values)";
        "batch.correct | (batch.length < 2)" => [1.0, 0.0, 1.0, 0.0, 1.0]; Two(Binary::Or);
    NOT = "!", &[tensor("x")], "1 if x is 0, else 0";
        "!batch.correct" => [0.0, 1.0, 0.0, 1.0, 1.0]; One(Unary::Not);
}
