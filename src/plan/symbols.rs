//! Symbols for names and levels, as in papers.

use crate::tensor::Level;

/// Returns the symbol of the index over which a reduction runs, such as `s` for the tokens of a response.
pub(super) fn over(from: Level, to: Level) -> &'static str {
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

/// Returns an expression under a reduction, with the reduction's index instead of the index of the equation.
pub(super) fn renamed(text: &str, over: &str) -> String {
    // An escaped underscore belongs to a name, so it must not be read as the start of an index.
    let mut text = text.replace("\\_", "\0");
    if over.contains('j') {
        text = text.replace("_i", "_j").replace("_{i,", "_{j,");
    }
    if over.contains('s') {
        text = text.replace(",t}", ",s}");
    }
    text.replace('\0', "\\_")
}

pub(super) fn index(level: Level) -> &'static str {
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

/// Returns a name as a symbol: the letter that is usual in papers, the Greek letter of this name, or the name itself. Digits at
/// the end of a name become a superscript.
pub(super) fn symbol(name: &str) -> String {
    let base = name.trim_end_matches(|last: char| last.is_ascii_digit());
    if base.len() < name.len() {
        return format!("{}^{{({})}}", symbol(base), &name[base.len()..]);
    }
    let known = match name {
        "reward" => "r",
        "shaped_reward" => "r'",
        "advantage" => "A",
        "value" => "V",
        "loss" => "L",
        "eps" => "\\epsilon",
        "ratio" => "\\rho",
        "clip_low" => "\\epsilon_{\\mathrm{low}}",
        "clip_high" => "\\epsilon_{\\mathrm{high}}",
        "logp" => "\\log \\pi",
        "old_logp" => "\\log \\pi^{\\mathrm{old}}",
        "ref_logp" => "\\log \\pi^{\\mathrm{ref}}",
        name if GREEK.contains(&name) => return format!("\\{name}"),
        name if name.len() == 1 => name,
        name => return format!("\\mathrm{{{}}}", plain(name)),
    };
    known.to_string()
}

/// Escapes the characters of a name that LaTeX's math mode would not print.
pub(super) fn plain(name: &str) -> String {
    let escaped = |letter: char| match letter {
        ' ' | '_' | '%' | '&' | '#' | '$' | '{' | '}' => format!("\\{letter}"),
        '\\' => "\\backslash ".to_string(),
        '^' => "\\wedge ".to_string(),
        '~' => "\\sim ".to_string(),
        other => other.to_string(),
    };
    name.chars().map(escaped).collect()
}
