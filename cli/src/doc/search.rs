//! Searches names, aliases and explanations for words, and shows the trainers' names for the built-ins (`trainers.toml`).

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::builtins_json;
use super::entry::{ENTRIES, TOPICS};
use crate::paint::{Paint, beside, wrapped};
use crate::{Result, wrong};
use advlab::script::{BUILTINS, Builtin, help_for_foreign};
use advlab::suggest;

/// The largest number of results that are shown.
const SHOWN: usize = 10;

/// An item that a search can find.
pub(super) struct SearchItem {
    pub(super) name: &'static str,
    kind: &'static str,
    summary: String,
    /// Other names, separated by spaces.
    aliases: String,
    /// The text of a topic, the doc comment of a recipe, or the publication of a function; empty for a page.
    text: String,
}

pub(super) fn items() -> impl Iterator<Item = SearchItem> {
    let topics = TOPICS.topics.iter().map(|topic| SearchItem {
        name: &topic.name,
        kind: "topic",
        summary: topic.doc.clone(),
        aliases: topic.others.join(" "),
        text: topic.text.clone(),
    });
    let functions = ENTRIES.iter().map(|entry| SearchItem {
        name: entry.name,
        kind: "function",
        summary: entry.doc.to_string(),
        aliases: String::new(),
        text: entry.source.to_string(),
    });
    let recipes = BUILTINS.iter().map(|builtin| {
        let text = builtin
            .text
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .collect::<Vec<_>>()
            .join("\n");
        let summary = text.lines().next().unwrap_or_default().trim();
        let aliases: Vec<&str> = trainers()
            .flat_map(|(_, trainer)| &trainer.names)
            .filter(|alias| alias.ours == builtin.name)
            .map(|alias| &*alias.theirs)
            .collect();
        SearchItem {
            name: builtin.name,
            kind: "recipe",
            summary: summary.trim_end_matches('.').to_string(),
            aliases: aliases.join(" "),
            text,
        }
    });
    let pages = TOPICS.pages.iter().map(|(name, about)| SearchItem {
        name,
        kind: "page",
        summary: about.clone(),
        aliases: String::new(),
        text: String::new(),
    });
    topics.chain(functions).chain(recipes).chain(pages)
}

impl SearchItem {
    /// Returns three texts in lower case: the names of the item; the names and the summary; the names, the summary and the text.
    fn texts(&self) -> [String; 3] {
        let terms = TOPICS.terms.get(self.name).map_or("", String::as_str);
        let names = format!("{} {terms} {}", self.name, self.aliases).to_lowercase();
        let summary = format!("{names} {}", self.summary).to_lowercase();
        let all = format!("{summary} {}", self.text).to_lowercase();
        [names, summary, all]
    }
}

/// Returns a line for each function, member, topic, recipe or page (or only for each recipe if `only_recipes`) whose texts
/// contain all words. After `SHOWN` lines, one line says how many more items were found. If the words are a name in another
/// language or library, the help for this name comes first. Returns `None` if nothing is found.
pub(super) fn search(asked: &str, only_recipes: bool, paint: Paint) -> Option<String> {
    let foreign = help_for_foreign(asked.trim());
    let foreign = foreign.map(|help| wrapped("", &format!("{asked}: {help}"), paint.width));
    let found = found(asked, only_recipes);
    let mut lines: Vec<String> = foreign.into_iter().collect();
    for item in found.iter().take(SHOWN) {
        let head = format!("  {:<22} {}", item.name, paint.dim(item.kind));
        lines.push(beside(&head, 34, &item.summary, paint.width));
    }
    if found.len() > SHOWN {
        lines.push(paint.dim(&format!("  and {} more", found.len() - SHOWN)));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns the items whose texts contain all words: first the items with all words in their names, then the items with all words
/// in names and summary, then the other matches.
pub(super) fn found(asked: &str, only_recipes: bool) -> Vec<SearchItem> {
    let asked = asked.to_lowercase();
    let words: Vec<&str> = asked
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let has_all = |text: &String| words.iter().all(|word| text.contains(word));
    let mut found: Vec<(usize, SearchItem)> = items()
        .filter(|item| !words.is_empty() && (!only_recipes || item.kind == "recipe"))
        .filter_map(|item| Some((item.texts().iter().position(has_all)?, item)))
        .collect();
    found.sort_by_key(|(place, _)| *place);
    // Functions such as `min` are in two classes.
    let mut seen = HashSet::new();
    let items = found.into_iter().map(|(_, item)| item);
    items
        .filter(|item| seen.insert((item.name, item.kind)))
        .collect()
}

/// A trainer's names for the built-ins, at the version of the trainer whose code was read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trainer {
    pub(super) version: String,
    pub(super) names: Vec<Alias>,
}

/// A trainer's name for a built-in, or the trainer's setting that selects it.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alias {
    pub(super) theirs: String,
    pub(super) ours: String,
    /// The parameters with which the built-in gives the trainer's numbers, written as for `--set`.
    #[serde(default)]
    pub(super) set: String,
    /// The differences that remain between the trainer's numbers and the built-in's; empty if there are none.
    #[serde(default)]
    pub(super) differs: String,
    /// The largest difference between the trainer's numbers and the built-in's on random batches, if it was measured.
    pub(super) measured: Option<f64>,
}

static TRAINERS: LazyLock<BTreeMap<String, Trainer>> = LazyLock::new(|| {
    let text = include_str!("trainers.toml");
    toml::from_str(text).expect("trainers.toml")
});

/// Returns the trainers with their names, in alphabetical order.
pub(super) fn trainers() -> impl Iterator<Item = (&'static str, &'static Trainer)> {
    TRAINERS.iter().map(|(name, of)| (name.as_str(), of))
}

/// Returns a table of a trainer's names: each name beside the recipe with its settings, and the remaining differences below. If
/// there is no trainer of that name, returns the recipes that a search for the name finds; it is an error if it finds none.
pub fn trainer(name: &str, paint: Paint) -> Result<String> {
    let Some(trainer) = TRAINERS.get(&name.to_lowercase()) else {
        return mentions(name, || search(name, true, paint));
    };
    let mut lines = vec![
        paint.bold(&format!("{name} {}", trainer.version)),
        paint.dim("the trainer's name, advlab's recipe with the parameters that give the same numbers,\nand the remaining differences"),
    ];
    for alias in &trainer.names {
        let ours = format!("{} {}", paint.bold(&alias.ours), alias.set);
        let theirs = format!("  {}", alias.theirs);
        lines.push(beside(&theirs, 36, &ours, paint.width));
        if !alias.differs.is_empty() {
            lines.push(paint.dim(&beside("", 4, &alias.differs, paint.width)));
        }
    }
    Ok(lines.join("\n"))
}

/// Returns the information of [`trainer`] as JSON: an object for each of the trainer's names or, if there is no trainer of that
/// name, for each recipe that a search for the name finds.
pub fn trainer_json(name: &str) -> Result<Vec<Value>> {
    let trainer = name.to_lowercase();
    let Some(Trainer { version, names }) = TRAINERS.get(&trainer) else {
        let recipes = || Some(found(name, true)).filter(|found| !found.is_empty());
        let names = mentions(name, recipes)?.into_iter().map(|item| item.name);
        return builtins_json(names, None);
    };
    let row = |alias: &Alias| {
        let mut row = json!(alias);
        row["trainer"] = json!(trainer);
        row["version"] = json!(version);
        row
    };
    Ok(names.iter().map(row).collect())
}

/// Returns the result of a search for a name that no trainer has. Fails if nothing is found, or if the name resembles a trainer's
/// name or is that of a recipe.
fn mentions<T>(name: &str, search: impl FnOnce() -> Option<T>) -> Result<T> {
    let names = || trainers().map(|(name, _)| name);
    let help = if let Some(near) = suggest::nearest(name, names()) {
        format!("did you mean `{near}`?")
    } else if Builtin::find(name).is_some() {
        format!("{name} is a recipe: `advlab doc {name}` explains it")
    } else if let Some(found) = search() {
        return Ok(found);
    } else {
        format!("there are {}", suggest::list(names()))
    };
    let message = format!("`{name}` is not a known trainer");
    Err(wrong(message, help))
}
