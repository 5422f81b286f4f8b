//! The gallery of notes: odd files that read all the same, what becomes of each, and what is said of it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{bytes, mapping, packed, per_response, per_token, read, read_as, read_in, tensor};
use advlab::batch::FloatBuffer;
use advlab::diagnostic::Diagnostics;
use advlab::files::{Dtype, Mapping, Rollouts};
use safetensors::tensor::Dtype as Type;

use crate::cases::{self, Case};

/// The columns, the number of tokens of each response, and the notes.
fn told(rollouts: &Rollouts) -> String {
    let batch = &rollouts.batch;
    let columns: Vec<&str> = batch.columns().collect();
    let layout = batch.layout();
    let tokens = (0..layout.responses()).map(|response| layout.tokens_of(response).len());
    let tokens: Vec<usize> = tokens.collect();
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
    let read_case = |case: &Case, map: &[Mapping]| {
        let path = folder.path().join(&case.name);
        fs::write(&path, &case.text).unwrap();
        read_as(&path, map)
    };
    let plain = lines.iter();
    let plain = plain.map(|case| (case.name.as_str(), told(&read_case(case, &[]))));
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

/// Padded files that read all the same, by their names.
const TENSORS: &str = "
reward_under_the_mask: index I64 2; token_level_rewards F32 2,3 0 1 nan 0 0 1; response_mask U8 2,3 1 1 0 1 1 0
attention_mask_of_responses: index I64 2; rewards F64 2; old_log_probs F32 2,2 -1 -1 -1 -1; attention_mask U8 2,2 1 1 1 0
attention_mask_of_prompts_too: index I64 2; rewards F64 2; old_log_probs F32 2,2 -1 -1 -1 -1; attention_mask U8 2,5 1 1 1 1 1
no_mask_at_all: index I64 2; rewards F64 2; old_log_probs F32 2,2 -1 -1 -1 -1
a_tensor_named_groups: index I64 2; rewards F64 2; groups F64 2 1 2";

#[test]
fn every_odd_tensor_is_told_what_becomes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let cases = TENSORS.lines().filter_map(|line| line.split_once(": "));
    let said = cases.map(|(name, tensors)| {
        fs::write(&path, packed(tensors)).unwrap();
        (name, told(&read(&path)))
    });
    cases::snapshot("../gallery/files", "odd_tensors", said);
}

#[test]
fn a_mask_can_be_chosen_among_two() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let masks = "response_mask U8 2,2 1 1 1 1; mask U8 2,2 1 0 1 0";
    let tensors = format!("index I64 2; rewards F64 2; {masks}");
    fs::write(&path, packed(&tensors)).unwrap();
    for (theirs, tokens) in [("response_mask", 4), ("mask", 2)] {
        let rollouts = read_as(&path, &[mapping("mask", theirs)]);
        assert_eq!(rollouts.batch.layout().tokens(), tokens);
        assert_eq!(rollouts.notes.len(), 1, "the other one is left out");
    }
}

#[test]
fn rewards_in_f64_give_advantages_in_f64() {
    let folder = tempfile::tempdir().unwrap();
    let [path, out] = ["a.safetensors", "out.safetensors"].map(|name| folder.path().join(name));
    let tensors = "index I64 2; rewards F64 2 0.1 1e39; response_mask U8 2,2 1 1 1 0";
    let written = || {
        let (dtype, _, data) = tensor(&out, "advantages");
        (dtype, data)
    };
    let wide = (Type::F64, bytes(Type::F64, 4, &["0.1", "0.1", "1e39", "0"]));
    let said = |error: Diagnostics| {
        let error = error.to_string();
        error.split_once("out.safetensors: ").unwrap().1.to_string()
    };
    fs::write(&path, packed(tensors)).unwrap();
    let rollouts = read(&path);
    let advantage = per_response(&rollouts, &[0.1, 1e39]);
    rollouts.write_advantage(&out, &advantage).unwrap();
    assert_eq!(written(), wide);

    // The precision that was asked for comes first.
    fs::remove_file(&out).unwrap();
    let narrow = read_in(&path, Dtype::F32);
    let error = said(narrow.write_advantage(&out, &advantage).unwrap_err());
    insta::assert_snapshot!(error, @"the advantage of response 1 is 1000000000000000000000000000000000000000, which is too large for f32 (`--dtype f64` writes f64); nothing was written");
    assert!(!out.exists());

    // Token columns say it where there are any.
    let logp = "old_log_probs F32 2,2 -1 -1 -1 -1";
    fs::write(&path, packed(&format!("{tensors}; {logp}"))).unwrap();
    let rollouts = read(&path);
    let few = per_response(&rollouts, &[0.5, 1.0]);
    rollouts.write_advantage(&out, &few).unwrap();
    let narrow = bytes(Type::F32, 4, &["0.5", "0.5", "1", "0"]);
    assert_eq!(written(), (Type::F32, narrow));
    let nan = FloatBuffer::F64(vec![0.0, 1.0, f64::NAN].into());
    let nan = per_token(&rollouts, &nan);
    let error = said(rollouts.write_advantage(&out, &nan).unwrap_err());
    insta::assert_snapshot!(error, @"the advantage of response 1, token 0, is NaN; nothing was written");
    let wider = read_in(&path, Dtype::F64);
    wider.write_advantage(&out, &advantage).unwrap();
    assert_eq!(written(), wide);
}
