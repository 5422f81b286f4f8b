//! Padded files: safetensors and npz written by others read as the same batch, and come back with the advantage.

use std::fs::{self, File};
use std::path::Path;

use super::{per_response, per_token};
use advlab::batch::{Batch, Computed, FloatBuffer, TokenValues};
use advlab::files::{self, Column, Dtype, Mapping, ReadOptions, Rollouts};
use advlab::tensor::Level;
use half::bf16;
use ndarray::{Array1, Array2, array};
use ndarray_npy::{NpzReader, NpzWriter};
use safetensors::tensor::{Dtype as Type, TensorView};

/// Name, type, shape and bytes.
type Raw = (&'static str, Type, Vec<usize>, Vec<u8>);

fn save(path: &Path, tensors: &[Raw]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (
            *name,
            TensorView::new(*dtype, shape.clone(), bytes).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn bytes<T: Copy, const SIZE: usize>(values: &[T], bytes: fn(T) -> [u8; SIZE]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    bytes(values, f32::to_le_bytes)
}

fn i64s(values: &[i64]) -> Vec<u8> {
    bytes(values, i64::to_le_bytes)
}

/// A batch as verl keeps it: right-padded, NaN in the padding, the mask in i64.
fn verl() -> Vec<Raw> {
    let nan = f32::NAN;
    vec![
        (
            "token_level_rewards",
            Type::F32,
            vec![3, 4],
            f32s(&[0., 1., nan, nan, 0., 0., 0., 0.5, nan, nan, nan, nan]),
        ),
        (
            "response_mask",
            Type::I64,
            vec![3, 4],
            i64s(&[1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0]),
        ),
        (
            "old_log_probs",
            Type::BF16,
            vec![3, 4],
            bytes(
                &[-1.5, -0.5, 9., 9., -2., 9., -3., -0.25, 9., 9., 9., 9.].map(bf16::from_f32),
                bf16::to_le_bytes,
            ),
        ),
        ("input_ids", Type::I64, vec![3, 6], i64s(&[0; 18])),
        (
            "responses",
            Type::I64,
            vec![3, 4],
            i64s(&[5, 6, 0, 0, 7, 8, 9, 10, 0, 0, 0, 0]),
        ),
        ("temperature", Type::F32, vec![], f32s(&[1.0])),
        ("acc", Type::BOOL, vec![3], vec![1, 0, 0]),
        ("index", Type::I64, vec![3], i64s(&[i64::MAX, 7, 7])),
    ]
}

fn read(path: &Path) -> Rollouts {
    files::read(path, &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The values of a token column that count, widened.
fn tokens(batch: &Batch, name: &str) -> Vec<f64> {
    let layout = batch.layout();
    let mut values = Vec::new();
    for response in 0..layout.responses() {
        for column in layout.runs(response).iter().flat_map(|run| run.columns()) {
            values.push(match batch.token_column(name).unwrap() {
                TokenValues::F16(array) => array.get(response, column).into(),
                TokenValues::Bf16(array) => array.get(response, column).into(),
                TokenValues::F32(array) => f64::from(array.get(response, column)),
                TokenValues::F64(array) => array.get(response, column),
                _ => panic!("a padded file gives padded columns"),
            });
        }
    }
    values
}

#[test]
fn verl_s_tensors_are_known_by_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    save(&path, &verl());
    let rollouts = read(&path);
    let batch = &rollouts.batch;
    let columns: Vec<&str> = batch.columns().collect();
    assert_eq!(
        columns,
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
    let mut notes: Vec<String> = rollouts.notes.iter().map(ToString::to_string).collect();
    notes.sort();
    assert_eq!(
        notes,
        [
            "`input_ids` is left out: it is [3, 6], and columns are [3] or [3, 4]",
            "`temperature` is left out: it is [], and columns are [3] or [3, 4]",
            "the mask is 0 for all tokens of 1 response (the first: response 2): no token has an advantage there",
        ]
    );
}

#[test]
fn dtype_widens_and_narrows_token_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    save(&path, &verl());
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
    save(&path, &verl());
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
        for (name, dtype, shape, bytes) in verl() {
            let view = file.tensor(name).unwrap();
            assert_eq!(
                (view.dtype(), view.shape(), view.data()),
                (dtype, &*shape, &*bytes)
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

    save(&out, &verl()[..7]);
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
    let map = [Mapping {
        ours: "group".to_string(),
        theirs: "uid".to_string(),
    }];
    let options = ReadOptions {
        map: &map,
        ..ReadOptions::default()
    };
    let rollouts = files::read(&path, &options).unwrap();
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
    let file = fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    let written = file.tensor("logp").unwrap().data().to_vec();
    assert_eq!(
        written,
        [-0.5f64, 0.0, -1.0, -2.0].map(f64::to_le_bytes).concat()
    );

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
    save(
        &path,
        &[
            ("index", Type::I64, vec![2], i64s(&[0, 0])),
            ("rewards", Type::F32, vec![2], f32s(&[0.0, 1.0])),
            ("length", Type::I64, vec![2], i64s(&[9, 3])),
            ("advantages", Type::F32, vec![2, 4], f32s(&[0.0; 8])),
        ],
    );
    let rollouts = read(&path);
    assert_eq!(rollouts.batch.layout().tokens(), 12);
    let out = folder.path().join("out.safetensors");
    let advantages = |advantage: Computed| {
        rollouts.write_advantage(&out, &advantage).unwrap();
        let file = fs::read(&out).unwrap();
        let file = safetensors::SafeTensors::deserialize(&file).unwrap();
        let view = file.tensor("advantages").unwrap();
        (view.shape().to_vec(), view.data().to_vec())
    };
    let response = advantages(per_response(&rollouts, &[-1.0, 1.0]));
    assert_eq!(response, (vec![2], f32s(&[-1.0, 1.0])));
    let values = FloatBuffer::F32((0..12).map(|token| token as f32).collect());
    assert_eq!(advantages(per_token(&rollouts, &values)).0, [2, 9]);
}

/// Ids of tokens are f32 as ever; hashes would be others.
#[test]
fn integers_that_are_no_f32_are_f64() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    let hash = (1 << 24) + 1;
    let mut tensors = verl();
    let hashes = i64s(&[hash, 6, 0, 0, 7, 8, 9, 10, 0, 0, 0, 0]);
    tensors.push(("hashes", Type::I64, vec![3, 4], hashes));
    save(&path, &tensors);
    let batch = read(&path).batch;
    assert!(!batch.token_column("responses").unwrap().is_f64());
    assert_eq!(tokens(&batch, "hashes")[0], hash as f64);
}

#[test]
fn of_token_columns_only_those_that_are_asked_for_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("verl.safetensors");
    let mut tensors = verl();
    // Nobody reads it: its NaN is no error, and its precision counts all the same.
    let values = bytes(&[f64::NAN; 12], f64::to_le_bytes);
    tensors.push(("values", Type::F64, vec![3, 4], values));
    save(&path, &tensors);
    let read = |names: &[&str]| {
        let columns: Vec<String> = names.iter().map(ToString::to_string).collect();
        let options = ReadOptions {
            columns: Some(&columns),
            ..ReadOptions::default()
        };
        let rollouts = files::read(&path, &options).unwrap();
        let names = rollouts.batch.columns().collect::<Vec<_>>().join(" ");
        assert!(rollouts.is_partial());
        (names, rollouts)
    };
    // The reward follows from `token_reward` alone, and `logp` from `old_logp`.
    assert_eq!(read(&[]).0, "correct token_reward");
    assert_eq!(read(&["logp"]).0, "correct old_logp token_reward");
    let (_, rollouts) = read(&["old_logp", "advantage"]);
    let out = folder.path().join("out.safetensors");
    let advantage = per_response(&rollouts, &[1.0, 2.0, 3.0]);
    rollouts.write_advantage(&out, &advantage).unwrap();
    let file = fs::read(&out).unwrap();
    let file = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(file.tensor("advantages").unwrap().dtype(), Type::F64);
    assert_eq!(file.len(), tensors.len() + 1);
}

/// verl's `acc` is a verdict in some runs, and a share in others.
#[test]
fn shares_in_acc_are_a_column_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch.safetensors");
    for (acc, correct) in [([1.0, 0.0, 0.0], true), ([0.5, 0.0, 1.0], false)] {
        let mut tensors = verl();
        tensors[6] = ("acc", Type::F32, vec![3], f32s(&acc));
        save(&path, &tensors);
        let batch = read(&path).batch;
        let name = if correct { "correct" } else { "acc" };
        let found = batch.response_column(name).unwrap();
        assert_eq!(found, acc.map(f64::from));
        assert_eq!(batch.has("correct"), correct);
    }
}
