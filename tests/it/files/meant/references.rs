//! Which text is the reference.

use super::*;

/// The path of the reference for the answer 12 if its field is not `solution`, what is said of the reference, and its field.
const REFERENCES: &str = r#"
- | r | "solution": "12"
- | r | "solution": 12
- | r | "solution": ["12"]
- | r | "solution": [["12"]]
- | r | "solution": [12]
- | r; LIST | "solution": ["ten", "12"]
- | r; LIST | "solution": "[\"ten\", \"12\"]"
- | r; LIST | "solution": [ "ten", "12"]
- | r; LIST | "solution": "[ \"ten\", \"12\"]"
- | r | "solution": true
- | w | "solution": false
- | w | "solution": ["", "13"]
- | r | "solution": ["", "12"]
- | r; FIELD | "solution": {"ground_truth": null, "answer": "12"}
- | - | "solution": {"ground_truth": null, "answer": null}
- | - | "solution": "{\"ground_truth\": null, \"answer\": null}"
- | w | "solution": "[1, 2]"
- | r; LIST | "solution": [1, 12]
- | w; LIST | "solution": ["1", null, 2]
- | r | "solution": [null, "12"]
- | line 1, `solution`: found an array of arrays | "solution": [[12], 1]
- | line 1, `solution`: found an object | "solution": {"style": "rule"}
- | r; FIELD | "solution": {"ground_truth": ["12"]}
reward_model.ground_truth | r | "reward_model": {"ground_truth": "12", "style": "rule"}
reward_model.truth | there is no field `reward_model.truth` | "reward_model": {"ground_truth": "12"}
doc.answer | r | "doc": {"answer": "3*4=<<3*4=12>>12\n#### 12"}
- | - | "solution": null
- | - | "solution": [], "answer": null
- | r | "solution": null, "answer": "12"
- | r; WORKED | "solution": "$a$ and $b$, so the walk takes 12 minutes, as was asked for", "answer": 12
- | r; WORKED | "solution": "See the figure.", "answer": "12"
- | r; WORKED | "solution": "N/A", "answer": "12"
- | r; WORKED | "solution": "By AM-GM, the minimum is at x=1.", "answer": "12"
- | r; WORKED | "solution": "5 + 5 = 10, 10 + 2 = 12", "answer": "12"
- | r; WORKED | "solution": "First, the answer is easy to guess. We find a square, and hence twice six.", "answer": "12"
- | r; WORKED | "solution": "By steps:\n### Step 1\nWe count.\n#### Step 2: conclude\nThe sum of them is then equal to twelve", "answer": "12"
- | r; SPARE | "ground_truth": "", "answer": "12"
- | r; SPARE | "ground_truth": " ", "answer": 12
- | r | "ground_truth": "12", "answer": ""
# `answer` may be what the policy said.
- | w; `answer` is not compared, because the reference is `ground_truth` | "ground_truth": "13 minutes", "answer": "12"
- | w | "solution": "13", "answer": "12"
- | w | "solution": "13 minutes", "answer": "12"
- | w | "solution": "Paris", "answer": "12"
- | w | "solution": "None", "answer": "all"
"#;

/// Names by which the table stands for what is said of the reference.
const NOTES: &str = "
WORKED | the reference is `answer`, because `solution` is a text that marks no answer: 1 response (the first: line 1)
SPARE | the reference is `answer`, because the field of the reference is blank: 1 response (the first: line 1)
LIST | the reference is a list, any value of which is accepted: 1 response (the first: line 1)
FIELD | the reference is a field of an object: 1 response (the first: line 1)
";

#[test]
fn a_reference_is_read_by_its_shape_and_a_missing_one_is_no_missing_answer() {
    let nested = [["[", "]"], ["{\"answer\":", "}"]].map(|[open, close]| {
        let [open, close] = [open, close].map(|part| part.repeat(100));
        format!("\"solution\": {open}12{close}")
    });
    let nested = nested.iter();
    let nested = nested.map(|text| ["-", "nested more than 32 deep", text]);
    for [path, expected, reference] in rows(REFERENCES).chain(nested) {
        let expected = in_full(expected, NOTES);
        // A boolean is compared as the word.
        let is_word = reference.ends_with("true") || reference.ends_with("false");
        let said = if is_word { r"\\boxed{true}" } else { "so 12" };
        let line = format!("\"group\": 1, {reference}, \"completion\": \"{said}\"");
        let (_folder, file) = file_of(&[&line]);
        let path = Some(path).filter(|path| *path != "-");
        let told = verified(&file, [None, path]);
        assert!(told.contains(&expected), "{reference}: {told}");
        let map: Vec<Mapping> = path.iter().map(|path| mapping("solution", path)).collect();
        // In parquet, it would be written as a string of JSON, which has no paths, and is a text where it has no quotes.
        let is_struct = reference.contains('{') || reference.contains("[[[");
        let copy = (!is_struct).then(|| parquet(&file));
        for file in [Some(file), copy].into_iter().flatten() {
            let rollouts = match try_read(&file, &map, None) {
                Ok(rollouts) => rollouts,
                Err(error) => {
                    let is_wrong = expected == "-" || !expected.starts_with(['r', 'w']);
                    let is_right = is_wrong && error.contains("line 1, `");
                    assert!(is_right, "{reference}: {error}");
                    continue;
                }
            };
            let right = f64::from(u8::from(expected.starts_with('r')));
            assert_eq!(verified_in(&rollouts.batch), [right], "{reference}");
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

/// The line of the first response without a reference, which of the others are right, and the references of the completions `so 12`.
#[test]
fn a_response_without_a_reference_is_not_scored() {
    let table = r#"
2 | 1 0 | "solution": "12"; "solution": null; "solution": "13"
1 | 1 0 | "solution": null; "solution": ["12"]; "solution": "13"
3 | 1 0 | "solution": 12; "solution": 13; "solution": null
1 | 1 0 | "id": 1; "solution": "12"; "answer": "13"
1 | 1 1 | "solution": null; "solution": 12; "solution": 12
1 | 1 0 | "solution": {"answer": null}; "solution": {"answer": 12}; "solution": "13"
2 | 1 1 | "solution": "12", "answer": null; "solution": null, "answer": null; "solution": null, "answer": "12"
"#;
    for [line, right, references] in rows(table) {
        let lines = references.split("; ");
        let lines = lines.map(|one| format!("\"group\": 1, {one}, \"completion\": \"so 12\""));
        let lines: Vec<String> = lines.collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (_folder, path) = file_of(&lines);
        // A file of parquet has the fields of the first line.
        let copy = (!lines[0].contains("id")).then(|| parquet(&path));
        for path in [Some(path), copy].into_iter().flatten() {
            let error = try_read(&path, &[], None).unwrap_err();
            let said = format!(
                "line {line}, `solution`: found no value (null, NaN or missing; 1 of 3 responses)"
            );
            let is_told = error.contains(&said) && error.contains("--unscored");
            assert!(is_told, "{references}: {error}");
            let batch = read_unscored(&path, Unscored::LeaveOut, &[]);
            assert_eq!(joined(&verified_in(&batch)), right, "{references}");
        }
    }
}

/// What `verify` says, the fields that it compares, and a line. The reference of a dump, or of a field whose name says that it is
/// right, comes before `answer`, which may be what the policy answered.
#[test]
fn the_reference_is_the_field_whose_name_says_so_and_both_commands_read_it() {
    let table = r#"
w output gts | "input": "p", "output": "\\boxed{8}", "gts": "7", "score": 0, "answer": "8", "solution": "8"
r output answer | "input": "p", "output": "\\boxed{8}", "gts": null, "score": 0, "answer": "8"
w response label | "group_index": 0, "response": "\\boxed{8}", "response_length": 2, "label": "7", "answer": "8"
w response reward_model.ground_truth | "data_source": "d", "prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "7"}, "response": "\\boxed{8}", "answer": "8"
w response ground_truth | "response": "\\boxed{8}", "answer": "8", "ground_truth": 7
r response answer | "response": "\\boxed{8}", "answer": "8", "target": "7"
r response answer | "response": "\\boxed{8}", "answer": "8", "label": 1, "target": 7
r response answer | "response": "\\boxed{8}", "answer": "8", "label": "bad", "target": 0.9, "gold": {"x": 1}
w response target | "response": "\\boxed{8}", "answer": null, "target": "7"
w response solution answer | "response": "\\boxed{8}", "answer": "8", "solution": "7", "target": "8"
w response answer | "instruction": "q", "input": "", "output": "\\boxed{7}", "response": "\\boxed{8}", "answer": "7"
r output answer | "response": {"id": "r"}, "output": "\\boxed{8}", "answer": "8"
"#;
    for [expected, line] in rows(table) {
        let (_folder, path) = file_of(&[line]);
        let (letters, compared) = letters(&path, [None, None]).unwrap();
        let fields = compared.references.join(" ");
        let told = format!("{letters} {} {fields}", compared.completion);
        assert_eq!(told, expected, "{line}");
        // `apply` reads the same reference, and says which other field it leaves out.
        let map = ["group", "completion"].map(|ours| mapping(ours, &compared.completion));
        let has_reference_of_dump = ["gts", "label", "reward_model.ground_truth"];
        let is_dump = has_reference_of_dump.contains(&&*fields);
        let read = read_as(&path, if is_dump { &[] } else { &map });
        let expected = if letters == "w" { "7" } else { "8" };
        assert_eq!(read.batch.solution(0).as_deref(), Some(expected), "{line}");
        let left_out = format!("`answer` is left out: the reference is read from `{fields}`");
        let is_left_out = notes(&read).contains(&left_out);
        let has_other = !fields.contains("answer");
        let is_null = line.contains("\"answer\": null");
        assert_eq!(is_left_out, has_other && !is_null, "{line}");
        let note = format!("`answer` is not compared, because the reference is `{fields}`");
        let is_told = compared.notes.iter().any(|told| told.to_string() == note);
        assert_eq!(is_told, has_other, "{line}");
    }
}

/// What is said of two responses in one line against any of their references, and the line.
#[test]
fn the_references_of_a_prompt_are_those_of_each_of_its_responses() {
    let table = r#"
rw | "prompt": "q", "completions": ALL, "answer": ["Paris", "City of Light"]
wr | "prompt": "q", "completions": ALL, "answer": ["City of Light", "Rome"]
rr | "prompt": "q", "completions": ALL, "solution": ["Rome", "Paris"]
rr | "prompt": "q", "responses": ALL, "rewards": [1, 0], "answer": ["Rome", "Paris"]
wr | "prompt": "q", "completions": ALL, "answer": [["Rome"], ["Paris", "Rome"]]
rr | "prompt": ["q", "r"], "completions": ALL, "answer": ["Paris", "Rome"]
ww | "prompt": ["q", "r"], "completions": ALL, "answer": ["Rome", "Paris"]
"#;
    let all = r#"["<answer>Paris</answer>", "<answer>Rome</answer>"]"#;
    for [expected, line] in rows(table) {
        let (_folder, path) = file_of(&[&line.replace("ALL", all)]);
        let told = verified(&path, [None, None]);
        assert_eq!(told.split(';').next(), Some(expected), "{line}");
    }
}

#[test]
fn the_completion_s_own_field_is_no_reference() {
    let (_folder, path) = file_of(&[r#""group": 1, "answer": "12", "wanted": "13""#]);
    let told = verified(&path, [Some("answer"), None]);
    let is_told = told.contains("nothing says which field has the solution");
    assert!(is_told, "{told}");
    let map = [("completion", "answer"), ("solution", "wanted")];
    let map = map.map(|(ours, theirs)| mapping(ours, theirs));
    let batch = read_as(&path, &map).batch;
    assert_eq!(batch.solution(0).as_deref(), Some("13"));
}

/// A line with one score is one response, whatever texts are beside it, and a verdict under a dump's name is no reference.
#[test]
fn what_only_looks_like_a_dump_is_none() {
    let draft = r#""group": "a", "problem": "p", "reward": 1, "length": 9, "generations": ["draft", "draft"]"#;
    let (_folder, path) = file_of(&[draft, draft]);
    assert_eq!(column(&read_as(&path, &[]).batch, "length"), [9.0, 9.0]);
    let (_folder, path) = file_of(&[r#""completion": "so 7", "label": 1"#]);
    let error = verified(&path, [None, None]);
    assert!(error.contains("which field has the solution"), "{error}");
}
