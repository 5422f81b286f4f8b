//! Which rows form a group.

use super::*;

#[test]
fn a_prompt_that_names_no_group_is_an_error_also_in_a_known_dump() {
    let rest = r#""output": "x", "score": 1"#;
    let lines = [r#""p""#, r#"{"a": 1}"#].map(|prompt| format!("\"input\": {prompt}, {rest}"));
    let (_folder, path) = file_of(&[&lines[0], &lines[1]]);
    let error = try_read(&path, &[], None).unwrap_err();
    let said = "line 2, `input`: found an object; expected a string";
    assert!(error.contains(said), "{error}");
}

/// Some lines have an epoch, however few: each epoch has groups of its own.
#[test]
fn a_rare_epoch_splits_groups_all_the_same() {
    let mut lines = vec![r#""group": 1, "reward": 1"#; 600];
    lines[..2].fill(r#""group": 1, "reward": 1, "epoch": 0"#);
    lines[2..4].fill(r#""group": 1, "reward": 1, "epoch": 1"#);
    let reversed: Vec<&str> = lines.iter().rev().copied().collect();
    for lines in [lines, reversed] {
        let (_folder, path) = file_of(&lines);
        assert_eq!(read_as(&path, &[]).batch.layout().groups(), 3);
    }
}

/// Names by which the tables stand for fields.
const FIELDS: &str = r#"
PLAIN | "group": 1, "reward": 1
VERL | "input": "p", "output": "a", "score": 1
VERIFIERS | "example_id": 0, "completion": "a", "reward": 1
"#;

/// The number of groups of lines, each of which is there several times in turn, and the notes on it.
fn groups_of(lines: &str, times: usize, map: &str) -> (usize, String) {
    let lines = in_full(lines, FIELDS);
    let lines: Vec<&str> = lines
        .split("; ")
        .flat_map(|line| vec![line; times])
        .collect();
    let (_folder, path) = file_of(&lines);
    let rollouts = read_as(&path, &map_of(map));
    let groups = rollouts.batch.layout().groups();
    (groups, notes(&rollouts).join("\n"))
}

/// The number of groups of rows of one prompt, a mapping, and the rows, each of which is there twice.
#[test]
fn rows_of_several_steps_never_share_a_group() {
    let table = r#"
1 | - | PLAIN, "step": 1; PLAIN, "step": 1
2 | - | PLAIN, "step": 1; PLAIN, "step": 2
2 | mine=step | PLAIN, "step": 1; PLAIN, "step": 2
2 | - | PLAIN, "global_step": 1; PLAIN, "global_step": 2
2 | - | PLAIN, "training_step": 1; PLAIN, "training_step": 2
2 | - | PLAIN, "iteration": 1; PLAIN, "iteration": 2
2 | - | PLAIN, "update": 1; PLAIN, "update": 2
1 | - | PLAIN, "update": 0.5; PLAIN, "update": 0.75
2 | - | PLAIN, "global_steps": 1; PLAIN, "global_steps": 2
2 | - | PLAIN, "optimizer_step": 1; PLAIN, "optimizer_step": 2
2 | - | PLAIN, "step": "1"; PLAIN, "step": "2"
2 | step=at | PLAIN, "at": "1"; PLAIN, "at": "2"
2 | - | PLAIN, "step": 1; PLAIN, "step": null
2 | - | PLAIN, "epoch": 1; PLAIN, "c": 0
2 | step=at | PLAIN, "at": 1; PLAIN, "at": 2
2 | - | PLAIN, "epoch": 0, "step": 1; PLAIN, "epoch": 1, "step": 1
2 | - | VERL, "step": 1; VERL, "step": 2
2 | group=input | VERL, "step": 1; VERL, "step": 2
"#;
    for [groups, map, lines] in rows(table) {
        let (found, told) = groups_of(lines, 2, map);
        assert_eq!(found.to_string(), groups, "{map} {lines}");
        assert_eq!(told.contains("several steps"), groups == "2", "{lines}");
    }
}

/// The number of groups of rows whose prompts have one name, how many times each row is there, and the rows. Real dumps of verl have
/// a `uid` for each response.
#[test]
fn prompts_with_one_name_are_distinguished_by_another_field() {
    let table = r#"
2 | 2 | VERL, "uid": "a"; VERL, "uid": "b"
1 | 1 | VERL, "uid": "a"; VERL, "uid": "b"
1 | 2 | VERL, "uid": "a"; VERL, "uid": "a"
2 | 2 | VERIFIERS, "prompt": "a"; VERIFIERS, "prompt": "b"
1 | 2 | VERIFIERS, "prompt": "a"; VERIFIERS, "prompt": "a"
"#;
    for [groups, times, lines] in rows(table) {
        let (found, told) = groups_of(lines, times.parse().unwrap(), "");
        assert_eq!(found.to_string(), groups, "{lines}");
        let is_told = told.contains("the names of several prompts are equal");
        assert_eq!(is_told, groups == "2", "{told}");
    }
}

/// The number of groups of three rows that are each in a step of their own, the field that splits no groups, a mapping, and the
/// fields of each row.
#[test]
fn a_field_that_may_number_the_samples_splits_no_groups_of_one_response() {
    let table = r#"
1 | iteration | - | "iteration": N
1 | update | - | "update": N
1 | epoch | - | "epoch": N
1 | epoch | - | "iteration": N, "epoch": N
3 | - | - | "step": N, "epoch": N
3 | - | - | "global_step": N
3 | - | step=iteration | "iteration": N
3 | - | step=epoch | "epoch": N
"#;
    for [groups, unused, map, fields] in rows(table) {
        let lines =
            ["0", "1", "2"].map(|n| format!("PLAIN, {}", fields.replace(": N", &format!(": {n}"))));
        let (found, told) = groups_of(&lines.join("; "), 1, map);
        assert_eq!(found.to_string(), groups, "{fields} {map}");
        let note = match unused {
            "-" => "groups are not split".to_string(),
            field => format!("groups are not split by `{field}`"),
        };
        assert_eq!(told.contains(&note), unused != "-", "{fields}: {told}");
    }
}
