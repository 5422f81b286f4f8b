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
    assert!(
        wrong.err.contains("it is the state of \"counts.rhai\""),
        "{}",
        wrong.err
    );
    let step = lab.run("apply counts.rhai steps/step_9.jsonl --step 40 --json");
    let step: Value = serde_json::from_str(&step.out).unwrap();
    assert_eq!(
        (&step["step"], &step["metrics"]["step"]),
        (&40.into(), &40.0.into())
    );
    let wrong = lab.run("apply counts.rhai steps -o out.jsonl");
    assert!(
        wrong.err.contains("several inputs have several outputs"),
        "{}",
        wrong.err
    );
}

#[test]
fn every_kind_of_file_converts_to_every_other() {
    let lab = Lab::new();
    let dumps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dumps");
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
    assert!(
        wrong.err.contains("no ending that says what to write"),
        "{}",
        wrong.err
    );
    lab.write("odd.jsonl", "{\"a\": [{\"b\": 1, \"c\": {}}, null], \"d\": 18446744073709551617, \"e\": NaN}\n{\"a\": [], \"d\": \"x\", \"f\": [[true], []]}\n");
    let ran = lab.run("convert odd.jsonl odd.parquet");
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert_eq!(lab.run("convert odd.parquet back.jsonl").status, 0);
    insta::assert_snapshot!(format!("{}{}", ran.err, lab.read("back.jsonl")));
}
