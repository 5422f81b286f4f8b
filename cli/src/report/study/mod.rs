//! Studies of a design: the advantages of right and wrong responses ([`Curve`]), the objective that they optimise
//! ([`Objective`]), a loss as a function of ratio and advantage ([`surface`]), the outcome of a recipe ([`outcome`]), and the
//! differences between two recipes ([`diff`]) or two dumps of a batch ([`against`]).

pub mod against;
pub mod curve;
pub mod diff;
pub mod mass;
mod objective;
pub mod objectives;
pub mod outcome;
mod surface;

pub use self::curve::{Curve, Point};
pub use self::mass::Mass;
pub use self::objective::{KnownObjective, Objective, Update};
pub use self::surface::surface;
use super::file_stem;
use crate::{Result, pair, wrong};
use advlab::batch::{Layout, Level};
use advlab::check::needs;
use advlab::script::{Computed, Hook, Loss, Outcome, Recipe, State};
use advlab::{Batch, Diagnostic};

/// The recipe that gives the advantage to recipes that are only a loss on `batch.advantage`. It optimises the reward itself, so
/// every deviation from the reward is due to the loss.
pub const NEUTRAL: &str = "rloo";

/// A recipe and, if it is only a loss on `batch.advantage`, a second recipe that gives this advantage.
struct Design<'a> {
    recipe: &'a Recipe,
    advantage: Option<Recipe>,
}

impl Design<'_> {
    fn of(recipe: &Recipe) -> Result<Design<'_>> {
        let is_loss = !recipe.has(Hook::Advantage) && needs(recipe, "advantage");
        let advantage = is_loss.then(|| recipe.host().load(NEUTRAL)).transpose()?;
        Ok(Design { recipe, advantage })
    }

    /// Returns the batch with the advantage that the recipe needs, which replaces the batch's own advantage.
    fn batch(&self, batch: &Batch) -> Result<Batch> {
        let Some(advantage) = &self.advantage else {
            return Ok(batch.clone());
        };
        let given = advantage.advantage(batch, &mut advantage.init()?)?;
        batch.clone().with("advantage", &given.advantage)
    }

    fn outcome(&self, batch: &Batch) -> Result<Outcome> {
        let mut state = self.recipe.init()?;
        self.recipe.advantage(&self.batch(batch)?, &mut state)
    }
}

/// Returns the batch. If the recipe is a loss on `batch.advantage` and the batch has no advantage, the [`NEUTRAL`] advantage is
/// added, and a note says so.
pub(crate) fn with_advantage(recipe: &Recipe, batch: &Batch) -> Result<(Batch, Option<String>)> {
    if batch.has("advantage") {
        return Ok((batch.clone(), None));
    }
    let design = Design::of(recipe)?;
    let text = "the batch has no `advantage`, so the loss gets the advantage of";
    let note = design
        .advantage
        .is_some()
        .then(|| format!("{text} {NEUTRAL}"));
    Ok((design.batch(batch)?, note))
}

/// Returns the batch with the [`NEUTRAL`] advantage.
pub(crate) fn with_neutral(recipe: &Recipe, batch: &Batch) -> Result<Batch> {
    let advantage = Some(recipe.host().load(NEUTRAL)?);
    Design { recipe, advantage }.batch(batch)
}

/// The result of a recipe's step on a batch.
pub struct Trial {
    pub recipe: Recipe,
    /// The batch, with the [`NEUTRAL`] advantage if the recipe is a loss on `batch.advantage` and the batch has no advantage.
    pub batch: Batch,
    /// A note that says that the [`NEUTRAL`] advantage is used, if it is used.
    pub note: Option<String>,
    pub outcome: Outcome,
    /// The state after the step.
    pub state: State,
}

impl Trial {
    /// Runs a first step, from the state that `init` makes.
    pub fn of(recipe: &Recipe, batch: &Batch) -> Result<Trial> {
        Trial::in_state(recipe, batch, recipe.init()?)
    }

    pub fn in_state(recipe: &Recipe, batch: &Batch, mut state: State) -> Result<Trial> {
        let (batch, note) = with_advantage(recipe, batch)?;
        Ok(Trial {
            recipe: recipe.clone(),
            outcome: recipe.advantage(&batch, &mut state)?,
            batch,
            note,
            state,
        })
    }

    /// Returns the loss of the outcome: the recipe's own loss or, if the recipe has no loss, the loss of `other`.
    pub fn loss(&self, other: &Recipe) -> Result<Loss> {
        let has_own = self.recipe.has(Hook::Loss);
        let loss = if has_own { &self.recipe } else { other };
        // For a recipe with only a loss, the outcome's advantage is derived from that loss, so the loss gets the batch's column
        // instead.
        let has_advantage = self.recipe.has(Hook::Advantage);
        let advantage = has_advantage.then_some(&self.outcome.advantage);
        let batch = self.outcome.weighted(&self.batch)?;
        loss.loss(&batch, advantage, &mut loss.init()?)
    }
}

pub(crate) fn members(layout: &Layout, group: usize) -> impl Iterator<Item = usize> + Clone + '_ {
    layout.members(group).iter().map(|&one| one as usize)
}

/// Returns the indices of a group's values at a level: one list per response for tokens, a single list for any other level.
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

/// Returns the size of the largest group, but at least 2 and at most 1024.
pub(crate) fn largest_group(batch: &Batch) -> usize {
    let layout = batch.layout();
    let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
    sizes.max().unwrap_or(1).clamp(2, 1024)
}

/// Returns the share of right responses in each group.
pub(crate) fn accuracies(correct: &Computed) -> Vec<f64> {
    let layout = correct.layout();
    let share = |group: usize| {
        let right: f64 = members(layout, group).map(|one| correct.at(one, 0)).sum();
        right / layout.members(group).len().max(1) as f64
    };
    (0..layout.groups()).map(share).collect()
}

/// Formats a share as a percentage, such as `44.6 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Returns a recipe's name, version and settings in one line.
pub fn title(recipe: &Recipe) -> String {
    let (name, version, settings) = (recipe.name(), recipe.version(), recipe.params());
    let title = format!("{name} {version} {settings}");
    title.trim_end().to_string()
}

/// Returns a recipe's name with `k` and the parameters that differ from their defaults, as in `passk k=8`.
pub fn label(recipe: &Recipe) -> String {
    let params = recipe.params().iter();
    // `k` is always shown, because the name Pass@k is incomplete without a value of k.
    let set =
        params.filter(|(parameter, value)| **value != parameter.default || parameter.name == "k");
    let set = set.map(|(parameter, value)| format!(" {}={value}", parameter.name));
    file_stem(recipe.name()) + &*set.collect::<String>()
}

/// Parses recipes with their settings, as in `passk k=4 grpo`: a word with `=` belongs to the recipe before it.
pub fn recipes_of<'w>(words: &[&'w str]) -> Result<Vec<(&'w str, Vec<&'w str>)>> {
    let mut recipes: Vec<(&str, Vec<&str>)> = Vec::new();
    for &word in words {
        let Some((name, _)) = word.split_once('=') else {
            recipes.push((word, Vec::new()));
            continue;
        };
        let Some((recipe, settings)) = recipes.last_mut() else {
            let help = "a setting follows its recipe: `passk k=8`";
            return Err(wrong(format!("`{word}` has no recipe before it"), help));
        };
        pair(word).map_err(Diagnostic::error)?;
        let start = format!("{name}=");
        if let Some(other) = settings.iter().find(|other| other.starts_with(&start)) {
            let message = format!("`{recipe}` is given both `{other}` and `{word}`");
            let twice = format!("`{recipe} {other} {recipe} {word}`");
            let help = format!("for two designs, name the recipe twice: {twice}");
            return Err(wrong(message, help));
        }
        settings.push(word);
    }
    Ok(recipes)
}
