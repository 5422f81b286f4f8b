//! The inputs of a session as one script: for `:save`, and for the recipe that a formula or a typed hook is.

use std::path::Path;

use super::Session;
use super::inputs::{Input, Inputs};
use crate::diagnostic::Diagnostics;
use crate::script::state::written;
use crate::script::syntax::{Item, ItemKind, Rewriting, is_pure, items, names};
use crate::script::{Builtin, Hook, MEMBERS, Owner, Parameter, Recipe, Setting};
use crate::tensor::op;

/// The name of the recipe that was typed, in messages.
const NAME: &str = "what you typed";

/// What kind of functions a text defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defines {
    /// No function.
    Nothing,
    /// Functions that advlab does not call.
    Helpers,
    /// A hook: `advantage`, `loss`, or one that goes with these.
    Hook,
}

impl Defines {
    /// What `text` defines.
    pub fn of(text: &str) -> Defines {
        let is_hook = |name: &str| Hook::ALL.iter().any(|hook| hook.name() == name);
        let items = items(text);
        if functions(&items).any(is_hook) {
            Defines::Hook
        } else if functions(&items).next().is_some() {
            Defines::Helpers
        } else {
            Defines::Nothing
        }
    }
}

/// The names of the functions among them.
fn functions(items: &[Item]) -> impl Iterator<Item = &str> {
    items.iter().filter_map(Item::function)
}

/// An input with its parts.
type Typed<'a> = (&'a Input, Vec<Item>);

/// The sections of the script that the inputs make.
#[derive(Default)]
struct Sections {
    imports: Vec<String>,
    functions: Vec<Item>,
    /// The lines of the hook that the statements make; a value that the next inputs can name comes with its name.
    body: Vec<(Option<String>, String)>,
}

impl Session {
    /// The inputs so far.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The recipe of what was typed: the hooks, or where there are none the statements, whose last value per response or
    /// token is the advantage. It has the settings of the recipe in use, where it has parameters of these names.
    ///
    /// # Errors
    /// As [`Host::compile`](crate::script::Host::compile).
    pub fn typed_recipe(&self) -> Result<Recipe, Diagnostics> {
        let (script, folder) = (self.typed_script(), Path::new("."));
        let compiled = self.host.compile_beside(NAME, &script, folder);
        let mut recipe = compiled.map_err(|mut error| {
            self.explain_scope(error.first_mut());
            error
        })?;
        if let Some(in_use) = self.recipe.as_ref().filter(|_| self.inputs.has_hook()) {
            recipe.keep_settings(in_use);
        }
        Ok(recipe)
    }

    /// The script of what was typed: imports, functions, and, where none of these is a hook, the statements as
    /// `advantage(batch, p)`.
    pub fn typed_script(&self) -> String {
        self.inputs.script(self.recipe.as_ref())
    }
}

impl Inputs {
    /// Whether there is an advantage in them: a hook, or a value that can be one.
    pub fn has_advantage(&self) -> bool {
        self.has_hook() || self.completed().any(|input| input.is_signal)
    }

    pub fn has_function(&self) -> bool {
        self.completed()
            .any(|input| Defines::of(&input.text) > Defines::Nothing)
    }

    /// Whether an advantage or a loss was typed as a function.
    pub fn has_hook(&self) -> bool {
        let makes_recipe = [Hook::Advantage, Hook::Loss].map(Hook::name);
        self.completed().any(|input| {
            let items = items(&input.text);
            functions(&items).any(|name| makes_recipe.contains(&name))
        })
    }

    /// The formula that is the advantage, where no function is.
    pub fn formula(&self) -> Option<&str> {
        let last = self.completed().filter(|input| input.is_signal).last();
        last.filter(|_| !self.has_hook())
            .map(|input| input.text.trim())
    }

    fn completed(&self) -> impl Iterator<Item = &Input> {
        self.all.iter().filter(|input| input.is_complete)
    }

    fn script(&self, in_use: Option<&Recipe>) -> String {
        let typed = self.completed().map(|input| (input, items(&input.text)));
        let typed: Vec<Typed<'_>> = typed.collect();
        let mut all = typed.iter().flat_map(|(_, items)| functions(items));
        let declares = all.any(|name| name == Hook::Params.name());
        let declared = declared_of(&typed).filter(|_| !declares);
        let made = sections(&typed, declared);
        let has_hook = self.has_hook();
        let body = if has_hook {
            String::new()
        } else {
            made.hook_body()
        };
        let mut script = vec!["//! What was typed at the prompt.".to_string()];
        if !made.imports.is_empty() {
            script.push(made.imports.join("\n"));
        }
        let bodies = made.functions.iter().map(Item::body);
        if let Some(recipe) = declared
            && names(bodies.chain([body.as_str()])).contains("p")
        {
            // A hook takes the settings of now; a formula was computed with those of then.
            script.push(params_function(recipe, in_use.filter(|_| has_hook)));
        }
        let functions = made.functions.iter();
        script.extend(functions.map(|function| function.text.clone()));
        if !body.is_empty() {
            script.push(format!("fn advantage(batch, p) {{\n{body}\n}}"));
        }
        script.join("\n\n") + "\n"
    }
}

/// The recipe whose parameters the script declares: that of the last input that reads any.
fn declared_of<'a>(typed: &[Typed<'a>]) -> Option<&'a Recipe> {
    let mut recipes = typed.iter().rev().filter_map(|(input, items)| {
        let names = names(items.iter().map(Item::body));
        let mut readers = Hook::OF_BATCH.map(Hook::name).into_iter().chain(["p"]);
        let recipe = input.recipe.as_ref()?;
        readers.any(|name| names.contains(name)).then_some(recipe)
    });
    recipes.find(|recipe| recipe.params().iter().len() > 0)
}

fn sections(typed: &[Typed<'_>], declared: Option<&Recipe>) -> Sections {
    let mut made = Sections::default();
    let result = typed.iter().rposition(|(input, _)| input.is_signal);
    let prefix = prefix_of_values(typed);
    let mut values: Vec<String> = Vec::new();
    for (index, (input, items)) in typed.iter().enumerate() {
        // A file's recipe cannot be imported from everywhere.
        let recipe = input.recipe.as_ref();
        let recipe = recipe.filter(|recipe| Builtin::find(recipe.name()).is_some());
        let settings = recipe
            .filter(|recipe| !declared.is_some_and(|declared| is_same(declared, recipe)))
            .map(|recipe| written(&recipe.params().to_map().into()));
        let rewriting = Rewriting {
            values: &values,
            recipe: recipe.map(Recipe::name),
            settings: settings.as_deref(),
        };
        let mut statements = Vec::new();
        for item in items {
            let (text, needs_import) = rewriting.of(&item.text, item.function().is_some());
            let kind = item.kind.clone();
            match kind {
                ItemKind::Import => made.import(item.text.clone()),
                ItemKind::Function(..) => {
                    // A function that is typed again replaces the one before.
                    made.functions.retain(|known| known.kind != kind);
                    made.functions.push(Item { kind, text });
                }
                // A `_` before there was a value.
                ItemKind::Statement if item.text == "_" && values.is_empty() => {}
                ItemKind::Statement => statements.push((None, text)),
            }
            if let Some(recipe) = rewriting.recipe.filter(|_| needs_import) {
                made.import(format!("import \"{recipe}\" as {recipe};"));
            }
        }
        if result.is_some_and(|result| index > result) {
            continue;
        }
        if input.has_value
            && let Some((name, _)) = statements.last_mut()
        {
            values.push(format!("{prefix}{}", values.len() + 1));
            *name = values.last().cloned();
        }
        made.body.append(&mut statements);
    }
    if result.is_none() {
        // Without a value that can be one, the hook has no result.
        made.body.push((None, String::new()));
    }
    made
}

impl Sections {
    fn import(&mut self, line: String) {
        if !self.imports.contains(&line) {
            self.imports.push(line);
        }
    }

    /// The statements up to the last, which is the result. A value that nothing names, and whose expression changes
    /// nothing, was only looked at.
    fn hook_body(&self) -> String {
        let Some(((_, result), before)) = self.body.split_last() else {
            return String::new();
        };
        let mut read = names([result.as_str()]);
        let mut lines = vec![result.clone()];
        for (name, text) in before.iter().rev() {
            lines.push(match name {
                None => format!("{text};"),
                Some(name) if read.contains(name.as_str()) => format!("let {name} = {text};"),
                Some(_) if changes_nothing(text) => continue,
                Some(_) => format!("{text};"),
            });
            read.extend(names([text.as_str()]));
        }
        let lines = lines.iter().rev().flat_map(|text| text.lines());
        let lines = lines.map(|line| format!("    {line}").trim_end().to_string());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Whether an expression changes nothing: without it, what follows is the same.
fn changes_nothing(text: &str) -> bool {
    is_pure(text, |name, _| {
        let mut members = MEMBERS.iter().filter(|member| member.of != Owner::Nobody);
        op::table().any(|op| op.name == name)
            || members.any(|member| member.name == name)
            || Hook::OF_BATCH.iter().any(|hook| hook.name() == name)
    })
}

/// The beginning of the names of values, which nothing else begins with.
fn prefix_of_values(typed: &[Typed<'_>]) -> String {
    let items = typed.iter().flat_map(|(_, items)| items);
    let taken = names(items.map(|item| item.text.as_str()));
    let mut prefix = "value_".to_string();
    while taken.iter().any(|name| name.starts_with(&prefix)) {
        prefix.push('_');
    }
    prefix
}

/// Whether a recipe was typed at the prompt.
pub fn is_typed(recipe: &Recipe) -> bool {
    recipe.name() == NAME
}

/// Whether two recipes are one, with the same settings.
fn is_same(a: &Recipe, b: &Recipe) -> bool {
    a.version() == b.version() && a.name() == b.name() && a.params() == b.params()
}

/// The parameters of a recipe, declared again, with the values that they have now where the recipe in use has them.
fn params_function(recipe: &Recipe, in_use: Option<&Recipe>) -> String {
    let lines = recipe.params().iter().map(|(parameter, value)| {
        let now = in_use.and_then(|recipe| recipe.params().get(&parameter.name));
        declared(parameter, now.unwrap_or(value))
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    format!("fn params() {{\n    #{{\n{lines}\n    }}\n}}")
}

/// A line of `params()`.
fn declared(parameter: &Parameter, value: &Setting) -> String {
    let mut entry = format!("value: {}", written(&value.to_dynamic()));
    let bounds = [("min", parameter.min), ("max", parameter.max)];
    for (bound, number) in bounds
        .into_iter()
        .filter_map(|(bound, n)| Some((bound, n?)))
    {
        entry.push_str(&format!(", {bound}: {number}"));
    }
    if !parameter.choices.is_empty() {
        entry.push_str(&format!(", choices: {:?}", parameter.choices));
    }
    format!(
        "        {}: #{{ {entry}, doc: {:?} }},",
        parameter.name, parameter.doc
    )
}
