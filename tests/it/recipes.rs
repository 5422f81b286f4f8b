//! What holds of the built-in recipes on rollouts: equal rewards teach nothing, and Pass@k on real solutions.

use std::path::Path;

use advlab::batch::Batch;
use advlab::files::{ReadOptions, read};
use advlab::script::{Builtin, Host, Recipe, Setting};

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
    let groups: Vec<(i64, f64, usize)> = vec![(0, 0.7, 8), (1, 0.1, 3), (2, 1.0 / 3.0, 5)];
    let each = || {
        groups
            .iter()
            .flat_map(|&(id, reward, size)| vec![(id, reward); size])
    };
    let batch = Batch::builder()
        .groups(each().map(|(id, _)| id))
        .lengths(each().enumerate().map(|(place, _)| 1 + place % 4))
        .response(
            "reward",
            each().map(|(_, reward)| reward).collect::<Vec<f64>>(),
        )
        .build()
        .expect("a batch");
    let host = Host::new();
    let names = [
        "grpo",
        "dr_grpo",
        "rloo",
        "grpo_loo",
        "maxrl",
        "opo",
        "gpg",
        "lite_ppo",
        "opmd",
        "rec",
        "passk",
        "passk_full_sampling",
        "passk_bootstrap",
        "passk_exceeding",
        "passk_combination",
        "pkpo",
        "grpo_passk",
        "reinforce_pp_baseline",
    ];
    let load = |name: &&str| {
        let mut recipe = host.load(name).expect("a built-in");
        // No group is smaller, and not every recipe has a k.
        let _ = recipe.set("k", Setting::Whole(3));
        recipe
    };
    let mut recipes: Vec<Recipe> = names.iter().map(load).collect();
    let mut population = recipes[0].clone();
    population
        .set("std", Setting::Text("population".into()))
        .expect("a choice");
    recipes.push(population);
    for (name, parameter, value) in [
        ("opmd", "baseline", "logavgexp"),
        ("rec", "drop", "balance"),
        ("gpg", "f_norm", "0.3"),
    ] {
        let mut recipe = host.load(name).expect("a built-in");
        recipe.set_text(parameter, value).expect("a setting");
        recipes.push(recipe);
    }
    for recipe in &recipes {
        for value in advantage(recipe, &batch) {
            assert_eq!(value, 0.0, "{}", recipe.name());
        }
    }
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
        recipe
            .set("k", Setting::Whole(k as i64))
            .expect("a whole number");
        let got = advantage(&recipe, batch);
        let mut zeros = 0;
        for group in 0..layout.groups() {
            let members = layout.members(group);
            let wrong = members
                .iter()
                .filter(|&&i| correct[i as usize] == 0.0)
                .count();
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
        assert_eq!(
            zeros,
            if k == 2 {
                432 + 156 + 205
            } else {
                layout.groups()
            }
        );
    }
}

/// A script in `stdlib/` that nobody lists would be in no command and no test.
#[test]
fn every_script_of_the_stdlib_is_built_in() {
    let stdlib = Path::new(crate::ROOT).join("stdlib");
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let stems = paths.map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        });
        stems.collect()
    };
    for kind in names(&stdlib)
        .iter()
        .filter(|kind| !["shared", "trainers"].contains(&kind.as_str()))
    {
        for name in names(&stdlib.join(kind)) {
            assert!(Builtin::find(&name).is_some(), "{kind}/{name}");
        }
    }
    for name in names(&stdlib.join("shared")) {
        let text = format!("import \"{name}\" as it; fn advantage(batch, p) {{ batch.reward }}");
        Host::new()
            .compile("imports", &text)
            .expect("it can be imported");
    }
}
