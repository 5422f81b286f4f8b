//! Rows that compare and combine truths value by value: 0 or 1, exactly as IEEE compares.

use super::{Binary, Class, Kernel, Op, Param, Unary, tensor};

const A_B: &[Param] = &[tensor("a"), tensor("b")];

const ROW: Op = Op {
    class: Class::Logic,
    params: A_B,
    ..super::ROW
};

pub(super) const ROWS: &[&Op] = &[
    &LESS,
    &LESS_EQUAL,
    &GREATER,
    &GREATER_EQUAL,
    &EQUAL,
    &NOT_EQUAL,
    &AND,
    &OR,
    &NOT,
];

macro_rules! logic {
    ($row:ident, $name:literal, $doc:literal, $example:literal, $shows:expr, $kernel:expr) => {
        pub(super) static $row: Op = Op {
            name: $name,
            doc: $doc,
            example: $example,
            shows: &$shows,
            kernel: Kernel::Two($kernel),
            ..ROW
        };
    };
}

logic!(
    LESS,
    "<",
    "1 where a is less than b",
    "batch.length < 2",
    [0.0, 0.0, 1.0, 0.0, 1.0],
    Binary::Less
);
logic!(
    LESS_EQUAL,
    "<=",
    "1 where a is at most b",
    "batch.length <= 2",
    [1.0, 0.0, 1.0, 1.0, 1.0],
    Binary::LessEqual
);
logic!(
    GREATER,
    ">",
    "1 where a is greater than b",
    "batch.length > 2",
    [0.0, 1.0, 0.0, 0.0, 0.0],
    Binary::Greater
);
logic!(
    GREATER_EQUAL,
    ">=",
    "1 where a is at least b",
    "batch.length >= 2",
    [1.0, 1.0, 0.0, 1.0, 0.0],
    Binary::GreaterEqual
);
logic!(
    EQUAL,
    "==",
    "1 where a and b are the same number, exactly",
    "batch.length == 2",
    [1.0, 0.0, 0.0, 1.0, 0.0],
    Binary::Equal
);
logic!(
    NOT_EQUAL,
    "!=",
    "1 where a and b differ",
    "batch.length != 2",
    [0.0, 1.0, 1.0, 0.0, 1.0],
    Binary::NotEqual
);
logic!(
    AND,
    "&",
    "1 where both are not 0 (`&&` is not for tensors)",
    "batch.correct & (batch.length < 2)",
    [0.0, 0.0, 1.0, 0.0, 0.0],
    Binary::And
);
logic!(
    OR,
    "|",
    "1 where either is not 0 (`||` is not for tensors)",
    "batch.correct | (batch.length < 2)",
    [1.0, 0.0, 1.0, 0.0, 1.0],
    Binary::Or
);

pub(super) static NOT: Op = Op {
    name: "!",
    params: &[tensor("x")],
    doc: "1 where x is 0, else 0",
    example: "!batch.correct",
    shows: &[0.0, 1.0, 0.0, 1.0, 1.0],
    kernel: Kernel::One(Unary::Not),
    ..ROW
};
