//! What holds of the built-in recipes on rollouts: equal rewards teach nothing, and Pass@k on real solutions.

use std::path::{Path, PathBuf};

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
        let _ = recipe.set("k", Setting::Whole(3));
        if let Some((parameter, value)) = setting.split_once('=') {
            recipe.set_text(parameter, value).expect("a setting");
        }
        let is_zero = |value: &f64| *value == 0.0;
        assert!(advantage(&recipe, &batch).iter().all(is_zero), "{words}");
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
        let set = recipe.set("k", Setting::Whole(k as i64));
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
