//! Topics that are no function: levels, the batch, hooks, parameters, state, the language.

use std::sync::LazyLock;

use super::entry::filled;
use advlab::paint::Paint;

/// A part of `topics.md`.
pub(super) struct Topic {
    /// The word that is asked for.
    pub(super) name: &'static str,
    /// Other words for it.
    pub(super) others: Vec<&'static str>,
    /// One line about it.
    pub(super) doc: &'static str,
    /// The explanation: paragraphs, and lines that are indented and stay as they are.
    pub(super) text: &'static str,
    /// A recipe that shows it.
    pub(super) example: &'static str,
}

/// All topics, in the order in which a newcomer needs them.
pub(super) static TOPICS: LazyLock<Vec<Topic>> = LazyLock::new(|| {
    let parts = include_str!("topics.md").split("\n# ");
    let topics = parts.map(|part| {
        let part = part.trim_start_matches("# ").trim_end();
        let (head, rest) = part.split_once("\n\nAlso: ")?;
        let (name, doc) = head.split_once(": ")?;
        let (others, rest) = rest.split_once("\n\n")?;
        let (text, example) = rest.split_once("\n\n```rhai\n")?;
        Some(Topic {
            name,
            others: others.split(", ").collect(),
            doc,
            text,
            example: example.strip_suffix("\n```")?,
        })
    });
    let topics: Option<Vec<Topic>> = topics.collect();
    topics.expect("topics.md has a head, other words, a text and an example for each topic")
});

impl Topic {
    pub(super) fn find(word: &str) -> Option<&'static Topic> {
        let is_it = |topic: &&Topic| topic.name == word || topic.others.contains(&word);
        TOPICS.iter().find(is_it)
    }

    pub(super) fn shown(&self, paint: Paint) -> String {
        let example = self.example.lines().map(|line| format!("\n  {line}"));
        let (name, doc) = (paint.bold(self.name), self.doc);
        let text = filled(self.text, paint.width);
        format!("{name}: {doc}\n\n{text}\n{}", example.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use advlab::Batch;
    use advlab::script::Host;

    #[test]
    fn every_example_of_a_topic_is_a_recipe_that_runs() {
        let batch = Batch::example();
        for topic in TOPICS.iter() {
            let run = |text: &str| {
                let recipe = Host::new().compile(topic.name, text)?;
                assert!(recipe.warnings().is_empty(), "{}", topic.name);
                recipe.advantage(&batch, &mut recipe.init()?)
            };
            if let Err(error) = run(topic.example) {
                panic!("{}: {}", topic.name, error.render(false));
            }
        }
    }

    #[test]
    fn a_word_stands_for_one_topic_and_lines_fit() {
        for topic in TOPICS.iter() {
            for word in topic.others.iter().chain([&topic.name]) {
                let found = Topic::find(word).map(|found| found.name);
                assert_eq!(found, Some(topic.name), "{word}");
            }
            let shown = topic.shown(Paint::PLAIN);
            let long = shown.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{}", topic.name);
        }
    }
}
