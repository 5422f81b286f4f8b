//! `docs/reference.md`: every function and recipe on one page.

use super::entry::{Entry, filled};
use super::{TOPICS, sections};
use crate::diagnostic::Diagnostics;
use crate::paint::WIDTH;
use crate::script::{BUILTINS, Hook, Host, Recipe};

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
    for topic in TOPICS.iter() {
        page.push_str(&format!(
            "### {}\n\n{}.\n\n```text\n{}\n```\n\n```rhai\n{}\n```\n\n",
            topic.name,
            topic.doc,
            filled(topic.text, WIDTH),
            topic.example
        ));
    }
    for of in sections() {
        page.push_str(&section(&of.title, of.about));
        page.extend(of.entries.iter().map(entry));
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

fn entry(entry: &Entry) -> String {
    let source = match entry.source {
        "" => String::new(),
        source => format!(" Source: {source}."),
    };
    let (call, doc, example, shows) = (&entry.call, entry.doc, entry.example, &entry.shows);
    format!("- **`{call}`**: {doc}.{source}  \n  `{example}` → `{shows}`\n")
}

fn recipe(recipe: &Recipe) -> String {
    let hooks = Hook::OF_BATCH.iter().filter(|hook| recipe.has(**hook));
    let hooks: Vec<String> = hooks.map(|hook| format!("`{}`", hook.name())).collect();
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
