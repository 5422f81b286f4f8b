//! What is read is what was meant: which text is the answer, which the reference, which fields are rewards and steps. Each row is
//! a value as trainers, servers and data sets write it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{mapping, notes, read_as, read_only, try_read};
use crate::parquet_rows;
use advlab::batch::Batch;
use advlab::diagnostic::Diagnostics;
use advlab::files::{self, Compared, Mapping, ReadOptions, Unscored, verify_lines};
use advlab_answers::Verdict;
use serde_json::{Map, Value};

/// A file in a folder of its own.
fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// What `verify` says of lines: a letter for each (right, wrong, no answer, undecided, - for no reference), and what it compared; or
/// the error without the path.
fn letters(path: &Path, asked: [Option<&str>; 2]) -> Result<(String, Compared), String> {
    let mut letters = String::new();
    let mut told = |_, verified: files::Verified| {
        letters.push(match verified.verdict {
            Some(Verdict::Equal) => 'r',
            Some(Verdict::Different) => 'w',
            Some(Verdict::NoAnswer) => 'n',
            Some(Verdict::Undecided) => 'u',
            None => '-',
        });
    };
    let compared = verify_lines(path, asked, None, &|_, _| {}, None, &mut told);
    let wrong = |error: Diagnostics| {
        let error = error.to_string();
        error.replace(&format!("{}, ", path.display()), "")
    };
    Ok((letters, compared.map_err(wrong)?))
}

/// The letters and the notes, or the error.
fn verified(path: &Path, asked: [Option<&str>; 2]) -> String {
    let told = letters(path, asked).map(|(letters, compared)| {
        let notes = compared.notes.iter();
        notes.fold(letters, |all, note| format!("{all}; {note}"))
    });
    told.unwrap_or_else(|error| error)
}

/// The same file as parquet, in which objects and arrays of other things than numbers are strings of JSON.
fn parquet(path: &Path) -> PathBuf {
    let rows = std::fs::read_to_string(path).unwrap();
    let rows = rows.lines().map(|line| {
        let mut row: Map<String, Value> = serde_json::from_str(line).unwrap();
        for value in row.values_mut() {
            let numbers = value.as_array().filter(|list| !list.is_empty());
            let is_list = numbers.is_some_and(|list| list.iter().all(Value::is_number));
            if value.is_object() || value.is_array() && !is_list {
                *value = Value::String(value.to_string());
            }
        }
        Value::Object(row).to_string()
    });
    let out = path.with_extension("parquet");
    parquet_rows::write(&out, &rows.collect::<Vec<_>>().join("\n")).unwrap();
    out
}

/// A completion, the words that the policy wrote, and what is said of it against the reference 36.
const COMPLETIONS: [(&str, usize, &str); 46] = [
    (r#""[{'role': 1}] is no list of messages; 36""#, 8, "r"),
    (r#""\\boxed{36}""#, 1, "r"),
    (
        r#"[{"role": "assistant", "content": "a \\boxed{36}"}]"#,
        2,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]}, {"role": "tool", "name": "x", "content": "5"}, {"role": "assistant", "content": "so 36"}]"#,
        2,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": "look", "n": NaN}, {"role": "assistant", "content": "so 36"}]"#,
        3,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": "36", "reasoning_content": "35 or so"}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": null, "reasoning": "it is \\boxed{36}"}]"#,
        0,
        "n",
    ),
    (
        r#"[{"role": "assistant", "thinking": "it is \\boxed{36}"}]"#,
        0,
        "n",
    ),
    (
        r#"[{"role": "assistant", "channel": "analysis", "content": "\\boxed{36}"}]"#,
        0,
        "n",
    ),
    (
        r#"[{"role": "assistant", "channel": "analysis", "content": "35"}, {"role": "assistant", "channel": "final", "content": "36"}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": "36", "weight": 1, "name": "m"}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "text", "text": "36"}]}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": ["so", "36"]}]"#,
        2,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "thinking", "thinking": "35"}, {"type": "reasoning", "text": "35"}, {"type": "text", "text": "36"}]}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": {"type": "text", "text": "36"}}]"#,
        1,
        "r",
    ),
    (
        r#"[{"type": "thinking", "thinking": "\\boxed{35}"}, {"type": "text", "text": "36"}]"#,
        1,
        "r",
    ),
    (
        r#"[{"type": "reasoning", "summary": []}, {"type": "function_call", "arguments": "35"}, {"type": "function_call_output", "output": "35"}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}]"#,
        1,
        "r",
    ),
    (
        r#"[{"from": "human", "value": "\\boxed{35}"}, {"from": "gpt", "value": "36"}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "user", "parts": [{"text": "\\boxed{35}"}]}, {"role": "model", "parts": [{"text": "35", "thought": true}, {"text": "36"}]}]"#,
        1,
        "r",
    ),
    (
        r#"[{"type": "human", "content": "\\boxed{35}"}, {"type": "ai", "content": "36"}]"#,
        1,
        "r",
    ),
    (r#"{"role": "assistant", "content": "36"}"#, 1, "r"),
    (
        r#""[{\"role\": \"assistant\", \"content\": \"so 36\"}, {\"role\": \"tool\", \"content\": \"35\"}]""#,
        2,
        "r",
    ),
    (r#"[{"content": "36"}]"#, 1, "r"),
    (r#"["36"]"#, 1, "r"),
    (r#"[["so 36"]]"#, 2, "r"),
    (
        r#"[{"role": "assistant", "content": ""}, {"role": "tool", "content": "36"}, {"role": "assistant", "content": " "}]"#,
        0,
        "n",
    ),
    (r#"[{"role": "tool", "content": "\\boxed{36}"}]"#, 0, "n"),
    (
        r#"[{"role": "assistant", "content": "I think \\boxed{35}"}, {"role": "user", "content": "\\boxed{36}"}, {"role": "assistant", "content": "I give up."}]"#,
        6,
        "n",
    ),
    (
        r#"[{"role": "assistant", "content": "\\boxed{35}"}, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "No, the answer is 36."}]"#,
        6,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": "\\boxed{36}"}, {"role": "ipython", "content": "\\boxed{35}"}, {"role": "developer", "content": "\\boxed{34}"}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": "\\boxed{36}"}, {"role": "assistant", "content": ""}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "text", "text": {"value": "so 36", "annotations": []}}]}]"#,
        2,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "text", "text": null, "value": "36"}]}]"#,
        1,
        "r",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}, {"role": "assistant", "content": [{"functionCall": {"name": "36"}}]}]"#,
        0,
        "n",
    ),
    ("[]", 0, "n"),
    ("null", 0, "n"),
    (
        r#"{"text": "36"}"#,
        0,
        "line 2, `completion`: found an object",
    ),
    (
        r#"[{"text": "36"}]"#,
        0,
        "line 2, `completion`: found an array of objects",
    ),
    (
        "[3, 6]",
        0,
        "line 2, `completion`: found an array of 2 numbers",
    ),
    (
        r#"["36", "35"]"#,
        0,
        "line 2, `completion`: found an array with strings in it",
    ),
    (
        r#"[{"role": "judge", "content": "36"}]"#,
        0,
        "line 2, `completion`: found messages with the role `judge`",
    ),
    (
        r#"[{"role": "assistant", "content": 36}]"#,
        0,
        "line 2, `completion`: found a message whose content holds 36",
    ),
    (
        r#"[{"role": "assistant", "content": {"answer": "36"}}]"#,
        0,
        "line 2, `completion`: found a message without a text, whose content holds {\"answer\": \"36\"}",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "markdown", "markdown": "36"}]}]"#,
        0,
        "line 2, `completion`: found a message without a text, whose content holds {\"type\": \"markdown\"",
    ),
    (
        r#"[{"role": "assistant", "content": [{"type": "text", "text": 36}]}]"#,
        0,
        "line 2, `completion`: found a message whose content holds 36",
    ),
    (
        r#""[{'role': 'tool', 'content': '36'}, {'role': 'assistant', 'content': 'I give up'}]""#,
        0,
        "line 2, `completion`: found messages as Python prints them",
    ),
];

#[test]
fn what_the_assistant_says_last_is_the_answer_and_all_that_it_says_is_the_length() {
    let deep = |levels: usize| {
        let [open, close] = ["[", "]"].map(|bracket| bracket.repeat(levels));
        format!(r#"[{{"role": "assistant", "content": {open}"36"{close}}}]"#)
    };
    let nested = [
        (deep(20), 1, "r"),
        (deep(20_000), 1, "nested more than 32 deep"),
        (
            ["[".repeat(20_000), "]".repeat(20_000)].concat(),
            1,
            "nested more than 32 deep",
        ),
    ];
    let nested = nested
        .iter()
        .map(|(text, words, expected)| (&**text, *words, *expected));
    for (completion, words, expected) in COMPLETIONS.into_iter().chain(nested) {
        let line = |completion: &str| {
            format!("{{\"group\": 1, \"completion\": {completion}, \"solution\": \"36\"}}\n")
        };
        let text = [line("\"36\""), line(completion)].concat();
        let (_folder, path) = file("a.jsonl", &text);
        let is_error = expected.len() > 1;
        let told = verified(&path, [None, None]);
        if is_error {
            assert!(told.contains(expected), "{completion}: {told}");
            let read = try_read(&path, &[], None).unwrap_err();
            assert!(read.contains(expected), "{completion}: {read}");
            continue;
        }
        let (letters, note) = told.split_once("; ").unwrap_or((&told, ""));
        assert_eq!(letters, format!("r{expected}"), "{completion}");
        let is_null = completion == "null";
        assert_eq!(
            note.contains("null or missing"),
            is_null,
            "{completion}: {note}"
        );
        let mut paths = vec![path.clone()];
        // The copy has a string of JSON, in which a message is known by its role only, and a list without messages is a text.
        let is_known = completion != "[]" && !completion.starts_with("[{\"content\"");
        if is_known && !completion.contains("NaN") {
            paths.push(parquet(&path));
        }
        for path in paths {
            let batch = read_as(&path, &[]).batch;
            assert_eq!(
                batch.response_column("length").unwrap()[1],
                words as f64,
                "{completion}"
            );
            let host = advlab::script::Host::new();
            let recipe = host
                .compile("r", "fn advantage(batch, p) { batch.verified }")
                .unwrap();
            let outcome = recipe
                .advantage(&batch, &mut recipe.init().unwrap())
                .unwrap();
            let right = f64::from(u8::from(expected == "r"));
            assert_eq!(
                outcome.advantage.by_response(),
                [1.0, right],
                "{completion}"
            );
        }
    }
}

/// As pyarrow writes them: lists of structs whose fields are null where a message has none, and lists of one text.
#[test]
fn a_prompt_that_names_no_group_is_an_error_also_in_a_known_dump() {
    let line = r#"{"input": PROMPT, "output": "x", "score": 1}"#;
    let lines = [r#""p""#, r#"{"a": 1}"#].map(|prompt| line.replace("PROMPT", prompt) + "\n");
    let (_folder, path) = file("dump.jsonl", &lines.concat());
    let error = super::refused(&path);
    assert!(
        error.contains("line 2, `input`: found an object; expected a string"),
        "{error}"
    );
}

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
fn lists_of_structs_and_of_texts_in_parquet_are_messages_and_references() {
    let path = Path::new(crate::ROOT).join("tests/data/messages.parquet");
    for path_of_reference in [None, Some("reward_model.ground_truth")] {
        let told = verified(&path, [None, path_of_reference]);
        assert!(told.starts_with("rnr"), "{told}");
        let map = path_of_reference.map(|path| mapping("solution", path));
        let batch = read_as(&path, map.as_slice()).batch;
        assert_eq!(column(&batch, "length"), [2.0, 0.0, 1.0]);
        assert_eq!(&*batch.text("completion").unwrap()[2], "36");
        let reference = batch.solution(0);
        assert_eq!(reference.as_deref(), Some("36"));
    }
}

/// What is said if `answer` is the reference.
const WORKED: &str = "r; the reference is `answer`, because `solution` is a text that marks no answer: 1 response (the first: line 1)";

/// What is said if `answer` is the reference of a response without another.
const SPARE: &str = "r; the reference is `answer`, because the field of the reference is blank: 1 response (the first: line 1)";

/// A reference for the answer 12, the path of its field if it is not `solution`, and what is said of it.
const REFERENCES: [(&str, Option<&str>, &str); 44] = [
    (r#""solution": "12""#, None, "r"),
    (r#""solution": 12"#, None, "r"),
    (r#""solution": ["12"]"#, None, "r"),
    (r#""solution": [["12"]]"#, None, "r"),
    (r#""solution": [12]"#, None, "r"),
    (
        r#""solution": ["ten", "12"]"#,
        None,
        "r; the reference is a list, any value of which is accepted: 1 response (the first: line 1)",
    ),
    (
        r#""solution": "[\"ten\", \"12\"]""#,
        None,
        "r; the reference is a list, any value of which is accepted: 1 response (the first: line 1)",
    ),
    (
        r#""solution": [ "ten", "12"]"#,
        None,
        "r; the reference is a list, any value of which is accepted: 1 response (the first: line 1)",
    ),
    (
        r#""solution": "[ \"ten\", \"12\"]""#,
        None,
        "r; the reference is a list, any value of which is accepted: 1 response (the first: line 1)",
    ),
    (r#""solution": true"#, None, "r"),
    (r#""solution": false"#, None, "w"),
    (r#""solution": ["", "13"]"#, None, "w"),
    (r#""solution": ["", "12"]"#, None, "r"),
    (
        r#""solution": {"ground_truth": null, "answer": "12"}"#,
        None,
        "r; the reference is a field of an object: 1 response (the first: line 1)",
    ),
    (
        r#""solution": {"ground_truth": null, "answer": null}"#,
        None,
        "-",
    ),
    (
        r#""solution": "{\"ground_truth\": null, \"answer\": null}""#,
        None,
        "-",
    ),
    (r#""solution": "[1, 2]""#, None, "w"),
    (
        r#""solution": [1, 12]"#,
        None,
        "r; the reference is a list, any value of which is accepted: 1 response (the first: line 1)",
    ),
    (
        r#""solution": ["1", null, 2]"#,
        None,
        "w; the reference is a list, any value of which is accepted: 1 response (the first: line 1)",
    ),
    (r#""solution": [null, "12"]"#, None, "r"),
    (
        r#""solution": [[12], 1]"#,
        None,
        "line 1, `solution`: found an array of arrays",
    ),
    (
        r#""solution": {"style": "rule"}"#,
        None,
        "line 1, `solution`: found an object",
    ),
    (
        r#""solution": {"ground_truth": ["12"]}"#,
        None,
        "r; the reference is a field of an object: 1 response (the first: line 1)",
    ),
    (
        r#""reward_model": {"ground_truth": "12", "style": "rule"}"#,
        Some("reward_model.ground_truth"),
        "r",
    ),
    (
        r#""reward_model": {"ground_truth": "12"}"#,
        Some("reward_model.truth"),
        "there is no field `reward_model.truth`",
    ),
    (
        r#""doc": {"answer": "3*4=<<3*4=12>>12\n#### 12"}"#,
        Some("doc.answer"),
        "r",
    ),
    (r#""solution": null"#, None, "-"),
    (r#""solution": [], "answer": null"#, None, "-"),
    (r#""solution": null, "answer": "12""#, None, "r"),
    (
        r#""solution": "$a$ and $b$, so the walk takes 12 minutes, as was asked for", "answer": 12"#,
        None,
        WORKED,
    ),
    (
        r#""solution": "See the figure.", "answer": "12""#,
        None,
        WORKED,
    ),
    (r#""solution": "N/A", "answer": "12""#, None, WORKED),
    (
        r#""solution": "By AM-GM, the minimum is at x=1.", "answer": "12""#,
        None,
        WORKED,
    ),
    (
        r#""solution": "5 + 5 = 10, 10 + 2 = 12", "answer": "12""#,
        None,
        WORKED,
    ),
    (
        r#""solution": "First, the answer is easy to guess. We find a square, and hence twice six.", "answer": "12""#,
        None,
        WORKED,
    ),
    (
        r#""solution": "By steps:\n### Step 1\nWe count.\n#### Step 2: conclude\nThe sum of them is then equal to twelve", "answer": "12""#,
        None,
        WORKED,
    ),
    (r#""ground_truth": "", "answer": "12""#, None, SPARE),
    (r#""ground_truth": " ", "answer": 12"#, None, SPARE),
    (r#""ground_truth": "12", "answer": """#, None, "r"),
    // `answer` may be what the policy said.
    (
        r#""ground_truth": "13 minutes", "answer": "12""#,
        None,
        "w; `answer` is not compared, because the reference is `ground_truth`",
    ),
    (r#""solution": "13", "answer": "12""#, None, "w"),
    (r#""solution": "13 minutes", "answer": "12""#, None, "w"),
    (r#""solution": "Paris", "answer": "12""#, None, "w"),
    (r#""solution": "None", "answer": "all""#, None, "w"),
];

#[test]
fn a_reference_is_read_by_its_shape_and_a_missing_one_is_no_missing_answer() {
    let nested = [["[", "]"], ["{\"answer\":", "}"]].map(|[open, close]| {
        let [open, close] = [open, close].map(|part| part.repeat(100));
        format!("\"solution\": {open}12{close}")
    });
    let nested = nested
        .iter()
        .map(|text| (&**text, None, "nested more than 32 deep"));
    for (reference, path, expected) in REFERENCES.into_iter().chain(nested) {
        // A boolean is compared as the word.
        let is_word = reference.ends_with("true") || reference.ends_with("false");
        let said = if is_word { r"\\boxed{true}" } else { "so 12" };
        let line = format!("{{\"group\": 1, {reference}, \"completion\": \"{said}\"}}\n");
        let (_folder, file) = file("a.jsonl", &line);
        assert!(
            verified(&file, [None, path]).contains(expected),
            "{reference}: {}",
            verified(&file, [None, path])
        );
        let map: Vec<Mapping> = path.iter().map(|path| mapping("solution", path)).collect();
        for file in [file.clone(), parquet(&file)] {
            let is_struct = (reference.contains('{') || reference.contains("[[["))
                && file.extension().unwrap() == "parquet";
            if is_struct {
                // Written as a string of JSON, which has no paths, and is a text where it has no quotes.
                continue;
            }
            let read = try_read(&file, &map, None);
            let Ok(rollouts) = read else {
                let error = read.unwrap_err();
                let is_wrong = expected == "-" || !expected.starts_with(['r', 'w']);
                assert!(
                    is_wrong && error.contains("line 1, `"),
                    "{reference}: {error}"
                );
                continue;
            };
            let host = advlab::script::Host::new();
            let recipe = host
                .compile("r", "fn advantage(batch, p) { batch.verified }")
                .unwrap();
            let outcome = recipe
                .advantage(&rollouts.batch, &mut recipe.init().unwrap())
                .unwrap();
            let right = f64::from(u8::from(expected.starts_with('r')));
            assert_eq!(outcome.advantage.by_response(), [right], "{reference}");
            if let Some((_, note)) = expected.split_once("; ") {
                let note = note.replace(
                    "not compared, because the reference is",
                    "left out: the reference is read from",
                );
                let told = notes(&rollouts).join("\n");
                assert!(told.contains(&note), "{reference}: {told}");
            }
        }
    }
}

/// The references of three completions `so 12`, and the line of the first without one, if another one follows.
#[test]
fn a_response_without_a_reference_is_not_scored() {
    for (references, line, right) in [
        (
            [
                r#""solution": "12""#,
                r#""solution": null"#,
                r#""solution": "13""#,
            ],
            2,
            [1.0, 0.0],
        ),
        (
            [
                r#""solution": null"#,
                r#""solution": ["12"]"#,
                r#""solution": "13""#,
            ],
            1,
            [1.0, 0.0],
        ),
        (
            [
                r#""solution": 12"#,
                r#""solution": 13"#,
                r#""solution": null"#,
            ],
            3,
            [1.0, 0.0],
        ),
        (
            [r#""id": 1"#, r#""solution": "12""#, r#""answer": "13""#],
            1,
            [1.0, 0.0],
        ),
        (
            [
                r#""solution": null"#,
                r#""solution": 12"#,
                r#""solution": 12"#,
            ],
            1,
            [1.0, 1.0],
        ),
        (
            [
                r#""solution": {"answer": null}"#,
                r#""solution": {"answer": 12}"#,
                r#""solution": "13""#,
            ],
            1,
            [1.0, 0.0],
        ),
        (
            [
                r#""solution": "12", "answer": null"#,
                r#""solution": null, "answer": null"#,
                r#""solution": null, "answer": "12""#,
            ],
            2,
            [1.0, 1.0],
        ),
    ] {
        let lines =
            references.map(|one| format!("{{\"group\": 1, {one}, \"completion\": \"so 12\"}}\n"));
        let (_folder, path) = file("a.jsonl", &lines.concat());
        // A file of parquet has the fields of the first line.
        let is_whole = !references[0].contains("id");
        for path in [Some(path.clone()), is_whole.then(|| parquet(&path))]
            .into_iter()
            .flatten()
        {
            let error = try_read(&path, &[], None).unwrap_err();
            let said =
                format!("line {line}, `solution`: found no value (null or NaN; 1 of 3 responses)");
            assert!(
                error.contains(&said) && error.contains("--unscored"),
                "{references:?}: {error}"
            );
            let unscored = Unscored::LeaveOut;
            let options = ReadOptions {
                unscored,
                ..ReadOptions::default()
            };
            let batch = files::read(&path, &options).unwrap().batch;
            let host = advlab::script::Host::new();
            let recipe = host
                .compile("r", "fn advantage(batch, p) { batch.verified }")
                .unwrap();
            let outcome = recipe
                .advantage(&batch, &mut recipe.init().unwrap())
                .unwrap();
            assert_eq!(outcome.advantage.by_response(), right, "{references:?}");
        }
    }
}

/// Lines, the fields that `verify` compares, and its letters. The reference of a dump, or of a field whose name says that it is
/// right, comes before `answer`, which may be what the policy answered.
#[test]
fn the_reference_is_the_field_whose_name_says_so_and_both_commands_read_it() {
    let gts = r#"{"input": "p", "output": "\\boxed{8}", "gts": "7", "score": 0, "answer": "8", "solution": "8"}"#;
    let no_gts =
        r#"{"input": "p", "output": "\\boxed{8}", "gts": null, "score": 0, "answer": "8"}"#;
    let label = r#"{"group_index": 0, "response": "\\boxed{8}", "response_length": 2, "label": "7", "answer": "8"}"#;
    let verl = r#"{"data_source": "d", "prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "7"}, "response": "\\boxed{8}", "answer": "8"}"#;
    let rest = r#""response": "\\boxed{8}", "answer": "8""#;
    let truth = format!("{{{rest}, \"ground_truth\": 7}}");
    let target = format!("{{{rest}, \"target\": \"7\"}}");
    let verdict = format!("{{{rest}, \"label\": 1, \"target\": 7}}");
    let judged = format!("{{{rest}, \"label\": \"bad\", \"target\": 0.9, \"gold\": {{\"x\": 1}}}}");
    let no_answer = r#"{"response": "\\boxed{8}", "answer": null, "target": "7"}"#;
    let worked = format!("{{{rest}, \"solution\": \"7\", \"target\": \"8\"}}");
    let alpaca = r#"{"instruction": "q", "input": "", "output": "\\boxed{7}", "response": "\\boxed{8}", "answer": "7"}"#;
    let object = r#"{"response": {"id": "r"}, "output": "\\boxed{8}", "answer": "8"}"#;
    for (line, expected) in [
        (gts, "w output gts"),
        (no_gts, "r output answer"),
        (label, "w response label"),
        (verl, "w response reward_model.ground_truth"),
        (&truth, "w response ground_truth"),
        (&target, "r response answer"),
        (&verdict, "r response answer"),
        (&judged, "r response answer"),
        (no_answer, "w response target"),
        (&worked, "w response solution answer"),
        (alpaca, "w response answer"),
        (object, "r output answer"),
    ] {
        let (_folder, path) = file("a.jsonl", &format!("{line}\n"));
        let (letters, compared) = letters(&path, [None, None]).unwrap();
        let fields = compared.references.join(" ");
        let told = format!("{letters} {} {fields}", compared.completion);
        assert_eq!(told, expected, "{line}");
        // `apply` reads the same reference, and says which other field it leaves out.
        let map = [
            mapping("group", &compared.completion),
            mapping("completion", &compared.completion),
        ];
        let is_dump = line == verl || line == label || line == gts;
        let read = read_as(&path, if is_dump { &[] } else { &map });
        let expected = if letters == "w" { "7" } else { "8" };
        assert_eq!(read.batch.solution(0).as_deref(), Some(expected), "{line}");
        let left_out = format!("`answer` is left out: the reference is read from `{fields}`");
        let is_left_out = notes(&read).contains(&left_out);
        let has_other = !fields.contains("answer");
        assert_eq!(is_left_out, has_other && line != no_answer, "{line}");
        let note = format!("`answer` is not compared, because the reference is `{fields}`");
        let is_told = compared.notes.iter().any(|told| told.to_string() == note);
        assert_eq!(is_told, has_other, "{line}");
    }
}

/// A path, and what `verify` and `apply` make of it.
#[test]
fn a_path_steps_into_arrays_and_says_which_index_is_missing() {
    let line = |choices: &str| {
        format!("{{\"group\": 1, \"response\": {{\"choices\": {choices}}}, \"answer\": \"7\"}}\n")
    };
    let one = line(r#"[{"message": {"role": "assistant", "content": "so 7"}}]"#);
    let two = line(r#"[{"message": {"content": "so 8"}}, {"message": {"content": "7"}}]"#);
    let deep = line(&["[".repeat(20_000), "]".repeat(20_000)].concat());
    let failed = "{\"group\": 1, \"response\": {\"error\": 1}, \"answer\": \"7\"}\n";
    let index = "line 1, `choices`: found an array of 2 values; expected an index behind its name, as in `choices[0].message.content`";
    for (lines, path, expected) in [
        (&one, "response.choices[0].message.content", Ok("so 7")),
        (&one, "response.choices.0.message", Ok("so 7")),
        (&one, "response.choices.message.content", Ok("so 7")),
        (&two, "response.choices[1].message.content", Ok("7")),
        (&two, "response.choices.message.content", Err(index)),
        (&two, "response.choices[-1].message.content", Err(index)),
        (
            &one,
            "response.choices[0",
            Err("line 1: the brackets of the path `choices[0` do not match"),
        ),
        (
            &one,
            "response.choices[0]].message",
            Err("the brackets of the path `choices[0]].message` do not match"),
        ),
        (
            &two,
            "response.choices.0].message",
            Err("the brackets of the path `choices.0].message` do not match"),
        ),
        (
            &two,
            "response.choices[99999999999999999999].message",
            Err("there is no field `response.choices[99999999999999999999].message`"),
        ),
        (
            &deep,
            "response.choices.message",
            Err("line 1, `choices`: found a value nested more than 32 deep"),
        ),
        (
            &one,
            "response.choices[1].message",
            Err("there is no field `response.choices[1].message`"),
        ),
        (
            &one,
            "response.choice",
            Err("there is no field `response.choice`"),
        ),
    ] {
        // A line without the path, as a failed request has none, has an empty completion.
        let (_folder, path_of_file) = file("a.jsonl", &[lines, failed].concat());
        let told = verified(&path_of_file, [Some(path), None]);
        let read = try_read(&path_of_file, &[mapping("completion", path)], None);
        match expected {
            Ok(text) => {
                assert!(
                    told.starts_with("rn; the completion is null or missing"),
                    "{path}: {told}"
                );
                let batch = read.unwrap().batch;
                assert_eq!(batch.text("completion").unwrap(), [text.into(), "".into()]);
            }
            Err(said) => {
                assert!(told.contains(said), "{path}: {told}");
                let said = if said.starts_with("there is no field") {
                    "found nothing"
                } else {
                    said
                };
                let error = read.unwrap_err();
                assert!(error.contains(said), "{path}: {error}");
            }
        }
    }
    let object = verified(&file("a.jsonl", &one).1, [None, None]);
    assert!(
        object.contains("nothing says which field has the completion")
            && object.contains("`--completion response.FIELD`"),
        "{object}"
    );
}

/// Lines with several responses, and what is said of them against any of their references.
#[test]
fn the_references_of_a_prompt_are_those_of_each_of_its_responses() {
    let line = |fields: &str| {
        format!(
            "{{\"prompt\": \"q\", \"completions\": [\"<answer>Paris</answer>\", \"<answer>Rome</answer>\"], {fields}}}\n"
        )
    };
    for (line, expected) in [
        (line(r#""answer": ["Paris", "City of Light"]"#), "rw"),
        (line(r#""answer": ["City of Light", "Rome"]"#), "wr"),
        (line(r#""solution": ["Rome", "Paris"]"#), "rr"),
        (
            line(r#""rewards": [1, 0], "answer": ["Rome", "Paris"]"#)
                .replace("completions", "responses"),
            "rr",
        ),
        (line(r#""answer": [["Rome"], ["Paris", "Rome"]]"#), "wr"),
        (
            line(r#""answer": ["Paris", "Rome"]"#).replace("\"q\"", r#"["q", "r"]"#),
            "rr",
        ),
        (
            line(r#""answer": ["Rome", "Paris"]"#).replace("\"q\"", r#"["q", "r"]"#),
            "ww",
        ),
    ] {
        let (_folder, path) = file("a.jsonl", &line);
        let told = verified(&path, [None, None]);
        assert_eq!(told.split(';').next(), Some(expected), "{line}");
    }
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
        assert_eq!(
            verified(&path, [completion, None]),
            expected,
            "{completion:?}"
        );
    }
}

/// The dump of a trainer that decodes the tokens of turns, and the answers of its last turns.
#[test]
fn the_last_turn_of_a_decoded_dialogue_has_the_answer() {
    let areal = r#"{"task_id": 3, "tail_version": 1, "seqlen": 30, "prompt_len": 4, "reward": 1, "prompt": "q", "completion": "TEXT", "answer": "7"}"#;
    let skyrl = r#"{"input_prompt": "q", "output_response": "TEXT", "score": [0, 1], "env_extras": {"reward_spec": {"ground_truth": "7"}}}"#;
    let plain = r#"{"group": 1, "completion": "TEXT", "answer": "7"}"#;
    let turns = |[first, other, last]: [&str; 3]| {
        format!(
            "{first}<|im_end|>\\n<|im_start|>{other}<|im_end|>\\n<|im_start|>assistant\\n{last}<|im_end|>"
        )
    };
    for (parts, in_dump, in_text) in [
        (
            [
                "I think \\\\boxed{9}.",
                "user\\nIncorrect, please retry.",
                "Sorry: \\\\boxed{7}.",
            ],
            "r",
            "w",
        ),
        (
            ["\\\\boxed{7}", "user\\nWhat is 2+2?", "\\\\boxed{4}"],
            "w",
            "r",
        ),
        (["hm", "tool\\n\\\\boxed{7}", "No idea."], "n", "n"),
        (
            ["I think \\\\boxed{7}.", "user\\n\\\\boxed{9}", " "],
            "r",
            "r",
        ),
        (
            ["Call.", "user\\n\\\\boxed{9}", "So \\\\boxed{7}."],
            "r",
            "r",
        ),
    ] {
        for (line, expected) in [(areal, in_dump), (skyrl, in_dump), (plain, in_text)] {
            let (_folder, path) = file("a.jsonl", &(line.replace("TEXT", &turns(parts)) + "\n"));
            assert_eq!(verified(&path, [None, None]), expected, "{line} {parts:?}");
            let host = advlab::script::Host::new();
            let recipe = host
                .compile("r", "fn advantage(batch, p) { batch.verified }")
                .unwrap();
            let batch = read_as(&path, &[]).batch;
            let right = recipe
                .advantage(&batch, &mut recipe.init().unwrap())
                .unwrap();
            let expected = f64::from(u8::from(expected == "r"));
            assert_eq!(
                right.advantage.by_response(),
                [expected],
                "{line} {parts:?}"
            );
        }
    }
}

#[test]
fn the_completion_s_own_field_is_no_reference() {
    let (_folder, path) = file(
        "a.jsonl",
        "{\"group\": 1, \"answer\": \"12\", \"wanted\": \"13\"}\n",
    );
    let told = verified(&path, [Some("answer"), None]);
    assert!(
        told.contains("nothing says which field has the solution"),
        "{told}"
    );
    let map = [
        mapping("completion", "answer"),
        mapping("solution", "wanted"),
    ];
    let batch = read_as(&path, &map).batch;
    assert_eq!(batch.solution(0).as_deref(), Some("13"));
}

/// A line with one score is one response, whatever texts are beside it, and a verdict under a dump's name is no reference.
#[test]
fn what_only_looks_like_a_dump_is_none() {
    let draft = r#"{"group": "a", "problem": "p", "reward": 1, "length": 9, "generations": ["draft", "draft"]}"#;
    let (_folder, path) = file("drafts.jsonl", &format!("{draft}\n{draft}\n"));
    assert_eq!(column(&read_as(&path, &[]).batch, "length"), [9.0, 9.0]);
    let (_folder, path) = file("labels.jsonl", r#"{"completion": "so 7", "label": 1}"#);
    let error = verified(&path, [None, None]);
    assert!(error.contains("which field has the solution"), "{error}");
}

#[test]
fn the_texts_of_a_known_dump_are_verified_without_names_of_fields() {
    let dump = Path::new(crate::ROOT).join("tests/data/dumps/roll");
    assert_eq!(verified(&dump, [None, None]), "rwrrrwrr");
}

fn column(batch: &Batch, name: &str) -> Vec<f64> {
    batch.response_column(name).unwrap_or_default().to_vec()
}

#[test]
fn a_mapped_field_stays_where_it_was_and_a_reward_is_needed_only_where_it_is_read() {
    let lines = "{\"group\": 1, \"reward_c\": 1, \"reward_f\": 2, \"uid\": \"a\"}\n{\"group\": 1, \"reward_c\": 0, \"reward_f\": null}\n{\"group\": 1, \"reward_c\": NaN, \"reward_f\": 1}\n";
    let (_folder, path) = file("a.jsonl", lines);
    let options = |map, reads| ReadOptions {
        map,
        columns: reads,
        unscored: Unscored::Zero,
        ..ReadOptions::default()
    };
    let map = [mapping("reward", "reward_c")];
    let batch = files::read(&path, &options(&map, None)).unwrap().batch;
    assert_eq!(column(&batch, "reward"), [1.0, 0.0, 0.0]);
    assert_eq!(column(&batch, "reward_c")[..2], [1.0, 0.0]);
    // Nothing, null and NaN are one thing in the columns of reward functions.
    let given = |batch: &Batch, name: &str| {
        column(batch, name)
            .iter()
            .map(|x| x.is_nan())
            .collect::<Vec<_>>()
    };
    assert_eq!(given(&batch, "reward_c"), [false, false, true]);
    assert_eq!(given(&batch, "reward_f"), [false, true, false]);
    let host = advlab::script::Host::new();
    for (recipe, is_read) in [("gdpo", true), ("grpo", false)] {
        let columns = host.load(recipe).unwrap().columns();
        let options = ReadOptions {
            columns: columns.as_ref(),
            ..options(&[], None)
        };
        let read = files::read(&path, &options);
        assert_eq!(read.is_ok(), is_read, "{recipe}");
    }
    // Nor does the reward need a field of its own if `--map` names the rewards of functions.
    let nested = "{\"group\": 1, \"rewards\": {\"c\": 1, \"f\": null}}\n";
    let (_nested, nested) = file("a.jsonl", nested);
    let map = [
        mapping("reward_c", "rewards.c"),
        mapping("reward_f", "rewards.f"),
    ];
    let batch = files::read(&nested, &options(&map, None)).unwrap().batch;
    assert_eq!(column(&batch, "reward_c"), [1.0]);
    assert_eq!(given(&batch, "reward_f"), [true]);
    for (line, filled) in [("", [true, false]), (", \"reward_x\": 1", [false, false])] {
        let lines = format!(
            "{{\"group\": 1, \"reward\": 1{line}}}\n{{\"group\": 1, \"reward\": 1, \"reward_x\": 2}}\n"
        );
        let (_folder, path) = file("a.jsonl", &lines);
        assert_eq!(given(&read_as(&path, &[]).batch, "reward_x"), filled);
    }
}

#[test]
fn rewards_that_a_function_did_not_give_add_nothing_to_gdpo() {
    let rows = [
        ("m", "1.0", "null"),
        ("m", "0.0", "NaN"),
        ("m", "1", ""),
        ("c", "null", "0.5"),
        ("c", "NaN", "1.0"),
        ("c", "", "0"),
    ];
    for [math_name, code_name] in [["reward_math", "reward_code"], ["math", "code"]] {
        let lines = rows.map(|(group, math, code)| {
            let field = |name: &str, value: &str| match value {
                "" => String::new(),
                value => format!(", \"{name}\": {value}"),
            };
            format!(
                "{{\"group\": \"{group}\", \"length\": 2{}{}}}\n",
                field(math_name, math),
                field(code_name, code)
            )
        });
        let (_folder, path) = file("a.jsonl", &lines.concat());
        let mut gdpo = advlab::script::Host::new().load("gdpo").unwrap();
        let names = format!("{math_name},{code_name}");
        gdpo.set_text("rewards", &names).unwrap();
        let unrewarded = ReadOptions {
            unrewarded: true,
            ..ReadOptions::default()
        };
        let batch = files::read(&path, &unrewarded).unwrap().batch;
        let outcome = gdpo.advantage(&batch, &mut gdpo.init().unwrap()).unwrap();
        // numpy: nanmean and nansum, ddof 1.
        let expected = [0.6455, -1.2910, 0.6455, 0.0, 1.1180, -1.1180];
        for (found, expected) in outcome.advantage.by_response().iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-4,
                "{names}: {found} {expected}"
            );
        }
    }
}

#[test]
fn the_reward_functions_of_trl_have_the_names_that_they_have_in_the_trainer() {
    let line = |exact: &str, judge: &str| {
        format!(
            "{{\"step\": 1, \"prompt\": \"p\", \"completion\": \"a\", \"exact\": {exact}, \"org/judge-2\": {judge}, \"advantage\": 0}}\n"
        )
    };
    let (_folder, path) = file(
        "a.jsonl",
        &[line("true", "1"), line("null", "0.5")].concat(),
    );
    for path in [path.clone(), parquet(&path)] {
        let map = [mapping("reward", "exact")];
        let options = ReadOptions {
            unscored: Unscored::Zero,
            ..ReadOptions::default()
        };
        let batch = files::read(&path, &options).unwrap().batch;
        assert_eq!(column(&batch, "reward"), [2.0, 0.5]);
        for name in ["org/judge-2", "reward_org_judge_2"] {
            assert_eq!(column(&batch, name), [1.0, 0.5], "{name}");
        }
        let batch = files::read(
            &path,
            &ReadOptions {
                map: &map,
                ..options
            },
        )
        .unwrap()
        .batch;
        assert_eq!(column(&batch, "reward"), [1.0, 0.0]);
        assert_eq!(column(&batch, "reward_exact")[0], 1.0);
        let map = [mapping("reward_exact", "exact")];
        let batch = files::read(
            &path,
            &ReadOptions {
                map: &map,
                ..options
            },
        );
        let batch = batch.unwrap().batch;
        assert_eq!(column(&batch, "reward"), [2.0, 0.5]);
        assert_eq!(column(&batch, "reward_exact")[0], 1.0);
    }
}

#[test]
fn of_two_reward_functions_with_one_name_the_second_keeps_its_own() {
    let (_folder, path) = file(
        "a.jsonl",
        "{\"step\": 1, \"prompt\": \"p\", \"completion\": \"a\", \"foo-\": 1, \"foo_\": 0.5, \"advantage\": 0}\n",
    );
    let rollouts = read_as(&path, &[]);
    for (name, value) in [("reward", 1.5), ("reward_foo_", 1.0), ("foo_", 0.5)] {
        assert_eq!(column(&rollouts.batch, name), [value], "{name}");
    }
    let told = notes(&rollouts).join("\n");
    let note = "`foo_` keeps its name, because `reward_foo_` is read from `foo-`";
    assert!(told.contains(note), "{told}");
}

/// The rewards of three rows, and what is said of them.
#[test]
fn of_mixed_scores_the_first_unusable_one_is_reported() {
    for (rewards, said) in [
        (
            ["\"1\"", "0", "1"],
            "line 1, `reward`: found the string \"1\"; expected a number",
        ),
        (
            ["0", "\"1\"", "1"],
            "line 2, `reward`: found the string \"1\"; expected a number",
        ),
        (
            ["null", "0", "\"1\""],
            "line 3, `reward`: found the string \"1\"; expected a number",
        ),
        (["[1]", "0", "1"], "line 1, `reward`: found an array"),
    ] {
        // The rewards of one of several functions too.
        for name in ["reward", "reward_c"] {
            let line =
                |reward| format!("{{\"group\": 1, \"reward_a\": 1, \"{name}\": {reward}}}\n");
            let (_folder, path) = file("a.jsonl", &rewards.map(line).concat());
            let error = try_read(&path, &[], None).map(|read| notes(&read).join("\n"));
            let error = error.unwrap_or_else(|error| error);
            let said = said.replace("`reward`", &format!("`{name}`"));
            let is_list = name != "reward" && said.contains("array");
            assert!(error.contains(&said) != is_list, "{rewards:?}: {error}");
        }
    }
}

/// The first of the lines may lack what the others have: lines, a mapping, and the rewards of the scored responses.
#[test]
fn what_the_first_line_lacks_is_read_from_the_others() {
    let trl = "\"step\": 1, \"prompt\": \"p\", \"completion\": \"x\", \"advantage\": 0";
    let trl = [
        format!("{{{trl}, \"accuracy_reward\": 1, \"answer_len\": 90}}"),
        format!("{{{trl}, \"accuracy_reward\": 0, \"Skywork-RM\": 1.5}}"),
    ];
    let nested = Some(("reward", "rewards.right"));
    for (lines, map, rewards) in [
        (
            [r#"{"group": 1, "c": 0}"#, r#"{"group": 1, "reward": 1}"#],
            None,
            &[1.0][..],
        ),
        (
            [
                r#"{"group": 1, "reward": null}"#,
                r#"{"group": 1, "reward": true}"#,
            ],
            None,
            &[1.0],
        ),
        (
            [r#"{"group": 1}"#, r#"{"group": 1, "score": 1}"#],
            Some(("reward", "score")),
            &[1.0],
        ),
        (
            [
                r#"{"group": 1, "rewards": null}"#,
                r#"{"group": 1, "rewards": {"right": 1}}"#,
            ],
            nested,
            &[1.0],
        ),
        ([&*trl[0], &*trl[1]], None, &[1.0, 1.5]),
        (
            [
                r#"{"input": "p", "output": "o"}"#,
                r#"{"input": "p", "output": "o", "score": 0.5}"#,
            ],
            None,
            &[0.5],
        ),
        (
            [
                r#"{"input": "p", "output": null, "score": 0}"#,
                r#"{"input": "p", "output": "o", "score": 1}"#,
            ],
            None,
            &[0.0, 1.0],
        ),
        (
            [
                r#"{"example_id": 0, "prompt": "p", "completion": null, "reward": 0}"#,
                r#"{"example_id": 0, "prompt": "p", "completion": "o", "reward": 1}"#,
            ],
            None,
            &[0.0, 1.0],
        ),
        (
            [
                r#"{"prompt": "p", "completions": []}"#,
                r#"{"prompt": "p", "completions": ["a", "b"], "rewards": [1, 0]}"#,
            ],
            None,
            &[1.0, 0.0],
        ),
    ] {
        let (_folder, path) = file("a.jsonl", &(lines.join("\n") + "\n"));
        let is_whole = lines[0].contains("null") && map.is_none();
        for path in [Some(path.clone()), is_whole.then(|| parquet(&path))]
            .into_iter()
            .flatten()
        {
            let map: Vec<Mapping> = map
                .iter()
                .map(|(ours, theirs)| mapping(ours, theirs))
                .collect();
            let unscored = Unscored::LeaveOut;
            let options = ReadOptions {
                map: &map,
                unscored,
                ..ReadOptions::default()
            };
            let batch = files::read(&path, &options)
                .unwrap_or_else(|error| panic!("{lines:?}: {error}"))
                .batch;
            assert_eq!(column(&batch, "reward"), rewards, "{lines:?}");
        }
    }
}

/// The first lines decide how fields are read. A later field that would have changed the result is an error that names its line,
/// and any other later field is a column. Each row: the first lines' fields, the late line's, and the late field or nothing.
#[test]
fn a_field_that_comes_late_is_not_left_out_in_silence() {
    let trl = r#""step": 1, "prompt": "p", "completion": "o", "advantage": 0, "format_reward": 1"#;
    let written =
        r#""step": 1, "prompt": "p", "completion": "o", "format_reward": 1, "advantage": 0"#;
    let verl = r#""input": "p", "output": "o", "score": 1"#;
    let own = r#""group": 1, "reward": 1"#;
    let texts = r#""group": 1, "completion": "o", "answer": "7""#;
    for (first, late, field) in [
        (trl, r#""accuracy_reward": 1"#, "accuracy_reward"),
        (written, r#""loss": 1"#, ""),
        (written, r#""other_reward": 1"#, "other_reward"),
        (verl, r#""uid": "a""#, "uid"),
        (verl, r#""mine": 1, "uid": "a", "other": 1"#, "uid"),
        (verl, r#""mine": 1"#, ""),
        (own, r#""global_step": 3"#, "global_step"),
        (own, r#""mine": 1, "reward_b": 2, "step": 3"#, ""),
        // References decide nothing beside a reward.
        (own, r#""label": "x", "completion": "o""#, ""),
        (
            own,
            r#""target": "x", "ground_truth": "7", "completion": "o""#,
            "",
        ),
        (verl, r#""gts": "x""#, ""),
        (texts, r#""ground_truth": "7""#, "ground_truth"),
        // Beside the trainer's score, another reward is left out, and a verdict is one more column.
        (verl, r#""reward": 0.5"#, ""),
        (verl, r#""acc": true"#, ""),
    ] {
        let text = format!("\"text\": \"{}\"", "x".repeat(1000));
        // A field with only nulls in the first lines comes late, too.
        for known in ["", "\"global_step\": null, "] {
            let late = format!("{{{first}, {late}, {text}}}\n");
            let lines = format!("{{{known}{first}, {text}}}\n").repeat(140) + late.as_str();
            let (_folder, path) = file("a.jsonl", &lines);
            let said = try_read(&path, &[], None).map(drop);
            let right = match &said {
                Ok(()) => field.is_empty(),
                Err(error) => error.contains(&format!("line 141: `{field}`")),
            };
            assert!(right, "{late}: {said:?}");
        }
    }
}

/// `verify` refuses a late reference that it would have compared instead, and compares a late `answer` as any other.
#[test]
fn a_late_reference_is_not_passed_over_by_verify() {
    let text = format!("\"text\": \"{}\"", "x".repeat(1000));
    let line = |more: &str| format!("{{\"completion\": \"7\", {more}, {text}}}\n");
    for (first, late, expected) in [
        (r#""answer": 7"#, r#""ground_truth": 7"#, "`ground_truth`"),
        (
            r#""answer": 7"#,
            r#""answer": 7, "solution": 7"#,
            "`solution`",
        ),
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
    let text = format!("\"text\": \"{}\"", "x".repeat(1000));
    let lines = format!("{{{first}, {text}}}\n").repeat(140);
    let (_folder, path) = file("a.jsonl", &format!("{lines}{{{first}, \"acc\": true}}\n"));
    let refused = read_only(&path, &["reward", "correct"]).map(drop);
    assert!(refused.is_err_and(|error| error.contains("line 141: `acc`")));
    let read = read_only(&path, &["reward"]).unwrap();
    let note = "`acc` keeps its name, because its first value, in line 141,";
    assert!(
        notes(&read).iter().any(|one| one.contains(note)),
        "{:?}",
        notes(&read)
    );
}

/// A long first line does not decide alone how fields are read, and the last line counts although its end is missing.
#[test]
fn a_field_may_come_after_a_long_line() {
    let texts = [140_000, 3 << 20].map(|length| "x".repeat(length));
    for (first, late) in [
        (r#""group": 1, "reward": 1"#, r#""global_step": 3"#),
        (
            r#""input": "p", "output": "o", "score": 1"#,
            r#""uid": "a""#,
        ),
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

/// Some lines have an epoch, however few: each epoch has groups of its own.
#[test]
fn a_rare_epoch_splits_groups_all_the_same() {
    let line = |at: usize| {
        let epoch = if at < 4 {
            format!(", \"epoch\": {}", at / 2)
        } else {
            String::new()
        };
        format!("{{\"group\": 1, \"reward\": 1{epoch}}}\n")
    };
    let lines: Vec<String> = (0..600).map(line).collect();
    let reversed: String = lines.iter().rev().cloned().collect();
    for lines in [lines.concat(), reversed] {
        let (_folder, path) = file("a.jsonl", &lines);
        assert_eq!(read_as(&path, &[]).batch.layout().groups(), 3);
    }
}

/// What `verify` says of lines of which the first lacks a field, or whose field only has the name of another dump's object.
#[test]
fn what_is_verified_is_found_in_all_of_the_first_lines() {
    for (lines, expected) in [
        (
            &[
                r#"{"completion": "so 1"}"#,
                r#"{"completion": "so 1", "solution": "1"}"#,
            ][..],
            "-r",
        ),
        (
            &[
                r#"{"completion": "so 1", "solution": "1"}"#,
                r#"{"completion": "so 1", "answer": "1"}"#,
            ],
            "rr",
        ),
        (
            &[
                r#"{"completion": "so 1", "answer": "1"}"#,
                r#"{"completion": "so 1", "solution": "1"}"#,
            ],
            "rr",
        ),
        (
            &[
                r#"{"completion": null, "solution": "1"}"#,
                r#"{"completion": "so 1", "solution": "1"}"#,
            ],
            "nr; the completion is null or missing, so it is taken as an empty text: 1 response (the first: line 1)",
        ),
        (
            &[r#"{"prompt": "p", "response": "so 1", "answer": "1"}"#],
            "r",
        ),
        (
            &[r#"{"group_index": 0, "response": "so 1", "response_length": 3, "label": "1"}"#],
            "r",
        ),
        // What the policy answered is not compared for want of the dump's own reference.
        (
            &[r#"{"input": "p", "output": "so 1", "gts": "", "score": 0, "answer": "1"}"#],
            "-; `answer` is not compared, because the reference is `gts`",
        ),
        (
            &[
                r#"{"response": {"output": [{"role": "assistant", "content": "so 1"}]}, "expected_answer": "1"}"#,
            ],
            "r",
        ),
    ] {
        let (_folder, path) = file("a.jsonl", &(lines.join("\n") + "\n"));
        assert_eq!(verified(&path, [None, None]), expected, "{lines:?}");
    }
}

#[test]
fn rows_of_parquet_with_several_responses_are_read_as_lines_are() {
    let path = Path::new(crate::ROOT).join("tests/data/generations.parquet");
    let rollouts = read_as(&path, &[]);
    assert_eq!(column(&rollouts.batch, "reward"), [1.0, 0.0]);
    assert_eq!(verified(&path, [None, None]), "rw");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.parquet");
    let advantage = super::per_response(&rollouts, &[0.0, 0.0]);
    let error = rollouts
        .write_advantage(&out, &advantage)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("holds several responses") && !out.exists(),
        "{error}"
    );
}

/// A verdict that is not read need not be there for each response.
#[test]
fn a_verdict_beside_a_reward_may_be_null() {
    let lines = r#"{"group": 1, "reward": 0.5, "reward_a": 1, "correct": true}
{"group": 1, "reward": 0.25, "reward_a": 0, "correct": null}
{"group": 1, "reward": null, "reward_a": 0, "correct": null}
"#;
    for (lines, reads, expected) in [
        (
            lines.lines().take(2),
            "reward",
            Ok("`correct` is left out: it has no value in line 2"),
        ),
        (
            lines.lines().take(2),
            "correct",
            Err("line 2, `correct`: found no value"),
        ),
        (
            lines.lines().take(3),
            "reward",
            Err("line 3, `reward`: found no value"),
        ),
    ] {
        let (_folder, path) = file("a.jsonl", &lines.collect::<Vec<_>>().join("\n"));
        let read = super::read_only(&path, &[reads]).map(|rollouts| notes(&rollouts).join("\n"));
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
    for (score, expected) in [
        ("true", Ok(1.0)),
        ("0.5", Ok(0.5)),
        (
            "\"1.0\"",
            Err("`score`: found the string \"1.0\"; expected a number"),
        ),
        (
            "[1.0]",
            Err("`score`: found an array of 1 number; expected a number"),
        ),
        ("{\"acc\": 1}", Err("`--map reward=score.FIELD`")),
        ("null", Err("`score`: found no value")),
        ("NaN", Err("`score`: found no value")),
    ] {
        let line = format!(
            "{{\"input\": \"p\", \"output\": \"so 1\", \"gts\": \"1\", \"score\": {score}, \"step\": 1}}\n"
        );
        let (_folder, path) = file("a.jsonl", &line);
        match (try_read(&path, &[], None), expected) {
            (Ok(rollouts), Ok(reward)) => assert_eq!(column(&rollouts.batch, "reward"), [reward]),
            (Err(error), Err(said)) => assert!(error.contains(said), "{score}: {error}"),
            (found, _) => panic!("{score}: {:?}", found.map(|rollouts| notes(&rollouts))),
        }
    }
}

/// Fields of two rows of one prompt, options, and whether these are one group.
#[test]
fn rows_of_several_steps_never_share_a_group() {
    let verl = "\"input\": \"p\", \"output\": \"a\", \"score\": 1";
    let plain = "\"group\": 1, \"reward\": 1";
    for (fields, steps, map, is_one) in [
        (plain, ["\"step\": 1", "\"step\": 1"], None, true),
        (plain, ["\"step\": 1", "\"step\": 2"], None, false),
        (
            plain,
            ["\"step\": 1", "\"step\": 2"],
            Some(("mine", "step")),
            false,
        ),
        (
            plain,
            ["\"global_step\": 1", "\"global_step\": 2"],
            None,
            false,
        ),
        (
            plain,
            ["\"training_step\": 1", "\"training_step\": 2"],
            None,
            false,
        ),
        (plain, ["\"iteration\": 1", "\"iteration\": 2"], None, false),
        (plain, ["\"update\": 1", "\"update\": 2"], None, false),
        (plain, ["\"update\": 0.5", "\"update\": 0.75"], None, true),
        (
            plain,
            ["\"global_steps\": 1", "\"global_steps\": 2"],
            None,
            false,
        ),
        (
            plain,
            ["\"optimizer_step\": 1", "\"optimizer_step\": 2"],
            None,
            false,
        ),
        (plain, ["\"step\": \"1\"", "\"step\": \"2\""], None, false),
        (
            plain,
            ["\"at\": \"1\"", "\"at\": \"2\""],
            Some(("step", "at")),
            false,
        ),
        (plain, ["\"step\": 1", "\"step\": null"], None, false),
        (plain, ["\"epoch\": 1", "\"c\": 0"], None, false),
        (
            plain,
            ["\"at\": 1", "\"at\": 2"],
            Some(("step", "at")),
            false,
        ),
        (
            plain,
            ["\"epoch\": 0, \"step\": 1", "\"epoch\": 1, \"step\": 1"],
            None,
            false,
        ),
        (verl, ["\"step\": 1", "\"step\": 2"], None, false),
        (
            verl,
            ["\"step\": 1", "\"step\": 2"],
            Some(("group", "input")),
            false,
        ),
    ] {
        let lines = steps.map(|step| format!("{{{fields}, {step}}}\n").repeat(2));
        let (_folder, path) = file("a.jsonl", &lines.concat());
        let map: Vec<Mapping> = map
            .iter()
            .map(|(ours, theirs)| mapping(ours, theirs))
            .collect();
        let rollouts = read_as(&path, &map);
        let groups = rollouts.batch.layout().groups();
        assert_eq!(groups == 1, is_one, "{fields} {steps:?} {map:?}");
        let is_told = notes(&rollouts)
            .iter()
            .any(|note| note.contains("several steps"));
        assert_eq!(is_told, !is_one, "{steps:?}");
    }
    // Nor do prompts with one name, if the dump has a field that distinguishes them. Real dumps of verl have a `uid` for each response.
    let verifiers = "\"example_id\": 0, \"completion\": \"a\", \"reward\": 1";
    for (fields, prompts, times, groups) in [
        (verl, ["\"uid\": \"a\"", "\"uid\": \"b\""], 2, 2),
        (verl, ["\"uid\": \"a\"", "\"uid\": \"b\""], 1, 1),
        (verl, ["\"uid\": \"a\"", "\"uid\": \"a\""], 2, 1),
        (verifiers, ["\"prompt\": \"a\"", "\"prompt\": \"b\""], 2, 2),
        (verifiers, ["\"prompt\": \"a\"", "\"prompt\": \"a\""], 2, 1),
    ] {
        let lines = prompts.map(|prompt| format!("{{{fields}, {prompt}}}\n").repeat(times));
        let (_folder, path) = file("a.jsonl", &lines.concat());
        let rollouts = read_as(&path, &[]);
        assert_eq!(
            rollouts.batch.layout().groups(),
            groups,
            "{fields} {prompts:?}"
        );
        let told = notes(&rollouts).join("\n");
        assert_eq!(
            told.contains("the names of several prompts are equal"),
            groups > 1,
            "{told}"
        );
    }
    // The groups of three rows that are each in a step of their own, and the field that splits none.

    for (fields, map, groups, unused) in [
        ("\"iteration\": N", None, 1, "iteration"),
        ("\"update\": N", None, 1, "update"),
        ("\"epoch\": N", None, 1, "epoch"),
        ("\"iteration\": N, \"epoch\": N", None, 1, "epoch"),
        ("\"step\": N, \"epoch\": N", None, 3, ""),
        ("\"global_step\": N", None, 3, ""),
        ("\"iteration\": N", Some("iteration"), 3, ""),
        ("\"epoch\": N", Some("epoch"), 3, ""),
    ] {
        let lines = ["0", "1", "2"].map(|n| format!("{{{plain}, {fields}}}\n").replace('N', n));
        let (_folder, path) = file("a.jsonl", &lines.concat());
        let map: Vec<Mapping> = map.iter().map(|theirs| mapping("step", theirs)).collect();
        let rollouts = read_as(&path, &map);
        let layout = rollouts.batch.layout();
        assert_eq!(layout.groups(), groups, "{fields} {map:?}");
        let told = notes(&rollouts).join("\n");
        let note = format!("groups are not split by `{unused}`");
        assert_eq!(told.contains(&note), !unused.is_empty(), "{fields}: {told}");
    }
}

#[test]
fn results_of_verifiers_of_nemo_gym_and_of_sampling_scripts_need_no_map() {
    let verifiers = r#"{"example_id": 0, "prompt": [{"role": "user", "content": "1 + 1"}], "completion": [{"role": "user", "content": "1 + 1", "tool_calls": null}, {"role": "assistant", "content": "", "tool_calls": ["{}"]}, {"role": "tool", "content": "2", "tool_calls": null}, {"role": "assistant", "content": "so 2", "tool_calls": null}], "task": "default", "reward": 1.0, "answer": "2", "correct_answer": 1.0}"#;
    let gym = r#"{"responses_create_params": {"input": [{"role": "user", "content": "1 + 1"}]}, "response": {"id": "r", "output": [{"type": "reasoning", "summary": []}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so 2", "annotations": []}]}]}, "reward": 1.0, "expected_answer": "2", "_ng_task_index": 0, "_ng_rollout_index": 1}"#;
    // One line with both responses; the prompt's two messages belong to each.
    let several = r#"{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "1 + 1"}], "completions": ["so 2", "so 2"], "rewards": [1, 1], "answer": "2"}"#;
    let unrewarded = r#"{"prompt": "1 + 1", "completions": ["so 2", "so 2"], "answer": "2"}"#;
    let generations = r#"{"problem": "1 + 1", "solution": "Counting one further than one, we come to two.", "answer": "2", "generations": ["so 2", "so 2"], "is_reasoning_complete": [true, true], "correctness_math_verify": [true, true], "correctness_count": 2}"#;
    let verl = r#"{"data_source": "d", "prompt": [{"role": "user", "content": "1 + 1"}], "reward_model": {"ground_truth": "2"}, "responses": ["so 2", "so 2"]}"#;
    let twice = [verifiers, gym].map(|line| format!("{line}\n{line}\n"));
    let one_line = [several, unrewarded, generations, verl];
    for lines in twice.iter().map(|lines| &**lines).chain(one_line) {
        let (_folder, path) = file("results.jsonl", lines);
        let batch = read_as(&path, &[]).batch;
        assert_eq!(batch.layout().groups(), 1);
        if ![unrewarded, verl].contains(&lines) {
            assert_eq!(column(&batch, "reward"), [1.0, 1.0]);
        }
        assert_eq!(column(&batch, "length"), [2.0, 2.0]);
        assert_eq!(&*batch.text("completion").unwrap()[0], "so 2");
        assert_eq!(batch.solution(0).as_deref(), Some("2"));
        let verdicts = verified(&path, [None, None]);
        assert!(verdicts.starts_with("rr"), "{lines}: {verdicts}");
    }
}

/// Lines of a dump with fields that other dumps or recipes use in another sense: the rewards, the number of each response's
/// group, the lengths, and a note.
#[test]
fn a_field_of_a_dump_means_what_its_trainer_means_by_it() {
    let areal = |version, runs: &str, reward| {
        format!(
            r#"{{"task_id": 1, "tail_version": {version}, "seqlen": 30, "prompt_len": 4, "version_rle": {runs}, "reward": {reward}, "completion": "c"}}"#
        )
    };
    let areal = [areal(3, "[[3, 2]]", 1), areal(4, "[[3, 2], [4, 4]]", 0)].join("\n");
    let verl = |more: &str| {
        let line = |reward, more: &str| {
            format!(
                r#"{{"input": "q", "output": "a b c", "gts": "7", "score": {reward}, "step": 1, {more}}}"#
            )
        };
        let more: Vec<&str> = more.split('|').collect();
        let lines = [1, 0, 0, 1].into_iter().zip(more);
        let lines = lines.map(|(reward, more)| line(reward, more) + "\n");
        lines.collect::<String>()
    };
    let slime = |reward, removed| {
        format!(
            r#"{{"group_index": 0, "response": "a b", "response_length": 2, "reward": {reward}, "loss_mask": [1, 1], "remove_sample": {removed}}}"#
        )
    };
    let slime = [slime(1, false), slime(0, true), slime(0, false)].join("\n");
    let nemo = |reward, counts| {
        format!(
            r#"{{"content": ["q a"], "rewards": [{reward}], "token_ids": [[1, 2, 5]], "token_loss_mask": [[0, 1, 1]], "sample_loss_mask": [{counts}]}}"#
        )
    };
    let nemo = [nemo(1, 1.0), nemo(0, 0.0), nemo(0, 1.0)].join("\n");
    let trl = |before: &str, rewards: &str, advantage, after: &str| {
        format!(
            r#"{{{before}"step": 1, "prompt": "p", "completion": "x y", {rewards}, "advantage": {advantage}{after}}}"#
        )
    };
    let pandas = [
        trl(
            "\"index\": 0, ",
            "\"a\": 1, \"b\": 0.5",
            0.7,
            ", \"__index_level_0__\": 9",
        ),
        trl(
            "\"index\": 9, ",
            "\"a\": 0, \"b\": 0.5",
            -0.7,
            ", \"__index_level_0__\": 0",
        ),
    ];
    let named = [
        trl(
            "",
            "\"length\": 1, \"correct\": 0.5, \"entropy\": 0",
            0.7,
            "",
        ),
        trl(
            "",
            "\"length\": 0, \"correct\": 1, \"entropy\": 0",
            -0.7,
            "",
        ),
    ];
    let logged = [
        trl("", "\"a\": 1, \"b\": 0, \"completion_length\": 5", 0.5, ""),
        trl("", "\"a\": 0, \"b\": 0, \"completion_length\": 9", -0.5, ""),
    ];
    // No sum fits, or there is no evidence: the names decide.
    let unfit = |advantage: f64| {
        [
            trl("", "\"a\": 1, \"b\": 0, \"length\": 5", advantage, ""),
            trl("", "\"a\": 0, \"b\": 0.5, \"length\": 9", advantage, ""),
        ]
        .join("\n")
    };
    // The first line lacks a function.
    let late = [
        trl("", "\"a_reward\": 1", 0.0, ""),
        trl("", "\"a_reward\": 0, \"b_reward\": 1", 0.0, ""),
    ];
    let weighted = [
        trl("", "\"a_reward\": 1, \"b_reward\": 0, \"n\": 5", 0.2, ""),
        trl("", "\"a_reward\": 0, \"b_reward\": 1, \"n\": 9", 0.3, ""),
    ];
    let swift = |step| {
        format!(
            r#"{{"step": ["{step}", "{step}"], "prompt": ["p", "p"], "completion": ["a", "b"], "Math": [1, 0], "Format": [1, 1], "advantages": [0.7, -0.7]}}"#
        )
    };
    let steps = |step| {
        format!(r#"{{"global_step": "{step}", "group": "a", "completion": "x", "reward": 1}}"#)
    };
    for (text, rewards, groups, lengths, note) in [
        (
            areal,
            &[1.0, 0.0][..],
            &[0, 0][..],
            &[2, 6][..],
            "length = `length`",
        ),
        (
            verl(r#""reward": 5|"reward": 6"#),
            &[1.0, 0.0],
            &[0, 0],
            &[3, 3],
            "`reward` is left out: `reward` is read from `score`",
        ),
        (
            verl(r#""reward": 5|"reward": 6"#).replace(r#""score": "#, r#""score": null, "was": "#),
            &[5.0, 6.0],
            &[0, 0],
            &[3, 3],
            "completion = `output`",
        ),
        (
            verl(r#""advantage": 1, "weight": 2|"advantage": 1, "weight": 2"#),
            &[1.0, 0.0],
            &[0, 0],
            &[3, 3],
            "reward = `score`",
        ),
        (
            verl(r#""length": 1|"length": 0.5"#),
            &[1.0, 0.0],
            &[0, 0],
            &[3, 3],
            "`length` is left out, because a dump of verl's generations has no such field",
        ),
        (
            verl(r#""uid": "a_0_0"|"uid": "a_1_0"|"uid": "b_0_0"|"uid": "b_1_0""#),
            &[1.0, 0.0, 0.0, 1.0],
            &[0, 0, 1, 1],
            &[3; 4],
            "the responses with the same `uid` form a group",
        ),
        // A name that ends in numbers, too.
        (
            verl(r#""uid": "math_0_0"|"uid": "math_0_0"|"uid": "math_1_0"|"uid": "math_1_0""#),
            &[1.0, 0.0, 0.0, 1.0],
            &[0, 0, 1, 1],
            &[3; 4],
            "the responses with the same `uid` form a group",
        ),
        (
            slime,
            &[1.0, 0.0],
            &[0, 0],
            &[2, 2],
            "left out: 1 response that the trainer rejected",
        ),
        (
            nemo,
            &[1.0, 0.0],
            &[0, 0],
            &[2, 2],
            "left out: 1 response that the trainer rejected",
        ),
        (
            pandas.join("\n"),
            &[1.5, 0.5],
            &[0, 0],
            &[2, 2],
            "`reward` is `a` + `b`",
        ),
        (
            named.join("\n"),
            &[1.5, 1.0],
            &[0, 0],
            &[2, 2],
            "`reward` is `length` + `correct` + `entropy`",
        ),
        (
            logged.join("\n"),
            &[1.0, 0.0],
            &[0, 0],
            &[2, 2],
            "`reward` is `a` + `b`, without `completion_length`, because the sum would not fit",
        ),
        (
            unfit(0.3),
            &[1.0, 0.5],
            &[0, 0],
            &[2, 2],
            "without `length`, because it is the name of another column\n",
        ),
        (unfit(0.0), &[1.0, 0.5], &[0, 0], &[2, 2], "`reward` is `a` + `b`, without `length`"),
        (
            late.join("\n"),
            &[1.0, 1.0],
            &[0, 0],
            &[2, 2],
            "`reward` is `a_reward` + `b_reward`",
        ),
        (
            weighted.join("\n"),
            &[1.0, 1.0],
            &[0, 0],
            &[2, 2],
            "the run may have had `reward_weights`",
        ),
        (
            [swift(1), swift(2)].join("\n"),
            &[2.0, 1.0, 2.0, 1.0],
            &[0, 0, 1, 1],
            &[1; 4],
            "read as a dump of ms-swift's completions",
        ),
        (
            r#"{"prompt": "p", "completions": ["a", "b"], "scores": [0.2, 0.9], "answer": "a"}"#
                .to_string(),
            &[0.2, 0.9],
            &[0, 0],
            &[1, 1],
            "reward = `scores`",
        ),
        (
            r#"{"prompt": "p", "responses": ["a", "b c"], "rewards": [0.2, 0.9]}"#.to_string(),
            &[0.2, 0.9],
            &[0, 0],
            &[1, 2],
            "completion = `responses`",
        ),
        (
            r#"{"id": ["a", "a", "b", "b"], "prompt": ["q", "q", "q", "q"], "responses": ["x", "x", "x", "x"], "scores": [1, 0, 0, 1]}"#.to_string(),
            &[1.0, 0.0, 0.0, 1.0],
            &[0, 0, 1, 1],
            &[1; 4],
            "the responses with the same `id` form a group",
        ),
        (
            ["step_9", "step_10", "step_9"].map(steps).join("\n"),
            &[1.0; 3],
            &[0, 1, 0],
            &[1; 3],
            "`step` is read from `global_step`",
        ),
        (
            r#"{"group": 1, "completion": "x", "reward": 1, "entropy": 0.3, "value": 2}"#
                .to_string(),
            &[1.0],
            &[0],
            &[1],
            "`entropy` is left out: it is 0.3 in line 1",
        ),
    ] {
        let (_folder, path) = file("a.jsonl", &(text.clone() + "\n"));
        let read = BTreeSet::from(["reward".to_string()]);
        let options = ReadOptions {
            columns: Some(&read),
            ..ReadOptions::default()
        };
        let rollouts =
            files::read(&path, &options).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (batch, layout) = (&rollouts.batch, rollouts.batch.layout());
        assert_eq!(column(batch, "reward"), rewards, "{text}");
        let responses = 0..layout.responses();
        let found: Vec<usize> = responses.clone().map(|one| layout.group_of(one)).collect();
        assert_eq!(found, groups, "{text}");
        let found: Vec<usize> = responses.map(|one| layout.tokens_of(one).len()).collect();
        assert_eq!(found, lengths, "{text}");
        let told = notes(&rollouts).join("\n");
        assert!(told.contains(note), "{text}: {told}");
    }
}
