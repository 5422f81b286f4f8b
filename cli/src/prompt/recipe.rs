//! The recipe in use: a loaded one, a run's, a watched one, or what was typed; and the commands that name, set and show it.

use std::path::Path;

use super::command::Arguments;
use super::{Answered, Session, lock, show};
use crate::doc;
use crate::report::study::{recipes_of, with_advantage};
use crate::wrong;
use advlab::Batch;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::figures::{time, value};
use advlab::paint::{cut, laid_out, wrapped};
use advlab::script::{Computed, Hook, Loss, Outcome, Recipe, State, Summary};
use advlab::session::is_typed;
use advlab_train::RunFolder;

/// A recipe's name, version and settings in one line.
pub(super) fn title(recipe: &Recipe) -> String {
    let (name, version, settings) = (recipe.name(), recipe.version(), recipe.params());
    let title = format!("{name} {version} {settings}");
    title.trim_end().to_string()
}

/// Sets a parameter, as in `k=8`.
pub(super) fn assign(recipe: &mut Recipe, setting: &str) -> Result<(), Diagnostics> {
    let Some((name, text)) = setting.split_once('=') else {
        let message = format!("`{setting}` is not of the form name=value, such as k=8");
        return Err(Diagnostic::error(message).into());
    };
    Ok(recipe.set_text(name.trim(), text.trim())?)
}

impl Session {
    /// Makes a recipe the one in use, as `:recipe` does.
    pub fn use_recipe(&mut self, recipe: Recipe) {
        self.script.use_recipe(Some(recipe));
        self.lacks_function = false;
    }

    /// The recipe in use; without one, what was typed: its last value per response or token is the advantage.
    pub(super) fn recipe(&self) -> Result<Recipe, Diagnostics> {
        if let Some(recipe) = self.script.recipe() {
            return Ok(recipe.clone());
        }
        if self.script.inputs().has_advantage() {
            return self.script.typed_recipe();
        }
        let help =
            "`:recipe grpo` loads one; a formula with a value per response or token counts too";
        Err(wrong("no recipe is loaded", help))
    }

    /// The recipe that words name, with its settings, `passk k=4`; the one in use if there are no words.
    pub(super) fn recipe_of(&self, words: &str) -> Result<Recipe, Diagnostics> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.split_first() {
            Some((name, settings)) => self.named(name, settings),
            None => self.recipe(),
        }
    }

    /// The recipes that words name, each followed by its settings, `passk k=2 grpo`; the one in use if there are no words.
    pub(super) fn recipes(&self, words: &str) -> Result<Vec<Recipe>, Diagnostics> {
        let words: Vec<&str> = words.split_whitespace().collect();
        if words.is_empty() {
            return Ok(vec![self.recipe()?]);
        }
        let named = recipes_of(&words)?.into_iter();
        named
            .map(|(name, settings)| self.named(name, &settings))
            .collect()
    }

    /// A recipe by its name: a built-in, a script's path, a version of the batch's run, `8cdb4e`, or a run's folder for the
    /// last version that it used.
    fn named(&self, name: &str, settings: &[&str]) -> Result<Recipe, Diagnostics> {
        let host = self.script.host();
        let is_version = name.len() >= 4 && name.chars().all(|c| c.is_ascii_hexdigit());
        let of_run = self.data.run.as_ref().filter(|_| is_version);
        let version = of_run
            .map(|(run, _)| run.recipe_named(host, name))
            .transpose()?;
        let mut recipe = match version.flatten() {
            Some(recipe) => recipe,
            None if Path::new(name).is_dir() => {
                let run = RunFolder::open(Path::new(name))?;
                run.recipe_at(host, run.last().0)?
            }
            None => host.load(name)?,
        };
        settings
            .iter()
            .try_for_each(|setting| assign(&mut recipe, setting))?;
        Ok(recipe)
    }

    /// Runs a recipe on the batch, from the state that `init` makes.
    pub(super) fn try_recipe(&self, recipe: &Recipe) -> Result<(Outcome, State), Diagnostics> {
        self.script.guard().rearm();
        let mut state = recipe.init()?;
        let (batch, _) = with_advantage(recipe, &self.data.batch)?;
        let outcome = recipe.advantage(&batch, &mut state)?;
        Ok((outcome, state))
    }

    /// The loss of an outcome: the recipe's own, or else that of the run or the default one.
    pub(super) fn loss(
        &self,
        recipe: &Recipe,
        outcome: &Outcome,
        batch: &Batch,
    ) -> Result<Loss, Diagnostics> {
        let other = match recipe.has(Hook::Loss) {
            true => None,
            false => Some(self.script.host().loss()?),
        };
        let loss = other.as_ref().unwrap_or(recipe);
        // A recipe with only a loss has the equivalent advantage: the loss itself reads the batch's column.
        let advantage = recipe.has(Hook::Advantage).then_some(&outcome.advantage);
        loss.loss(&outcome.weighted(batch), advantage, &mut loss.init()?)
    }

    /// Uses the newest version of a watched script, if the recipe in use is that script.
    pub(super) fn take_up_version(&mut self) {
        let newest = lock(&self.watched).as_ref().map(|one| one.last.clone());
        let Some(mut newest) = newest else { return };
        let in_use = self.script.recipe();
        let older =
            in_use.filter(|own| own.name() == newest.name() && own.version() != newest.version());
        if let Some(older) = older {
            newest.keep_settings(older);
            self.script.use_recipe(Some(newest));
        }
    }

    /// Makes what was typed the recipe in use if the input defined a hook, or a function of the typed recipe. Says so if that
    /// is news.
    pub(super) fn take_up_functions(&mut self, functions: &[String]) -> Option<String> {
        let was_typed = self.script.recipe().is_some_and(is_typed);
        let is_hook = |name: &String| Hook::ALL.iter().any(|hook| hook.name() == name);
        let has_hook = functions.iter().any(is_hook);
        let is_part = !functions.is_empty() && (has_hook || was_typed || self.lacks_function);
        if !is_part || !self.script.inputs().has_hook() {
            return None;
        }
        match self.script.typed_recipe() {
            Ok(recipe) => {
                self.use_recipe(recipe);
                let news = "what you typed is the recipe now: advantage(), loss(), :run, :curve";
                (!was_typed).then(|| self.paint.dim(news))
            }
            Err(error) => {
                let is_known = std::mem::replace(&mut self.lacks_function, true) && !has_hook;
                let error = error.render_within(self.paint);
                (!is_known).then(|| format!("not the recipe yet:\n{}", error.trim_end()))
            }
        }
    }
}

pub(super) fn load(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    if !arguments.text.is_empty() {
        // It is loaded even if it cannot run on this batch: the batch may be what has to change.
        session.use_recipe(recipe.clone());
    }
    let next = "advantage() and loss() are its hooks here, p its parameters; :run sums up";
    let next = session.paint.dim(&wrapped("", next, session.paint.width));
    Ok(format!("{}\n\n{next}", doc::recipe(&recipe, session.paint)))
}

pub(super) fn params(session: &mut Session, _: &Arguments<'_>) -> Answered {
    let recipe = session.recipe()?;
    match recipe.params().iter().len() {
        0 => Ok(format!("{} has no parameters", recipe.name())),
        _ => Ok(doc::parameters(&recipe, session.paint)),
    }
}

pub(super) fn set(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    // `k = 8` is as clear as `k=8`.
    let parts: Vec<&str> = arguments.text.split('=').map(str::trim).collect();
    if let ["step", step] = parts[..] {
        let wrong = |_| Diagnostic::error(format!("`{step}` is not the number of a step"));
        session.set_step(step.parse().map_err(wrong)?);
        return Ok(format!("batch.step is {step}"));
    }
    let mut recipe = session.recipe()?;
    for setting in parts.join("=").split_whitespace() {
        assign(&mut recipe, setting)?;
    }
    if let Some(watched) = lock(&session.watched).as_mut()
        && watched.last.name() == recipe.name()
    {
        watched.last = recipe.clone();
    }
    session.script.use_recipe(Some(recipe.clone()));
    Ok(title(&recipe))
}

pub(super) fn run(session: &mut Session, arguments: &Arguments<'_>) -> Answered {
    let recipe = session.recipe_of(arguments.text)?;
    let paint = session.paint;
    let (outcome, state) = session.try_recipe(&recipe)?;
    let (batch, note) = with_advantage(&recipe, &session.data.batch)?;
    let mut lines = outcome.prints.clone();
    lines.extend(
        note.iter()
            .chain(&outcome.notes)
            .map(|note| session.note(note)),
    );
    lines.push(paint.bold(&wrapped("", &title(&recipe), paint.width)));
    let mut row = |name: &str, text: &str| {
        lines.push(laid_out(&format!("  {name:<11} "), text, paint.width));
    };
    let spread = |computed: &Computed| {
        let values: Vec<f64> = computed.buffer().iter().collect();
        show::spread(&values)
    };
    if let Some(reward) = &outcome.reward {
        row(
            "reward",
            &format!("{}   per {}", spread(reward), reward.level()),
        );
    }
    for (name, text) in Summary::of(&outcome).rows() {
        row(name, &text);
    }
    match session.loss(&recipe, &outcome, &batch) {
        Ok(loss) => {
            let whose = ["default", "of the run"][usize::from(session.data.loss.is_some())];
            let other = match recipe.has(Hook::Loss) {
                true => String::new(),
                false => format!("   ({whose}: {})", session.script.host().loss()?.name()),
            };
            row("loss", &format!("{}{other}", value(loss.value)));
            row("dloss/dlogp", &spread(&loss.gradient));
        }
        Err(error) => row("loss", &format!("none: {}", error[0].message)),
    }
    for (name, number) in &outcome.metrics {
        row("metric", &format!("{name} {}", value(*number)));
    }
    if recipe.has(Hook::Init) && state != State::default() {
        row(
            "state",
            &cut(&state.to_string(), paint.width.saturating_sub(15)),
        );
    }
    row("time", &time(outcome.time));
    Ok(lines.join("\n"))
}
