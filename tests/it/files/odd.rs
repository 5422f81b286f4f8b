//! The gallery of notes: odd files that read all the same, what becomes of each, and what is said of it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{per_response, per_token};
use advlab::batch::FloatBuffer;
use advlab::files::{self, Dtype, Mapping, ReadOptions, Rollouts};
use safetensors::tensor::{Dtype as Type, SafeTensors, TensorView};

use crate::cases::{self, Case};

fn mapping(ours: &str, theirs: &str) -> Mapping {
    Mapping {
        ours: ours.to_string(),
        theirs: theirs.to_string(),
    }
}

fn read(path: &Path, map: &[Mapping], dtype: Option<Dtype>) -> Rollouts {
    let options = ReadOptions {
        map,
        dtype,
        ..ReadOptions::default()
    };
    files::read(path, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The columns, the number of tokens of each response, and the notes.
fn told(rollouts: &Rollouts) -> String {
    let batch = &rollouts.batch;
    let columns: Vec<&str> = batch.columns().collect();
    let layout = batch.layout();
    let tokens: Vec<usize> = (0..layout.responses())
        .map(|response| layout.tokens_of(response).len())
        .collect();
    let mut text = format!("columns: {}\ntokens: {tokens:?}\n", columns.join(", "));
    for note in &rollouts.notes {
        writeln!(text, "note: {note}").unwrap();
    }
    text
}

#[test]
fn every_odd_line_is_told_what_becomes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let lines = cases::cases(&Path::new(crate::ROOT).join("tests/gallery/files/odd.txt"));
    assert!(lines.len() >= 13);
    let read_case = |case: &Case, map: &[Mapping]| {
        let path = folder.path().join(&case.name);
        fs::write(&path, &case.text).unwrap();
        read(&path, map, None)
    };
    let plain = lines
        .iter()
        .map(|case| (case.name.as_str(), told(&read_case(case, &[]))));
    let mut said: Vec<(&str, String)> = plain.collect();
    let named = |name: &str| lines.iter().find(|case| case.name == name).unwrap();
    let scores = named("arrays_beside_a_completion.jsonl");
    let scores = read_case(scores, &[mapping("scores", "scores")]);
    said.push(("arrays_mapped_beside_a_completion", told(&scores)));
    cases::snapshot("../gallery/files", "odd_lines", said);

    let names = named("escaped_names.jsonl");
    let rollouts = read_case(names, &[mapping("mine", "café")]);
    assert_eq!(rollouts.batch.response_column("mine").unwrap(), [3.0, 4.0]);
}

#[test]
fn an_advantage_under_an_escaped_name_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    fs::write(&path, r#"{"group": 1, "reward": 1, "adv\u0061ntage": 9}"#).unwrap();
    let rollouts = read(&path, &[], None);
    rollouts
        .write_advantage(&path, &per_response(&rollouts, &[0.5]))
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, r#"{"group": 1, "reward": 1, "adv\u0061ntage": 0.5}"#);
}

/// Name, type, shape and bytes.
type Raw<'a> = (&'a str, Type, &'a [usize], Vec<u8>);

fn save(path: &Path, tensors: &[Raw]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.to_vec(), bytes).unwrap();
        (*name, view)
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn f64s(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn index() -> Raw<'static> {
    ("index", Type::I64, &[2], vec![0; 16])
}

fn rewards() -> Raw<'static> {
    ("rewards", Type::F64, &[2], f64s(&[0.1, 1e39]))
}

#[test]
fn every_odd_tensor_is_told_what_becomes_of_it() {
    let logp = || ("old_log_probs", Type::F32, &[2, 2][..], f32s(&[-1.0; 4]));
    let nan = f32::NAN;
    let cases: [(&str, Vec<Raw>); 6] = [
        (
            "reward_under_the_mask",
            vec![
                index(),
                (
                    "token_level_rewards",
                    Type::F32,
                    &[2, 3],
                    f32s(&[0., 1., nan, 0., 0., 1.]),
                ),
                ("response_mask", Type::U8, &[2, 3], vec![1, 1, 0, 1, 1, 0]),
            ],
        ),
        (
            "responses_without_a_token",
            vec![
                index(),
                rewards(),
                ("response_mask", Type::U8, &[2, 2], vec![1, 1, 0, 0]),
            ],
        ),
        (
            "attention_mask_of_responses",
            vec![
                index(),
                rewards(),
                logp(),
                ("attention_mask", Type::U8, &[2, 2], vec![1, 1, 1, 0]),
            ],
        ),
        (
            "attention_mask_of_prompts_too",
            vec![
                index(),
                rewards(),
                logp(),
                ("attention_mask", Type::U8, &[2, 5], vec![1; 10]),
            ],
        ),
        ("no_mask_at_all", vec![index(), rewards(), logp()]),
        (
            "a_tensor_named_groups",
            vec![
                index(),
                rewards(),
                ("groups", Type::F64, &[2], f64s(&[1.0, 2.0])),
            ],
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let said = cases.iter().map(|(name, tensors)| {
        let path = folder.path().join("a.safetensors");
        save(&path, tensors);
        (*name, told(&read(&path, &[], None)))
    });
    cases::snapshot("../gallery/files", "odd_tensors", said);
}

#[test]
fn a_mask_can_be_chosen_among_two() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    save(
        &path,
        &[
            index(),
            rewards(),
            ("response_mask", Type::U8, &[2, 2], vec![1; 4]),
            ("mask", Type::U8, &[2, 2], vec![1, 0, 1, 0]),
        ],
    );
    for (theirs, tokens) in [("response_mask", 4), ("mask", 2)] {
        let rollouts = read(&path, &[mapping("mask", theirs)], None);
        assert_eq!(rollouts.batch.layout().tokens(), tokens);
        assert_eq!(rollouts.notes.len(), 1, "the other one is left out");
    }
}

/// The type and the bytes of the tensor that was written.
fn written(path: &Path) -> (Type, Vec<u8>) {
    let file = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let view = file.tensor("advantages").unwrap();
    (view.dtype(), view.data().to_vec())
}

#[test]
fn rewards_in_f64_give_advantages_in_f64() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let out = folder.path().join("out.safetensors");
    let mask = || ("response_mask", Type::U8, &[2, 2][..], vec![1, 1, 1, 0]);
    save(&path, &[index(), rewards(), mask()]);
    let rollouts = read(&path, &[], None);
    let advantage = per_response(&rollouts, &[0.1, 1e39]);
    rollouts.write_advantage(&out, &advantage).unwrap();
    let padded = f64s(&[0.1, 0.1, 1e39, 0.0]);
    assert_eq!(written(&out), (Type::F64, padded.clone()));

    // The precision that was asked for comes first.
    let narrow = read(&path, &[], Some(Dtype::F32));
    fs::remove_file(&out).unwrap();
    let error = narrow.write_advantage(&out, &advantage).unwrap_err();
    let message = error.to_string();
    let said = message.split_once("out.safetensors: ").unwrap().1;
    insta::assert_snapshot!(said, @"the advantage of response 1 is 1000000000000000000000000000000000000000, which is too large for f32 (`--dtype f64` writes f64); nothing was written");
    assert!(!out.exists());

    // Token columns say it where there are any.
    let logp = ("old_log_probs", Type::F32, &[2, 2][..], f32s(&[-1.0; 4]));
    save(&path, &[index(), rewards(), mask(), logp]);
    let rollouts = read(&path, &[], None);
    rollouts
        .write_advantage(&out, &per_response(&rollouts, &[0.5, 1.0]))
        .unwrap();
    assert_eq!(written(&out), (Type::F32, f32s(&[0.5, 0.5, 1.0, 0.0])));
    let tokens = FloatBuffer::F64(vec![0.0, 1.0, f64::NAN].into());
    let error = rollouts
        .write_advantage(&out, &per_token(&rollouts, &tokens))
        .unwrap_err();
    let message = error.to_string();
    let said = message.split_once("out.safetensors: ").unwrap().1;
    insta::assert_snapshot!(said, @"the advantage of response 1, token 0, is NaN; nothing was written");
    let wide = read(&path, &[], Some(Dtype::F64));
    wide.write_advantage(&out, &advantage).unwrap();
    assert_eq!(written(&out), (Type::F64, padded));
}
