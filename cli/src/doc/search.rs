//! Search by words in names, other names and explanations.

use std::cmp::Reverse;

use super::entries;
use super::entry::TOPICS;
use super::trainers::trainers;
use advlab::paint::{Paint, beside, wrapped};
use advlab::script::{BUILTINS, help_for_foreign};

/// The most results.
const SHOWN: usize = 10;

/// The column at which the summaries stand.
const SUMMARY: usize = 34;

/// Terms of the field that no name has, by the name that they lead to.
pub(super) const TERMS: [(&str, &str); 9] = [
    ("rloo", "leave one out loo"),
    ("grpo_loo", "leave one out loo"),
    (
        "suffix_sum",
        "return to go returns discounted reverse cumulative",
    ),
    ("running", "baseline moving average ema"),
    ("whiten", "normalisation normalization z score"),
    ("rank", "percentile"),
    ("median", "percentile"),
    ("ppo_clip", "clipping clipped surrogate"),
    ("safe_div", "divide division by zero"),
];

/// Something that can be found.
pub(super) struct Item {
    pub(super) name: &'static str,
    kind: &'static str,
    summary: String,
    /// Other names, separated by spaces.
    aliases: String,
    /// The whole explanation.
    text: String,
}

pub(super) fn items() -> impl Iterator<Item = Item> {
    let topics = TOPICS.iter().map(|topic| Item {
        name: topic.name,
        kind: "topic",
        summary: topic.doc.to_string(),
        aliases: topic.others.join(" "),
        text: topic.text.to_string(),
    });
    let functions = entries().map(|entry| Item {
        name: entry.name,
        kind: "function",
        summary: entry.doc.to_string(),
        aliases: String::new(),
        text: entry.source.to_string(),
    });
    let recipes = BUILTINS.iter().map(|builtin| {
        let lines = builtin.text.lines();
        let doc = lines.map_while(|line| line.strip_prefix("//!"));
        let text = doc.collect::<Vec<_>>().join("\n");
        let summary = text.lines().next().unwrap_or_default().trim();
        let names = trainers().flat_map(|(_, trainer)| &trainer.names);
        let names = names.filter(|alias| alias.ours == builtin.name);
        let aliases: Vec<&str> = names.map(|alias| &*alias.theirs).collect();
        Item {
            name: builtin.name,
            kind: "recipe",
            summary: summary.trim_end_matches('.').to_string(),
            aliases: aliases.join(" "),
            text,
        }
    });
    topics.chain(functions).chain(recipes)
}

/// Text in lower case, with spaces instead of punctuation.
fn words(text: &str) -> String {
    let is_punctuation = |letter: char| !letter.is_alphanumeric();
    text.to_lowercase().replace(is_punctuation, " ")
}

impl Item {
    /// How well it matches a word: 0 for not at all.
    fn score(&self, word: &str) -> u32 {
        let begins = |text: &str| words(text).split(' ').any(|own| own.starts_with(word));
        let is = |text: &str| words(text).split(' ').any(|own| own == word);
        let terms = TERMS.iter().filter(|(name, _)| *name == self.name);
        let foreign = help_for_foreign(word).unwrap_or_default();
        let of_code = |code: &str| {
            let mut names = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            names.any(|name| name == self.name)
        };
        if is(self.name) {
            100
        } else if terms.into_iter().any(|(_, terms)| is(terms)) {
            80
        // The help for a function of another library names it.
        } else if self.kind == "function" && foreign.split('`').skip(1).step_by(2).any(of_code) {
            70
        } else if begins(self.name) || self.kind == "topic" && begins(&self.aliases) {
            60
        } else if is(&self.aliases) {
            40
        // `gradient` for `grad`
        } else if begins(&self.aliases) || self.name.len() > 3 && word.starts_with(self.name) {
            30
        } else if begins(&self.summary) {
            20
        } else if begins(&self.text) {
            5
        } else {
            0
        }
    }
}

/// What matches all words, the best first, a line each: functions, members, topics and recipes, or only recipes. `None` if
/// nothing does.
pub(super) fn search(asked: &str, only_recipes: bool, paint: Paint) -> Option<String> {
    let foreign = help_for_foreign(asked.trim());
    let found = found(asked, only_recipes);
    let mut lines = Vec::new();
    lines.extend(foreign.map(|help| wrapped("", &format!("{asked}: {help}"), paint.width)));
    for item in found.iter().take(SHOWN) {
        let head = format!("  {:<22} {}", item.name, paint.dim(item.kind));
        lines.push(beside(&head, SUMMARY, &item.summary, paint.width));
    }
    if found.len() > SHOWN {
        let more = format!("  and {} more", found.len() - SHOWN);
        lines.push(paint.dim(&more));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

pub(super) fn found(asked: &str, only_recipes: bool) -> Vec<Item> {
    let asked = words(asked);
    let asked: Vec<&str> = asked.split_whitespace().collect();
    let items = items().filter(|item| !only_recipes || item.kind == "recipe");
    let scored = items.map(|item| {
        let scores: Vec<u32> = asked.iter().map(|word| item.score(word)).collect();
        let is_found = !scores.is_empty() && scores.iter().all(|score| *score > 0);
        (if is_found { scores.iter().sum() } else { 0 }, item)
    });
    let mut found: Vec<(u32, Item)> = scored.filter(|(score, _)| *score > 0).collect();
    found.sort_by_key(|(score, _)| Reverse(*score));
    // `min` and `max` are rows of two classes.
    found.dedup_by(|(_, b), (_, a)| (a.name, a.kind) == (b.name, b.kind));
    found.into_iter().map(|(_, item)| item).collect()
}
