//! Properties of files: what is written reads back the same in every format, and no damage makes a reader panic.

use std::env;
use std::fs::{self, File};
use std::path::Path;

use super::{per_response, per_token};
use advlab::batch::{Batch, FloatBuffer, GroupId};
use advlab::files::{self, ReadOptions};
use ndarray::{Array1, Array2};
use ndarray_npy::NpzWriter;
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

    fn npz(&self, path: &Path) {
        let width = self.masks.iter().map(Vec::len).max().unwrap_or(0);
        let shape = (self.groups.len(), width);
        let logp = Array2::from_shape_fn(shape, |(row, column)| self.logp(row, column));
        let mut npz = NpzWriter::new(File::create(path).unwrap());
        let (groups, rewards) = (self.groups.clone(), self.rewards.clone());
        npz.add_array("index", &Array1::from(groups)).unwrap();
        npz.add_array("rewards", &Array1::from(rewards)).unwrap();
        let mask = logp.mapv(|value| !value.is_nan());
        npz.add_array("response_mask", &mask).unwrap();
        npz.add_array("old_log_probs", &logp).unwrap();
        npz.finish().unwrap();
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
        let [jsonl, npz, saved] =
            ["a.jsonl", "a.npz", "a.safetensors"].map(|name| folder.path().join(name));
        let batch = rows.batch();
        fs::write(&jsonl, rows.jsonl()).unwrap();
        rows.npz(&npz);
        batch.write_safetensors(&saved).unwrap();
        for path in [&jsonl, &npz, &saved] {
            prop_assert_eq!(contents(&read(path)), contents(&batch));
        }
        read(&npz).write_safetensors(&saved).unwrap();
        prop_assert_eq!(contents(&read(&saved)), contents(&batch));
    }

    #[test]
    fn an_advantage_reads_back_to_the_bit_and_the_rest_stays(rows in rows(), seed in number()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        fs::write(&path, rows.jsonl()).unwrap();
        let rollouts = super::read(&path);
        let tokens = rollouts.batch.layout().tokens();
        let values: Vec<f64> = (0..tokens).map(|token| seed / (token + 1) as f64).collect();
        let values = FloatBuffer::F64(values.into());
        rollouts.write_advantage(&path, &per_token(&rollouts, &values)).unwrap();
        let again = super::read_as(&path, &[super::mapping("old_advantage", "advantage")]);
        let read = super::tokens(&again.batch, "old_advantage");
        prop_assert!(read.into_iter().map(f64::to_bits).eq(values.iter().map(f64::to_bits)));
        let text = fs::read_to_string(&path).unwrap();
        for (old, new) in rows.jsonl().lines().zip(text.lines()) {
            let kept = new.starts_with(old.trim_end_matches('}'));
            prop_assert!(kept, "{}", new);
        }
    }
}

/// Lines with all that the reader of JSONL looks into.
const ODD_LINES: &str = r#"{"gr\u006fup":"a","reward":1,"token_reward":[0,1],"mask":[1,0],"step":3,"mine":[1,NaN]}
{"group":"b\u00e9","reward":0.5,"length":2,"completion":[{"role":"a","content":"b c"}],"ids":[1,2]}
{"group":"a","reward":true,"completion":"d \n\ud83d\ude00","errors":[],"advantage":[0.0]}
"#;

/// A piece of a file that stands a second time somewhere in it: its place, its length, and the place of its copy.
type Piece = (prop::sample::Index, usize, prop::sample::Index);

/// Reads a file that is damaged: any answer will do but a panic or a giant allocation.
fn survives(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    if let Ok(rollouts) = files::read(&path, &ReadOptions::default()) {
        let zeros = vec![0.0; rollouts.batch.layout().responses()];
        let advantage = per_response(&rollouts, &zeros);
        // A length may be damaged into billions of tokens, which is a batch all the same, but no padded file.
        let _ = rollouts.write_advantage(folder.join(format!("out-{name}")), &advantage);
    }
}

/// A text with one of its numbers replaced.
fn claim(text: &str, which: prop::sample::Index, number: &str) -> String {
    let is_digit = |at: &usize| text.as_bytes()[*at].is_ascii_digit();
    let starts = (0..text.len()).filter(|at| is_digit(at) && (*at == 0 || !is_digit(&(at - 1))));
    let starts: Vec<usize> = starts.collect();
    let start = starts[which.index(starts.len())];
    let end = (start..text.len()).find(|at| !is_digit(at));
    format!(
        "{}{number}{}",
        &text[..start],
        &text[end.unwrap_or(text.len())..]
    )
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_number_that_claims_too_much_never_panics(
        which in prop::collection::vec(any::<prop::sample::Index>(), 1..3),
        number in prop::sample::select(vec![
            "0", "-1", "1.5", "255", "4294967295", "4294967296", "1152921504606846976",
            "9223372036854775807", "18446744073709551615", "99999999999999999999", "1e300",
        ]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let claimed = |text: &str| {
            which.iter().fold(text.to_string(), |text, &which| claim(&text, which, number))
        };
        survives(folder.path(), "a.jsonl", claimed(ODD_LINES).as_bytes());
        let lengths = "{\"group\":1,\"reward\":1,\"length\":3,\"step\":2}\n";
        survives(folder.path(), "b.jsonl", claimed(lengths).as_bytes());
        let path = folder.path().join("valid.safetensors");
        let batch = Batch::builder().groups(["a", "b"]).response("reward", vec![0.0, 1.0]);
        let batch = batch.ragged::<f64, _>("old_logp", [vec![0.5], vec![0.5, 1.0]]);
        batch.build().unwrap().write_safetensors(&path).unwrap();
        let valid = fs::read(&path).unwrap();
        let (size, rest) = valid.split_at(8);
        let (header, data) = rest.split_at(u64::from_le_bytes(size.try_into().unwrap()) as usize);
        let header = claimed(std::str::from_utf8(header).unwrap());
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        survives(folder.path(), "a.safetensors", &bytes);
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_damaged_file_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece in prop::option::of(any::<Piece>().prop_map(|(from, length, to)| (from, 1 + length % 39, to))),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let damaged = |valid: &[u8]| {
            let mut bytes = valid.to_vec();
            if let Some((from, length, to)) = &piece {
                let from = from.index(bytes.len());
                let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
                let to = to.index(bytes.len());
                bytes.splice(to..to, piece);
            }
            for (at, byte) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
            bytes
        };
        let folder = tempfile::tempdir().unwrap();
        let rows = Rows {
            groups: vec![3, -1, 3],
            rewards: vec![0.5, 1.0, 0.25],
            masks: vec![vec![true, false, true], vec![], vec![true, true]],
            logps: vec![vec![-0.5, 0.0, -1.5e-3], vec![], vec![-0.25, -2.0]],
        };
        let survives = |name: &str, valid: &[u8]| survives(folder.path(), name, &damaged(valid));
        survives("a.jsonl", rows.jsonl().as_bytes());
        survives("b.jsonl", ODD_LINES.as_bytes());
        let path = folder.path().join("valid.safetensors");
        rows.batch().write_safetensors(&path).unwrap();
        survives("a.safetensors", &fs::read(&path).unwrap());
        let path = folder.path().join("valid.npz");
        rows.npz(&path);
        survives("a.npz", &fs::read(&path).unwrap());
        let dumps = Path::new(crate::ROOT).join("tests/data/dumps");
        for dump in [
            "verl_9.jsonl.gz", "verl_9.jsonl.zst", "trl_plain.parquet", "trl/completions_00001.parquet",
            "roll/rollout_dump_data.step_3.jsonl", "nemo_rl/train_data_step1.jsonl", "areal/1/3.jsonl",
            "skyrl/global_step_5_evals/math.jsonl", "prime_rl/step_41/train/all/traces.jsonl",
        ] {
            survives(&dump.replace('/', "-"), &fs::read(dumps.join(dump)).unwrap());
        }
    }
}
