//! Kernels: Rust in place of the hooks of some built-ins, with the very bits of their scripts.
//!
//! A kernel belongs to the shipped script's exact text, imports included: an edited copy is another version, and runs as a
//! script. It declines what it was not written for (rows with holes, strides, half precision, columns of an unusual kind,
//! values that are not finite): then the script runs, so that results, errors and notes are always those of the script.

mod columns;
mod groups;
mod kl;
mod pacs;
mod ppo_clip;
mod tokens;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use columns::Columns;

use crate::batch::{Batch, Computed, Rows};
use crate::figures::time;
use crate::script::{Hook, Host, Placed, Version};

/// A reward, if the recipe has a hook for it, and an advantage: all of them finite, at response level.
pub(crate) type Signals = (Option<Computed>, Computed);

/// A loss with dloss/dlogp at token level, metrics and notes: all numbers finite.
pub(crate) type LossAnswer = (f64, Placed, Vec<(String, f64)>, Vec<String>);

/// What computes the hooks of a built-in; `None` where it declines.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    Advantage(fn(&Columns<'_>) -> Option<Signals>),
    /// The gradient comes times a factor, and is written into the rows, if there are any.
    Loss(fn(&Columns<'_>, Option<f64>, Option<Rows<'_>>) -> Option<LossAnswer>),
}

/// By the name of the built-in.
const KERNELS: [(&str, Kernel); 7] = [
    ("grpo", Kernel::Advantage(groups::grpo)),
    ("dr_grpo", Kernel::Advantage(groups::dr_grpo)),
    ("rloo", Kernel::Advantage(groups::rloo)),
    ("passk", Kernel::Advantage(groups::passk)),
    ("grpo_lambda", Kernel::Advantage(groups::grpo_lambda)),
    ("ppo_clip", Kernel::Loss(ppo_clip::loss)),
    ("pacs", Kernel::Loss(pacs::loss)),
];

pub(crate) fn kernel(builtin: &str) -> Option<Kernel> {
    let mut kernels = KERNELS.into_iter();
    kernels.find_map(|(name, kernel)| (name == builtin).then_some(kernel))
}

/// When kernels answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Where a hook takes long, once its kernel has given the script's bits and was faster: the default of commands.
    Auto,
    /// Wherever there is a kernel.
    On,
    /// Never: the default of the library.
    #[default]
    Off,
}

/// The share of the time between two calls of a hook from which on it is worth a kernel, unless set.
const THRESHOLD: f64 = 0.02;
/// A hook that takes so long is worth a kernel, whatever its share of a step.
const LONG: Duration = Duration::from_millis(50);

/// When kernels answer, and what is known of them in this process. A clone shares that.
#[derive(Clone, Debug)]
pub struct Native(Arc<Kernels>);

#[derive(Debug)]
struct Kernels {
    mode: Mode,
    threshold: f64,
    known: Mutex<Known>,
}

/// Built-ins have few versions, so this stays small.
#[derive(Debug, Default)]
struct Known {
    hooks: HashMap<(String, &'static str), (String, State)>,
    changes: Vec<KernelChange>,
}

/// What is known of a hook, called in the same way as the last time.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The script runs, and is timed: its share is that of the time since its last call.
    Watched(Option<Instant>),
    /// It takes long: the next batch is computed both ways.
    Due,
    /// The kernel has given the script's bits and was faster: it answers.
    Switched,
    /// The kernel was slower.
    Slower,
    /// The kernel gave other bits: it is not asked again, however the hook is called.
    Refused,
}

/// How to answer a call of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Kernel,
    Script,
    /// By the script; [`Native::timed`] is to be told when it began.
    Timed,
    /// By both; [`Native::compared`] is to be told how that went.
    Both,
}

/// A call of a hook: of which version, and all that decides which code of a kernel runs.
pub(crate) struct CallKey<'a> {
    pub(crate) recipe: &'a str,
    pub(crate) version: &'a Version,
    pub(crate) hook: Hook,
    pub(crate) kind: String,
}

impl Native {
    /// Kernels that answer in a mode.
    pub fn new(mode: Mode) -> Native {
        Native::with_threshold(mode, THRESHOLD)
    }

    /// The same with another share of the time between two calls from which on, in [`Mode::Auto`], a hook is worth a kernel.
    pub fn with_threshold(mode: Mode, threshold: f64) -> Native {
        Native(Arc::new(Kernels {
            mode,
            threshold,
            known: Mutex::default(),
        }))
    }

    /// The hooks that kernels answer from now on, and those whose kernels gave other bits, since this was last asked for.
    pub fn changes(&self) -> Vec<KernelChange> {
        std::mem::take(&mut self.known().changes)
    }

    /// Leaves a hook of a version to its script for good: its kernel has given other bits before.
    pub(crate) fn refuse(&self, version: &str, hook: &str) {
        if let Some(hook) = Hook::OF_BATCH.into_iter().find(|own| own.name() == hook) {
            let refused = (String::new(), State::Refused);
            let key = (version.to_string(), hook.name());
            self.known().hooks.insert(key, refused);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, call: &CallKey<'_>) -> State {
        let known = self.known();
        match known.hooks.get(&call.id()) {
            Some((_, State::Refused)) => State::Refused,
            Some((kind, state)) if *kind == call.kind => *state,
            _ => State::Watched(None),
        }
    }

    pub(crate) fn way(&self, call: &CallKey<'_>) -> Way {
        match self.state(call) {
            State::Refused => Way::Script,
            _ if self.0.mode == Mode::On => Way::Kernel,
            State::Watched(_) => Way::Timed,
            State::Due => Way::Both,
            State::Switched => Way::Kernel,
            State::Slower => Way::Script,
        }
    }

    /// Notes that the script ran from `started` until now, and decides whether that is long.
    pub(crate) fn timed(&self, call: &CallKey<'_>, started: Instant) {
        let took = started.elapsed();
        let share = self.0.threshold;
        let is_hot = match self.state(call) {
            _ if took > LONG => true,
            State::Watched(Some(last)) => {
                took.as_secs_f64() > share * started.duration_since(last).as_secs_f64()
            }
            _ => false,
        };
        let state = if is_hot {
            State::Due
        } else {
            State::Watched(Some(started))
        };
        self.note(call, state);
    }

    /// Notes how long the script and its kernel took on the same batch, and whether they gave the same bits; nothing if
    /// the kernel declined.
    pub(crate) fn compared(
        &self,
        call: &CallKey<'_>,
        script: Duration,
        found: Option<(Duration, bool)>,
        batch: &Batch,
    ) {
        let state = match found {
            None => State::Watched(Some(Instant::now())),
            Some((_, false)) => State::Refused,
            Some((kernel, true)) if kernel >= script => State::Slower,
            Some(_) => State::Switched,
        };
        let is_new = self.note(call, state);
        let (Some((kernel, agrees)), true) = (found, is_new) else {
            return;
        };
        if !matches!(state, State::Slower) {
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

    /// Notes what is known now, unless another thread has found out more in the meantime. Returns whether it has not.
    fn note(&self, call: &CallKey<'_>, state: State) -> bool {
        let decided = self.state(call);
        let is_new = match decided {
            State::Refused => false,
            State::Switched | State::Slower => matches!(state, State::Refused),
            State::Watched(_) | State::Due => true,
        };
        if is_new {
            let noted = (call.kind.clone(), state);
            self.known().hooks.insert(call.id(), noted);
        }
        is_new
    }
}

impl CallKey<'_> {
    fn id(&self) -> (String, &'static str) {
        (self.version.as_str().to_string(), self.hook.name())
    }
}

impl Host {
    /// The same host with kernels for the built-ins' hooks; the bits of results are the same.
    pub fn with_native(self, native: &Native) -> Host {
        self.with_kernels((native.0.mode != Mode::Off).then(|| native.clone()))
    }
}

/// A change of what answers a hook: see [`Native::changes`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelChange {
    /// The recipe's name.
    pub recipe: String,
    /// Its version.
    pub version: Version,
    /// The hook, such as `advantage`.
    pub hook: &'static str,
    /// How long the script took on the batch that both computed.
    pub script: Duration,
    /// How long the kernel took.
    pub kernel: Duration,
    /// The batch on which the kernel gave other bits than the script: a defect of advlab. The script's are used.
    pub disagrees_on: Option<Batch>,
}

impl fmt::Display for KernelChange {
    /// One line: which hook, and what answers it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, hook) = (&self.version, &self.hook);
        if self.disagrees_on.is_some() {
            return write!(
                f,
                "{version}: the native `{hook}` is not the script's to the last bit, and not used: a defect of advlab, please report it"
            );
        }
        let (kernel, script) = (time(self.kernel), time(self.script));
        write!(
            f,
            "{version}: `{hook}` is native from here on, the same bits in {kernel} and not {script}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ways of six calls of a hook whose script takes `script` ms and whose kernel `kernel`.
    fn six_calls(native: &Native, script: u64, kernel: u64, agrees: bool) -> Vec<Way> {
        let grpo = Host::new().load("grpo").unwrap();
        let (version, batch) = (grpo.version().clone(), Batch::example());
        let call = CallKey {
            recipe: "grpo",
            version: &version,
            hook: Hook::Advantage,
            kind: String::new(),
        };
        let of = Duration::from_millis;
        let ways = (0..6).map(|_| {
            let way = native.way(&call);
            match way {
                Way::Timed => native.timed(&call, Instant::now()),
                Way::Both => native.compared(&call, of(script), Some((of(kernel), agrees)), &batch),
                _ => {}
            }
            way
        });
        ways.collect()
    }

    #[test]
    fn auto_switches_only_to_a_faster_kernel_with_the_same_bits() {
        use Way::{Both, Kernel, Script, Timed};
        // The first call ends no step yet, the second is long, the third is computed both ways.
        for (times, agrees, then, changes) in [
            ((3, 2), true, Kernel, 1),
            ((3, 3), true, Script, 0),
            ((1, 10), true, Script, 0),
            ((3, 2), false, Script, 1),
        ] {
            let native = Native::with_threshold(Mode::Auto, 0.0);
            let ways = six_calls(&native, times.0, times.1, agrees);
            assert_eq!(ways, [Timed, Timed, Both, then, then, then]);
            let told = native.changes();
            assert_eq!(told.len(), changes);
            assert!(told.iter().all(|one| one.disagrees_on.is_none() == agrees));
            assert!(native.changes().is_empty());
        }
        let cold = Native::with_threshold(Mode::Auto, 2.0);
        assert_eq!(six_calls(&cold, 3, 2, true), [Timed; 6]);
    }

    #[test]
    fn a_kernel_that_gave_other_bits_is_not_asked_again() {
        let version = Host::new().load("grpo").unwrap().version().clone();
        for mode in [Mode::Auto, Mode::On] {
            let native = Native::with_threshold(mode, 0.0);
            native.refuse(version.as_str(), "advantage");
            assert_eq!(six_calls(&native, 3, 2, true), [Way::Script; 6]);
        }
    }
}
