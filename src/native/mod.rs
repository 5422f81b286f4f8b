//! Kernels: Rust in place of the hooks of some built-ins, with the same bits as their scripts.
//!
//! A kernel belongs to the exact text of the shipped script, imports included: an edited copy is another version, and runs
//! as a script. It declines inputs that it does not support (rows with holes, columns of an unusual kind, values that are not
//! finite): then the script runs, so that results, errors and notes are always those of the script.

mod groups;
mod inputs;
mod pacs;
mod ppo_clip;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) use inputs::HookInputs;

use crate::batch::Batch;
use crate::number_text::time;
use crate::parallel::lock;
use crate::script::{Hook, Outcome, Version};

/// Computes a hook of a built-in; `None` if it declines.
pub(crate) type NativeHook = fn(&HookInputs<'_>) -> Option<Outcome>;

/// The built-ins with a kernel, and the hook that it computes.
const KERNELS: [(&str, Hook, NativeHook); 5] = [
    ("grpo", Hook::Advantage, groups::grpo),
    ("rloo", Hook::Advantage, groups::rloo),
    ("passk", Hook::Advantage, groups::passk),
    ("ppo_clip", Hook::Loss, ppo_clip::loss),
    ("pacs", Hook::Loss, pacs::loss),
];

/// When kernels are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A kernel is used for a hook that takes long, once it has given the script's bits and was faster: the default of commands.
    Auto,
    /// Wherever there is a kernel.
    On,
    /// Never: the default of the library.
    #[default]
    Off,
}

/// `Auto` tries a kernel if its hook takes more than this share of the time between two calls, unless the user sets another.
const THRESHOLD: f64 = 0.02;
/// `Auto` also tries the kernel of a hook that takes so many seconds, for any share of a step.
const LONG: f64 = 0.05;

/// The mode, and what this process has measured of kernels so far. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Native {
    mode: Mode,
    threshold: f64,
    known: Arc<Mutex<KnownHooks>>,
}

#[derive(Debug, Default)]
struct KnownHooks {
    /// By version and hook: the kind of the last call, and its state.
    hooks: HashMap<String, (String, HookState)>,
    changes: Vec<KernelChange>,
}

/// What has been measured for calls of one kind of a hook.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HookState {
    /// The script runs and is timed; with the start of its last call.
    Timed(Option<Instant>),
    /// The script took long: both the script and the kernel compute the next batch, to compare bits and times.
    Due,
    /// The kernel has given the script's bits and was faster: it runs.
    Switched,
    /// The kernel was slower: the script runs.
    Slower,
    /// The kernel gave different bits: the script runs, for calls of all kinds.
    Refused,
}

/// A call of a hook.
pub(crate) struct CallKey<'a> {
    pub(crate) recipe: &'a str,
    pub(crate) version: &'a Version,
    pub(crate) hook: Hook,
    /// Everything that decides which code of a kernel runs.
    pub(crate) kind: String,
}

impl CallKey<'_> {
    fn id(&self) -> String {
        format!("{} {}", self.version.as_str(), self.hook.name())
    }
}

impl Native {
    /// Kernels in the given mode.
    pub fn new(mode: Mode) -> Native {
        Native::with_threshold(mode, THRESHOLD)
    }

    /// The same with another threshold for [`Mode::Auto`]: the hook's share of the time between two calls.
    pub fn with_threshold(mode: Mode, threshold: f64) -> Native {
        Native {
            mode,
            threshold,
            known: Arc::default(),
        }
    }

    /// The hooks for which kernels are used from now on, and those whose kernels gave different bits, since the last call.
    pub fn changes(&self) -> Vec<KernelChange> {
        std::mem::take(&mut self.known().changes)
    }

    /// The kernel that may compute a hook of a built-in. A loss's kernel also computes the equivalent advantage.
    pub(crate) fn kernel(&self, builtin: &str, hook: Hook) -> Option<NativeHook> {
        let is_meant = |of: Hook| self.mode != Mode::Off && (of == hook || of == Hook::Loss);
        let mut kernels = KERNELS.iter();
        let found = kernels.find(|(name, of, _)| *name == builtin && is_meant(*of))?;
        Some(found.2)
    }

    fn known(&self) -> MutexGuard<'_, KnownHooks> {
        lock(&self.known)
    }

    pub(crate) fn state(&self, call: &CallKey<'_>) -> HookState {
        match self.known().hooks.get(&call.id()) {
            Some((_, HookState::Refused)) => HookState::Refused,
            _ if self.mode == Mode::On => HookState::Switched,
            Some((kind, state)) if *kind == call.kind => *state,
            _ => HookState::Timed(None),
        }
    }

    /// Notes that the script ran from `started` until now, and the call before it began at `last`.
    pub(crate) fn timed(&self, call: &CallKey<'_>, last: Option<Instant>, started: Instant) {
        let took = started.elapsed().as_secs_f64();
        let is_large = |last| took > self.threshold * started.duration_since(last).as_secs_f64();
        let state = match took > LONG || last.is_some_and(is_large) {
            true => HookState::Due,
            false => HookState::Timed(Some(started)),
        };
        self.note(call, state);
    }

    /// Notes the times of the script and of its kernel on the same batch, and whether they gave the same bits; or that the
    /// kernel declined.
    pub(crate) fn compared(
        &self,
        call: &CallKey<'_>,
        script: Duration,
        kernel: Option<(Duration, bool)>,
        batch: &Batch,
    ) {
        let Some((kernel, agrees)) = kernel else {
            self.note(call, HookState::Timed(Some(Instant::now())));
            return;
        };
        let state = match agrees {
            false => HookState::Refused,
            true if kernel >= script => HookState::Slower,
            true => HookState::Switched,
        };
        if self.note(call, state) && state != HookState::Slower {
            self.known().changes.push(KernelChange {
                recipe: call.recipe.to_string(),
                version: call.version.clone(),
                hook: call.hook.name(),
                script,
                kernel,
                disagrees_on: (!agrees).then(|| batch.clone()),
            });
        }
    }

    /// Notes a state, unless another thread has decided in the meantime. Returns whether it was noted.
    fn note(&self, call: &CallKey<'_>, state: HookState) -> bool {
        let is_noted = match self.state(call) {
            HookState::Refused => false,
            HookState::Switched | HookState::Slower => state == HookState::Refused,
            HookState::Timed(_) | HookState::Due => true,
        };
        if is_noted {
            let noted = (call.kind.clone(), state);
            self.known().hooks.insert(call.id(), noted);
        }
        is_noted
    }
}

/// A hook that its kernel computes from now on, or never: see [`Native::changes`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelChange {
    /// The recipe's name.
    pub recipe: String,
    /// Its version.
    pub version: Version,
    /// The hook, such as `advantage`.
    pub hook: &'static str,
    /// The time of the script on the batch that both computed.
    pub script: Duration,
    /// The time of the kernel.
    pub kernel: Duration,
    /// The batch on which the kernel's bits differ from the script's, which is a bug in advlab. The script's result is used.
    pub disagrees_on: Option<Batch>,
}

impl fmt::Display for KernelChange {
    /// One line: the hook, and whether the script or the kernel computes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, hook) = (&self.version, &self.hook);
        if self.disagrees_on.is_some() {
            let why = "not the script's to the last bit, and not used: a defect of advlab";
            return write!(
                f,
                "{version}: the native `{hook}` is {why}, please report it"
            );
        }
        let (kernel, script) = (time(self.kernel), time(self.script));
        write!(
            f,
            "{version}: `{hook}` now uses its native kernel (identical bits, {kernel} instead of {script})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Host;

    /// The states of six calls of a hook whose script takes `script` ms and whose kernel `kernel`.
    fn six_calls(native: &Native, script: u64, kernel: u64, agrees: bool) -> [HookState; 6] {
        let grpo = Host::new().load("grpo").unwrap();
        let call = CallKey {
            recipe: "grpo",
            version: grpo.version(),
            hook: Hook::Advantage,
            kind: String::new(),
        };
        let of = Duration::from_millis;
        let kernel = Some((of(kernel), agrees));
        // With a high threshold the hook takes no time, whatever else the machine does: it begins when it has ended.
        let ahead = of(if native.threshold > 1.0 { 3_600_000 } else { 0 });
        [(); 6].map(|()| match native.state(&call) {
            HookState::Timed(last) => {
                native.timed(&call, last, Instant::now() + ahead);
                HookState::Timed(None)
            }
            HookState::Due => {
                native.compared(&call, of(script), kernel, &Batch::example());
                HookState::Due
            }
            decided => decided,
        })
    }

    #[test]
    fn auto_switches_only_to_a_faster_kernel_with_the_same_bits() {
        let timed = HookState::Timed(None);
        // The first call ends no step yet, the second is long, the third is computed both ways.
        for (times, agrees, then, changes) in [
            ((3, 2), true, HookState::Switched, 1),
            ((3, 3), true, HookState::Slower, 0),
            ((1, 10), true, HookState::Slower, 0),
            ((3, 2), false, HookState::Refused, 1),
        ] {
            let native = Native::with_threshold(Mode::Auto, 0.0);
            let states = six_calls(&native, times.0, times.1, agrees);
            assert_eq!(states, [timed, timed, HookState::Due, then, then, then]);
            let told = native.changes();
            assert_eq!(told.len(), changes);
            assert!(told.iter().all(|one| one.disagrees_on.is_none() == agrees));
            assert!(native.changes().is_empty());
        }
        let cold = Native::with_threshold(Mode::Auto, 2.0);
        assert_eq!(six_calls(&cold, 3, 2, true), [timed; 6]);
    }
}
