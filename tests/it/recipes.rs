//! What holds of the built-in recipes on rollouts: equal rewards give the advantage 0, and Pass@k on real solutions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use advlab::batch::{Batch, Computed};
use advlab::files::{Dtype, ReadOptions, read};
use advlab::script::{BUILTINS, Builtin, Host, ParamValue, Recipe};
use serde_json::json;

fn advantage(recipe: &Recipe, batch: &Batch) -> Vec<f64> {
    let mut state = recipe.init().expect("a state");
    match recipe.advantage(batch, &mut state) {
        Ok(outcome) => outcome.advantage.buffer().iter().collect(),
        Err(error) => panic!("{}", error.render(false)),
    }
}

/// Groups of 0.7 eight times, 0.1 three times and 1/3 five times: sums of these round, and 0 must be 0 all the same.
#[test]
fn equal_rewards_give_exactly_zero() {
    let groups = [(0, 0.7, 8), (1, 0.1, 3), (2, 1.0 / 3.0, 5)];
    let each = || {
        let all = groups.iter();
        all.flat_map(|&(id, reward, size)| vec![(id, reward); size])
    };
    let rewards: Vec<f64> = each().map(|(_, reward)| reward).collect();
    let batch = Batch::builder()
        .groups(each().map(|(id, _)| id))
        .lengths((0..rewards.len()).map(|place| 1 + place % 4))
        .response("reward", rewards);
    let batch = batch.build().expect("a batch");
    let recipes = "grpo dr_grpo rloo grpo_loo maxrl opo gpg lite_ppo opmd rec passk passk_full_sampling passk_bootstrap \
        passk_exceeding passk_combination pkpo grpo_passk reinforce_pp_baseline grpo:std=population \
        opmd:baseline=logavgexp rec:drop=balance gpg:f_norm=0.3";
    for words in recipes.split_whitespace() {
        let (name, setting) = words.split_once(':').unwrap_or((words, ""));
        let mut recipe = Host::new().load(name).expect("a built-in");
        // No group is smaller, and not every recipe has a k.
        let _ = recipe.set("k", ParamValue::Integer(3));
        if let Some((parameter, value)) = setting.split_once('=') {
            recipe.set_text(parameter, value).expect("a setting");
        }
        let is_zero = |value: &f64| *value == 0.0;
        assert!(advantage(&recipe, &batch).iter().all(is_zero), "{words}");
    }
}

/// The example of the guide: every turn is rewarded with 1, and one of two trajectories has a second turn. Rewards that are
/// normalised before they are summed do not favour the second turn, although it earns 1 more.
#[test]
fn a_baseline_for_turns_does_not_depend_on_when_a_trajectory_stops() {
    let batch = Batch::builder()
        .groups([0, 0, 0])
        .lengths([1, 1, 1])
        .text(
            "trajectory",
            ["stops", "goes on", "goes on"].map(String::from),
        )
        .response("turn", vec![0.0, 0.0, 1.0])
        .response("step_reward", vec![1.0; 3])
        .response("reward", vec![1.0; 3]);
    let batch = batch.build().expect("a batch");
    for (baseline, expected) in [("return", [-0.5, 0.5]), ("reward", [0.0, 0.0])] {
        let mut recipe = Host::new().load("turn_grpo").expect("a built-in");
        recipe.set_text("baseline", baseline).expect("a choice");
        recipe.set_text("norm", "none").expect("a choice");
        assert_eq!(advantage(&recipe, &batch)[..2], expected, "{baseline}");
    }
}

/// The bits of all that a recipe computes of a file, or the message of its error.
fn computed(recipe: &Recipe, file: &Path, columns: Option<&BTreeSet<String>>) -> String {
    let options = ReadOptions {
        columns,
        ..ReadOptions::default()
    };
    let batch = read(file, &options).expect("rollouts").batch;
    let bits = |values: &Computed| -> Vec<u64> {
        let values = values.buffer().iter();
        values.map(f64::to_bits).collect()
    };
    let mut state = recipe.init().expect("a state");
    let before = state.clone();
    let outcome = match recipe.advantage(&batch, &mut state) {
        Ok(outcome) => outcome,
        Err(error) => return error[0].message.clone(),
    };
    let returns = recipe
        .returns(&batch, &before)
        .map(|returns| returns.as_ref().map(bits));
    let loss = outcome.weighted(&batch);
    let loss = loss.and_then(|batch| recipe.loss(&batch, Some(&outcome.advantage), &mut state));
    let loss = loss.map(|loss| (loss.value.to_bits(), bits(&loss.gradient)));
    let parts = [&outcome.reward, &outcome.weight, &outcome.correct];
    let parts = parts.map(|part| part.as_ref().map(bits));
    format!(
        "{:?} {parts:?} {:?} {:?} {:?} {:?}",
        bits(&outcome.advantage),
        outcome.reports.metrics,
        outcome.reports.notes,
        returns.map_err(|error| error[0].message.clone()),
        loss.map_err(|error| error[0].message.clone())
    )
}

/// A recipe needs the columns that it names, those that these may be derived from, and no other.
#[test]
fn a_recipe_computes_the_same_of_its_columns_as_of_all() {
    let arrays = "old_logp logp ref_logp rollout_logp teacher_logp value entropy sum_pi_squared process_reward step_reward";
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = Vec::new();
    for (kind, scores) in [("reward", true), ("token_reward", true), ("answers", false)] {
        let line = |at: usize| {
            let (group, turn, length) = (at / 6, at % 2, 2 + at % 3);
            let array = |seed: usize| {
                let values = (0..length)
                    .map(|token| -0.01 - ((7 * at + 3 * token + seed) % 11) as f64 / 16.0);
                values.collect::<Vec<f64>>()
            };
            let mut line = json!({
                "group": group, "trajectory": format!("t{}", at / 2), "turn": turn, "agent": format!("a{turn}"),
                "episode": format!("e{}", at / 2), "role": format!("r{turn}"), "state": format!("s{}", at % 3),
                "kl": 0.5, "rho": 1.25, "state_score": at % 5, "flawed": at % 2, "input_tokens": 3 + at, "truncated": at % 2, "turns": 1 + at % 2,
                "prompt": "1 + 1?", "mine": array(90),
            });
            for (seed, name) in arrays.split(' ').enumerate() {
                line[name] = json!(array(seed));
            }
            match kind {
                "reward" => line["reward"] = json!(at % 3),
                "token_reward" => line[kind] = json!(array(5)),
                _ => line["solution"] = json!("2"),
            }
            line["completion"] = json!(format!("it is \\boxed{{{}}}", 1 + at % 2));
            format!("{line}\n")
        };
        let path = folder.path().join(format!("{kind}.jsonl"));
        std::fs::write(&path, (0..24).map(line).collect::<String>()).expect("a file");
        if scores {
            // Padded, in f32.
            let options = ReadOptions {
                dtype: Some(Dtype::F32),
                ..ReadOptions::default()
            };
            let padded = path.with_extension("safetensors");
            let batch = read(&path, &options).expect("rollouts").batch;
            batch.write_safetensors(&padded).expect("a file");
            files.push(padded);
        }
        files.push(path);
    }
    let (mut projected, mut same) = (0, 0);
    for builtin in BUILTINS.iter() {
        let recipe = Host::new().load(builtin.name).expect("a built-in");
        let Some(columns) = recipe.columns() else {
            continue;
        };
        assert!(recipe.reads().is_subset(&columns), "{}", builtin.name);
        projected += 1;
        for file in &files {
            let [some, all] =
                [Some(&columns), None].map(|columns| computed(&recipe, file, columns));
            assert_eq!(some, all, "{} of {}", builtin.name, file.display());
            same += usize::from(all.starts_with('['));
        }
    }
    // Of the built-ins, only `gdpo` computes the name of a column; most run on most of these files.
    assert!(
        projected + 1 == BUILTINS.len() && same >= 3 * projected,
        "{projected} {same}"
    );
}

/// Four solutions to a question: with w wrong ones, every draw of k passes where w < k, and none where all are wrong.
#[test]
fn passk_on_real_solutions() {
    let path = Path::new(crate::ROOT).join("../shared/data/gsm8k_solutions.jsonl");
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return;
    }
    let rollouts = read(&path, &ReadOptions::default()).expect("real rollouts");
    let batch = &rollouts.batch;
    let layout = batch.layout();
    let correct = batch.response_column("correct").expect("labels");
    for k in [2usize, 4] {
        let mut recipe = Host::new().load("passk").expect("a built-in");
        let set = recipe.set("k", ParamValue::Integer(k as i64));
        set.expect("a whole number");
        let got = advantage(&recipe, batch);
        let mut zeros = 0;
        for group in 0..layout.groups() {
            let members = layout.members(group);
            let is_wrong = |i: &&u32| correct[**i as usize] == 0.0;
            let wrong = members.iter().filter(is_wrong).count();
            let silent = wrong == members.len() || wrong < k;
            zeros += usize::from(silent);
            let mut sum = 0.0;
            for &response in members {
                let (value, right) = (got[response as usize], correct[response as usize] == 1.0);
                sum += value;
                match (silent, right) {
                    (true, _) => assert_eq!(value, 0.0),
                    (false, true) => assert!(value > 0.0),
                    (false, false) => assert!(value < 0.0),
                }
            }
            assert!(sum.abs() < 1e-12, "group {group}: {sum}");
        }
        // 432 all wrong, 156 all right; at k = 2 also the 205 with one wrong, at k = 4 all others.
        let expected = [432 + 156 + 205, layout.groups()][usize::from(k == 4)];
        assert_eq!(zeros, expected);
    }
}

/// A script in `stdlib/` that nobody lists would be in no command and no test.
#[test]
fn every_script_of_the_stdlib_is_built_in() {
    let stdlib = Path::new(crate::ROOT).join("stdlib");
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_string());
        paths.map(|path| stem(path).expect("a name")).collect()
    };
    let mut kinds = names(&stdlib);
    kinds.retain(|kind| !["shared", "trainers"].contains(&kind.as_str()));
    for kind in kinds {
        for name in names(&stdlib.join(&kind)) {
            assert!(Builtin::find(&name).is_some(), "{kind}/{name}");
        }
    }
    for name in names(&stdlib.join("shared")) {
        let text = format!("import \"{name}\" as it; fn advantage(batch, p) {{ batch.reward }}");
        let compiled = Host::new().compile("imports", &text);
        compiled.expect("it can be imported");
    }
}
