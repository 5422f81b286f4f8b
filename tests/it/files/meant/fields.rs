//! Which fields are rewards, lengths and other columns.

use std::collections::BTreeSet;

use super::*;

/// Written by pyarrow, as are the other files in tests/data.
#[test]
fn decimals_of_parquet_are_numbers_with_all_their_digits() {
    let path = Path::new(crate::ROOT).join("tests/data/decimals.parquet");
    let batch = read_as(&path, &[]).batch;
    assert_eq!(column(&batch, "reward"), [1.25, 0.5, -0.75, 1.0]);
    // The names of the two groups differ in the last of 29 digits.
    assert_eq!(batch.layout().groups(), 2);
}

#[test]
fn rows_of_parquet_with_several_responses_are_read_as_lines_are() {
    let path = Path::new(crate::ROOT).join("tests/data/generations.parquet");
    let rollouts = read_as(&path, &[]);
    assert_eq!(column(&rollouts.batch, "reward"), [1.0, 0.0]);
    assert_eq!(verified(&path, [None, None]), "rw");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.parquet");
    let advantage = super::super::per_response(&rollouts, &[0.0, 0.0]);
    let error = rollouts.write_advantage(&out, &advantage).unwrap_err();
    let error = error.to_string();
    let is_told = error.contains("holds several responses");
    assert!(is_told && !out.exists(), "{error}");
}

/// The responses to which a reward function gave no reward.
fn is_missing(batch: &Batch, name: &str) -> Vec<bool> {
    column(batch, name).iter().map(|x| x.is_nan()).collect()
}

#[test]
fn a_mapped_field_stays_where_it_was_and_a_reward_is_needed_only_where_it_is_read() {
    let (_folder, path) = file_of(&[
        r#""group": 1, "reward_c": 1, "reward_f": 2, "uid": "a""#,
        r#""group": 1, "reward_c": 0, "reward_f": null"#,
        r#""group": 1, "reward_c": NaN, "reward_f": 1"#,
    ]);
    let batch = read_unscored(&path, Unscored::Zero, &map_of("reward=reward_c"));
    assert_eq!(column(&batch, "reward"), [1.0, 0.0, 0.0]);
    assert_eq!(column(&batch, "reward_c")[..2], [1.0, 0.0]);
    // Nothing, null and NaN are one thing in the columns of reward functions.
    assert_eq!(is_missing(&batch, "reward_c"), [false, false, true]);
    assert_eq!(is_missing(&batch, "reward_f"), [false, true, false]);
    let host = advlab::script::Host::new();
    for (recipe, is_read) in [("gdpo", true), ("grpo", false)] {
        let columns = host.load(recipe).unwrap().columns();
        let options = ReadOptions {
            columns: columns.as_ref(),
            unscored: Unscored::Zero,
            ..ReadOptions::default()
        };
        let read = files::read(&path, &options);
        assert_eq!(read.is_ok(), is_read, "{recipe}");
    }
    // Nor does the reward need a field of its own if `--map` names the rewards of functions.
    let (_nested, nested) = file_of(&[r#""group": 1, "rewards": {"c": 1, "f": null}"#]);
    let map = ["reward_c=rewards.c", "reward_f=rewards.f"].map(map_of);
    let batch = read_unscored(&nested, Unscored::Zero, &map.concat());
    assert_eq!(column(&batch, "reward_c"), [1.0]);
    assert_eq!(is_missing(&batch, "reward_f"), [true]);
    for (field, missing) in [("", [true, false]), (", \"reward_x\": 1", [false, false])] {
        let first = format!("\"group\": 1, \"reward\": 1{field}");
        let (_folder, path) = file_of(&[&first, r#""group": 1, "reward": 1, "reward_x": 2"#]);
        assert_eq!(is_missing(&read_as(&path, &[]).batch, "reward_x"), missing);
    }
}

#[test]
fn rewards_that_a_function_did_not_give_add_nothing_to_gdpo() {
    for [math, code] in [["reward_math", "reward_code"], ["math", "code"]] {
        let lines = [
            format!(r#""group": "m", "{math}": 1.0, "{code}": null"#),
            format!(r#""group": "m", "{math}": 0.0, "{code}": NaN"#),
            r#""group": "m", "MATH": 1"#.replace("MATH", math),
            format!(r#""group": "c", "{math}": null, "{code}": 0.5"#),
            format!(r#""group": "c", "{math}": NaN, "{code}": 1.0"#),
            r#""group": "c", "CODE": 0"#.replace("CODE", code),
        ];
        let lines = lines.map(|line| line + ", \"length\": 2");
        let (_folder, path) = file_of(&lines.each_ref().map(String::as_str));
        let mut gdpo = advlab::script::Host::new().load("gdpo").unwrap();
        gdpo.set_text("rewards", &format!("{math},{code}")).unwrap();
        let unrewarded = ReadOptions {
            unrewarded: true,
            ..ReadOptions::default()
        };
        let batch = files::read(&path, &unrewarded).unwrap().batch;
        let outcome = gdpo.advantage(&batch, &mut gdpo.init().unwrap()).unwrap();
        // numpy: nanmean and nansum, ddof 1.
        let expected = [0.6455, -1.2910, 0.6455, 0.0, 1.1180, -1.1180];
        for (found, expected) in outcome.advantage.by_response().iter().zip(expected) {
            let is_near = (found - expected).abs() < 1e-4;
            assert!(is_near, "{math}: {found} {expected}");
        }
    }
}

#[test]
fn the_reward_functions_of_trl_have_the_names_that_they_have_in_the_trainer() {
    let first = r#""step": 1, "prompt": "p", "completion": "a""#;
    let line = |exact: &str, judge: &str| {
        format!("{first}, \"exact\": {exact}, \"org/judge-2\": {judge}, \"advantage\": 0")
    };
    let (_folder, path) = file_of(&[&line("true", "1"), &line("null", "0.5")]);
    for path in [path.clone(), parquet(&path)] {
        for (map, reward) in [
            ("", [2.0, 0.5]),
            ("reward=exact", [1.0, 0.0]),
            ("reward_exact=exact", [2.0, 0.5]),
        ] {
            let batch = read_unscored(&path, Unscored::Zero, &map_of(map));
            assert_eq!(column(&batch, "reward"), reward, "{map}");
            assert_eq!(column(&batch, "reward_exact")[0], 1.0, "{map}");
            for name in ["org/judge-2", "reward_org_judge_2"] {
                assert_eq!(column(&batch, name), [1.0, 0.5], "{name} {map}");
            }
        }
    }
}

#[test]
fn of_two_reward_functions_with_one_name_the_second_keeps_its_own() {
    let line =
        r#""step": 1, "prompt": "p", "completion": "a", "foo-": 1, "foo_": 0.5, "advantage": 0"#;
    let (_folder, path) = file_of(&[line]);
    let rollouts = read_as(&path, &[]);
    for (name, value) in [("reward", 1.5), ("reward_foo_", 1.0), ("foo_", 0.5)] {
        assert_eq!(column(&rollouts.batch, name), [value], "{name}");
    }
    let told = notes(&rollouts).join("\n");
    let note = "`foo_` keeps its name, because `reward_foo_` is read from `foo-`";
    assert!(told.contains(note), "{told}");
}

/// What is said of the rewards of three rows.
#[test]
fn of_mixed_scores_the_first_unusable_one_is_reported() {
    let table = r#"
line 1, `reward`: found the string "1"; expected a number | "1", 0, 1
line 2, `reward`: found the string "1"; expected a number | 0, "1", 1
line 3, `reward`: found the string "1"; expected a number | null, 0, "1"
line 1, `reward`: found an array | [1], 0, 1
"#;
    for [said, rewards] in rows(table) {
        // The rewards of one of several functions too.
        for name in ["reward", "reward_c"] {
            let line =
                |reward| format!("{{\"group\": 1, \"reward_a\": 1, \"{name}\": {reward}}}\n");
            let lines: String = rewards.split(", ").map(line).collect();
            let (_folder, path) = file("a.jsonl", &lines);
            let error = try_read(&path, &[], None).map(|read| notes(&read).join("\n"));
            let error = error.unwrap_or_else(|error| error);
            let said = said.replace("`reward`", &format!("`{name}`"));
            let is_list = name != "reward" && said.contains("array");
            assert!(error.contains(&said) != is_list, "{rewards}: {error}");
        }
    }
}

/// A verdict that is not read need not be there for each response. Each row: how many lines there are, the column that is read, and
/// the note or the error.
#[test]
fn a_verdict_beside_a_reward_may_be_null() {
    let lines = [
        r#""group": 1, "reward": 0.5, "reward_a": 1, "correct": true"#,
        r#""group": 1, "reward": 0.25, "reward_a": 0, "correct": null"#,
        r#""group": 1, "reward": null, "reward_a": 0, "correct": null"#,
    ];
    let left_out = "`correct` is left out: it has no value in line 2";
    for (count, reads, expected) in [
        (2, "reward", Ok(left_out)),
        (2, "correct", Err("line 2, `correct`: found no value")),
        (3, "reward", Err("line 3, `reward`: found no value")),
    ] {
        let (_folder, path) = file_of(&lines[..count]);
        let read = read_only(&path, &[reads]).map(|rollouts| notes(&rollouts).join("\n"));
        let is_right = match (&read, expected) {
            (Ok(told), Ok(said)) | (Err(told), Err(said)) => told.contains(said),
            _ => false,
        };
        assert!(is_right, "{reads}: {read:?}");
    }
}

/// The score of verl's dump, and the reward that it is, or what is said.
#[test]
fn a_score_of_another_type_is_a_reward_or_an_error_about_the_score() {
    let table = r#"
true | 1
0.5 | 0.5
"1.0" | `score`: found the string "1.0"; expected a number
[1.0] | `score`: found an array of 1 number; expected a number
{"acc": 1} | `--map reward=score.FIELD`
null | `score`: found no value
NaN | `score`: found no value
"#;
    let verl = r#""input": "p", "output": "so 1", "gts": "1", "step": 1"#;
    for [score, expected] in rows(table) {
        let (_folder, path) = file_of(&[&format!("{verl}, \"score\": {score}")]);
        let read = try_read(&path, &[], None);
        match (read, expected.parse::<f64>()) {
            (Ok(rollouts), Ok(reward)) => assert_eq!(column(&rollouts.batch, "reward"), [reward]),
            (Err(error), Err(_)) => assert!(error.contains(expected), "{score}: {error}"),
            (found, _) => panic!("{score}: {:?}", found.map(|rollouts| notes(&rollouts))),
        }
    }
}

#[test]
fn results_of_verifiers_of_nemo_gym_and_of_sampling_scripts_need_no_map() {
    let verifiers = r#""example_id": 0, "prompt": [{"role": "user", "content": "1 + 1"}], "completion": [{"role": "user", "content": "1 + 1", "tool_calls": null}, {"role": "assistant", "content": "", "tool_calls": ["{}"]}, {"role": "tool", "content": "2", "tool_calls": null}, {"role": "assistant", "content": "so 2", "tool_calls": null}], "task": "default", "reward": 1.0, "answer": "2", "correct_answer": 1.0"#;
    let gym = r#""responses_create_params": {"input": [{"role": "user", "content": "1 + 1"}]}, "response": {"id": "r", "output": [{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so 2", "annotations": []}]}]}, "reward": 1.0, "expected_answer": "2", "_ng_task_index": 0, "_ng_rollout_index": 1"#;
    // One line with both responses; the prompt's two messages belong to each.
    let several = r#""prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "1 + 1"}], "completions": ["so 2", "so 2"], "rewards": [1, 1], "answer": "2""#;
    let unrewarded = r#""prompt": "1 + 1", "completions": ["so 2", "so 2"], "answer": "2""#;
    let generations = r#""problem": "1 + 1", "solution": "Counting one further than one, we come to two.", "answer": "2", "generations": ["so 2", "so 2"], "is_reasoning_complete": [true, true], "correctness_math_verify": [true, true], "correctness_count": 2"#;
    let verl = r#""data_source": "d", "prompt": [{"role": "user", "content": "1 + 1"}], "reward_model": {"ground_truth": "2"}, "responses": ["so 2", "so 2"]"#;
    for lines in [
        &[verifiers, verifiers][..],
        &[gym, gym],
        &[several],
        &[unrewarded],
        &[generations],
        &[verl],
    ] {
        let (_folder, path) = file_of(lines);
        let batch = read_as(&path, &[]).batch;
        assert_eq!(batch.layout().groups(), 1);
        if ![unrewarded, verl].contains(&lines[0]) {
            assert_eq!(column(&batch, "reward"), [1.0, 1.0]);
        }
        assert_eq!(column(&batch, "length"), [2.0, 2.0]);
        assert_eq!(&*batch.text("completion").unwrap()[0], "so 2");
        assert_eq!(batch.solution(0).as_deref(), Some("2"));
        let verdicts = verified(&path, [None, None]);
        assert!(verdicts.starts_with("rr"), "{lines:?}: {verdicts}");
    }
}

/// Names by which the table stands for fields that the lines of a dump have in common.
const FIELDS: &str = r#"
AREAL | "task_id": 1, "seqlen": 30, "prompt_len": 4, "completion": "c"
VERL | "input": "q", "output": "a b c", "gts": "7", "step": 1
SLIME | "group_index": 0, "response": "a b", "response_length": 2, "loss_mask": [1, 1]
NEMO | "content": ["q a"], "token_ids": [[1, 2, 5]], "token_loss_mask": [[0, 1, 1]]
TRL | "step": 1, "prompt": "p", "completion": "x y"
SWIFT | "prompt": ["p", "p"], "completion": ["a", "b"], "Math": [1, 0], "Format": [1, 1], "advantages": [0.7, -0.7]
LOGGED | "group": "a", "completion": "x", "reward": 1
"#;

/// The rewards, the number of each response's group, the lengths, a note, and lines of a dump with fields that other dumps or
/// recipes use in another sense. A `$` is the end of the note.
const MEANT: &str = r#"
1 0 | 0 0 | 2 6 | length = `length` | AREAL, "tail_version": 3, "version_rle": [[3, 2]], "reward": 1; AREAL, "tail_version": 4, "version_rle": [[3, 2], [4, 4]], "reward": 0
1 0 | 0 0 | 3 3 | `reward` is left out: `reward` is read from `score` | VERL, "score": 1, "reward": 5; VERL, "score": 0, "reward": 6
5 6 | 0 0 | 3 3 | completion = `output` | VERL, "score": null, "was": 1, "reward": 5; VERL, "score": null, "was": 0, "reward": 6
1 0 | 0 0 | 3 3 | reward = `score` | VERL, "score": 1, "advantage": 1, "weight": 2; VERL, "score": 0, "advantage": 1, "weight": 2
1 0 | 0 0 | 3 3 | `length` is left out, because a dump of verl's generations has no such field | VERL, "score": 1, "length": 1; VERL, "score": 0, "length": 0.5
1 0 0 1 | 0 0 1 1 | 3 3 3 3 | the responses with the same `uid` form a group | VERL, "score": 1, "uid": "a_0_0"; VERL, "score": 0, "uid": "a_1_0"; VERL, "score": 0, "uid": "b_0_0"; VERL, "score": 1, "uid": "b_1_0"
# A name that ends in numbers, too.
1 0 0 1 | 0 0 1 1 | 3 3 3 3 | the responses with the same `uid` form a group | VERL, "score": 1, "uid": "math_0_0"; VERL, "score": 0, "uid": "math_0_0"; VERL, "score": 0, "uid": "math_1_0"; VERL, "score": 1, "uid": "math_1_0"
1 0 | 0 0 | 2 2 | left out: 1 response that the trainer rejected | SLIME, "reward": 1, "remove_sample": false; SLIME, "reward": 0, "remove_sample": true; SLIME, "reward": 0, "remove_sample": false
1 0 | 0 0 | 2 2 | left out: 1 response that the trainer rejected | NEMO, "rewards": [1], "sample_loss_mask": [1.0]; NEMO, "rewards": [0], "sample_loss_mask": [0.0]; NEMO, "rewards": [0], "sample_loss_mask": [1.0]
1.5 0.5 | 0 0 | 2 2 | `reward` is `a` + `b` | "index": 0, TRL, "a": 1, "b": 0.5, "advantage": 0.7, "__index_level_0__": 9; "index": 9, TRL, "a": 0, "b": 0.5, "advantage": -0.7, "__index_level_0__": 0
1.5 1 | 0 0 | 2 2 | `reward` is `length` + `correct` + `entropy` | TRL, "length": 1, "correct": 0.5, "entropy": 0, "advantage": 0.7; TRL, "length": 0, "correct": 1, "entropy": 0, "advantage": -0.7
1 0 | 0 0 | 2 2 | `reward` is `a` + `b`, without `completion_length`, because the sum would not fit | TRL, "a": 1, "b": 0, "completion_length": 5, "advantage": 0.5; TRL, "a": 0, "b": 0, "completion_length": 9, "advantage": -0.5
# No sum fits, or there is no evidence: the names decide.
1 0.5 | 0 0 | 2 2 | without `length`, because it is the name of another column$ | TRL, "a": 1, "b": 0, "length": 5, "advantage": 0.3; TRL, "a": 0, "b": 0.5, "length": 9, "advantage": 0.3
1 0.5 | 0 0 | 2 2 | `reward` is `a` + `b`, without `length` | TRL, "a": 1, "b": 0, "length": 5, "advantage": 0; TRL, "a": 0, "b": 0.5, "length": 9, "advantage": 0
# The first line lacks a function.
1 1 | 0 0 | 2 2 | `reward` is `a_reward` + `b_reward` | TRL, "a_reward": 1, "advantage": 0; TRL, "a_reward": 0, "b_reward": 1, "advantage": 0
1 1 | 0 0 | 2 2 | the run may have had `reward_weights` | TRL, "a_reward": 1, "b_reward": 0, "n": 5, "advantage": 0.2; TRL, "a_reward": 0, "b_reward": 1, "n": 9, "advantage": 0.3
2 1 2 1 | 0 0 1 1 | 1 1 1 1 | read as a dump of ms-swift's completions | "step": ["1", "1"], SWIFT; "step": ["2", "2"], SWIFT
0.2 0.9 | 0 0 | 1 1 | reward = `scores` | "prompt": "p", "completions": ["a", "b"], "scores": [0.2, 0.9], "answer": "a"
0.2 0.9 | 0 0 | 1 2 | completion = `responses` | "prompt": "p", "responses": ["a", "b c"], "rewards": [0.2, 0.9]
1 0 0 1 | 0 0 1 1 | 1 1 1 1 | the responses with the same `id` form a group | "id": ["a", "a", "b", "b"], "prompt": ["q", "q", "q", "q"], "responses": ["x", "x", "x", "x"], "scores": [1, 0, 0, 1]
1 1 1 | 0 1 0 | 1 1 1 | `step` is read from `global_step` | "global_step": "step_9", LOGGED; "global_step": "step_10", LOGGED; "global_step": "step_9", LOGGED
# A field `rejected` of another program says nothing about the response.
1 0 | 0 0 | 1 1 | the length of a response is the number of words | "group": "a", "completion": "x", "reward": 1, "rejected": false; "group": "a", "completion": "x", "reward": 0, "rejected": true
1 | 0 | 1 | `entropy` is left out: it is 0.3 in line 1 | LOGGED, "entropy": 0.3, "value": 2
"#;

#[test]
fn a_field_of_a_dump_means_what_its_trainer_means_by_it() {
    for [rewards, groups, lengths, note, lines] in rows(MEANT) {
        let lines = in_full(lines, FIELDS);
        let (_folder, path) = file_of(&lines.split("; ").collect::<Vec<_>>());
        let read = BTreeSet::from(["reward".to_string()]);
        let options = ReadOptions {
            columns: Some(&read),
            ..ReadOptions::default()
        };
        let rollouts = files::read(&path, &options);
        let rollouts = rollouts.unwrap_or_else(|error| panic!("{lines}: {error}"));
        let (batch, layout) = (&rollouts.batch, rollouts.batch.layout());
        assert_eq!(joined(&column(batch, "reward")), rewards, "{lines}");
        let responses = 0..layout.responses();
        let found: Vec<usize> = responses.clone().map(|one| layout.group_of(one)).collect();
        assert_eq!(joined(&found), groups, "{lines}");
        let found: Vec<usize> = responses.map(|one| layout.tokens_of(one).len()).collect();
        assert_eq!(joined(&found), lengths, "{lines}");
        let told = notes(&rollouts).join("\n");
        assert!(told.contains(&note.replace('$', "\n")), "{lines}: {told}");
    }
}
