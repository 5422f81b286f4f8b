//! What a design does: the advantages of right and wrong responses ([`Curve`]), the objective that they optimise
//! ([`Objective`]), and a loss over ratio and advantage ([`surface`]).

mod curve;
mod mass;
mod objective;
pub mod objectives;
mod surface;

use std::borrow::Cow;

pub use self::curve::{Curve, Point};
pub use self::mass::{Mass, Part};
pub use self::objective::{Known, Objective};
pub use self::surface::{Drawn, surface};
use advlab::Batch;
use advlab::check::needs;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::{Computed, Hook, Outcome, Recipe};

/// The advantage that a loss sees which has none of its own: it optimises the reward itself, so that what is seen is the
/// loss.
pub const NEUTRAL: &str = "rloo";

/// A recipe, with an advantage for it where it is a loss on `batch.advantage` alone.
struct Design<'a> {
    recipe: &'a Recipe,
    advantage: Option<Recipe>,
}

impl Design<'_> {
    fn of(recipe: &Recipe) -> Result<Design<'_>, Diagnostics> {
        let is_loss = !recipe.has(Hook::Advantage) && needs(recipe, "advantage");
        let advantage = is_loss.then(|| recipe.host().load(NEUTRAL)).transpose()?;
        Ok(Design { recipe, advantage })
    }

    /// The batch with the advantage that the recipe needs, in place of one that it may have.
    fn batch<'b>(&self, batch: &'b Batch) -> Result<Cow<'b, Batch>, Diagnostics> {
        let Some(advantage) = &self.advantage else {
            return Ok(Cow::Borrowed(batch));
        };
        let given = advantage.advantage(batch, &mut advantage.init()?)?;
        Ok(Cow::Owned(
            batch.clone().with("advantage", &given.advantage),
        ))
    }

    fn outcome(&self, batch: &Batch) -> Result<Outcome, Diagnostics> {
        let mut state = self.recipe.init()?;
        self.recipe.advantage(&*self.batch(batch)?, &mut state)
    }
}

/// The batch on which a recipe runs: where it is a loss on `batch.advantage`, and the batch has none, one with the
/// [`NEUTRAL`] advantage, and a note that says so.
///
/// # Errors
/// [`Diagnostics`] where that cannot be computed.
pub fn with_advantage<'b>(
    recipe: &Recipe,
    batch: &'b Batch,
) -> Result<(Cow<'b, Batch>, Option<String>), Diagnostics> {
    let batch = match batch.has("advantage") {
        true => Cow::Borrowed(batch),
        false => Design::of(recipe)?.batch(batch)?,
    };
    let note = "a loss on `batch.advantage`, which the batch has not: it sees that of";
    let note = matches!(batch, Cow::Owned(_)).then(|| format!("{note} {NEUTRAL}"));
    Ok((batch, note))
}

/// The share of right responses in each group, from which responses are right.
pub(crate) fn accuracies(correct: &Computed) -> Vec<f64> {
    let layout = correct.layout();
    let share = |group: usize| {
        let members = layout.members(group);
        let right: f64 = members.iter().map(|&one| correct.at(one as usize, 0)).sum();
        right / members.len().max(1) as f64
    };
    (0..layout.groups()).map(share).collect()
}

/// A recipe's name with the settings that it has otherwise than it declares: `passk k=8`.
pub fn label(recipe: &Recipe) -> String {
    let path = std::path::Path::new(recipe.name());
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy())
        .unwrap_or_default();
    let set = recipe
        .params()
        .iter()
        .filter(|(parameter, value)| **value != parameter.default);
    let set = set.map(|(parameter, value)| format!(" {}={value}", parameter.name));
    format!("{name}{}", set.collect::<String>())
}

/// Recipes with their settings as words name them, `passk k=4 grpo`: a word with `=` belongs to the recipe before it.
///
/// # Errors
/// [`Diagnostics`] where a setting has no recipe before it, or a recipe has one twice.
pub fn recipes_of<'w>(words: &[&'w str]) -> Result<Vec<(&'w str, Vec<&'w str>)>, Diagnostics> {
    let mut recipes: Vec<(&str, Vec<&str>)> = Vec::new();
    for &word in words {
        let Some((name, _)) = word.split_once('=') else {
            recipes.push((word, Vec::new()));
            continue;
        };
        let Some((recipe, settings)) = recipes.last_mut() else {
            let error = Diagnostic::error(format!("`{word}` stands before any recipe"));
            return Err(error
                .with_help("a setting stands behind its recipe: `passk k=8`")
                .into());
        };
        let is_same = |other: &&str| {
            other
                .split_once('=')
                .is_some_and(|(other, _)| other == name)
        };
        if let Some(other) = settings.iter().find(|other| is_same(other)) {
            let error = Diagnostic::error(format!("`{recipe}` has `{other}` and `{word}`"));
            let help =
                format!("for two designs, name it twice: `{recipe} {other} {recipe} {word}`");
            return Err(error.with_help(help).into());
        }
        settings.push(word);
    }
    Ok(recipes)
}
