//! Expressions of Python: operations by their lines of `rows.txt`, with arguments in brackets where these are needed.

use super::function::Writer;
use super::python::literal;
use super::{LONG, WIDTH, Written};
use crate::diagnostic::Diagnostic;
use crate::plan::every_batch::{GROUPS_HELP, REGROUPED};
use crate::plan::formula::{Arg, BY_GROUP, COLUMN, Formula, Node, REGROUP, SIZE, VALUES};
use crate::plan::rows::{self, CALL, NEGATIVE, binds};
use crate::tensor::Level;
use crate::tensor::op::{self, Class};

const COLUMN_HELP: &str = "give it to the batch as a column of its own";
const OTHERWISE: &str = "write it with sums, means, comparisons and `where`; a reduction in two steps is `x.sum(\"response\").sum(\"group\")`";

/// An expression of Python.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Whether its values are true and false.
    pub(super) is_truth: bool,
}

impl Text {
    pub(super) fn number(text: impl Into<String>) -> Text {
        let (text, is_truth) = (text.into(), false);
        Text { text, is_truth }
    }

    pub(super) fn into_number(self) -> Text {
        if self.is_truth {
            Text::number(format!("{}.to(dtype)", self.within(CALL)))
        } else {
            self
        }
    }

    fn into_truth(self) -> Text {
        let text = if self.is_truth {
            self.text
        } else {
            format!("{} != 0", self.within(2))
        };
        Text {
            text,
            is_truth: true,
        }
    }

    /// In brackets if it binds less than its place wants.
    pub(super) fn within(&self, least: u8) -> String {
        if binds(&self.text) < least {
            format!("({})", self.text)
        } else {
            self.text.clone()
        }
    }
}

impl Writer<'_> {
    /// An argument as an expression that broadcasts to a level.
    pub(super) fn arg(&mut self, arg: &Arg, at: Level) -> Written<Text> {
        let node = match arg {
            Arg::Number(number, made_of) => {
                let text = made_of
                    .as_ref()
                    .map(|made_of| made_of.written(str::to_uppercase));
                return Ok(Text::number(text.unwrap_or_else(|| literal(*number))));
            }
            Arg::Node(node, _) => *node,
            Arg::Level(_) | Arg::Choice(_) => unreachable!("a level is no value"),
        };
        let own = self.formula.nodes[node].level;
        let mut text = self.value(node)?;
        if is_by_token(at) && own != Level::Batch && !is_by_token(own) {
            text.text = format!("{}[:, None]", text.within(CALL));
        }
        Ok(text)
    }

    /// An argument with a value in each cell of its level.
    fn full(&mut self, arg: &Arg) -> Written<Text> {
        let Arg::Node(node, at) = *arg else {
            return self.arg(arg, Level::Batch);
        };
        let text = self.arg(arg, at)?.into_number();
        let own = self.formula.nodes[node].level;
        let shape = match at {
            Level::Token | Level::Position if !self.is_wide[node] => "mask",
            at if own == Level::Batch && at != Level::Batch => "index",
            _ => return Ok(text),
        };
        Ok(Text::number(format!(
            "{}.expand({shape}.shape)",
            text.within(CALL)
        )))
    }

    /// The expression of a node: its variable, if it has one, or its operation.
    fn value(&mut self, node: usize) -> Written<Text> {
        if let Some(variable) = &self.assigned[node] {
            return Ok(variable.clone());
        }
        let of = &self.formula.nodes[node];
        if of.row == COLUMN {
            return Ok(self.column(of));
        }
        let text = self.operation(node)?;
        let is_result = self.formula.result.node() == Some(node) && self.uses[node] == 1;
        let is_named = of.name.is_some() || self.uses[node] > 1;
        let is_short = text.text.len() <= if is_result { WIDTH - 11 } else { LONG };
        if is_short && (is_result || !is_named) {
            return Ok(text);
        }
        Ok(self.assign(node, text))
    }

    fn column(&mut self, node: &Node) -> Text {
        let name = node.name.clone().unwrap_or_default();
        if name == "length" && !self.plan.batch.has("length") {
            return Text::number("mask.sum(1).to(dtype)");
        }
        self.take(&name, node.level);
        Text::number(name)
    }

    fn refused(&self, node: &Node, what: &str, help: &str) -> Diagnostic {
        let about = self.plan.recipe.about();
        let span = node
            .origin
            .as_ref()
            .and_then(|origin| about.place_of(origin));
        Diagnostic::error(format!("{what} has no form in PyTorch yet"))
            .with_help(help)
            .at(span)
    }

    /// The level of an operation's values and the one that it goes to; without trajectories, a response is one.
    fn way(&self, node: &Node) -> Option<(Level, Level)> {
        let has_turns = self.plan.batch.layout().has_trajectories();
        let level = |level: Level| {
            if level == Level::Trajectory && !has_turns {
                Level::Response
            } else {
                level
            }
        };
        let from = match node.args.first()? {
            Arg::Node(_, from) | Arg::Level(from) => *from,
            _ => return None,
        };
        let to = node.args[1..].iter().find_map(|arg| match arg {
            Arg::Level(to) => Some(*to),
            _ => None,
        });
        Some((level(from), level(to?)))
    }

    /// The values that an operation is over: those that count, once each, and are selected; `None` for all.
    fn counted(&mut self, node: &Node, from: Level) -> Written<Option<Text>> {
        let own = match from {
            Level::Token | Level::Position => Some("mask"),
            Level::Group => Some("first"),
            Level::Trajectory => Some("first_turn"),
            _ => None,
        };
        let selection = node
            .args
            .get(2..)
            .into_iter()
            .flatten()
            .find(|arg| arg.node().is_some());
        let selection = selection
            .filter(|arg| !self.always_holds(arg))
            .map(|arg| Ok(self.arg(arg, from)?.into_truth()))
            .transpose()?;
        let text = match (own, selection) {
            (Some(own), Some(selection)) => format!("{own} & {}", selection.within(4)),
            (Some(own), None) => own.to_string(),
            (None, selection) => return Ok(selection),
        };
        Ok(Some(Text {
            text,
            is_truth: true,
        }))
    }

    /// Whether a condition holds for any values: `batch.correct >= 0`.
    fn always_holds(&self, arg: &Arg) -> bool {
        let of = |arg: &Arg| arg.node().map(|node| &self.formula.nodes[node]);
        let is_counted = |node: &Node| {
            matches!(
                node.row,
                "<" | "<=" | ">" | ">=" | "==" | "!=" | "count" | SIZE
            )
        };
        of(arg).is_some_and(|node| {
            let is_from_0 = node.row == ">=" && matches!(node.args[1], Arg::Number(0.0, _));
            is_from_0 && of(&node.args[0]).is_some_and(is_counted)
        })
    }

    fn operation(&mut self, index: usize) -> Written<Text> {
        let node = &self.formula.nodes[index];
        match node.row {
            VALUES => {
                return Err(self.refused(
                    node,
                    "a value that a script computes outside of its operations, or remembers,",
                    COLUMN_HELP,
                ));
            }
            row if BY_GROUP.contains(&row) => {
                return Err(self.refused(
                    node,
                    "a loop over groups, or a function that `map_groups` calls group by group,",
                    GROUPS_HELP,
                ));
            }
            row if row == REGROUP
                || node.groups != 0 && !matches!(node.level, Level::Response | Level::Token) =>
            {
                return Err(self.refused(node, "`regroup`", REGROUPED));
            }
            _ => {}
        }
        let way = self.way(node);
        let Some(row) = rows::find(node, way) else {
            let levels = way.map_or(format!("of a {} tensor", node.level), |(from, to)| {
                format!("from {from} to {to}")
            });
            return Err(self.refused(node, &format!("`{}` {levels}", node.row), OTHERWISE));
        };
        let mut text = self.written(node, row, way)?;
        // The longest arguments become statements until the operation fits.
        let most = if binds(&text.text) == CALL {
            WIDTH - 12
        } else {
            LONG + 8
        };
        while text.text.len() > most {
            let is_open = |arg: &usize| {
                self.assigned[*arg].is_none() && self.formula.nodes[*arg].row != COLUMN
            };
            let open: Vec<usize> = node.nodes().filter(is_open).collect();
            let mut longest: Option<(usize, Text)> = None;
            for arg in open {
                let own = self.operation(arg)?;
                if longest
                    .as_ref()
                    .is_none_or(|(_, text)| own.text.len() > text.text.len())
                {
                    longest = Some((arg, own));
                }
            }
            let Some((arg, own)) = longest else {
                break;
            };
            self.assign(arg, own);
            text = self.written(node, row, way)?;
        }
        Ok(text)
    }

    /// A line of `rows.txt` with the arguments of a node.
    fn written(
        &mut self,
        node: &Node,
        row: &rows::Row,
        way: Option<(Level, Level)>,
    ) -> Written<Text> {
        let at = way.map_or(node.level, |(from, _)| from);
        let counted = way
            .map(|(from, _)| self.counted(node, from))
            .transpose()?
            .flatten();
        let is_choice = node.row != SIZE
            && counted.is_some()
            && way == Some((Level::Response, Level::Response));
        let is_of_cells = matches!(
            way,
            Some((Level::Response, Level::Group | Level::Trajectory))
        );
        let pattern = if is_choice {
            "torch.where({m}, {0}, 0.0)"
        } else if node.row == "count" && is_of_cells && counted.is_none() {
            "group_count({index}).to(dtype)"
        } else {
            row.torch
        };
        let own = binds(pattern);
        let mut texts: Vec<(String, Text)> = Vec::new();
        for (position, arg) in node.args.iter().enumerate() {
            let kinds = ["", "?", "~", "!"].into_iter();
            let mut kinds = kinds.map(|kind| (kind, format!("{{{position}{kind}}}")));
            let Some((kind, place)) = kinds.find(|(_, place)| pattern.contains(place)) else {
                continue;
            };
            let text = match kind {
                "!" => self.full(arg)?,
                "?" => self.arg(arg, at)?.into_truth(),
                "~" => self.arg(arg, at)?,
                _ => self.arg(arg, at)?.into_number(),
            };
            texts.push((place, text));
        }
        // A product of a truth value and a number is as wanted, and so is a choice between truth values.
        let either = texts.iter().filter(|(place, _)| place.contains('~'));
        let truths = either.clone().filter(|(_, text)| text.is_truth).count();
        let is_kept = if node.row == "*" {
            truths == 1
        } else {
            truths == either.count()
        };
        for (place, text) in &mut texts {
            if place.contains('~') && !is_kept {
                *text = text.clone().into_number();
            }
        }
        let all = match way {
            Some((Level::Response, _)) => "every",
            _ => "mask",
        };
        let all = Text {
            text: all.to_string(),
            is_truth: true,
        };
        texts.push(("{m}".to_string(), counted.clone().unwrap_or(all)));
        let mut text = pattern.to_string();
        for (place, arg) in &texts {
            while let Some(start) = text.find(place.as_str()) {
                let is_method = text[start + place.len()..].starts_with(['.', '[']);
                let least = match start {
                    _ if is_method => CALL,
                    0 if own < NEGATIVE && own > 1 => own,
                    _ if own < NEGATIVE => own + 1,
                    _ if own == NEGATIVE => NEGATIVE,
                    _ => 0,
                };
                text.replace_range(start..start + place.len(), &arg.within(least));
            }
        }
        let comma = counted
            .as_ref()
            .map_or(String::new(), |counted| format!(", {}", counted.text));
        let cell = if matches!(way, Some((_, Level::Trajectory))) {
            "trajectory"
        } else {
            "index"
        };
        let place = match self.plan.batch.has("turn") && cell == "trajectory" {
            true if text.contains("{turn}") => {
                self.take("turn", Level::Response);
                "turn".to_string()
            }
            _ => format!("{cell}.to(dtype)"),
        };
        let text = text
            .replace("{,m}", &comma)
            .replace("{of}", if comma.is_empty() { "" } else { "_of" })
            .replace("{row}", node.row)
            .replace("{index}", cell)
            .replace("{turn}", &place);
        let is_test =
            own < rows::SUM || pattern.starts_with('~') || pattern.starts_with("torch.isfinite");
        let is_truth = is_test || node.row == "where" && truths == 2;
        Ok(Text { text, is_truth })
    }
}

/// Whether each response has several values of a level.
fn is_by_token(level: Level) -> bool {
    matches!(level, Level::Token | Level::Position)
}

/// By node, whether its expression has a value for each token: an operation on values of responses alone has not, even at the
/// level of tokens, because its arguments broadcast.
pub(super) fn wide(formula: &Formula) -> Vec<bool> {
    let by_value = |row: &str| {
        let mut rows =
            op::table().filter(|op| matches!(op.class, Class::Elementwise | Class::Logic));
        rows.any(|op| op.name == row)
    };
    let mut wide: Vec<bool> = Vec::new();
    for node in &formula.nodes {
        let has_wide = node.nodes().any(|argument| wide[argument]);
        wide.push(is_by_token(node.level) && (has_wide || !by_value(node.row)));
    }
    wide
}
