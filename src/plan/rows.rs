//! The form of each operation in each notation, and the way in which expressions are combined. For a form in PyTorch or LaTeX, a
//! new row of the op table needs a line in `rows.txt`; for PyTorch, a composed row also needs an entry in [`has_composed`].

use std::sync::LazyLock;

use super::graph::{Arg, Node, SIZE};
use crate::tensor::Level;
use crate::tensor::op::{self, Argument, Class};

/// A notation. `rows.txt` has forms for PyTorch and LaTeX; the notation of scripts follows from the name and the arguments of the
/// row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    Torch,
    Latex,
    Script,
}

/// An expression as text.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Whether the values of the expression are truth values.
    pub(super) is_truth: bool,
}

/// A line of `rows.txt`.
struct Row {
    names: Vec<&'static str>,
    place: &'static str,
    forms: [&'static str; 3],
    /// The name for a variable that holds the result.
    called: &'static str,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let lines = include_str!("rows.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut fields = line.split(';').map(str::trim);
        let mut next = || fields.next().unwrap_or("");
        Row {
            names: next().split(' ').collect(),
            place: next(),
            forms: [next(), next(), ""],
            called: next(),
        }
    });
    rows.collect()
});

/// Returns the form of a node in a notation, from the first line of `rows.txt` that fits the node and has a form in this
/// notation. `way` comes from [`Node::way`].
pub(super) fn form(
    node: &Node,
    way: Option<(Level, Level)>,
    notation: Notation,
) -> Option<&'static str> {
    let is_level = |name: &str, level: Level| {
        let is_cell = matches!(level, Level::Group | Level::Trajectory);
        name == "*" || name == level.name() || name == "cell" && is_cell
    };
    let is_arg = |(kind, arg): (&str, &Arg)| match (kind, arg) {
        ("x", Arg::Node(..)) | ("n", Arg::Number(..)) | ("c", Arg::Word(_)) => true,
        (kind, Arg::Number(number, None)) => kind.parse() == Ok(*number),
        _ => false,
    };
    let fits = |place: &str| match place.split_once('>') {
        Some((from, to)) => way.is_some_and(|way| is_level(from, way.0) && is_level(to, way.1)),
        None if place.is_empty() || place == node.level.name() => true,
        None => {
            let kinds: Vec<&str> = place.split(',').collect();
            kinds.len() == node.args.len() && kinds.into_iter().zip(&node.args).all(is_arg)
        }
    };
    // If a script made the groups, a size has the groups' keys as further arguments, for which no line has a form.
    let has_form = node.row != SIZE || node.args.len() == 2;
    let own = ROWS
        .iter()
        .filter(|row| has_form && row.names.contains(&node.row));
    own.map(|row| (row.place, row.forms[notation as usize]))
        .find_map(|(place, form)| (!form.is_empty() && fits(place)).then_some(form))
}

/// Returns a name for a variable that holds the result of a row.
pub(super) fn called(row: &'static str) -> &'static str {
    let mut own = ROWS.iter().filter(|own| own.names.contains(&row));
    let found = own.find_map(|own| (!own.called.is_empty()).then_some(own.called));
    found.unwrap_or(row)
}

/// Returns whether an elementwise operation has this name; the reductions `min` and `max` have the names of such operations.
pub(super) fn is_by_value(row: &str) -> bool {
    is_of_class(row, Class::Elementwise) || is_logic(row)
}

/// Returns whether the results of an operation are truth values.
pub(super) fn is_logic(row: &str) -> bool {
    row == "is_finite" || is_of_class(row, Class::Logic)
}

fn is_of_class(row: &str, class: Class) -> bool {
    op::table().any(|op| op.name == row && op.class == class)
}

/// Returns whether a composed row has its own form in PyTorch. If not, it is replaced by the rows of which it is composed.
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

/// The lowest precedence above comparisons, which is that of `|`. `CALL`, for calls and names, is the highest precedence.
pub(super) const LOGIC: u8 = 2;
pub(super) const CALL: u8 = 9;
const SUM: u8 = 5;
const PREFIX: u8 = 7;

/// The operators with two arguments, in ascending order of precedence. The empty entry is for shifts, for which there is no row.
const OPERATORS: [&str; 6] = [
    "< <= > >= == != = \\le \\ge \\ne",
    "| \\lor",
    "& \\land",
    "",
    "+ -",
    "* / \\, \\bmod",
];

/// Returns the precedence of an expression's outermost operator.
pub(super) fn binds(text: &str) -> u8 {
    if text.starts_with("\\begin") {
        return SUM;
    }
    let (mut depth, mut outer) = (0, String::new());
    for letter in text.chars() {
        depth += i32::from(matches!(letter, '(' | '[' | '{'));
        depth -= i32::from(matches!(letter, ')' | ']' | '}'));
        outer.push(if depth > 0 { '.' } else { letter });
    }
    let is_outer = |sign: &str| outer.contains(&format!(" {sign} "));
    let class = (1..)
        .zip(OPERATORS)
        .find(|(_, signs)| signs.split(' ').any(is_outer));
    let is_prefixed = text.starts_with(['-', '~']) || outer.contains(' ');
    class.map_or(if is_prefixed { PREFIX } else { CALL }, |(binds, _)| binds)
}

impl Text {
    pub(super) fn number(text: impl Into<String>) -> Text {
        let (text, is_truth) = (text.into(), false);
        Text { text, is_truth }
    }

    pub(super) fn truth(text: impl Into<String>) -> Text {
        let (text, is_truth) = (text.into(), true);
        Text { text, is_truth }
    }

    pub(super) fn into_number(self, notation: Notation) -> Text {
        Text::number(match notation {
            Notation::Torch if self.is_truth => {
                format!("{}.to(dtype)", within(&self.text, notation, CALL))
            }
            Notation::Latex if self.is_truth => format!("\\mathbb{{1}}[{}]", self.text),
            _ => self.text,
        })
    }

    pub(super) fn into_truth(self, notation: Notation) -> Text {
        let sign = if notation == Notation::Latex {
            "\\ne"
        } else {
            "!="
        };
        Text::truth(if self.is_truth {
            self.text
        } else {
            format!("{} {sign} 0", within(&self.text, notation, LOGIC))
        })
    }
}

/// Returns an expression, in brackets if its precedence is below `least`.
pub(super) fn within(text: &str, notation: Notation, least: u8) -> String {
    match notation {
        _ if binds(text) >= least => text.to_string(),
        Notation::Latex => format!("\\left({text}\\right)"),
        _ => format!("({text})"),
    }
}

/// Returns a form with expressions inserted at its placeholders.
pub(super) fn filled(form: &str, notation: Notation, places: &[(String, String)]) -> String {
    // The parts of a LaTeX environment are separate, so they need no brackets.
    let own = if form.starts_with("\\begin") {
        CALL
    } else {
        binds(form)
    };
    let (mut text, mut rest) = (String::new(), form);
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let found = places.iter().find_map(|(place, arg)| {
            Some((place, arg, after.strip_prefix(&**place)?.strip_prefix('}')?))
        });
        let Some((place, arg, after)) = found else {
            text.push('{');
            rest = after;
            continue;
        };
        let least = if !place.starts_with(|start: char| start.is_ascii_digit() || start == 'm') {
            0
        } else if after.starts_with(['.', '[', '^']) {
            CALL
        } else if own < PREFIX {
            own + u8::from(!text.is_empty() || own == 1)
        } else if own == PREFIX {
            PREFIX
        } else {
            0
        };
        text += &within(arg, notation, least);
        rest = after;
    }
    text + rest
}

/// Returns the text with the fewest significant digits that is parsed as exactly this number; a whole number has no decimal
/// point.
pub(super) fn literal(number: f64) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::called;
    use crate::tensor::op;

    #[test]
    fn each_row_has_a_name_that_python_takes() {
        for op in op::table() {
            let mut letters = called(op.name).chars();
            let is_name = letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            assert!(is_name, "{}", op.name);
        }
    }
}
