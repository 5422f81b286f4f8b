//! Properties of files: what is written reads back the same in every format.

use std::env;
use std::fs;
use std::path::Path;

use super::per_token;
use crate::parquet_rows;
use advlab::batch::{Batch, FloatBuffer, GroupId};
use proptest::prelude::*;

/// So many cases in CI, and more where somebody asks for them.
fn cases(few: u32) -> ProptestConfig {
    let asked = env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(few))
}

/// A ragged batch with holes, as numbers: what each file is written from, and compared with.
#[derive(Clone, Debug)]
struct Rows {
    groups: Vec<i64>,
    rewards: Vec<f64>,
    masks: Vec<Vec<bool>>,
    logps: Vec<Vec<f64>>,
}

/// Numbers over all magnitudes, among them those that are hard to print.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        -1.0f64..1.0,
        any::<f64>().prop_filter("finite", |value| value.is_finite()),
        Just(0.1),
        Just(-0.0),
        Just(f64::MIN_POSITIVE / 3.0),
    ]
}

fn rows() -> impl Strategy<Value = Rows> {
    let row = prop::collection::vec((any::<bool>(), number()), 0..6);
    let response = (-2i64..3, number(), row);
    prop::collection::vec(response, 1..8).prop_map(|responses| {
        let split = |row: &[(bool, f64)]| row.iter().copied().unzip();
        let (masks, logps) = responses.iter().map(|(_, _, row)| split(row)).unzip();
        Rows {
            groups: responses.iter().map(|(group, ..)| *group).collect(),
            rewards: responses.iter().map(|(_, reward, _)| *reward).collect(),
            masks,
            logps,
        }
    })
}

impl Rows {
    fn batch(&self) -> Batch {
        Batch::builder()
            .groups(self.groups.clone())
            .response("reward", self.rewards.clone())
            .ragged_mask(&self.masks)
            .ragged::<f64, _>("old_logp", &self.logps)
            .build()
            .unwrap()
    }

    /// The log-prob of a token; what the mask does not count is NaN, as a trainer's padding may be.
    fn logp(&self, row: usize, column: usize) -> f64 {
        match self.masks[row].get(column) {
            Some(true) => self.logps[row][column],
            _ => f64::NAN,
        }
    }

    /// One line a response.
    fn jsonl(&self) -> String {
        let line = |row: usize| {
            let mask: Vec<u8> = self.masks[row]
                .iter()
                .map(|&counts| u8::from(counts))
                .collect();
            let logps = (0..mask.len()).map(|column| match self.logp(row, column) {
                value if value.is_nan() => "NaN".to_string(),
                value => serde_json::to_string(&value).unwrap(),
            });
            let logps = logps.collect::<Vec<_>>().join(",");
            let (group, reward) = (self.groups[row], self.rewards[row]);
            format!(
                "{{\"group\": {group}, \"reward\": {reward:e}, \"mask\": {mask:?}, \"old_logp\": [{logps}]}}\n"
            )
        };
        (0..self.groups.len()).map(line).collect()
    }
}

/// Everything that a batch holds, comparable to the bit: groups, tokens that count, columns.
fn contents(batch: &Batch) -> impl PartialEq + std::fmt::Debug + use<> {
    let layout = batch.layout();
    let logps = batch.token_column("old_logp").unwrap();
    assert!(logps.is_f64(), "f64 stays f64");
    let row = |response| -> (GroupId, Vec<_>, Vec<u64>) {
        let values = logps.of_response(layout, response).map(f64::to_bits);
        let group = layout.group_id(layout.group_of(response)).clone();
        (group, layout.runs(response).to_vec(), values.collect())
    };
    let rows: Vec<_> = (0..layout.responses()).map(row).collect();
    let rewards = batch.response_column("reward").unwrap().iter();
    let rewards: Vec<u64> = rewards.map(|value| value.to_bits()).collect();
    let columns: Vec<String> = batch.columns().map(str::to_string).collect();
    (rows, rewards, columns)
}

fn read(path: &Path) -> Batch {
    super::read(path).batch
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn every_format_gives_the_same_batch(rows in rows()) {
        let folder = tempfile::tempdir().unwrap();
        let [jsonl, parquet, saved] =
            ["a.jsonl", "a.parquet", "a.safetensors"].map(|name| folder.path().join(name));
        let batch = rows.batch();
        fs::write(&jsonl, rows.jsonl()).unwrap();
        parquet_rows::write(&parquet, &rows.jsonl()).unwrap();
        batch.write_safetensors(&saved).unwrap();
        for path in [&jsonl, &parquet, &saved] {
            prop_assert_eq!(contents(&read(path)), contents(&batch));
        }
        read(&parquet).write_safetensors(&saved).unwrap();
        prop_assert_eq!(contents(&read(&saved)), contents(&batch));
    }

    #[test]
    fn an_advantage_reads_back_to_the_bit_and_the_rest_stays(rows in rows(), seed in number(), is_f64: bool) {
        let folder = tempfile::tempdir().unwrap();
        let [path, parquet] = ["a.jsonl", "a.parquet"].map(|name| folder.path().join(name));
        fs::write(&path, rows.jsonl()).unwrap();
        parquet_rows::write(&parquet, &rows.jsonl()).unwrap();
        for path in [&path, &parquet] {
            let rollouts = super::read(path);
            let tokens = rollouts.batch.layout().tokens();
            let values = (0..tokens).map(|token| seed / (token + 1) as f64);
            let values = match is_f64 {
                true => FloatBuffer::F64(values.collect()),
                false => FloatBuffer::F32(values.map(|x| (x as f32).clamp(f32::MIN, f32::MAX)).collect()),
            };
            rollouts.write_advantage(path, &per_token(&rollouts, &values)).unwrap();
            let again = super::read_as(path, &[super::mapping("old_advantage", "advantage")]);
            let read = super::tokens(&again.batch, "old_advantage");
            // JSON has the digits that an f32 needs, and parquet its bits.
            let is_same = |(read, written): (f64, f64)| match is_f64 || path == &parquet {
                true => read.to_bits() == written.to_bits(),
                false => (read as f32).to_bits() == (written as f32).to_bits(),
            };
            prop_assert!(read.into_iter().zip(values.iter()).all(is_same));
        }
        let text = fs::read_to_string(&path).unwrap();
        for (old, new) in rows.jsonl().lines().zip(text.lines()) {
            let kept = new.starts_with(old.trim_end_matches('}'));
            prop_assert!(kept, "{}", new);
        }
    }
}
