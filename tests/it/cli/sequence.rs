//! `apply` over the files of several steps, and `convert`.

use std::path::Path;

use super::lab::Lab;
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
        lab.write(
            &format!("steps/step_{step}.jsonl"),
            &(line(reward) + line(0).as_str()),
        );
    }
    lab
}

/// The metrics of all rows of a file.
fn metrics(lab: &Lab, name: &str) -> Vec<(f64, f64)> {
    let rows = lab.read(name);
    let rows = rows
        .lines()
        .map(|row| serde_json::from_str::<Value>(row).unwrap());
    rows.map(|row| {
        (
            row["step"].as_f64().unwrap(),
            row["metrics"]["seen"].as_f64().unwrap(),
        )
    })
    .collect()
}

#[test]
fn a_sequence_carries_the_state_and_goes_on_later() {
    let lab = lab();
    let all = [(9.0, 1.0), (10.0, 3.0), (11.0, 7.0)];
    let ran = lab.run("apply counts.rhai steps --metrics all.jsonl -o out");
    assert_eq!(ran.status, 0, "{}", ran.err);
    insta::assert_snapshot!(ran.shown());
    assert_eq!(metrics(&lab, "all.jsonl"), all);
    assert!(
        lab.read("out/step_10.jsonl")
            .contains("\"advantage\": -1.0")
    );
    // In two parts, the files named one by one, and in the order of a shell's glob.
    let first =
        "apply counts.rhai steps/step_10.jsonl steps/step_9.jsonl --state s.json --metrics m.jsonl";
    assert_eq!(lab.run(first).status, 0);
    let ran = lab.run("apply counts.rhai steps/step_11.jsonl --state s.json --metrics m.jsonl");
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert_eq!(metrics(&lab, "m.jsonl"), all);
    let wrong = lab.run("apply grpo steps/step_11.jsonl --state s.json");
    wrong.says("it is the state of \"counts.rhai\"");
    let step = lab.run("apply counts.rhai steps/step_9.jsonl --step 40 --json");
    let step: Value = serde_json::from_str(&step.out).unwrap();
    assert_eq!(
        (&step["step"], &step["metrics"]["step"]),
        (&40.into(), &40.0.into())
    );
    let wrong = lab.run("apply counts.rhai steps -o out.jsonl");
    wrong.says("several inputs have several outputs");
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
1  apply grpo m.jsonl --metrics a.jsonl -o a.jsonl  =>  the output of m.jsonl and `--metrics` are both a.jsonl
1  apply grpo m.jsonl --metrics a.jsonl --state ./a.jsonl  =>  `--state` and `--metrics` are both a.jsonl
1  apply grpo steps/step_9.jsonl other/step_9.jsonl -o out  =>  the output of steps/step_9.jsonl and the output of other/step_9.jsonl are both out/step_9.jsonl
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
    // A folder's files, of which one has no end of its last line, and which has no output of its own.
    lab.write("other/step_10.jsonl", step.trim_end());
    lab.write("other/step_11.jsonl", &step);
    let ran = lab.run("convert other other/all.jsonl");
    ran.says("other/all.jsonl would overwrite what is read, other");
    assert_eq!(lab.run("convert other all.jsonl").status, 0);
    assert_eq!(lab.read("all.jsonl"), step.repeat(3));
}

#[test]
fn a_step_that_the_state_has_seen_is_refused() {
    let lab = lab();
    let steps = "apply counts.rhai steps --state s.json --metrics m.jsonl";
    assert_eq!(lab.run(steps).status, 0);
    let (state, rows) = (lab.read("s.json"), lab.read("m.jsonl"));
    for again in [
        steps,
        "apply counts.rhai steps/step_11.jsonl --state s.json",
    ] {
        let ran = lab.run(again);
        ran.ends(1, "that after step 11");
    }
    assert_eq!((lab.read("s.json"), lab.read("m.jsonl")), (state, rows));
    let set = "apply grpo steps/step_9.jsonl --state g.json --set std=";
    assert_eq!(lab.run(&format!("{set}sample")).status, 0);
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
    lab.write(
        "t.jsonl",
        &[line(0, 0), line(0, 1), line(1, 0), line(1, 1)].concat(),
    );
    lab.write(
        "sum.rhai",
        "fn advantage(batch, p) { batch.reward.suffix_sum(1.0) }",
    );
    lab.write(
        "by.rhai",
        "fn params() { #{ by: #{ value: \"group\" } } }\nfn advantage(batch, p) { batch.reward * (batch.key(p.by) != \"a\") }",
    );
    for command in [
        "sum.rhai",
        "by.rhai --set by=trajectory",
        "by.rhai --set by=source",
    ] {
        let ran = lab.run(&format!("apply {command} t.jsonl"));
        assert_eq!(ran.status, 0, "{command}: {}", ran.err);
    }
}

/// What a recipe says of the responses arrives, in every kind of file.
#[test]
fn weights_and_shaped_rewards_are_written_beside_the_advantage() {
    let lab = Lab::new();
    lab.write(
        "gives.rhai",
        "fn reward(batch, p) { batch.reward * 2.5 - 0.1 }
fn weight(batch, p) { batch.reward + 0.3 }
fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }",
    );
    lab.write(
        "takes.rhai",
        "fn advantage(batch, p) {
    metric(\"weight\", (batch.weight * batch.reward).sum(\"batch\").value());
    metric(\"reward\", (batch.shaped_reward * batch.reward).sum(\"batch\").value());
    batch.reward
}",
    );
    let metrics = |input: &str| {
        let ran = lab.run(&format!("apply takes.rhai {input} --json"));
        assert_eq!(ran.status, 0, "{input}: {}", ran.err);
        serde_json::from_str::<Value>(&ran.out).unwrap()["metrics"].clone()
    };
    let mut expected = None;
    for kind in [
        "jsonl",
        "jsonl.gz",
        "jsonl.zst",
        "parquet",
        "safetensors",
        "npz",
    ] {
        if kind != "jsonl" {
            assert_eq!(
                lab.run(&format!("convert rollouts.jsonl rollouts.{kind}"))
                    .status,
                0
            );
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
        let ran = lab.run(&format!("check grpo rollouts.{kind}"));
        assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    }
    let ran = lab.run("apply gives.rhai written.npz rollouts.npz -o out");
    assert!(
        ran.out
            .contains("2 files written in out: advantage, weight, shaped_reward"),
        "{}",
        ran.out
    );
    let filter = "difficulty_filter rollouts.jsonl --set low=0.3 --set high=0.7 -o filtered.jsonl";
    assert_eq!(lab.run(&format!("apply {filter}")).status, 0);
    let zero = lab.read("filtered.jsonl").matches("\"weight\": 0.0").count();
    assert_eq!(zero, 176);
}

#[test]
fn a_step_of_a_run_is_its_batch() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path().join("run/batches")).unwrap();
    for step in [10, 20, 30] {
        let place = format!("run/batches/step-{step:06}.safetensors");
        assert_eq!(
            lab.run(&format!("convert rollouts.jsonl {place}")).status,
            0
        );
    }
    for command in [
        "apply grpo run",
        "look run --recipe grpo",
        "check grpo run",
        "profile grpo run",
    ] {
        let ran = lab.run(&format!("{command} --step 20"));
        assert_eq!(ran.status, 0, "{command}: {}", ran.err);
        let ran = lab.run(&format!("{command} --step 15"));
        let said = "the run has kept no batch of step 15";
        assert!(
            ran.status == 1 && ran.err.contains(said),
            "{command}: {}",
            ran.err
        );
        assert!(
            ran.err.contains("those of 10, 20, 30"),
            "{command}: {}",
            ran.err
        );
    }
    let ran = lab.run("apply grpo run --step 20 -o out.safetensors");
    assert!(
        ran.out
            .contains("run/batches/step-000020.safetensors: 256 responses"),
        "{}",
        ran.out
    );
    let ran = lab.run("apply grpo run run --step 20");
    ran.says("`--step` takes one batch");
}

#[test]
fn every_kind_of_file_converts_to_every_other() {
    let lab = Lab::new();
    let dumps = Path::new(crate::ROOT).join("tests/data/dumps");
    for dump in ["verl/9.jsonl", "trl/completions_00001.parquet"] {
        let summary = |file: &str| {
            let ran = lab.run(&format!("apply grpo {file} --json"));
            assert_eq!(ran.status, 0, "{file}: {}", ran.err);
            let json: Value = serde_json::from_str(&ran.out).unwrap();
            json["summary"].clone()
        };
        let dump = dumps.join(dump).display().to_string();
        let expected = summary(&dump);
        let mut from = dump;
        for to in [
            "a.parquet",
            "b.jsonl.zst",
            "c.npz",
            "d.safetensors",
            "e.parquet",
        ] {
            let ran = lab.run(&format!("convert {from} {to}"));
            assert_eq!(ran.status, 0, "{from} to {to}: {}", ran.err);
            assert_eq!(summary(to), expected, "{from} to {to}");
            from = to.to_string();
        }
    }
    let wrong = lab.run("convert rollouts.jsonl a.csv");
    wrong.says("no ending that says what to write");
    lab.write("odd.jsonl", "{\"a\": [{\"b\": 1, \"c\": {}}, null], \"d\": 18446744073709551617, \"e\": NaN}\n{\"a\": [], \"d\": \"x\", \"f\": [[true], []]}\n");
    let ran = lab.run("convert odd.jsonl odd.parquet");
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert_eq!(lab.run("convert odd.parquet back.jsonl").status, 0);
    insta::assert_snapshot!(format!("{}{}", ran.err, lab.read("back.jsonl")));
}

#[test]
fn lines_that_become_lines_keep_their_fields() {
    let lab = Lab::new();
    let lines = "{\"score\": 1.50, \"d\": 18446744073709551617}\n\n{\"d\": {\"score\": 1}}\n";
    lab.write("a.jsonl", lines);
    let ran = lab.run("convert a.jsonl b.jsonl");
    assert_eq!((ran.status, lab.read("b.jsonl").as_str()), (0, lines));
    let named = lab.run("convert a.jsonl c.jsonl --map reward=score");
    named.says("fields of lines keep their names");
}

/// Files are open one at a time.
#[cfg(unix)]
#[test]
fn a_folder_may_have_more_files_than_a_process_may_open() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path().join("many")).unwrap();
    for step in 0..1500 {
        let line = format!("{{\"group\": {step}, \"reward\": 1}}\n");
        lab.write(&format!("many/step_{step}.jsonl"), &line);
    }
    let mut shell = std::process::Command::new("sh");
    let limited = "ulimit -n 1024 && exec \"$0\" convert many all.jsonl";
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_advlab")]);
    let ran = shell.current_dir(lab.path()).output().unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert_eq!(lab.read("all.jsonl").lines().count(), 1500);
}
