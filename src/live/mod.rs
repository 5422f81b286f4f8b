//! Hot reload: a recipe that follows its file while a run goes on.
//!
//! Events are only hints: the files' content decides. A thread watches the script and all that it imports, checks each new
//! version, and publishes the versions that pass. [`LiveRecipe::step`] takes the newest published version at the beginning of a
//! step, and never waits.
//!
//! A version must pass these checks, in this order and all within [`LiveOptions::deadline`], before a step uses it:
//!
//! 1. it compiles with all its imports, and the lint finds no error;
//! 2. it has the hooks of [`LiveOptions::requires`], and the values that the run sets fit its parameters;
//! 3. `init` works, and `migrate` takes over the run's state;
//! 4. a dry run succeeds on the last batch, with a copy of the state;
//! 5. dry runs succeed on the last batch on which a version failed at a step, and on small degenerate batches that have the
//!    columns and group sizes of the last batch.
//!
//! If the last batch has other rows than the version takes ([`LiveRecipe::rows_are_turns`]), `migrate` and the checks 4 and 5 are
//! left to the step.
//!
//! A failure on the last batch rejects the version. The batches of check 5 may never occur: `k = 4` fails on a group of one, but
//! is right in a run whose groups have 16 responses. So a failure on one of these counts only if the version in use succeeds on
//! the same batch. Such a failure rejects the version if every run meets such a batch (all right, all wrong, or the batch that
//! made a version fail), and is a warning otherwise (groups of one, responses of one token or none). Before the first batch, the
//! run's columns are unknown, and only a script that does not end is rejected.
//!
//! A version that passes is also compared with the version of the last step ([`VersionChange::effect`]).
//!
//! Each version is checked in a thread of its own, which is abandoned if the check does not end. A separate process would be no
//! better: the batch and the state would have to be copied to it at each save, an embedder has no program to start, and a step
//! runs the version in the run's own process anyway, on a batch that no check has seen. The limits of scripts protect the run.
//!
//! The state outlives a reload. A new version's `migrate(old, p)` takes the state over. Without `migrate`, the state stays, and
//! gets the values that only the new `init(p)` has. If a version fails at a step nevertheless, the step falls back to the version
//! before it, with the state that the earlier version left; if the earlier version fails too, to the version before it, and so on
//! for up to eight versions. If all fail, the batch is at fault: the step fails, and everything stays as it was before the step
//! (but a version that takes other rows than the version before it is then no longer used).

mod event;
mod follow;
mod options;
mod trial;
mod version;
mod watch;

pub use event::{LiveEvent, VersionChange};
pub use options::LiveOptions;
pub use version::{Failed, Published};

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Host, Outcome, Recipe, SourceFiles, State};
use follow::Shared;
use version::{InUse, Observed};
use watch::ring;

/// A step of a run: see [`LiveRecipe::step`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveStep {
    /// The advantage, with the metrics, prints and notes of the recipe.
    pub outcome: Outcome,
    /// The version that computed the advantage.
    pub loaded: Arc<Published>,
    /// Events since the last step, in order: new versions, rejected versions, and versions that failed at this step.
    pub events: Vec<LiveEvent>,
}

/// A recipe that follows its file, with its state.
///
/// ```
/// use advlab::{Batch, Host, LiveRecipe};
///
/// let mut live = LiveRecipe::watch(&Host::new(), "grpo", Default::default())?;
/// for step in 0..3 {
///     let rollouts = Batch::builder().groups([0, 0]).response("reward", vec![1.0, 0.0]);
///     let step = live.step(&rollouts.step(step).build()?)?;
///     assert_eq!(step.outcome.advantage.buffer().len(), 2);
///     for event in step.events {
///         println!("{event}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A trainer that runs more than the advantage in a step, such as the recipe's loss on minibatches, calls the two parts of
/// a step: [`LiveRecipe::begin_step`] takes the newest version, and [`LiveRecipe::attempt`] runs a function with it.
/// [`LiveRecipe::numbered`] gives a step number to a batch that has none.
#[derive(Debug)]
pub struct LiveRecipe {
    shared: Arc<Shared>,
    /// The versions of the run, at least one: the last version is in use, and a step falls back to the versions before it.
    versions: Vec<InUse>,
    /// The versions before the current step.
    before: Vec<InUse>,
    next_step: u64,
    /// Whether the rows of the next batch are turns, if the caller chooses rows by the version.
    turns: Option<bool>,
    /// Wakes the thread that follows the files, if the recipe has files.
    bell: Option<SyncSender<Instant>>,
}

impl Drop for LiveRecipe {
    /// Ends the thread, even in the middle of a dry run.
    fn drop(&mut self) {
        self.shared.guard.cancel();
        self.bell.iter().for_each(ring);
    }
}

/// The number of versions to fall back to. One version is too few, because an edit may fail at its first step, and the version
/// before it at a later step.
const FALLBACKS: usize = 8;

/// The result of [`LiveRecipe::attempt`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt<R> {
    /// The result with the first version that succeeded, or the error of the first version if all failed.
    pub result: Result<R, Diagnostics>,
    /// The versions that failed, in order.
    pub failed: Vec<Failed>,
}

impl LiveRecipe {
    /// Loads a recipe, a built-in by its name or a script by its path, and follows its file from here on. A built-in
    /// has no file, and stays as it is. A relative path starts at the current folder.
    ///
    /// # Errors
    /// [`Diagnostics`] if the recipe cannot be loaded, lacks a required hook or does not accept the settings, or if the thread
    /// cannot be started.
    pub fn watch(
        host: &Host,
        recipe: &str,
        options: LiveOptions,
    ) -> Result<LiveRecipe, Diagnostics> {
        let (loaded, files) = host.load_files(&SourceFiles::of(recipe));
        let is_resumed = !options.left.is_empty();
        // A resumed run continues even if its file is invalid or missing.
        let first = match options.left.last() {
            Some((recipe, _)) => recipe.clone(),
            None => loaded?,
        };
        let mut live = LiveRecipe::without_file(host, first, options)?;
        live.bell = live.shared.follow(files, is_resumed)?;
        Ok(live)
    }

    /// Follows a file from here on. Its content is checked before this function returns, as in a resumed run.
    ///
    /// # Errors
    /// [`Diagnostics`] if a file is followed already, or if the thread cannot be started.
    pub fn follow(&mut self, recipe: &str) -> Result<(), Diagnostics> {
        if self.bell.is_some() {
            let message =
                format!("cannot follow {recipe}: this live recipe follows a file already");
            return Err(Diagnostic::error(message).into());
        }
        let (_, files) = self.shared.host.load_files(&SourceFiles::of(recipe));
        self.bell = self.shared.follow(files, true)?;
        Ok(())
    }

    /// A live recipe that follows no file: only [`LiveRecipe::publish`] changes it. A resumed run continues with its own versions
    /// ([`LiveOptions::left`]) instead of `recipe`.
    ///
    /// # Errors
    /// As [`LiveRecipe::watch`].
    pub fn without_file(
        host: &Host,
        recipe: Recipe,
        mut options: LiveOptions,
    ) -> Result<LiveRecipe, Diagnostics> {
        let mut left = std::mem::take(&mut options.left);
        let is_resumed = !left.is_empty();
        if !is_resumed {
            left.push((recipe, State::default()));
        }
        let version = |(recipe, state)| {
            // A version of a resumed run may lack a parameter that the run sets, as any edited version may.
            let recipe = options.fit(recipe, is_resumed)?.on(host);
            let state = if is_resumed { state } else { recipe.init()? };
            let loaded = Arc::new(Published::of(recipe));
            Ok(InUse { loaded, state })
        };
        let versions = left
            .into_iter()
            .map(version)
            .collect::<Result<Vec<InUse>, Diagnostics>>()?;
        let first = versions[versions.len() - 1].loaded.clone();
        Ok(LiveRecipe {
            next_step: options.next_step,
            turns: None,
            shared: Arc::new(Shared::new(host, options, first)),
            before: versions.clone(),
            versions,
            bell: None,
        })
    }

    /// One step of a run: the advantage of a batch, by the newest version that passed its checks. If that version fails, the
    /// earlier versions are tried, the latest first, and the failures are among the events. The batch is kept, so that new
    /// versions are tried on it.
    ///
    /// # Errors
    /// [`Diagnostics`] of the newest version if no version can do the step; everything is as it was before, and the next step
    /// uses the newest version again.
    pub fn step(&mut self, batch: &Batch) -> Result<LiveStep, Diagnostics> {
        let batch = &self.numbered(batch);
        // The error is ignored here because the failure is among the events.
        let _ = self.begin_step();
        let attempt = self.attempt(batch, |recipe, state| recipe.advantage(batch, state));
        Ok(LiveStep {
            outcome: attempt.result?,
            loaded: self.in_use().clone(),
            events: self.events(),
        })
    }

    /// Takes the newest version for the step that begins now, and migrates the state if another version did the last step.
    ///
    /// # Errors
    /// [`Failed`] if `migrate` fails on the state; the previous version stays in use, and the failure is reported.
    pub fn begin_step(&mut self) -> Result<(), Failed> {
        self.before = self.versions.clone();
        let (loaded, last) = (self.newest(), self.versions.len() - 1);
        let in_use = &mut self.versions[last];
        if loaded.version() == in_use.loaded.version() {
            in_use.loaded = loaded;
            return Ok(());
        }
        // `migrate` runs under the same limits as the check, so that a `migrate` that never ends does not hold up the run.
        let guard = self.shared.options.guard(&self.shared.host);
        let host = self.shared.host.clone().with_guard(guard);
        match loaded.recipe.on(&host).migrate(&in_use.state) {
            Ok(state) => {
                // If an edit is undone, a version comes back that is among the fallbacks already.
                let (fallbacks, version) = (&mut self.versions, loaded.version());
                fallbacks.retain(|one| one.loaded.version() != version);
                fallbacks.drain(..fallbacks.len().saturating_sub(FALLBACKS));
                fallbacks.push(InUse { loaded, state });
                Ok(())
            }
            Err(error) => {
                let failed = Failed {
                    loaded,
                    error,
                    back_to: Some(in_use.loaded.clone()),
                };
                self.shared.withdraw(&failed, false);
                Err(failed)
            }
        }
    }

    /// Runs a function with a version and a copy of its state, which is kept if the function succeeds. If the function fails,
    /// it is run with each fallback version in turn. The first version that succeeds stays in use until a new version is
    /// published. If all fail, the batch is at fault: everything is as it was before the step, and the next step uses the
    /// newest version again.
    ///
    /// If the rows of the batch are not those of a version ([`LiveRecipe::rows_are_turns`]), the versions tried before it are
    /// reported, that version is in use, and the result is an error: the caller repeats the step with the rows of that version.
    ///
    /// New versions are tried on the batch, which has the columns that the hooks see and is not copied. The next step has the
    /// number after the batch's, unless all versions fail.
    pub fn attempt<R>(
        &mut self,
        batch: &Batch,
        mut run: impl FnMut(&Recipe, &mut State) -> Result<R, Diagnostics>,
    ) -> Attempt<R> {
        let mut failed: Vec<Failed> = Vec::new();
        for last in (0..self.versions.len()).rev() {
            self.versions.truncate(last + 1);
            let takes_turns = self.last().loaded.recipe.takes_turns();
            if self.turns.is_some_and(|turns| turns != takes_turns) {
                for one in &failed {
                    self.shared.withdraw(one, true);
                }
                let other = || Diagnostic::error("the version in use takes other rows").into();
                let error = failed.first().map_or_else(other, |one| one.error.clone());
                let result = Err(error);
                return Attempt { result, failed };
            }
            self.observe(batch);
            let InUse { loaded, mut state } = self.versions[last].clone();
            let error = match run(&loaded.recipe, &mut state) {
                Ok(done) => {
                    self.versions[last].state = state;
                    self.next_step = batch.step().saturating_add(1);
                    for one in &failed {
                        self.shared.withdraw(one, true);
                    }
                    let result = Ok(done);
                    return Attempt { result, failed };
                }
                Err(error) => error,
            };
            let before = self.versions[..last].last();
            failed.push(Failed {
                loaded,
                error,
                back_to: before.map(|before| before.loaded.clone()),
            });
        }
        // A switch to a new version is undone as well, because a checkpoint written now does not contain it. The next step makes
        // the switch again.
        self.versions = self.before.clone();
        self.observe(batch);
        self.next_step = batch.step();
        let result = Err(failed[0].error.clone());
        Attempt { result, failed }
    }

    /// Says that the caller gives a version a row for each turn if it takes turns ([`Recipe::takes_turns`]), or else a row for each
    /// trajectory, and which of these the rows of the next batch are; `None` if rows do not depend on the version. A version with
    /// other rows than the last batch is not tried on that batch.
    pub fn rows_are_turns(&mut self, turns: Option<bool>) {
        self.turns = turns;
        self.shared.ledger().rows_follow = turns.is_some();
    }

    /// The batch, with the number of the next step if the batch has no step.
    pub fn numbered(&self, batch: &Batch) -> Batch {
        let step = batch.given_step().unwrap_or(self.next_step);
        batch.clone().at_step(step)
    }

    /// The number of the next step, for a batch that has no number: one more than the number of the last step that was done. A
    /// checkpoint keeps this number with [`LiveRecipe::state`], and [`LiveOptions::next_step`] restores it.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Gives a batch on which new versions are tried; [`LiveRecipe::attempt`] gives the batch of its step. The batch is not
    /// copied.
    pub fn observe(&self, batch: &Batch) {
        let (batch, in_use) = (batch.clone(), self.last().clone());
        self.shared.ledger().last = Some(Arc::new(Observed { batch, in_use }));
    }

    /// The recipe's state after the last step: what a checkpoint keeps, with the version of [`LiveRecipe::in_use`] and
    /// with [`LiveRecipe::fallbacks`].
    pub fn state(&self) -> &State {
        &self.last().state
    }

    /// Sets the state of the version in use to the state that its hooks left.
    pub fn set_state(&mut self, state: State) {
        let last = self.versions.len() - 1;
        self.versions[last].state = state;
    }

    /// The versions that [`LiveRecipe::attempt`] can fall back to, with the states that they left. The last of them is tried
    /// first.
    pub fn fallbacks(&self) -> impl Iterator<Item = (&Arc<Published>, &State)> {
        let fallbacks = &self.versions[..self.versions.len() - 1];
        fallbacks.iter().map(|one| (&one.loaded, &one.state))
    }

    fn last(&self) -> &InUse {
        &self.versions[self.versions.len() - 1]
    }

    /// The version of the last step; before the first step, the version to start with.
    pub fn in_use(&self) -> &Arc<Published> {
        &self.last().loaded
    }

    /// The newest version that passed its checks: the next step uses it.
    pub fn newest(&self) -> Arc<Published> {
        self.shared.current()
    }

    /// Reads the file now, without waiting for an event, and returns when its content is published or rejected; `false` if that
    /// takes longer than `time`.
    pub fn refresh(&self, time: Duration) -> bool {
        let Some(bell) = &self.bell else {
            return true;
        };
        let (sender, done) = sync_channel(1);
        self.shared.ledger().waiting.push(sender);
        ring(bell);
        done.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    /// The difference between the versions of two steps: other versions may have been published between the two.
    pub fn change(&self, from: &Published, to: &Published) -> VersionChange {
        let settings = &self.shared.options.settings;
        VersionChange::between(from, to, settings)
    }

    /// The events since the last call, in order. Each event is returned only once, here or by [`LiveRecipe::step`].
    pub fn events(&self) -> Vec<LiveEvent> {
        self.shared.ledger().events.drain(..).collect()
    }

    /// Publishes a version after checking only its hooks and parameters.
    ///
    /// # Errors
    /// [`Diagnostics`] if the recipe lacks a required hook, or does not accept the settings.
    pub fn publish(&self, recipe: Recipe) -> Result<(), Diagnostics> {
        let recipe = self.shared.options.fit(recipe, true)?.on(&self.shared.host);
        let loaded = Published::of(recipe);
        while !(self.shared).publish(&self.newest(), loaded.clone(), Vec::new()) {}
        Ok(())
    }
}
