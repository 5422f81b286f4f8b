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
use crate::wrong;
use advlab::Batch;
use advlab::batch::{Layout, Level};
use advlab::check::needs;
use advlab::diagnostic::Diagnostics;
use advlab::script::{Computed, Hook, Outcome, Recipe};

/// The advantage that a pure loss is given: it optimises the reward itself, so that only the loss shows.
pub const NEUTRAL: &str = "rloo";

/// A recipe, with an advantage for it if it is only a loss on `batch.advantage`.
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

    /// The batch with the advantage that the recipe needs, which replaces the batch's own.
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

/// The batch on which a recipe runs: if the recipe is a loss on `batch.advantage` and the batch has none, one with the
/// [`NEUTRAL`] advantage, and a note that says so.
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

/// The responses of a group.
pub(crate) fn members(layout: &Layout, group: usize) -> impl Iterator<Item = usize> + Clone + '_ {
    layout.members(group).iter().map(|&one| one as usize)
}

/// The indices of a group's values at a level: of tokens a list per response, else one list.
pub(crate) fn indices(layout: &Layout, level: Level, group: usize) -> Vec<Vec<usize>> {
    let members = members(layout, group);
    let trajectories = layout.trajectories_of(group).into_iter().flatten();
    match level {
        Level::Token => members.map(|one| layout.tokens_of(one).collect()).collect(),
        Level::Position => vec![layout.positions_of(group).collect()],
        Level::Trajectory => vec![trajectories.collect()],
        Level::Group => vec![vec![group]],
        _ => vec![members.collect()],
    }
}

/// The size of the largest group, from 2 to 1024.
pub(crate) fn largest_group(batch: &Batch) -> usize {
    let layout = batch.layout();
    let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
    sizes.max().unwrap_or(1).clamp(2, 1024)
}

/// The share of right responses in each group, from which responses are right.
pub(crate) fn accuracies(correct: &Computed) -> Vec<f64> {
    let layout = correct.layout();
    let share = |group: usize| {
        let right: f64 = members(layout, group).map(|one| correct.at(one, 0)).sum();
        right / layout.members(group).len().max(1) as f64
    };
    (0..layout.groups()).map(share).collect()
}

/// A recipe's name with the parameters that differ from their defaults: `passk k=8`.
pub fn label(recipe: &Recipe) -> String {
    let name = std::path::Path::new(recipe.name()).file_stem();
    let name = name.unwrap_or_default().to_string_lossy();
    let params = recipe.params().iter();
    let set = params.filter(|(parameter, value)| **value != parameter.default);
    let set = set.map(|(parameter, value)| format!(" {}={value}", parameter.name));
    format!("{name}{}", set.collect::<String>())
}

/// Recipes with their settings as words name them, `passk k=4 grpo`: a word with `=` belongs to the recipe before it.
pub fn recipes_of<'w>(words: &[&'w str]) -> Result<Vec<(&'w str, Vec<&'w str>)>, Diagnostics> {
    let mut recipes: Vec<(&str, Vec<&str>)> = Vec::new();
    let name_of = |setting: &str| setting.split_once('=').map(|(name, _)| name.to_string());
    for &word in words {
        match (name_of(word), recipes.last_mut()) {
            (None, _) => recipes.push((word, Vec::new())),
            (Some(name), Some((recipe, settings))) => {
                let is_same = |other: &&&str| name_of(other).as_ref() == Some(&name);
                if let Some(other) = settings.iter().find(is_same) {
                    let help = format!(
                        "for two designs, name it twice: `{recipe} {other} {recipe} {word}`"
                    );
                    return Err(wrong(
                        format!("`{recipe}` has `{other}` and `{word}`"),
                        help,
                    ));
                }
                settings.push(word);
            }
            (Some(_), None) => {
                let message = format!("`{word}` stands before any recipe");
                return Err(wrong(
                    message,
                    "a setting stands behind its recipe: `passk k=8`",
                ));
            }
        }
    }
    Ok(recipes)
}
