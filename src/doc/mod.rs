//! The documentation: what every function, member and recipe is, from the op table and the scripts themselves.
//!
//! `advlab doc`, `?name` at the prompt, `docs/reference.md` and the definition files for editors all come from here.

mod definitions;
mod entry;
mod reference;
mod topics;

use std::path::Path;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::paint::{Paint, beside, wrapped};
use crate::script::{BUILTINS, Builtin, Hook, Host, MEMBERS, Member, Owner};
use crate::suggest;
use crate::tensor::op::{self, Class, Op};

pub use self::definitions::definitions;
pub use self::entry::{parameters, recipe};
pub use self::reference::reference;
pub use self::topics::{TOPICS, Topic};

/// Whether a name has an explanation: a topic, a function, a member, or a built-in recipe.
pub fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// All names that have an explanation.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOPICS
        .iter()
        .map(|topic| topic.name)
        .chain(op::table().map(|op| op.name))
        .chain(MEMBERS.iter().map(|member| member.name))
        .chain(BUILTINS.iter().map(|builtin| builtin.name))
}

/// A name explained: a function or member with its example, which is run; a recipe with its parameters.
///
/// # Errors
/// Where there is nothing of that name, the nearest one; where a script by its path does not compile, why.
pub fn explain(host: &Host, name: &str, paint: Paint) -> Result<String, Diagnostics> {
    let asked = name;
    let name = name_of(asked);
    let rows: Vec<&'static Op> = op::table().filter(|op| op.name == name).collect();
    let members = || MEMBERS.iter().filter(|member| member.name == name);
    let mut entries = Vec::new();
    for op in rows {
        entries.push(entry::function(host, op, paint)?);
    }
    for member in members() {
        entries.push(entry::member(host, member, paint)?);
    }
    if !entries.is_empty() {
        return Ok(entries.join("\n\n"));
    }
    if Builtin::find(name).is_some() || name.ends_with(".rhai") || Path::new(asked).is_file() {
        let loaded = host.load(if name.ends_with(".rhai") { name } else { asked })?;
        let text = recipe(&loaded, paint);
        let needs_advantage =
            !loaded.has(Hook::Advantage) && loaded.text().contains("batch.advantage");
        let example = if needs_advantage {
            format!(
                "  advlab apply grpo rollouts.jsonl -o with_advantages.jsonl\n  advlab apply {name} with_advantages.jsonl"
            )
        } else {
            format!("  advlab apply {name} rollouts.jsonl -o with_advantages.jsonl")
        };
        return Ok(format!("{text}\n\n{}\n{example}", paint.bold("example")));
    }
    if let Some(topic) = Topic::find(name) {
        return Ok(topic.shown(paint));
    }
    let message = format!("there is neither a function nor a recipe `{name}`");
    let help = match suggest::nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`advlab doc` lists all".to_string(),
    };
    Err(Diagnostic::error(message).with_help(help).into())
}

/// The name that is meant: of a function as it is called, `x.mean(level)` or `a / b`, or alone.
fn name_of(text: &str) -> &str {
    let text = text.trim();
    let rows = || op::table().map(|op| (op.name, op.signature()));
    let members = || {
        MEMBERS
            .iter()
            .map(|member| (member.name, member.call.to_string()))
    };
    let of_call = |(name, call): (&'static str, String)| (call == text).then_some(name);
    if let Some(name) = rows().chain(members()).find_map(of_call) {
        return name;
    }
    let head = text.split_once('(').map_or(text, |(head, _)| head);
    match head.rsplit_once('.') {
        Some((_, name)) if !name.is_empty() && !text.ends_with(".rhai") => name,
        _ if head.is_empty() => text,
        _ => head,
    }
}

/// All functions, members and recipes, one line each.
pub fn overview(paint: Paint) -> String {
    let mut lines = Vec::new();
    let heading = |name: &str, about: &str| {
        let text = format!("{}  {}", paint.bold(name), paint.dim(about));
        wrapped("", &text, paint.width)
    };
    let line = |call: &str, doc: &str| beside(&format!("  {call}"), 37, doc, paint.width);
    lines.push(heading("topics", "what scripts are made of"));
    lines.extend(TOPICS.iter().map(|topic| line(topic.name, topic.doc)));
    lines.push(String::new());
    for (title, about, of) in SECTIONS {
        lines.push(heading(title, about));
        lines.extend(members(of).map(|member| line(member.call, member.doc)));
        lines.push(String::new());
    }
    for class in Class::ALL {
        lines.push(heading(&class.to_string(), class.levels()));
        let rows = op::table().filter(|op| op.class == class);
        lines.extend(rows.map(|op| line(&op.signature(), op.doc)));
        lines.push(String::new());
    }
    let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
    lines.push(heading("recipes", &names.join(", ")));
    lines.join("\n")
}

/// The members in sections: title, what it is about, whose they are.
const SECTIONS: [(&str, &str, Owner); 3] = [
    (
        "the batch",
        "what a step produced: columns over tokens, responses and groups",
        Owner::Batch,
    ),
    (
        "tensors",
        "beside the functions below, each of which can be called as a method: `x.exp()`",
        Owner::Tensor,
    ),
    (
        "reports",
        "what a step says beside its result",
        Owner::Nobody,
    ),
];

fn members(of: Owner) -> impl Iterator<Item = &'static Member> {
    MEMBERS.iter().filter(move |member| member.of == of)
}
