//! The messages for operations that cannot be done: a message about levels or groups names the operation and the levels.

use insta::assert_snapshot;

use super::world::{World, leaf, regrouped};
use crate::tensor::op::{self, Argument, Op};
use crate::tensor::{Guard, Level, Origin, Tensor};

fn row(name: &str, params: usize) -> &'static Op {
    let is = |op: &&Op| op.name == name && op.params.len() == params;
    op::table().find(is).unwrap()
}

fn zeros(level: Level) -> Tensor {
    let frame = World::small().frame();
    leaf(&frame, level, vec![0.0; frame.size(level)])
}

/// The message of a row that cannot be built or cannot be computed.
fn message(op: &'static Op, arguments: &[Argument]) -> String {
    let outcome = op.apply(arguments).and_then(|tensor| tensor.evaluate());
    outcome.unwrap_err().to_string()
}

fn tensor(level: Level) -> Argument {
    Argument::Tensor(zeros(level))
}

#[test]
fn levels_that_do_not_fit() {
    assert_snapshot!(
        message(row("mean", 3), &[tensor(Level::Group), Argument::Level(Level::Response)]),
        @r#"`mean`: a group tensor cannot be reduced to response: it can be reduced to "batch", "group"; `x.expand("response")` repeats its value for each response"#
    );
    assert_snapshot!(
        message(row("sum", 3), &[tensor(Level::Response), Argument::Level(Level::Position)]),
        @r#"`sum`: a response tensor cannot be reduced to position: it can be reduced to "batch", "group", "trajectory", "response""#
    );
    assert_snapshot!(
        message(row("rank", 3), &[tensor(Level::Batch), Argument::Level(Level::Group)]),
        @r#"`rank`: a batch tensor cannot be reduced to group: it can be reduced to "batch"; `x.expand("group")` repeats its value for each group"#
    );
    assert_snapshot!(
        message(row("expand", 2), &[tensor(Level::Token), Argument::Level(Level::Group)]),
        @"`expand`: a token tensor cannot be expanded to group: that level is not finer; reduce it with `sum`, `mean`, ..."
    );
    assert_snapshot!(
        message(row("suffix_sum", 2), &[tensor(Level::Group)]),
        @"`suffix_sum`: needs a token tensor, but this is a group tensor: a response's value is put on its last token by `x.at_last_token()`; responses follow each other only in a batch with a column `trajectory`"
    );
    assert_snapshot!(
        message(row("at_last_token", 1), &[tensor(Level::Token)]),
        @r#"`at_last_token`: needs a value for each response, but this is a token tensor: reduce it first, as in `x.sum("response")`"#
    );
    assert_snapshot!(
        message(row("grad", 2), &[tensor(Level::Token), tensor(Level::Token)]),
        @r#"`grad`: the loss must be one value, a batch tensor, but this is a token tensor: say how to average it, as in `loss.mean("batch")`"#
    );
    assert_snapshot!(
        message(row("mean", 3), &[Argument::Number(1.0), Argument::Level(Level::Batch)]),
        @"`mean`: `x` must be a tensor of a batch, but this is a plain number"
    );
}

#[test]
fn tensors_of_different_batches_and_groups() {
    assert_snapshot!(
        message(row("+", 2), &[tensor(Level::Response), tensor(Level::Token)]),
        @"`+`: a response tensor and a token tensor of different batches cannot be combined: a value belongs to one batch, or to the batch of one group; `batch.map_groups(|g| ...)` joins the results of groups"
    );
    let frame = World::small().frame();
    let finer = regrouped(&frame, &[0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    let ones = |frame, level| Argument::Tensor(Tensor::number(1.0).expanded(level, frame).unwrap());
    assert_snapshot!(
        message(row("-", 2), &[ones(&frame, Level::Group), ones(&finer, Level::Position)]),
        @r#"`-`: a group tensor and a position tensor over different groups (after `regroup`) cannot be combined: bring one of them to response level first, as in `x.expand("response")`"#
    );
}

#[test]
fn values_that_do_not_fit() {
    let frame = World::small().frame();
    let counts = leaf(
        &frame,
        Level::Response,
        vec![4.0, 4.0, 4.0, 1.0, 4.0, 1.0, 4.0],
    );
    assert_snapshot!(
        message(
            row("binomial_ratio", 3),
            &[Argument::Number(1.0), Argument::Tensor(counts.clone()), Argument::Number(2.0)]
        ),
        @"`binomial_ratio`: k = 2 is more than the 1 to choose from, at response 3 of group 5"
    );
    let tokens = leaf(
        &frame,
        Level::Token,
        (0..9).map(|t| f64::from(t) / 4.0).collect(),
    );
    assert_snapshot!(
        message(row("binomial", 2), &[Argument::Tensor(tokens), Argument::Number(0.0)]),
        @"`binomial`: counts subsets of responses, and its result would be a token tensor: reduce token tensors first, as in `x.sum(\"response\")`, and position tensors, as in `x.sum(\"group\")`"
    );
    assert_snapshot!(
        message(row("ln_binomial", 2), &[Argument::Number(4.0), Argument::Number(-1.0)]),
        @"`ln_binomial`: k = -1 is negative, for these arguments"
    );
    assert_snapshot!(
        message(row("ln_binomial", 2), &[Argument::Number(1e9), Argument::Number(5e8)]),
        @"`ln_binomial`: a product of 500000000 factors is too long: at most 1000000 are possible, for these arguments"
    );
    let misfit = Tensor::from_buffer(
        &frame,
        Level::Group,
        crate::batch::FloatBuffer::F64(vec![0.0].into()),
    );
    assert_snapshot!(
        misfit.unwrap_err(),
        @"`values`: the number of values is 1, but the group level has 4 cells"
    );
    let binomial = [Argument::Tensor(counts.clone()), Argument::Number(1.0)];
    let binomial = row("binomial", 2).apply(&binomial).unwrap();
    let total = [Argument::Tensor(binomial), Argument::Level(Level::Batch)];
    let total = row("sum", 3).apply(&total).unwrap();
    assert_snapshot!(
        message(row("grad", 2), &[Argument::Tensor(total), Argument::Tensor(counts)]),
        @"`binomial`: has no derivative (it counts subsets of whole numbers), but the loss depends on it: if this is intended, use `detach()` on its arguments"
    );
}

/// Rust code may pass arguments that no script can pass.
#[test]
fn arguments_of_another_kind_or_number() {
    let x = tensor(Level::Response);
    for (name, params, arguments) in [
        ("mean", 3, vec![x.clone(), Argument::Number(1.0)]),
        ("mean", 3, vec![x.clone()]),
        ("mean", 3, vec![]),
        ("exp", 1, vec![x.clone(), x.clone()]),
        ("exp", 1, vec![Argument::Level(Level::Group)]),
        ("kl", 3, vec![x.clone(), x.clone(), Argument::Choice(9)]),
    ] {
        let found = message(row(name, params), &arguments);
        assert!(found.contains(name), "{found}");
    }
}

#[test]
fn what_was_stopped() {
    let guard = Guard::new(None, 3 << 20);
    let frame = World::large().frame_with(true, guard);
    let is_f64 = || Tensor::number(1.0).expanded(Level::Token, &frame).unwrap();
    let kept: Vec<Tensor> = (0..100).map(|_| is_f64()).collect();
    let error = kept.iter().find_map(|tensor| tensor.evaluate().err());
    assert_snapshot!(
        error.unwrap(),
        @"the tensors alive at once would take more than 3 MiB, the memory limit"
    );
}

/// An error names the line of the operation at fault, not the line that requested its value.
#[test]
fn an_error_knows_where_its_tensor_was_made() {
    let at = |line| Origin {
        source: None,
        line,
        column: 1,
    };
    let frame = World::small().frame();
    let x = leaf(&frame, Level::Response, vec![0.5; 7]);
    let binomial = row("binomial", 2)
        .apply(&[Argument::Tensor(x), Argument::Number(1.0)])
        .unwrap();
    binomial.mark(&at(3));
    let sum = op::add(&binomial, &Tensor::number(1.0)).unwrap();
    sum.mark(&at(9));
    assert_eq!(sum.evaluate().unwrap_err().origin, Some(at(3)));
}
