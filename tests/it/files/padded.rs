//! Padded files: safetensors and npz written by others read as the same batch, and come back with the advantage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use super::{
    columns, mapping, notes, packed, per_response, per_token, read, read_as, tensor, tokens,
};
use advlab::batch::{Batch, Computed, FloatBuffer};
use advlab::files::{self, Column, Dtype, ReadOptions};
use advlab::tensor::Level;
use ndarray::{Array1, Array2, array};
use ndarray_npy::{NpzReader, NpzWriter};
use safetensors::tensor::Dtype as Type;

/// A batch as verl keeps it: right-padded, NaN in the padding, the mask in i64.
const VERL: &str = "token_level_rewards F32 3,4 0 1 nan nan 0 0 0 0.5 nan nan nan nan; \
    response_mask I64 3,4 1 1 0 0 1 0 1 1 0 0 0 0; \
    old_log_probs BF16 3,4 -1.5 -0.5 9 9 -2 9 -3 -0.25 9 9 9 9; input_ids I64 3,6; \
    responses I64 3,4 5 6 0 0 7 8 9 10 0 0 0 0; temperature F32 - 1; acc BOOL 3 1 0 0; \
    index I64 3 9223372036854775807 7 7";

fn save(path: &Path, tensors: &str) {
    fs::write(path, packed(tensors)).unwrap();
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn verl_s_tensors_are_known_by_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    save(&path, VERL);
    let rollouts = read(&path);
    let batch = &rollouts.batch;
    assert_eq!(
        columns(batch),
        ["correct", "old_logp", "responses", "token_reward"]
    );
    let layout = batch.layout();
    assert_eq!(
        (layout.groups(), layout.tokens(), layout.width()),
        (2, 5, 4)
    );
    assert_eq!(layout.group_id(0).to_string(), i64::MAX.to_string());
    assert_eq!(tokens(batch, "old_logp"), [-1.5, -0.5, -2.0, -3.0, -0.25]);
    assert_eq!(tokens(batch, "token_reward"), [0.0, 1.0, 0.0, 0.0, 0.5]);
    assert_eq!(batch.response_column("correct").unwrap(), [1.0, 0.0, 0.0]);
    let mut notes = notes(&rollouts);
    notes.sort();
    assert_eq!(
        notes,
        [
            "`input_ids` is left out: it has 6 numbers in response 0, where `response_mask` says 4 tokens",
            "`temperature` is left out: it is f32 [], and columns are [3] or [3, T]",
            "the mask is 0 for all tokens of 1 response (the first: response 2): no token has an advantage there",
        ]
    );
}

#[test]
fn dtype_widens_and_narrows_token_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    save(&path, VERL);
    let wide = ReadOptions {
        dtype: Some(Dtype::F64),
        ..ReadOptions::default()
    };
    let rollouts = files::read(&path, &wide).unwrap();
    assert!(rollouts.batch.token_column("old_logp").unwrap().is_f64());
    assert_eq!(
        tokens(&rollouts.batch, "old_logp"),
        [-1.5, -0.5, -2.0, -3.0, -0.25]
    );
}

#[test]
fn advantages_are_added_to_a_copy_that_others_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    save(&path, VERL);
    let rollouts = read(&path);
    let before = fs::read(&path).unwrap();
    let out = folder.path().join("out.safetensors");
    rollouts
        .write_advantage(&out, &per_response(&rollouts, &[0.5, -1.0, 9.0]))
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    let check = |expected: &[f32]| {
        let file = fs::read(&out).unwrap();
        let file = safetensors::SafeTensors::deserialize(&file).unwrap();
        let before = safetensors::SafeTensors::deserialize(&before).unwrap();
        for (name, view) in before.iter() {
            let copy = file.tensor(name).unwrap();
            assert_eq!(
                (copy.dtype(), copy.shape(), copy.data()),
                (view.dtype(), view.shape(), view.data())
            );
        }
        let view = file.tensor("advantages").unwrap();
        assert_eq!((view.dtype(), view.shape()), (Type::F32, &[3, 4][..]));
        assert_eq!(view.data(), f32s(expected));
    };
    check(&[0.5, 0.5, 0., 0., -1., 0., -1., -1., 0., 0., 0., 0.]);

    let mut rollouts = read(&out);
    assert_eq!(
        tokens(&rollouts.batch, "advantage"),
        [0.5, 0.5, -1., -1., -1.]
    );
    let values = FloatBuffer::F64(vec![1.0, 2.0, 3.0, 4.0, 5.0].into());
    rollouts
        .write_advantage(&out, &per_token(&rollouts, &values))
        .unwrap();
    check(&[1., 2., 0., 0., 3., 0., 4., 5., 0., 0., 0., 0.]);
    for returns in [[7.0, 8.0, 9.0], [0.5, -1.0, 2.0]] {
        let returns = per_response(&rollouts, &returns);
        let advantage = per_token(&rollouts, &values);
        rollouts
            .write_outputs(
                &out,
                &[(Column::Advantage, &advantage), (Column::Returns, &returns)],
                &|_, _| {},
            )
            .unwrap();
        // Read again: a second time takes the place of the first.
        rollouts = read(&out);
    }
    check(&[1., 2., 0., 0., 3., 0., 4., 5., 0., 0., 0., 0.]);
    assert_eq!(
        tokens(&rollouts.batch, "returns"),
        [0.5, 0.5, -1., -1., -1.]
    );

    save(&out, VERL.split_once("; acc").unwrap().0);
    let error = rollouts
        .write_advantage(&out, &per_token(&rollouts, &values))
        .unwrap_err();
    assert!(
        error.to_string().contains("changed after it was read"),
        "{error}"
    );
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "no part of a file is left"
    );
}

fn write_npz(path: &Path, compressed: bool) {
    let method = match compressed {
        true => zip::CompressionMethod::Deflated,
        false => zip::CompressionMethod::Stored,
    };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    let mut npz = NpzWriter::new_with_options(File::create(path).unwrap(), options);
    let mask = array![[true, false, true], [true, true, false]];
    let logp = array![[-0.5f64, f64::NAN, -0.1], [-1.0, -2.0, f64::INFINITY]];
    // Transposed twice: in the file, columns first.
    let fortran: Array2<f64> = logp.t().as_standard_layout().into_owned().reversed_axes();
    npz.add_array("response_mask", &mask).unwrap();
    npz.add_array("old_log_probs", &fortran).unwrap();
    npz.add_array("rewards", &array![1i32, 0]).unwrap();
    npz.add_array("index", &array![4u8, 4]).unwrap();
    npz.finish().unwrap();
}

#[test]
fn npz_files_read_compressed_or_not_and_come_back() {
    for compressed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("batch.npz");
        write_npz(&path, compressed);
        let rollouts = read(&path);
        assert_eq!(rollouts.notes, []);
        assert_eq!(
            tokens(&rollouts.batch, "old_logp"),
            [-0.5, -0.1, -1.0, -2.0]
        );
        assert_eq!(
            rollouts.batch.response_column("reward").unwrap(),
            [1.0, 0.0]
        );
        assert_eq!(rollouts.batch.layout().size(Level::Group), 1);

        rollouts
            .write_advantage(&path, &per_response(&rollouts, &[0.1, -3.0]))
            .unwrap();
        let mut npz = NpzReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(npz.len(), 5);
        let advantages: Array2<f64> = npz.by_name("advantages").unwrap();
        assert_eq!(advantages, array![[0.1, 0.0, 0.1], [-3.0, -3.0, 0.0]]);
        let rewards: Array1<i32> = npz.by_name("rewards").unwrap();
        assert_eq!(rewards, array![1, 0]);
        let again = read(&path);
        again
            .write_advantage(&path, &per_response(&rollouts, &[0.0, 0.0]))
            .unwrap();
        assert_eq!(
            NpzReader::new(File::open(&path).unwrap()).unwrap().len(),
            5,
            "it is replaced"
        );
    }
}

/// An npy array as numpy writes it, of a type that `ndarray_npy` has not.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn write_zip(path: &Path, entries: &[(&str, Vec<u8>)]) {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in entries {
        zip.start_file(*name, zip::write::SimpleFileOptions::default())
            .unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn numpy_s_texts_half_floats_and_big_endian_numbers_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.npz");
    let letters = |text: &str| -> Vec<u8> {
        let mut letters: Vec<char> = text.chars().collect();
        letters.resize(3, '\0');
        letters
            .iter()
            .flat_map(|&letter| (letter as u32).to_le_bytes())
            .collect()
    };
    write_zip(
        &path,
        &[
            (
                "uid.npy",
                npy("<U3", "(2,)", &[letters("aé"), letters("xyz")].concat()),
            ),
            (
                "reward.npy",
                npy(
                    ">f4",
                    "(2,)",
                    &[0.5f32.to_be_bytes(), (-2f32).to_be_bytes()].concat(),
                ),
            ),
            (
                "length.npy",
                npy(
                    "<f2",
                    "(2,)",
                    &[
                        half::f16::from_f32(3.0).to_le_bytes(),
                        half::f16::from_f32(1.0).to_le_bytes(),
                    ]
                    .concat(),
                ),
            ),
            ("notes.txt", b"of no interest".to_vec()),
        ],
    );
    let rollouts = read_as(&path, &[mapping("group", "uid")]);
    let layout = rollouts.batch.layout();
    assert_eq!(layout.group_id(0).to_string(), "\"aé\"");
    assert_eq!(
        rollouts.batch.response_column("reward").unwrap(),
        [0.5, -2.0]
    );
    assert_eq!(layout.tokens(), 4);
    // No tensor is [B, T], so the advantage is [B].
    rollouts
        .write_advantage(&path, &per_response(&rollouts, &[1.0, 2.0]))
        .unwrap();
    let mut npz = NpzReader::new(File::open(&path).unwrap()).unwrap();
    let advantages: Array1<f32> = npz.by_name("advantages").unwrap();
    assert_eq!(advantages, array![1.0, 2.0]);
}

#[test]
fn a_saved_batch_reads_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last.safetensors");
    let batch = Batch::builder()
        .groups(["b", "a", "b"])
        .ragged_mask([&[true, false, true][..], &[], &[false, true]])
        .ragged::<f64, _>(
            "old_logp",
            [&[-0.1, f64::NAN, -0.2][..], &[], &[9.0, f64::NEG_INFINITY]],
        )
        .ragged::<f32, _>("values", [&[1.0, 2.0, 3.0][..], &[], &[4.0, 5.0]])
        .response("reward", vec![0.1, -0.0, 1e300])
        .response("index", vec![5.0, f64::NAN, 7.0])
        .text(
            "completion",
            ["", "a \"b\"\n", "é"].map(str::to_string).to_vec(),
        )
        .step(12)
        .build()
        .unwrap();
    batch.write_safetensors(&path).unwrap();
    let again = read(&path);
    assert_eq!(again.batch.step(), 12);
    assert!(again.batch.texts().eq(batch.texts()));
    assert_eq!(again.batch.texts().count(), 1);
    assert_eq!(
        again.batch.columns().collect::<Vec<_>>(),
        batch.columns().collect::<Vec<_>>()
    );
    let (old, new) = (batch.layout(), again.batch.layout());
    assert_eq!(old.groups(), new.groups());
    for response in 0..3 {
        assert_eq!(old.runs(response), new.runs(response));
        assert_eq!(
            old.group_id(old.group_of(response)),
            new.group_id(new.group_of(response))
        );
    }
    assert_eq!(
        tokens(&again.batch, "old_logp"),
        [-0.1, -0.2, f64::NEG_INFINITY]
    );
    assert_eq!(tokens(&again.batch, "values"), [1.0, 3.0, 5.0]);
    let bits = |batch: &Batch, name: &str| -> Vec<u64> {
        batch
            .response_column(name)
            .unwrap()
            .iter()
            .map(|value| value.to_bits())
            .collect()
    };
    for name in ["reward", "index"] {
        assert_eq!(bits(&batch, name), bits(&again.batch, name));
    }

    // What stands in the padding is written as 0, whatever it was.
    let batch = Batch::builder()
        .groups([3, 3])
        .mask(array![[1, 0], [1, 1]].view())
        .token("logp", array![[-0.5, f64::NAN], [-1.0, -2.0]])
        .build()
        .unwrap();
    batch.write_safetensors(&path).unwrap();
    let written = [-0.5f64, 0.0, -1.0, -2.0].map(f64::to_le_bytes).concat();
    assert_eq!(tensor(&path, "logp").2, written);

    // Lengths alone need no mask, however long the responses are.
    let batch = Batch::builder()
        .groups([3, 3])
        .response("reward", vec![0.0, 1.0])
        .response("length", vec![4e9, 2.0])
        .build()
        .unwrap();
    batch.write_safetensors(&path).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1000);
    assert_eq!(read(&path).batch.layout().tokens(), 4_000_000_002);
}

#[test]
fn an_old_advantage_alone_makes_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    let tensors = "index I64 2; rewards F32 2 0 1; length I64 2 9 3; advantages F32 2,4";
    save(&path, tensors);
    let rollouts = read(&path);
    assert_eq!(rollouts.batch.layout().tokens(), 12);
    let out = folder.path().join("out.safetensors");
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

/// Hashes would be others as f32; the precision of the batch is not theirs.
#[test]
fn integers_are_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    save(&path, &format!("{VERL}; hashes I64 3,4 16777217"));
    let rollouts = read(&path);
    assert_eq!(tokens(&rollouts.batch, "hashes")[0], 16777217.0);
    let advantage = per_response(&rollouts, &[1.0, 2.0, 3.0]);
    rollouts.write_advantage(&path, &advantage).unwrap();
    assert_eq!(tensor(&path, "advantages").0, Type::F32);
}

/// What is wrong in a tensor that nobody uses is no error, and its precision counts all the same.
#[test]
fn tensors_are_read_when_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verl.safetensors");
    save(
        &path,
        &format!("{VERL}; values F64 3,4 nan nan nan nan nan nan nan nan nan"),
    );
    let options = ReadOptions {
        defer: Some(&BTreeSet::new()),
        ..ReadOptions::default()
    };
    let rollouts = files::read(&path, &options).unwrap();
    assert_eq!(
        tokens(&rollouts.batch, "old_logp"),
        [-1.5, -0.5, -2.0, -3.0, -0.25]
    );
    assert_eq!(rollouts.late_notes().unwrap(), []);
    let out = folder.path().join("out.safetensors");
    let advantage = per_response(&rollouts, &[1.0, 2.0, 3.0]);
    rollouts.write_advantage(&out, &advantage).unwrap();
    assert_eq!(tensor(&out, "advantages").0, Type::F64);
    assert!(tokens(&rollouts.batch, "value")[0].is_nan());
    let error = rollouts.late_notes().unwrap_err().to_string();
    assert!(error.contains("`values`: found NaN"), "{error}");
}

/// verl's `acc` is a verdict in some runs, and a share in others.
#[test]
fn shares_in_acc_are_a_column_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    for (acc, correct) in [([1.0, 0.0, 0.0], true), ([0.5, 0.0, 1.0], false)] {
        let [a, b, c] = acc;
        save(
            &path,
            &VERL.replace("acc BOOL 3 1 0 0", &format!("acc F64 3 {a} {b} {c}")),
        );
        let batch = read(&path).batch;
        let name = if correct { "correct" } else { "acc" };
        let found = batch.response_column(name).unwrap();
        assert_eq!(found, acc);
        assert_eq!(batch.has("correct"), correct);
    }
}

/// A mask of 20 MB is read some rows at a time.
#[test]
fn large_masks_are_read_in_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.safetensors");
    let (rows, width) = (5000, 512);
    let mut mask: Vec<&str> = Vec::with_capacity(rows * width);
    for row in 0..rows {
        mask.extend((0..width).map(|column| if column < row % width { "1" } else { "0" }));
    }
    let save = |mask: &[&str]| {
        let mask = mask.join(" ");
        let spec = format!("index I64 {rows}; rewards F32 {rows}; mask I64 {rows},{width} {mask}");
        save(&path, &spec);
    };
    save(&mask);
    let batch = read(&path).batch;
    for row in 0..rows {
        assert_eq!(batch.layout().tokens_of(row).len(), row % width, "{row}");
    }
    mask[4900 * width + 5] = "2";
    save(&mask);
    let error = files::read(&path, &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("4900"), "{error}");
}
