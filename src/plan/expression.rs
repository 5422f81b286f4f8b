//! The operations of a graph as statements, in the notation of scripts, of PyTorch or of LaTeX.

use super::graph::{Arg, COLUMN, Graph, Node, SIZE, VALUES, gives};
use super::rows::{self, Notation, Text, literal};
use super::symbols::{index, over, plain, renamed, symbol};
use crate::script::Hook;
use crate::tensor::Level;

/// A statement: a name, and the expression that defines it.
pub(super) type Statement = (String, String);

impl Graph {
    /// Returns the statements of each hook, which define the named nodes and the hook's result, and each node as an expression in
    /// these names. In equations, a node that is used several times has a name.
    pub(super) fn statements(
        &self,
        notation: Notation,
    ) -> (Vec<(Hook, Vec<Statement>)>, Vec<Text>) {
        let own = |name: &str, level: Level| match notation {
            Notation::Latex => format!("{}{}", symbol(name), index(level)),
            _ => name.to_string(),
        };
        let uses = |node: usize| {
            let args = self.nodes.iter().flat_map(|node| &node.args);
            let all = args.chain(self.results.iter().map(|(_, result)| result));
            all.filter(|arg| arg.node() == Some(node)).count()
        };
        let is_shared = |node: usize| notation == Notation::Latex && uses(node) > 1;
        let names = self.names(is_shared);
        let mut texts = vec![Text::number(""); self.nodes.len()];
        let hooks = self.parts().map(|(hook, result, nodes)| {
            let mut statements = Vec::new();
            for at in nodes {
                let node = &self.nodes[at];
                let mut results = self.results.iter();
                let is_result = results.any(|(_, result)| result.node() == Some(at));
                let name = own(&names[at], node.level);
                texts[at] = if node.row == COLUMN {
                    Text::number(name)
                } else if node.name.is_some() || is_result || is_shared(at) {
                    let value = operation(node, &texts, notation).into_number(notation);
                    statements.push((name.clone(), value.text));
                    Text::number(name)
                } else {
                    operation(node, &texts, notation)
                };
            }
            let name = own(gives(hook), level_of(result));
            let value = term(result, &texts, notation).into_number(notation).text;
            if name != value {
                statements.push((name, value));
            }
            (hook, statements)
        });
        (hooks.collect(), texts)
    }
}

/// Returns the level of a hook's result.
pub(super) fn level_of(result: &Arg) -> Level {
    match result {
        Arg::Node(_, level) => *level,
        _ => Level::Response,
    }
}

/// Returns an argument as an expression; `texts` contains the expressions of all earlier nodes.
pub(super) fn term(arg: &Arg, texts: &[Text], notation: Notation) -> Text {
    let is_latex = notation == Notation::Latex;
    Text::number(match arg {
        Arg::Node(node, _) => return texts[*node].clone(),
        Arg::Number(_, Some(made_of)) if is_latex => {
            made_of.written(symbol).replace(" * ", " \\, ")
        }
        Arg::Number(_, Some(made_of)) => made_of.written(str::to_string),
        Arg::Number(number, None) => match literal(*number) {
            text if !is_latex => text,
            text => match text.split_once('e') {
                Some(("1", power)) => format!("10^{{{power}}}"),
                Some((digits, power)) => format!("{digits} \\cdot 10^{{{power}}}"),
                None => text,
            },
        },
        Arg::Level(level) => level.to_string(),
        Arg::Word(word) if is_latex => format!("\\operatorname{{{}}}", plain(word)),
        Arg::Word(word) => word.to_string(),
    })
}

/// Returns a node's operation as an expression; `texts` contains the expressions of all earlier nodes.
pub(super) fn operation(node: &Node, texts: &[Text], notation: Notation) -> Text {
    let args = node.args.iter().map(|arg| term(arg, texts, notation));
    let args: Vec<Text> = args.collect();
    let way = node.way();
    let form = rows::form(node, way, notation);
    let form = form.map_or_else(|| by_name(node, notation), str::to_string);
    let (over, to) = way.map_or(("", Level::Batch), |(from, to)| (over(from, to), to));
    let over = if form.contains("{s ") { "s" } else { over };
    let selection = node.selection().map_or(String::new(), |arg| {
        let condition = term(arg, texts, notation).into_truth(notation);
        format!(" : {}", renamed(&condition.text, over))
    });
    let mut places = vec![
        ("over".to_string(), over.to_string()),
        (":".to_string(), selection),
        ("row".to_string(), plain(node.row)),
        (
            "to".to_string(),
            index(to).trim_start_matches('_').to_string(),
        ),
    ];
    for (at, arg) in args.into_iter().enumerate() {
        let number = arg.clone().into_number(notation).text;
        places.push((format!("{at}?"), arg.into_truth(notation).text));
        places.push((format!("{at}'"), renamed(&number, over)));
        places.push((format!("{at}+"), number.replace(",t}", ",t+1}")));
        places.push((at.to_string(), number));
    }
    Text {
        text: rows::filled(&form, notation, &places),
        is_truth: rows::is_logic(node.row),
    }
}

/// Returns the default form of a row that has no form in `rows.txt`: the form in scripts or, in LaTeX, a named function.
fn by_name(node: &Node, notation: Notation) -> String {
    let args: Vec<String> = (0..node.args.len()).map(|at| format!("{{{at}}}")).collect();
    let is_sign = !node.row.starts_with(char::is_alphabetic);
    let is_method = node.args.iter().any(|arg| matches!(arg, Arg::Level(_)));
    match &args[..] {
        args if notation == Notation::Latex => {
            format!(
                "\\operatorname{{{{row}}}}\\left({}\\right)",
                args.join(", ")
            )
        }
        [] if node.row == VALUES => "values that the script computed".to_string(),
        [] => node.row.to_string(),
        [a, b] if is_sign => format!("{a} {} {b}", node.row),
        [a] if node.row == "neg" => format!("-{a}"),
        [a] if is_sign => format!("{}{a}", node.row),
        [of, to, groups @ ..] if node.row == SIZE => {
            let made = groups.split_first();
            let made = made.map(|(name, keys)| format!(" of {name}({})", keys.join(", ")));
            let of_groups = made.unwrap_or_default();
            format!("number of {of} values in each {to}{of_groups}")
        }
        [x, rest @ ..] if is_method => format!("{x}.{}({})", node.row, rest.join(", ")),
        args => format!("{}({})", node.row, args.join(", ")),
    }
}
