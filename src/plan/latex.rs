//! A plan as aligned equations: i is a response, g its group, k its trajectory, t a token.

use super::Plan;
use super::formula::{Arg, COLUMN, Formula, Node, SIZE};
use super::rows::{self, CALL, NEGATIVE, SUM, binds};
use super::text::names;
use crate::tensor::Level;

/// An expression of LaTeX, and how tightly it binds.
type Term = (String, u8);

impl Plan {
    /// The formulas as equations in the environment `aligned`.
    pub fn latex(&self) -> String {
        let lines: Vec<String> = self.formulas.iter().flat_map(equations).collect();
        format!(
            "\\begin{{aligned}}\n{}\n\\end{{aligned}}\n",
            lines.join(" \\\\\n")
        )
    }
}

fn equations(formula: &Formula) -> Vec<String> {
    let (mut terms, mut lines): (Vec<Term>, Vec<String>) = (Vec::new(), Vec::new());
    for (node, name) in formula.nodes.iter().zip(names(formula)) {
        let own = format!("{}{}", symbol(&name), index(node.level));
        let term = match (node.row, &node.name) {
            (COLUMN, _) => (own, CALL),
            (_, None) => operation(node, &terms),
            (_, Some(_)) => {
                lines.push(format!("{own} &= {}", operation(node, &terms).0));
                (own, CALL)
            }
        };
        terms.push(term);
    }
    let level = match &formula.result {
        Arg::Node(_, level) => *level,
        _ => Level::Response,
    };
    let name = symbol(formula.gives());
    lines.push(format!(
        "{name}{} &= {}",
        index(level),
        term(&formula.result, &terms).0
    ));
    lines
}

fn term(arg: &Arg, terms: &[Term]) -> Term {
    match arg {
        Arg::Node(node, _) => terms[*node].clone(),
        Arg::Number(_, Some(made_of)) => {
            let text = made_of.written(symbol).replace(" * ", " \\, ");
            let binds = if text.contains(" + ") || text.contains(" - ") {
                SUM
            } else {
                CALL
            };
            (text, binds)
        }
        Arg::Number(number, None) => {
            let text = match format!("{number:?}").split_once('e') {
                Some((digits, power)) => format!("{digits} \\cdot 10^{{{power}}}"),
                None => number.to_string(),
            };
            (text, if *number < 0.0 { NEGATIVE } else { CALL })
        }
        Arg::Level(level) => (level.to_string(), CALL),
        Arg::Choice(choice) => (choice.to_string(), CALL),
    }
}

fn within((text, binds): &Term, least: u8) -> String {
    if *binds < least {
        format!("\\left({text}\\right)")
    } else {
        text.clone()
    }
}

fn operation(node: &Node, terms: &[Term]) -> Term {
    let args: Vec<Term> = node.args.iter().map(|arg| term(arg, terms)).collect();
    let from = match node.args.first() {
        Some(Arg::Node(_, level)) => *level,
        _ => node.level,
    };
    match (node.row, &node.args[..]) {
        ("where", _) => {
            let [condition, a, b] = [&args[0].0, &args[1].0, &args[2].0];
            (
                format!(
                    "\\begin{{cases}} {a} & \\text{{if }} {condition} \\\\ {b} & \\text{{else}} \\end{{cases}}"
                ),
                SUM,
            )
        }
        (SIZE, [Arg::Level(of), Arg::Level(to)]) => (format!("N_{{{}}}", over(*of, *to)), CALL),
        (row, [_, Arg::Level(to), rest @ ..]) => {
            let name = if row == "sum" {
                "\\sum".to_string()
            } else {
                format!("\\operatorname{{{}}}", plain(row))
            };
            let selection = match rest.first() {
                Some(Arg::Node(selection, _)) => format!(" : {}", terms[*selection].0),
                _ => String::new(),
            };
            (
                format!(
                    "{name}_{{{}{selection}}} {}",
                    over(from, *to),
                    within(&args[0], CALL)
                ),
                NEGATIVE,
            )
        }
        (_, _) => match rows::find(node, None) {
            Some(row) if !row.latex.is_empty() => {
                let binds = binds(row.torch);
                let is_open = binds < NEGATIVE && !row.latex.starts_with("\\frac");
                // Arguments take the places of marks, because `{0}` may also be a number in the text of another argument.
                let mark = |position: usize| ["\u{1}", "\u{2}", "\u{3}"][position.min(2)];
                let marked = |text: String, at: usize| text.replace(&format!("{{{at}}}"), mark(at));
                let mut text = (0..args.len().min(3)).fold(row.latex.to_string(), marked);
                for (position, arg) in args.iter().enumerate() {
                    let least = match position {
                        _ if row.latex.starts_with('[') => 0,
                        0 if is_open || binds == NEGATIVE => binds,
                        _ if is_open => binds + 1,
                        _ => 0,
                    };
                    text = text.replace(mark(position), &within(arg, least));
                }
                (text, if is_open { binds } else { CALL })
            }
            _ => {
                let row = node.row;
                let args: Vec<&str> = args.iter().map(|(text, _)| text.as_str()).collect();
                (
                    format!(
                        "\\operatorname{{{}}}\\left({}\\right)",
                        plain(row),
                        args.join(", ")
                    ),
                    CALL,
                )
            }
        },
    }
}

/// What a reduction is over: the responses of a group, the tokens of a response.
fn over(from: Level, to: Level) -> &'static str {
    match (from, to) {
        (Level::Token, Level::Response) => "t",
        (Level::Token, Level::Batch) => "i, t",
        (Level::Token, Level::Group) => "i \\in g, t",
        (_, Level::Group | Level::Position) => "i \\in g",
        (_, Level::Trajectory) => "i \\in k",
        (Level::Group, _) => "g",
        (Level::Trajectory, _) => "k",
        _ => "i",
    }
}

fn index(level: Level) -> &'static str {
    match level {
        Level::Batch => "",
        Level::Group => "_g",
        Level::Trajectory => "_k",
        Level::Position => "_{g,t}",
        Level::Response => "_i",
        Level::Token => "_{i,t}",
    }
}

const GREEK: [&str; 9] = [
    "alpha", "beta", "gamma", "delta", "kappa", "lambda", "omega", "rho", "tau",
];

/// A name as a symbol: the letters of the field's papers, Greek ones by their names.
fn symbol(name: &str) -> String {
    match name {
        "reward" => "r".to_string(),
        "shaped_reward" => "r'".to_string(),
        "advantage" => "A".to_string(),
        "value" => "V".to_string(),
        "loss" => "L".to_string(),
        "eps" => "\\epsilon".to_string(),
        "logp" => "\\log \\pi".to_string(),
        "old_logp" => "\\log \\pi^{\\mathrm{old}}".to_string(),
        "ref_logp" => "\\log \\pi^{\\mathrm{ref}}".to_string(),
        name if GREEK.contains(&name) => format!("\\{name}"),
        name if name.len() == 1 => name.to_string(),
        name => format!("\\mathrm{{{}}}", plain(name)),
    }
}

fn plain(name: &str) -> String {
    name.replace('_', "\\_")
}
