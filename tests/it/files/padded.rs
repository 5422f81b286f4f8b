//! Padded files: safetensors written by others read as the same batch, and come back with the advantage.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    columns, notes, packed, per_response, per_token, read, read_in, read_only, refused, tensor,
    tokens,
};
use advlab::batch::{Batch, Computed, FloatBuffer, GroupId};
use advlab::files::{AddedColumn, Dtype};
use ndarray::array;
use safetensors::tensor::Dtype as Type;

/// A batch as verl keeps it: right-padded, NaN in the padding, the mask in i64.
const VERL: &str = "token_level_rewards F32 3,4 0 1 nan nan 0 0 0 0.5 nan nan nan nan; \
    response_mask I64 3,4 1 1 0 0 1 0 1 1 0 0 0 0; \
    old_log_probs BF16 3,4 -1.5 -0.5 9 9 -2 9 -3 -0.25 9 9 9 9; input_ids I64 3,6; \
    responses I64 3,4 5 6 0 0 7 8 9 10 0 0 0 0; hashes I64 3,4 16777217; temperature F32 - 1; acc BOOL 3 1 0 0; \
    index I64 3 9223372036854775807 7 7";

fn save(path: &Path, tensors: &str) {
    fs::write(path, packed(tensors)).unwrap();
}

/// A folder with a file of these tensors, and the name of one to write beside it.
fn saved(tensors: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [path, out] = ["batch.safetensors", "out.safetensors"].map(|name| folder.path().join(name));
    save(&path, tensors);
    (folder, path, out)
}

fn f32s(values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.collect()
}

#[test]
fn verl_s_tensors_are_known_by_its_names() {
    let (_folder, path, _) = saved(VERL);
    let rollouts = read(&path);
    let (batch, layout) = (&rollouts.batch, rollouts.batch.layout());
    let names = "correct, hashes, old_logp, responses, token_reward";
    assert_eq!(columns(batch).join(", "), names);
    // Hashes would be others as f32; the precision of the batch is not theirs.
    assert_eq!(tokens(batch, "hashes")[0], 16777217.0);
    let sizes = (layout.groups(), layout.tokens(), layout.width());
    assert_eq!(sizes, (2, 5, 4));
    assert_eq!(layout.group_id(0).to_string(), i64::MAX.to_string());
    let logps = [-1.5, -0.5, -2.0, -3.0, -0.25];
    assert_eq!(tokens(batch, "old_logp"), logps);
    assert_eq!(tokens(batch, "token_reward"), [0.0, 1.0, 0.0, 0.0, 0.5]);
    assert_eq!(batch.response_column("correct").unwrap(), [1.0, 0.0, 0.0]);
    let mut notes = notes(&rollouts);
    notes.sort();
    insta::assert_snapshot!(notes.join("\n"), @"
    `input_ids` is left out: it has 6 numbers in response 0, but `response_mask` says 4 tokens
    `temperature` is left out: it is f32 [], but a column must be [3] or [3, T]
    the mask is 0 for all tokens of 1 response (the first: response 2), so no token has an advantage there
    ");
    let wide = read_in(&path, Dtype::F64).batch;
    assert!(wide.token_column("old_logp").unwrap().is_f64());
    assert_eq!(tokens(&wide, "old_logp"), logps);
}

#[test]
fn advantages_are_added_to_a_copy_that_others_can_read() {
    let (folder, path, out) = saved(VERL);
    let rollouts = read(&path);
    let before = fs::read(&path).unwrap();
    let few = per_response(&rollouts, &[0.5, -1.0, 9.0]);
    rollouts.write_advantage(&out, &few).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    let check = |expected: &[f32]| {
        let names = safetensors::SafeTensors::deserialize(&before).unwrap();
        for name in names.names() {
            assert_eq!(tensor(&out, name), tensor(&path, name));
        }
        let advantages = (Type::F32, vec![3, 4], f32s(expected));
        assert_eq!(tensor(&out, "advantages"), advantages);
    };
    check(&[0.5, 0.5, 0., 0., -1., 0., -1., -1., 0., 0., 0., 0.]);

    let mut rollouts = read(&out);
    let once = tokens(&rollouts.batch, "advantage");
    assert_eq!(once, [0.5, 0.5, -1., -1., -1.]);
    let values = FloatBuffer::F64(vec![1.0, 2.0, 3.0, 4.0, 5.0].into());
    let advantage = per_token(&rollouts, &values);
    rollouts.write_advantage(&out, &advantage).unwrap();
    let written = [1., 2., 0., 0., 3., 0., 4., 5., 0., 0., 0., 0.];
    check(&written);
    for returns in [[7.0, 8.0, 9.0], [0.5, -1.0, 2.0]] {
        let returns = per_response(&rollouts, &returns);
        let all = [
            (AddedColumn::Advantage, &advantage),
            (AddedColumn::Returns, &returns),
        ];
        rollouts.write_outputs(&out, &all, &|_, _| {}).unwrap();
        // Read again: a second time takes the place of the first.
        rollouts = read(&out);
    }
    check(&written);
    assert_eq!(tokens(&rollouts.batch, "returns"), once);

    save(&out, VERL.split_once("; acc").unwrap().0);
    let error = rollouts.write_advantage(&out, &advantage).unwrap_err();
    assert!(error.to_string().contains("changed after it was read"));
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 2, "no part of a file is left");
}

#[test]
fn a_saved_batch_reads_back_as_it_was() {
    let (_folder, path, _) = saved("a F32 1");
    let logps = [&[-0.1, f64::NAN, -0.2][..], &[], &[9.0, f64::NEG_INFINITY]];
    let batch = Batch::builder()
        .groups(["b", "a", "b"])
        .ragged_mask([&[true, false, true][..], &[], &[false, true]])
        .ragged::<f64, _>("old_logp", logps)
        .ragged::<f32, _>("values", [&[1.0, 2.0, 3.0][..], &[], &[4.0, 5.0]])
        .response("reward", vec![0.1, -0.0, 1e300])
        .response("index", vec![5.0, f64::NAN, 7.0])
        .text("completion", ["", "a \"b\"\n", "é"])
        .step(12)
        .build()
        .unwrap();
    batch.write_safetensors(&path).unwrap();
    let again = read(&path).batch;
    assert_eq!(again.step(), 12);
    assert!(again.texts().count() == 1);
    for (name, texts) in batch.texts() {
        assert_eq!(again.text(name), Some(&**texts));
    }
    assert_eq!(columns(&again), columns(&batch));
    let rows = |batch: &Batch| -> Vec<(GroupId, Vec<_>)> {
        let layout = batch.layout();
        let group = |response| layout.group_id(layout.group_of(response)).clone();
        let rows = (0..3).map(|response| (group(response), layout.runs(response).to_vec()));
        rows.collect()
    };
    assert_eq!(rows(&batch), rows(&again));
    let logps = [-0.1, -0.2, f64::NEG_INFINITY];
    assert_eq!(tokens(&again, "old_logp"), logps);
    assert_eq!(tokens(&again, "values"), [1.0, 3.0, 5.0]);
    let rewards = again.response_column("reward").unwrap();
    assert!(rewards == [0.1, 0.0, 1e300] && rewards[1].is_sign_negative());
    assert!(again.response_column("index").unwrap()[1].is_nan());
    // What stands in the padding is written as 0, whatever it was.
    let two = || Batch::builder().groups([3, 3]);
    let batch = two()
        .mask(array![[1, 0], [1, 1]].view())
        .token("logp", array![[-0.5, f64::NAN], [-1.0, -2.0]])
        .build()
        .unwrap();
    batch.write_safetensors(&path).unwrap();
    let written = [-0.5f64, 0.0, -1.0, -2.0].map(f64::to_le_bytes).concat();
    assert_eq!(tensor(&path, "logp").2, written);

    // Lengths alone need no mask, however long the responses are.
    let batch = two()
        .response("reward", vec![0.0, 1.0])
        .response("length", vec![4e9, 2.0]);
    let batch = batch.build().unwrap();
    batch.write_safetensors(&path).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1000);
    assert_eq!(read(&path).batch.layout().tokens(), 4_000_000_002);
}

#[test]
fn an_old_advantage_alone_makes_no_tokens() {
    let tensors = "index I64 2; rewards F32 2 0 1; length I64 2 9 3; advantages F32 2,4";
    let (_folder, path, out) = saved(tensors);
    let rollouts = read(&path);
    assert_eq!(rollouts.batch.layout().tokens(), 12);
    let advantages = |advantage: Computed| {
        rollouts.write_advantage(&out, &advantage).unwrap();
        let (_, shape, data) = tensor(&out, "advantages");
        (shape, data)
    };
    let response = advantages(per_response(&rollouts, &[-1.0, 1.0]));
    assert_eq!(response, (vec![2], f32s(&[-1.0, 1.0])));
    let values = FloatBuffer::F32((0..12).map(|token| token as f32).collect());
    assert_eq!(advantages(per_token(&rollouts, &values)).0, [2, 9]);
}

/// What is wrong in a tensor that nobody uses is no error, and its precision counts all the same.
#[test]
fn only_some_tensors_are_read() {
    let nan = ["nan"; 9].join(" ");
    let (_folder, path, out) = saved(&format!("{VERL}; values F64 3,4 {nan}"));
    let rollouts = read_only(&path, &["old_logp"]).unwrap();
    let logps = [-1.5, -0.5, -2.0, -3.0, -0.25];
    assert_eq!(tokens(&rollouts.batch, "old_logp"), logps);
    assert_eq!(
        columns(&rollouts.batch),
        ["correct", "old_logp", "token_reward"]
    );
    let advantage = per_response(&rollouts, &[1.0, 2.0, 3.0]);
    rollouts.write_advantage(&out, &advantage).unwrap();
    assert_eq!(tensor(&out, "advantages").0, Type::F64);
    let error = refused(&path);
    assert!(error.contains("`values`: found NaN"), "{error}");
}

/// verl's `acc` is a verdict in some runs, and a share in others.
#[test]
fn shares_in_acc_are_a_column_of_their_own() {
    for (acc, name) in [([1.0, 0.0, 0.0], "correct"), ([0.5, 0.0, 1.0], "acc")] {
        let numbers = acc.map(|value: f64| value.to_string()).join(" ");
        let tensors = VERL.replace("acc BOOL 3 1 0 0", &format!("acc F64 3 {numbers}"));
        let (_folder, path, _) = saved(&tensors);
        let batch = read(&path).batch;
        assert_eq!(batch.response_column(name).unwrap(), acc);
        assert_eq!(batch.has("correct"), name == "correct");
    }
}

/// A mask of 20 MB is read some rows at a time.
#[test]
fn large_masks_are_read_in_blocks() {
    let (rows, width) = (5000, 512);
    let cells = (0..rows).flat_map(|row| (0..width).map(move |column| column < row % width));
    let mut mask: Vec<&str> = cells.map(|counts| if counts { "1" } else { "0" }).collect();
    let tensors = |mask: &[&str]| {
        let mask = mask.join(" ");
        format!("index I64 {rows}; rewards F32 {rows}; mask I64 {rows},{width} {mask}")
    };
    let (_folder, path, _) = saved(&tensors(&mask));
    let batch = read(&path).batch;
    let length = |row| batch.layout().tokens_of(row).len();
    assert!((0..rows).all(|row| length(row) == row % width));
    mask[4900 * width + 5] = "2";
    save(&path, &tensors(&mask));
    assert!(refused(&path).contains("4900"));
}
