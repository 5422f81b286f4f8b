//! `docs/recipes.md`: every built-in recipe, and what other trainers call it.

use super::capital;
use super::trainers::{Alias, trainers};
use crate::diagnostic::Diagnostics;
use crate::script::{BUILTINS, Host, Kind, Recipe, needed};

/// The page, in Markdown.
///
/// # Errors
/// Where a built-in recipe does not load, which would be a defect.
pub fn recipes() -> Result<String, Diagnostics> {
    let host = Host::new();
    let (mut page, mut entries) = (String::from(HEAD), String::new());
    for kind in Kind::OF_RECIPES {
        let title = capital(kind.title());
        let own = || BUILTINS.iter().filter(|builtin| builtin.kind == kind);
        let names: Vec<String> = own().map(|one| format!("[{0}](#{0})", one.name)).collect();
        page.push_str(&format!("\n- {title}: {}", names.join(", ")));
        entries.push_str(&format!("\n## {title}\n"));
        for builtin in own() {
            entries.push_str(&entry(&host.load(builtin.name)?));
        }
    }
    page.push_str("\n- [Names elsewhere](#names-elsewhere)\n");
    page.push_str(&entries);
    page.push_str(NAMES);
    for (name, trainer) in trainers() {
        let version = &trainer.version;
        let is_measured = trainer.names.iter().any(|alias| alias.measured.is_some());
        let (head, line) = match is_measured {
            true => (" measured |", "---|"),
            false => ("", ""),
        };
        page.push_str(&format!(
            "\n### {name} {version}\n\n| there | here | differs |{head}\n|---|---|---|{line}\n"
        ));
        page.extend(trainer.names.iter().map(|alias| row(alias, is_measured)));
    }
    Ok(page)
}

const HEAD: &str = "# Recipes

The built-in recipes: `advlab recipes --markdown` makes this page from the scripts in `stdlib/`. `advlab doc NAME` shows one
at the prompt of a shell, `advlab new FILE --from NAME` copies one to edit, and `import \"NAME\" as it;` uses one. Each is
pinned to golden values of its formula at 1e-9.

A column that a recipe needs is one that it does not run without, as its parameters are by default; `reward` follows from
`correct` or `token_reward`, and `logp` from `old_logp`.
";

const NAMES: &str = "
## Names elsewhere

What other trainers call these, read in their code at the version given, though not all of it was run; `advlab recipes verl`
shows one trainer's. With the parameters in the second column the formulas are the same but for what stands in the third. The
fourth, of verl, is measured: the largest difference of advantages, or of a loss and its gradient times the number of tokens,
between verl's function and ours in f64 on four batches of ragged responses in ragged groups, two of them with holes in the mask.
";

fn entry(recipe: &Recipe) -> String {
    let code = |name: &str| format!("`{name}`");
    let needs: Vec<String> = needed(recipe).iter().map(|name| code(name)).collect();
    let names = trainers().filter_map(|(name, trainer)| {
        let is_this = |alias: &&Alias| alias.ours == recipe.name();
        let theirs = trainer.names.iter().filter(is_this);
        let theirs: Vec<String> = theirs.map(|alias| code(&alias.theirs)).collect();
        (!theirs.is_empty()).then(|| format!("{name} {}", theirs.join(", ")))
    });
    let names: Vec<String> = names.collect();
    let mut text = format!(
        "\n### {}\n\n```text\n{}\n```\n",
        recipe.name(),
        recipe.doc()
    );
    text.push_str(&format!("\nNeeds {}.\n", needs.join(", ")));
    if !names.is_empty() {
        text.push_str(&format!("\nElsewhere: {}.\n", names.join("; ")));
    }
    if recipe.params().iter().len() > 0 {
        text.push_str("\n| parameter | default | takes | |\n|---|---|---|---|\n");
    }
    for (parameter, value) in recipe.params().iter() {
        let name = code(&parameter.name);
        let (takes, doc) = (cell(&parameter.takes()), cell(&parameter.doc));
        text.push_str(&format!("| {name} | {value} | {takes} | {doc} |\n"));
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

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
