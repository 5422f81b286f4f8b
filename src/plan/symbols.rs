//! Names and indices as papers write them.

use crate::tensor::Level;

/// The index that a reduction is over: the responses of a group, the tokens of a response.
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

/// An expression below a reduction, with the index of the reduction in place of that of the equation.
pub(super) fn renamed(text: &str, over: &str) -> String {
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

/// A name as a symbol: the letters of the field's papers, Greek ones by their names, and numbers above.
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

pub(super) fn plain(name: &str) -> String {
    name.replace('_', "\\_")
}
