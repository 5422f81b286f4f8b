//! The documentation of every function, member and recipe, made from the table of operations and from the scripts themselves.
//!
//! `advlab doc`, `?name` at the prompt, `docs/reference.md`, and `docs/recipes.md` are all made by this module.

mod entry;
mod search;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::paint::{Paint, beside, wrapped};
use crate::{Result, wrong};
use advlab::check::needs;
use advlab::script::{BUILTINS, Builtin, Hook, Host, RECIPE_KINDS, Recipe};
use advlab::suggest;
use serde_json::{Value, json};

use self::entry::{ENTRIES, Entry, TOPICS, Topic, sections};
pub use self::entry::{parameters, recipe};
use self::search::search;
pub use self::search::{trainer, trainer_json};

/// Returns whether [`explain`] has an explanation of a name: of a topic, a function, a member or a built-in recipe.
pub fn is_known(name: &str) -> bool {
    Topic::find(name).is_some() || names().any(|known| known == name)
}

/// Returns the names of all topics, functions, members and built-in recipes; the topics' other names are not included.
pub fn names() -> impl Iterator<Item = &'static str> {
    let topics = TOPICS.topics.iter().map(|topic| &*topic.name);
    let entries = ENTRIES.iter().map(|entry| entry.name);
    let builtins = BUILTINS.iter().map(|builtin| builtin.name);
    topics.chain(entries).chain(builtins)
}

/// Returns, for each function or member with this name, the form of a call and a line of documentation.
pub(crate) fn forms(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let found = ENTRIES.iter().filter(move |entry| entry.name == name);
    found.map(|entry| (&*entry.call, entry.doc))
}

/// Explains a name: a function or member with its example, which is run; a recipe with its parameters; a topic; or a section of
/// the reference with a line for each entry. If nothing has that name, returns the results of a search for the name; it is an
/// error if the search finds nothing.
pub fn explain(host: &Host, asked: &str, paint: Paint) -> Result<String> {
    let name = name_of(asked);
    let found = ENTRIES.iter().filter(|entry| entry.name == name);
    let found = found.map(|entry| entry.shown(host, paint));
    let found = found.collect::<Result<Vec<String>>>()?;
    if !found.is_empty() {
        return Ok(found.join("\n\n"));
    }
    let is_path = name.ends_with(".rhai");
    if Builtin::find(name).is_some() || is_path || Path::new(asked).is_file() {
        let loaded = host.load(if is_path { name } else { asked })?;
        let (text, title) = (recipe(&loaded, paint), paint.bold("example"));
        let needs_advantage = !loaded.has(Hook::Advantage) && needs(&loaded, "advantage");
        let second = format!("\n  advlab apply {name} with_advantages.jsonl");
        let (first, rest) = if needs_advantage {
            ("grpo", &*second)
        } else {
            (name, "")
        };
        let example = format!("advlab apply {first} rollouts.jsonl -o with_advantages.jsonl{rest}");
        return Ok(format!("{text}\n\n{title}\n  {example}"));
    }
    if let Some(topic) = Topic::find(name) {
        return Ok(topic.shown(paint));
    }
    if let Some(own) = sections().find(|own| own[0].section == asked.trim()) {
        let mut lines = vec![heading(&own[0].section, own[0].about, paint)];
        let entries = own.iter();
        lines.extend(entries.map(|entry| line(&entry.call, 37, entry.doc, paint)));
        return Ok(lines.join("\n"));
    }
    search(asked, false, paint).ok_or_else(|| {
        let known = names().chain(Hook::ALL.map(Hook::name));
        let near = suggest::nearest(name, known).map(|near| format!("did you mean `{near}`?"));
        let help = near.unwrap_or_else(|| "`advlab doc` lists all names".to_string());
        let message = format!("there is neither a function nor a recipe `{name}`");
        wrong(message, help)
    })
}

/// Returns the output of [`explain`] as JSON: the functions and members with that name, the recipe, and the text.
pub fn json(host: &Host, asked: &str) -> Result<Value> {
    let text = explain(host, asked, Paint::PLAIN)?;
    let name = name_of(asked);
    let found = ENTRIES.iter().filter(|entry| entry.name == name);
    let functions: Vec<Value> = found.map(Entry::to_json).collect();
    let is_recipe = Builtin::find(name).is_some() || Path::new(asked).is_file();
    let recipe = match is_recipe && functions.is_empty() {
        true => recipe_json(&host.load(asked)?),
        false => Value::Null,
    };
    Ok(json!({ "asked": asked, "functions": functions, "recipe": recipe, "text": text }))
}

/// Returns a recipe as JSON: its name, version, summary and doc, its hooks that compute from a batch, and its parameters with the
/// values that they take.
pub fn recipe_json(recipe: &Recipe) -> Value {
    let hooks = Hook::OF_BATCH.into_iter().chain([Hook::Returns]);
    let hooks: Vec<&str> = hooks
        .filter(|hook| recipe.has(*hook))
        .map(Hook::name)
        .collect();
    let params = recipe.params().iter().map(|(spec, value)| {
        json!({ "name": spec.name, "value": value, "default": spec.default, "takes": spec.takes(), "doc": spec.doc })
    });
    let params: Vec<Value> = params.collect();
    let version = recipe.version().as_str();
    json!({ "name": recipe.name(), "version": version, "summary": recipe.summary(), "doc": recipe.doc(), "hooks": hooks, "params": params })
}

/// Returns built-ins as JSON, with the keys of [`recipe_json`] and `kind`; if there is a `column`, only those that need it.
pub fn builtins_json<'a>(
    names: impl Iterator<Item = &'a str>,
    column: Option<&str>,
) -> Result<Vec<Value>> {
    let (host, mut rows) = (Host::new(), Vec::new());
    for builtin in names.filter_map(Builtin::find) {
        let recipe = host.load(builtin.name)?;
        if column.is_none_or(|column| needs(&recipe, column)) {
            let mut row = recipe_json(&recipe);
            row["kind"] = json!(builtin.kind);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Returns the name in a query, which may be a call such as `x.mean(level)` or `a / b`, or the bare name.
fn name_of(text: &str) -> &str {
    let text = text.trim();
    if let Some(entry) = ENTRIES.iter().find(|entry| entry.call == text) {
        return entry.name;
    }
    let head = text.split_once('(').map_or(text, |(head, _)| head);
    match head.rsplit_once('.') {
        Some((_, name)) if !name.is_empty() && !text.ends_with(".rhai") => name,
        _ if head.is_empty() => text,
        _ => head,
    }
}

/// Returns an overview: a line for each topic, and the names of all functions, members and recipes, by section and kind.
pub fn overview(paint: Paint) -> String {
    let mut lines = vec![heading("topics", "what scripts are made of", paint)];
    let topics = TOPICS.topics.iter();
    lines.extend(topics.map(|topic| line(&topic.name, 16, &topic.doc, paint)));
    let about = "`advlab doc NAME` explains a function or a section";
    lines.extend([String::new(), heading("functions", about, paint)]);
    for own in sections() {
        let names: Vec<&str> = own.iter().map(|entry| entry.name).collect();
        lines.push(line(&own[0].section, 24, &names.join(", "), paint));
    }
    let about = "`advlab recipes` describes each in one line";
    lines.extend([String::new(), heading("recipes", about, paint)]);
    for (title, own) in recipes() {
        let names: Vec<&str> = own.iter().map(|builtin| builtin.name).collect();
        lines.push(line(title, 6, &names.join(", "), paint));
    }
    lines.join("\n")
}

/// The recipes that a newcomer needs first.
const START_HERE: [&str; 5] = ["grpo", "dr_grpo", "passk", "reinforce_pp", "ppo_clip"];

/// Returns lists of the built-in recipes, each list with its title: first the recipes of `START_HERE`, then a list of the other
/// recipes for each kind.
pub fn recipes() -> impl Iterator<Item = (&'static str, Vec<&'static Builtin>)> {
    let first = START_HERE.into_iter().filter_map(Builtin::find).collect();
    let kinds = RECIPE_KINDS.into_iter().map(|(kind, title)| {
        let own = BUILTINS.iter().filter(|builtin| builtin.kind == kind);
        let others = own.filter(|builtin| !START_HERE.contains(&builtin.name));
        (title, others.collect())
    });
    [("start here", first)].into_iter().chain(kinds)
}

fn heading(name: &str, about: &str, paint: Paint) -> String {
    let text = format!("{}  {}", paint.bold(name), paint.dim(about));
    wrapped("", &text, paint.width)
}

/// Returns a line with a name and its explanation, which begins at `column`.
fn line(name: &str, column: usize, doc: &str, paint: Paint) -> String {
    beside(&format!("  {name}"), column, doc, paint.width)
}
