//! A configuration has defaults, comments, and messages that say where and what is wrong.

use std::fmt::Write;
use std::path::Path;

use advlab_train::Config;

use super::lab::{advlab, refused};

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
    let words = "train --print-config --recipe passk --set k=8";
    let output = advlab(&words.split(' ').collect::<Vec<_>>());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "\n# Prompts per step.\nrollout_batch_size = 64\n",
        "\n[params]\nk = 8\n",
        "\n[warnings]\n\n# More than this share",
        "question_field = \"\"\nanswer_field = \"\"\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn flags_stand_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let text = "steps = 7\nseed = 3\nrecipe = \"passk\"\n[params]\nk = 2\n";
    std::fs::write(&path, text).unwrap();
    let words = "--steps 9 --set k=4 --set run.lr=1 --set loss_params.clip_high=0.5 --print-config";
    let words: Vec<&str> = words.split(' ').collect();
    let output = advlab(&[&["train", path.to_str().unwrap()], &words[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let config = Config::parse(Path::new("config.toml"), &text).unwrap();
    assert_eq!(
        (config.steps, config.seed, config.recipe.as_str()),
        (9, 3, "passk")
    );
    assert_eq!(config.params["k"].as_integer(), Some(4));
    assert_eq!(config.lr, 1.0);
    assert_eq!(config.loss_params["clip_high"].as_float(), Some(0.5));
}

#[test]
fn wrong_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let mut shown = String::new();
    for text in [
        "steps = 10\ngroup_sise = 8\n",
        "temperature = 0.5\n",
        "learning_rate = 1e-3\n",
        "group_size = 1000000000000\n",
        "group_size = \"eight\"\n",
        "task = \"mase\"\n",
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
        "[transformer]\ngradient_checkpointing = false\n",
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
        std::fs::write(&path, text).unwrap();
        let out = folder.path().join("run");
        let arguments = [
            "train",
            path.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let message = refused(&arguments, folder.path());
        writeln!(shown, "{}\n{message}", text.trim_end()).unwrap();
        // Nothing was begun.
        assert!(!out.exists(), "{text}");
    }
    for arguments in [
        ["train", "--seed", "18446744073709551615"],
        ["train", "--steps", "9223372036854775808"],
        ["train", "--set", "lr=fast"],
        ["train", "--set", "hiden_size=8"],
        // Of the recipe, of the run, or of neither.
        ["train", "--set", "seeds=1"],
        ["train", "--set", "sdt=false"],
        ["train", "--set", "run.eps=1"],
        ["train", "--set", "nothing=1"],
    ] {
        writeln!(shown, "{}", refused(&arguments, folder.path())).unwrap();
    }
    for configuration in ["/nowhere/config.toml", "grpo", "grpo.rhai"] {
        let arguments = ["train", configuration];
        writeln!(shown, "{}", refused(&arguments, folder.path())).unwrap();
    }
    insta::assert_snapshot!(shown);
}

/// Whichever hook it is that fails on the first batch, no folder is made.
#[test]
fn a_recipe_that_cannot_begin_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let [script, out, config] =
        ["critic.rhai", "run", "config.toml"].map(|name| folder.path().join(name));
    let advantage = "fn advantage(batch, p) { batch.reward }\n";
    let loss = "fn loss(batch, p) { (batch.value * batch.logp).mean(\"batch\") }\n";
    let init = format!("fn init(p) {{ throw \"not today\"; }}\n{advantage}{loss}");
    let of_value = "fn advantage(batch, p) { batch.value }\n".to_string();
    let (no_column, no_init) = (["no column `value`", "run's first batch"], ["not today"; 2]);
    for (text, flag, parts) in [
        (init.clone(), "recipe", no_init),
        (init, "loss_recipe", no_init),
        (of_value, "recipe", no_column),
        (loss.to_string(), "recipe", no_column),
        (format!("{advantage}{loss}"), "recipe", no_column),
        (loss.to_string(), "loss_recipe", no_column),
    ] {
        std::fs::write(&script, &text).unwrap();
        std::fs::write(
            &config,
            format!("{flag} = {:?}\n", script.to_str().unwrap()),
        )
        .unwrap();
        let arguments = [
            "train",
            config.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let message = refused(&arguments, folder.path());
        assert!(message.contains("critic.rhai:"), "{text}{flag}: {message}");
        for part in parts {
            assert!(message.contains(part), "{text}{flag}: {message}");
        }
        assert!(!out.exists(), "{text}{flag}");
    }
}

#[cfg(not(feature = "torch"))]
#[test]
fn without_libtorch_a_transformer_says_how_to_build_it_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, "policy = \"transformer\"\n").unwrap();
    let message = refused(&["train", path.to_str().unwrap()], folder.path());
    assert!(message.contains("built without libtorch"), "{message}");
    assert!(message.contains("--features torch"), "{message}");
    assert!(!folder.path().join("runs").exists());
}
