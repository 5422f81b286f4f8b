//! `apply` over the files of several steps, and over several kinds of files.

use super::lab::Lab;
use crate::parquet_rows;
use serde_json::Value;

/// A recipe that adds up what it has seen.
const COUNTS: &str = "fn init(p) { #{ seen: 0.0 } }
fn advantage(batch, p) {
    this.seen += batch.reward.sum(\"batch\").value();
    metric(\"seen\", this.seen);
    metric(\"step\", batch.step);
    batch.reward - batch.reward.mean(\"group\")
}";

/// A folder with a recipe and three steps.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("counts.rhai", COUNTS);
    std::fs::create_dir(lab.path().join("steps")).unwrap();
    for (step, reward) in [(9, 1), (10, 2), (11, 4)] {
        let line = |reward| format!("{{\"group\": \"a\", \"reward\": {reward}}}\n");
        let lines = [line(reward), line(0)].concat();
        lab.write(&format!("steps/step_{step}.jsonl"), &lines);
    }
    lab
}

/// The metrics of all rows of a file.
fn metrics(lab: &Lab, name: &str) -> Vec<[f64; 2]> {
    let rows = lab.read(name);
    let rows = rows
        .lines()
        .map(|row| serde_json::from_str::<Value>(row).unwrap());
    let numbers = |row: Value| [&row["step"], &row["metrics"]["seen"]].map(|x| x.as_f64().unwrap());
    rows.map(numbers).collect()
}

#[test]
fn a_sequence_carries_the_state_and_goes_on_later() {
    let lab = lab();
    let all = [[9.0, 1.0], [10.0, 3.0], [11.0, 7.0]];
    let ran = lab.ok("apply counts.rhai steps --metrics all.jsonl -o out");
    insta::assert_snapshot!(ran.shown());
    assert_eq!(metrics(&lab, "all.jsonl"), all);
    let written = lab.read("out/step_10.jsonl");
    assert!(written.contains("\"advantage\": -1.0"), "{written}");
    // In two parts, the files named one by one, and in the order of a shell's glob.
    let first =
        "apply counts.rhai steps/step_10.jsonl steps/step_9.jsonl --state s.json --metrics m.jsonl";
    lab.ok(first);
    lab.ok("apply counts.rhai steps/step_11.jsonl --state s.json --metrics m.jsonl");
    assert_eq!(metrics(&lab, "m.jsonl"), all);
    let json = lab.json("apply counts.rhai steps/step_9.jsonl --step 40");
    assert_eq!(json["step"], 40);
    assert_eq!(json["metrics"]["step"], 40.0);
    lab.expect(
        "1  apply grpo steps/step_11.jsonl --state s.json  =>  it is the state of \"counts.rhai\"
         1  apply counts.rhai steps -o out.jsonl  =>  several inputs need a folder for their outputs",
    );
}

#[test]
fn what_is_read_is_not_overwritten() {
    let lab = lab();
    std::fs::create_dir_all(lab.path().join("other")).unwrap();
    let step = lab.read("steps/step_9.jsonl");
    lab.write("other/step_9.jsonl", &step);
    lab.write("m.jsonl", &step);
    lab.expect(
        r"
1  apply grpo m.jsonl --metrics m.jsonl  =>  `--metrics` would overwrite m.jsonl
1  apply grpo m.jsonl --state ./m.jsonl  =>  `--state` would overwrite m.jsonl
1  apply counts.rhai m.jsonl --metrics counts.rhai  =>  would overwrite counts.rhai
1  apply grpo m.jsonl --metrics a.jsonl -o a.jsonl  =>  the output of m.jsonl and `--metrics` would be the same file, a.jsonl
1  apply grpo m.jsonl --metrics a.jsonl --state ./a.jsonl  =>  `--state` and `--metrics` would be the same file, a.jsonl
1  apply grpo steps/step_9.jsonl other/step_9.jsonl -o out  =>  the output of steps/step_9.jsonl and the output of other/step_9.jsonl would be the same file, out/step_9.jsonl
1  apply grpo steps/step_9.jsonl other/step_9.jsonl -o other  =>  would overwrite other/step_9.jsonl",
    );
    assert_eq!(lab.read("m.jsonl"), step);
    assert_eq!(lab.read("other/step_9.jsonl"), step);
    assert!(!lab.path().join("a.jsonl").exists() && !lab.path().join("out").exists());
    // Nor are figures lost to a read that fails.
    lab.write("kept.jsonl", "{}\n");
    let ran = lab.run("apply grpo missing.jsonl --metrics kept.jsonl");
    assert_eq!((ran.status, lab.read("kept.jsonl").as_str()), (1, "{}\n"));
    let ran = lab.run("apply grpo m.jsonl --metrics /dev/null -o /dev/null");
    assert!(!ran.err.contains("too"), "{}", ran.err);
    // A folder's files, of which one has no end of its last line.
    std::fs::rename(lab.path().join("other"), lab.path().join("step_12")).unwrap();
    lab.write("step_12/step_10.jsonl", step.trim_end());
    lab.write("step_12/step_11.jsonl", &step);
    std::fs::create_dir(lab.path().join("all")).unwrap();
    let (from, to) = ("step_12", "all/step_12");
    std::fs::rename(lab.path().join(from), lab.path().join(to)).unwrap();
    lab.ok("apply grpo all -o all.jsonl");
    assert_eq!(lab.read("all.jsonl").lines().count(), 6);
}

#[test]
fn a_step_that_the_state_has_seen_is_refused() {
    let lab = lab();
    let steps = "apply counts.rhai steps --state s.json --metrics m.jsonl";
    lab.ok(steps);
    let (state, rows) = (lab.read("s.json"), lab.read("m.jsonl"));
    let last = "apply counts.rhai steps/step_11.jsonl --state s.json";
    for again in [steps, last] {
        lab.run(again).ends(1, "already includes step 11");
    }
    assert_eq!((lab.read("s.json"), lab.read("m.jsonl")), (state, rows));
    let set = "apply grpo steps/step_9.jsonl --state g.json --set std=";
    lab.ok(&format!("{set}sample"));
    let ran = lab.run(&format!("{set}population --step 10"));
    ran.ends(0, "with other parameters");
}

/// A level that is found in a text column has it read, though no source names the column.
#[test]
fn a_text_trajectory_is_there_for_every_recipe() {
    let lab = Lab::new();
    let line = |at: u8, turn: u8| {
        format!(
            "{{\"group\": 1, \"trajectory\": \"t{at}\", \"turn\": {turn}, \"source\": \"s{at}\", \"reward\": {at}}}\n"
        )
    };
    let lines = [line(0, 0), line(0, 1), line(1, 0), line(1, 1)];
    lab.write("t.jsonl", &lines.concat());
    lab.advantage("sum.rhai", "batch.reward.suffix_sum(1.0)");
    lab.files(
        r#"== by.rhai
fn params() { #{ by: #{ value: "group" } } }
fn advantage(batch, p) { batch.reward * (batch.key(p.by) != "a") }
"#,
    );
    lab.ok("apply sum.rhai t.jsonl");
    for by in ["trajectory", "source"] {
        lab.ok(&format!("apply by.rhai t.jsonl --set by={by}"));
    }
}

/// What a recipe says of the responses arrives, in every kind of file.
#[test]
fn weights_and_shaped_rewards_are_written_beside_the_advantage() {
    let lab = Lab::new();
    lab.files(
        r#"== gives.rhai
fn reward(batch, p) { batch.reward * 2.5 - 0.1 }
fn weight(batch, p) { batch.reward + 0.3 }
fn advantage(batch, p) { batch.reward - batch.reward.mean("group") }
== takes.rhai
fn advantage(batch, p) {
    metric("weight", (batch.weight * batch.reward).sum("batch").value());
    metric("reward", (batch.shaped_reward * batch.reward).sum("batch").value());
    batch.reward
}
"#,
    );
    let metrics = |input: &str| lab.json(&format!("apply takes.rhai {input}"))["metrics"].take();
    let mut expected = None;
    let kinds = "jsonl jsonl.gz jsonl.zst parquet safetensors";
    let batch = lab.batch();
    for kind in kinds.split(' ') {
        let input = lab.path().join(format!("rollouts.{kind}"));
        match kind {
            "safetensors" => batch.write_safetensors(input).unwrap(),
            "parquet" => parquet_rows::write(&input, &lab.read("rollouts.jsonl")).unwrap(),
            "jsonl" => {}
            packed => drop(lab.ok(&format!("apply rloo rollouts.jsonl -o rollouts.{packed}"))),
        }
        let written = format!("written.{kind}");
        let ran = lab.run(&format!("apply gives.rhai rollouts.{kind} -o {written}"));
        let said = format!("written     {written}: advantage, weight, shaped_reward");
        ran.shows(&said);
        let first = metrics(&written);
        assert_eq!(&first, expected.get_or_insert(first.clone()), "{kind}");
        // What is there is replaced, as the advantage is.
        let ran = lab.run(&format!("apply gives.rhai {written} -o {written} --force"));
        ran.shows("(replaced): advantage, weight");
        assert_eq!(metrics(&written), first, "{kind}");
        lab.ok(&format!("check grpo rollouts.{kind}"));
    }
    let ran = lab.run("apply gives.rhai written.safetensors rollouts.safetensors -o out");
    ran.shows("2 files written in out: advantage, weight, shaped_reward");
    let filter = "difficulty_filter rollouts.jsonl --set low=0.3 --set high=0.7 -o filtered.jsonl";
    lab.ok(&format!("apply {filter}"));
    let filtered = lab.read("filtered.jsonl");
    assert_eq!(filtered.matches("\"weight\": 0.0").count(), 176);
}

/// A state is one call's at a time, and rows that it has not seen are done again.
#[test]
fn a_state_and_its_rows_agree() {
    let lab = lab();
    let first = "apply counts.rhai steps/step_9.jsonl --state s.json --metrics m.jsonl";
    lab.ok(first);
    let (state, row) = (lab.read("s.json"), lab.read("m.jsonl"));
    let rest = "apply counts.rhai steps/step_10.jsonl steps/step_11.jsonl --state s.json --metrics m.jsonl";
    let lock = std::fs::File::create(lab.path().join("s.json.lock")).unwrap();
    lock.lock().unwrap();
    let ran = lab.run(rest);
    ran.ends(1, "another `apply --state`");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("s.json", lab.path().join("link.json")).unwrap();
        let ran = lab.run(&rest.replace("s.json", "link.json"));
        ran.says("another `apply --state`");
    }
    drop(lock);
    lab.ok(rest);
    assert!(!lab.path().join("s.json.lock").exists());
    let all = lab.read("m.jsonl");
    // Killed when it had written step 10's row, and a part of step 11's, and kept no state.
    lab.write("s.json", &state);
    lab.write("m.jsonl", all.trim_end().strip_suffix('}').unwrap());
    let ran = lab.run(rest);
    ran.says("the state does not include");
    let seen = [[9.0, 1.0], [10.0, 3.0], [11.0, 7.0]];
    assert_eq!(metrics(&lab, "m.jsonl"), seen);
    assert!(lab.read("m.jsonl").starts_with(&row));
}

#[test]
fn a_step_of_a_run_is_its_batch() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path().join("run/batches")).unwrap();
    let batch = lab.batch();
    for step in [10, 20, 30] {
        let place = format!("run/batches/step-{step:06}.safetensors");
        batch.write_safetensors(lab.path().join(place)).unwrap();
    }
    let commands =
        "apply grpo run, look run --recipe grpo, check grpo run, profile grpo run, repl run";
    for command in commands.split(", ") {
        lab.ok(&format!("{command} --step 20"));
        let ran = lab.run(&format!("{command} --step 15"));
        ran.ends(1, "the run has kept no batch of step 15");
        ran.says("the nearest steps with a batch are 10, 20, 30");
    }
    lab.expect(
        "0  apply grpo run --step 20 -o out.safetensors  =>  run/batches/step-000020.safetensors: 256 responses
         1  apply grpo run run --step 20  =>  `--step` selects one batch",
    );
}

/// An edited copy of the input is of the kind that the input is.
#[test]
fn a_copy_is_of_the_kind_of_its_input() {
    let lab = Lab::new();
    let lines = lab.read("rollouts.jsonl");
    parquet_rows::write(&lab.path().join("rollouts.parquet"), &lines).unwrap();
    lab.batch()
        .write_safetensors(lab.path().join("rollouts.safetensors"))
        .unwrap();
    lab.expect(
        "1  apply grpo rollouts.jsonl -o out.parquet  =>  the same kind of file  &  ends in .jsonl
         1  apply grpo rollouts.parquet -o out.jsonl  =>  the same kind of file  &  ends in .parquet
         1  apply grpo rollouts.jsonl -o out.safetensors  =>  the same kind of file
         1  apply grpo rollouts.safetensors -o out.jsonl  =>  the same kind of file  &  ends in .safetensors
         0  apply grpo rollouts.parquet -o out.parquet  =>  written     out.parquet",
    );
}

/// Files are open one at a time.
#[cfg(unix)]
#[test]
fn a_folder_may_have_more_files_than_a_process_may_open() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path().join("many")).unwrap();
    for step in 0..1500 {
        let line = "{\"completion\": \"1\", \"solution\": \"1\"}\n";
        lab.write(&format!("many/step_{step}.jsonl"), line);
    }
    let mut shell = std::process::Command::new("sh");
    let limited = "ulimit -n 1024 && exec \"$0\" verify many -o all.jsonl";
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_advlab")]);
    let ran = shell.current_dir(lab.path()).output().unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert_eq!(lab.read("all.jsonl").lines().count(), 1500);
}
