//! What other trainers call the built-ins, from `trainers.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::search::search;
use crate::wrong;
use advlab::diagnostic::Diagnostics;
use advlab::paint::{Paint, beside};
use advlab::script::Builtin;
use advlab::suggest;

/// A trainer, at the version whose code we read, with its names for the built-ins.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trainer {
    pub(super) version: String,
    pub(super) names: Vec<Alias>,
}

/// A trainer's name of a built-in, or a setting there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alias {
    pub(super) theirs: String,
    pub(super) ours: String,
    /// The parameters that give the same numbers, as for `--set`.
    #[serde(default)]
    pub(super) set: String,
    /// The remaining differences between the numbers, if any.
    #[serde(default)]
    pub(super) differs: String,
    /// The largest difference between their function's numbers and ours on random batches, if it was measured.
    #[cfg_attr(not(test), expect(dead_code))]
    pub(super) measured: Option<f64>,
}

static TRAINERS: LazyLock<BTreeMap<String, Trainer>> = LazyLock::new(|| {
    let text = include_str!("trainers.toml");
    toml::from_str(text).expect("trainers.toml")
});

/// The trainers by their names, in alphabetical order.
pub(super) fn trainers() -> impl Iterator<Item = (&'static str, &'static Trainer)> {
    TRAINERS.iter().map(|(name, of)| (name.as_str(), of))
}

/// The meaning of a trainer's names, two lines each: its name, and the recipe with its settings; if there is no trainer of that
/// name, the recipes that a search for it finds.
pub fn trainer(name: &str, paint: Paint) -> Result<String, Diagnostics> {
    let Some(trainer) = TRAINERS.get(&name.to_lowercase()) else {
        let names = || trainers().map(|(name, _)| name);
        let is_recipe = Builtin::find(name).is_some();
        let help = match suggest::nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if is_recipe => format!("{name} is a recipe: `advlab doc {name}` explains it"),
            None => match search(name, true, paint) {
                Some(found) => return Ok(found),
                None => format!("there are {}", suggest::list(names())),
            },
        };
        let message = format!("`{name}` is no trainer whose names are known, and no recipe has it");
        return Err(wrong(message, help));
    };
    let mut lines = vec![
        paint.bold(&format!("{name} {}", trainer.version)),
        paint.dim("its name, the recipe here with the parameters that give the same numbers,\nand the remaining differences"),
    ];
    for alias in &trainer.names {
        let ours = format!("{} {}", paint.bold(&alias.ours), alias.set);
        let theirs = format!("  {}", alias.theirs);
        lines.push(beside(&theirs, 36, &ours, paint.width));
        if !alias.differs.is_empty() {
            lines.push(paint.dim(&beside("", 4, &alias.differs, paint.width)));
        }
    }
    Ok(lines.join("\n"))
}
