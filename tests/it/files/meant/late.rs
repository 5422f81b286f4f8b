//! What the first lines lack, or few lines have.

use super::*;

/// The rewards of the scored responses, a mapping, and lines of which the first lacks what the others have.
#[test]
fn what_the_first_line_lacks_is_read_from_the_others() {
    let table = r#"
1 | - | "group": 1, "c": 0; "group": 1, "reward": 1
1 | - | "group": 1, "reward": null; "group": 1, "reward": true
1 | reward=score | "group": 1; "group": 1, "score": 1
1 | reward=rewards.right | "group": 1, "rewards": null; "group": 1, "rewards": {"right": 1}
1 1.5 | - | TRL, "accuracy_reward": 1, "answer_len": 90; TRL, "accuracy_reward": 0, "Skywork-RM": 1.5
0.5 | - | "input": "p", "output": "o"; "input": "p", "output": "o", "score": 0.5
0 1 | - | "input": "p", "output": null, "score": 0; "input": "p", "output": "o", "score": 1
0 1 | - | "example_id": 0, "prompt": "p", "completion": null, "reward": 0; "example_id": 0, "prompt": "p", "completion": "o", "reward": 1
1 0 | - | "prompt": "p", "completions": []; "prompt": "p", "completions": ["a", "b"], "rewards": [1, 0]
"#;
    let trl = r#""step": 1, "prompt": "p", "completion": "x", "advantage": 0"#;
    for [rewards, map, lines] in rows(table) {
        let lines = lines.replace("TRL", trl);
        let all: Vec<&str> = lines.split("; ").collect();
        let (_folder, path) = file_of(&all);
        let copy = (all[0].contains("null") && map == "-").then(|| parquet(&path));
        for path in [Some(path), copy].into_iter().flatten() {
            let batch = read_unscored(&path, Unscored::LeaveOut, &map_of(map));
            assert_eq!(joined(&column(&batch, "reward")), rewards, "{lines}");
        }
    }
}

/// The first lines decide how fields are read. A later field that would have changed the result is an error that names its line,
/// and any other later field is a column. Each row: the late field or nothing, the first lines' fields, and the late line's.
#[test]
fn a_field_that_comes_late_is_not_left_out_in_silence() {
    let table = r#"
accuracy_reward | "step": 1, "prompt": "p", "completion": "o", "advantage": 0, "format_reward": 1 | "accuracy_reward": 1
- | "step": 1, "prompt": "p", "completion": "o", "format_reward": 1, "advantage": 0 | "loss": 1
other_reward | "step": 1, "prompt": "p", "completion": "o", "format_reward": 1, "advantage": 0 | "other_reward": 1
uid | "input": "p", "output": "o", "score": 1 | "uid": "a"
uid | "input": "p", "output": "o", "score": 1 | "mine": 1, "uid": "a", "other": 1
- | "input": "p", "output": "o", "score": 1 | "mine": 1
global_step | "group": 1, "reward": 1 | "global_step": 3
- | "group": 1, "reward": 1 | "mine": 1, "reward_b": 2, "step": 3
# References decide nothing beside a reward.
- | "group": 1, "reward": 1 | "label": "x", "completion": "o"
- | "group": 1, "reward": 1 | "target": "x", "ground_truth": "7", "completion": "o"
- | "input": "p", "output": "o", "score": 1 | "gts": "x"
ground_truth | "group": 1, "completion": "o", "answer": "7" | "ground_truth": "7"
env_extras | "input_prompt": "p", "output_response": "o", "answer": "7" | "mine": 1, "env_extras": {"reward_spec": {"ground_truth": "7"}}
# Beside the trainer's score, another reward is left out, and a verdict is one more column.
- | "input": "p", "output": "o", "score": 1 | "reward": 0.5
- | "input": "p", "output": "o", "score": 1 | "acc": true
"#;
    for [field, first, late] in rows(table) {
        let text = format!("\"text\": \"{}\"", "x".repeat(1000));
        // A field with only nulls in the first lines comes late, too.
        for known in ["", "\"global_step\": null, "] {
            let line = format!("{known}{first}, {text}");
            let mut lines = vec![&*line; 140];
            let last = format!("{first}, {late}, {text}");
            lines.push(&last);
            let (_folder, path) = file_of(&lines);
            let said = try_read(&path, &[], None).map(drop);
            let right = match &said {
                Ok(()) => field == "-",
                Err(error) => error.contains(&format!("line 141: `{field}`")),
            };
            assert!(right, "{late}: {said:?}");
        }
    }
}

/// A summand of TRL's reward with only nulls at first is a summand before and after, whatever its name means in other files.
#[test]
fn a_summand_without_early_values_is_not_late() {
    let text = format!("\"text\": \"{}\"", "x".repeat(1000));
    let row = r#""step": 1, "prompt": "p", "completion": "7", "advantage": 0.5, "acc_reward": 1.0"#;
    let line = format!("{row}, \"gold_answer\": null, {text}");
    let last = format!("{row}, \"gold_answer\": 7, {text}");
    let mut lines = vec![&*line; 140];
    lines.push(&last);
    let (_folder, path) = file_of(&lines);
    let read = try_read(&path, &[], None).unwrap();
    assert_eq!(read.batch.layout().responses(), 141);
}

/// `verify` refuses a late reference that it would have compared instead, and compares a late `solution` or `answer` as any other.
#[test]
fn a_late_reference_is_not_passed_over_by_verify() {
    let text = format!("\"text\": \"{}\"", "x".repeat(1000));
    let line = |more: &str| format!("{{\"completion\": \"7\", {more}, {text}}}\n");
    for (first, late, expected) in [
        (r#""answer": 7"#, r#""ground_truth": 7"#, "`ground_truth`"),
        (
            r#""answer": 7, "ground_truth": null"#,
            r#""answer": 8, "ground_truth": 7"#,
            "`ground_truth`",
        ),
        (r#""answer": 7"#, r#""answer": 8, "solution": 7"#, "r"),
        (r#""label": "7""#, r#""label": "7", "answer": 8"#, "r"),
        (r#""answer": 7"#, r#""answer": 8, "solution": null"#, "w"),
        (r#""gts": 7"#, r#""gts": 7, "solution": 8, "mine": 8"#, "r"),
        (r#""gts": 7"#, r#""gts": 8, "answer": 7"#, "w"),
        (r#""gts": "7""#, r#""gts": "", "answer": 7"#, "r"),
        (r#""solution": "7""#, r#""solution": "", "answer": 7"#, "r"),
        (r#""solution": "7""#, r#""solution": "8", "answer": 7"#, "w"),
    ] {
        let (_folder, path) = file("a.jsonl", &(line(first).repeat(140) + line(late).as_str()));
        let said = verified(&path, [None; 2]);
        let is_right = match expected.len() {
            1 => said.get(140..141) == Some(expected),
            _ => said.contains(&format!("line 141: {expected} has its first value here")),
        };
        assert!(is_right, "{late}: {said}");
        // A reference that the user names is compared, whatever comes late.
        let (named, _) = first.split_once(':').unwrap();
        let said = letters(&path, [None, Some(named.trim_matches('"'))]);
        let (letters, compared) = said.unwrap();
        assert_eq!((letters.len(), compared.references.len()), (141, 1));
    }
}

/// A verdict that comes late has the name of a column only for the recipe that reads this column.
#[test]
fn a_late_verdict_is_refused_only_if_it_is_read() {
    let first = r#""input": "p", "output": "o", "score": 1"#;
    let line = format!("{first}, \"text\": \"{}\"", "x".repeat(1000));
    let last = format!("{first}, \"acc\": true");
    let mut lines = vec![&*line; 140];
    lines.push(&last);
    let (_folder, path) = file_of(&lines);
    let refused = read_only(&path, &["reward", "correct"]).map(drop);
    assert!(refused.is_err_and(|error| error.contains("line 141: `acc`")));
    let told = notes(&read_only(&path, &["reward"]).unwrap()).join("\n");
    let note = "`acc` keeps its name, because its first value, in line 141,";
    assert!(told.contains(note), "{told}");
}

/// A long first line does not decide alone how fields are read, and the last line counts although its end is missing.
#[test]
fn a_field_may_come_after_a_long_line() {
    let texts = [140_000, 3 << 20].map(|length| "x".repeat(length));
    let verl = r#""input": "p", "output": "o", "score": 1"#;
    for (first, late) in [
        (r#""group": 1, "reward": 1"#, r#""global_step": 3"#),
        (verl, r#""uid": "a""#),
    ] {
        for text in &texts {
            let lines = format!("{{{first}, \"text\": \"{text}\"}}\n{{{first}, {late}}}");
            let (_folder, path) = file("a.jsonl", &lines);
            let said = try_read(&path, &[], None).map(drop);
            assert_eq!(said, Ok(()), "{late}");
        }
    }
}

/// Whether an unknown field is a column does not depend on which lines have it.
#[test]
fn a_rare_field_is_a_column_or_not_in_any_order() {
    for (count, is_column) in [(20, false), (22, true)] {
        for which in ["first", "last", "spread"] {
            let has_it = |at: usize| match which {
                "first" => at < count,
                "last" => at >= 600 - count,
                _ => at.is_multiple_of(600 / count) && at / (600 / count) < count,
            };
            let line = |at: usize| {
                let mine = if has_it(at) { ", \"mine\": 1" } else { "" };
                format!("{{\"group\": 1, \"reward\": 1, \"epoch\": 1{mine}}}\n")
            };
            let (_folder, path) = file("a.jsonl", &(0..600).map(line).collect::<String>());
            let batch = read_as(&path, &[]).batch;
            let found = batch.response_column("mine");
            let found = found.map(|all| all.iter().filter(|value| !value.is_nan()).count());
            assert_eq!(found, is_column.then_some(count), "{which} {count}");
        }
    }
}
