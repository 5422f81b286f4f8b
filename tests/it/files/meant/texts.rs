//! Which text is the completion, and what of it the policy wrote.

use super::*;

/// The number of words that the policy wrote, what is said of a completion against the reference 36, and the completion.
const COMPLETIONS: &str = r#"
8 | r | "[{'role': 1}] is no list of messages; 36"
1 | r | "\\boxed{36}"
2 | r | [{"role": "assistant", "content": "a \\boxed{36}"}]
2 | r | [{"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]}, {"role": "tool", "name": "x", "content": "5"}, {"role": "assistant", "content": "so 36"}]
3 | r | [{"role": "assistant", "content": "look", "n": NaN}, {"role": "assistant", "content": "so 36"}]
1 | r | [{"role": "assistant", "content": "36", "reasoning_content": "35 or so"}]
0 | n | [{"role": "assistant", "content": null, "reasoning": "it is \\boxed{36}"}]
0 | n | [{"role": "assistant", "thinking": "it is \\boxed{36}"}]
0 | n | [{"role": "assistant", "channel": "analysis", "content": "\\boxed{36}"}]
1 | r | [{"role": "assistant", "channel": "analysis", "content": "35"}, {"role": "assistant", "channel": "final", "content": "36"}]
1 | r | [{"role": "assistant", "content": "36", "weight": 1, "name": "m"}]
1 | r | [{"role": "assistant", "content": [{"type": "text", "text": "36"}]}]
2 | r | [{"role": "assistant", "content": ["so", "36"]}]
1 | r | [{"role": "assistant", "content": [{"type": "thinking", "thinking": "35"}, {"type": "reasoning", "text": "35"}, {"type": "text", "text": "36"}]}]
1 | r | [{"role": "assistant", "content": {"type": "text", "text": "36"}}]
1 | r | [{"type": "thinking", "thinking": "\\boxed{35}"}, {"type": "text", "text": "36"}]
1 | r | [{"type": "reasoning", "summary": []}, {"type": "function_call", "arguments": "35"}, {"type": "function_call_output", "output": "35"}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}]
1 | r | [{"from": "human", "value": "\\boxed{35}"}, {"from": "gpt", "value": "36"}]
1 | r | [{"role": "user", "parts": [{"text": "\\boxed{35}"}]}, {"role": "model", "parts": [{"text": "35", "thought": true}, {"text": "36"}]}]
1 | r | [{"type": "human", "content": "\\boxed{35}"}, {"type": "ai", "content": "36"}]
1 | r | {"role": "assistant", "content": "36"}
2 | r | "[{\"role\": \"assistant\", \"content\": \"so 36\"}, {\"role\": \"tool\", \"content\": \"35\"}]"
1 | r | [{"content": "36"}]
1 | r | ["36"]
2 | r | [["so 36"]]
0 | n | [{"role": "assistant", "content": ""}, {"role": "tool", "content": "36"}, {"role": "assistant", "content": " "}]
0 | n | [{"role": "tool", "content": "\\boxed{36}"}]
6 | n | [{"role": "assistant", "content": "I think \\boxed{35}"}, {"role": "user", "content": "\\boxed{36}"}, {"role": "assistant", "content": "I give up."}]
6 | r | [{"role": "assistant", "content": "\\boxed{35}"}, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "No, the answer is 36."}]
1 | r | [{"role": "assistant", "content": "\\boxed{36}"}, {"role": "ipython", "content": "\\boxed{35}"}, {"role": "developer", "content": "\\boxed{34}"}]
1 | r | [{"role": "assistant", "content": "\\boxed{36}"}, {"role": "assistant", "content": ""}]
2 | r | [{"role": "assistant", "content": [{"type": "text", "text": {"value": "so 36", "annotations": []}}]}]
1 | r | [{"role": "assistant", "content": [{"type": "text", "text": null, "value": "36"}]}]
0 | n | [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}, {"role": "assistant", "content": [{"functionCall": {"name": "36"}}]}]
0 | n | []
0 | n | null
0 | line 2, `completion`: found an object | {"text": "36"}
0 | line 2, `completion`: found an array of objects | [{"text": "36"}]
0 | line 2, `completion`: found an array of 2 numbers | [3, 6]
0 | line 2, `completion`: found an array with strings in it | ["36", "35"]
0 | line 2, `completion`: found messages with the role `judge` | [{"role": "judge", "content": "36"}]
0 | line 2, `completion`: found a message whose content holds 36 | [{"role": "assistant", "content": 36}]
0 | line 2, `completion`: found a message without a text, whose content holds {"answer": "36"} | [{"role": "assistant", "content": {"answer": "36"}}]
0 | line 2, `completion`: found a message without a text, whose content holds {"type": "markdown" | [{"role": "assistant", "content": [{"type": "markdown", "markdown": "36"}]}]
0 | line 2, `completion`: found a message whose content holds 36 | [{"role": "assistant", "content": [{"type": "text", "text": 36}]}]
0 | line 2, `completion`: found messages as Python prints them | "[{'role': 'tool', 'content': '36'}, {'role': 'assistant', 'content': 'I give up'}]"
"#;

#[test]
fn what_the_assistant_says_last_is_the_answer_and_all_that_it_says_is_the_length() {
    let list = |levels: usize| ["[".repeat(levels), "\"36\"".into(), "]".repeat(levels)].concat();
    let deep = |levels| format!(r#"[{{"role": "assistant", "content": {}}}]"#, list(levels));
    let too_deep = "nested more than 32 deep";
    let nested = [
        (deep(20), "r"),
        (deep(20_000), too_deep),
        (list(20_000).replace("\"36\"", ""), too_deep),
    ];
    let nested = nested.iter().map(|(text, said)| ["1", *said, text]);
    for [words, expected, completion] in rows(COMPLETIONS).chain(nested) {
        let line = |completion: &str| {
            format!("{{\"group\": 1, \"completion\": {completion}, \"solution\": \"36\"}}\n")
        };
        let text = [line("\"36\""), line(completion)].concat();
        let (_folder, path) = file("a.jsonl", &text);
        let told = verified(&path, [None, None]);
        if expected.len() > 1 {
            assert!(told.contains(expected), "{completion}: {told}");
            let read = try_read(&path, &[], None).unwrap_err();
            assert!(read.contains(expected), "{completion}: {read}");
            continue;
        }
        let (letters, note) = told.split_once("; ").unwrap_or((&told, ""));
        assert_eq!(letters, format!("r{expected}"), "{completion}");
        let is_noted = note.contains("null or missing");
        assert_eq!(is_noted, completion == "null", "{completion}: {note}");
        let mut paths = vec![path.clone()];
        // The copy has a string of JSON, in which a message is known by its role only, and a list without messages is a text.
        let is_known = completion != "[]" && !completion.starts_with("[{\"content\"");
        if is_known && !completion.contains("NaN") {
            paths.push(parquet(&path));
        }
        for path in paths {
            let batch = read_as(&path, &[]).batch;
            let found = column(&batch, "length")[1].to_string();
            assert_eq!(found, words, "{completion}");
            let right = f64::from(u8::from(expected == "r"));
            assert_eq!(verified_in(&batch), [1.0, right], "{completion}");
        }
    }
}

/// As pyarrow writes them: lists of structs whose fields are null where a message has none, and lists of one text.
#[test]
fn lists_of_structs_and_of_texts_in_parquet_are_messages_and_references() {
    let path = Path::new(crate::ROOT).join("tests/data/messages.parquet");
    for path_of_reference in [None, Some("reward_model.ground_truth")] {
        let told = verified(&path, [None, path_of_reference]);
        assert!(told.starts_with("rnr"), "{told}");
        let map = path_of_reference.map(|path| mapping("solution", path));
        let batch = read_as(&path, map.as_slice()).batch;
        assert_eq!(column(&batch, "length"), [2.0, 0.0, 1.0]);
        assert_eq!(&*batch.text("completion").unwrap()[2], "36");
        assert_eq!(batch.solution(0).as_deref(), Some("36"));
    }
}

/// A path, what is said of the choices of a server at this path, and the choices.
#[test]
fn a_path_steps_into_arrays_and_says_which_index_is_missing() {
    let one = r#"[{"message": {"role": "assistant", "content": "so 7"}}]"#;
    let two = r#"[{"message": {"content": "so 8"}}, {"message": {"content": "7"}}]"#;
    let deep = ["[".repeat(20_000), "]".repeat(20_000)].concat();
    let table = r#"
response.choices[0].message.content | "so 7" | ONE
response.choices.0.message | "so 7" | ONE
response.choices.message.content | "so 7" | ONE
response.choices[1].message.content | "7" | TWO
response.choices.message.content | INDEX | TWO
response.choices[-1].message.content | INDEX | TWO
response.choices[0 | line 1: the brackets of the path `choices[0` do not match | ONE
response.choices[0]].message | the brackets of the path `choices[0]].message` do not match | ONE
response.choices.0].message | the brackets of the path `choices.0].message` do not match | TWO
response.choices[99999999999999999999].message | there is no field `response.choices[99999999999999999999].message` | TWO
response.choices.message | line 1, `choices`: found a value nested more than 32 deep | DEEP
response.choices[1].message | there is no field `response.choices[1].message` | ONE
response.choice | there is no field `response.choice` | ONE
"#;
    let index = "line 1, `choices`: found an array of 2 values; expected an index behind its name, as in `choices[0].message.content`";
    let line = |response: &str| {
        format!("{{\"group\": 1, \"response\": {{{response}}}, \"answer\": \"7\"}}\n")
    };
    let lines = |choices: &str| line(&format!("\"choices\": {choices}"));
    for [path, expected, choices] in rows(table) {
        let choices = match choices {
            "ONE" => one,
            "TWO" => two,
            _ => &deep,
        };
        // A line without the path, as a failed request has none, has an empty completion.
        let text = [lines(choices), line("\"error\": 1")].concat();
        let (_folder, file) = file("a.jsonl", &text);
        let told = verified(&file, [Some(path), None]);
        let read = try_read(&file, &[mapping("completion", path)], None);
        if let Ok(text) = serde_json::from_str::<String>(expected) {
            let is_right = told.starts_with("rn; the completion is null or missing");
            assert!(is_right, "{path}: {told}");
            let batch = read.unwrap().batch;
            let texts = batch.text("completion").unwrap();
            assert_eq!(texts, [text.into(), "".into()]);
            continue;
        }
        let said = expected.replace("INDEX", index);
        assert!(told.contains(&said), "{path}: {told}");
        let is_missing = said.starts_with("there is no field");
        let said = if is_missing { "found nothing" } else { &said };
        let error = read.unwrap_err();
        assert!(error.contains(said), "{path}: {error}");
    }
    let object = verified(&file("a.jsonl", &lines(one)).1, [None, None]);
    let is_told = object.contains("nothing says which field has the completion");
    let has_help = object.contains("`--completion response.FIELD`");
    assert!(is_told && has_help, "{object}");
}

#[test]
fn a_line_of_a_data_set_is_one_response_if_its_completion_is() {
    let line = r#"{"problem": "q", "answer": "7", "generations": ["7", "8"], "correctness_math_verify": [true, false], "messages": [{"content": "q", "role": "user"}, {"content": "7", "role": "assistant"}]}"#;
    let (_folder, path) = file("a.jsonl", &format!("{line}\n{line}\n"));
    for (completion, expected) in [
        (None, "rwrw"),
        (Some("generations"), "rwrw"),
        (Some("messages"), "rr"),
        (Some("generations[1]"), "ww"),
    ] {
        let told = verified(&path, [completion, None]);
        assert_eq!(told, expected, "{completion:?}");
    }
}

/// The turns of a dialogue, and what is said of them in the dump of a trainer that decodes the tokens of turns, and in a text.
#[test]
fn the_last_turn_of_a_decoded_dialogue_has_the_answer() {
    let areal = r#"{"task_id": 3, "tail_version": 1, "seqlen": 30, "prompt_len": 4, "reward": 1, "prompt": "q", "completion": "TEXT", "answer": "7"}"#;
    let skyrl = r#"{"input_prompt": "q", "output_response": "TEXT", "score": [0, 1], "env_extras": {"reward_spec": {"ground_truth": "7"}}}"#;
    let plain = r#"{"group": 1, "completion": "TEXT", "answer": "7"}"#;
    let table = r"
r | w | I think \\boxed{9}. | user\nIncorrect, please retry. | Sorry: \\boxed{7}.
w | r | \\boxed{7} | user\nWhat is 2+2? | \\boxed{4}
n | n | hm | tool\n\\boxed{7} | No idea.
r | r | I think \\boxed{7}. | user\n\\boxed{9} | BLANK
r | r | Call. | user\n\\boxed{9} | So \\boxed{7}.
";
    for [in_dump, in_text, first, other, last] in rows(table) {
        let turns = format!(
            r"{first}<|im_end|>\n<|im_start|>{other}<|im_end|>\n<|im_start|>assistant\n{last}<|im_end|>"
        );
        let turns = turns.replace("BLANK", " ");
        for (line, expected) in [(areal, in_dump), (skyrl, in_dump), (plain, in_text)] {
            let (_folder, path) = file("a.jsonl", &(line.replace("TEXT", &turns) + "\n"));
            assert_eq!(verified(&path, [None, None]), expected, "{line} {first}");
            let right = verified_in(&read_as(&path, &[]).batch);
            let expected = f64::from(u8::from(expected == "r"));
            assert_eq!(right, [expected], "{line} {first}");
        }
    }
}

/// What is said of lines of which the first lacks a field, or whose field only has the name of another dump's object.
#[test]
fn what_is_verified_is_found_in_all_of_the_first_lines() {
    let table = r#"
-r | {"completion": "so 1"}; {"completion": "so 1", "solution": "1"}
rr | {"completion": "so 1", "solution": "1"}; {"completion": "so 1", "answer": "1"}
rr | {"completion": "so 1", "answer": "1"}; {"completion": "so 1", "solution": "1"}
nr; the completion is null or missing, so it is taken as an empty text: 1 response (the first: line 1) | {"completion": null, "solution": "1"}; {"completion": "so 1", "solution": "1"}
r | {"prompt": "p", "response": "so 1", "answer": "1"}
r | {"group_index": 0, "response": "so 1", "response_length": 3, "label": "1"}
# What the policy answered is not compared for want of the dump's own reference.
-; `answer` is not compared, because the reference is `gts` | {"input": "p", "output": "so 1", "gts": "", "score": 0, "answer": "1"}
r | {"response": {"output": [{"role": "assistant", "content": "so 1"}]}, "expected_answer": "1"}
"#;
    for [expected, lines] in rows(table) {
        let (_folder, path) = file("a.jsonl", &(lines.replace("; ", "\n") + "\n"));
        assert_eq!(verified(&path, [None, None]), expected, "{lines}");
    }
}

#[test]
fn the_texts_of_a_known_dump_are_verified_without_names_of_fields() {
    let dump = Path::new(crate::ROOT).join("tests/data/dumps/roll");
    assert_eq!(verified(&dump, [None, None]), "rwrrrwrr");
}
