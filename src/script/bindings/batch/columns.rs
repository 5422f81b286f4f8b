//! Columns as scripts see them: the batch's own columns, columns derived from them, and columns that a script adds.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::sync::{Arc, Mutex};

use rhai::Map;

use crate::batch::{Batch, Buffer, FloatBuffer, column_names};
use crate::diagnostic::{Diagnostic, ProblemKind};
use crate::parallel::lock;
use crate::script::bindings::keys::Key;
use crate::script::call::CallContext;
use crate::script::error::{CallError, Raised};
use crate::script::explain::habits::habit;
use crate::script::value::{as_tensor, describe};
use crate::suggest;
use crate::tensor::{Frame, Level, Reservation, Stopped, Tensor, TensorError, op};

/// A batch as a script sees it: the whole batch of a call, a group of a batch, a batch's responses in other groups or as the view
/// of `map_groups`, or any of these with columns added or replaced.
#[derive(Clone, Debug)]
pub(crate) struct ScriptBatch {
    pub(super) whole: Arc<WholeBatch>,
    /// The frames of the batches on the path from the whole batch to this batch; empty for the whole batch. Each batch on the
    /// path is a group of the batch before it, or consists of the same responses in other groups or as the view of `map_groups`.
    pub(super) path: Arc<[Arc<Frame>]>,
    /// The columns that were added, such as a shaped reward, the advantage, or a script's own columns. An added column hides
    /// the whole batch's column of the same name. The number beside a column is the length of the path to the batch to which
    /// the column was added.
    pub(super) added: Arc<BTreeMap<String, (Tensor, usize)>>,
    /// The tensors of other columns, by name: columns of the whole batch, or columns converted to this batch from an earlier
    /// batch on the path. Each is made only once, so that a gradient with respect to `logp` meets the same node everywhere.
    columns: Arc<Mutex<BTreeMap<String, Tensor>>>,
    _reservation: Option<Arc<Reservation>>,
}

/// The batch of a call, with the tensors and keys that have been made from its columns so far.
#[derive(Debug)]
pub(super) struct WholeBatch {
    frame: Arc<Frame>,
    call: Arc<CallContext>,
    pub(super) batch: Batch,
    columns: Arc<Mutex<BTreeMap<String, Tensor>>>,
    /// Keys by the names of their columns.
    pub(super) keys: Mutex<BTreeMap<Vec<String>, Key>>,
}

/// Columns that can be derived if the batch lacks them, each with the columns of which any one suffices to derive it. `verified`,
/// `length` and `turn` are not derived from a single column: `follows` says when they can be derived.
const DERIVED: [(&str, &[&str]); 7] = [
    ("reward", &["token_reward", "correct", "verified"]),
    ("token_reward", &["reward", "correct", "verified"]),
    ("correct", &["reward", "token_reward", "verified"]),
    ("verified", &[]),
    ("logp", &["old_logp"]),
    ("length", &[]),
    ("turn", &[]),
];

/// The note for a batch without `logp`.
pub(crate) const OLD_FOR_LOGP: &str =
    "there is no column `logp`: `old_logp` is used instead, as at a step's first update";

impl ScriptBatch {
    pub(crate) fn new(call: Arc<CallContext>, batch: &Batch) -> Self {
        let whole = WholeBatch {
            frame: Frame::new(batch.layout().clone(), batch.is_f64(), call.context.clone()),
            call,
            batch: batch.clone(),
            columns: Arc::default(),
            keys: Mutex::default(),
        };
        ScriptBatch::of_whole(&Arc::new(whole)).counted()
    }

    pub(super) fn of_whole(whole: &Arc<WholeBatch>) -> Self {
        ScriptBatch {
            whole: whole.clone(),
            path: Arc::default(),
            added: Arc::default(),
            columns: whole.columns.clone(),
            _reservation: None,
        }
    }

    /// Returns the batch with its memory counted by the call's guard.
    fn counted(self) -> Self {
        // 1,024 bytes are for one node of a map, which has room for 11 entries; a batch seldom has more added columns.
        let bytes = size_of::<ScriptBatch>() + 1024 + 128 * self.added.len();
        let reservation = self.call().guard().hold(bytes);
        ScriptBatch {
            _reservation: reservation.map(Arc::new),
            ..self
        }
    }

    /// Returns the same batch with the given columns, which hide the batch's own columns of the same names. If only one of
    /// `reward` and `token_reward` is given, derives the other, unless the given column is the batch's own.
    pub(in crate::script) fn with(
        &self,
        mut columns: BTreeMap<String, Tensor>,
    ) -> Result<Self, TensorError> {
        let is_own = |name, x: &Tensor| self.known(name).is_some_and(|own| own.same(x));
        let other = match (columns.get("reward"), columns.get("token_reward")) {
            (Some(x), None) if !is_own("reward", x) => {
                Some(("token_reward", op::at_last_token(x)?))
            }
            (None, Some(x)) if !is_own("token_reward", x) => {
                Some(("reward", op::sum_of_tokens(x)?))
            }
            _ => None,
        };
        columns.extend(other.map(|(name, tensor)| (name.to_string(), tensor)));
        let (steps, mut added) = (self.path.len(), (*self.added).clone());
        added.extend(
            columns
                .into_iter()
                .map(|(name, tensor)| (name, (tensor, steps))),
        );
        let added = Arc::new(added);
        Ok(ScriptBatch {
            added,
            ..self.clone()
        }
        .counted())
    }

    /// Returns the batch that is one step further on the path, with the responses or groups of `frame`.
    pub(super) fn after(&self, frame: Arc<Frame>) -> ScriptBatch {
        let path = self.path.iter().cloned().chain([frame]);
        ScriptBatch {
            path: path.collect(),
            columns: Arc::default(),
            ..self.clone()
        }
        .counted()
    }

    pub(crate) fn frame(&self) -> &Arc<Frame> {
        self.path.last().unwrap_or(&self.whole.frame)
    }

    pub(crate) fn call(&self) -> &Arc<CallContext> {
        &self.whole.call
    }

    /// Returns whether both batches are the same object.
    pub(super) fn is_same(&self, other: &ScriptBatch) -> bool {
        Arc::ptr_eq(&self.columns, &other.columns) && Arc::ptr_eq(&self.added, &other.added)
    }

    /// Converts a tensor to a tensor of this batch. The tensor belongs to the batch after `steps` steps of the path.
    pub(super) fn carry(&self, tensor: Tensor, steps: usize) -> Result<Tensor, TensorError> {
        let mut rest = self.path[steps..].iter();
        rest.try_fold(tensor, |tensor, frame| match frame.group {
            Some(group) => tensor.select(group, frame),
            None => tensor.rehomed(frame),
        })
    }

    /// Returns the columns of the whole batch that have been used so far.
    pub(crate) fn known_columns(&self) -> Vec<(String, Tensor)> {
        lock(&self.whole.columns).clone().into_iter().collect()
    }

    /// Returns the names of the batch's own columns, including those that a script added, and of the columns that can be derived.
    pub(crate) fn column_names(&self) -> (Vec<String>, Vec<String>) {
        let own = self.whole.batch.column_names().map(str::to_string);
        let mut own: Vec<String> = own.collect();
        let mut added: Vec<String> = self.added.keys().cloned().collect();
        added.retain(|name| !own.contains(name));
        own.extend(added);
        let mut derived: Vec<String> = self.whole.derivable().map(str::to_string).collect();
        derived.retain(|name| !own.contains(name));
        (own, derived)
    }

    /// Returns the f64 values of a column; `None` if the column is missing, cannot be computed, or is not at response level.
    pub(crate) fn response_values(&self, name: &str) -> Option<Buffer<f64>> {
        let value = self.find(name).ok()??.evaluate().ok()?;
        match (value.level(), value.buffer()) {
            (Level::Response, FloatBuffer::F64(values)) => Some(values.clone()),
            _ => None,
        }
    }

    /// Returns the column with this name, which may be derived. If there is none, the error says what to do instead, or which
    /// columns there are.
    pub(crate) fn column(&self, name: &str) -> Result<Tensor, CallError> {
        let found = self.find(name)?;
        found.ok_or_else(|| self.whole.unknown(name))
    }

    /// Returns the column with this name; `None` if the batch neither has the column nor can derive it.
    pub(in crate::script) fn find(&self, name: &str) -> Result<Option<Tensor>, CallError> {
        if let Some(known) = self.known(name) {
            return Ok(Some(known));
        }
        let found = match self.added.get(name) {
            Some((tensor, steps)) => Some(self.carry(tensor.clone(), *steps)?),
            None if self.path.is_empty() && self.added.is_empty() => self.made(name)?,
            None => {
                // Columns are derived from the batch's own columns, not from those that a script added.
                let of_whole = ScriptBatch::of_whole(&self.whole).find(name)?;
                of_whole.map(|tensor| self.carry(tensor, 0)).transpose()?
            }
        };
        let mut columns = lock(&self.columns);
        Ok(found.map(|tensor| columns.entry(name.to_string()).or_insert(tensor).clone()))
    }

    /// Returns the same batch with a script's columns (tensors or numbers), which hide the batch's columns of the same names.
    pub(super) fn with_columns(&mut self, columns: Map) -> Raised<ScriptBatch> {
        let mut given = BTreeMap::new();
        for (name, value) in columns {
            let cannot = |be: &str| {
                let help = "a column must be a tensor of this batch or a number: `batch.with(#{ reward: batch.reward / 2 })`";
                CallError::new(format!("column `{name}` cannot be {be}"), help)
            };
            let tensor = as_tensor(&value).ok_or_else(|| cannot(&describe(&value)))?;
            if ["step", "groups", "group", "mask"].contains(&name.as_str()) {
                let help = "the step and the mask cannot be replaced; `batch.regroup(key)` makes other groups";
                return Err(
                    CallError::new(format!("`{name}` is not the name of a column"), help).into(),
                );
            }
            let own = self.frame();
            let frame = tensor.frame().filter(|_| tensor.level() != Level::Batch);
            if frame.is_some_and(|frame| !frame.meets(own)) {
                return Err(cannot("a tensor of another batch").into());
            }
            let level = match tensor.level() {
                Level::Token | Level::Position => Level::Token,
                _ => Level::Response,
            };
            let other = frame.filter(|frame| !Arc::ptr_eq(&frame.layout, &own.layout));
            let column = match other {
                Some(other) => tensor.expanded(level, other)?.rehomed(own)?,
                None => tensor.expanded(level, own)?,
            };
            given.insert(name.to_string(), column);
        }
        Ok(self.with(given)?)
    }

    /// Returns a column of this batch, if it was added to this batch or has been used in it already.
    fn known(&self, name: &str) -> Option<Tensor> {
        match self.added.get(name) {
            Some((tensor, steps)) if *steps == self.path.len() => Some(tensor.clone()),
            _ => lock(&self.columns).get(name).cloned(),
        }
    }

    /// Returns whether a column exists without being derived, because it is the batch's own or was added.
    pub(in crate::script) fn has(&self, name: &str) -> bool {
        self.added.contains_key(name) || self.whole.batch.has(name)
    }

    /// Makes the tensor of a column of the whole batch; `None` if the batch neither has the column nor can derive it.
    fn made(&self, name: &str) -> Result<Option<Tensor>, CallError> {
        let (whole, frame) = (&*self.whole, self.frame());
        if let Some(values) = whole.batch.response_buffer(name) {
            return Ok(Some(whole.of_batch(values)?));
        }
        if let Some(store) = whole.batch.token_column(name) {
            return Ok(Some(Tensor::column(frame, store.clone())));
        }
        if !whole.follows(name) {
            return Ok(None);
        }
        let (batch, layout) = (&whole.batch, frame.layout());
        // The column is derived from other columns, by the usual conventions.
        Ok(Some(match name {
            "reward" if batch.has("token_reward") => {
                op::sum_of_tokens(&self.column("token_reward")?)?
            }
            "reward" => self.column("correct")?,
            "correct" if !batch.has("reward") && !batch.has("token_reward") => {
                whole.note("there is no column `reward`: the reward is 1 where the completion's answer equals the solution's, and 0 elsewhere");
                self.column("verified")?
            }
            "verified" => whole.verified()?,
            "token_reward" => op::at_last_token(&self.column("reward")?)?,
            "correct" => {
                // This is the batch's own reward, because a reward that a script has shaped is not a column of the whole batch.
                op::greater(&self.column("reward")?, &Tensor::number(0.0))?
            }
            "logp" => {
                let old = batch.token_column("old_logp");
                let old = old.ok_or_else(|| whole.unknown(name))?;
                whole.note(OLD_FOR_LOGP);
                // This makes a separate leaf of the graph, because `old_logp` must have no part in a gradient with respect to
                // `logp`.
                Tensor::column(frame, old.clone())
            }
            "turn" => {
                // Each run of tokens that no hole in the response's mask interrupts is one turn of the trajectory.
                let runs =
                    (0..layout.responses()).flat_map(|one| layout.runs(one).iter().enumerate());
                let turns = runs.flat_map(|(turn, run)| repeat_n(turn as f32, run.len as usize));
                let turns: Vec<f32> = turns.collect();
                Tensor::from_buffer(frame, Level::Token, turns.into())?
            }
            _ => {
                let tokens_of = |response| layout.tokens_of(response).len() as f64;
                let lengths = (0..layout.responses()).map(tokens_of);
                Tensor::of_responses(frame, lengths.collect())?
            }
        }))
    }
}

impl WholeBatch {
    /// Returns the names of the columns that can be derived, and that the batch lacks.
    fn derivable(&self) -> impl Iterator<Item = &'static str> {
        let names = DERIVED.iter().map(|(name, _)| *name);
        names.filter(|name| !self.batch.has(name) && self.follows(name))
    }

    /// Returns whether a column can be derived from the batch's own columns.
    fn follows(&self, name: &str) -> bool {
        match DERIVED.iter().find(|(derived, _)| *derived == name) {
            // If the mask excludes every token, the lengths still exist: they are 0.
            Some((name @ ("length" | "turn"), _)) => {
                // If each response is one turn of a trajectory, the mask does not tell the number of the turn.
                let is_whole = *name == "length" || !self.batch.layout().has_trajectories();
                let has_tokens = self.batch.layout().width() > 0;
                is_whole && (has_tokens || self.batch.token_columns().next().is_some())
            }
            Some(("verified", _)) => self.batch.is_verifiable(),
            Some((_, from)) => from.iter().any(|&column| {
                self.batch.has(column) || column == "verified" && self.follows(column)
            }),
            None => false,
        }
    }

    /// Makes a tensor from a response column's values, which it shares with the batch.
    fn of_batch(&self, values: &Buffer<f64>) -> Result<Tensor, TensorError> {
        let values = FloatBuffer::F64(values.clone());
        Tensor::from_buffer(&self.frame, Level::Response, values)
    }

    fn note(&self, note: &str) {
        self.call.effects().note(note.to_string());
    }

    /// Computes the column `verified`: 1 if the answer of a response's completion equals the answer of its solution, 0 otherwise.
    /// Fails if the call is cancelled.
    fn verified(&self) -> Result<Tensor, CallError> {
        let guard = self.call.guard();
        let right = guard.untimed(|| self.batch.verified(&|| !guard.is_cancelled()));
        let stopped = || TensorError::new("verified", Stopped::Cancelled);
        Ok(self.of_batch(&right.ok_or_else(stopped)?)?)
    }

    fn unknown(&self, name: &str) -> CallError {
        let own: Vec<&str> = self.batch.column_names().collect();
        if self.batch.text(name).is_some() {
            let help = format!("its texts can serve as a key: `batch.key(\"{name}\")`");
            return CallError::new(
                format!("`{name}` is a column of texts, not of numbers"),
                help,
            );
        }
        let theirs = own
            .iter()
            .find(|theirs| column_names::ours(theirs) == Some(name));
        let derived = DERIVED.iter().map(|(name, _)| *name);
        let also = ["advantage", "groups", "step"];
        let texts = self.batch.texts().map(|(name, _)| name);
        let names = own.iter().copied().chain(derived).chain(also);
        let near = suggest::nearest(name, names.chain(texts));
        let ours = column_names::ours(name).or(near).unwrap_or(name);
        let known = habit("columns", ours).filter(|_| !self.batch.has(ours));
        let kind = ProblemKind::MissingColumn(name.to_string());
        let error = Diagnostic::error(format!("the batch has no column `{name}`")).of_kind(kind);
        let help = if name == "verified" && !cfg!(feature = "answers") {
            "advlab was built without its feature `answers`, which compares completions".to_string()
        } else if let Some(theirs) = theirs {
            format!(
                "the batch calls it `{theirs}`: pass it as `{name}`; for a file, add `--map {name}={theirs}`"
            )
        } else if let Some(known) = known {
            known.to_string()
        } else if ours != name {
            return error.did_you_mean(name, ours).into();
        } else {
            match (&*suggest::list(own), &*suggest::list(self.derivable())) {
                ("", "") => "it has only groups".to_string(),
                ("", names) | (names, "") => format!("it has {names}"),
                (own, derived) => format!("it has {own}; derived from these: {derived}"),
            }
        };
        error.with_help(help).into()
    }
}
