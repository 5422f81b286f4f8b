//! A configuration has defaults, comments, and messages that say where and what is wrong.

use std::fmt::Write;
use std::path::Path;

use advlab_train::{Config, TaskName};

use super::lab::{done, refused, says};

#[test]
fn what_is_printed_reads_back_as_the_same() {
    let mut config = Config::default();
    config.set("k", "8");
    config.set("std", "population");
    config.set("eps", "1e-6");
    config.lr = 3e-4;
    let text = config.to_commented();
    let path = Path::new("config.toml");
    assert_eq!(Config::parse(path, &text).unwrap(), config);
    assert_eq!(Config::parse(path, "").unwrap(), Config::default());
}

#[test]
fn print_config_documents_every_key() {
    let text = done(
        Path::new(""),
        "train --print-config --recipe passk --set k=8",
    );
    let parts = [
        "\n# Prompts per step.\nrollout_batch_size = 64\n",
        "\n[params]\nk = 8\n",
        "\n[warnings]\n\n# Warn if more than this share",
        "question_field = \"\"\nanswer_field = \"\"\n",
    ];
    says(&text, &parts);
}

#[test]
fn flags_stand_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = "steps = 7\nseed = 3\nrecipe = \"passk\"\n[params]\nk = 2\n";
    std::fs::write(folder.path().join("config.toml"), text).unwrap();
    // A text may look like a number.
    let flags = "--steps 9 --set k=4 --set run.lr=1 --set loss_params.clip_high=0.5 --set out=2024 --set task=arithmetic --set loss_recipe=7";
    let line = format!("train FOLDER/config.toml {flags} --print-config");
    let config = Config::parse(Path::new(""), &done(folder.path(), &line)).unwrap();
    let mut expected = Config {
        steps: 9,
        seed: 3,
        recipe: "passk".to_string(),
        lr: 1.0,
        out: "2024".to_string(),
        task: TaskName::Arithmetic,
        loss_recipe: "7".to_string(),
        loss_params: toml::toml! { clip_high = 0.5 },
        ..Config::default()
    };
    expected.set("k", "4");
    assert_eq!(config, expected);
}

#[test]
fn wrong_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let mut shown = String::new();
    for text in [
        "steps = 10\ngroup_sise = 8\n",
        "temperature = 0.5\n",
        "learning_rate = 1e-3\n",
        "group_size = 1000000000000\n",
        "group_size = \"eight\"\n",
        "task = \"mase\"\n",
        "policy = \"mpl\"\n",
        "lr_schedule = \"cosin\"\n",
        "[transformer]\ndevice = \"tpu\"\n",
        "minibatches = 65\n",
        "prompts = 63\n",
        "lr = nan\n",
        "task = \"math\"\n",
        "task = \"math\"\npolicy = \"transformer\"\n[transformer]\nmodel = \"x\"\n",
        "[transformer]\ntemperature = -1.0\n",
        "[transformer]\nhidden_size = 64\n",
        "policy = \"transformer\"\n[transformer]\nstop_strings = [\"\\n\"]\n",
        "task = \"math\"\npolicy = \"transformer\"\n[transformer]\nstop_strings = [\"\"]\n",
        "[math]\ndata = \"questions.jsonl\"\n",
        "[transformer]\ntemprature = 0.5\n",
        // Keys of another table, or of none.
        "[transformer]\ndata = \"questions.jsonl\"\n",
        "steps = 10\nsteps = 11\n",
        "[params]\nk = [1, 2]\n",
        "[params]\nk = 8\n",
        "[loss_params]\nclip = 0.3\n",
        "loss_recipe = \"grpo\"\n",
        "recipe = \"grppo\"\n",
        // A column that the runs of the embedded policy never have.
        "recipe = \"gae\"\n",
        // A loss alone, on an advantage that nothing computes.
        "recipe = \"ppo_clip\"\n",
    ] {
        std::fs::write(folder.path().join("config.toml"), text).unwrap();
        let message = refused(folder.path(), "train FOLDER/config.toml --out FOLDER/run");
        writeln!(shown, "{}\n{message}", text.trim_end()).unwrap();
        // Nothing was begun.
        assert!(!folder.path().join("run").exists(), "{text}");
    }
    for line in [
        "train --seed 18446744073709551615",
        "train --steps 9223372036854775808",
        "train --set lr=fast",
        "train --set reference=1",
        "train --set task=mase",
        "train --set hiden_size=8",
        // Of the recipe, of the run, or of neither.
        "train --set seeds=1",
        "train --set sdt=false",
        "train --set run.params.a.lr=1",
        "train --set run.eps=1",
        "train --set nothing=1",
        "train /nowhere/config.toml",
        "train grpo",
        "train grpo.rhai",
    ] {
        writeln!(shown, "{}", refused(folder.path(), line)).unwrap();
    }
    insta::assert_snapshot!(shown);
}

/// Whichever hook it is that fails on the first batch, no folder is made.
#[test]
fn a_recipe_that_cannot_begin_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("critic.rhai");
    let advantage = "fn advantage(batch, p) { batch.reward }\n";
    let loss = "fn loss(batch, p) { (batch.value * batch.logp).mean(\"batch\") }\n";
    let init = format!("fn init(p) {{ throw \"not today\"; }}\n{advantage}{loss}");
    let of_value = "fn advantage(batch, p) { batch.value }\n".to_string();
    let (no_column, no_init) = (
        ["no column `value`", "a trial on the first batch"],
        ["not today"; 2],
    );
    for (text, flag, parts) in [
        (init.clone(), "recipe", no_init),
        (init, "loss_recipe", no_init),
        (of_value, "recipe", no_column),
        (loss.to_string(), "recipe", no_column),
        (format!("{advantage}{loss}"), "recipe", no_column),
        (loss.to_string(), "loss_recipe", no_column),
    ] {
        std::fs::write(&script, &text).unwrap();
        let line = format!("{flag} = {:?}\n", script.to_str().unwrap());
        std::fs::write(folder.path().join("config.toml"), line).unwrap();
        let message = refused(folder.path(), "train FOLDER/config.toml --out FOLDER/run");
        says(&message, &["critic.rhai:", parts[0], parts[1]]);
        assert!(!folder.path().join("run").exists(), "{text}{flag}");
    }
}

#[cfg(not(feature = "torch"))]
#[test]
fn without_libtorch_a_transformer_says_how_to_build_it_in() {
    let folder = tempfile::tempdir().unwrap();
    let text = "policy = \"transformer\"\n";
    std::fs::write(folder.path().join("config.toml"), text).unwrap();
    let message = refused(folder.path(), "train FOLDER/config.toml");
    says(&message, &["built without libtorch", "--features torch"]);
    assert!(!folder.path().join("runs").exists());
}
