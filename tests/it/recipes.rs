//! What holds of the built-in recipes on rollouts: equal rewards teach nothing, and Pass@k on real solutions.

use std::path::Path;

use advlab::batch::{Batch, ReadOptions, read};
use advlab::script::{Host, Recipe, Setting};

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
    let mut recipes: Vec<Recipe> = ["grpo", "dr_grpo", "rloo", "passk", "reinforce_pp_baseline"]
        .iter()
        .map(|name| host.load(name).expect("a built-in"))
        .collect();
    let mut population = recipes[0].clone();
    population
        .set("std", Setting::Text("population".into()))
        .expect("a choice");
    recipes.push(population);
    recipes[3]
        .set("k", Setting::Whole(3))
        .expect("a whole number");
    for recipe in &recipes {
        for value in advantage(recipe, &batch) {
            assert_eq!(value, 0.0, "{}", recipe.name());
        }
    }
}

/// Four solutions to a question: with w wrong ones, every draw of k passes where w < k, and none where all are wrong.
#[test]
fn passk_on_real_solutions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/gsm8k_solutions.jsonl");
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
