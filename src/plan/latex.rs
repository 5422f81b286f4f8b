//! A plan as aligned equations: i is a response, g its group, k its trajectory, t a token.

use super::Plan;
use super::formula::{Arg, COLUMN, Formula, Node, SIZE};
use super::rows::{self, CALL, NEGATIVE, SUM, binds};
use super::text::names;
use crate::tensor::Level;

const ABOUT: &str = "% In math mode, with the package amsmath. i, j: responses; g: the group of i; k: its trajectory; s, t: tokens; T_i: its \
    number of tokens.\n% mean, std (ddof 1) and population_std (ddof 0) are over the index below them, and clip(x, a, b) is min(max(x, a), b).\n";

/// An expression of LaTeX, and how tightly it binds.
type Term = (String, u8);

impl Plan {
    /// The formulas as equations in the environment `aligned`.
    pub fn latex(&self) -> String {
        let lines: Vec<String> = self.formulas.iter().flat_map(equations).collect();
        format!(
            "{ABOUT}\\begin{{aligned}}\n{}\n\\end{{aligned}}\n",
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
        (SIZE, [Arg::Level(Level::Response), Arg::Level(Level::Group)]) => {
            ("|g|".to_string(), CALL)
        }
        (SIZE, [Arg::Level(Level::Token), Arg::Level(Level::Response)]) => {
            ("T_i".to_string(), CALL)
        }
        (SIZE, [Arg::Level(of), Arg::Level(to)]) => (format!("N_{{{}}}", over(*of, *to)), CALL),
        ("suffix_sum", _) => {
            let value = within(&args[0], CALL).replace(",t}", ",s}");
            let factor = match args[1].0.as_str() {
                "1" => String::new(),
                gamma if gamma.contains(' ') => format!("\\left({gamma}\\right)^{{s - t}} "),
                gamma => format!("{gamma}^{{s - t}} "),
            };
            (format!("\\sum_{{s \\ge t}} {factor}{value}"), NEGATIVE)
        }
        ("kl", [.., Arg::Choice(choice)]) => {
            let [a, b] = [&args[0].0, &args[1].0];
            let text = format!("\\mathrm{{KL}}^{{{choice}}}\\left({a}, {b}\\right)");
            (text, CALL)
        }
        ("whiten", [_, Arg::Level(to), ..]) => {
            let (value, index) = (&args[0].0, over(from, *to));
            let bound = renamed(value, index);
            let deviation =
                format!("\\operatorname{{population\\_std}}_{{{index}}} \\left({bound}\\right)");
            let mean = format!("\\operatorname{{mean}}_{{{index}}} \\left({bound}\\right)");
            let text = format!("\\frac{{{value} - {mean}}}{{\\max({deviation}, 10^{{-4}})}}");
            (text, CALL)
        }
        (row, [_, Arg::Level(to), rest @ ..]) => {
            let index = over(from, *to);
            let (name, except) = match row {
                "sum" => ("\\sum".to_string(), ""),
                "others_mean" => ("\\operatorname{mean}".to_string(), ", j \\ne i"),
                _ => (format!("\\operatorname{{{}}}", plain(row)), ""),
            };
            let selection = match rest.first() {
                Some(Arg::Node(selection, _)) => {
                    format!(" : {}", renamed(&terms[*selection].0, index))
                }
                _ => String::new(),
            };
            let value = renamed(&within(&args[0], CALL), index);
            (
                format!("{name}_{{{index}{except}{selection}}} {value}"),
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
                let is_negative = binds == NEGATIVE;
                (text, if is_open || is_negative { binds } else { CALL })
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

/// The index that a reduction is over: the responses of a group, the tokens of a response.
fn over(from: Level, to: Level) -> &'static str {
    match (from, to) {
        (Level::Token, Level::Response) => "s",
        (Level::Token, Level::Batch) => "j, s",
        (Level::Token, Level::Group) => "j \\in g, s",
        (_, Level::Group | Level::Position) => "j \\in g",
        (_, Level::Trajectory) => "j \\in k",
        (Level::Group, _) => "g",
        (Level::Trajectory, _) => "k",
        _ => "j",
    }
}

/// An expression below a reduction, with the index of the reduction in place of that of the equation.
fn renamed(text: &str, over: &str) -> String {
    // An underscore of a name is no index.
    let mut text = text.replace("\\_", "\0");
    if over.contains('j') {
        text = text.replace("_i", "_j").replace("_{i,", "_{j,");
    }
    if over.contains('s') {
        text = text.replace(",t}", ",s}");
    }
    text.replace('\0', "\\_")
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

const GREEK: [&str; 10] = [
    "alpha", "beta", "gamma", "delta", "kappa", "lambda", "omega", "psi", "rho", "tau",
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
        "ratio" => "\\rho".to_string(),
        "clip_low" => "\\epsilon_{\\mathrm{low}}".to_string(),
        "clip_high" => "\\epsilon_{\\mathrm{high}}".to_string(),
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
