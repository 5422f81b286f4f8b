//! `docs/reference.md`: every function and recipe on one page.

use super::entry::filled;
use super::{SECTIONS, TOPICS, members};
use crate::diagnostic::Diagnostics;
use crate::paint::WIDTH;
use crate::script::{BUILTINS, Hook, Host, Recipe};
use crate::tensor::op::{self, Class};

/// The reference page, in Markdown. The examples' results are those of the tables, which tests compare with what comes
/// out.
///
/// # Errors
/// Where a built-in recipe does not load, which would be a defect.
pub fn reference() -> Result<String, Diagnostics> {
    let mut page = String::from(HEAD);
    page.push_str(&section(
        "topics",
        "what scripts are made of; `?levels` at the prompt shows one",
    ));
    for topic in TOPICS {
        page.push_str(&format!(
            "### {}\n\n{}.\n\n```text\n{}\n```\n\n```rhai\n{}\n```\n\n",
            topic.name,
            topic.doc,
            filled(topic.text, WIDTH),
            topic.example
        ));
    }
    for (title, about, of) in SECTIONS {
        page.push_str(&section(title, about));
        for member in members(of) {
            page.push_str(&entry(
                member.call,
                member.doc,
                "",
                member.example,
                member.shows,
            ));
        }
    }
    for class in Class::ALL {
        page.push_str(&section(&class.to_string(), class.levels()));
        for op in op::table().filter(|op| op.class == class) {
            let values: Vec<String> = op.shows.iter().map(|value| format!("{value}")).collect();
            let shows = values.join(", ");
            page.push_str(&entry(
                &op.signature(),
                op.doc,
                op.source,
                op.example,
                &shows,
            ));
        }
    }
    page.push_str("\n## Recipes\n\n`advlab doc NAME` shows one, `advlab new FILE --from NAME` copies one to edit.\n");
    let host = Host::new();
    for builtin in BUILTINS {
        page.push_str(&recipe(&host.load(builtin.name)?));
    }
    Ok(page)
}

const HEAD: &str = "# Reference

What scripts have. This page is made from the tables that the script host itself is made from (`advlab doc NAME` and
`?NAME` at the prompt show the same), and a test runs every example.

The examples run on five responses to two prompts: `a`, with three responses of which the first and the third are right,
and `b`, with two that are both wrong; their tokens number 2, 3, 1 and 2, 1. What an example gives stands after the arrow,
all values in order.
";

fn section(title: &str, about: &str) -> String {
    let mut letters = title.chars();
    let first = letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().collect());
    format!("\n## {first}{}\n\n*{about}*\n\n", letters.as_str())
}

fn entry(call: &str, doc: &str, source: &str, example: &str, shows: &str) -> String {
    let source = match source {
        "" => String::new(),
        source => format!(" Source: {source}."),
    };
    format!("- **`{call}`**: {doc}.{source}  \n  `{example}` → `{shows}`\n")
}

fn recipe(recipe: &Recipe) -> String {
    let hooks: Vec<String> = Hook::OF_BATCH
        .into_iter()
        .filter(|&hook| recipe.has(hook))
        .map(|hook| format!("`{}`", hook.name()))
        .collect();
    let mut text = format!(
        "\n### {}\n\nHooks: {}.\n\n```text\n{}\n```\n",
        recipe.name(),
        hooks.join(", "),
        recipe.doc()
    );
    if recipe.params().iter().len() > 0 {
        text.push_str("\n| parameter | default | takes | |\n|---|---|---|---|\n");
    }
    for (parameter, value) in recipe.params().iter() {
        let cell = |text: &str| text.replace('|', "\\|");
        text.push_str(&format!(
            "| `{}` | {value} | {} | {} |\n",
            parameter.name,
            cell(&parameter.takes()),
            cell(&parameter.doc)
        ));
    }
    text
}
