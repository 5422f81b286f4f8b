//! `--executor`: the same advantages by each, and an error that says how to build where one is not there.

use serde_json::Value;

use super::lab::Lab;

/// The advantages that `apply` writes, all tokens one after another.
fn advantages(lab: &Lab, executor: &str) -> Vec<f64> {
    let ran = lab.run(&format!(
        "apply reinforce_pp rollouts.jsonl --executor {executor} --native off --force -o out.jsonl"
    ));
    assert_eq!(ran.status, 0, "{executor}: {}", ran.err);
    let text = lab.read("out.jsonl");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let of = |line: Value| match &line["advantage"] {
        Value::Array(tokens) => tokens.iter().filter_map(Value::as_f64).collect(),
        one => vec![one.as_f64().expect("a number")],
    };
    lines.flat_map(of).collect()
}

#[test]
fn advantages_are_the_same_by_each_executor() {
    let lab = Lab::new();
    let naive = advantages(&lab, "naive");
    assert!(naive.iter().any(|&value| value.abs() > 0.5), "{naive:?}");
    assert_eq!(advantages(&lab, "auto"), naive);
    assert_eq!(advantages(&lab, "fused"), naive);
    if cfg!(feature = "torch") {
        let torch = advantages(&lab, "torch");
        assert_eq!(torch.len(), naive.len());
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9;
        assert!(torch.iter().zip(&naive).all(near), "{torch:?}");
        // Kernels promise the bits of scripts, which libtorch's are not.
        let ran = lab.run("apply reinforce_pp rollouts.jsonl --executor torch --native on");
        assert!(
            ran.status == 0 && !ran.out.contains("(native)"),
            "{}",
            ran.out
        );
        let ran = lab.run("profile reinforce_pp rollouts.jsonl --executor torch --runs 1 --json");
        let profile: Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!(
            profile["torch"]["seconds"].as_array().map(Vec::len),
            Some(1)
        );
        let stages = profile["stages"].as_array().expect("stages");
        let kinds: Vec<&str> = stages
            .iter()
            .filter_map(|one| one["kind"].as_str())
            .collect();
        assert!(
            kinds.contains(&"libtorch") && !kinds.contains(&"pass"),
            "{kinds:?}"
        );
    } else {
        let refused = lab.run("apply gae rollouts.jsonl --executor torch");
        assert_eq!(refused.status, 2);
        for said in ["built without libtorch", "--features torch"] {
            assert!(refused.err.contains(said), "{}", refused.err);
        }
    }
}
