//! What was typed, as a script: for `:save`, and for the recipe that a formula or a typed hook is.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::items::{Function, Item, items, mentions_last, names, rewritten};
use crate::diagnostic::Diagnostics;
use crate::script::{Builtin, Computed, Hook, Host, MEMBERS, Owner, Parameter, Recipe, Setting};
use crate::tensor::op;

/// What messages call the recipe that was typed.
const NAME: &str = "what you typed";

/// Functions of the language that change nothing, beside the op table and the members.
const PURE: [&str; 8] = [
    "len", "to_int", "to_float", "is_empty", "contains", "keys", "extract", "type_of",
];

/// An input that was right.
struct Input {
    items: Vec<Item>,
    /// Whether it had a value: the next `_` means that.
    has_value: bool,
    /// Whether the value can be an advantage: a response or token tensor.
    is_signal: bool,
    /// The recipe that was in use, with its settings: its hooks are `advantage()` and the like in the text.
    recipe: Option<Arc<Recipe>>,
}

/// The inputs of a session that were right, in order.
#[derive(Default)]
pub(super) struct Typed {
    inputs: Vec<Input>,
    /// The last value that can be an advantage.
    signal: Option<Computed>,
}

/// What a piece of script defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Defines {
    /// No function.
    Nothing,
    /// Functions that advlab does not call.
    Helpers,
    /// A hook: `advantage`, `loss`, or one that goes with these.
    Hook,
}

/// What the inputs were made of, in order.
#[derive(Default)]
struct Parts {
    imports: Vec<String>,
    functions: Vec<Function>,
    /// The lines of the hook that the statements make.
    body: Vec<String>,
}

/// What becomes of the last statement of an input in the hook that the statements make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It was looked at, and did nothing.
    Dropped,
    Statement,
    /// A value that a later input calls `_`.
    Last,
    /// The hook's value.
    Result,
}

impl Typed {
    /// Adds an input. `signal` is its value, where that can be an advantage.
    pub(super) fn push(
        &mut self,
        text: &str,
        has_value: bool,
        signal: Option<Computed>,
        recipe: Option<&Recipe>,
    ) {
        // As long as nothing changes, all inputs share one.
        let before = self.inputs.last().and_then(|input| input.recipe.as_ref());
        let recipe = recipe.map(|recipe| match before {
            Some(before) if is_same(before, recipe) => before.clone(),
            _ => Arc::new(recipe.clone()),
        });
        self.inputs.push(Input {
            items: items(text),
            has_value,
            is_signal: signal.is_some(),
            recipe,
        });
        self.signal = signal.or(self.signal.take());
    }

    pub(super) fn clear(&mut self) {
        *self = Typed::default();
    }

    /// The last value that can be an advantage, unless the batch is another one now.
    pub(super) fn signal(&self) -> Option<&Computed> {
        self.signal.as_ref()
    }

    /// The batch is another one.
    pub(super) fn forget_signal(&mut self) {
        self.signal = None;
    }

    /// Whether there is an advantage in it: a hook, or a value that can be one.
    pub(super) fn has_advantage(&self) -> bool {
        self.has_hook() || self.inputs.iter().any(|input| input.is_signal)
    }

    /// Whether there is a function in it.
    pub(super) fn has_function(&self) -> bool {
        self.functions().next().is_some()
    }

    /// Whether an advantage or a loss was typed as a function.
    pub(super) fn has_hook(&self) -> bool {
        let makes_recipe = [Hook::Advantage, Hook::Loss];
        self.functions()
            .any(|function| makes_recipe.iter().any(|hook| hook.name() == function.name))
    }

    fn functions(&self) -> impl Iterator<Item = &Function> {
        let items = self.inputs.iter().flat_map(|input| &input.items);
        items.filter_map(Item::function)
    }

    /// The recipe of what was typed: the hooks, or where there are none the statements, whose last value per response or
    /// token is the advantage. It has the settings of the recipe in use, where it has parameters of these names.
    ///
    /// # Errors
    /// As [`Host::compile`].
    pub(super) fn recipe(
        &self,
        host: &Host,
        in_use: Option<&Recipe>,
    ) -> Result<Recipe, Diagnostics> {
        let mut recipe = host.compile_beside(NAME, &self.script(in_use), Path::new("."))?;
        if let Some(in_use) = in_use.filter(|_| self.has_hook()) {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// What was typed, as a script: imports, functions, and, where none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub(super) fn script(&self, in_use: Option<&Recipe>) -> String {
        let declares = self.functions().any(|function| function.name == "params");
        let declared = match declares {
            true => None,
            false => self.declared(),
        };
        let parts = self.parts(declared);
        let mut sections = vec!["//! What was typed at the prompt.".to_string()];
        if !parts.imports.is_empty() {
            sections.push(parts.imports.join("\n"));
        }
        let body = match self.has_hook() {
            true => "",
            false => &indented(&parts.body),
        };
        let bodies = parts.functions.iter().map(Function::body).chain([body]);
        if let Some(recipe) = declared
            && names(bodies).contains("p")
        {
            // A hook takes the settings of now; a formula was computed with those of then.
            let now = in_use.filter(|_| self.has_hook());
            sections.extend(params_function(recipe, now));
        }
        sections.extend(parts.functions.iter().map(|function| function.text.clone()));
        if !body.is_empty() {
            sections.push(format!("fn advantage(batch, p) {{\n{body}\n}}"));
        }
        sections.join("\n\n") + "\n"
    }

    /// The recipe whose parameters the script declares: that of the last input that reads any.
    fn declared(&self) -> Option<&Arc<Recipe>> {
        let reads = |input: &&Input| {
            let texts = input.items.iter().map(Item::body);
            let names = names(texts);
            Hook::OF_BATCH
                .iter()
                .any(|hook| names.contains(hook.name()))
                || names.contains("p")
        };
        let mut inputs = self.inputs.iter().rev().filter(reads);
        inputs.find_map(|input| {
            let recipe = input.recipe.as_ref()?;
            (recipe.params().iter().len() > 0).then_some(recipe)
        })
    }

    fn parts(&self, declared: Option<&Arc<Recipe>>) -> Parts {
        let mut parts = Parts::default();
        let result = self.inputs.iter().rposition(|input| input.is_signal);
        let name = self.name_of_last();
        let mut last = "()";
        for (place, (input, used)) in self.inputs.iter().zip(self.uses(result)).enumerate() {
            let calls = input.recipe.as_ref().filter(|recipe| {
                // A file's recipe cannot be imported from everywhere.
                Builtin::find(recipe.name()).is_some()
            });
            let calls = calls.map(|recipe| {
                let is_declared = declared.is_some_and(|declared| is_same(declared, recipe));
                let p = if is_declared {
                    None
                } else {
                    Some(literal(recipe))
                };
                (recipe.name(), p)
            });
            let calls = calls.as_ref().map(|(name, p)| (*name, p.as_deref()));
            let rewrite = |text: &str, is_function: bool, imports: &mut Vec<String>| {
                rewritten(text, last, calls, is_function, imports)
            };
            let mut statements = Vec::new();
            for item in &input.items {
                match item {
                    Item::Import(line) => {
                        if !parts.imports.contains(line) {
                            parts.imports.push(line.clone());
                        }
                    }
                    Item::Function(function) => {
                        let text = rewrite(&function.text, true, &mut parts.imports);
                        // A function that is typed again replaces the one before.
                        parts.functions.retain(|known| !known.is_of(function));
                        parts.functions.push(Function {
                            text,
                            ..function.clone()
                        });
                    }
                    // A `_` before there was a value.
                    Item::Statement(text) if text == "_" && last == "()" => {}
                    Item::Statement(text) => {
                        statements.push(rewrite(text, false, &mut parts.imports));
                    }
                }
            }
            if input.has_value {
                last = &name;
            }
            if result.is_some_and(|result| place > result) {
                continue;
            }
            let own = statements.pop().map(|text| match used {
                Use::Dropped => None,
                Use::Statement => Some(text + ";"),
                Use::Last => Some(format!("let {name} = {text};")),
                Use::Result => Some(text),
            });
            let before = statements.into_iter().map(|text| text + ";");
            parts.body.extend(before.chain(own.flatten()));
        }
        parts
    }

    /// What becomes of the last statement of each input where the one at `result` is the value of the hook.
    fn uses(&self, result: Option<usize>) -> Vec<Use> {
        let mut is_last_wanted = false;
        let mut uses = Vec::new();
        for (place, input) in self.inputs.iter().enumerate().rev() {
            let is_after = result.is_some_and(|result| place > result);
            let statements = input.items.iter().filter_map(Item::statement);
            let mut statements: Vec<&str> = statements.collect();
            let own = statements.last().copied().unwrap_or("");
            let used = match input.has_value {
                _ if Some(place) == result => Use::Result,
                _ if is_after => Use::Dropped,
                true if is_last_wanted => Use::Last,
                true if self.is_pure(own) => Use::Dropped,
                _ => Use::Statement,
            };
            if used == Use::Dropped {
                statements.pop();
            }
            is_last_wanted &= !input.has_value;
            is_last_wanted |= !is_after && statements.iter().any(|text| mentions_last(text));
            uses.push(used);
        }
        uses.reverse();
        uses
    }

    /// Whether an expression changes nothing: without it, what follows is the same.
    fn is_pure(&self, text: &str) -> bool {
        let typed: HashSet<&str> = self.functions().map(|one| one.name.as_str()).collect();
        super::items::is_pure(text, |name, is_method| {
            let member = MEMBERS.iter().find(|member| member.name == name);
            op::table().any(|op| op.name == name)
                || member.is_some_and(|member| member.of != Owner::Nobody)
                || Hook::OF_BATCH.iter().any(|hook| hook.name() == name)
                || PURE.contains(&name)
                || (!is_method && typed.contains(name))
        })
    }

    /// A name for the last value that nothing else has.
    fn name_of_last(&self) -> String {
        let items = self.inputs.iter().flat_map(|input| &input.items);
        let taken = names(items.map(Item::text));
        let mut name = "last".to_string();
        while taken.contains(name.as_str()) {
            name.push_str("_value");
        }
        name
    }
}

/// What a piece of script defines.
pub(super) fn defines(text: &str) -> Defines {
    let is_hook = |name: &str| Hook::ALL.iter().any(|hook| hook.name() == name);
    let of_item = |item: &Item| match item.function() {
        Some(function) if is_hook(&function.name) => Defines::Hook,
        Some(_) => Defines::Helpers,
        None => Defines::Nothing,
    };
    let all = items(text);
    all.iter().map(of_item).max().unwrap_or(Defines::Nothing)
}

/// Whether a recipe is made of what was typed.
pub(super) fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == NAME
}

/// Whether two recipes are one, with the same settings.
fn is_same(a: &Recipe, b: &Recipe) -> bool {
    a.version() == b.version() && a.name() == b.name() && a.params() == b.params()
}

fn indented(lines: &[String]) -> String {
    let lines = lines.iter().flat_map(|text| text.lines());
    let lines: Vec<String> = lines
        .map(|line| format!("    {line}").trim_end().to_string())
        .collect();
    lines.join("\n")
}

/// The parameters of a recipe, declared again, with the values that they have now where the recipe in use has them.
fn params_function(recipe: &Recipe, in_use: Option<&Recipe>) -> Option<String> {
    let lines: Vec<String> = recipe
        .params()
        .iter()
        .map(|(parameter, value)| {
            let now = in_use.and_then(|recipe| recipe.params().get(&parameter.name));
            declared(parameter, now.unwrap_or(value))
        })
        .collect();
    let lines = lines.join("\n");
    (!lines.is_empty()).then(|| format!("fn params() {{\n    #{{\n{lines}\n    }}\n}}"))
}

/// A line of `params()`.
fn declared(parameter: &Parameter, value: &Setting) -> String {
    let mut entry = format!("value: {}", written(value));
    for (bound, number) in [("min", parameter.min), ("max", parameter.max)] {
        if let Some(number) = number {
            entry.push_str(&format!(", {bound}: {number}"));
        }
    }
    if !parameter.choices.is_empty() {
        entry.push_str(&format!(", choices: {:?}", parameter.choices));
    }
    format!(
        "        {}: #{{ {entry}, doc: {:?} }},",
        parameter.name, parameter.doc
    )
}

/// A value as a script writes it.
fn written(value: &Setting) -> String {
    match value {
        Setting::Text(text) => format!("{text:?}"),
        Setting::Nothing => "()".to_string(),
        other => other.to_string(),
    }
}

/// A recipe's settings as the map that its hooks get.
fn literal(recipe: &Recipe) -> String {
    let entries: Vec<String> = recipe
        .params()
        .iter()
        .map(|(parameter, value)| format!("{}: {}", parameter.name, written(value)))
        .collect();
    match entries.is_empty() {
        true => "#{}".to_string(),
        false => format!("#{{ {} }}", entries.join(", ")),
    }
}
