//! Tests the examples and names in the tables, and the pages of `docs/` that are made from the tables: `reference.md`, every
//! function on one page, and `recipes.md`, every built-in recipe and what other trainers call it.
//! `UPDATE_REFERENCE=1 cargo test -p advlab-cli --lib doc::` writes the pages.

use std::path::Path;

use super::entry::{Entry, TOPICS, Topic, filled, sections, shown};
use super::search::{Alias, found, items, trainers};
use crate::Result;
use crate::paint::{Paint, WIDTH};
use crate::report::study::objectives::multiples;
use crate::report::study::{NEUTRAL, Objective};
use advlab::check::{needs, usual};
use advlab::script::{BUILTINS, Hook, MEMBERS, RECIPE_KINDS};
use advlab::{Batch, Diagnostics, Host, Recipe};

/// The group's size in the pictures.
const SIZE: usize = 16;

#[test]
fn pages_are_what_the_tables_make() {
    let mut files = recipes().expect("the built-ins load");
    files.push(("reference.md".to_string(), reference()));
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
    for (name, made) in files {
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(docs.join(&name), &made).expect("the page");
        }
        let page = std::fs::read_to_string(docs.join(&name)).expect("the page");
        assert!(
            page == made,
            "docs/{name} is not what the tables make: UPDATE_REFERENCE=1 cargo test -p advlab-cli --lib doc::"
        );
    }
}

/// `recipes.md`, and the pictures of objectives that it shows, as paths below `docs/` with the contents of the files.
fn recipes() -> Result<Vec<(String, String)>> {
    let host = Host::new();
    let (mut page, mut entries, mut pictures) = (String::from(RECIPES), String::new(), Vec::new());
    for (title, own) in super::recipes() {
        let names = own.iter().map(|one| format!("[{0}](#{0})", one.name));
        let names: Vec<String> = names.collect();
        page.push_str(&format!("\n- {}: {}", capital(title), names.join(", ")));
    }
    for (kind, about) in RECIPE_KINDS {
        let title = capital(about);
        let own = || BUILTINS.iter().filter(|builtin| builtin.kind == kind);
        let (mut texts, mut objectives) = (String::new(), Vec::new());
        for builtin in own() {
            let recipe = host.load(builtin.name)?;
            let objective = Objective::of(&recipe, None, SIZE);
            texts.push_str(&recipe_entry(&recipe, objective.as_ref()));
            objectives.extend(objective);
        }
        entries.push_str(&format!("\n## {title}\n"));
        if !objectives.is_empty() {
            let file = format!("objectives/{kind}.svg");
            entries.push_str(&format!("\n![objectives: {about}]({file})\n"));
            let figure = multiples(format!("{title}: F'(p)"), &objectives);
            pictures.push((file, figure.svg()));
        }
        entries.push_str(&texts);
    }
    page.push_str("\n- [Names elsewhere](#names-elsewhere)\n");
    page.push_str(&entries);
    page.push_str(NAMES);
    for (name, trainer) in trainers() {
        let version = &trainer.version;
        let is_measured = trainer.names.iter().any(|alias| alias.measured.is_some());
        page += &format!("\n### {name} {version}\n\n| there | here | differs |");
        page += if is_measured {
            " measured |\n|---|"
        } else {
            "\n|"
        };
        page += "---|---|---|\n";
        page.extend(trainer.names.iter().map(|alias| row(alias, is_measured)));
    }
    pictures.push(("recipes.md".to_string(), page));
    Ok(pictures)
}

/// A line about the objective: the closest known objective, or why there is none.
fn climbs(recipe: &Recipe, objective: Result<&Objective, &Diagnostics>) -> String {
    let nearest = objective.map(Objective::nearest);
    match nearest.as_ref().map(|all| all.first()) {
        Err(error) => format!("{}.", capital(&error[0].message)),
        Ok(Some((known, off))) => {
            let (name, off) = (known.name(), 100.0 * off);
            let exact = objective.is_ok_and(Objective::is_exact);
            let estimate = ["By an estimate over random orders, ", ""][usize::from(exact)];
            let given = match recipe.has(Hook::Advantage) {
                true => String::new(),
                false if needs(recipe, "advantage") => {
                    format!("with the advantage of `{NEUTRAL}`, and while logp = old_logp, ")
                }
                false => "while logp = old_logp, ".to_string(),
            };
            let text = format!(
                "{estimate}{given}the closest known objective is `{name}`; the weights F'(p) of the two objectives differ by {off:.1} %."
            );
            capital(&text)
        }
        Ok(None) => {
            "The recipe has no objective to compare: F'(p) is 0 for all p, or below 0 for some p."
                .to_string()
        }
    }
}

const RECIPES: &str = "# Recipes

This page is for people who look for a method. It is generated from the scripts in `stdlib/`. `advlab doc NAME` shows a recipe,
`advlab new FILE --from NAME` copies it to a file that can be edited, and `import \"NAME\" as it;` uses it in a script. Each
recipe is tested against golden values of its formula, with a tolerance of 1e-9.

\"Needs\" lists the columns without which a recipe does not run with its default parameters; `reward` can be computed from `correct`
or `token_reward`, and `old_logp` replaces a missing `logp`.

The pictures show how much weight a recipe gives to prompts of each difficulty. The weight is F'(p), the derivative of the
recipe's objective with respect to p, the chance of a right response. Groups have 16 responses, and F' is scaled to a mean of 1;
the dashed line is the weight if the objective is the reward itself. [objectives.md](objectives.md) says how F' is computed, and
`advlab objective NAME` draws F' for one recipe.
";

const NAMES: &str = "
## Names elsewhere

This section lists the names of these recipes in other trainers, taken from the trainers' code at the given version; not all of
that code was run. `advlab recipes verl` shows verl's names. With the parameters in the second column, both formulas are the
same, except for what the third column says about the trainer. verl's table has a fourth column with measurements: the largest
difference between verl's result and advlab's. The results are advantages, or a loss and its gradient times the number of
tokens, in f64, on four batches with responses and groups of different sizes. Two of these batches have holes in the mask.
";

fn recipe_entry(recipe: &Recipe, objective: Result<&Objective, &Diagnostics>) -> String {
    let listed = |names: Vec<&str>| format!("`{}`", names.join("`, `"));
    let names = trainers().filter_map(|(name, trainer)| {
        let is_this = |alias: &&Alias| alias.ours == recipe.name();
        let theirs = trainer.names.iter().filter(is_this);
        let theirs: Vec<&str> = theirs.map(|alias| &*alias.theirs).collect();
        (!theirs.is_empty()).then(|| format!("{name} {}", listed(theirs)))
    });
    let names: Vec<String> = names.collect();
    let mut text = format!(
        "\n### {}\n\n```text\n{}\n```\n\n",
        recipe.name(),
        recipe.doc()
    );
    let batch = usual();
    let responses = batch.response_columns().map(|(name, _)| name);
    let tokens = batch.token_columns().map(|(name, _)| name);
    let texts = batch.texts().map(|(name, _)| name);
    let columns = responses.chain(tokens).chain(texts);
    let needed: Vec<&str> = columns.filter(|column| needs(recipe, column)).collect();
    if !needed.is_empty() {
        text += &format!("Needs {}. ", listed(needed));
    }
    text += &format!("{}\n", climbs(recipe, objective));
    if !names.is_empty() {
        text += &format!("\nElsewhere: {}.\n", names.join("; "));
    }
    if recipe.params().iter().len() > 0 {
        text += "\n| parameter | default | takes | |\n|---|---|---|---|\n";
    }
    for (parameter, value) in recipe.params().iter() {
        let [takes, doc] = [&parameter.takes(), &parameter.doc].map(|text| cell(text));
        text += &format!("| `{}` | {value} | {takes} | {doc} |\n", parameter.name);
    }
    text
}

fn row(alias: &Alias, is_measured: bool) -> String {
    let ours = format!("{} {}", alias.ours, alias.set);
    let [theirs, ours] = [&*alias.theirs, ours.trim()].map(cell);
    let measured = alias.measured.map_or(String::new(), |most| match most {
        0.0 => "0".to_string(),
        most => format!("{most:.0e}"),
    });
    let measured = is_measured.then(|| format!(" {measured} |"));
    let (differs, measured) = (cell(&alias.differs), measured.unwrap_or_default());
    format!("| `{theirs}` | `{ours}` | {differs} |{measured}\n")
}

/// A title with a capital.
fn capital(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The reference page, in Markdown. The results of examples are those that the tables state; other tests run the examples
/// and compare.
fn reference() -> String {
    let mut page = String::from(REFERENCE);
    let about = "what scripts are made of; `?levels` at the prompt shows one";
    page += &section("topics", about);
    for topic in TOPICS.topics.iter() {
        let (name, doc, example) = (&topic.name, &topic.doc, &topic.example);
        let text = filled(&topic.text, WIDTH);
        page +=
            &format!("### {name}\n\n{doc}.\n\n```text\n{text}\n```\n\n```rhai\n{example}\n```\n\n");
    }
    for of in sections() {
        page.push_str(&section(&of[0].section, of[0].about));
        page.extend(of.iter().map(entry));
    }
    page.push_str("\n## Recipes\n\n[docs/recipes.md](recipes.md) lists all recipes.\n");
    page
}

const REFERENCE: &str = "# Reference

This page lists what advlab adds to Rhai's own functions for numbers, strings, arrays and maps. `advlab doc NAME`, and `?NAME` at
the prompt, show the same. A test runs every example.

The examples run on five responses to two prompts: `a`, with three responses of 2, 3 and 1 tokens, of which the first and the third are
right, and `b`, with two wrong responses of 2 and 1 tokens. The values of the result follow the arrow, in order.
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

#[test]
fn every_example_of_a_member_gives_what_it_shows() {
    let (host, batch) = (Host::new(), Batch::example());
    for member in MEMBERS.iter() {
        let answer = host.evaluate(member.example, &batch);
        let answer = answer.unwrap_or_else(|error| panic!("{}", error.render(false)));
        assert_eq!(shown(&answer), member.shows, "{}", member.call);
    }
}

#[test]
fn a_topic_has_its_words_an_example_that_runs_and_lines_that_fit() {
    let batch = Batch::example();
    for topic in TOPICS.topics.iter() {
        let run = || {
            let recipe = Host::new().compile(&topic.name, &topic.example)?;
            assert!(recipe.warnings().is_empty(), "{}", topic.name);
            recipe.advantage(&batch, &mut recipe.init()?)
        };
        if let Err(error) = run() {
            panic!("{}: {}", topic.name, error.render(false));
        }
        for word in topic.others.iter().chain([&topic.name]) {
            let found = Topic::find(word).map(|found| &found.name);
            assert_eq!(found, Some(&topic.name), "{word}");
        }
        let shown = topic.shown(Paint::PLAIN);
        let long = shown.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{}", topic.name);
    }
}

#[test]
fn words_lead_to_what_is_meant() {
    for (asked, wanted) in [
        ("baseline", "running"),
        ("baseline", "reinforce_pp_baseline"),
        ("overlong", "dapo_overlong"),
        ("leave one out", "rloo"),
        ("leave-one-out", "grpo_loo"),
        ("Zscore", "whiten"),
        ("z-score", "whiten"),
        ("normalize", "whiten"),
        ("argmax", "argmax"),
        ("gradient", "grad"),
        ("adv", "hooks"),
        ("clip", "clamp"),
        ("clip", "ppo_clip"),
        ("dynamic sampling", "weights"),
        ("return to go", "suffix_sum"),
        ("quantile", "quantile"),
        ("entropy loss", "high_entropy"),
        ("noise", "docs/objectives.md"),
        ("mixing", "docs/mixing.md"),
    ] {
        let found = found(asked, false);
        let names: Vec<&str> = found.iter().take(5).map(|item| item.name).collect();
        assert!(names.contains(&wanted), "{asked}: {names:?}");
    }
    for asked in ["", " ", "sufix_sum", "pask", "qqq"] {
        assert!(found(asked, false).is_empty(), "{asked}");
    }
    // Every page that is not made from the tables can be found.
    let names = std::fs::read_dir("../docs").expect("the pages").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_own = |name: &String| !["SUMMARY.md", "recipes.md", "reference.md"].contains(&&**name);
    let pages = names.filter(|name| name.ends_with(".md") && is_own(name));
    let mut pages: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    pages.sort();
    assert!(pages.iter().eq(TOPICS.pages.keys()), "{pages:?}");
    // Each term belongs to an existing name.
    for name in TOPICS.terms.keys() {
        assert!(items().any(|item| item.name == *name), "{name}");
    }
}

#[test]
fn every_name_is_of_a_built_in_that_takes_the_settings() {
    for (name, trainer) in trainers() {
        for alias in &trainer.names {
            let recipe = Host::new().load(&alias.ours);
            let mut recipe = recipe.unwrap_or_else(|error| panic!("{name}: {error}"));
            for setting in alias.set.split_whitespace() {
                let (parameter, value) = setting.split_once('=').unwrap();
                let set = recipe.set_text(parameter, value);
                set.unwrap_or_else(|error| panic!("{name} {}: {error}", alias.theirs));
            }
        }
    }
}
