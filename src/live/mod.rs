//! Hot reload: a recipe that follows its file during a run.
//!
//! A thread watches the script and all its imports, checks each new version, and publishes the versions that pass. File events
//! only tell the thread when to read the files; their content decides whether there is a new version. [`LiveRecipe::step`] begins
//! with the version that was published last, unless an earlier step fell back from it, and does not wait for a check.
//!
//! Before a step uses a version that was saved during the run, the version must pass these checks, in this order, within
//! [`LiveOptions::deadline`] in total:
//!
//! 1. the version compiles with all its imports, and the lint finds no error;
//! 2. it has the hooks of [`LiveOptions::requires`] and none of [`LiveOptions::refuses`], the values that the run sets fit its
//!    parameters, and it does not need a column of [`LiveOptions::lacks`];
//! 3. `init` succeeds, and, after the first batch, `migrate` converts the run's state;
//! 4. a dry run succeeds on the last batch, with a copy of the state;
//! 5. dry runs succeed on the last batch on which a version failed at a step, and on small degenerate batches with the columns
//!    and group sizes of the last batch.
//!
//! A dry run is skipped if the rows of its batch are not of the kind that the version takes ([`LiveRecipe::rows_are_turns`]).
//!
//! A failure on the last batch rejects the version. The degenerate batches may never occur in the run: `k = 4` fails on a group
//! of one, but is correct if all groups have 16 responses. So a failure in check 5 counts only if the version in use succeeds on
//! the same batch or takes rows of another kind, or if the time is used up. A failure that counts rejects the version if such
//! batches are common (all right or all wrong), if a version failed on this batch at a step, or if the time is used up. Otherwise
//! (groups of one, one group, responses of one token or none), it is only a warning. Before the first batch, the run's columns
//! are unknown, so the dry run rejects only a script that exceeds the time limit.
//!
//! A version that passes is then compared with the version of the last step ([`VersionChange::effect`]).
//!
//! Each version is checked in a separate thread, which is abandoned if the check does not end. A separate process would be no
//! better: the batch and the state would have to be copied to it at each save, an embedder has no program to start, and a step
//! runs the version in the run's own process anyway, on a batch that no check has seen. The limits of scripts protect the run.
//!
//! The state outlives a reload: a new version's `migrate(old, p)` converts it. Without `migrate`, the state is kept, and the
//! values that only the new `init(p)` has are added. If a version fails at a step although it passed its checks, the step falls
//! back to the previous version, with the state after that version's last step. If this version fails too, the step falls back to
//! the version before it, and so on, for up to eight versions. If all versions fail, the batch is taken to be at fault: the step
//! fails, and the versions and states stay as they were before the step. If an earlier version takes rows of another kind than
//! the failed version, the caller repeats the step with rows of that kind.

mod change;
mod event;
mod follow;
mod options;
mod shared;
mod trial;
mod version;
mod watch;

pub use change::VersionChange;
pub use event::LiveEvent;
pub use options::LiveOptions;
pub use version::{Failed, Published};

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::script::{Host, Outcome, Recipe, SourceFiles, State};
use shared::Shared;
use trial::refuse_lacking;
use version::{InUse, Observed};
use watch::ring;

/// The result of a step: see [`LiveRecipe::step`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveStep {
    /// The advantage, with the metrics, prints and notes of the recipe.
    pub outcome: Outcome,
    /// The version that computed the advantage.
    pub loaded: Arc<Published>,
    /// The events since the last step or call of [`LiveRecipe::events`], in order, such as new versions, rejected versions, and
    /// versions that failed at this step.
    pub events: Vec<LiveEvent>,
}

/// A recipe that follows its file, with the recipe's state.
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
/// A trainer that computes more than the advantage in a step, such as the recipe's loss on minibatches, calls the two parts of a
/// step itself: [`LiveRecipe::begin_step`] takes the newest version, and [`LiveRecipe::attempt`] runs a function with it.
/// [`LiveRecipe::numbered`] gives a step number to a batch that has none.
#[derive(Debug)]
pub struct LiveRecipe {
    shared: Arc<Shared>,
    /// The versions of the run, at least one. The last version is in use; a step falls back to the versions before it.
    versions: Vec<InUse>,
    /// The value of `versions` before the current step.
    before: Vec<InUse>,
    next_step: u64,
    /// Whether the rows of the next batch are turns; `None` if rows do not depend on the version.
    turns: Option<bool>,
    /// The versions that have failed at the current step, if the step must be repeated with other rows.
    repeated: Option<Vec<Failed>>,
    /// The sender that wakes the thread that follows the files; `None` if no file is followed.
    bell: Option<SyncSender<Instant>>,
}

impl Drop for LiveRecipe {
    /// Ends the thread, even in the middle of a dry run.
    fn drop(&mut self) {
        self.shared.guard.cancel();
        self.bell.iter().for_each(ring);
    }
}

/// The maximum number of versions to fall back to. One version is too few, because the newest version and the version before it
/// may fail at the same step.
const FALLBACKS: usize = 8;

/// The result of [`LiveRecipe::attempt`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt<R> {
    /// The result of the first version that succeeded or, if all failed, the error of the version that was tried first. If the
    /// step is a repetition, that version may belong to an earlier attempt. If the step must be repeated
    /// ([`LiveRecipe::is_repeated`]), the result is an error that says so.
    pub result: Result<R, Diagnostics>,
    /// The versions that failed on this batch, in the order in which they were tried.
    pub failed: Vec<Failed>,
}

impl LiveRecipe {
    /// Loads a recipe (a built-in by its name, or a script by its path), and follows its file from now on. A built-in has no
    /// file, and does not change. A relative path is resolved against the current folder.
    ///
    /// # Errors
    /// [`Diagnostics`] if the recipe cannot be loaded (except in a resumed run), does not fit the options, or has an `init` that
    /// fails, or if the thread cannot be started.
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

    /// Follows a recipe's file from now on. The content of the file is checked before this function returns, as in a resumed run.
    ///
    /// # Errors
    /// [`Diagnostics`] if this live recipe already follows a file, or if the thread cannot be started.
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

    /// Makes a live recipe that follows no file: new versions come only from [`LiveRecipe::publish`]. A resumed run continues
    /// with its own versions ([`LiveOptions::left`]) instead of `recipe`.
    ///
    /// # Errors
    /// [`Diagnostics`] as for [`LiveRecipe::watch`].
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
            // Like any edited version, a version of a resumed run may lack a parameter that the run sets.
            let recipe = options.fit(recipe, is_resumed)?.on(host);
            if !is_resumed {
                let host = host.clone().with_guard(options.guard(host));
                refuse_lacking(&recipe.on(&host), &options)?;
            }
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
            repeated: None,
            shared: Arc::new(Shared::new(host, options, first)),
            before: versions.clone(),
            versions,
            bell: None,
        })
    }

    /// Runs a step: computes the advantage of a batch with the version that [`LiveRecipe::newest`] returns. If this version
    /// fails, the earlier versions are tried, the latest first, and the failures are among the events. The batch is kept, because
    /// new versions are tried on it.
    ///
    /// # Errors
    /// [`Diagnostics`] of the version that was tried first, if all versions fail. In this case, the versions and states stay as
    /// they were before the step. Also an error if the step must be repeated ([`LiveRecipe::is_repeated`]).
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

    /// Begins a step: takes the version that [`LiveRecipe::newest`] returns, and migrates the state if the last step used another
    /// version.
    ///
    /// # Errors
    /// [`Failed`] if `migrate` fails on the state. The previous version then stays in use, and an event reports the failure.
    pub fn begin_step(&mut self) -> Result<(), Failed> {
        if self.repeated.is_none() {
            self.before = self.versions.clone();
        }
        let (loaded, last) = (self.newest(), self.versions.len() - 1);
        let in_use = &mut self.versions[last];
        if loaded.version() == in_use.loaded.version() {
            in_use.loaded = loaded;
            return Ok(());
        }
        // `migrate` has the time limit of the checks, so that a `migrate` that does not terminate does not stop the run.
        let guard = self.shared.options.guard(&self.shared.host);
        let host = self.shared.host.clone().with_guard(guard);
        match loaded.recipe.on(&host).migrate(&in_use.state) {
            Ok(state) => {
                // If the user has undone an edit, the version may be among the fallbacks already.
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
                    at: None,
                };
                self.shared.withdraw(&failed);
                Err(failed)
            }
        }
    }

    /// Runs a function with the version in use and a copy of its state, which becomes the version's state if the function
    /// succeeds. If the function fails, it is run with each fallback version in turn. The first version that succeeds stays in
    /// use until a new version is published. If all fail, the batch is taken to be at fault: the versions and states are as they
    /// were before the step, and the next step tries the same version first, unless a newer version has been published.
    ///
    /// If a version takes rows of another kind than the batch has ([`LiveRecipe::rows_are_turns`]), it becomes the version in
    /// use, the result is an error, and [`LiveRecipe::is_repeated`] is true: the caller must repeat the step, beginning with
    /// [`LiveRecipe::begin_step`], with rows for the version that [`LiveRecipe::newest`] returns.
    ///
    /// Later versions are tried on the batch, which must have all columns that the hooks read, and is not copied. If a version
    /// succeeds, the number of the next step is one more than the step number of the batch.
    pub fn attempt<R>(
        &mut self,
        batch: &Batch,
        mut run: impl FnMut(&Recipe, &mut State) -> Result<R, Diagnostics>,
    ) -> Attempt<R> {
        let repeated = self.repeated.take().unwrap_or_default();
        let mut failed: Vec<Failed> = Vec::new();
        for last in (0..self.versions.len()).rev() {
            self.versions.truncate(last + 1);
            let takes_turns = self.last().loaded.recipe.takes_turns();
            if self.turns.is_some_and(|turns| turns != takes_turns) {
                self.repeated = Some([repeated, failed.clone()].concat());
                let message = "the version in use takes different rows (turns instead of trajectories, or the reverse)";
                let result = Err(Diagnostic::error(message).into());
                return Attempt { result, failed };
            }
            self.observe(batch);
            let InUse { loaded, mut state } = self.versions[last].clone();
            let error = match run(&loaded.recipe, &mut state) {
                Ok(done) => {
                    self.versions[last].state = state;
                    self.next_step = batch.step().saturating_add(1);
                    for one in repeated.iter().chain(&failed) {
                        self.shared.withdraw(one);
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
                at: self.shared.ledger().last.clone(),
            });
        }
        // A switch to a new version is undone as well, because a checkpoint that is written now must not contain the new version.
        // The next step switches to it again.
        self.versions = self.before.clone();
        self.observe(batch);
        self.next_step = batch.step();
        let first = repeated.first().unwrap_or(&failed[0]);
        let result = Err(first.error.clone());
        Attempt { result, failed }
    }

    /// Sets whether the rows of the next batch are turns, for a caller that gives a version one row per turn if it takes turns
    /// ([`Recipe::takes_turns`]), and one row per trajectory otherwise; `None` if rows do not depend on the version. A version is
    /// not tried on the last batch if it takes rows of another kind.
    pub fn rows_are_turns(&mut self, turns: Option<bool>) {
        self.turns = turns;
    }

    /// Returns whether the last [`LiveRecipe::attempt`] has no result because the step must be repeated with other rows.
    pub fn is_repeated(&self) -> bool {
        self.repeated.is_some()
    }

    /// Returns the batch, with the number of the next step if the batch has no step number.
    pub fn numbered(&self, batch: &Batch) -> Batch {
        let step = batch.given_step().unwrap_or(self.next_step);
        batch.clone().at_step(step)
    }

    /// Returns the number of the next step, for a batch that has no step number: one more than the number of the last step, or
    /// the same number if that step failed. A checkpoint keeps this number with [`LiveRecipe::state`], and
    /// [`LiveOptions::next_step`] restores it.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Sets the batch on which new versions are tried, without a copy. [`LiveRecipe::attempt`] sets the batch of its step.
    pub fn observe(&self, batch: &Batch) {
        self.shared.ledger().last = Some(Arc::new(Observed {
            batch: batch.clone(),
            in_use: self.last().clone(),
            turns: self.turns,
        }));
    }

    /// Returns the recipe's state after the last step. A checkpoint keeps this state, [`LiveRecipe::in_use`] and
    /// [`LiveRecipe::fallbacks`].
    pub fn state(&self) -> &State {
        &self.last().state
    }

    /// Sets the state of the version in use, for a caller that has called its hooks outside of [`LiveRecipe::attempt`].
    pub fn set_state(&mut self, state: State) {
        let last = self.versions.len() - 1;
        self.versions[last].state = state;
    }

    /// Returns the versions to which [`LiveRecipe::attempt`] can fall back, each with the state after its last step. The last of
    /// these versions is tried first.
    pub fn fallbacks(&self) -> impl Iterator<Item = (&Arc<Published>, &State)> {
        let fallbacks = &self.versions[..self.versions.len() - 1];
        fallbacks.iter().map(|one| (&one.loaded, &one.state))
    }

    fn last(&self) -> &InUse {
        &self.versions[self.versions.len() - 1]
    }

    /// Returns the version of the last step or, after [`LiveRecipe::begin_step`], of the current step; before the first step, the
    /// initial version.
    pub fn in_use(&self) -> &Arc<Published> {
        &self.last().loaded
    }

    /// Returns the version that the next step tries first: the version that was published last or, if a step has fallen back from
    /// it, the version to which the step fell back. If a step must be repeated, a version that has failed at it is not returned.
    pub fn newest(&self) -> Arc<Published> {
        let current = self.shared.current();
        let mut failed = self.repeated.iter().flatten();
        match failed.any(|one| Arc::ptr_eq(&one.loaded, &current)) {
            true => self.in_use().clone(),
            false => current,
        }
    }

    /// Reads the file now, without waiting for an event, and returns when its content, if it is new, has been published or
    /// rejected. Returns `false` if that takes longer than `time`, and `true` at once if no file is followed.
    pub fn refresh(&self, time: Duration) -> bool {
        let Some(bell) = &self.bell else {
            return true;
        };
        let (sender, done) = sync_channel(1);
        self.shared.ledger().waiting.push(sender);
        ring(bell);
        done.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    /// Returns the difference between the versions of two steps, between which other versions may have been published.
    pub fn change(&self, from: &Published, to: &Published) -> VersionChange {
        let settings = &self.shared.options.settings;
        VersionChange::between(from, to, settings)
    }

    /// Returns the events since the last call, in order. Each event is returned only once, here or by [`LiveRecipe::step`].
    pub fn events(&self) -> Vec<LiveEvent> {
        self.shared.ledger().events.drain(..).collect()
    }

    /// Publishes a version after checking only whether it fits the options of the run.
    ///
    /// # Errors
    /// [`Diagnostics`] if the recipe lacks a required hook, has a hook that the run refuses, does not accept the settings, or
    /// has a parameter of [`LiveOptions::set_with_returns`] and begins or ceases to read `token_reward` or `value`.
    pub fn publish(&self, recipe: Recipe) -> Result<(), Diagnostics> {
        let recipe = self.shared.options.fit(recipe, true)?.on(&self.shared.host);
        let loaded = Published::of(recipe);
        while !(self.shared).publish(&self.shared.current(), loaded.clone(), Vec::new()) {}
        Ok(())
    }
}
