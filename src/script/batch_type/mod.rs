//! The batch as scripts see it: columns as properties, derived ones among them, groups, and random numbers.

mod by_group;
mod columns;

pub(crate) use columns::OLD_FOR_LOGP;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rhai::{Array, Dynamic, FnPtr, INT, ImmutableString, Module, NativeCallContext as Context};

use super::call::Call;
use super::engine::{add, add_raw, add_type};
use super::error::{CallError, Raised, located};
use super::key::{Key, of_responses};
use super::sandbox::ENOUGH;
use super::value::{as_tensor, describe, level_of, text};
use crate::batch::Batch;
use crate::parallel::lock;
use crate::suggest;
use crate::tensor::{Frame, Level, Reservation, Tensor, TensorError, op};

#[derive(Clone, Debug)]
pub(crate) struct ScriptBatch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    frame: Arc<Frame>,
    call: Arc<Call>,
    source: Source,
    /// Columns that hide the source's columns of the same name: a shaped reward, the advantage, columns of a script.
    given: BTreeMap<String, Tensor>,
    /// Tensors by column name, each made once: a gradient by `batch.logp` must meet the same node everywhere.
    columns: Mutex<BTreeMap<String, Tensor>>,
    /// Keys by the names of their columns.
    keys: Mutex<BTreeMap<Vec<String>, Key>>,
    _reservation: Option<Reservation>,
}

#[derive(Debug)]
enum Source {
    Batch(Batch),
    /// The group of this index in another batch, or all responses of that batch, in the same or in new groups.
    Of(ScriptBatch, Option<usize>),
}

/// Columns that can be derived if the batch lacks them, each with the columns of which any one suffices.
const DERIVED: [(&str, &[&str]); 6] = [
    ("reward", &["token_reward", "correct", "verified"]),
    ("token_reward", &["reward", "correct", "verified"]),
    ("correct", &["reward", "token_reward", "verified"]),
    ("verified", &[]),
    ("logp", &["old_logp"]),
    ("length", &[]),
];

impl ScriptBatch {
    /// A whole batch, in one call.
    pub(crate) fn new(call: Arc<Call>, batch: &Batch) -> Self {
        let frame = Frame::new(batch.layout().clone(), batch.is_f64(), call.context.clone());
        ScriptBatch::over(frame, call, Source::Batch(batch.clone()), BTreeMap::new())
    }

    /// The same batch, with columns that hide its own.
    pub(super) fn with(&self, given: BTreeMap<String, Tensor>) -> Self {
        if given.is_empty() {
            return self.clone();
        }
        let source = Source::Of(self.clone(), None);
        ScriptBatch::over(self.frame().clone(), self.call().clone(), source, given)
    }

    /// A group of the batch, or all its responses, over another frame.
    fn part(&self, frame: Arc<Frame>, group: Option<usize>) -> ScriptBatch {
        let source = Source::Of(self.clone(), group);
        ScriptBatch::over(frame, self.call().clone(), source, BTreeMap::new())
    }

    fn over(
        frame: Arc<Frame>,
        call: Arc<Call>,
        source: Source,
        given: BTreeMap<String, Tensor>,
    ) -> Self {
        // The maps' nodes have room for 11 entries; more are seldom.
        let _reservation =
            (frame.context.guard).hold(size_of::<Inner>() + 1024 + 128 * given.len());
        ScriptBatch(Arc::new(Inner {
            _reservation,
            frame,
            call,
            source,
            given,
            columns: Mutex::default(),
            keys: Mutex::default(),
        }))
    }

    /// Converts a tensor of the source batch to a tensor of this batch.
    fn own(&self, tensor: Tensor) -> Result<Tensor, TensorError> {
        match &self.0.source {
            Source::Of(_, Some(group)) => tensor.select(*group, self.frame()),
            Source::Of(base, None) if !Arc::ptr_eq(base.frame(), self.frame()) => {
                tensor.rehomed(self.frame())
            }
            _ => Ok(tensor),
        }
    }

    pub(crate) fn frame(&self) -> &Arc<Frame> {
        &self.0.frame
    }

    pub(crate) fn call(&self) -> &Arc<Call> {
        &self.0.call
    }

    /// One batch per group, in the groups' order.
    fn groups(&self) -> impl Iterator<Item = ScriptBatch> {
        self.frame().look_at();
        let groups = 0..self.frame().layout().groups();
        groups.map(|group| self.part(self.frame().group(group), Some(group)))
    }

    /// The batch with its groups split by a key or by the values of a response tensor; `across` ignores the old groups.
    fn regroup(&self, by: &Dynamic, across: bool) -> Result<ScriptBatch, CallError> {
        self.frame().look_at();
        let key = by.read_lock::<Key>();
        let values = match &key {
            Some(key) => of_responses(self.frame(), &Dynamic::from(key.codes.clone()))?,
            None => of_responses(self.frame(), by)?,
        };
        let name = |code: f64| match &key {
            Some(key) => key.name(code),
            None => code.to_string().into(),
        };
        let layout = self.frame().layout().regroup(&values, across, name);
        Ok(self.part(self.frame().with_layout(layout), None))
    }

    /// The key of columns whose names a script gives, at least one.
    fn key_of<'a>(&self, names: impl Iterator<Item = &'a Dynamic>) -> Result<Key, CallError> {
        let names: Option<Vec<ImmutableString>> = names.map(text).collect();
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let help = "as in `batch.key([\"agent\", \"episode\"])`";
            let message = "a key is made of the names of columns";
            return Err(CallError::new(message, help));
        };
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        self.key(&names)
    }

    /// The key made of the columns of these names, texts or numbers; `group` is the key of the groups.
    fn key(&self, names: &[&str]) -> Result<Key, CallError> {
        let cached: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        if let Some(key) = lock(&self.0.keys).get(&cached) {
            return Ok(key.clone());
        }
        let are_given = names.iter().any(|&name| self.0.given.contains_key(name));
        let key = match &self.0.source {
            Source::Of(base, _) if !are_given => {
                let mut key = base.key(names)?;
                key.codes = self.own(key.codes)?;
                key
            }
            _ => {
                let columns = names.iter().map(|name| self.texts(name));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let rows = 0..self.frame().layout().responses();
                let texts = rows.map(|row| text_of(&columns, row));
                Key::of(self.frame(), self.call(), texts)?
            }
        };
        lock(&self.0.keys).insert(cached, key.clone());
        Ok(key)
    }

    /// The text of each response in a column of texts or numbers.
    fn texts(&self, name: &str) -> Result<Vec<Arc<str>>, CallError> {
        if let Some(given) = self.0.given.get(name) {
            return self.numbers(name, given);
        }
        let Source::Batch(batch) = &self.0.source else {
            return Ok(self.key(&[name])?.texts()?);
        };
        let layout = batch.layout();
        if let Some(texts) = batch.text(name) {
            return Ok(texts.to_vec());
        }
        if name == "group" {
            let names = (0..layout.groups()).map(|group| layout.group_id(group).name());
            let names: Vec<Arc<str>> = names.map(|name| (&*name).into()).collect();
            let groups = (0..layout.responses()).map(|row| layout.group_of(row));
            return Ok(groups.map(|group| names[group].clone()).collect());
        }
        let column = self.column(name).map_err(|mut error| {
            let texts = suggest::list(batch.texts().map(|(name, _)| name));
            if let Some(help) = &mut error.diagnostic.help
                && help.starts_with("it has")
                && !texts.is_empty()
            {
                *help += &format!("; its columns of texts are {texts}");
            }
            error
        })?;
        self.numbers(name, &column)
    }

    /// The numbers of a response column as texts.
    fn numbers(&self, name: &str, column: &Tensor) -> Result<Vec<Arc<str>>, CallError> {
        if column.level() != Level::Response {
            let level = column.level();
            let message = format!(
                "a key has one text or number a response, and `{name}` is a {level} column"
            );
            let help = format!("reduce it first: `batch.regroup({name}.sum(\"response\"))`");
            return Err(CallError::new(message, help));
        }
        // -0.0 and 0.0 are one.
        let numbers = column.evaluate()?;
        let texts = numbers.iter().map(|x| (x + 0.0).to_string().into());
        Ok(texts.collect())
    }

    /// The name of the group whose batch this is.
    fn own_key(&self) -> Raised<ImmutableString> {
        self.frame().look_at();
        match &self.0.source {
            Source::Of(_, Some(_)) => Ok((&*self.frame().layout().group_id(0).name()).into()),
            _ => {
                let message = "`key` is the name of one group, `g.key` in `for g in batch.groups`";
                let help = "those of all responses are `batch.key(\"group\")`";
                Err(CallError::new(message, help).into())
            }
        }
    }

    /// Random numbers, or the values of a column `random` of that level: so a recipe reproduces the results of another program.
    fn random(&self, level: Level) -> Result<Tensor, CallError> {
        if self.has("random") {
            let given = self.column("random")?;
            if given.level() == level {
                return Ok(given);
            }
        }
        Ok(Tensor::random(self.frame(), level, self.0.call.next_key()))
    }

    /// 1 for `k` responses of each cell of a level, drawn at random.
    fn subset(&self, level: &str, k: &Dynamic) -> Result<Tensor, CallError> {
        let level = level_of("subset", level)?;
        let k = as_tensor(k).ok_or_else(|| {
            TensorError::argument("subset", "k", "a number or a tensor", &describe(k))
        })?;
        Ok(op::subset(&self.random(Level::Response)?, level, &k)?)
    }
}

pub(super) fn batch_type(module: &mut Module) {
    type Batch = ScriptBatch;
    add_type(module, "batch", summary, &[]);
    module.set_indexer_get_fn(|batch: &mut Batch, name: ImmutableString| {
        Raised::Ok(match name.as_str() {
            // Steps are far below 2^63.
            "step" => Dynamic::from_int(batch.call().step as INT),
            "key" if !batch.has(&name) => Dynamic::from(batch.own_key()?),
            "groups" => batch.groups().take(ENOUGH).map(Dynamic::from).collect(),
            name => Dynamic::from(batch.column(name)?),
        })
    });
    add(module, "has", |batch: &mut Batch, name: &str| {
        matches!(batch.find(name), Ok(Some(_)))
    });
    add(module, "columns", |batch: &mut Batch, start: &str| {
        let mut names = batch.column_names().0;
        names.retain(|name| name.starts_with(start));
        names.sort();
        names.into_iter().map(Dynamic::from).collect::<Array>()
    });
    add(module, "column", |batch: &mut Batch, name: &str| {
        Raised::Ok(batch.column(name)?)
    });
    add(module, "with", Batch::with_columns);
    let random = |context: Context, batch: &mut Batch, level: &str| {
        let level = level_of("random", level);
        located(&context, level.and_then(|level| batch.random(level)))
    };
    add(module, "random", random);
    let subset = |context: Context, batch: &mut Batch, level: &str, k: Dynamic| {
        located(&context, batch.subset(level, &k))
    };
    add(module, "subset", subset);
    let map_groups = |context: Context, batch: &mut Batch, f: FnPtr| batch.map_groups(&context, &f);
    add(module, "map_groups", map_groups);
    for (name, across) in [("regroup", false), ("group_by", true)] {
        let regroup = move |context: Context, batch: &mut Batch, by: Dynamic| {
            located(&context, batch.regroup(&by, across))
        };
        add(module, name, regroup);
    }
    // `batch.key(NAME)`, with one to three names or an array of them.
    for count in 1..=3 {
        let mut types = vec![TypeId::of::<Batch>()];
        types.resize(1 + count, TypeId::of::<Dynamic>());
        add_raw(module, "key", &types, |context, args| {
            let batch = args[0].clone_cast::<Batch>();
            let key = match args[1].read_lock::<Array>().filter(|_| args.len() == 2) {
                Some(names) => batch.key_of(names.iter()),
                None => batch.key_of(args[1..].iter().map(|name| &**name)),
            };
            located(context, key.map(Dynamic::from))
        });
    }
}

/// The texts of a row; several columns are joined so that rows with different texts stay different.
fn text_of(columns: &[Vec<Arc<str>>], row: usize) -> Arc<str> {
    match columns {
        [column] => column[row].clone(),
        columns => {
            let texts = columns.iter().map(|column| column[row].replace('/', "//"));
            texts.collect::<Vec<_>>().join("/ ").into()
        }
    }
}

fn summary(batch: &ScriptBatch) -> Result<Dynamic, CallError> {
    batch.frame().look_at();
    let layout = batch.frame().layout();
    let (groups, responses, tokens) = (layout.groups(), layout.responses(), layout.tokens());
    Ok(format!("batch of {groups} groups, {responses} responses, {tokens} tokens").into())
}
