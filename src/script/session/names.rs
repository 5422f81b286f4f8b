//! What can be typed next: functions, variables, and the members of what stands before a dot.

use rhai::packages::{
    BasicArrayPackage, BasicMapPackage, BasicMathPackage, CorePackage, LogicPackage,
    MoreStringPackage, Package,
};
use rhai::{Array, Dynamic, Engine, ImmutableString, Map};

use super::super::batch_type::ScriptBatch;
use super::super::members::{MEMBERS, Owner};
use super::{LAST, Session};
use crate::tensor::Tensor;
use crate::tensor::op;

/// Something that can be typed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// What is typed: `mean(` for a function with arguments, `len()` for one without, `reward` for a value.
    pub text: String,
    /// How it is called, as in `x.mean(to, [where])`; empty for a value.
    pub call: String,
}

/// What stands before a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// A tensor.
    Tensor,
    /// A batch.
    Batch,
    /// The recipe's parameters, or another map of that name.
    Map,
    /// An array.
    Array,
    /// A text.
    Text,
    /// A number, true or false.
    Number,
}

impl Session {
    /// Whether the text is a whole input that compiles.
    pub fn compiles(&self, text: &str) -> bool {
        let engine = self.engine(text);
        engine
            .compile_with_scope(&self.scope, self.transcript.padded(text))
            .is_ok()
    }

    /// Whether an input made a variable of that name.
    pub fn has_variable(&self, name: &str) -> bool {
        self.scope.contains(name)
    }

    /// The variables that hold tensors of the batch, or batches.
    pub fn tensor_names(&self) -> Vec<String> {
        let own = self.own_variables();
        let of_batch = own.filter(|(_, value)| value.is::<Tensor>() || value.is::<ScriptBatch>());
        of_batch.map(|(name, ..)| name.to_string()).collect()
    }

    /// Functions and variables.
    pub fn names(&self) -> Vec<Name> {
        let rows = op::table().filter(|op| is_word(op.name));
        let mut names: Vec<Name> = rows.map(|op| call(op.name, op.signature(), 1)).collect();
        let reports = MEMBERS.iter().filter(|member| member.of == Owner::Nobody);
        names.extend(reports.map(|member| call(member.name, member.call.to_string(), 1)));
        for function in self.functions.iter_functions() {
            let signature = format!("{}({})", function.name, function.params.join(", "));
            names.push(call(function.name, signature, function.params.len()));
        }
        if self.recipe.is_some() {
            names.extend(
                ["reward", "advantage", "loss"].map(|hook| call(hook, format!("{hook}()"), 0)),
            );
        }
        let variables = self.own_variables().map(|(name, _)| name);
        names.extend(variables.chain(["batch", "p"]).map(value));
        in_order(names)
    }

    /// What can follow a dot after the text.
    pub fn members(&self, text: &str) -> Vec<Name> {
        let names = match self.receiver(text) {
            Some(Receiver::Batch) => self.of_batch(),
            Some(Receiver::Map) => self.keys(text),
            Some(Receiver::Number) => self.of_language(&["f64", "i64", "FLOAT", "INT"]),
            Some(Receiver::Array) => self.of_language(&["Array"]),
            Some(Receiver::Text) => self.of_language(&["ImmutableString", "String", "&str"]),
            // What is not known is most likely a tensor.
            Some(Receiver::Tensor) | None => of_tensor(),
        };
        in_order(names)
    }

    /// What kind of value the text is, as far as that can be known without running it.
    pub fn receiver(&self, text: &str) -> Option<Receiver> {
        let text = text.trim_end();
        if text.ends_with(['"', '`']) {
            return Some(Receiver::Text);
        }
        if let Some(before) = text.strip_suffix(')') {
            return match called(before) {
                "value" | "len" => Some(Receiver::Number),
                "values" => Some(Receiver::Array),
                "regroup" => Some(Receiver::Batch),
                _ => Some(Receiver::Tensor),
            };
        }
        if let Some(before) = text.strip_suffix(']') {
            let open = before.rfind('[').unwrap_or(0);
            return before[..open]
                .ends_with("groups")
                .then_some(Receiver::Batch);
        }
        let start = text
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |at| at + 1);
        let (before, word) = text.split_at(start);
        if before.ends_with('.') {
            return Some(match word {
                "groups" => Receiver::Array,
                "step" => Receiver::Number,
                _ => Receiver::Tensor,
            });
        }
        let variable = if word == "_" { LAST } else { word };
        match self.scope.get(variable) {
            Some(found) => kind(found),
            None if word.starts_with(|c: char| c.is_ascii_digit()) => Some(Receiver::Number),
            // The parameter of a function over groups.
            None => (word == "g").then_some(Receiver::Batch),
        }
    }

    fn of_batch(&self) -> Vec<Name> {
        let (own, derived) = self.stage.batch.column_names();
        let reachable = derived
            .iter()
            .filter(|name| self.stage.batch.can_derive(name));
        let mut names: Vec<Name> = own
            .iter()
            .chain(reachable)
            .map(|name| value(name))
            .collect();
        for member in MEMBERS
            .iter()
            .filter(|member| member.of == Owner::Batch && member.name != "column")
        {
            names.push(match member.call.contains('(') {
                true => call(member.name, member.call.to_string(), 1),
                false => value(member.name),
            });
        }
        names
    }

    fn keys(&self, text: &str) -> Vec<Name> {
        let name = text
            .trim_end()
            .rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
            .next();
        let map = name
            .and_then(|name| self.scope.get(name))
            .and_then(|value| value.read_lock::<Map>());
        map.map_or(Vec::new(), |map| map.keys().map(|key| value(key)).collect())
    }

    /// The functions of the language whose first argument is of one of the types.
    fn of_language(&self, types: &[&str]) -> Vec<Name> {
        language().collect_fn_metadata(
            None,
            |info| {
                let metadata = info.metadata;
                let first = metadata.params_info.first()?;
                let kind = first.rsplit(':').next()?.trim().trim_start_matches("&mut ");
                let fits = types.contains(&kind) && is_word(&metadata.name);
                fits.then(|| call(&metadata.name, String::new(), metadata.num_params - 1))
            },
            true,
        )
    }
}

/// The tensor's members, and the op table, whose rows can all be called as methods.
fn of_tensor() -> Vec<Name> {
    let members = MEMBERS
        .iter()
        .filter(|member| member.of == Owner::Tensor && member.name != "index");
    let mut names: Vec<Name> = members
        .map(|member| match member.call.contains('(') {
            true => call(member.name, member.call.to_string(), 0),
            false => value(member.name),
        })
        .collect();
    let rows = op::table().filter(|op| is_word(op.name));
    names.extend(rows.map(|op| call(op.name, op.signature(), op.params.len() - 1)));
    names
}

fn kind(value: &Dynamic) -> Option<Receiver> {
    if value.is::<Tensor>() {
        Some(Receiver::Tensor)
    } else if value.is::<ScriptBatch>() {
        Some(Receiver::Batch)
    } else if value.is::<Map>() {
        Some(Receiver::Map)
    } else if value.is::<Array>() {
        Some(Receiver::Array)
    } else if value.is::<ImmutableString>() {
        Some(Receiver::Text)
    } else {
        super::super::bind::number(value).map(|_| Receiver::Number)
    }
}

/// The name of the function whose arguments end the text.
fn called(before: &str) -> &str {
    let mut depth = 1;
    let open = before.char_indices().rev().find(|(_, letter)| {
        depth += match letter {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    });
    let head = open.map_or("", |(at, _)| &before[..at]);
    head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()
        .unwrap_or("")
}

fn is_word(name: &str) -> bool {
    name.starts_with(char::is_alphabetic) && !name.contains('$')
}

fn call(name: &str, call: String, arguments: usize) -> Name {
    let text = match arguments {
        0 => format!("{name}()"),
        _ => format!("{name}("),
    };
    Name { text, call }
}

fn value(name: &str) -> Name {
    Name {
        text: name.to_string(),
        call: String::new(),
    }
}

fn in_order(mut names: Vec<Name>) -> Vec<Name> {
    names.sort();
    names.dedup_by(|b, a| a.text == b.text);
    names
}

/// An engine that has what the language itself gives to scripts.
fn language() -> Engine {
    let mut engine = Engine::new_raw();
    for package in [
        CorePackage::new().as_shared_module(),
        LogicPackage::new().as_shared_module(),
        BasicMathPackage::new().as_shared_module(),
        BasicArrayPackage::new().as_shared_module(),
        BasicMapPackage::new().as_shared_module(),
        MoreStringPackage::new().as_shared_module(),
    ] {
        engine.register_global_module(package);
    }
    engine
}

/// Definition files of what the language itself gives: name and content.
pub(crate) fn language_definitions() -> Vec<(String, String)> {
    language().definitions().iter_files().collect()
}
