//! The data shared by the calls of a recipe: its state, the version in use, its events and its folder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use advlab::batch::Computed;
use advlab::live::{LiveEvent, LiveOptions, Published};
use advlab::native::{Mode, Native};
use advlab::script::{Hook, Host, Outcome, Recipe, State};
use advlab::{Batch, Diagnostic, Diagnostics, LiveRecipe};
use advlab_train::TrainerRun;
use pyo3::prelude::*;

use crate::error::{in_python, raise};

/// The names of parameters to set, and their values as `--set` takes them.
pub type Settings = Vec<(String, String)>;

/// The version that a step used, its serial number, and whether the step began with another version.
pub type Used = (String, u64, bool);

/// The outcome of a step, and the targets of a critic.
pub type StepResult = (Outcome, Option<Computed>);

/// The options for following a file: the keywords of `advlab.watch`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Follow {
    kept_tokens: usize,
    folder: Option<PathBuf>,
    keep_batches: usize,
    refuses: BTreeMap<String, String>,
    lacks: BTreeMap<String, String>,
    gives: Vec<String>,
    of_returns: Vec<String>,
}

/// The data shared by calls on all threads.
pub struct Held {
    pub live: LiveRecipe,
    /// The options for following the file.
    pub options: LiveOptions,
    /// The maximum number of tokens of the last batch that are kept, to try new versions on them.
    kept_tokens: usize,
    /// The serial number with which a resumed run began, from which its new versions are counted.
    pub first_serial: u64,
    pub record: Option<TrainerRun>,
    /// False from a reported failure to write to the folder until a step is written again.
    is_recorded: bool,
    /// The events that the caller has not fetched yet.
    pub events: Vec<EventFields>,
}

/// An event of the recipe's file or of the folder, as the fields of Python's `LiveEvent`.
pub type EventFields = (&'static str, String, Option<String>, Option<PyErr>, bool);

impl Held {
    fn new(live: LiveRecipe) -> Held {
        Held {
            live,
            options: LiveOptions::default(),
            kept_tokens: 0,
            first_serial: 0,
            record: None,
            is_recorded: true,
            events: Vec::new(),
        }
    }

    /// Opens a recipe that follows no file: a built-in by name, a script by path or, if given, the version made of `sources`.
    pub fn load(
        name: &str,
        settings: &Settings,
        sources: Option<BTreeMap<String, String>>,
    ) -> Result<Held, Diagnostics> {
        let host = host();
        let mut recipe = match sources {
            Some(sources) => restore(&host, name, &sources)?,
            None => host.load(name)?,
        };
        for (parameter, value) in settings {
            recipe.set_text(parameter, value)?;
        }
        let live = LiveRecipe::without_file(&host, recipe, LiveOptions::default())?;
        Ok(Held::new(live))
    }

    /// Opens a recipe that follows its file.
    pub fn watch(name: &str, settings: Settings, follow: Follow) -> Result<Held, Diagnostics> {
        let refused = |hook: Hook| Some((hook, follow.refuses.get(hook.name())?.clone()));
        let options = LiveOptions {
            settings,
            refuses: Hook::ALL.into_iter().filter_map(refused).collect(),
            lacks: follow.lacks,
            gives: follow.gives,
            set_with_returns: follow.of_returns,
            ..LiveOptions::default()
        };
        let mut held = Held::new(LiveRecipe::watch(&host(), name, options.clone())?);
        if let Some(folder) = follow.folder {
            let record =
                TrainerRun::open(&folder, &held.live, &options.settings, follow.keep_batches);
            held.record = Some(record?);
        }
        held.options = options;
        held.kept_tokens = follow.kept_tokens;
        Ok(held)
    }

    /// Returns a version's index in the order of publication, counted over all processes of the run.
    pub fn serial(&self, loaded: &Published) -> u64 {
        self.first_serial + loaded.serial()
    }

    /// Returns the version in use after a step; `before` is the serial number of the version with which the step began.
    pub fn used(&self, before: u64) -> Used {
        let used = self.live.in_use();
        let serial = self.serial(used);
        let version = used.version().as_str().to_string();
        (version, serial, serial != before)
    }

    /// Runs a computation with the version in use and its state, and keeps the changed state if the computation succeeds.
    pub fn update<R>(
        &mut self,
        compute: impl FnOnce(&Recipe, &mut State) -> Result<R, Diagnostics>,
    ) -> Result<R, Diagnostics> {
        let mut state = self.live.state().clone();
        let done = compute(self.live.in_use().recipe(), &mut state)?;
        self.live.set_state(state);
        Ok(done)
    }

    /// Runs a step of a recipe that follows its file, and writes the step to the folder if there is one. `turns` is passed on to
    /// [`LiveRecipe::rows_are_turns`]; [`LiveRecipe::is_repeated`] then says whether to repeat the step.
    pub fn step(
        &mut self,
        batch: &Batch,
        given_step: Option<u64>,
        turns: Option<bool>,
    ) -> Result<StepResult, Diagnostics> {
        // If weights are refused, no version has the hook `weight`, but the batch may have the column.
        let mut refuses = self.options.refuses.iter();
        let weight = refuses.find(|(hook, _)| *hook == Hook::Weight);
        if let Some((_, why)) = weight.filter(|_| batch.has("weight")) {
            let message = format!("the batch has the column `weight`: {why}");
            return Err(Diagnostic::error(message).into());
        }
        if let Some(record) = &self.record {
            record.check(given_step)?;
        }
        self.live.rows_are_turns(turns);
        // The error is ignored, because a failure of the newest version is among the events.
        let _ = self.live.begin_step();
        let numbered = &self.live.numbered(batch);
        let mut set_aside = None;
        self.record(|record, _| {
            set_aside = record.begin(given_step)?;
            Ok(())
        });
        let set_aside = set_aside.map(|line| ("folder", line, None, None, false));
        self.events.extend(set_aside);
        self.hear();
        let tried_on = first_groups(numbered, self.kept_tokens);
        let attempt = self.live.attempt(&tried_on, |recipe, state| {
            let before = state.clone();
            Ok((before, compute(recipe, numbered, state)?))
        });
        for failed in &attempt.failed {
            self.record(|record, _| record.failed(failed, numbered));
        }
        let (before, step) = attempt.result?;
        self.is_recorded |=
            self.record(|record, live| record.step(live, numbered, &before, &step.0));
        Ok(step)
    }

    /// Writes to the folder, if there is one, and returns false if that fails. The run then continues without the row. The
    /// failure becomes an event; further failures do not, until a step is written again.
    fn record(
        &mut self,
        write: impl FnOnce(&mut TrainerRun, &LiveRecipe) -> Result<(), Diagnostics>,
    ) -> bool {
        let Some(record) = &mut self.record else {
            return true;
        };
        let Err(error) = write(record, &self.live) else {
            return true;
        };
        if std::mem::take(&mut self.is_recorded) {
            let (folder, why) = (record.path().display(), &error[0].message);
            let line = format!("{folder} lacks this step, but the run continues: {why}");
            let event = ("folder", line, None, Some(raise(error)), false);
            self.events.push(event);
        }
        false
    }

    /// Takes the events of the file, writes them to the folder, and keeps them for the caller.
    pub fn hear(&mut self) {
        for event in self.live.events() {
            self.record(|record, _| record.changed(&event));
            self.events.push(of_file(event));
        }
    }
}

fn of_file(event: LiveEvent) -> EventFields {
    let line = in_python(&event.to_string());
    let (kind, version, error, at_step) = match event {
        LiveEvent::Published(change) => ("published", Some(change.to), None, false),
        LiveEvent::Rejected {
            version,
            error,
            at_step,
            ..
        } => ("rejected", Some(version), Some(raise(error)), at_step),
        LiveEvent::Missing { .. } => ("missing", None, None, false),
        LiveEvent::Reverted { version } => ("reverted", Some(version), None, false),
        LiveEvent::Warned { version, .. } => ("warned", Some(version), None, false),
        LiveEvent::PollingOnly { .. } => ("polling_only", None, None, false),
    };
    let version = version.map(|version| version.as_str().to_string());
    (kind, line, version, error, at_step)
}

/// Computes the advantage and, if the recipe has the hook `returns`, the targets of a critic, from the state before the step.
pub fn compute(
    recipe: &Recipe,
    batch: &Batch,
    state: &mut State,
) -> Result<StepResult, Diagnostics> {
    let recipe = recipe.for_step();
    let before = recipe.has(Hook::Returns).then(|| state.clone());
    let outcome = recipe.advantage(batch, state)?;
    let returns = before.map(|before| recipe.returns(batch, &before));
    Ok((outcome, returns.transpose()?.flatten()))
}

/// Makes a host with its own kernels, so that a lock that a thread of the parent held at a fork affects only one recipe.
pub fn host() -> Host {
    let host = Host::new().with_padded_results();
    host.with_native(&Native::new(Mode::Auto))
}

/// Compiles the version made of `sources`; `name` is the name of its main script.
pub fn restore(
    host: &Host,
    name: &str,
    sources: &BTreeMap<String, String>,
) -> Result<Recipe, Diagnostics> {
    let sources = sources.iter();
    host.restore(name, sources.map(|(name, text)| (&**name, &**text)))
}

/// Returns a copy of the first groups of a batch: at most `tokens` tokens, but at least two groups. New versions are tried on
/// this copy, so that the trainer's own memory is free after the call.
fn first_groups(batch: &Batch, tokens: usize) -> Batch {
    let layout = batch.layout();
    let (mut taken, mut left) = (Vec::new(), tokens);
    for group in 0..layout.groups() {
        let members = layout.members(group).iter().map(|&one| one as usize);
        let sizes = members.clone().map(|one| layout.tokens_of(one).len());
        let size: usize = sizes.sum();
        if group > 1 && size > left {
            break;
        }
        left = left.saturating_sub(size.max(1));
        taken.extend(members);
    }
    taken.sort_unstable();
    batch.select(&taken)
}
