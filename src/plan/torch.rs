//! A plan as a file of Python that needs torch alone, written to be read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::formula::{Arg, BY_GROUP, COLUMN, Formula, Node, REGROUP, SIZE, VALUES};
use super::rows::{self, CALL, NEGATIVE, binds};
use super::{Plan, is_by_token, params};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::Hook;
use crate::tensor::op::{self, Argument, Class};
use crate::tensor::{Level, Tensor};

/// black's width.
const WIDTH: usize = 88;
/// A part of an expression that is longer becomes a statement of its own.
const LONG: usize = 58;

/// The functions that a file may need, each followed by two empty lines.
const HELPERS: &str = include_str!("helpers.py");

const LOOKED: &str = "decides here what is computed, so another batch may have another formula";
const USE_WHERE: &str = "`where(condition, a, b)` chooses value by value, and `max(x, 1)` and others work without `value()`";

/// Functions that look at values, what they do that a function of tensors does not, and what to do instead.
const LOOKS: [(&[&str], &str, &str); 3] = [
    (
        &["running", "recall", "remember"],
        "remembers values from step to step, and a function of tensors remembers nothing",
        "give the batch what is remembered as a column of its own",
    ),
    (
        &["regroup", "group_by"],
        "makes groups of the values of the batch, which has no form in PyTorch yet",
        REGROUPED,
    ),
    (&["value", "values", "len", "print"], LOOKED, USE_WHERE),
];

/// Names that a file uses itself.
const OWN_NAMES: &str = "Tensor torch pad mask group index first trajectory first_turn dtype generator lambda in is not and \
    or if else for while def class return from import as with None True False len max min sum abs pow \
    round all any range";

/// Whether a composed row has a form of its own in the file; the others are opened.
pub(super) fn keeps(name: &str, args: &[Argument]) -> bool {
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

/// An expression of Python.
#[derive(Clone, Debug)]
struct Text {
    text: String,
    /// Whether its values are true and false.
    is_truth: bool,
}

impl Text {
    fn number(text: impl Into<String>) -> Text {
        let (text, is_truth) = (text.into(), false);
        Text { text, is_truth }
    }

    fn into_number(self) -> Text {
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
    fn within(&self, least: u8) -> String {
        if binds(&self.text) < least {
            format!("({})", self.text)
        } else {
            self.text.clone()
        }
    }
}

type Written<T> = Result<T, Diagnostic>;

/// Writes one function.
struct Writer<'a> {
    plan: &'a Plan,
    formula: &'a Formula,
    uses: Vec<usize>,
    /// Whether the expression of a node has a value for each token; one of responses alone is [B, 1].
    is_wide: Vec<bool>,
    /// The variables of the nodes that have a statement.
    assigned: Vec<Option<Text>>,
    taken: BTreeSet<String>,
    /// The columns, in the order of their first use.
    columns: Vec<(String, Level)>,
    lines: Vec<String>,
    /// The script's line of the last comment.
    told: Option<String>,
}

const NUMBER_HELP: &str = "make the number that depends on it a parameter";

impl Plan {
    /// A file of Python with a function for each hook: it needs torch, works on padded tensors on any device, and a loss is
    /// differentiable.
    ///
    /// # Errors
    /// [`Diagnostics`] with the script's line if something depends on the values of the batch, or has no form in the file.
    pub fn torch(&self) -> Result<String, Diagnostics> {
        let plan = self.of_every_batch()?;
        let hooks = [Hook::Weight, Hook::Advantage, Hook::Returns, Hook::Loss];
        let formulas = plan
            .formulas
            .iter()
            .filter(|formula| hooks.contains(&formula.hook));
        let functions = formulas.map(|formula| Writer::new(&plan, formula).function());
        let functions: Vec<String> = functions.collect::<Written<_>>()?;
        Ok(plan.file(&functions.join("\n\n")))
    }

    /// The plan in which the rows are nodes that have a form in PyTorch.
    ///
    /// # Errors
    /// [`Diagnostics`] if another batch, step or state would have another formula.
    pub(super) fn of_every_batch(&self) -> Result<Plan, Diagnostics> {
        let plan = Plan::kept(&self.recipe, self.batch.clone(), &keeps)?;
        plan.is_one_formula()?;
        Ok(plan)
    }

    /// Refuses a formula that another batch, step or state would not have.
    fn is_one_formula(&self) -> Result<(), Diagnostics> {
        if let Some(tensor) = self.looked_at.first() {
            return Err(self.looked_at(tensor).into());
        }
        let refused = |what: &str, name: &str, help: &str| {
            let message =
                format!("the formula depends on {what}, which a function of tensors does not know");
            let span = self.recipe.about().use_of(name);
            Err(Diagnostic::error(message).with_help(help).at(span).into())
        };
        // Numbers, not tensors: a branch on them may come at any step and with any batch, so that no trace shows it.
        for (name, what, help) in [
            ("step", "`batch.step`", NUMBER_HELP),
            (
                "groups",
                "the size of the batch",
                "`x.count(level)` counts as a tensor",
            ),
        ] {
            if self.recipe.about().use_of(name).is_some() {
                return refused(what, name, help);
            }
        }
        let key = |formulas: &[Formula]| {
            let numbers: Vec<u64> = formulas
                .iter()
                .flat_map(Formula::numbers)
                .map(f64::to_bits)
                .collect();
            (Plan::shape_of(formulas), numbers)
        };
        let later = super::traced(&self.recipe, &self.state, &self.batch, &keeps);
        if !later.is_ok_and(|later| key(&later.formulas) == key(&self.formulas)) {
            return refused("the state that a step leaves", "this", NUMBER_HELP);
        }
        Ok(())
    }

    /// The error for a tensor whose values the script looked at. A column has no line of its own: it is the line of what looks.
    fn looked_at(&self, tensor: &Tensor) -> Diagnostic {
        let about = self.recipe.about();
        let of_tensor = tensor.origin().and_then(|origin| about.place_of(origin));
        let looks = LOOKS
            .iter()
            .flat_map(|(names, message, help)| names.iter().map(move |name| (name, message, help)));
        let found = looks
            .filter(|_| of_tensor.is_none())
            .find_map(|(name, message, help)| {
                Some((about.use_of(name)?, format!("`{name}` {message}"), help))
            });
        let of_group = self.is_of_group(tensor).then(|| {
            let message = "`map_groups` calls its function group by group here, because it looks at values, reports or draws";
            (of_tensor.clone(), message.to_string(), &GROUPS_HELP)
        });
        let found = of_group.or(found.map(|(span, message, help)| (Some(span), message, help)));
        let (span, message, help) = match found {
            Some((span, message, help)) => (span, message, *help),
            None => (
                of_tensor,
                format!("a value of the batch {LOOKED}"),
                USE_WHERE,
            ),
        };
        Diagnostic::error(message).with_help(help).at(span)
    }

    fn file(&self, functions: &str) -> String {
        let (name, version) = (self.recipe.name(), self.recipe.version().short());
        let mut file = format!(
            "\"\"\"`{name}`, written by advlab from its version {version}.\n\n{}\n",
            self.recipe.doc()
        );
        let fixed = self.recipe.params().iter();
        let fixed = fixed.filter(|(parameter, _)| !self.free.contains(&parameter.name));
        let fixed: Vec<String> = fixed
            .map(|(parameter, setting)| format!("{} = {setting}", parameter.name))
            .collect();
        if !fixed.is_empty() {
            let _ = writeln!(file, "\nFixed in this formula: {}.", fixed.join(", "));
        }
        file += "\nThe script:\n\n";
        for (source, text) in self.recipe.sources() {
            let _ = (source != name).then(|| writeln!(file, "    // {source}"));
            let code = text
                .lines()
                .skip_while(|line| line.starts_with("//!") || line.is_empty());
            for line in code {
                let _ = writeln!(file, "{}", format!("    {line}").trim_end());
            }
        }
        file = file
            .replace('\\', "\\\\")
            .replacen("\"\"\"", "\u{0}", 1)
            .replace("\"\"\"", "'''")
            .replace('\u{0}', "\"\"\"");
        file += "\"\"\"\n\n";
        let mut helpers = Vec::new();
        let mut text = functions.to_string();
        // A function may need others.
        while let Some(helper) = HELPERS.split("\n\n\n").find(|helper| {
            let name = helper.split(['(', ' ']).nth(1).unwrap_or("");
            !helpers.contains(helper) && text.contains(&format!("{name}("))
        }) {
            helpers.push(helper);
            text += helper;
        }
        let mut helpers: Vec<&str> = HELPERS
            .split("\n\n\n")
            .filter(|helper| helpers.contains(helper))
            .map(str::trim_end)
            .collect();
        file += "import torch\nfrom torch import Tensor\n";
        for name in ["binary_cross_entropy_with_logits", "pad"] {
            if text.contains(&format!("{name}(")) {
                let _ = writeln!(file, "from torch.nn.functional import {name}");
            }
        }
        let constants = self.recipe.params().iter();
        let constants = constants.filter(|(parameter, _)| self.free.contains(&parameter.name));
        let constants: Vec<String> = constants
            .map(|(parameter, setting)| {
                let number = params::number(setting).unwrap_or(f64::NAN);
                let line = format!("{} = {}", parameter.name.to_uppercase(), literal(number));
                format!("# {}\n{line}", parameter.doc)
            })
            .collect();
        if !constants.is_empty() {
            let _ = write!(file, "\n{}\n", constants.join("\n"));
        }
        helpers.push(functions.trim_end());
        let _ = write!(file, "\n\n{}\n", helpers.join("\n\n\n"));
        file
    }
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan, formula: &'a Formula) -> Writer<'a> {
        let helpers = HELPERS
            .lines()
            .filter_map(|line| line.strip_prefix("def ")?.split('(').next());
        let own = OWN_NAMES.split(' ').chain(helpers).map(str::to_string);
        let columns = plan.batch.columns().map(str::to_string);
        Writer {
            plan,
            formula,
            uses: formula.uses(),
            is_wide: wide(formula),
            assigned: vec![None; formula.nodes.len()],
            taken: own.chain(columns).collect(),
            columns: Vec::new(),
            lines: Vec::new(),
            told: None,
        }
    }

    fn function(mut self) -> Written<String> {
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
                let name = self.fresh(hook.name());
                self.lines.push(format!("{name} = {}", value.text));
                value.text = name;
            }
            value.text = padded(&value.text);
        }
        self.lines.push(format!("return {}", value.text));
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
        let by_token = self.columns.iter().any(|(_, level)| is_by_token(*level));
        let mut about: Vec<(&str, &str)> = Vec::new();
        let mut start: Vec<String> = Vec::new();
        if has("mask") || by_token {
            start.push("mask = mask.bool()".to_string());
        }
        let of_turns = has("trajectory") || has("first_turn");
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
        if has("mask") || by_token {
            about.push(("mask", "[B, T], true or 1 where a token counts"));
        }
        for (name, level) in &self.columns {
            about.push((
                name,
                if *level == Level::Token {
                    "[B, T]"
                } else {
                    "[B]"
                },
            ));
            if *level == Level::Token {
                let reshaped = if name == "advantage" {
                    ".reshape(len(mask), -1)"
                } else {
                    ""
                };
                // The values beside the tokens may be anything, even NaN.
                start.push(format!("{name} = torch.where(mask, {name}{reshaped}, 0.0)"));
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
        let mut arguments: Vec<String> = about
            .iter()
            .map(|(name, _)| format!("{name}: Tensor"))
            .collect();
        if has("generator") {
            arguments.push("generator: torch.Generator | None = None".to_string());
        }
        let name = hook.name();
        let mut head = format!("def {name}(*, {}) -> Tensor:", arguments.join(", "));
        if head.len() > WIDTH {
            head = format!(
                "def {name}(\n    *,\n    {},\n) -> Tensor:",
                arguments.join(",\n    ")
            );
        }
        let result = match (hook, level) {
            (Hook::Loss, _) => "The loss, one number.",
            (_, Level::Token) => "One value for each token, [B, T]; 0 where none counts.",
            _ => "One value for each response, [B].",
        };
        let about: String = about
            .iter()
            .map(|(name, what)| format!("    {name}: {what}\n"))
            .collect();
        let lines: String = start
            .iter()
            .chain(&self.lines)
            .map(|line| wrapped(line))
            .collect();
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

    /// An argument as an expression that broadcasts to a level.
    fn arg(&mut self, arg: &Arg, at: Level) -> Written<Text> {
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
        let column = (name.clone(), node.level);
        if !self.columns.contains(&column) {
            self.columns.push(column);
        }
        Text::number(name)
    }

    /// A statement that gives a node's value to a variable.
    fn assign(&mut self, node: usize, text: Text) -> Text {
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
        let line = self.plan.line_of(&self.formula.nodes[node]);
        if let Some(told) = line.as_ref().filter(|_| self.told != line) {
            let cut: String = told.chars().take(WIDTH - 9).collect();
            let rest = if cut.len() < told.len() { "..." } else { "" };
            self.lines.push(format!("# {}{rest}", cut.trim_end()));
            self.told = line;
        }
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
                || !node.has_own_groups
                    && !matches!(node.level, Level::Response | Level::Token) =>
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
        let pattern = if is_choice {
            "torch.where({m}, {0}, 0.0)"
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
        let all = Text {
            text: "mask".to_string(),
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
                let column = ("turn".to_string(), Level::Response);
                if !self.columns.contains(&column) {
                    self.columns.push(column);
                }
                "turn".to_string()
            }
            _ => format!("{cell}.to(dtype)"),
        };
        let text = text
            .replace("{,m}", &comma)
            .replace("{row}", node.row)
            .replace("{index}", cell)
            .replace("{turn}", &place);
        let is_test =
            own < rows::SUM || pattern.starts_with('~') || pattern.starts_with("torch.isfinite");
        let is_truth = is_test || node.row == "where" && truths == 2;
        Ok(Text { text, is_truth })
    }
}

const REGROUPED: &str = "give the batch those groups, and write a file for each grouping";
const COLUMN_HELP: &str = "give it to the batch as a column of its own";
const OTHERWISE: &str = "write it with sums, means, comparisons and `where`; a reduction in two steps is `x.sum(\"response\").sum(\"group\")`";
const GROUPS_HELP: &str = "a function that looks at no value is called once for all groups: use `where(condition, a, b)` in it instead of `if`, and no \
    `metric` or `print`";

/// A statement of a function's body; if it is too long, the arguments of its last call have lines of their own, as black has them.
fn wrapped(statement: &str) -> String {
    let fits = |text: &str, indent: usize| indent + text.len() <= WIDTH;
    let is_call = !statement.starts_with('#') && statement.ends_with(')');
    if fits(statement, 4) || !is_call {
        return format!("    {statement}\n");
    }
    let (mut depth, mut start) = (0, 0);
    for (index, letter) in statement.char_indices().rev() {
        depth += match letter {
            ')' | ']' => 1,
            '(' | '[' => -1,
            _ => 0,
        };
        if depth == 0 {
            start = index;
            break;
        }
    }
    let (head, body) = (
        &statement[..=start],
        &statement[start + 1..statement.len() - 1],
    );
    if fits(body, 8) {
        return format!("    {head}\n        {body}\n    )\n");
    }
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in body.chars() {
        depth += match letter {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        match parts.last_mut() {
            Some(last) if depth > 0 || letter != ',' => last.push(letter),
            _ => parts.push(String::new()),
        }
    }
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
    format!(
        "    {head}\n        {},\n    )\n",
        parts.join(",\n        ")
    )
}

/// By node, whether its expression has a value for each token: an operation on values of responses alone has not, even at the
/// level of tokens, because its arguments broadcast.
fn wide(formula: &Formula) -> Vec<bool> {
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

/// A name for the result of a row.
fn called(row: &'static str) -> &'static str {
    match row {
        "+" => "total",
        "-" => "difference",
        "*" => "product",
        "/" | "safe_div" => "ratio",
        "**" => "power",
        "%" => "remainder",
        "<" | "<=" | ">" | ">=" | "==" | "!=" | "&" | "|" | "!" => "condition",
        "where" => "chosen",
        "index" => "place",
        "neg" => "negated",
        "max" => "largest",
        "min" => "smallest",
        "sum" => "total",
        "abs" => "size",
        "round" => "rounded",
        row => row,
    }
}

/// A number as Python reads it back exactly; a whole one without a point.
fn literal(number: f64) -> String {
    if number.is_nan() {
        return "torch.nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "torch.inf"
        } else {
            "-torch.inf"
        }
        .to_string();
    }
    if number.fract() == 0.0 && number.abs() < 1e15 && (number != 0.0 || number.is_sign_positive())
    {
        return format!("{number:.0}");
    }
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use super::called;

    #[test]
    fn each_row_has_a_name_that_python_takes() {
        for op in super::op::table() {
            let mut letters = called(op.name).chars();
            assert!(
                letters.all(|x| x.is_ascii_alphanumeric() || x == '_'),
                "{}",
                op.name
            );
        }
    }
}
