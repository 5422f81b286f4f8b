//! The names that a session offers for completion: functions, variables, and the members of the type of the value before a dot.

use rhai::{Engine, Map};

use super::answer::Answer;
use super::evaluate::Session;
use crate::diagnostic::Diagnostics;
use crate::script::engine::packages;
use crate::script::functions::is_listed;
use crate::script::syntax::{Token, TokenKind};
use crate::script::value::type_named;
use crate::script::{Hook, MEMBERS, Member, Owner};
use crate::tensor::op;

/// A name that can be typed next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The text to type: `mean(` for a function with arguments, `len()` for a function without arguments, `reward` for a value.
    pub text: String,
    /// The form of a call, such as `x.mean(level, [selection])`; empty for a value and for a function of the language itself.
    pub call: String,
}

impl Name {
    fn value(name: &str) -> Name {
        Name {
            text: name.to_string(),
            call: String::new(),
        }
    }

    fn function(name: &str, call: String, arguments: usize) -> Name {
        let brackets = if arguments == 0 { "()" } else { "(" };
        Name {
            text: format!("{name}{brackets}"),
            call,
        }
    }
}

impl Session {
    /// Returns whether there is a variable with the given name; `batch`, `p` and `_` are variables too.
    pub fn has_variable(&self, name: &str) -> bool {
        self.scope.contains(name)
    }

    /// Returns the names and values of the variables that the inputs have defined.
    pub fn variables(&self) -> Vec<(String, Result<Answer, Diagnostics>)> {
        self.guard.rearm();
        let named = self
            .own_variables()
            .map(|(name, value)| (name.to_string(), self.answer("", value)));
        let variables = named.collect();
        // To show a batch, all its columns are read. The notes on them are dropped, because they do not belong to the next input.
        self.batch.call().take_reports();
        variables
    }

    /// Returns the functions and variables that can be typed, without the language's own functions, in alphabetical order.
    pub fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = of_table(0).chain(members_of(Owner::Nobody)).collect();
        names.extend(self.functions.iter_functions().map(|function| {
            let signature = format!("{}({})", function.name, function.params.join(", "));
            Name::function(function.name, signature, function.params.len())
        }));
        if self.recipe.is_some() {
            let hooks = Hook::OF_BATCH.map(Hook::name);
            names.extend(hooks.map(|hook| Name::function(hook, format!("{hook}()"), 0)));
        }
        let variables = self.own_variables().map(|(name, _)| name);
        names.extend(variables.chain(["batch", "p"]).map(Name::value));
        in_order(names)
    }

    /// Returns the names that can follow a dot after the tokens. They depend on the type of the variable before the dot. An
    /// expression that is not a variable is not computed; its type is guessed, and is usually taken to be a tensor.
    pub fn members(&self, code: &[Token<'_>]) -> Vec<Name> {
        let last = match code {
            [.., dot, _] if dot.text == "." => None,
            code => code.last(),
        };
        let value = last.and_then(|name| self.scope.get(name.text));
        let type_name = match (value, last.map(|token| (token.kind, token.text))) {
            (Some(value), _) => type_named(value.type_name()).0,
            // A function that takes a group usually calls it `g`, and an indexed element that has members is most likely an
            // element of `batch.groups`.
            (None, Some((TokenKind::Name, "g") | (TokenKind::Symbol, "]"))) => "batch",
            (None, Some((TokenKind::String, _))) => "string",
            (None, Some((TokenKind::Number, _))) => "f64",
            _ => "",
        };
        in_order(match type_name {
            "batch" => {
                let (own, derived) = self.batch.column_names();
                let columns = own.iter().chain(&derived).map(|name| Name::value(name));
                columns.chain(members_of(Owner::Batch)).collect()
            }
            "map" => {
                let map = value.and_then(|value| value.read_lock::<Map>());
                let keys = map.iter().flat_map(|map| map.keys());
                keys.map(|key| Name::value(key)).collect()
            }
            "f64" | "i64" | "bool" => of_language(&["f64", "i64"]),
            "array" | "string" => of_language(&[type_name]),
            _ => members_of(Owner::Tensor).chain(of_table(1)).collect(),
        })
    }
}

/// Returns the functions of the language itself whose first argument has one of the types.
fn of_language(types: &[&str]) -> Vec<Name> {
    let mut engine = Engine::new_raw();
    for package in packages() {
        engine.register_global_module(package);
    }
    engine.collect_fn_metadata(
        None,
        |info| {
            let metadata = info.metadata;
            let first = metadata.params_info.first()?.rsplit(':').next()?;
            let own = type_named(first.trim().trim_start_matches("&mut ")).0;
            let fits = types.contains(&own) && is_word(&metadata.name) && is_listed(metadata);
            fits.then(|| Name::function(&metadata.name, String::new(), metadata.num_params - 1))
        },
        true,
    )
}

/// Returns the members of an owner, except `x[i]`, which does not follow a dot, and `batch.NAME`, which stands for any column.
fn members_of(owner: Owner) -> impl Iterator<Item = Name> {
    let is_typed = move |one: &&Member| one.of == owner && !["column", "index"].contains(&one.name);
    let members = MEMBERS.iter().filter(is_typed);
    members.map(|member| match member.call.split_once('(') {
        None => Name::value(member.name),
        Some((_, rest)) => {
            let arguments = usize::from(rest != ")");
            Name::function(member.name, member.call.to_string(), arguments)
        }
    })
}

/// Returns the functions of the op table. All of them can be called as methods; for method calls, `receivers` is 1, because the
/// first argument is before the dot.
fn of_table(receivers: usize) -> impl Iterator<Item = Name> {
    let rows = op::table().filter(|op| is_word(op.name));
    rows.map(move |op| Name::function(op.name, op.signature(), op.params.len() - receivers))
}

fn is_word(name: &str) -> bool {
    name.starts_with(char::is_alphabetic) && !name.contains('$')
}

fn in_order(mut names: Vec<Name>) -> Vec<Name> {
    names.sort();
    names.dedup_by(|b, a| a.text == b.text);
    names
}
