//! `docs/reference.md`: every function on one page.

use super::entry::{Entry, filled};
use super::{TOPICS, capital, sections};
use crate::paint::WIDTH;

/// The reference page, in Markdown. The examples' results are those of the tables, which tests compare with what comes
/// out.
pub fn reference() -> String {
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
    page.push_str("\n## Recipes\n\n[docs/recipes.md](recipes.md) has them all.\n");
    page
}

const HEAD: &str = "# Reference

What scripts have. This page is made from the tables that the script host itself is made from (`advlab doc NAME` and
`?NAME` at the prompt show the same), and a test runs every example.

The examples run on five responses to two prompts: `a`, with three responses of which the first and the third are right,
and `b`, with two that are both wrong; their tokens number 2, 3, 1 and 2, 1. What an example gives stands after the arrow,
all values in order.
";

fn section(title: &str, about: &str) -> String {
    format!("\n## {}\n\n*{about}*\n\n", capital(title))
}

fn entry(entry: &Entry) -> String {
    let source = match entry.source {
        "" => String::new(),
        source => format!(" Source: {source}."),
    };
    let (call, doc, example, shows) = (&entry.call, entry.doc, entry.example, &entry.shows);
    format!("- **`{call}`**: {doc}.{source}  \n  `{example}` → `{shows}`\n")
}
