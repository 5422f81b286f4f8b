//! A recipe: a script that has been compiled and checked, with its hooks, its parameters and its version.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hmac_sha256::Hash as Sha256;
use rhai::{AST, EvalAltResult, Scope};

use super::builtin::{Builtin, Sources};
use super::explain::Script;
use super::host::Host;
use super::params::{Parameters, Setting};
use crate::diagnostic::{Diagnostic, Diagnostics};

/// A function that a script can define for advlab to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// `reward(batch, p)` replaces the reward.
    Reward,
    /// `weight(batch, p)` says how much each response counts in the loss.
    Weight,
    /// `advantage(batch, p)` gives the advantage.
    Advantage,
    /// `loss(batch, p)` gives the loss, differentiable in `batch.logp`.
    Loss,
    /// `returns(batch, p)` gives the target of a trainer's critic.
    Returns,
    /// `params()` declares the parameters.
    Params,
    /// `init(p)` makes the state.
    Init,
    /// `migrate(old, p)` carries the state of an older version over.
    Migrate,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Hook; 8] = [
        Hook::Reward,
        Hook::Weight,
        Hook::Advantage,
        Hook::Loss,
        Hook::Returns,
        Hook::Params,
        Hook::Init,
        Hook::Migrate,
    ];

    /// The hooks that each step of a run computes of a batch: `hook(batch, p)`.
    pub const OF_BATCH: [Hook; 4] = [Hook::Reward, Hook::Weight, Hook::Advantage, Hook::Loss];

    /// The function's name.
    pub const fn name(self) -> &'static str {
        self.signature().0
    }

    pub(super) const fn parameters(self) -> &'static [&'static str] {
        self.signature().1
    }

    const fn signature(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Hook::Reward => ("reward", &["batch", "p"]),
            Hook::Weight => ("weight", &["batch", "p"]),
            Hook::Advantage => ("advantage", &["batch", "p"]),
            Hook::Loss => ("loss", &["batch", "p"]),
            Hook::Returns => ("returns", &["batch", "p"]),
            Hook::Params => ("params", &[]),
            Hook::Init => ("init", &["p"]),
            Hook::Migrate => ("migrate", &["old", "p"]),
        }
    }
}

/// The name of one exact content of a recipe with all that it imports: a SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    pub(super) fn of(main: &str, text: &[u8], imports: &Sources) -> Version {
        let mut hash = Sha256::new();
        // The main script counts by its bytes alone: a copy of a built-in is the same version until it is edited.
        let mut add = |text: &[u8]| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(text);
        // In the order of the names that imports write: the folder that they were found in does not count either.
        let mut imports: Vec<_> = imports
            .iter()
            .filter(|(name, _)| &***name != main)
            .collect();
        imports.sort_by_key(|(name, _)| Path::new(&***name).file_stem());
        imports.iter().for_each(|(_, text)| add(text.as_bytes()));
        let digits = hash.finalize().map(|byte| format!("{byte:02x}"));
        Version(digits.concat())
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first six digits, as messages show it.
    pub fn short(&self) -> &str {
        &self.0[..6]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short())
    }
}

/// The columns that a recipe may read, by its code and by that of its imports; comments and texts do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The names that the code has: `batch.NAME`, `batch["NAME"]`, and those given to `column`, `has` and `key`. A property
    /// of a map that no declaration tells from a batch is among them.
    pub names: BTreeSet<String>,
    /// Whether the code also computes names, as in `batch.column(p.column)`: then it may read any column.
    pub is_computed: bool,
}

impl Reads {
    /// Whether the recipe may read the column of this name itself, not only one that follows from it.
    pub fn may_read(&self, name: &str) -> bool {
        self.is_computed || self.names.contains(name)
    }
}

/// A script that has been compiled and checked, with the values of its parameters.
///
/// Cloning shares the compiled script; each clone has its own parameter values.
#[derive(Clone)]
pub struct Recipe {
    pub(super) script: Arc<Compiled>,
    pub(crate) params: Parameters,
    pub(super) host: Host,
}

pub(crate) struct Compiled {
    pub(super) name: Arc<str>,
    pub(super) ast: AST,
    pub(super) sources: Sources,
    pub(super) hooks: Vec<Hook>,
    pub(super) version: Version,
    /// The built-in that the script is, where it is one to the last byte.
    pub(super) builtin: Option<&'static Builtin>,
    pub(super) doc: String,
    pub(super) warnings: Vec<Diagnostic>,
    pub(super) reads: Reads,
    /// Those that functions see: written out at the top.
    pub(super) constants: Arc<Scope<'static>>,
    pub(super) functions: Vec<String>,
}

impl Recipe {
    /// A built-in's name, or the script's path: messages call the recipe so.
    pub fn name(&self) -> &str {
        &self.script.name
    }

    /// The script's exact content, with all that it imports.
    pub fn version(&self) -> &Version {
        &self.script.version
    }

    /// The `//!` comment at the script's top, without the marks.
    pub fn doc(&self) -> &str {
        &self.script.doc
    }

    /// The first sentence of the doc comment.
    pub fn summary(&self) -> &str {
        let line = self.doc().lines().next().unwrap_or("");
        line.strip_suffix('.').unwrap_or(line)
    }

    /// The script's own source, without its imports.
    pub fn text(&self) -> &str {
        let own = self.script.sources.get(&self.script.name);
        own.map_or("", |text| text)
    }

    /// The names and sources of the script and of all that it imports.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let sources = self.script.sources.iter();
        sources.map(|(name, text)| (&**name, &**text))
    }

    /// Whether the script defines the hook.
    pub fn has(&self, hook: Hook) -> bool {
        self.script.hooks.contains(&hook)
    }

    /// The columns that the script and its imports may read.
    pub fn reads(&self) -> &Reads {
        &self.script.reads
    }

    /// The parameters with their values.
    pub fn params(&self) -> &Parameters {
        &self.params
    }

    /// Sets a parameter from a string, as in `--set k=8`.
    ///
    /// # Errors
    /// As [`Parameters::set_text`].
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), Diagnostic> {
        self.params.set_text(name, text)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// As [`Parameters::set_text`].
    pub fn set(&mut self, name: &str, setting: Setting) -> Result<(), Diagnostic> {
        self.params.set(name, setting)
    }

    /// Takes over the settings of another recipe, most likely an older version of this one: what it has otherwise than
    /// it declares, where this one has a parameter of that name that can have that value.
    pub(crate) fn keep_settings(&mut self, of: &Recipe) {
        for (parameter, value) in of.params.iter() {
            if *value != parameter.default {
                let _ = self.params.set(&parameter.name, value.clone());
            }
        }
    }

    /// The recipe with one guard for all that is called of it, as for one step: all hooks together have the time, from here
    /// on, and the memory of [`Limits`](super::Limits).
    pub fn for_step(&self) -> Recipe {
        let host = self.host.clone();
        self.on(&host.with_guard(self.host.guard()))
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The same recipe, bounded by another host: its limits, its guard, its seed.
    pub(crate) fn on(&self, host: &Host) -> Recipe {
        Recipe {
            host: host.clone(),
            ..self.clone()
        }
    }

    /// The warnings of the lint.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.script.warnings
    }

    /// The failure of a hook; at its definition where nothing says where in it.
    pub(super) fn failed_in(&self, hook: Hook, error: &EvalAltResult) -> Diagnostics {
        let diagnostic = self.about().explain(error);
        match diagnostic.span {
            Some(_) => diagnostic.into(),
            None => self.at_hook(hook, diagnostic),
        }
    }

    pub(crate) fn about(&self) -> Script<'_> {
        self.about_source(&self.script.name)
    }

    pub(super) fn about_source<'a>(&'a self, name: &'a Arc<str>) -> Script<'a> {
        let parameters = self.params.iter();
        let parameters = parameters.map(|(parameter, _)| parameter.name.clone());
        let mut script = Script::new(name, &self.script.sources);
        script.parameters = parameters.collect();
        script.functions.clone_from(&self.script.functions);
        script
    }

    pub(crate) fn at_hook(&self, hook: Hook, diagnostic: Diagnostic) -> Diagnostics {
        diagnostic.at(self.about().definition(hook.name())).into()
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.script.fmt(f)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({} {})", self.name, self.version)
    }
}
