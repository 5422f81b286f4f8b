//! Keys of batches: the texts by which a script tells responses apart, from columns of texts or numbers.

use std::sync::Arc;

use rhai::{Dynamic, ImmutableString};

use super::columns::{ScriptBatch, WholeBatch};
use crate::parallel::lock;
use crate::script::bindings::keys::Key;
use crate::script::error::CallError;
use crate::script::value::text;
use crate::suggest;
use crate::tensor::{Level, Tensor};

impl ScriptBatch {
    /// The key of columns whose names a script gives, at least one.
    pub(super) fn key_of<'a>(
        &self,
        names: impl Iterator<Item = &'a Dynamic>,
    ) -> Result<Key, CallError> {
        let names: Option<Vec<ImmutableString>> = names.map(text).collect();
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let help = "as in `batch.key([\"agent\", \"episode\"])`";
            let message = "a key is made of the names of columns";
            return Err(CallError::new(message, help));
        };
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        self.key(&names, self.0.steps.len())
    }

    /// The key made of the columns of these names, texts or numbers, for the batch after some steps; `group` is the key of the
    /// groups.
    fn key(&self, names: &[&str], steps: usize) -> Result<Key, CallError> {
        let added = &self.0.added;
        let taken = names
            .iter()
            .filter_map(|name| Some(added.columns.get(*name)?.1));
        let (keys, home) = match taken.max() {
            Some(home) => (&added.keys, home),
            None => (&self.0.whole.keys, 0),
        };
        let joined: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let known = lock(keys).get(&joined).cloned();
        let mut key = match known {
            Some(key) => key,
            None => {
                let columns = names.iter().map(|name| self.texts(name, home));
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                let frame = self.frame_after(home);
                let rows = 0..frame.layout().responses();
                let key = Key::of(frame, self.call(), rows.map(|row| text_of(&columns, row)))?;
                lock(keys).insert(joined, key.clone());
                key
            }
        };
        key.codes = self.convert(key.codes, home, steps)?;
        Ok(key)
    }

    /// The text of each response in a column of texts or numbers, for the batch after some steps.
    fn texts(&self, name: &str, steps: usize) -> Result<Vec<Arc<str>>, CallError> {
        match self.0.added.columns.get(name) {
            Some((tensor, taken)) => numbers(name, &self.convert(tensor.clone(), *taken, steps)?),
            None if steps == 0 => self.0.whole.texts(name),
            None => Ok(self.key(&[name], steps)?.texts()?),
        }
    }
}

impl WholeBatch {
    fn texts(&self, name: &str) -> Result<Vec<Arc<str>>, CallError> {
        let (batch, layout) = (&self.batch, self.batch.layout());
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
        numbers(name, &column)
    }
}

/// The numbers of a response column as texts.
fn numbers(name: &str, column: &Tensor) -> Result<Vec<Arc<str>>, CallError> {
    if column.level() != Level::Response {
        let level = column.level();
        let message =
            format!("a key has one text or number a response, and `{name}` is a {level} column");
        let help = format!("reduce it first: `batch.regroup({name}.sum(\"response\"))`");
        return Err(CallError::new(message, help));
    }
    // -0.0 and 0.0 are one.
    let numbers = column.evaluate()?;
    let texts = numbers.iter().map(|x| (x + 0.0).to_string().into());
    Ok(texts.collect())
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
