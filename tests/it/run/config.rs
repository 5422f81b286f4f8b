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
    // Folders of earlier runs have keys that mean nothing now.
    let earlier = "[transformer]\ndtype = \"auto\"\ngradient_checkpointing = false\n";
    assert_eq!(Config::parse(path, earlier).unwrap(), Config::default());
}

#[test]
fn print_config_documents_every_key() {
    let output = advlab(&[
        "train",
        "--print-config",
        "--recipe",
        "passk",
        "--set",
        "k=8",
    ]);
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}

#[test]
fn flags_stand_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(
        &path,
        "steps = 7\nseed = 3\nrecipe = \"passk\"\n[params]\nk = 2\n",
    )
    .unwrap();
    let output = advlab(&[
        "train",
        path.to_str().unwrap(),
        "--steps",
        "9",
        "--set",
        "k=4",
        "--set",
        "run.lr=1",
        "--set",
        "loss_params.clip_high=0.5",
        "--print-config",
    ]);
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
        "\n\ngroup_size = 0\n",
        "group_size = 1000000000000\n",
        "eval_prompts = 1000000\neval_samples = 1000\n",
        "group_size = \"eight\"\n",
        "group_size = -1\n",
        "task = \"mase\"\n",
        "maze_size = 100\n",
        "minibatches = 65\n",
        "prompts = 63\n",
        "lr = nan\n",
        "lr_schedule = \"cosinus\"\n",
        "task = \"math\"\n",
        "task = \"math\"\npolicy = \"transformer\"\n[transformer]\nmodel = \"x\"\n",
        "[transformer]\ntemperature = -1.0\n",
        "[transformer]\nhidden_size = 64\n",
        "policy = \"transformer\"\n[transformer]\nstop_strings = [\"\\n\"]\n",
        "policy = \"transformer\"\n[transformer]\nstop_strings = \"x\"\n",
        "task = \"math\"\npolicy = \"transformer\"\n[transformer]\nstop_strings = [\"\"]\n",
        "[math]\ndata = \"questions.jsonl\"\n",
        "[transformer]\ntemprature = 0.5\n",
        // Keys of another table, or of none.
        "[transformer]\ndata = \"questions.jsonl\"\n",
        "[transformer]\nlr = 0.001\n",
        "steps 10\n",
        "steps = 10\nsteps = 11\n",
        "[params]\nk = [1, 2]\n",
        "[params]\nk = 8\n",
        "[loss_params]\nclip = 0.3\n",
        "loss_recipe = \"grpo\"\n",
        "recipe = \"grppo\"\n",
        "recipe = \"nowhere.rhai\"\n",
        // A column that the runs of the embedded policy never have.
        "recipe = \"gae\"\n",
        // A loss alone, on an advantage that nothing computes.
        "recipe = \"ppo_clip\"\n",
    ] {
        std::fs::write(&path, text).unwrap();
        let out = folder.path().join("run");
        let message = refused(
            &[
                "train",
                path.to_str().unwrap(),
                "--out",
                out.to_str().unwrap(),
            ],
            folder.path(),
        );
        writeln!(shown, "{}\n{message}", text.trim_end()).unwrap();
        // Nothing was begun.
        assert!(!out.exists(), "{text}");
    }
    for arguments in [
        ["train", "--seed", "18446744073709551615"],
        ["train", "--steps", "9223372036854775808"],
        ["train", "--set", "lr=fast"],
        ["train", "--set", "transformer.size=8"],
        ["train", "--set", "hiden_size=8"],
        // Of the recipe, of the run, or of neither.
        ["train", "--set", "seeds=1"],
        ["train", "--set", "loss=gspo"],
        ["train", "--set", "sdt=false"],
        ["train", "--set", "recipe.seed=1"],
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

/// A script that can be read, and cannot begin: no folder is made for it.
#[test]
fn a_recipe_that_cannot_begin_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (script, out) = (
        folder.path().join("failing.rhai"),
        folder.path().join("run"),
    );
    let text = "fn init(p) { throw \"not today\"; }\nfn advantage(batch, p) { batch.reward }\nfn loss(batch, p) { (batch.advantage * batch.logp).mean(\"batch\") }\n";
    std::fs::write(&script, text).unwrap();
    let (script, out_text) = (script.to_str().unwrap(), out.to_str().unwrap());
    let message = refused(
        &["train", "--recipe", script, "--out", out_text],
        folder.path(),
    );
    assert!(message.contains("not today"), "{message}");
    assert!(!out.exists());

    let config = folder.path().join("config.toml");
    std::fs::write(&config, format!("loss_recipe = {script:?}\n")).unwrap();
    let arguments = ["train", config.to_str().unwrap(), "--out", out_text];
    let message = refused(&arguments, folder.path());
    assert!(message.contains("not today"), "{message}");
    assert!(!out.exists());
}

/// Whichever hook it is that fails on the first batch.
#[test]
fn a_hook_that_needs_a_column_that_the_run_has_not_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (script, out) = (folder.path().join("critic.rhai"), folder.path().join("run"));
    let path = script.to_str().unwrap();
    let advantage = "fn advantage(batch, p) { batch.reward }\n";
    let loss = "fn loss(batch, p) { (batch.value * batch.logp).mean(\"batch\") }\n";
    for (text, flag) in [
        (
            "fn advantage(batch, p) { batch.value }\n".to_string(),
            "recipe",
        ),
        (loss.to_string(), "recipe"),
        (format!("{advantage}{loss}"), "recipe"),
        (loss.to_string(), "loss_recipe"),
    ] {
        std::fs::write(&script, &text).unwrap();
        let config = folder.path().join("config.toml");
        std::fs::write(&config, format!("{flag} = {path:?}\n")).unwrap();
        let arguments = [
            "train",
            config.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let message = refused(&arguments, folder.path());
        for part in [
            "no column `value`",
            "critic.rhai:",
            "run's first batch",
            "correct the script",
        ] {
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
