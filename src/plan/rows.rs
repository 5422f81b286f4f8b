//! What each row of the op table is in PyTorch and in LaTeX: a new row of the op table is a line of `rows.txt`.

use std::sync::LazyLock;

use super::formula::{Arg, Node};
use crate::tensor::Level;
use crate::tensor::op::Argument;

/// A line of `rows.txt`.
pub(super) struct Row {
    names: Vec<&'static str>,
    place: &'static str,
    pub(super) torch: &'static str,
    pub(super) latex: &'static str,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let lines = include_str!("rows.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut fields = line.split(';').map(str::trim);
        let mut next = || fields.next().unwrap_or("");
        let (names, place) = (next().split(' ').collect(), next());
        let (torch, latex) = (next(), next());
        Row {
            names,
            place,
            torch,
            latex,
        }
    });
    rows.collect()
});

/// The first line that fits a node; of an operation from a level to another, these as they are in the batch.
pub(super) fn find(node: &Node, way: Option<(Level, Level)>) -> Option<&'static Row> {
    let fits = |row: &&Row| match row.place.split_once('>') {
        Some((from, to)) => way.is_some_and(|(of, into)| {
            let is_cell = matches!(into, Level::Group | Level::Trajectory);
            (from == "*" || from == of.name()) && (to == into.name() || to == "cell" && is_cell)
        }),
        None if row.place.is_empty() => true,
        None if row.place.split(',').all(|kind| matches!(kind, "x" | "n")) => {
            let kinds = node.args.iter().map(|arg| match arg {
                Arg::Node(..) => "x",
                Arg::Number(..) => "n",
                _ => "",
            });
            kinds.collect::<Vec<&str>>().join(",") == row.place
        }
        None => row.place == node.level.name(),
    };
    let own = ROWS.iter().filter(|row| row.names.contains(&node.row));
    own.into_iter().find(fits)
}

/// Whether a composed row has a form of its own in the file; the others are opened.
pub(super) fn has_composed(name: &str, args: &[Argument]) -> bool {
    let levels = match (args.first(), args.get(1)) {
        (Some(Argument::Tensor(x)), Some(Argument::Level(to))) => Some((x.level(), *to)),
        _ => None,
    };
    match (name, levels) {
        ("whiten" | "quantile", Some((Level::Token | Level::Response, Level::Batch))) => true,
        ("others_mean", Some((Level::Response, Level::Group))) => {
            !matches!(args.get(2), Some(Argument::Tensor(selection)) if selection.level() != Level::Response)
        }
        ("bce_with_logits", _) => true,
        _ => false,
    }
}

pub(super) const CALL: u8 = 9;
pub(super) const NEGATIVE: u8 = 7;
pub(super) const SUM: u8 = 5;

/// The operators of Python with two arguments, those that bind least first.
const OPERATORS: [&str; 6] = ["< <= > >= == !=", "|", "&", "", "+ -", "* /"];

/// How tightly an expression of Python binds, calls and names most.
pub(super) fn binds(text: &str) -> u8 {
    let (mut depth, mut outer) = (0, String::new());
    for letter in text.chars() {
        depth += i32::from(matches!(letter, '(' | '[')) - i32::from(matches!(letter, ')' | ']'));
        outer.push(if depth > 0 { '.' } else { letter });
    }
    let is_outer = |signs: &&str| {
        signs
            .split(' ')
            .any(|sign| outer.contains(&format!(" {sign} ")))
    };
    let unary = if text.starts_with(['-', '~']) {
        NEGATIVE
    } else {
        CALL
    };
    // The empty class stands for shifts, which no row has.
    let class = (1..)
        .zip(OPERATORS)
        .find(|(_, signs)| !signs.is_empty() && is_outer(signs));
    class.map_or(unary, |(binds, _)| binds)
}
