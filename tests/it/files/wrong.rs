//! The error gallery for inputs: each wrong file, and what is said of it.

use std::fs;
use std::path::{Path, PathBuf};

use super::per_response;
use advlab::files::{self, Mapping, ReadOptions};
use safetensors::tensor::{Dtype, TensorView};

use crate::cases;

/// What is said of a file, with its folder taken out.
fn message(path: &Path, map: &[Mapping]) -> String {
    let options = ReadOptions {
        map,
        ..ReadOptions::default()
    };
    let message = match files::read(path, &options) {
        Ok(_) => panic!("{} reads without an error", path.display()),
        Err(error) => error.to_string(),
    };
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
    assert!(lines.len() >= 30);
    let lines = lines
        .iter()
        .map(|case| (case.name.as_str(), case.text.clone().into_bytes()));
    let utf16 = "{\"group\": \"a\", \"reward\": 1.0}\n".encode_utf16();
    let utf16: Vec<u8> = utf16.flat_map(u16::to_le_bytes).collect();
    let bytes: [(&str, Vec<u8>); 5] = [
        ("empty.jsonl", b"\n  \n".to_vec()),
        (
            "invalid_utf8.jsonl",
            b"{\"group\": \"a\", \"reward\": 1.0}\n{\"group\": \"caf\xe9\", \"reward\": 1.0}\n".to_vec(),
        ),
        (
            "truncated.jsonl",
            b"{\"group\": \"a\", \"reward\": 1.0}\n{\"group\": \"a\", \"reward\": 0.0, \"completion\": \"the ans".to_vec(),
        ),
        ("utf16.jsonl", [b"\xff\xfe".to_vec(), utf16].concat()),
        ("wrong_ending.parquet", b"PAR1".to_vec()),
    ];
    snapshot("wrong_text", messages(lines.chain(bytes)));
}

#[test]
fn a_mapping_that_fits_nothing_names_the_nearest_field() {
    let map = |ours: &str, theirs: &str| Mapping {
        ours: ours.to_string(),
        theirs: theirs.to_string(),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no_group.jsonl");
    let line = r#"{"problem_id": 3, "prompt": "1 + 1 =", "reward": 1.0}"#;
    fs::write(&path, line).unwrap();
    let said = [
        ("unknown", vec![map("group", "problem")]),
        (
            "twice",
            vec![map("group", "prompt"), map("group", "problem_id")],
        ),
        (
            "text_as_reward",
            vec![map("group", "problem_id"), map("reward", "prompt")],
        ),
    ];
    snapshot(
        "wrong_maps",
        said.map(|(name, map)| (name, message(&path, &map))),
    );
}

type Raw<'a> = (&'a str, Dtype, &'a [usize], &'a [u8]);

fn pack(tensors: &[Raw]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (
            *name,
            TensorView::new(*dtype, shape.to_vec(), bytes).unwrap(),
        )
    });
    safetensors::serialize(views, None).unwrap()
}

const ZERO: [u8; 64] = [0; 64];

fn index() -> Raw<'static> {
    ("index", Dtype::I64, &[2], &ZERO[..16])
}

fn rewards() -> Raw<'static> {
    ("rewards", Dtype::F32, &[2], &ZERO[..8])
}

fn stored() -> zip::write::SimpleFileOptions {
    zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored)
}

/// A header that somebody has written by hand, with `data` bytes after it.
fn forged(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; data]);
    bytes
}

#[test]
fn every_wrong_padded_file_is_told_what_is_wrong() {
    let nan = [0f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat();
    let whole = pack(&[index(), rewards()]);
    let forged_tensor = |dtype: &str, shape: &str, offsets: &str, data| {
        let rewards = r#""rewards": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}"#;
        let index = format!(
            r#""index": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}"#
        );
        forged(&format!("{{{rewards}, {index}}}"), data)
    };
    let cut_off = whole[..whole.len() - 5].to_vec();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty.safetensors", vec![]),
        ("seven_bytes.safetensors", vec![0; 7]),
        ("header_longer_than_file.safetensors", vec![0xff; 40]),
        ("header_is_no_json.safetensors", forged("{\"index\": ", 0)),
        ("header_is_a_list.safetensors", forged("[]", 0)),
        (
            "offsets_beyond_file.safetensors",
            forged_tensor("I64", "[1000000000]", "[0, 8000000000]", 16),
        ),
        (
            "offsets_overflow.safetensors",
            forged_tensor(
                "I64",
                "[2]",
                "[18446744073709551600, 18446744073709551615]",
                16,
            ),
        ),
        (
            "offsets_backwards.safetensors",
            forged_tensor("I64", "[2]", "[16, 0]", 16),
        ),
        (
            "shape_without_bytes.safetensors",
            forged_tensor("I64", "[3]", "[0, 16]", 16),
        ),
        (
            "shape_overflows.safetensors",
            forged_tensor("I64", "[4294967296, 4294967296]", "[0, 16]", 16),
        ),
        (
            "shape_of_texts.safetensors",
            forged_tensor("I64", "[\"2\"]", "[0, 16]", 16),
        ),
        (
            "a_gap.safetensors",
            forged_tensor("I64", "[2]", "[8, 24]", 24),
        ),
        (
            "unknown_type.safetensors",
            forged_tensor("I65", "[2]", "[0, 16]", 16),
        ),
        ("cut_off.safetensors", cut_off),
        (
            "no_index.safetensors",
            pack(&[("uid", Dtype::I64, &[2], &ZERO[..16]), rewards()]),
        ),
        (
            "no_reward.safetensors",
            pack(&[
                index(),
                ("token_level_scores", Dtype::F32, &[2, 3], &ZERO[..24]),
            ]),
        ),
        (
            "fractional_index.safetensors",
            pack(&[
                ("index", Dtype::F32, &[2], &[0, 0, 0, 0, 0, 0, 0, 0x3f]),
                rewards(),
            ]),
        ),
        (
            "index_of_tokens.safetensors",
            pack(&[("index", Dtype::I64, &[2, 2], &ZERO[..32]), rewards()]),
        ),
        (
            "rewards_of_tokens.safetensors",
            pack(&[index(), ("rewards", Dtype::F32, &[2, 3], &ZERO[..24])]),
        ),
        (
            "token_rewards_of_responses.safetensors",
            pack(&[
                index(),
                ("token_level_rewards", Dtype::F32, &[2], &ZERO[..8]),
            ]),
        ),
        (
            "other_number_of_responses.safetensors",
            pack(&[index(), ("rewards", Dtype::F32, &[3], &ZERO[..12])]),
        ),
        (
            "other_width.safetensors",
            pack(&[
                index(),
                rewards(),
                ("response_mask", Dtype::U8, &[2, 3], &ZERO[..6]),
                ("old_log_probs", Dtype::F32, &[2, 2], &ZERO[..16]),
            ]),
        ),
        (
            "mask_of_two.safetensors",
            pack(&[
                index(),
                rewards(),
                ("mask", Dtype::U8, &[2, 3], &[1, 1, 1, 1, 2, 0]),
            ]),
        ),
        (
            "nan_reward.safetensors",
            pack(&[index(), ("rewards", Dtype::F32, &[2], &nan)]),
        ),
        (
            "nan_token.safetensors",
            pack(&[
                index(),
                rewards(),
                ("mask", Dtype::BOOL, &[2, 1], &[0, 1]),
                ("old_log_probs", Dtype::F32, &[2, 1], &nan),
            ]),
        ),
        (
            "two_masks.safetensors",
            pack(&[
                index(),
                rewards(),
                ("response_mask", Dtype::U8, &[2, 3], &ZERO[..6]),
                ("mask", Dtype::U8, &[2, 3], &ZERO[..6]),
            ]),
        ),
        (
            "two_groups.safetensors",
            pack(&[index(), ("group", Dtype::I64, &[2], &ZERO[..16]), rewards()]),
        ),
        (
            "two_tensors_of_one_name.safetensors",
            forged(
                r#"{"rewards": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "rewards": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#,
                8,
            ),
        ),
        (
            "step_of_half.safetensors",
            pack(&[
                index(),
                rewards(),
                ("step", Dtype::F32, &[2], &[0, 0, 0, 0, 0, 0, 0, 0x3f]),
            ]),
        ),
        (
            "correct_of_three.safetensors",
            pack(&[index(), ("correct", Dtype::U8, &[2], &[1, 3])]),
        ),
        (
            "no_responses.safetensors",
            pack(&[
                ("index", Dtype::I64, &[0], &[]),
                ("rewards", Dtype::F32, &[0], &[]),
            ]),
        ),
    ];
    snapshot("wrong_tensors", messages(cases));
}

#[test]
fn every_wrong_archive_is_told_what_is_wrong() {
    let array = |descr: &str, shape: &str, bytes: &[u8]| {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut array = b"\x93NUMPY\x01\x00".to_vec();
        array.extend((header.len() as u16).to_le_bytes());
        array.extend(header.as_bytes());
        array.extend(bytes);
        array
    };
    let pack = |entries: &[(&str, Vec<u8>)]| {
        use std::io::Write;
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, bytes) in entries {
            zip.start_file(format!("{name}.npy"), stored()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    };
    let rewards = || ("rewards", array("<f4", "(2,)", &ZERO[..8]));
    let whole = pack(&[("index", array("<i8", "(2,)", &ZERO[..16])), rewards()]);
    let mut flipped = whole.clone();
    let at = flipped
        .windows(4)
        .position(|window| window == b"(2,)")
        .unwrap();
    flipped[at + 12] ^= 1;
    let cases = [
        ("no_archive.npz", b"PK but nothing else".to_vec()),
        ("cut_off.npz", whole[..whole.len() - 30].to_vec()),
        ("damaged.npz", flipped),
        (
            "python_objects.npz",
            pack(&[("index", array("|O", "(2,)", &ZERO)), rewards()]),
        ),
        (
            "texts_of_bytes.npz",
            pack(&[("index", array("|S4", "(2,)", &ZERO[..8])), rewards()]),
        ),
        (
            "shape_beyond_bytes.npz",
            pack(&[
                ("index", array("<i8", "(2000000000,)", &ZERO[..16])),
                rewards(),
            ]),
        ),
        (
            "shape_below_bytes.npz",
            pack(&[("index", array("<i8", "(1,)", &ZERO[..16])), rewards()]),
        ),
        (
            "no_numpy_array.npz",
            pack(&[("index", b"1, 2, 3".to_vec()), rewards()]),
        ),
        ("no_arrays.npz", pack(&[])),
    ];
    snapshot("wrong_archives", messages(cases));
}

#[test]
fn every_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    fs::write(&input, "{\"group\": 1, \"reward\": 0.0}\n").unwrap();
    let rollouts = files::read(&input, &ReadOptions::default()).unwrap();
    let write = |out: PathBuf, values: &[f64]| {
        let error = rollouts
            .write_advantage(&out, &per_response(&rollouts, values))
            .unwrap_err();
        let folder = format!("{}/", folder.path().display());
        error.to_string().replace(&folder, "")
    };
    fs::create_dir(folder.path().join("a_folder.jsonl")).unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut said = vec![
        ("in_missing_folder", write(at("missing/out.jsonl"), &[0.0])),
        ("under_a_file", write(at("in.jsonl/out.jsonl"), &[0.0])),
        ("is_a_folder", write(at("a_folder.jsonl"), &[0.0])),
        ("of_another_kind", write(at("out.npz"), &[0.0])),
        ("not_a_number", write(at("out.jsonl"), &[f64::NAN])),
        ("of_another_batch", write(at("out.jsonl"), &[0.0, 1.0])),
    ];
    assert_eq!(
        fs::read_to_string(&input).unwrap(),
        "{\"group\": 1, \"reward\": 0.0}\n"
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing half-written is left"
    );
    #[cfg(target_os = "linux")]
    {
        let full = write(PathBuf::from("/dev/full"), &[0.0]);
        assert_eq!(
            full,
            "/dev/full: it cannot be written: No space left on device (os error 28)"
        );
    }
    fs::remove_file(&input).unwrap();
    said.push(("input_gone", write(at("out.jsonl"), &[0.0])));
    snapshot("wrong_outputs", said);
}
