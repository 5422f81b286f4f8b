//! A padded batch as a trainer has it, in f32 with holes in its masks: the same as its tokens in f64 JSONL.

use std::path::{Path, PathBuf};
use std::process::Command;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

const GROUPS: usize = 8;
const SIZE: usize = 16;
const WIDTH: usize = 1024;
const RESPONSES: usize = GROUPS * SIZE;

/// A number in [0, 1) that looks random and is the same everywhere.
fn wave(row: usize, column: usize, salt: usize) -> f64 {
    let x = (row * 7919 + column * 104_729 + salt * 1_299_709) % 1_000_003;
    (x as f64 * 0.618_033_988_749_894_9).fract()
}

/// Responses of 1 to 1024 tokens; every third calls a tool, whose output does not count.
fn counts(row: usize, column: usize) -> bool {
    let length = 1 + (wave(row, 0, 1) * (WIDTH - 1) as f64) as usize;
    let tool = row.is_multiple_of(3) && (column % 64) / 16 == 2;
    // The first token counts, so that no response is empty here.
    column < length && (column == 0 || !tool)
}

fn reward(row: usize) -> f32 {
    // A few groups are all right or all wrong.
    match row / SIZE % 8 {
        0 => 1.0,
        1 => 0.0,
        _ => f32::from(wave(row, 0, 2) < 0.4),
    }
}

fn token(row: usize, column: usize, salt: usize) -> f32 {
    let old = -2.0 * wave(row, column, 10) - 0.01;
    let value = match salt {
        10 => old,
        11 => old + 0.2 * (wave(row, column, 11) - 0.5),
        _ => wave(row, column, salt),
    };
    value as f32
}

const COLUMNS: [(&str, &str, usize); 3] = [
    ("old_log_probs", "old_logp", 10),
    ("ref_log_prob", "ref_logp", 11),
    ("values", "value", 12),
];

/// As verl keeps it: padding full of what is not a number.
fn write_safetensors(path: &Path) {
    let cells = || (0..RESPONSES).flat_map(|row| (0..WIDTH).map(move |column| (row, column)));
    let mask: Vec<u8> = cells()
        .map(|(row, column)| u8::from(counts(row, column)))
        .collect();
    let rewards = (0..RESPONSES).flat_map(|row| reward(row).to_le_bytes());
    let rewards: Vec<u8> = rewards.collect();
    let index = (0..RESPONSES).flat_map(|row| ((row / SIZE) as i64).to_le_bytes());
    let index: Vec<u8> = index.collect();
    let columns = COLUMNS.map(|(name, _, salt)| {
        let cell = |(row, column)| {
            if counts(row, column) {
                token(row, column, salt)
            } else {
                f32::NAN
            }
        };
        let bytes: Vec<u8> = cells()
            .flat_map(|place| cell(place).to_le_bytes())
            .collect();
        (name, bytes)
    });
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.into(), bytes).unwrap();
    let padded = [RESPONSES, WIDTH];
    let mut tensors = vec![
        ("response_mask", view(Dtype::U8, &padded, &mask)),
        ("rewards", view(Dtype::F32, &padded[..1], &rewards)),
        ("index", view(Dtype::I64, &padded[..1], &index)),
    ];
    let columns = columns.iter();
    tensors.extend(columns.map(|(name, bytes)| (*name, view(Dtype::F32, &padded, bytes))));
    safetensors::serialize_to_file(tensors, None, path).unwrap();
}

/// The same numbers in decimal, up to the last place that counts in each row.
fn write_jsonl(path: &Path) {
    let mut text = String::new();
    for row in 0..RESPONSES {
        let last = (0..WIDTH).rev().find(|&column| counts(row, column));
        let places = || 0..last.map_or(0, |last| last + 1);
        let mask: Vec<u8> = places()
            .map(|column| u8::from(counts(row, column)))
            .collect();
        let mut line = json!({ "group": row / SIZE, "reward": reward(row), "mask": mask });
        for (_, name, salt) in COLUMNS {
            let value = |column| {
                if counts(row, column) {
                    f64::from(token(row, column, salt))
                } else {
                    0.0
                }
            };
            line[name] = places().map(value).collect();
        }
        text += &format!("{line}\n");
    }
    std::fs::write(path, text).unwrap();
}

/// Runs `apply`, as its user does, and gives the file that it wrote.
fn apply(recipe: &str, input: &Path) -> PathBuf {
    let ending = input.extension().expect("an ending").to_string_lossy();
    let output = input.with_file_name(format!("{recipe}.{ending}"));
    let ran = Command::new(env!("CARGO_BIN_EXE_advlab"))
        .arg("apply")
        .args([Path::new(recipe), input, Path::new("-o"), &output])
        .output()
        .expect("the binary runs");
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{recipe}: {err}");
    output
}

/// `advantages` [B, T] of a padded file, row by row.
fn padded_advantages(path: &Path) -> Vec<f64> {
    let bytes = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let advantages = tensors.tensor("advantages").unwrap();
    assert_eq!(advantages.shape(), [RESPONSES, WIDTH]);
    assert_eq!(advantages.dtype(), Dtype::F32);
    let number = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    advantages.data().chunks_exact(4).map(number).collect()
}

/// `advantage` of a JSONL file, padded to the same size: an array, or a number for all tokens of the response.
fn line_advantages(path: &Path) -> Vec<f64> {
    let mut advantages = vec![0.0; RESPONSES * WIDTH];
    for (row, line) in std::fs::read_to_string(path).unwrap().lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        match &line["advantage"] {
            Value::Array(array) => {
                for (column, value) in array.iter().enumerate() {
                    advantages[row * WIDTH + column] = value.as_f64().unwrap();
                }
            }
            number => {
                for column in (0..WIDTH).filter(|&column| counts(row, column)) {
                    advantages[row * WIDTH + column] = number.as_f64().unwrap();
                }
            }
        }
    }
    advantages
}

#[test]
fn padded_f32_agrees_with_jsonl_in_f64() {
    let folder = tempfile::tempdir().unwrap();
    let padded = folder.path().join("batch.safetensors");
    let lines = folder.path().join("batch.jsonl");
    write_safetensors(&padded);
    write_jsonl(&lines);
    for recipe in ["reinforce_pp", "gae", "pacs", "grpo"] {
        let narrow = padded_advantages(&apply(recipe, &padded));
        let wide = line_advantages(&apply(recipe, &lines));
        let scale = wide.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        assert!(scale > 0.1, "{recipe}: {scale}");
        let pairs = narrow.iter().zip(&wide);
        let off = pairs.fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        // A hundred roundings of f32: a response's returns add up to 1024 terms.
        assert!(off <= 1e-5 * scale, "{recipe}: {off} of {scale}");
        for place in (0..RESPONSES * WIDTH).filter(|place| !counts(place / WIDTH, place % WIDTH)) {
            assert_eq!((narrow[place], wide[place]), (0.0, 0.0), "{recipe}");
        }
        println!("{recipe}: off by {off:.1e} of {scale:.3}");
    }
}
