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

/// A batch as a script sees it: the whole batch of a call, one of its groups, the same responses in other groups, or any of these
/// with columns added or replaced.
#[derive(Clone, Debug)]
pub(crate) struct ScriptBatch(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) whole: Arc<WholeBatch>,
    /// The steps that lead from the whole batch to this batch.
    pub(super) steps: Vec<Step>,
    /// Columns that hide the whole batch's columns of the same name, such as a shaped reward, the advantage, or columns that a
    /// script adds. With each column is the number of steps from the whole batch to the batch to which the column was added.
    pub(super) added: Arc<BTreeMap<String, (Tensor, usize)>>,
    /// Columns that were converted to this batch from a batch fewer steps away, by name. Each is converted only once, so that a
    /// gradient meets the same node everywhere.
    carried: Arc<Mutex<BTreeMap<String, Tensor>>>,
    _reservation: Option<Reservation>,
}

/// The batch of a call, with the tensors and keys that have been made from its columns so far.
#[derive(Debug)]
pub(super) struct WholeBatch {
    pub(super) frame: Arc<Frame>,
    pub(super) call: Arc<CallContext>,
    pub(super) batch: Batch,
    /// Tensors by column name. Each is made only once, so that a gradient with respect to `logp` meets the same node everywhere.
    columns: Mutex<BTreeMap<String, Tensor>>,
    /// Keys by the names of their columns.
    pub(super) keys: Mutex<BTreeMap<Vec<String>, Key>>,
}

/// A step from one batch to another batch with the same columns: to one of its groups, or to other groups.
#[derive(Clone, Debug)]
pub(super) struct Step {
    frame: Arc<Frame>,
    /// The index of the group, if the step goes to one group; `None` if all responses stay.
    pub(super) group: Option<usize>,
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
    /// Makes the whole batch of a call.
    pub(crate) fn new(call: Arc<CallContext>, batch: &Batch) -> Self {
        let whole = WholeBatch {
            frame: Frame::new(batch.layout().clone(), batch.is_f64(), call.context.clone()),
            call,
            batch: batch.clone(),
            columns: Mutex::default(),
            keys: Mutex::default(),
        };
        ScriptBatch::of(Arc::new(whole), Vec::new(), Arc::default(), Arc::default())
    }

    fn of(
        whole: Arc<WholeBatch>,
        steps: Vec<Step>,
        added: Arc<BTreeMap<String, (Tensor, usize)>>,
        carried: Arc<Mutex<BTreeMap<String, Tensor>>>,
    ) -> Self {
        // 1,024 bytes are for one node of a map, which has room for 11 entries; a batch seldom has more added columns.
        let bytes = size_of::<Inner>() + 1024 + 128 * added.len();
        ScriptBatch(Arc::new(Inner {
            _reservation: whole.call.guard().hold(bytes),
            whole,
            steps,
            added,
            carried,
        }))
    }

    /// Returns the same batch with the given columns, which hide the batch's own columns of the same names.
    pub(in crate::script) fn with(&self, columns: BTreeMap<String, Tensor>) -> Self {
        if columns.is_empty() {
            return self.clone();
        }
        let (this, mut added) = (&*self.0, (*self.0.added).clone());
        let columns = columns.into_iter();
        added.extend(columns.map(|(name, tensor)| (name, (tensor, this.steps.len()))));
        let (whole, steps, carried) = (&this.whole, this.steps.clone(), &this.carried);
        ScriptBatch::of(whole.clone(), steps, added.into(), carried.clone())
    }

    /// Returns the batch one step further, whose responses or groups are those of `frame`.
    pub(super) fn after(&self, frame: Arc<Frame>, group: Option<usize>) -> ScriptBatch {
        let (this, mut steps) = (&*self.0, self.0.steps.clone());
        steps.push(Step { frame, group });
        ScriptBatch::of(
            this.whole.clone(),
            steps,
            this.added.clone(),
            Arc::default(),
        )
    }

    pub(crate) fn frame(&self) -> &Arc<Frame> {
        let last = self.0.steps.last();
        last.map_or(&self.0.whole.frame, |step| &step.frame)
    }

    pub(crate) fn call(&self) -> &Arc<CallContext> {
        &self.0.whole.call
    }

    /// Converts a tensor of the batch that is `steps` steps from the whole batch to a tensor of this batch.
    pub(super) fn carry(&self, tensor: Tensor, steps: usize) -> Result<Tensor, TensorError> {
        let mut rest = self.0.steps[steps..].iter();
        rest.try_fold(tensor, |tensor, step| match step.group {
            Some(group) => tensor.select(group, &step.frame),
            None => tensor.rehomed(&step.frame),
        })
    }

    /// Returns the columns of the whole batch that have been used so far.
    pub(crate) fn known_columns(&self) -> Vec<(String, Tensor)> {
        lock(&self.0.whole.columns).clone().into_iter().collect()
    }

    /// Returns the names of the batch's own columns, including those that a script added, and of the columns that can be derived.
    pub(crate) fn column_names(&self) -> (Vec<String>, Vec<String>) {
        let (mut own, mut derived) = self.0.whole.column_names();
        let mut added: Vec<String> = self.0.added.keys().cloned().collect();
        added.retain(|name| !own.contains(name));
        own.extend(added);
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

    /// Returns the column of a name, which may be derived. If there is none, the error says which columns there are.
    pub(crate) fn column(&self, name: &str) -> Result<Tensor, CallError> {
        let found = self.find(name)?;
        found.ok_or_else(|| self.0.whole.unknown(name))
    }

    /// Returns the column of a name; `None` if the batch neither has the column nor can derive it.
    pub(in crate::script) fn find(&self, name: &str) -> Result<Option<Tensor>, CallError> {
        let added = self.0.added.get(name).cloned();
        let found = match added {
            None => self.0.whole.find(name)?.map(|tensor| (tensor, 0)),
            added => added,
        };
        let Some((tensor, steps)) = found else {
            return Ok(None);
        };
        if steps == self.0.steps.len() {
            return Ok(Some(tensor));
        }
        if let Some(known) = lock(&self.0.carried).get(name) {
            return Ok(Some(known.clone()));
        }
        let carried = self.carry(tensor, steps)?;
        let mut all = lock(&self.0.carried);
        Ok(Some(all.entry(name.to_string()).or_insert(carried).clone()))
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
                let help = "`batch.regroup(key)` makes other groups";
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
        self.complete_rewards(&mut given)?;
        Ok(self.with(given))
    }

    /// If only one of `reward` and `token_reward` is given, derives the other, unless the given column is the batch's own.
    pub(in crate::script) fn complete_rewards(
        &self,
        given: &mut BTreeMap<String, Tensor>,
    ) -> Result<(), TensorError> {
        let own = |name, x: &Tensor| self.known(name).is_some_and(|own| own.same(x));
        let (name, other) = match (given.get("reward"), given.get("token_reward")) {
            (Some(x), None) if !own("reward", x) => ("token_reward", op::at_last_token(x)?),
            (None, Some(x)) if !own("token_reward", x) => ("reward", op::sum_of_tokens(x)?),
            _ => return Ok(()),
        };
        given.insert(name.to_string(), other);
        Ok(())
    }

    /// Returns a column of this batch, if it has been added or used already.
    fn known(&self, name: &str) -> Option<Tensor> {
        let last = self.0.steps.len();
        match self.0.added.get(name) {
            Some((tensor, steps)) if *steps == last => Some(tensor.clone()),
            None if last == 0 => lock(&self.0.whole.columns).get(name).cloned(),
            _ => lock(&self.0.carried).get(name).cloned(),
        }
    }

    /// Returns whether a column exists without being derived, because it is the batch's own or was added.
    pub(in crate::script) fn has(&self, name: &str) -> bool {
        self.0.added.contains_key(name) || self.0.whole.batch.has(name)
    }
}

impl WholeBatch {
    fn column_names(&self) -> (Vec<String>, Vec<String>) {
        let own = self.batch.column_names().map(|name| name.to_string());
        let derived = DERIVED.iter().map(|(name, _)| name.to_string());
        let own: Vec<String> = own.collect();
        let derived = derived
            .filter(|name| !own.contains(name) && self.follows(name))
            .collect();
        (own, derived)
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

    fn find(&self, name: &str) -> Result<Option<Tensor>, CallError> {
        let known = lock(&self.columns).get(name).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let found = self.own_column(name)?;
        let mut columns = lock(&self.columns);
        Ok(found.map(|tensor| columns.entry(name.to_string()).or_insert(tensor).clone()))
    }

    pub(super) fn column(&self, name: &str) -> Result<Tensor, CallError> {
        self.find(name)?.ok_or_else(|| self.unknown(name))
    }

    fn own_column(&self, name: &str) -> Result<Option<Tensor>, CallError> {
        if let Some(values) = self.batch.response_buffer(name) {
            return Ok(Some(self.of_batch(values)?));
        }
        if let Some(store) = self.batch.token_column(name) {
            return Ok(Some(Tensor::column(&self.frame, store.clone())));
        }
        let follows = self.follows(name);
        follows.then(|| self.derived(name)).transpose()
    }

    /// Derives a column from other columns, by the usual conventions.
    fn derived(&self, name: &str) -> Result<Tensor, CallError> {
        Ok(match name {
            "reward" if self.batch.has("token_reward") => {
                op::sum_of_tokens(&self.column("token_reward")?)?
            }
            "reward" => self.column("correct")?,
            "correct" if !self.batch.has("reward") && !self.batch.has("token_reward") => {
                self.note("there is no column `reward`: the reward is 1 where the completion's answer equals the solution's, and 0 elsewhere");
                self.column("verified")?
            }
            "verified" => self.verified()?,
            "token_reward" => op::at_last_token(&self.column("reward")?)?,
            "correct" => {
                // This is the batch's own reward, because a reward that a script has shaped is not a column of the whole batch.
                op::greater(&self.column("reward")?, &Tensor::number(0.0))?
            }
            "logp" => {
                let old = self
                    .batch
                    .token_column("old_logp")
                    .ok_or_else(|| self.unknown(name))?;
                self.note(OLD_FOR_LOGP);
                // This makes a separate leaf of the graph, because `old_logp` must have no part in a gradient with respect to
                // `logp`.
                Tensor::column(&self.frame, old.clone())
            }
            "turn" => {
                // Each run of tokens between two holes in a response's mask is one turn of the trajectory.
                let layout = self.frame.layout();
                let runs =
                    (0..layout.responses()).flat_map(|one| layout.runs(one).iter().enumerate());
                let turns = runs.flat_map(|(turn, run)| repeat_n(turn as f32, run.len as usize));
                let turns: Vec<f32> = turns.collect();
                Tensor::from_buffer(&self.frame, Level::Token, turns.into())?
            }
            _ => {
                let layout = self.frame.layout();
                let tokens_of = |response| layout.tokens_of(response).len() as f64;
                let lengths = (0..layout.responses()).map(tokens_of);
                Tensor::of_responses(&self.frame, lengths.collect())?
            }
        })
    }

    /// Makes a tensor from a response column's values, which it shares with the batch.
    fn of_batch(&self, values: &Buffer<f64>) -> Result<Tensor, TensorError> {
        let values = FloatBuffer::F64(values.clone());
        Tensor::from_buffer(&self.frame, Level::Response, values)
    }

    fn note(&self, note: &str) {
        self.call.effects().note(note.to_string());
    }

    /// Computes the column `verified`: 1 if the answer of a response's completion equals that of its solution, 0 otherwise. Fails
    /// if the call is cancelled.
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
            let (_, derived) = self.column_names();
            let derived = suggest::list(derived.iter().map(String::as_str));
            match (&*suggest::list(own), &*derived) {
                ("", "") => "it has only groups".to_string(),
                ("", names) | (names, "") => format!("it has {names}"),
                (own, derived) => format!("it has {own}; derived from these: {derived}"),
            }
        };
        error.with_help(help).into()
    }
}
