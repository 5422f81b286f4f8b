//! Files of rollouts: each kind reads as the batch that it holds, and comes back with the advantage added.

use std::fs;
use std::path::{Path, PathBuf};

use super::{columns, is_compact_f32, mapping, notes, per_response, per_token, read, tokens};
use advlab::batch::FloatBuffer;
use advlab::files::{self, Column, Dtype, Mapping, ReadOptions, Rollouts};

fn data(name: &str) -> PathBuf {
    Path::new(crate::ROOT).join("tests/data").join(name)
}

#[test]
fn tokens_are_read_where_the_mask_counts_them() {
    let rollouts = read(data("tokens.jsonl"));
    let batch = &rollouts.batch;
    assert_eq!(
        columns(batch),
        ["entropy", "old_logp", "ref_logp", "reward"]
    );
    assert_eq!(
        notes(&rollouts),
        [
            "the mask is 0 for all tokens of 1 response (the first: line 4): no token has an advantage there"
        ]
    );
    let layout = batch.layout();
    assert_eq!(
        (layout.responses(), layout.groups(), layout.tokens()),
        (4, 2, 7)
    );
    assert_eq!(
        batch.response_column("reward").unwrap(),
        [1.0, 0.0, 0.5, 0.5]
    );
    assert_eq!(
        tokens(batch, "old_logp"),
        [-0.5, -0.25, -1.0, -0.125, -2.0, -1e-3, -3.5]
    );
    assert_eq!(rollouts.line(2), Some(4), "a blank line is no response");
}

/// Reads lines from a file of their own.
fn read_lines(lines: &[&str], map: &[Mapping]) -> Result<Rollouts, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    let options = ReadOptions {
        map,
        ..ReadOptions::default()
    };
    files::read(&path, &options).map_err(|error| error.to_string())
}

#[test]
fn what_is_no_column_is_said_and_the_rest_is_read() {
    let rollouts = read_lines(
        &[
            r#"{"group": 1, "reward": 1, "length": 2, "gap": 1, "null": 1, "kind": 1, "ids": [1, 2, 3], "ok": [1, 2], "texts": "a", "flag": true, "ref_logp": null, "mine": [0, NaN], "step": 4}"#,
            r#"{"group": 1, "reward": 0, "length": 1.0, "null": null, "kind": "1", "ids": [4], "ok": [3], "texts": "b", "flag": false, "ref_logp": null, "mine": [null], "step": 5}"#,
        ],
        &[],
    )
    .unwrap();
    assert_eq!(
        columns(&rollouts.batch),
        ["flag", "length", "mine", "ok", "reward"]
    );
    assert_eq!(tokens(&rollouts.batch, "ok"), [1.0, 2.0, 3.0]);
    insta::assert_snapshot!(notes(&rollouts).join("\n"), @r#"
    `gap` is left out: it is missing in line 2
    `null` is left out: it is null in line 2
    `kind` is left out: it is the string "1" in line 2
    `ref_logp` is left out: it is null in line 1
    `ids` is left out: it has 3 numbers in line 1, where `length` says 2 tokens
    `step` differs from line to line: the batch has no step, and `step` is no column (`--map NAME=step` makes it one)
    `mine` is NaN or infinite at 2 tokens, the first in line 1, token 1
    "#);
}

#[test]
fn fields_are_read_under_the_names_that_they_are_mapped_to() {
    let lines = [
        r#"{"uid": "a", "reward": 9, "score": 1, "logps": [-1, -2], "completion": "x"}"#,
        r#"{"uid": "a", "reward": 9, "score": 0, "logps": [-3], "completion": "x y z"}"#,
    ];
    let map = [
        mapping("group", "uid"),
        mapping("reward", "score"),
        mapping("correct", "score"),
        mapping("old_logp", "logps"),
    ];
    let rollouts = read_lines(&lines, &map).unwrap();
    assert_eq!(columns(&rollouts.batch), ["correct", "old_logp", "reward"]);
    assert_eq!(
        rollouts.batch.response_column("reward").unwrap(),
        [1.0, 0.0]
    );
    assert_eq!(
        notes(&rollouts),
        ["`reward` is left out: `reward` is read from `score`"]
    );

    let map = [mapping("group", "uid"), mapping("mine", "reward")];
    let error = read_lines(&lines, &map).unwrap_err();
    assert!(
        error.contains("if it is `score`, say `--map reward=score`"),
        "{error}"
    );

    let rollouts = read_lines(&lines, &[mapping("group", "uid")]).unwrap();
    assert_eq!(columns(&rollouts.batch), ["length", "reward", "score"]);
    insta::assert_snapshot!(notes(&rollouts).join("\n"), @"
    the length of a response is the number of words in `completion`: there is no `length` and no token array
    `logps` is left out: it has 2 numbers in line 1, where `completion` has 1 words (`--map logps=logps` makes it the array that says how many tokens a response has)
    ");
}

#[test]
fn a_completion_counts_before_arrays_that_nobody_knows() {
    let rollouts = read_lines(
        &[
            r#"{"group": 1, "reward": 1, "prompt_ids": [1, 2, 3], "ids": [1], "completion": "one two\nthree"}"#,
            r#"{"group": 1, "reward": 1, "prompt_ids": [1], "ids": [1], "completion": ""}"#,
        ],
        &[],
    )
    .unwrap();
    assert_eq!(
        rollouts.batch.response_column("length").unwrap(),
        [3.0, 0.0]
    );
    assert_eq!(columns(&rollouts.batch), ["length", "reward"]);
    insta::assert_snapshot!(notes(&rollouts).join("\n"), @"
    the length of a response is the number of words in `completion`: there is no `length` and no token array
    `prompt_ids` is left out: it has 1 numbers in line 2, where `completion` has 0 words (`--map prompt_ids=prompt_ids` makes it the array that says how many tokens a response has)
    `ids` is left out: it has 1 numbers in line 1, where `completion` has 3 words (`--map ids=ids` makes it the array that says how many tokens a response has)
    ");
}

#[test]
fn single_precision_is_had_for_the_asking() {
    let options = ReadOptions {
        dtype: Some(Dtype::F32),
        ..ReadOptions::default()
    };
    let rollouts = files::read(data("tokens.jsonl"), &options).unwrap();
    assert!(is_compact_f32(&rollouts.batch, "old_logp"));
    assert_eq!(tokens(&rollouts.batch, "old_logp")[5], f64::from(-1e-3f32));
}

/// Texts that are left in the file are those of the file as it was read.
#[test]
fn texts_are_read_when_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"group\":\"p\",\"prompt\":\"p\",\"reward\":1,\"completion\":\"a b\"}\n\n{\"group\":\"p\",\"prompt\":\"p\",\"reward\":0,\"completion\":[{\"content\":\"c\"}]}\n";
    let options = ReadOptions {
        defer: true,
        ..ReadOptions::default()
    };
    let jsonl = folder.path().join("a.jsonl");
    fs::write(&jsonl, lines).unwrap();
    let plain = folder.path().join("b.jsonl");
    fs::write(&plain, lines.replace("[{\"content\":\"c\"}]", "\"c\"")).unwrap();
    let parquet = folder.path().join("a.parquet");
    files::convert(&plain, &parquet, &ReadOptions::default()).unwrap();
    for path in [&jsonl, &parquet] {
        let whole = read(path);
        let later = files::read(path, &options).unwrap();
        assert_eq!(later.late_notes().unwrap(), []);
        assert!(
            later.batch.texts().eq(whole.batch.texts()),
            "{}",
            path.display()
        );
        assert_eq!(
            later.batch.columns().collect::<Vec<_>>(),
            ["length", "reward"]
        );
        assert_eq!(later.late_notes().unwrap(), []);
    }
    let changed = files::read(&plain, &options).unwrap();
    fs::write(&plain, lines).unwrap();
    assert_eq!(&*changed.batch.text("completion").unwrap()[0], "");
    let error = changed.late_notes().unwrap_err().to_string();
    assert!(error.contains("changed after it was read"), "{error}");
}

/// A file may begin with as many blank lines, and a line have as many fields, as anybody likes.
#[test]
fn reading_takes_no_more_time_than_the_bytes_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let line = "{\"group\": 1, \"reward\": 1}\n";
    let fields: String = (0..200_000).map(|at| format!(", \"f{at}\": [1]")).collect();
    let wide = format!("{{\"group\": 1, \"reward\": 1, \"length\": 2{fields}}}\n");
    for (text, first) in [("\n".repeat(1_000_000) + "\n" + line, 1_000_002), (wide, 1)] {
        fs::write(&path, text).unwrap();
        let started = std::time::Instant::now();
        let rollouts = read(&path);
        assert_eq!(rollouts.line(0), Some(first));
        // Quadratic, each takes many minutes.
        assert!(started.elapsed().as_secs() < 60);
    }
}

/// Links that lead back to a folder, or to a file beside them, give no line twice.
#[cfg(unix)]
#[test]
fn what_links_lead_to_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("a.jsonl"), "{\"group\": 1, \"reward\": 1}\n").unwrap();
    for (target, link) in [
        (".", "latest"),
        ("below", "link"),
        ("below/a.jsonl", "b.jsonl"),
    ] {
        std::os::unix::fs::symlink(target, folder.path().join(link)).unwrap();
    }
    assert_eq!(read(folder.path()).batch.layout().responses(), 1);
}

#[test]
fn a_damaged_page_of_parquet_is_found_by_its_checksum() {
    let whole = data("checksums.parquet");
    read(&whole);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut bytes = fs::read(whole).unwrap();
    // In the first page.
    bytes[108] ^= 4;
    fs::write(&path, bytes).unwrap();
    let error = files::read(&path, &ReadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("CRC"), "{error}");
}

#[test]
fn progress_ends_at_the_end() {
    let last = std::sync::Mutex::new((0, 0));
    let progress = |done, total| *last.lock().unwrap() = (done, total);
    let options = ReadOptions {
        progress: Some(&progress),
        ..ReadOptions::default()
    };
    files::read(data("verl.jsonl"), &options).unwrap();
    let (done, total) = *last.lock().unwrap();
    assert_eq!(
        (done, done),
        (total, fs::metadata(data("verl.jsonl")).unwrap().len())
    );
}

#[test]
fn an_advantage_is_written_into_lines_that_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    let text = "\u{feff}{\"group\": 9007199254740993, \"reward\": 1.0, \"old_logp\": [1e5,0.10], \"t\": \"\\u00e9}\"}\r\n\n{\"group\":1,\"reward\":0,\"old_logp\":[-0.0],\"advantage\":null }";
    fs::write(&input, text).unwrap();
    let rollouts = read(&input);
    let out = folder.path().join("out.jsonl");
    rollouts
        .write_advantage(&out, &per_response(&rollouts, &[0.1, -1.0]))
        .unwrap();
    assert_eq!(
        fs::read_to_string(&out).unwrap(),
        "\u{feff}{\"group\": 9007199254740993, \"reward\": 1.0, \"old_logp\": [1e5,0.10], \"t\": \"\\u00e9}\", \"advantage\": 0.1}\r\n\n{\"group\":1,\"reward\":0,\"old_logp\":[-0.0],\"advantage\":-1.0 }"
    );
    let values = FloatBuffer::F32(vec![0.1f32, 2.0, 1e-7].into());
    rollouts
        .write_advantage(&input, &per_token(&rollouts, &values))
        .unwrap();
    assert_eq!(
        fs::read_to_string(&input).unwrap(),
        "\u{feff}{\"group\": 9007199254740993, \"reward\": 1.0, \"old_logp\": [1e5,0.10], \"t\": \"\\u00e9}\", \"advantage\": [0.1, 2.0]}\r\n\n{\"group\":1,\"reward\":0,\"old_logp\":[-0.0],\"advantage\":[1e-7] }"
    );
    let now = read(&input);
    let (advantage, returns) = (per_response(&now, &[0.1, -1.0]), per_token(&now, &values));
    let columns = [(Column::Advantage, &advantage), (Column::Returns, &returns)];
    now.write_outputs(&out, &columns, &|_, _| {}).unwrap();
    let written = fs::read_to_string(&out).unwrap();
    assert!(written.contains("\"advantage\": 0.1, \"returns\": [0.1, 2.0]}"));
    // A second time takes the place of the first.
    let columns = [(Column::Advantage, &returns), (Column::Returns, &advantage)];
    let again = folder.path().join("again.jsonl");
    read(&out)
        .write_outputs(&again, &columns, &|_, _| {})
        .unwrap();
    let written = fs::read_to_string(&again).unwrap();
    assert!(
        written.contains("\"advantage\": [0.1, 2.0], \"returns\": 0.1}"),
        "{written}"
    );
    let message = now
        .write_advantage(&out, &per_response(&now, &[f64::NAN, 0.0]))
        .unwrap_err()
        .to_string();
    assert!(message.contains("line 1 is NaN"), "{message}");
    fs::write(&input, "{\"group\": 1}").unwrap();
    let error = rollouts.write_advantage(&input, &per_response(&rollouts, &[0.0, 0.0]));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("changed after it was read")
    );
    assert_eq!(fs::read_to_string(&input).unwrap(), "{\"group\": 1}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        3,
        "no part of a file is left"
    );
}

/// Hashes of prompts lie on both sides of 2^63; those beyond are ids of their digits.
#[test]
fn ids_of_groups_are_whole_numbers_of_any_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hashes.jsonl");
    let ids = ["5", "18446744073709551615", "5", "18446744073709551615"];
    let line = |id: &&str| format!("{{\"group\": {id}, \"reward\": 1}}\n");
    std::fs::write(&path, ids.iter().map(line).collect::<String>()).unwrap();
    let rollouts = read(path);
    let layout = rollouts.batch.layout();
    assert_eq!(layout.members(0), [0, 2]);
    assert_eq!(layout.members(1), [1, 3]);
}

/// Lists of messages are texts like any string, and those of a prompt name its group.
#[test]
fn chats_are_texts_and_name_groups() {
    let chat = |question: &str| {
        format!(
            r#"[{{"role": "system", "content": "Be brief."}}, {{"role": "user", "content": "{question}"}}]"#
        )
    };
    let line = |question: &str, reward: u8, agent: &str| {
        let (prompt, answer) = (
            chat(question),
            r#"[{"role": "assistant", "content": "a b"}]"#,
        );
        format!(
            r#"{{"prompt": {prompt}, "completion": {answer}, "reward": {reward}, "agent": "{agent}"}}"#
        )
    };
    let lines = [
        line("1 + 1?", 1, "A"),
        line("2 + 2?", 0, "B"),
        line("1 + 1?", 0, "B"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let map = [mapping("group", "prompt"), mapping("prompt", "prompt")];
    let rollouts = read_lines(&lines, &map).unwrap();
    let (batch, layout) = (&rollouts.batch, rollouts.batch.layout());
    assert_eq!(layout.members(0), [0, 2]);
    let name = "system: Be brief.\nuser: 1 + 1?";
    assert_eq!(layout.group_id(0), &name.into());
    assert_eq!(&*batch.text("prompt").unwrap()[2], name);
    assert_eq!(&*batch.text("completion").unwrap()[0], "a b");
    assert_eq!(batch.response_column("length").unwrap(), [2.0; 3]);
    assert_eq!(batch.text("agent").unwrap()[1..], ["B".into(), "B".into()]);
    assert!(batch.text("reward").is_none());
}
