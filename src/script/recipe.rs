//! A recipe: a script that has been compiled and checked, with its hooks, its parameters and its version.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rhai::{AST, EvalAltResult, Scope};

use super::error::CallError;
use super::explain::Script;
use super::hook::Hook;
use super::host::Host;
use super::library::Builtin;
use super::params::{ParamValue, Params, read};
use super::version::{Sources, Version};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::tensor::TensorError;

/// A script that has been compiled and checked, with the values of its parameters.
///
/// Cloning shares the compiled script; each clone has its own parameter values.
#[derive(Clone)]
pub struct Recipe {
    pub(super) script: Arc<Compiled>,
    pub(crate) params: Params,
    pub(super) host: Host,
}

pub(crate) struct Compiled {
    pub(super) name: Arc<str>,
    pub(super) ast: AST,
    pub(super) sources: Sources,
    pub(super) hooks: Vec<Hook>,
    pub(super) version: Version,
    /// The built-in whose text equals the script's, if there is one and all imports are built-ins too.
    pub(super) builtin: Option<&'static Builtin>,
    pub(super) doc: String,
    pub(super) warnings: Vec<Diagnostic>,
    pub(super) reads: BTreeSet<String>,
    /// Whether the code may read columns that are not in `reads`, because it may compute the name of a column.
    pub(super) reads_more: bool,
    /// The constants that the script's functions see.
    pub(super) constants: Arc<Scope<'static>>,
    pub(super) functions: Vec<String>,
}

impl Recipe {
    /// Returns the name that messages show: a built-in's name, the script's path, or the name given to [`Host::compile`].
    pub fn name(&self) -> &str {
        &self.script.name
    }

    /// Returns the version, which identifies the content of the script and of all its imports.
    pub fn version(&self) -> &Version {
        &self.script.version
    }

    /// Returns the `//!` comment at the top of the script, without the marks.
    pub fn doc(&self) -> &str {
        &self.script.doc
    }

    /// Returns the first line of the script's doc comment, without its full stop.
    pub fn summary(&self) -> &str {
        let line = self.doc().lines().next().unwrap_or("");
        line.strip_suffix('.').unwrap_or(line)
    }

    /// Returns the script's own text, without its imports.
    pub fn text(&self) -> &str {
        let own = self.script.sources.get(&self.script.name);
        own.map_or("", |text| text)
    }

    /// Returns the names and the texts of the script and of all its imports.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let sources = self.script.sources.iter();
        sources.map(|(name, text)| (&**name, &**text))
    }

    /// Returns whether the script defines the hook.
    pub fn has(&self, hook: Hook) -> bool {
        self.script.hooks.contains(&hook)
    }

    /// Returns the columns that the code of the script and of its imports may read: `batch.NAME`, `batch["NAME"]`, and literal
    /// arguments of `column`, `has` and `key`. This also includes names that the code reads from other values than batches, such
    /// as maps, and `logp` if the recipe has a loss.
    pub fn reads(&self) -> &BTreeSet<String> {
        &self.script.reads
    }

    /// Returns whether the code names `trajectory`, as a level or a column, or `step_reward`. If so, an adapter for a trainer
    /// with turns gives the recipe one row per turn.
    pub fn takes_turns(&self) -> bool {
        ["trajectory", "step_reward"]
            .iter()
            .any(|name| self.reads().contains(*name))
    }

    /// Returns the columns that the recipe reads, the token columns and texts from which these columns may be derived (except the
    /// texts for a reward), and `random`. Response columns from which they may be derived are not included. Returns `None` if the
    /// script may compute the name of a column, and so read any column.
    pub fn columns(&self) -> Option<BTreeSet<String>> {
        // A batch may give the random numbers as a column.
        const ALWAYS: [&str; 1] = ["random"];
        const DERIVED: [(&str, &[&str]); 4] = [
            ("logp", &["old_logp"]),
            ("reward", &["token_reward"]),
            ("correct", &["token_reward"]),
            ("verified", &["completion", "solution", "answer"]),
        ];
        let reads = &self.script.reads;
        let derived = DERIVED.iter().filter(|(name, _)| reads.contains(*name));
        let more = derived.flat_map(|(_, from)| *from).chain(&ALWAYS);
        let all = reads
            .iter()
            .cloned()
            .chain(more.map(|name| name.to_string()));
        (!self.script.reads_more).then(|| all.collect())
    }

    /// Returns the parameters with their values.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Sets a parameter from a string, as in `--set k=8`.
    ///
    /// # Errors
    /// A [`Diagnostic`]. If there is no parameter of that name, it names the most similar parameter, or lists up to 16 parameters
    /// if none is similar; if the value does not fit, it says which values fit.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), Diagnostic> {
        self.params.set(name, |default| read(Some(default), text))
    }

    /// Sets a parameter to a value, with the errors of [`Recipe::set_text`].
    pub fn set(&mut self, name: &str, setting: ParamValue) -> Result<(), Diagnostic> {
        self.params.set(name, |_| setting)
    }

    /// Copies the settings of another recipe, usually an older version, that differ from that recipe's defaults. A setting is
    /// skipped if this recipe has no parameter of that name, or if the parameter refuses the value.
    pub fn keep_settings(&mut self, of: &Recipe) {
        for (parameter, value) in of.params.iter() {
            if *value != parameter.default {
                let _ = self.set(&parameter.name, value.clone());
            }
        }
    }

    /// Returns the recipe with one guard for all its calls in a step: from now on, the limits on time and memory
    /// ([`Limits`](super::Limits)) apply to all hooks together.
    pub fn for_step(&self) -> Recipe {
        let host = self.host.clone();
        self.on(&host.with_guard(self.host.guard()))
    }

    /// Returns the host that compiled the recipe or that [`Recipe::on`] gave it.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the same recipe on another host, with that host's limits, guard, seed and kernels.
    pub fn on(&self, host: &Host) -> Recipe {
        Recipe {
            host: host.clone(),
            ..self.clone()
        }
    }

    /// Returns the warnings of the lint.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.script.warnings
    }

    /// Returns the diagnostics for an error that a hook raised.
    pub(super) fn failed_in(&self, hook: Hook, error: &EvalAltResult) -> Diagnostics {
        let script = self.about();
        script.at_hook(hook, script.explain(error))
    }

    /// Returns the diagnostics for the error of a tensor that a hook made.
    pub(crate) fn failed_by(&self, hook: Hook, error: TensorError) -> Diagnostics {
        self.failed_in(hook, &Box::<EvalAltResult>::from(CallError::from(error)))
    }

    pub(crate) fn about(&self) -> Script<'_> {
        Script {
            parameters: self.params.names(),
            functions: self.script.functions.clone(),
            ..Script::new(&self.script.name, &self.script.sources)
        }
    }

    pub(crate) fn at_hook(&self, hook: Hook, diagnostic: Diagnostic) -> Diagnostics {
        self.about().at_hook(hook, diagnostic)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({} {})", self.name(), self.version())
    }
}
