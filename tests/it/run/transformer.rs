//! A run of a transformer: what holds for the mlp's runs holds for it, and its model can be taken elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use advlab::files::{self, ReadOptions};
use advlab_train::{
    Device, Ending, PolicyName, Run, Schedule, TaskName, TransformerConfig, export,
};
use safetensors::SafeTensors;

use super::lab::{
    Lab, Process, STATEFUL, command, done, go, go_to, lines, refused, replayed, rows, says,
    steps_of, wait_until,
};

/// With everything that could make a difference, as the mlp's; a rate that rises and falls beside it.
fn lab() -> Lab {
    let mut lab = Lab::new(STATEFUL);
    lab.config.policy = PolicyName::Transformer;
    lab.config.lr_schedule = Schedule::Cosine;
    lab.config.warmup_steps = 3;
    lab.config.transformer = TransformerConfig {
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        // Several forward passes a batch.
        tokens_per_forward: 64,
        rows_per_batch: 8,
        device: Device::Cpu,
        ..lab.config.transformer
    };
    lab
}

#[test]
fn a_resumed_run_has_the_numbers_of_one_that_never_stopped_and_repeats_itself() {
    let lab = lab();
    let whole = lab.unstopped();
    let entropy = |index: usize| whole[index]["entropy"].as_f64().unwrap();
    assert!(entropy(0) != entropy(23) && entropy(0) > 1.0);
    go_to(&mut lab.create(), 7);
    // As if it had been killed: the last checkpoint is of step 5.
    fs::remove_dir_all(lab.file("checkpoints/000007")).unwrap();
    let mut run = lab.resume();
    assert_eq!(run.step(), 5);
    assert_eq!(go(&mut run), Ending::Finished);
    assert_eq!(rows(&lab.run()), whole);
    assert_eq!(replayed(&lab.run()), (24, None));
}

/// Some hundred weights, on mazes.
fn small() -> Lab {
    let mut lab = lab();
    lab.config.lr_schedule = Schedule::Constant;
    let keys = &mut lab.config.transformer;
    (keys.hidden_size, keys.intermediate_size) = (4, 8);
    keys.num_hidden_layers = 1;
    lab
}

#[test]
fn edits_and_kills_change_nothing() {
    edited_and_killed(&mut small());
}

/// What a run takes of the machine's memory does not grow with its steps.
#[cfg(target_os = "linux")]
#[test]
fn two_hundred_steps_need_no_more_memory_than_fifty() {
    let mut lab = small();
    lab.config.steps = 200;
    lab.write_config();
    let measured = || {
        let _ = fs::remove_dir_all(lab.run());
        let mut run = Process::start(command(lab.place(), "train FOLDER/config.toml"));
        let statm = format!("/proc/{}/statm", run.0.id());
        // Pages, by the steps that were done.
        let mut resident = BTreeMap::new();
        while run.0.try_wait().unwrap().is_none() {
            if let Ok(text) = fs::read_to_string(&statm)
                && let Some(Ok(pages)) = text.split(' ').nth(1).map(str::parse::<f64>)
            {
                resident.insert(steps_of(&lab), pages);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let most = |steps: std::ops::Range<usize>| {
            let pages = resident.range(steps).map(|(_, pages)| *pages);
            pages.reduce(f64::max)
        };
        Some((most(20..50)?, most(150..200)?))
    };
    // On a machine that does much else the steps may have passed before anybody looked.
    let (early, late) = (0..100).find_map(|_| measured()).unwrap();
    assert!(late < 1.01 * early, "{early} pages, then {late}");
}

#[test]
fn other_threads_are_told() {
    let lab = lab();
    go_to(&mut lab.create(), 2);
    let started = &lines(&lab.file("reloads.jsonl"))[0]["platform"];
    assert!(started["torch"].as_str().unwrap().starts_with("2.11"));
    let threads: usize = started["threads"].as_str().unwrap().parse().unwrap();
    let replay = |threads: usize| {
        let mut command = command(lab.place(), "replay FOLDER/run");
        command.env("RAYON_NUM_THREADS", threads.to_string());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(!replay(threads).contains("note"));
    let (text, other) = (replay(threads + 1), threads + 1);
    let note = format!("with threads {threads} (now {other})");
    says(&text, &[&note]);
}

#[test]
fn a_run_without_a_reference_says_what_needs_one() {
    let mut lab = lab();
    lab.config.reference = false;
    let error = Run::create(lab.config.clone()).err().unwrap();
    let text = error.to_string();
    says(&text, &["no column `ref_logp`"]);
    let help = error[0].help.as_deref();
    assert!(help.is_some_and(|help| help.contains("`reference = true`")));
    fs::write(lab.script(), STATEFUL.replace(".ref_logp", ".old_logp")).unwrap();
    lab.config.loss_params.clear();
    go_to(&mut lab.create(), 6);
    let reference = lab.file("checkpoints/000005/reference.safetensors");
    assert!(!reference.exists());
    go_to(&mut lab.resume(), 8);
    let rows = rows(&lab.run());
    assert!(rows.len() == 8 && rows.iter().all(|row| row.get("kl").is_none()));
}

#[test]
fn an_exported_model_is_that_of_the_newest_checkpoint() {
    let lab = lab();
    go_to(&mut lab.create(), 3);
    let folder = lab.folder.path().join("model");
    let line = "export FOLDER/run FOLDER/model";
    says(&done(lab.place(), line), &["after 3 steps"]);
    let weights = fs::read(folder.join("model.safetensors")).unwrap();
    let state = fs::read(lab.file("checkpoints/000003/policy.safetensors")).unwrap();
    let [weights, state] = [&weights, &state].map(|file| SafeTensors::deserialize(file).unwrap());
    assert!(weights.len() > 20);
    for (name, tensor) in weights.tensors() {
        assert_eq!(tensor, state.tensor(&name).unwrap(), "{name}");
    }
    // And it is a model to begin with.
    let mut again = self::lab();
    again.config.transformer.model = folder.display().to_string();
    again.config.transformer.hidden_size = 512;
    go_to(&mut Run::create(again.config.clone()).unwrap(), 1);
    says(&refused(lab.place(), line), &["is not empty"]);
}

#[test]
fn what_cannot_begin_says_why() {
    let lab = lab();
    let empty = lab.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let refused = |change: &dyn Fn(&mut TransformerConfig)| {
        let mut config = lab.config.clone();
        change(&mut config.transformer);
        let error = Run::create(config).err().unwrap();
        assert!(!lab.run().exists());
        error[0].message.clone()
    };
    let found = refused(&|keys| keys.model = empty.display().to_string());
    says(&found, &["has no config.json"]);
    let found = refused(&|keys| keys.hidden_size = 15);
    assert_eq!(found, "a hidden_size of 15 cannot be shared by 2 heads");
    let found = refused(&|keys| keys.top_p = 0.0);
    assert_eq!(found, "transformer.top_p is 0.0");
    let mut config = lab.config.clone();
    config.transformer.device = Device::Cuda;
    // Where there is a GPU, nothing is wrong with it.
    if let Err(error) = Run::create(config) {
        assert!(error[0].message.starts_with("there is no GPU"), "{error}");
    }
}

/// A folder's model on questions of a file, in text: edited and killed it goes on, and leaves with its tokenizer.
#[test]
fn questions_are_answered_in_text() {
    let mut lab = lab();
    let root = Path::new(crate::ROOT);
    let data = lab.folder.path().join("questions.jsonl");
    let line = |n: u32| {
        let sum = n + 1;
        format!("{{\"question\": \"{n} + 1?\", \"answer\": \"#### {sum}\"}}\n")
    };
    fs::write(&data, (0..64).map(line).collect::<String>()).unwrap();
    lab.config.task = TaskName::Math;
    lab.config.lr_schedule = Schedule::Constant;
    lab.config.batch_every = 1;
    lab.config.math.data = data.display().to_string();
    lab.config.math.prompt_template = "Q: {question}".to_string();
    lab.config.transformer.max_new_tokens = 12;
    lab.config.transformer.stop_strings = vec!["e".to_string()];
    let model = root.join("tests/golden/transformers/qwen2");
    lab.config.transformer.model = model.display().to_string();
    let steps = edited_and_killed(&mut lab);
    let name = format!("batches/step-{:06}.safetensors", steps - 1);
    let batch = files::read(lab.file(&name), &ReadOptions::default());
    let batch = batch.unwrap().batch;
    let lengths = batch.response_column("length").unwrap();
    let texts: BTreeMap<_, _> = batch.texts().collect();
    assert!(texts["prompt"].iter().all(|text| text.ends_with(" + 1?")));
    let texts = texts["completion"].iter().zip(lengths);
    let mut stopped = texts.clone().filter(|(_, length)| **length < 12.0);
    assert!(stopped.any(|(text, _)| text.contains('e')));
    for (text, _) in texts {
        // Behind the string comes at most the rest of its token.
        let rest = text.split_once('e').map_or("", |(_, rest)| rest);
        assert!(rest.len() < 8, "{text:?}");
    }
    let folder = lab.folder.path().join("model");
    assert_eq!(export(&lab.run(), &folder).unwrap(), (steps, vec![]));
    for file in ["tokenizer.json", "chat_template.jinja", "config.json"] {
        assert!(folder.join(file).exists(), "{file}");
    }
}

#[test]
fn the_mlp_is_no_model_for_others() {
    let lab = Lab::new(STATEFUL);
    go_to(&mut lab.create(), 2);
    let folder = lab.folder.path().join("model");
    let error = export(&lab.run(), &folder).unwrap_err();
    let expected =
        "the run's policy is not a language model, and transformers opens only language models";
    assert_eq!(error[0].message, expected);
    assert!(!folder.exists(), "nothing is in the way of another try");
    std::fs::create_dir(&folder).unwrap();
    export(&lab.run(), &folder).unwrap_err();
    assert!(folder.exists(), "it was the user's own");
}

/// Edits the recipe of a run while it goes, kills it once the edit is used, kills it again as it goes on, and lets it end
/// some steps later. It is then what it would have been without the kills. Gives its steps.
fn edited_and_killed(lab: &mut Lab) -> u64 {
    lab.config.steps = 1_000_000;
    lab.config.checkpoint_every = 2;
    lab.write_config();
    let mut run = Process::start(command(lab.place(), "train FOLDER/config.toml"));
    wait_until(|| steps_of(lab) >= 2);
    std::fs::write(lab.script(), STATEFUL.replace("0.01 *", "0.02 *")).unwrap();
    let is_used = || {
        let reloads = std::fs::read_to_string(lab.file("reloads.jsonl"));
        reloads.is_ok_and(|text| text.contains("\"use\""))
    };
    wait_until(is_used);
    for _ in 0..2 {
        let wanted = steps_of(lab) + 3;
        wait_until(|| steps_of(lab) >= wanted);
        // It has not ended by itself, and is killed.
        assert_eq!(run.0.try_wait().unwrap(), None);
        drop(run);
        run = Process::start(command(lab.place(), "train --resume FOLDER/run"));
    }
    assert_eq!(run.0.try_wait().unwrap(), None);
    drop(run);
    let steps = steps_of(lab) as u64 + 3;
    let line = format!("train --resume FOLDER/run --steps {steps}");
    done(lab.place(), &line);
    let uses = lines(&lab.file("reloads.jsonl"));
    let uses = uses.iter().filter(|line| line["event"] == "use");
    assert_eq!(uses.count(), 1, "the edit");
    assert_eq!(replayed(&lab.run()), (steps, None));
    steps
}
