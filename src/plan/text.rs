//! A plan as a derivation to read, with a line for each operation. The line ends with the operation's position in the script
//! and with the statement, unless the line before it has the same statement.

use super::Plan;
use super::expression::{level_of, operation, term};
use super::graph::{Arg, COLUMN, gives};
use super::params::Role;
use super::rows::{Notation, Text};
use super::source::{place, source_of, statement_of};
use crate::script::Hook;

const SCRIPT: Notation = Notation::Script;

impl Plan {
    /// Returns the recipe's summary, the derivation of each hook, and notes on equal built-ins and on the parameters.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.recipe.summary().is_empty() {
            text = format!("{}\n\n", self.recipe.summary());
        }
        text += &self.derivations().join("\n");
        if let Some((builtin, settings)) = self.kin() {
            let settings = settings
                .iter()
                .map(|(name, setting)| format!("{name}={setting}"));
            let settings: Vec<String> = settings.collect();
            let at = if settings.is_empty() { "" } else { " with " };
            text += &format!("\nThis is `{builtin}`{at}{}.\n", settings.join(" "));
        }
        if let Err(error) = self.of_every_batch() {
            let why = &error[0].message;
            text += &format!("\nThis is the formula of this batch, step and state: {why}.\n");
        }
        let [numbers, fixed] = [Role::Number, Role::Formula].map(|role| self.settings(role));
        let lines = [("parameters", numbers), ("fixed in the formula", fixed)];
        let lines = lines
            .into_iter()
            .filter(|(_, settings)| !settings.is_empty());
        let lines = lines.map(|(title, settings)| format!("{title}: {settings}\n"));
        let lines: String = lines.collect();
        if lines.is_empty() {
            text
        } else {
            format!("{text}\n{lines}")
        }
    }

    fn derivations(&self) -> Vec<String> {
        let (graph, names) = (&self.graph, self.graph.names(|_| true));
        let texts: Vec<Text> = names.iter().map(Text::number).collect();
        let derivation = |(hook, result, own): (Hook, &Arg, Vec<usize>)| {
            let below = graph.below(result, &[]).into_iter();
            let columns = below.filter(|at| graph.nodes[*at].row == COLUMN);
            let columns = columns.map(|at| format!("{} ({})", names[at], graph.nodes[at].level));
            let columns: Vec<String> = columns.collect();
            let own = own.iter().filter(|at| graph.nodes[**at].row != COLUMN);
            let rows = own.map(|at| (&*names[*at], &graph.nodes[*at]));
            let rows = rows.map(|(name, node)| (name, operation(node, &texts, SCRIPT).text, node));
            let rows: Vec<_> = rows.collect();
            let widest =
                |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0).min(60);
            let name_width = widest(&mut rows.iter().map(|(name, ..)| name.chars().count()));
            let width = widest(&mut rows.iter().map(|(_, value, _)| value.chars().count()));
            let mut text = format!("{}, of {}\n", hook.name(), columns.join(", "));
            let mut last = None;
            for (name, value, node) in &rows {
                let origin = node.origin.as_ref();
                let source = |of| place(&self.recipe, source_of(&self.recipe, of), of.line);
                let place = origin.map(source).unwrap_or_default();
                let statement = statement_of(&self.recipe, node);
                // A statement is quoted only at the first of its consecutive operations.
                let beside = match &statement {
                    Some(statement) if last.as_ref() != Some(statement) => {
                        format!("{place}: {statement}")
                    }
                    _ => place,
                };
                last = statement;
                let level = node.level;
                let line = format!("  {name:name_width$} = {value:width$}  {level:10}  {beside}");
                text += &format!("{}\n", line.trim_end());
            }
            let (name, value) = (gives(hook), term(result, &texts, SCRIPT).text);
            if name != value {
                text += &format!("  {name} = {value} ({})\n", level_of(result));
            }
            text
        };
        graph.parts().map(derivation).collect()
    }

    /// Returns the formulas as statements, which define the script's variables and the results.
    pub(super) fn statements(&self) -> Vec<String> {
        let (hooks, _) = self.graph.statements(SCRIPT);
        let all = hooks.into_iter().flat_map(|(_, statements)| statements);
        all.map(|(name, value)| format!("{name} = {value}"))
            .collect()
    }
}
