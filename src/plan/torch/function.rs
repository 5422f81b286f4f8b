//! A hook as a function of Python: its head, its arguments, and a statement for each variable.

use std::collections::BTreeSet;

use super::expression::{Text, wide};
use super::python::{called, head, wrapped};
use super::{HELPERS, WIDTH, Written};
use crate::plan::Plan;
use crate::plan::formula::{Arg, Formula};
use crate::plan::names::function_of;
use crate::plan::rows::CALL;
use crate::plan::text::statement_of_node;
use crate::script::Hook;
use crate::tensor::Level;

/// Names that a file uses itself.
const OWN_NAMES: &str = "Tensor torch pad mask group index first trajectory first_turn every dtype generator lambda in is not and \
    or if else for while def class return from import as with None True False len max min sum abs pow \
    round all any range logprobs";

/// Writes one function.
pub(super) struct Writer<'a> {
    pub(super) plan: &'a Plan,
    pub(super) formula: &'a Formula,
    /// Whether the function is of one response.
    is_single: bool,
    pub(super) uses: Vec<usize>,
    /// Whether the expression of a node has a value for each token; one of responses alone is [B, 1].
    pub(super) is_wide: Vec<bool>,
    /// The variables of the nodes that have a statement.
    pub(super) assigned: Vec<Option<Text>>,
    taken: BTreeSet<String>,
    /// The columns, in the order of their first use.
    columns: Vec<(String, Level)>,
    lines: Vec<String>,
    /// The script's statement of the last comment.
    told: Option<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan, formula: &'a Formula, is_single: bool) -> Writer<'a> {
        let helpers = HELPERS
            .lines()
            .filter_map(|line| line.strip_prefix("def ")?.split('(').next());
        let own = OWN_NAMES.split(' ').chain(helpers).map(str::to_string);
        let columns = plan.batch.columns().map(str::to_string);
        Writer {
            plan,
            formula,
            is_single,
            uses: formula.uses(),
            is_wide: wide(formula),
            assigned: vec![None; formula.nodes.len()],
            taken: own.chain(columns).collect(),
            columns: Vec::new(),
            lines: Vec::new(),
            told: None,
        }
    }

    pub(super) fn function(mut self) -> Written<String> {
        let (hook, result) = (self.formula.hook, self.formula.result.clone());
        let (level, own) = match &result {
            Arg::Node(node, level) => (*level, self.formula.nodes[*node].level),
            _ => (Level::Response, Level::Batch),
        };
        let mut value = self.arg(&result, level)?.into_number();
        if let Some(node) = result.node() {
            self.tell(node);
        }
        if hook != Hook::Loss && own == Level::Batch {
            value = Text::number(match result.node() {
                Some(_) => format!("{}.expand(index.shape)", value.within(CALL)),
                None => format!("torch.full(index.shape, {})", value.text),
            });
        }
        if level == Level::Token {
            let padded = |text: &str| format!("torch.where(mask, {text}, 0.0)");
            if padded(&value.text).len() + 11 > WIDTH {
                let name = self.fresh(self.formula.gives());
                self.lines.push(format!("{name} = {}", value.text));
                value.text = name;
            }
            value.text = padded(&value.text);
        }
        let metrics = if self.is_single { ", {}" } else { "" };
        self.lines.push(format!("return {}{metrics}", value.text));
        Ok(self.whole(hook, level))
    }

    /// The function with its head, and what prepares its arguments.
    fn whole(self, hook: Hook, level: Level) -> String {
        let body = self.lines.iter().filter(|line| !line.starts_with('#'));
        let body = body.map(String::as_str).collect::<Vec<&str>>().join("\n");
        let has = |name: &str| {
            let mut words = body.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            words.any(|word| word == name)
        };
        let mut start: Vec<String> = Vec::new();
        let mut about: Vec<(&str, &str)> = Vec::new();
        let by_token = self.columns.iter().any(|(_, level)| *level == Level::Token);
        let has_mask = has("mask") || by_token;
        let of_turns = has("trajectory") || has("first_turn");
        let [rows, row] = if self.is_single {
            ["[T]", "a number"]
        } else {
            ["[B, T]", "[B]"]
        };
        let of_one = if self.is_single { "[None]" } else { "" };
        if has_mask {
            start.push(format!("mask = mask{of_one}.bool()"));
        }
        if has("index") || has("first") || of_turns {
            about.push((
                "group",
                "[B], integers, the same for the responses to one prompt",
            ));
            start.push("index = group_index(group)".to_string());
        }
        if has("first") {
            start.push("first = is_first(index)".to_string());
        }
        if of_turns {
            about.push((
                "trajectory",
                "[B], integers, the same for the turns of one trajectory",
            ));
            // A trajectory is within one group.
            let pair = "index * len(index) + group_index(trajectory)";
            start.push(format!("trajectory = group_index({pair})"));
        }
        if has("first_turn") {
            start.push("first_turn = is_first(trajectory)".to_string());
        }
        let of_mask = format!("{rows}, true or 1 where a token counts");
        if has_mask {
            about.push(("mask", &of_mask));
        }
        for (name, level) in &self.columns {
            let is_token = *level == Level::Token;
            let given = if self.is_single && name == "logp" {
                "logprobs"
            } else {
                name
            };
            about.push((
                given,
                match (is_token, name.as_str()) {
                    (true, "advantage") if !self.is_single => "[B, T], or [B]",
                    (true, _) => rows,
                    _ => row,
                },
            ));
            if is_token {
                if name == "advantage" && !self.is_single {
                    let by_response = "advantage[:, None]";
                    start.push(format!(
                        "{name} = {name} if {name}.dim() == 2 else {by_response}"
                    ));
                }
                let number = if self.is_single {
                    given.to_string()
                } else {
                    format!("to_float({given})")
                };
                // The values beside the tokens may be anything, even NaN.
                start.push(format!("{name} = torch.where(mask, {number}, 0.0)"));
            } else if self.is_single {
                start.push(format!("{name} = {name}[None]"));
            } else {
                start.push(format!("{name} = to_float({name})"));
            }
        }
        if has("every") {
            let of = about.first().map_or("mask", |(name, _)| name);
            start.push(format!(
                "every = torch.ones(len({of}), dtype=torch.bool, device={of}.device)"
            ));
        }
        if has("dtype") {
            let of = self
                .columns
                .first()
                .map(|(name, _)| format!("{name}.dtype"));
            let of = of.unwrap_or("torch.get_default_dtype()".to_string());
            start.push(format!("dtype = {of}"));
        }
        if self.is_single {
            about.sort_by_key(|(name, _)| *name != "logprobs");
        }
        let arguments = about.iter().map(|(name, _)| format!("{name}: Tensor"));
        let generator =
            has("generator").then(|| "generator: torch.Generator | None = None".to_string());
        let by_name = (!self.is_single).then(|| "*".to_string());
        let arguments: Vec<String> = by_name
            .into_iter()
            .chain(arguments)
            .chain(generator)
            .collect();
        let (name, gives) = match self.is_single {
            true => ("loss", "tuple[Tensor, dict[str, Tensor]]"),
            false => (self.formula.gives(), "Tensor"),
        };
        let head = head(name, &arguments.join(", "), gives);
        let mut result = match (hook, level) {
            (Hook::Loss, _) if self.is_single => {
                "The part of the loss that one response has, and no metrics."
            }
            (Hook::Loss, _) => "The loss, one number.",
            (_, Level::Token) => "One value for each token, [B, T]; 0 where none counts.",
            (Hook::Advantage, _) => {
                "One value for each response, [B]; of its tokens: advantage[:, None] * mask."
            }
            _ => "One value for each response, [B].",
        }
        .to_string();
        if has("suffix_sum") || has("cumsum") {
            result +=
                "\n\n    torch.compile compiles it again for each T, so pad to a few lengths.";
        }
        if has("binomial_ratio") {
            result +=
                "\n\n    A group with fewer than k responses gets nan or 0, without an error.";
        }
        let about = about
            .iter()
            .map(|(name, what)| format!("    {name}: {what}\n"));
        let about: String = about.collect();
        let lines = start.iter().chain(&self.lines).map(|line| wrapped(line));
        let lines: String = lines.collect();
        format!("{head}\n    \"\"\"{result}\n\n{about}    \"\"\"\n{lines}")
    }

    /// A name that nothing in the function has.
    fn fresh(&mut self, wanted: &str) -> String {
        // A variable is not called like its function.
        let wanted = if wanted == self.formula.gives() {
            format!("{wanted}_values")
        } else {
            wanted.to_string()
        };
        let numbered = (2..).map(|count| format!("{wanted}_{count}"));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        let name = names
            .find(|name| !self.taken.contains(name))
            .unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }

    /// Notes that the function takes a column.
    pub(super) fn take(&mut self, name: &str, level: Level) {
        let column = (name.to_string(), level);
        if !self.columns.contains(&column) {
            self.columns.push(column);
        }
    }

    /// A statement that gives a node's value to a variable.
    pub(super) fn assign(&mut self, node: usize, text: Text) -> Text {
        let of = &self.formula.nodes[node];
        let function = of
            .origin
            .as_ref()
            .and_then(|origin| function_of(&self.plan.recipe, origin));
        let wanted = of
            .name
            .clone()
            .or(function)
            .unwrap_or_else(|| called(of.row).to_string());
        let name = self.fresh(&wanted);
        self.tell(node);
        self.lines.push(format!("{name} = {}", text.text));
        let variable = Text { text: name, ..text };
        self.assigned[node] = Some(variable.clone());
        variable
    }

    /// The script's statement of a node, as a comment, unless it stands there already.
    fn tell(&mut self, node: usize) {
        let statement = statement_of_node(&self.plan.recipe, &self.formula.nodes[node]);
        if let Some(told) = statement.as_ref().filter(|_| self.told != statement) {
            let mut line = "#".to_string();
            for word in told.split(' ') {
                if line.len() + word.len() + 5 > WIDTH && line != "#" {
                    self.lines
                        .push(std::mem::replace(&mut line, "#  ".to_string()));
                }
                line = format!("{line} {word}");
            }
            self.lines.push(line);
            self.told = statement;
        }
    }
}
