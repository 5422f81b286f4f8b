//! The documentation: what every function, member and recipe is, from the op table and the scripts themselves.
//!
//! `advlab doc`, `?name` at the prompt, `docs/reference.md`, and `docs/recipes.md` all come from here.

mod entry;
mod search;
#[cfg(test)]
mod tests;
mod trainers;

use std::path::Path;

use crate::wrong;
use advlab::check::needs;
use advlab::diagnostic::Diagnostics;
use advlab::paint::{Paint, beside, wrapped};
use advlab::script::{BUILTINS, Builtin, BuiltinKind, Hook, Host, MEMBERS, Owner};
use advlab::suggest;
use advlab::tensor::op::{self, Class};

use self::entry::{Entry, TOPICS, Topic};
pub use self::entry::{parameters, recipe};
use self::search::search;
pub use self::trainers::trainer;

/// Whether a name has an explanation: a topic, a function, a member, or a built-in recipe.
pub fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// All names that have an explanation.
pub fn names() -> impl Iterator<Item = &'static str> {
    let topics = TOPICS.topics.iter().map(|topic| &*topic.name);
    let builtins = BUILTINS.iter().map(|builtin| builtin.name);
    topics
        .chain(entries().map(|entry| entry.name))
        .chain(builtins)
}

/// The functions and the members.
fn entries() -> impl Iterator<Item = Entry> {
    let functions = op::table().map(Entry::from);
    functions.chain(MEMBERS.iter().map(Entry::from))
}

/// A name explained: a function or member with its example, which is run; a recipe with its parameters; or a topic. If
/// nothing has that name, a line for each function, topic and recipe that a search for it finds.
pub fn explain(host: &Host, asked: &str, paint: Paint) -> Result<String, Diagnostics> {
    let name = name_of(asked);
    let found = entries().filter(|entry| entry.name == name);
    let found = found.map(|entry| entry.shown(host, paint));
    let found = found.collect::<Result<Vec<String>, Diagnostics>>()?;
    if !found.is_empty() {
        return Ok(found.join("\n\n"));
    }
    let is_path = name.ends_with(".rhai");
    if Builtin::find(name).is_some() || is_path || Path::new(asked).is_file() {
        let loaded = host.load(if is_path { name } else { asked })?;
        let needs_advantage = !loaded.has(Hook::Advantage) && needs(&loaded, "advantage");
        let (before, input) = match needs_advantage {
            true => (
                "  advlab apply grpo rollouts.jsonl -o with_advantages.jsonl\n",
                "",
            ),
            false => ("", "rollouts.jsonl -o "),
        };
        let (text, title) = (recipe(&loaded, paint), paint.bold("example"));
        let example = format!("{before}  advlab apply {name} {input}with_advantages.jsonl");
        return Ok(format!("{text}\n\n{title}\n{example}"));
    }
    if let Some(topic) = Topic::find(name) {
        return Ok(topic.shown(paint));
    }
    if let Some(section) = sections().find(|section| section.title == asked.trim()) {
        let mut lines = vec![heading(&section.title, section.about, paint)];
        let entries = section.entries.iter();
        lines.extend(entries.map(|entry| line(&entry.call, 37, entry.doc, paint)));
        return Ok(lines.join("\n"));
    }
    search(asked, false, paint).ok_or_else(|| {
        let help = match suggest::nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`advlab doc` lists all".to_string(),
        };
        let message = format!("there is neither a function nor a recipe `{name}`");
        wrong(message, help)
    })
}

/// The name that is meant: of a function as it is called, `x.mean(level)` or `a / b`, or alone.
fn name_of(text: &str) -> &str {
    let text = text.trim();
    if let Some(entry) = entries().find(|entry| entry.call == text) {
        return entry.name;
    }
    let head = text.split_once('(').map_or(text, |(head, _)| head);
    match head.rsplit_once('.') {
        Some((_, name)) if !name.is_empty() && !text.ends_with(".rhai") => name,
        _ if head.is_empty() => text,
        _ => head,
    }
}

/// Recipes for a newcomer.
const FIRST: &str = "grpo, dr_grpo, passk, reinforce_pp, ppo_clip";

/// The topics, one line each, and the names of all functions, members and recipes, by section and kind.
pub fn overview(paint: Paint) -> String {
    let mut lines = vec![heading("topics", "what scripts are made of", paint)];
    let topics = TOPICS.topics.iter();
    lines.extend(topics.map(|topic| line(&topic.name, 16, &topic.doc, paint)));
    let about = "the name of one, or of a section, explains it";
    lines.extend([String::new(), heading("functions", about, paint)]);
    for section in sections() {
        let names: Vec<&str> = section.entries.iter().map(|entry| entry.name).collect();
        lines.push(line(&section.title, 24, &names.join(", "), paint));
    }
    let about = format!("start with {FIRST}");
    lines.extend([String::new(), heading("recipes", &about, paint)]);
    for kind in BuiltinKind::OF_RECIPES {
        let own = BUILTINS.iter().filter(|builtin| builtin.kind == kind);
        let names: Vec<&str> = own.map(|builtin| builtin.name).collect();
        lines.push(line(kind.title(), 6, &names.join(", "), paint));
    }
    lines.join("\n")
}

fn heading(name: &str, about: &str, paint: Paint) -> String {
    let text = format!("{}  {}", paint.bold(name), paint.dim(about));
    wrapped("", &text, paint.width)
}

/// A name with what it is, from a column on.
fn line(name: &str, column: usize, doc: &str, paint: Paint) -> String {
    beside(&format!("  {name}"), column, doc, paint.width)
}

/// A part of the reference: the members of one owner, or the functions of one class.
struct Section {
    title: String,
    about: &'static str,
    entries: Vec<Entry>,
}

fn sections() -> impl Iterator<Item = Section> {
    let batch = "what a step produced: columns over tokens, responses and groups";
    let tensors = "beside the functions below, each of which can be called as a method: `x.exp()`";
    let reports = "what a step says beside its result";
    let members = [
        ("the batch", batch, Owner::Batch),
        ("tensors", tensors, Owner::Tensor),
        ("reports", reports, Owner::Nobody),
    ];
    let section = |title: String, about, entries: Vec<Entry>| Section {
        title,
        about,
        entries,
    };
    let members = members.map(|(title, about, owner)| {
        let own = MEMBERS.iter().filter(|member| member.of == owner);
        section(title.to_string(), about, own.map(Entry::from).collect())
    });
    let functions = Class::ALL.map(|class| {
        let own = op::table().filter(|op| op.class == class);
        section(
            class.to_string(),
            class.levels(),
            own.map(Entry::from).collect(),
        )
    });
    members.into_iter().chain(functions)
}
