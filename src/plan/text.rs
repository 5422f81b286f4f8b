//! A plan as a derivation to read: one line a node, with the script's line beside it.

use super::Plan;
use super::formula::{Arg, COLUMN, Formula, Node, SIZE, VALUES};
use crate::tensor::Level;

impl Plan {
    /// The script's line of a node: its number and its code, after the source's name if that is not the recipe itself.
    pub(super) fn line_of(&self, node: &Node) -> Option<String> {
        let origin = node.origin.as_ref()?;
        let source = origin.source.as_deref().unwrap_or(self.recipe.name());
        let (_, text) = self.recipe.sources().find(|(name, _)| *name == source)?;
        let line = text.lines().nth(origin.line.checked_sub(1)?)?;
        let code = line.split("//").next().unwrap_or(line).trim();
        let place = match source == self.recipe.name() {
            true => format!("line {}", origin.line),
            false => format!("{source}:{}", origin.line),
        };
        Some(format!("{place}: {code}"))
    }

    /// The derivation of each hook.
    pub fn text(&self) -> String {
        let derivations = self.formulas.iter().map(|formula| self.derivation(formula));
        let derivations: Vec<String> = derivations.collect();
        let mut text = String::new();
        if !self.recipe.summary().is_empty() {
            text = format!("{}\n\n", self.recipe.summary());
        }
        text.push_str(&derivations.join("\n"));
        if let Some((builtin, settings)) = self.kin() {
            let settings = settings
                .iter()
                .map(|(name, setting)| format!("{name}={setting}"));
            let settings = settings.collect::<Vec<_>>().join(" ");
            let at = if settings.is_empty() {
                String::new()
            } else {
                format!(" with {settings}")
            };
            text += &format!("\nThis is `{builtin}`{at}.\n");
        }
        if let Err(error) = self.of_every_batch() {
            text += &format!(
                "\nThis is the formula of this batch, step and state: {}.\n",
                error[0].message
            );
        }
        let settings = self.recipe.params().iter();
        let settings = settings.map(|(parameter, setting)| {
            let is_fixed = !self.free.contains(&parameter.name);
            let fixed = if is_fixed { " (fixes the formula)" } else { "" };
            format!("{} = {setting}{fixed}", parameter.name)
        });
        let settings: Vec<String> = settings.collect();
        if !settings.is_empty() {
            text += &format!("\nparameters: {}\n", settings.join(", "));
        }
        text
    }

    fn derivation(&self, formula: &Formula) -> String {
        let (names, mut rows) = (names(formula), Vec::new());
        let columns = formula.nodes.iter().filter(|node| node.row == COLUMN);
        let columns: Vec<String> = columns
            .map(|node| format!("{} ({})", node.name.as_deref().unwrap_or(""), node.level))
            .collect();
        for (node, name) in formula.nodes.iter().zip(&names) {
            if node.row != COLUMN {
                let said = expression(node, &names);
                rows.push((
                    name.clone(),
                    said,
                    node.level,
                    self.line_of(node).unwrap_or_default(),
                ));
            }
        }
        let result = match &formula.result {
            Arg::Node(node, level) => (names[*node].clone(), *level),
            other => (written(other, &names), Level::Response),
        };
        let width = |of: fn(&(String, String, Level, String)) -> &String| {
            let longest = rows
                .iter()
                .map(|row| of(row).chars().count())
                .max()
                .unwrap_or(0);
            longest.min(60)
        };
        let (name_width, said_width) = (width(|row| &row.0), width(|row| &row.1));
        let hook = formula.hook.name();
        let mut text = format!("{hook}, of {}\n", columns.join(", "));
        let mut last = "";
        for (name, said, level, line) in &rows {
            // Beside the first of its operations, a line has its code.
            let number = line.split(": ").next().unwrap_or("");
            let shown = if last == line { number } else { line };
            last = line;
            let row = format!("  {name:name_width$} = {said:said_width$}  {level:10}  {shown}");
            text += row.trim_end();
            text.push('\n');
        }
        text += &format!("  {hook} = {} ({})\n", result.0, result.1);
        text
    }
}

/// The names of nodes: of columns, of the script's variables, or numbered.
pub(super) fn names(formula: &Formula) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for node in &formula.nodes {
        let wanted = node.name.as_deref().unwrap_or("x");
        let first = if node.name.is_some() {
            wanted.to_string()
        } else {
            "x1".to_string()
        };
        let next = (2..).map(|count| format!("{wanted}{count}"));
        let name = std::iter::once(first)
            .chain(next)
            .find(|name| !names.contains(name));
        names.push(name.unwrap_or_default());
    }
    names
}

impl Plan {
    /// The formulas as statements: those of the script's variables, and the results.
    pub(super) fn statements(&self) -> Vec<String> {
        let mut all = Vec::new();
        for formula in &self.formulas {
            let mut texts: Vec<String> = names(formula);
            for (index, node) in formula.nodes.iter().enumerate() {
                if node.row == COLUMN {
                    continue;
                }
                let said = expression(node, &texts);
                texts[index] = match &node.name {
                    Some(_) => {
                        all.push(format!("{} = {said}", texts[index]));
                        continue;
                    }
                    None if said.ends_with(')') && !said.starts_with('(') => said,
                    None => format!("({said})"),
                };
            }
            all.push(format!(
                "{} = {}",
                formula.hook.name(),
                written(&formula.result, &texts)
            ));
        }
        all
    }
}

fn written(arg: &Arg, names: &[String]) -> String {
    match arg {
        Arg::Node(node, _) => names[*node].clone(),
        Arg::Number(number, made_of) => match made_of {
            Some(made_of) => made_of.written(str::to_string),
            None => number.to_string(),
        },
        Arg::Level(level) => level.to_string(),
        Arg::Choice(choice) => choice.to_string(),
    }
}

/// A node's operation as scripts write it.
pub(super) fn expression(node: &Node, names: &[String]) -> String {
    let args: Vec<String> = node.args.iter().map(|arg| written(arg, names)).collect();
    let is_sign = !node.row.starts_with(char::is_alphabetic);
    let is_method = node.args.iter().any(|arg| matches!(arg, Arg::Level(_)));
    match &args[..] {
        [] if node.row == VALUES => "values that the script computed".to_string(),
        [] => node.row.to_string(),
        [a, b] if is_sign => format!("{} {} {}", a, node.row, b),
        [a] if node.row == "neg" => format!("-{a}"),
        [a] if is_sign => format!("{}{a}", node.row),
        [of, to] if node.row == SIZE => format!("number of {of} values in each {to}"),
        [x, rest @ ..] if is_method => format!("{x}.{}({})", node.row, rest.join(", ")),
        args => format!("{}({})", node.row, args.join(", ")),
    }
}
