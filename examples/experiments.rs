//! Runs the documented recipes on the maze, several seeds each, and prints a table in Markdown.
//!
//!     cargo run --release --example experiments -- [STEPS] [SEEDS] [FOLDER] [NAME]
//!
//! 600 steps, 3 seeds, `runs/experiments` and the lines of any name if not given. Each run keeps its folder there, for `advlab replay`; one that is
//! there already is not run again, but goes on where it was stopped.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use advlab::script::Builtin;
use advlab::train::{Config, Event, Run};
use serde_json::Value;

/// A parameter that is set, by its name and value.
type Setting = (&'static str, &'static str);

/// A line of the table: name, recipe, its parameters, and what the run's configuration has otherwise.
type Line = (
    &'static str,
    &'static str,
    &'static [Setting],
    fn(&mut Config),
);

fn as_it_is(_: &mut Config) {}

/// Each prompt of a pool once a step: a baseline for each takes the place of a group.
fn one_response_a_prompt(config: &mut Config) {
    (config.prompts, config.rollout_batch_size, config.group_size) = (1024, 1024, 1);
}

fn in_turns(config: &mut Config) {
    config.maze_turns = 4;
}

/// DAPO: dynamic sampling, and a higher upper clip.
fn dapo(config: &mut Config) {
    config.resample = true;
    let clip = toml::Value::Float(0.28);
    config.loss_params.insert("clip_high".to_string(), clip);
}

/// The lines of the table.
const RECIPES: [Line; 16] = [
    ("grpo", "grpo", &[], as_it_is),
    ("passk, k = 8", "passk", &[("k", "8")], as_it_is),
    ("reinforce_pp", "reinforce_pp", &[], as_it_is),
    (
        "reinforce_pp_baseline",
        "reinforce_pp_baseline",
        &[],
        as_it_is,
    ),
    ("pacs", "pacs", &[], as_it_is),
    ("grpo_lambda", "grpo_lambda", &[], as_it_is),
    (
        "grpo_lambda, acc_top_lambda = 1",
        "grpo_lambda",
        &[("acc_top_lambda", "1.0")],
        as_it_is,
    ),
    (
        "passk_combination, k = 8",
        "passk_combination",
        &[("k", "8")],
        as_it_is,
    ),
    (
        "passk_by_entropy, k = 8",
        "passk_by_entropy",
        &[("k", "8")],
        as_it_is,
    ),
    ("gspo", "grpo", &[], |config| {
        config.loss_recipe = "gspo".to_string()
    }),
    ("cispo", "grpo", &[], |config| {
        config.loss_recipe = "cispo".to_string()
    }),
    ("dapo", "zero_variance_filter", &[], dapo),
    ("spo, 1024 prompts", "spo", &[], one_response_a_prompt),
    (
        "reinforce_pp, 1024 prompts",
        "reinforce_pp",
        &[],
        one_response_a_prompt,
    ),
    ("step_grpo, 4 turns", "step_grpo", &[], in_turns),
    ("gigpo, 4 turns", "gigpo", &[], in_turns),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().as_deref().unwrap_or("600").parse()?;
    let seeds: u64 = arguments.next().as_deref().unwrap_or("3").parse()?;
    let folder = PathBuf::from(arguments.next().as_deref().unwrap_or("runs/experiments"));
    std::fs::create_dir_all(&folder)?;

    println!("{steps} steps, {seeds} seeds; mean and standard deviation over seeds\n");
    println!(
        "| recipe | pass@1 | pass@16 | entropy | length | pass@1, last 50 steps of training |"
    );
    println!("|---|---|---|---|---|---|");
    let only = std::env::args().nth(4).unwrap_or_default();
    for (name, recipe, settings, otherwise) in RECIPES {
        if !name.contains(&only) {
            continue;
        }
        let mut config = config(steps, recipe, settings);
        otherwise(&mut config);
        table_line(name, &folder, seeds, &config, None)?;
    }
    let half = (steps / 2).to_string();
    let script = "scripts/passk_then_grpo.rhai";
    let config_by_script = config(steps, script, &[("k", "8"), ("switch_step", &half)]);
    table_line(
        "passk, then grpo, by a script",
        &folder,
        seeds,
        &config_by_script,
        None,
    )?;
    let recipe = folder.join("edited.rhai");
    let config_by_edit = config(steps, &recipe.display().to_string(), &[("k", "8")]);
    table_line(
        "passk, then grpo, by editing the file",
        &folder,
        seeds,
        &config_by_edit,
        Some(&recipe),
    )
}

fn config(steps: u64, recipe: &str, settings: &[(&str, &str)]) -> Config {
    let mut config = Config {
        steps,
        recipe: recipe.to_string(),
        ..Config::default()
    };
    for (name, value) in settings {
        config.set(name, value);
    }
    config
}

/// Runs all seeds and prints their line. `edited` is a file that holds passk first, and grpo from the half on.
fn table_line(
    name: &str,
    folder: &Path,
    seeds: u64,
    config: &Config,
    edited: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    let mut results = Vec::new();
    for seed in 0..seeds {
        let letters = name
            .chars()
            .filter(|c| c.is_alphanumeric() || "_ ".contains(*c));
        let stem = letters.collect::<String>().replace(' ', "-");
        let run = folder.join(format!("{stem}-{seed}"));
        let config = Config {
            seed,
            out: run.display().to_string(),
            ..config.clone()
        };
        eprintln!("{name}, seed {seed}");
        train(&run, config, edited)?;
        results.push(result(&run)?);
    }
    let cells = (0..5).map(|column| {
        let values: Vec<f64> = results.iter().map(|result| result[column]).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>();
        // The sample standard deviation; 0 of one seed.
        let std = (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt();
        format!("{mean:.3} ± {std:.3}")
    });
    println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    Ok(())
}

fn train(folder: &Path, config: Config, edited: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let half = config.steps / 2;
    let text = |name: &str| Builtin::find(name).map_or("", |builtin| builtin.text);
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
    let done = metrics.lines().count() as u64;
    if done >= config.steps {
        return Ok(());
    }
    if let Some(edited) = edited {
        let is_edited = done >= half;
        std::fs::write(edited, text(if is_edited { "grpo" } else { "passk" }))?;
    }
    let mut run = match folder.join("config.toml").exists() {
        true => Run::resume(folder, Some(config.steps))?,
        false => Run::create(config)?,
    };
    let mut saved = Ok(());
    let mut observer = |event: &Event<'_>| {
        if let (Event::Step { row, .. }, Some(edited)) = (event, edited)
            && row.step + 1 == half
        {
            saved = std::fs::write(edited, text("grpo"));
        }
    };
    run.go(&AtomicBool::new(false), &mut observer)?;
    Ok(saved?)
}

/// pass@1, pass@16, entropy and length of the last evaluation, and the mean pass@1 of the last 50 steps.
fn result(folder: &Path) -> Result<[f64; 5], Box<dyn Error>> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl"))?;
    let rows: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let last = rows.last().ok_or("a run without a step")?;
    let number = |value: &Value| value.as_f64().ok_or("a number is missing");
    let of = |name: &str| number(&last["evaluation"][name]);
    let tail = &rows[rows.len().saturating_sub(50)..];
    let mut sum = 0.0;
    for row in tail {
        sum += number(&row["pass@1"])?;
    }
    Ok([
        of("pass@1")?,
        of("pass@16")?,
        of("entropy")?,
        of("length")?,
        sum / tail.len() as f64,
    ])
}
