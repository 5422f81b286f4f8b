//! A hook as a function of Python: its head, its arguments, and a statement for each variable.

use std::collections::BTreeSet;

use super::expression::{Text, wide};
use super::python::{called, wrapped};
use super::{HELPERS, WIDTH, Written};
use crate::plan::Plan;
use crate::plan::formula::{Arg, Formula};
use crate::plan::rows::CALL;
use crate::plan::text::line_of_node;
use crate::script::Hook;
use crate::tensor::Level;

/// Names that a file uses itself.
const OWN_NAMES: &str = "Tensor torch pad mask group index first trajectory first_turn dtype generator lambda in is not and \
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
    /// The script's line of the last comment.
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
                "[B], the same whole number for the responses to one prompt",
            ));
            start.push("index = group_index(group)".to_string());
        }
        if has("first") {
            start.push("first = is_first(index)".to_string());
        }
        if of_turns {
            about.push((
                "trajectory",
                "[B], the same whole number for the turns of one trajectory",
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
            about.push((given, if is_token { rows } else { row }));
            if is_token {
                // The values beside the tokens may be anything, even NaN.
                let reshaped = if name == "advantage" && !self.is_single {
                    ".reshape(len(mask), -1)"
                } else {
                    ""
                };
                start.push(format!(
                    "{name} = torch.where(mask, {given}{reshaped}, 0.0)"
                ));
            } else if self.is_single {
                start.push(format!("{name} = {name}[None]"));
            }
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
        let mut head = format!("def {name}({}) -> {gives}:", arguments.join(", "));
        if head.len() > WIDTH {
            let inner = format!("    {}", arguments.join(", "));
            let inner = match inner.len() <= WIDTH && self.is_single {
                true => inner,
                false => format!("    {},", arguments.join(",\n    ")),
            };
            head = format!("def {name}(\n{inner}\n) -> {gives}:");
        }
        let result = match (hook, level) {
            (Hook::Loss, _) if self.is_single => {
                "The part of the loss that one response has, and no metrics."
            }
            (Hook::Loss, _) => "The loss, one number.",
            (_, Level::Token) => "One value for each token, [B, T]; 0 where none counts.",
            _ => "One value for each response, [B].",
        };
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
        let numbered = (2..).map(|count| format!("{wanted}_{count}"));
        let mut names = std::iter::once(wanted.to_string()).chain(numbered);
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
        let wanted = of.name.as_deref().unwrap_or_else(|| called(of.row));
        let name = self.fresh(wanted);
        self.tell(node);
        self.lines.push(format!("{name} = {}", text.text));
        let variable = Text { text: name, ..text };
        self.assigned[node] = Some(variable.clone());
        variable
    }

    /// The script's line of a node, as a comment, unless it stands there already.
    fn tell(&mut self, node: usize) {
        let line = line_of_node(&self.plan.recipe, &self.formula.nodes[node]);
        if let Some(told) = line.as_ref().filter(|_| self.told != line) {
            let cut: String = told.chars().take(WIDTH - 9).collect();
            let rest = if cut.len() < told.len() { "..." } else { "" };
            self.lines.push(format!("# {}{rest}", cut.trim_end()));
            self.told = line;
        }
    }
}
