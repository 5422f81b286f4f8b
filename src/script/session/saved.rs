//! The inputs of a session as one script: for `:save`, and for the recipe that a formula or a typed hook is.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::Session;
use super::inputs::{Input, InputOutcome, Inputs};
use crate::diagnostic::Diagnostics;
use crate::script::syntax::{
    Item, Rewriting, is_pure, items, last_values, mentions_last, names, values_back,
};
use crate::script::{Builtin, Computed, Hook, MEMBERS, Owner, Parameter, Recipe, Setting};
use crate::tensor::op;

/// The name of the recipe that was typed, in messages.
const NAME: &str = "what you typed";

/// Functions of the language that change nothing, beside the op table and the members.
const PURE: [&str; 8] = [
    "len", "to_int", "to_float", "is_empty", "contains", "keys", "extract", "type_of",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Defines {
    /// No function.
    Nothing,
    /// Functions that advlab does not call.
    Helpers,
    /// A hook: `advantage`, `loss`, or one that goes with these.
    Hook,
}

impl Defines {
    pub(crate) fn of(text: &str) -> Defines {
        let is_hook = |name: &str| Hook::ALL.iter().any(|hook| hook.name() == name);
        let functions = items(text);
        let functions = functions.iter().filter_map(Item::function);
        let defined = functions.map(|(name, _)| {
            if is_hook(name) {
                Defines::Hook
            } else {
                Defines::Helpers
            }
        });
        defined.max().unwrap_or(Defines::Nothing)
    }
}

struct Part<'a> {
    outcome: &'a InputOutcome,
    items: Vec<Item>,
    role: Role,
}

/// The use of the last statement of an input in the hook that the statements make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It was looked at, and did nothing.
    Dropped,
    Statement,
    /// A value that a later input calls `_`.
    Last,
    /// The hook's value.
    Result,
}

impl Part<'_> {
    fn functions(&self) -> impl Iterator<Item = (&str, usize)> {
        self.items.iter().filter_map(Item::function)
    }

    fn statements(&self) -> Vec<&str> {
        let statements = self.items.iter().filter_map(|item| match item {
            Item::Statement(text) => Some(text.as_str()),
            _ => None,
        });
        statements.collect()
    }
}

/// The sections of the script that the inputs make.
#[derive(Default)]
struct Sections {
    imports: Vec<String>,
    functions: Vec<Item>,
    /// The lines of the hook that the statements make.
    body: Vec<String>,
}

impl Session {
    pub(crate) fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The recipe of what was typed: the hooks, or where there are none the statements, whose last value per response or
    /// token is the advantage. It has the settings of the recipe in use, where it has parameters of these names.
    ///
    /// # Errors
    /// As [`Host::compile`](crate::script::Host::compile).
    pub(crate) fn typed_recipe(&self) -> Result<Recipe, Diagnostics> {
        let mut recipe = self
            .host
            .compile_beside(NAME, &self.typed_script(), Path::new("."))?;
        if let Some(in_use) = self.recipe.as_ref().filter(|_| self.inputs.has_hook()) {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// The script of what was typed: imports, functions, and, where none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub(crate) fn typed_script(&self) -> String {
        self.inputs.script(self.recipe.as_ref())
    }
}

impl Inputs {
    /// The last value that can be an advantage, unless the batch is another one now.
    pub(crate) fn signal(&self) -> Option<&Computed> {
        self.signal.as_ref()
    }

    /// Whether there is an advantage in them: a hook, or a value that can be one.
    pub(crate) fn has_advantage(&self) -> bool {
        self.has_hook() || self.completed().any(|(_, outcome)| outcome.is_signal)
    }

    pub(crate) fn has_function(&self) -> bool {
        self.defines(|_| true)
    }

    /// Whether an advantage or a loss was typed as a function.
    pub(crate) fn has_hook(&self) -> bool {
        let makes_recipe = [Hook::Advantage, Hook::Loss].map(Hook::name);
        self.defines(|name| makes_recipe.contains(&name))
    }

    fn defines(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.completed().any(|(input, _)| {
            let items = items(&input.text);
            items
                .iter()
                .filter_map(Item::function)
                .any(|(name, _)| is_it(name))
        })
    }

    fn completed(&self) -> impl DoubleEndedIterator<Item = (&Input, &InputOutcome)> {
        let all = self.all.iter();
        all.filter_map(|input| Some((input, input.outcome.as_ref()?)))
    }

    fn script(&self, in_use: Option<&Recipe>) -> String {
        let parts = self.parts();
        let declares = parts
            .iter()
            .flat_map(Part::functions)
            .any(|(name, _)| name == "params");
        let declared = if declares { None } else { declared_of(&parts) };
        let made = sections(&parts, declared);
        let has_hook = self.has_hook();
        let mut sections = vec!["//! What was typed at the prompt.".to_string()];
        if !made.imports.is_empty() {
            sections.push(made.imports.join("\n"));
        }
        let body = if has_hook { "" } else { &indented(&made.body) };
        let bodies = made.functions.iter().map(Item::body).chain([body]);
        if let Some(recipe) = declared
            && names(bodies).contains("p")
        {
            // A hook takes the settings of now; a formula was computed with those of then.
            let now = in_use.filter(|_| has_hook);
            sections.extend(params_function(recipe, now));
        }
        sections.extend(
            made.functions
                .iter()
                .map(|function| function.text().to_string()),
        );
        if !body.is_empty() {
            sections.push(format!("fn advantage(batch, p) {{\n{body}\n}}"));
        }
        sections.join("\n\n") + "\n"
    }

    /// The inputs in their parts, each with the role that its last statement has.
    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts: Vec<Part<'_>> = self
            .completed()
            .map(|(input, outcome)| Part {
                outcome,
                items: items(&input.text),
                role: Role::Statement,
            })
            .collect();
        let functions = parts.iter().flat_map(Part::functions);
        let typed: HashSet<String> = functions.map(|(name, _)| name.to_string()).collect();
        let result = parts.iter().rposition(|part| part.outcome.is_signal);
        let keeps_all = values_reached(&parts) > 1;
        let mut is_last_wanted = false;
        for (index, part) in parts.iter_mut().enumerate().rev() {
            let is_after = result.is_some_and(|result| index > result);
            let has_value = part.outcome.has_value;
            let mut statements = part.statements();
            let own = statements.last().copied().unwrap_or("");
            let role = match has_value {
                _ if Some(index) == result => Role::Result,
                _ if is_after => Role::Dropped,
                true if is_last_wanted || keeps_all => Role::Last,
                true if changes_nothing(own, &typed) => Role::Dropped,
                _ => Role::Statement,
            };
            if role == Role::Dropped {
                statements.pop();
            }
            is_last_wanted &= !has_value;
            is_last_wanted |= !is_after && statements.iter().any(|text| mentions_last(text));
            part.role = role;
        }
        parts
    }
}

/// The recipe whose parameters the script declares: that of the last input that reads any.
fn declared_of<'a>(parts: &[Part<'a>]) -> Option<&'a Arc<Recipe>> {
    let mut recipes = parts.iter().rev().filter_map(|part| {
        let names = names(part.items.iter().map(Item::body));
        let calls = Hook::OF_BATCH
            .iter()
            .any(|hook| names.contains(hook.name()));
        (calls || names.contains("p")).then_some(part.outcome.recipe.as_ref()?)
    });
    recipes.find(|recipe| recipe.params().iter().len() > 0)
}

fn sections(parts: &[Part<'_>], declared: Option<&Arc<Recipe>>) -> Sections {
    let mut made = Sections::default();
    let result = parts.iter().rposition(|part| part.outcome.is_signal);
    let name = name_of_last(parts);
    // Each value that comes makes those before it older.
    let names: Vec<String> = std::iter::once(name.clone())
        .chain((2..=values_reached(parts)).map(|back| format!("{name}_{back}")))
        .collect();
    let mut shifted = String::new();
    for index in (1..names.len()).rev() {
        shifted.push_str(&format!("let {} = {}; ", names[index], names[index - 1]));
    }
    if names.len() > 1 {
        let none = names.iter().map(|name| format!("let {name} = ();"));
        made.body.push(none.collect::<Vec<_>>().join(" "));
    }
    let mut last = "()";
    for (index, part) in parts.iter().enumerate() {
        // A file's recipe cannot be imported from everywhere.
        let recipe = part.outcome.recipe.as_ref();
        let recipe = recipe.filter(|recipe| Builtin::find(recipe.name()).is_some());
        let settings = recipe
            .filter(|recipe| !declared.is_some_and(|declared| is_same(declared, recipe)))
            .map(|recipe| literal(recipe));
        let rewriting = Rewriting {
            last,
            recipe: recipe.map(|recipe| recipe.name()),
            settings: settings.as_deref(),
        };
        let mut statements = Vec::new();
        for item in &part.items {
            let (text, needs_import) = rewriting.of(item.text(), item.function().is_some());
            match item {
                Item::Import(line) => {
                    made.imports.push(line.clone());
                    continue;
                }
                Item::Function {
                    name, parameters, ..
                } => {
                    // A function that is typed again replaces the one before.
                    made.functions
                        .retain(|known| known.function() != item.function());
                    made.functions.push(Item::Function {
                        name: name.clone(),
                        parameters: *parameters,
                        text,
                    });
                }
                // A `_` before there was a value.
                Item::Statement(text) if text == "_" && last == "()" => {}
                Item::Statement(_) => statements.push(text),
            }
            if let Some(recipe) = rewriting.recipe.filter(|_| needs_import) {
                made.imports
                    .push(format!("import \"{recipe}\" as {recipe};"));
            }
        }
        if part.outcome.has_value {
            last = &name;
        }
        if result.is_some_and(|result| index > result) {
            continue;
        }
        let own = statements.pop().and_then(|text| match part.role {
            Role::Dropped => None,
            Role::Statement => Some(text + ";"),
            Role::Last => Some(format!("{shifted}let {name} = {text};")),
            Role::Result => Some(text),
        });
        let before = statements.into_iter().map(|text| text + ";");
        made.body.extend(before.chain(own));
    }
    let mut seen = HashSet::new();
    made.imports.retain(|line| seen.insert(line.clone()));
    made
}

/// Whether an expression changes nothing: without it, what follows is the same.
fn changes_nothing(text: &str, typed: &HashSet<String>) -> bool {
    is_pure(text, |name, is_method| {
        let member = MEMBERS.iter().find(|member| member.name == name);
        op::table().any(|op| op.name == name)
            || member.is_some_and(|member| member.of != Owner::Nobody)
            || Hook::OF_BATCH.iter().any(|hook| hook.name() == name)
            || PURE.contains(&name)
            || (!is_method && typed.contains(name))
    })
}

/// How many values back the inputs reach with `_2` and the like.
fn values_reached(parts: &[Part<'_>]) -> usize {
    let texts = parts.iter().flat_map(|part| &part.items).map(Item::text);
    let names = texts.flat_map(last_values);
    let back = names.filter_map(|name| values_back(name.text));
    back.max().unwrap_or(1)
}

/// A name for the last value that nothing else has.
fn name_of_last(parts: &[Part<'_>]) -> String {
    let taken = names(parts.iter().flat_map(|part| &part.items).map(Item::text));
    let mut name = "last".to_string();
    while taken.contains(name.as_str()) {
        name.push_str("_value");
    }
    name
}

pub(crate) fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == NAME
}

/// Whether two recipes are one, with the same settings.
pub(super) fn is_same(a: &Recipe, b: &Recipe) -> bool {
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
    if entries.is_empty() {
        "#{}".to_string()
    } else {
        format!("#{{ {} }}", entries.join(", "))
    }
}
