//! A plan as a derivation to read: one line a node, with the script's line beside it.

use super::formula::{Arg, COLUMN, Formula, Node, SHAPED_REWARD, SIZE, VALUES};
use super::{Plan, Role};
use crate::script::syntax::{Token, TokenKind, code};
use crate::script::{Hook, Recipe};
use crate::tensor::{Level, Origin};

/// The name of the source in which a tensor was made.
pub(super) fn source_of<'a>(recipe: &'a Recipe, origin: &'a Origin) -> &'a str {
    origin.source.as_deref().unwrap_or(recipe.name())
}

/// A line of a script: its number and its code, after the source's name if that is not the recipe itself.
pub(super) fn line_of(recipe: &Recipe, source: &str, line: usize) -> Option<String> {
    let (_, text) = recipe.sources().find(|(name, _)| *name == source)?;
    let code = text.lines().nth(line.checked_sub(1)?)?;
    let code = code.split("//").next().unwrap_or(code).trim();
    let place = if source == recipe.name() {
        "line ".to_string()
    } else {
        format!("{source}:")
    };
    Some(format!("{place}{line}: {code}"))
}

/// The script's line of a node.
pub(super) fn line_of_node(recipe: &Recipe, node: &Node) -> Option<String> {
    let origin = node.origin.as_ref()?;
    line_of(recipe, source_of(recipe, origin), origin.line)
}

/// The script's statement that made a node, or only the branch of it.
pub(super) fn statement_of_node(recipe: &Recipe, node: &Node) -> Option<String> {
    let origin = node.origin.as_ref()?;
    let source = source_of(recipe, origin);
    let (_, text) = recipe.sources().find(|(name, _)| *name == source)?;
    let code = code(text);
    let is_origin = |token: &Token<'_>| (token.line, token.column) == (origin.line, origin.column);
    let mut start = code.iter().position(is_origin)?;
    let mut braces = 0;
    while let Some(before) = start.checked_sub(1).map(|before| &code[before]) {
        let follows_block = matches!(code[start].kind, TokenKind::Name | TokenKind::Keyword)
            && code[start].text != "else";
        let is_end = match before.text {
            ";" | "=>" => true,
            "}" => follows_block,
            _ => false,
        };
        braces += i32::from(before.text == "}") - i32::from(matches!(before.text, "{" | "#{"));
        if braces < 0 || is_end && braces - i32::from(before.text == "}") == 0 {
            break;
        }
        start -= 1;
    }
    let mut depth = 0;
    let length = code[start..].iter().position(|token| {
        depth += token.nesting();
        depth < 0 || depth == 0 && matches!(token.text, ";" | ",")
    });
    let end = code[start..].iter().take(length?).next_back()?.end();
    let lines = text[code[start].start..end].lines();
    let lines: Vec<&str> = lines
        .map(|line| line.split("//").next().unwrap_or(line).trim())
        .collect();
    Some(lines.join(" "))
}

impl Plan {
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
            let settings: Vec<String> = settings.collect();
            let at = if settings.is_empty() { "" } else { " with " };
            text += &format!("\nThis is `{builtin}`{at}{}.\n", settings.join(" "));
        }
        if let Err(error) = self.of_every_batch() {
            text += &format!(
                "\nThis is the formula of this batch, step and state: {}.\n",
                error[0].message
            );
        }
        let roles = [
            ("parameters", Role::Number),
            ("fixed in the formula", Role::Formula),
            ("not in the formula", Role::Unused),
        ];
        let settings = roles.map(|(title, role)| (title, self.settings(role)));
        let lines = settings.iter().filter(|(_, settings)| !settings.is_empty());
        let lines: Vec<String> = lines
            .map(|(title, settings)| format!("{title}: {settings}\n"))
            .collect();
        if !lines.is_empty() {
            text += &format!("\n{}", lines.concat());
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
                    line_of_node(&self.recipe, node).unwrap_or_default(),
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
        let (hook, column) = (formula.hook.name(), formula.gives());
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
        text += &format!("  {column} = {} ({})\n", result.0, result.1);
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
        let of_formula = |formula: &Formula| {
            let (inlined, mut statements) = formula.inlined();
            let result = written(&formula.result, &inlined);
            statements.push(format!("{} = {result}", formula.gives()));
            statements
        };
        self.formulas.iter().flat_map(of_formula).collect()
    }
}

impl Formula {
    /// What the hook gives.
    pub(super) fn gives(&self) -> &'static str {
        match self.hook {
            Hook::Reward => SHAPED_REWARD,
            hook => hook.name(),
        }
    }

    /// Each node as a name, or as an expression of names, and the statements of the script's variables.
    pub(super) fn inlined(&self) -> (Vec<String>, Vec<String>) {
        let (mut texts, mut statements) = (names(self), Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            if node.row == COLUMN {
                continue;
            }
            let said = expression(node, &texts);
            if node.name.is_some() {
                statements.push(format!("{} = {said}", texts[index]));
            } else if said.ends_with(')') && !said.starts_with('(') {
                texts[index] = said;
            } else {
                texts[index] = format!("({said})");
            }
        }
        (texts, statements)
    }
}

pub(super) fn written(arg: &Arg, names: &[String]) -> String {
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
