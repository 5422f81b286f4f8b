//! Files of rollouts: each kind reads as the batch that it holds, and comes back with the advantage added.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    columns, mapping, notes, packed, per_response, per_token, read, read_in, read_only, refused,
    tokens, try_read,
};
use crate::parquet_rows;
use advlab::batch::{Batch, FloatBuffer};
use advlab::files::{self, AddedColumn, Dtype, Mapping, ReadOptions, Rollouts, Unscored};

fn data(name: &str) -> PathBuf {
    Path::new(crate::ROOT).join("tests/data").join(name)
}

#[test]
fn tokens_are_read_where_the_mask_counts_them() {
    let rollouts = read(data("tokens.jsonl"));
    let (batch, layout) = (&rollouts.batch, rollouts.batch.layout());
    let names = ["entropy", "old_logp", "ref_logp", "reward"];
    assert_eq!(columns(batch), names);
    let note = "the mask is 0 for all tokens of 1 response (the first: line 4), so no token has an advantage there";
    assert_eq!(notes(&rollouts), [note]);
    let sizes = (layout.responses(), layout.groups(), layout.tokens());
    assert_eq!(sizes, (4, 2, 7));
    assert_eq!(
        batch.response_column("reward").unwrap(),
        [1.0, 0.0, 0.5, 0.5]
    );
    let mut logps = [-0.5, -0.25, -1.0, -0.125, -2.0, -1e-3, -3.5];
    assert_eq!(tokens(batch, "old_logp"), logps);
    assert_eq!(rollouts.line(2), Some(4), "a blank line is no response");
    // Single precision is had for the asking.
    let batch = read_in(data("tokens.jsonl"), Dtype::F32).batch;
    let narrow = batch.token_column("old_logp");
    assert!(narrow.is_some_and(|values| !values.is_f64()));
    logps[5] = f64::from(-1e-3f32);
    assert_eq!(tokens(&batch, "old_logp"), logps);
}

/// Reads lines from a file of their own.
fn read_lines(lines: &[&str], map: &[Mapping]) -> Result<Rollouts, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    try_read(&path, map, None)
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
    // The fields stay where they were, but `reward` cannot.
    assert_eq!(
        columns(&rollouts.batch),
        ["correct", "logps", "old_logp", "reward", "score"]
    );
    assert_eq!(
        rollouts.batch.response_column("reward").unwrap(),
        [1.0, 0.0]
    );
    let note = "`reward` is left out: `reward` is read from `score`";
    assert_eq!(notes(&rollouts), [note]);

    let lines = lines.map(|line| line.replace("\"reward\": 9, ", ""));
    let lines = lines.each_ref().map(String::as_str);
    let error = read_lines(&lines, &[mapping("group", "uid")]).unwrap_err();
    let help = "if `reward` is in `score`, add `--map reward=score`";
    assert!(error.contains(help), "{error}");
}

/// The lengths, the groups and the precision do not depend on what is read, and an invalid value is an error only if it is.
#[test]
fn only_some_arrays_and_texts_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let [jsonl, parquet] = ["a.jsonl", "a.parquet"].map(|name| folder.path().join(name));
    let lines = "{\"group\":\"p\",\"prompt\":\"p\",\"reward\":1,\"completion\":\"a b\",\"old_logp\":[-1,-0.5],\"value\":[1,NaN]}\n{\"group\":\"p\",\"prompt\":\"p\",\"reward\":0,\"completion\":\"c\",\"old_logp\":[-2],\"value\":[4]}\n";
    fs::write(&jsonl, lines).unwrap();
    parquet_rows::write(&parquet, lines).unwrap();
    for path in [&jsonl, &parquet] {
        let some = read_only(path, &["old_logp", "prompt"]).unwrap().batch;
        assert_eq!(columns(&some), ["old_logp", "reward"]);
        assert_eq!(tokens(&some, "old_logp"), [-1.0, -0.5, -2.0]);
        let texts: Vec<&str> = some.texts().map(|(name, _)| name).collect();
        assert_eq!(texts, ["prompt"]);
        let none = read_only(path, &[]).unwrap().batch;
        assert_eq!(columns(&none), ["reward"]);
        assert_eq!(none.layout(), some.layout());
        let error = read_only(path, &["value"]).unwrap_err();
        assert!(error.contains("NaN"), "{error}");
    }
    // Without a reward, answers are compared, whatever is asked for.
    let lines = lines.replace("\"reward\":", "\"solution\":");
    fs::write(&jsonl, lines).unwrap();
    let answers = read_only(&jsonl, &["old_logp"]).unwrap().batch;
    assert!(answers.text("completion").is_some() && answers.text("prompt").is_none());
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
        // Quadratic, each takes hours.
        let (told, read) = std::sync::mpsc::channel();
        let path = path.clone();
        std::thread::spawn(move || told.send(super::read(&path).line(0)));
        let line = read.recv_timeout(std::time::Duration::from_secs(600));
        assert_eq!(line, Ok(Some(first)));
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
    let links = [
        (".", "latest"),
        ("below", "link"),
        ("below/a.jsonl", "b.jsonl"),
    ];
    for (target, link) in links {
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
    assert!(refused(&path).contains("CRC"));
}

#[test]
fn progress_ends_at_the_end() {
    let last = std::sync::Mutex::new((0, 0));
    let progress = |done, total| *last.lock().unwrap() = (done, total);
    let options = ReadOptions {
        progress: Some(&progress),
        ..ReadOptions::default()
    };
    let path = data("verl.jsonl");
    files::read(&path, &options).unwrap();
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(*last.lock().unwrap(), (size, size));
}

#[test]
fn an_advantage_is_written_into_lines_that_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let [input, out, again] =
        ["in.jsonl", "out.jsonl", "again.jsonl"].map(|name| folder.path().join(name));
    let written = |path: &Path| fs::read_to_string(path).unwrap();
    let line = |[first, second]: [&str; 2]| {
        format!(
            "\u{feff}{{\"group\": 9007199254740993, \"reward\": 1.0, \"old_logp\": [1e5,0.10], \"t\": \"\\u00e9}}\"{first}}}\r\n\n{{\"group\":1,\"reward\":0,\"old_logp\":[-0.0],\"adv\\u0061ntage\":{second} }}"
        )
    };
    fs::write(&input, line(["", "null"])).unwrap();
    let rollouts = read(&input);
    let few = per_response(&rollouts, &[0.1, -1.0]);
    rollouts.write_advantage(&out, &few).unwrap();
    assert_eq!(written(&out), line([", \"advantage\": 0.1", "-1.0"]));
    let values = FloatBuffer::F32(vec![0.1f32, 2.0, 1e-7].into());
    let many = per_token(&rollouts, &values);
    rollouts.write_advantage(&input, &many).unwrap();
    assert_eq!(
        written(&input),
        line([", \"advantage\": [0.1, 2.0]", "[1e-7]"])
    );
    // A second time takes the place of the first.
    let now = read(&input);
    for (from, to, advantage, returns, expected) in [
        (
            &input,
            &out,
            &few,
            &many,
            "\"advantage\": 0.1, \"returns\": [0.1, 2.0]}",
        ),
        (
            &out,
            &again,
            &many,
            &few,
            "\"advantage\": [0.1, 2.0], \"returns\": 0.1}",
        ),
    ] {
        let columns = [
            (AddedColumn::Advantage, advantage),
            (AddedColumn::Returns, returns),
        ];
        read(from).write_outputs(to, &columns, &|_, _| {}).unwrap();
        assert!(written(to).contains(expected), "{}", written(to));
    }
    let nan = now.write_advantage(&out, &per_response(&now, &[f64::NAN, 0.0]));
    assert!(nan.unwrap_err().to_string().contains("line 1 is NaN"));
    fs::write(&input, "{\"group\": 1}").unwrap();
    let changed = rollouts.write_advantage(&input, &few).unwrap_err();
    assert!(changed.to_string().contains("changed after it was read"));
    assert_eq!(written(&input), "{\"group\": 1}");
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 3, "no part of a file is left");
}

/// Lists of messages are texts like any string, and those of a prompt name its group.
#[test]
fn chats_are_texts_and_name_groups() {
    let line = |(question, reward, agent): (&str, u8, &str)| {
        format!(
            r#"{{"prompt": [{{"role": "system", "content": "Be brief."}}, {{"role": "user", "content": "{question}"}}], "completion": [{{"role": "assistant", "content": "a b"}}], "reward": {reward}, "agent": "{agent}"}}"#
        )
    };
    let lines = [("1 + 1?", 1, "A"), ("2 + 2?", 0, "B"), ("1 + 1?", 0, "B")].map(line);
    let map = [mapping("group", "prompt"), mapping("prompt", "prompt")];
    let rollouts = read_lines(&lines.each_ref().map(String::as_str), &map).unwrap();
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

/// What a verifier did not judge is an error, 0, or not there; the others are as in a file that never had it.
#[test]
fn responses_without_a_reward_are_told_taken_as_0_or_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let line = |reward: &str, logp: &str| {
        format!("{{\"group\": \"a\"{reward}, \"old_logp\": [{logp}]}}\n")
    };
    let scored = [
        line(", \"reward\": 1", "-1, -2"),
        line(", \"reward\": 0", "-3"),
    ];
    let [null, nan] =
        ["null", "NaN"].map(|nothing| line(&format!(", \"reward\": {nothing}"), "-4, -5"));
    let all = [&null, &scored[0], &nan, &scored[1], &null]
        .map(String::as_str)
        .concat();
    fs::write(place("all.jsonl"), &all).unwrap();
    fs::write(place("scored.jsonl"), scored.concat()).unwrap();
    parquet_rows::write(&place("all.parquet"), &all).unwrap();
    let tensors = "index I64 5 0 0 0 0 0; rewards F32 5 nan 1 nan 0 nan; \
        old_log_probs F32 5,2 -4 -5 -1 -2 -4 -5 -3 0 -4 -5; response_mask U8 5,2 1 1 1 1 1 1 1 0 1 1";
    fs::write(place("all.safetensors"), packed(tensors)).unwrap();
    let expected = read(place("scored.jsonl")).batch;
    for name in ["all.jsonl", "all.parquet", "all.safetensors"] {
        let read = |unscored| {
            let options = ReadOptions {
                unscored,
                ..ReadOptions::default()
            };
            files::read(place(name), &options)
        };
        let error = read(Unscored::Error).unwrap_err().to_string();
        let told = ["3 of 5 responses", "`--unscored leave-out`"].map(|part| error.contains(part));
        assert_eq!(told, [true; 2], "{error}");
        let zero = read(Unscored::Zero).unwrap();
        let rewards = zero.batch.response_column("reward").unwrap();
        assert_eq!(rewards, [0.0, 1.0, 0.0, 0.0, 0.0], "{name}");
        assert_eq!(notes(&zero), ["scored as 0: 3 responses without a reward"]);

        let left = read(Unscored::LeaveOut).unwrap();
        assert_eq!(notes(&left), ["left out: 3 responses without a reward"]);
        for column in ["reward", "old_logp"] {
            let values = |batch| match column {
                "reward" => Batch::response_column(batch, column).unwrap().to_vec(),
                _ => tokens(batch, column),
            };
            assert_eq!(values(&left.batch), values(&expected), "{name}: {column}");
        }
        assert_eq!(left.line(1), (!name.ends_with("tensors")).then_some(4));
        // A copy has the others too, with 0.
        let out = place(&format!("out.{name}"));
        let per_token = per_token(&left, &FloatBuffer::F64(vec![0.5, 0.25, -1.0].into()));
        left.write_advantage(&out, &per_token).unwrap();
        let copy = ReadOptions {
            unscored: Unscored::Zero,
            ..ReadOptions::default()
        };
        let copy = files::read(&out, &copy).unwrap().batch;
        let written = [0.0, 0.0, 0.5, 0.25, 0.0, 0.0, -1.0, 0.0, 0.0];
        assert_eq!(tokens(&copy, "advantage"), written, "{name}");
    }
    fs::write(place("none.jsonl"), format!("{null}{nan}")).unwrap();
    let options = ReadOptions {
        unscored: Unscored::LeaveOut,
        ..ReadOptions::default()
    };
    let error = files::read(place("none.jsonl"), &options).unwrap_err();
    assert!(error.to_string().contains("2 of 2 responses"), "{error}");
}

/// A field of an object has a path. A name with a dot in it is a name.
#[test]
fn a_field_of_an_object_is_read_by_its_path() {
    let lines = [
        r#"{"uid": "a", "rewards": {"correct": 1, "by.style": {"short": [1, 2]}}, "gpt-4.1": 3, "gpt-4": {"1": 0}}"#,
        r#"{"uid": "a", "rewards": {"by.style": {"short": [3]}, "correct": 0}, "gpt-4.1": 4, "gpt-4": {"1": 0}}"#,
    ];
    let map = [
        mapping("reward", "rewards.correct"),
        mapping("correct", "rewards.correct"),
        mapping("short", "rewards.by.style.short"),
        mapping("judge", "gpt-4.1"),
    ];
    let rollouts = read_lines(&lines, &map).unwrap();
    let column = |name: &str| rollouts.batch.response_column(name).unwrap().to_vec();
    assert_eq!(
        columns(&rollouts.batch),
        ["correct", "gpt-4.1", "judge", "reward", "short"]
    );
    let numbers = ["reward", "correct", "judge"].map(column);
    assert_eq!(numbers, [[1.0, 0.0], [1.0, 0.0], [3.0, 4.0]]);
    assert_eq!(tokens(&rollouts.batch, "short"), [1.0, 2.0, 3.0]);
    assert_eq!(notes(&rollouts), ["`group` is read from `uid`"]);
    for (path, told) in [
        (
            "rewards",
            "`--map reward=rewards.FIELD` reads a field of this object",
        ),
        ("rewards.wrong", "found nothing"),
        ("reward.correct", "there is no field `reward.correct`"),
    ] {
        let error = read_lines(&lines, &[mapping("reward", path)]).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}
