//! The error gallery for inputs: each wrong file, and what is said of it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{mapping, packed, per_response, read, try_read};
use advlab::files::Mapping;

use crate::cases;

/// What is said of a file, with its folder taken out.
fn message(path: &Path, map: &[Mapping]) -> String {
    let message = try_read(path, map, None).unwrap_err();
    let folder = format!("{}/", path.parent().unwrap().display());
    message.replace(&folder, "")
}

/// Pins what is said of each case, with its name.
fn snapshot<'a>(name: &str, said: impl IntoIterator<Item = (&'a str, String)>) {
    cases::snapshot("../gallery/files", name, said);
}

/// What is said of each file, when its bytes stand under its name in a folder.
fn messages<'a>(files: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Vec<(&'a str, String)> {
    let folder = tempfile::tempdir().unwrap();
    let said = files.into_iter().map(|(name, bytes)| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        (name, message(&path, &[]))
    });
    said.collect()
}

#[test]
fn every_wrong_text_file_is_told_what_is_wrong() {
    let lines = cases::cases(&Path::new(crate::ROOT).join("tests/gallery/files/wrong.txt"));
    let lines = lines.iter();
    let lines = lines.map(|case| (case.name.as_str(), case.text.clone().into_bytes()));
    let line = b"{\"group\": \"a\", \"reward\": 1.0}\n";
    let not_utf8 = b"{\"group\": \"caf\xe9\", \"reward\": 1.0}\n";
    let cut = b"{\"group\": \"a\", \"reward\": 0.0, \"completion\": \"the ans";
    let bytes: [(&str, Vec<u8>); 5] = [
        ("empty.jsonl", b"\n  \n".to_vec()),
        ("invalid_utf8.jsonl", [&line[..], not_utf8].concat()),
        ("truncated.jsonl", [&line[..], cut].concat()),
        ("wrong_ending.parquet", b"PAR1".to_vec()),
        ("arrays.npz", b"PK".to_vec()),
    ];
    snapshot("wrong_text", messages(lines.chain(bytes)));
}

#[test]
fn a_mapping_that_fits_nothing_names_the_nearest_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no_group.jsonl");
    let line = r#"{"problem_id": 3, "prompt": "1 + 1 =", "reward": 1.0}"#;
    fs::write(&path, line).unwrap();
    let one = |theirs| vec![mapping("group", theirs)];
    let said = [
        ("unknown", one("problem")),
        ("twice", [one("prompt"), one("problem_id")].concat()),
        (
            "text_as_reward",
            [one("problem_id"), vec![mapping("reward", "prompt")]].concat(),
        ),
    ];
    let said = said.map(|(name, map)| (name, message(&path, &map)));
    snapshot("wrong_maps", said);
}

/// A header that somebody has written by hand, with `data` bytes after it.
fn forged(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; data]);
    bytes
}

/// The padded files by their names, and their tensors beside these: each is two responses of one group, if it says nothing else.
const PADDED: &str = "
no_index: problem_id I64 2; rewards F32 2
no_reward: index I64 2; token_level_scores F32 2,3
fractional_index: index F32 2 0 0.5; rewards F32 2
rewards_of_tokens: index I64 2; rewards F32 2,3
token_rewards_of_responses: index I64 2; token_level_rewards F32 2
other_width: index I64 2; rewards F32 2; response_mask U8 2,3; old_log_probs F32 2,2
nan_token: index I64 2; rewards F32 2; mask BOOL 2,1 0 1; old_log_probs F32 2,1 0 nan
two_masks: index I64 2; rewards F32 2; response_mask U8 2,3; mask U8 2,3
step_of_half: index I64 2; rewards F32 2; step F32 2 0 0.5
no_responses: index I64 0; rewards F32 0";

#[test]
fn every_wrong_padded_file_is_told_what_is_wrong() {
    let whole = packed("index I64 2; rewards F32 2");
    let index = |dtype: &str, shape: &str, offsets: &str| {
        let entry =
            format!(r#"{{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}"#);
        forged(&format!(r#"{{"index": {entry}}}"#), 16)
    };
    let cases = [
        ("empty", Vec::new()),
        ("header_is_no_json", forged("{\"index\": ", 0)),
        (
            "offsets_beyond_file",
            index("I64", "[1000000000]", "[0, 8000000000]"),
        ),
        ("offsets_backwards", index("I64", "[2]", "[16, 0]")),
        (
            "shape_overflows",
            index("I64", "[4294967296, 4294967296]", "[0, 16]"),
        ),
        ("unknown_type", index("I65", "[2]", "[0, 16]")),
        ("cut_off", whole[..whole.len() - 5].to_vec()),
    ];
    let padded = PADDED.lines().filter_map(|line| line.split_once(": "));
    let padded = padded.map(|(name, tensors)| (name, packed(tensors)));
    let cases = cases.into_iter().chain(padded);
    let cases = cases.map(|(name, bytes)| (format!("{name}.safetensors"), bytes));
    let cases: Vec<(String, Vec<u8>)> = cases.collect();
    let cases = cases
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.clone()));
    snapshot("wrong_tensors", messages(cases));
}

#[test]
fn every_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    fs::write(&input, "{\"group\": 1, \"reward\": 0.0}\n").unwrap();
    let rollouts = read(&input);
    let write = |out: PathBuf, values: &[f64]| {
        let error = rollouts.write_advantage(&out, &per_response(&rollouts, values));
        let folder = format!("{}/", folder.path().display());
        error.unwrap_err().to_string().replace(&folder, "")
    };
    fs::create_dir(folder.path().join("a_folder.jsonl")).unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut said = vec![
        ("in_missing_folder", write(at("missing/out.jsonl"), &[0.0])),
        ("under_a_file", write(at("in.jsonl/out.jsonl"), &[0.0])),
        ("is_a_folder", write(at("a_folder.jsonl"), &[0.0])),
        ("of_another_kind", write(at("out.safetensors"), &[0.0])),
        ("lines_as_parquet", write(at("out.parquet"), &[0.0])),
        ("not_a_number", write(at("out.jsonl"), &[f64::NAN])),
        ("of_another_batch", write(at("out.jsonl"), &[0.0, 1.0])),
    ];
    let line = fs::read_to_string(&input).unwrap();
    assert_eq!(line, "{\"group\": 1, \"reward\": 0.0}\n");
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 2, "nothing half-written is left");
    #[cfg(target_os = "linux")]
    {
        let full = write(PathBuf::from("/dev/full"), &[0.0]);
        let said = "/dev/full: it cannot be written: No space left on device (os error 28)";
        assert_eq!(full, said);
    }
    fs::remove_file(&input).unwrap();
    said.push(("input_gone", write(at("out.jsonl"), &[0.0])));
    snapshot("wrong_outputs", said);
}
