//! Columns as scripts see them: the columns of the batch, and columns derived from others.

use std::collections::BTreeMap;
use std::sync::Arc;

use rhai::Map;

use super::{DERIVED, ScriptBatch, Source};
use crate::batch::{Batch, Buffer, FloatBuffer, column_names};
use crate::diagnostic::{Diagnostic, ProblemKind};
use crate::parallel::lock;
use crate::script::error::{CallError, Raised};
use crate::script::explain::habit;
use crate::script::value::{as_tensor, describe};
use crate::suggest;
use crate::tensor::{Level, Stopped, Tensor, TensorError, op};

/// The note for a batch without `logp`.
pub(crate) const OLD_FOR_LOGP: &str =
    "there is no column `logp`: `old_logp` stands for it, as at a step's first update";

impl ScriptBatch {
    /// The columns that have been used so far.
    pub(in crate::script) fn known_columns(&self) -> Vec<(String, Tensor)> {
        lock(&self.0.columns).clone().into_iter().collect()
    }

    /// The names of the batch's own columns, and of the columns that can be derived from them.
    pub(crate) fn column_names(&self) -> (Vec<String>, Vec<String>) {
        let (mut own, mut derived) = match &self.0.source {
            Source::Of(base, _) => base.column_names(),
            Source::Batch(batch) => {
                let own = batch.column_names().map(|name| name.to_string());
                let derived = DERIVED.iter().map(|(name, _)| name.to_string());
                let derived = derived.filter(|name| self.follows(batch, name));
                (own.collect::<Vec<_>>(), derived.collect::<Vec<_>>())
            }
        };
        let given = self.0.given.keys().filter(|name| !own.contains(name));
        own.extend(given.cloned().collect::<Vec<_>>());
        derived.retain(|name| !own.contains(name));
        (own, derived)
    }

    /// Whether a column can be derived from the batch's columns.
    fn follows(&self, batch: &Batch, name: &str) -> bool {
        match DERIVED.iter().find(|(derived, _)| *derived == name) {
            // Also if no token may count.
            Some(("length", _)) => {
                batch.layout().width() > 0 || batch.token_columns().next().is_some()
            }
            Some(("verified", _)) => batch.is_verifiable(),
            Some((_, from)) => from.iter().any(|&column| {
                self.has(column) || column == "verified" && self.follows(batch, column)
            }),
            None => false,
        }
    }

    /// The values of a column at response level.
    pub(crate) fn response_values(&self, name: &str) -> Option<Buffer<f64>> {
        let value = self.find(name).ok()??.evaluate().ok()?;
        match (value.level(), value.buffer()) {
            (Level::Response, FloatBuffer::F64(values)) => Some(values.clone()),
            _ => None,
        }
    }

    /// A column by its name: one of the batch, or one derived from others.
    pub(crate) fn column(&self, name: &str) -> Result<Tensor, CallError> {
        self.find(name)?.ok_or_else(|| self.unknown(name))
    }

    /// A column by its name, if the batch has it or it can be derived.
    pub(in crate::script) fn find(&self, name: &str) -> Result<Option<Tensor>, CallError> {
        let known = lock(&self.0.columns).get(name).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let found = match (self.0.given.get(name), &self.0.source) {
            (Some(given), _) => Some(given.clone()),
            (None, Source::Batch(batch)) => self.own_column(batch, name)?,
            (None, Source::Of(base, _)) => {
                let theirs = base.find(name)?;
                theirs.map(|column| self.own(column)).transpose()?
            }
        };
        let mut made = lock(&self.0.columns);
        Ok(found.map(|tensor| made.entry(name.to_string()).or_insert(tensor).clone()))
    }

    fn own_column(&self, batch: &Batch, name: &str) -> Result<Option<Tensor>, CallError> {
        if let Some(values) = batch.response_buffer(name) {
            return Ok(Some(self.of_batch(values)?));
        }
        if let Some(store) = batch.token_column(name) {
            return Ok(Some(Tensor::column(self.frame(), store.clone())));
        }
        let follows = self.follows(batch, name);
        follows.then(|| self.derived(batch, name)).transpose()
    }

    /// Columns derived from others, by the usual conventions of the field.
    fn derived(&self, batch: &Batch, name: &str) -> Result<Tensor, CallError> {
        Ok(match name {
            "reward" if self.has("token_reward") => {
                op::sum_of_tokens(&self.column("token_reward")?)?
            }
            "reward" => self.column("correct")?,
            "correct" if !batch.has("reward") && !batch.has("token_reward") => {
                self.note("there is no reward: it is 1 where the answer of the completion is that of the solution");
                self.column("verified")?
            }
            "verified" => self.verified(batch)?,
            "token_reward" => op::at_last_token(&self.column("reward")?)?,
            "correct" => {
                // `correct` follows from the verifier's reward: a shaped reward is a column above this batch.
                op::greater(&self.column("reward")?, &Tensor::number(0.0))?
            }
            "logp" => {
                let old = batch.token_column("old_logp");
                let old = old.ok_or_else(|| self.unknown(name))?;
                self.note(OLD_FOR_LOGP);
                // A leaf of its own: a gradient with respect to `logp` is not one with respect to `old_logp`.
                Tensor::column(self.frame(), old.clone())
            }
            _ => {
                let layout = self.frame().layout();
                let tokens_of = |response| layout.tokens_of(response).len() as f64;
                let lengths = (0..layout.responses()).map(tokens_of);
                Tensor::of_responses(self.frame(), lengths.collect())?
            }
        })
    }

    /// The tensor of a response column whose memory is the batch's.
    fn of_batch(&self, values: &Buffer<f64>) -> Result<Tensor, TensorError> {
        let values = FloatBuffer::F64(values.clone());
        Tensor::from_buffer(self.frame(), Level::Response, values)
    }

    fn note(&self, note: &str) {
        self.call().effects().note(note.to_string());
    }

    /// 1 if the answer of a response's completion equals its solution's, 0 otherwise.
    fn verified(&self, batch: &Batch) -> Result<Tensor, CallError> {
        let guard = self.call().guard();
        let right = guard.untimed(|| batch.verified(&|| !guard.is_cancelled()));
        let stopped = || TensorError::new("verified", Stopped::Cancelled);
        Ok(self.of_batch(&right.ok_or_else(stopped)?)?)
    }

    /// The same batch with a script's columns in front of its own: each is a tensor or a number.
    pub(super) fn with_columns(&mut self, columns: Map) -> Raised<ScriptBatch> {
        let mut given = BTreeMap::new();
        for (name, value) in columns {
            let cannot = |be: &str| {
                let help = "a column is a tensor of this batch or a number: `batch.with(#{ reward: batch.reward / 2 })`";
                CallError::new(format!("column `{name}` cannot be {be}"), help)
            };
            let tensor = as_tensor(&value).ok_or_else(|| cannot(&describe(&value)))?;
            if ["step", "groups", "group", "mask"].contains(&name.as_str()) {
                let help = "`batch.regroup(key)` makes other groups";
                return Err(CallError::new(format!("`{name}` is no column"), help).into());
            }
            let own = self.frame();
            let frame = tensor.frame().filter(|_| tensor.level() != Level::Batch);
            if frame.is_some_and(|frame| !frame.meets(own)) {
                return Err(cannot("a tensor of another batch").into());
            }
            let is_at_home = frame.is_some_and(|frame| Arc::ptr_eq(&frame.layout, &own.layout));
            let column = match tensor.level() {
                Level::Response | Level::Token if is_at_home => tensor,
                Level::Response | Level::Token => tensor.rehomed(own)?,
                Level::Position => tensor.expanded(Level::Token, own)?,
                _ => tensor.expanded(Level::Response, own)?,
            };
            given.insert(name.to_string(), column);
        }
        self.complete_rewards(&mut given)?;
        Ok(self.with(given))
    }

    /// Makes a given reward available at both levels, unless it is the batch's own, which is there at both.
    pub(in crate::script) fn complete_rewards(
        &self,
        given: &mut BTreeMap<String, Tensor>,
    ) -> Result<(), TensorError> {
        let columns = lock(&self.0.columns);
        let own = |name, x: &Tensor| columns.get(name).is_some_and(|own| own.same(x));
        let (name, other) = match (given.get("reward"), given.get("token_reward")) {
            (Some(x), None) if !own("reward", x) => ("token_reward", op::at_last_token(x)?),
            (None, Some(x)) if !own("token_reward", x) => ("reward", op::sum_of_tokens(x)?),
            _ => return Ok(()),
        };
        given.insert(name.to_string(), other);
        Ok(())
    }

    /// Whether the batch has the column itself, or was given it.
    pub(in crate::script) fn has(&self, name: &str) -> bool {
        let is_given = self.0.given.contains_key(name);
        is_given
            || match &self.0.source {
                Source::Batch(batch) => batch.has(name),
                Source::Of(base, _) => base.has(name),
            }
    }

    fn unknown(&self, name: &str) -> CallError {
        let batch = match &self.0.source {
            Source::Batch(batch) => batch,
            Source::Of(base, _) => return base.unknown(name),
        };
        let own: Vec<&str> = batch.column_names().collect();
        if batch.text(name).is_some() {
            let help = format!("as a key they tell responses apart: `batch.key(\"{name}\")`");
            return CallError::new(
                format!("`{name}` is a column of texts, which are no numbers"),
                help,
            );
        }
        let theirs = own
            .iter()
            .find(|theirs| column_names::ours(theirs) == Some(name));
        let derived = DERIVED.iter().map(|(name, _)| *name);
        let also = ["advantage", "groups", "step"];
        let texts = batch.texts().map(|(name, _)| name);
        let names = own.iter().copied().chain(derived).chain(also);
        let near = suggest::nearest(name, names.chain(texts));
        let ours = column_names::ours(name).or(near).unwrap_or(name);
        let known = habit("columns", ours).filter(|_| !self.has(ours));
        let help = if name == "verified" && !cfg!(feature = "answers") {
            "advlab was built without its feature `answers`, which compares completions".to_string()
        } else if let Some(theirs) = theirs {
            format!(
                "the batch calls it `{theirs}`: pass it as `{name}`, in a file with `--map {name}={theirs}`"
            )
        } else if let Some(known) = known {
            known.to_string()
        } else if ours != name {
            format!("did you mean `{ours}`?")
        } else {
            let (_, derived) = self.column_names();
            let derived = suggest::list(derived.iter().map(String::as_str));
            match (&*suggest::list(own), &*derived) {
                ("", "") => "it has only groups".to_string(),
                ("", names) | (names, "") => format!("it has {names}"),
                (own, derived) => format!("it has {own}; from these follow {derived}"),
            }
        };
        let diagnostic =
            Diagnostic::error(format!("the batch has no column `{name}`")).with_help(help);
        let kind = ProblemKind::MissingColumn(name.to_string());
        diagnostic.of_kind(kind).into()
    }
}
