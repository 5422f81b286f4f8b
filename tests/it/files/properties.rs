//! Properties of files: what is written reads back the same in every format, and no damage makes a reader panic.

use std::env;
use std::fs::{self, File};
use std::path::Path;

use super::{per_response, per_token};
use advlab::batch::{Batch, FloatBuffer, GroupId, TokenValues};
use advlab::files::{self, ReadOptions};
use ndarray::{Array1, Array2};
use ndarray_npy::NpzWriter;
use proptest::prelude::*;

/// So many cases in CI, and more where somebody asks for them.
fn cases(few: u32) -> ProptestConfig {
    let asked = env::var("PROPTEST_CASES").ok();
    ProptestConfig::with_cases(asked.and_then(|cases| cases.parse().ok()).unwrap_or(few))
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

    /// One line a response; what the mask does not count is NaN, as a trainer's padding may be.
    fn jsonl(&self) -> String {
        let mut text = String::new();
        for (at, logps) in self.logps.iter().enumerate() {
            let mask: Vec<u8> = self.masks[at]
                .iter()
                .map(|&counts| u8::from(counts))
                .collect();
            let logps = logps
                .iter()
                .zip(&self.masks[at])
                .map(|(value, counts)| match counts {
                    true => serde_json::to_string(value).unwrap(),
                    false => "NaN".to_string(),
                });
            let logps: Vec<String> = logps.collect();
            text += &format!(
                "{{\"group\": {}, \"reward\": {:e}, \"mask\": {mask:?}, \"old_logp\": [{}]}}\n",
                self.groups[at],
                self.rewards[at],
                logps.join(",")
            );
        }
        text
    }

    fn npz(&self, path: &Path) {
        let width = self.masks.iter().map(Vec::len).max().unwrap_or(0);
        let shape = (self.groups.len(), width);
        let mask = Array2::from_shape_fn(shape, |(row, column)| {
            self.masks[row].get(column).is_some_and(|&counts| counts)
        });
        let logp = Array2::from_shape_fn(shape, |(row, column)| match mask[[row, column]] {
            true => self.logps[row][column],
            false => f64::NAN,
        });
        let mut npz = NpzWriter::new(File::create(path).unwrap());
        npz.add_array("index", &Array1::from(self.groups.clone()))
            .unwrap();
        npz.add_array("rewards", &Array1::from(self.rewards.clone()))
            .unwrap();
        npz.add_array("response_mask", &mask).unwrap();
        npz.add_array("old_log_probs", &logp).unwrap();
        npz.finish().unwrap();
    }
}

/// Everything that a batch holds, comparable to the bit: groups, tokens that count, columns.
fn contents(batch: &Batch) -> impl PartialEq + std::fmt::Debug + use<> {
    let layout = batch.layout();
    let groups: Vec<GroupId> = (0..layout.responses())
        .map(|response| layout.group_id(layout.group_of(response)).clone())
        .collect();
    let runs: Vec<_> = (0..layout.responses())
        .map(|response| layout.runs(response).to_vec())
        .collect();
    let rewards: Vec<u64> = batch
        .response_column("reward")
        .unwrap()
        .iter()
        .map(|value| value.to_bits())
        .collect();
    let logps: Vec<u64> = match batch.token_column("old_logp").unwrap() {
        TokenValues::Compact(values) => values.iter().map(f64::to_bits).collect(),
        TokenValues::F64(array) => (0..layout.responses())
            .flat_map(|response| layout.runs(response).iter().map(move |run| (response, run)))
            .flat_map(|(response, run)| run.columns().map(move |column| (response, column)))
            .map(|(response, column)| array.get(response, column).to_bits())
            .collect(),
        _ => panic!("f64 stays f64"),
    };
    let columns: Vec<String> = batch.columns().map(str::to_string).collect();
    (groups, runs, rewards, logps, columns)
}

fn read(path: &Path) -> Batch {
    match files::read(path, &ReadOptions::default()) {
        Ok(rollouts) => rollouts.batch,
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn every_format_gives_the_same_batch(rows in rows()) {
        let folder = tempfile::tempdir().unwrap();
        let batch = rows.batch();
        let jsonl = folder.path().join("a.jsonl");
        fs::write(&jsonl, rows.jsonl()).unwrap();
        prop_assert_eq!(contents(&read(&jsonl)), contents(&batch));
        let npz = folder.path().join("a.npz");
        rows.npz(&npz);
        prop_assert_eq!(contents(&read(&npz)), contents(&batch));
        let saved = folder.path().join("a.safetensors");
        batch.write_safetensors(&saved).unwrap();
        prop_assert_eq!(contents(&read(&saved)), contents(&batch));
        read(&npz).write_safetensors(&saved).unwrap();
        prop_assert_eq!(contents(&read(&saved)), contents(&batch));
    }

    #[test]
    fn an_advantage_reads_back_to_the_bit_and_the_rest_stays(rows in rows(), seed in number()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        fs::write(&path, rows.jsonl()).unwrap();
        let rollouts = files::read(&path, &ReadOptions::default()).unwrap();
        let tokens = rollouts.batch.layout().tokens();
        let values: Vec<f64> = (0..tokens).map(|token| seed / (token + 1) as f64).collect();
        let values = FloatBuffer::F64(values.into());
        rollouts.write_advantage(&path, &per_token(&rollouts, &values)).unwrap();
        let map = [files::Mapping { ours: "old_advantage".into(), theirs: "advantage".into() }];
        let again = files::read(&path, &ReadOptions { map: &map, ..ReadOptions::default() }).unwrap();
        let TokenValues::Compact(read) = again.batch.token_column("old_advantage").unwrap() else {
            panic!("a line's array is a column of tokens that count");
        };
        let bits = |values: &FloatBuffer| values.iter().map(f64::to_bits).collect::<Vec<_>>();
        prop_assert_eq!(bits(read), bits(&values));
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

/// Damages a valid file, and reads what is left: any answer will do but a panic or a giant allocation.
fn survives(
    folder: &Path,
    name: &str,
    valid: &[u8],
    flips: &[(prop::sample::Index, u8)],
    span: Option<(prop::sample::Index, usize, prop::sample::Index)>,
    cut: Option<prop::sample::Index>,
) {
    let mut bytes = valid.to_vec();
    if let Some((from, length, to)) = span {
        // A piece of the file stands a second time somewhere in it.
        let from = from.index(bytes.len());
        let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
        let to = to.index(bytes.len());
        bytes.splice(to..to, piece);
    }
    for (at, byte) in flips {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    if let Ok(rollouts) = files::read(&path, &ReadOptions::default()) {
        let zeros = vec![0.0; rollouts.batch.layout().responses()];
        // A length may be damaged into billions of tokens, which is a batch all the same, but no padded file.
        let _ = rollouts.write_advantage(
            folder.join(format!("out-{name}")),
            &per_response(&rollouts, &zeros),
        );
    }
}

/// A text with one of its numbers replaced.
fn claim(text: &str, which: prop::sample::Index, number: &str) -> String {
    let starts: Vec<usize> = text
        .char_indices()
        .filter(|&(at, letter)| {
            letter.is_ascii_digit() && !text[..at].ends_with(|before: char| before.is_ascii_digit())
        })
        .map(|(at, _)| at)
        .collect();
    let start = starts[which.index(starts.len())];
    let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
    format!("{}{number}{}", &text[..start], &text[start + digits..])
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
        survives(folder.path(), "a.jsonl", claimed(ODD_LINES).as_bytes(), &[], None, None);
        let lengths = "{\"group\":1,\"reward\":1,\"length\":3,\"step\":2}\n";
        survives(folder.path(), "b.jsonl", claimed(lengths).as_bytes(), &[], None, None);
        let path = folder.path().join("valid.safetensors");
        Batch::builder()
            .groups(["a", "b"])
            .response("reward", vec![0.0, 1.0])
            .ragged::<f64, _>("old_logp", [vec![0.5], vec![0.5, 1.0]])
            .build()
            .unwrap()
            .write_safetensors(&path)
            .unwrap();
        let valid = fs::read(&path).unwrap();
        let (size, rest) = valid.split_at(8);
        let (header, data) = rest.split_at(u64::from_le_bytes(size.try_into().unwrap()) as usize);
        let header = claimed(std::str::from_utf8(header).unwrap());
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        survives(folder.path(), "a.safetensors", &bytes, &[], None, None);
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_damaged_file_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        span in prop::option::of((any::<prop::sample::Index>(), 1usize..40, any::<prop::sample::Index>())),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let rows = Rows {
            groups: vec![3, -1, 3],
            rewards: vec![0.5, 1.0, 0.25],
            masks: vec![vec![true, false, true], vec![], vec![true, true]],
            logps: vec![vec![-0.5, 0.0, -1.5e-3], vec![], vec![-0.25, -2.0]],
        };
        survives(folder.path(), "a.jsonl", rows.jsonl().as_bytes(), &flips, span, cut);
        survives(folder.path(), "b.jsonl", ODD_LINES.as_bytes(), &flips, span, cut);
        let path = folder.path().join("valid.safetensors");
        rows.batch().write_safetensors(&path).unwrap();
        survives(folder.path(), "a.safetensors", &fs::read(&path).unwrap(), &flips, span, cut);
        let path = folder.path().join("valid.npz");
        rows.npz(&path);
        survives(folder.path(), "a.npz", &fs::read(&path).unwrap(), &flips, span, cut);
        let dumps = Path::new(crate::ROOT).join("tests/data/dumps");
        for dump in [
            "verl_9.jsonl.gz", "verl_9.jsonl.zst", "trl_plain.parquet", "trl/completions_00001.parquet",
            "roll/rollout_dump_data.step_3.jsonl", "nemo_rl/train_data_step1.jsonl", "areal/1/3.jsonl",
            "skyrl/global_step_5_evals/math.jsonl", "prime_rl/step_41/train/all/traces.jsonl",
        ] {
            let (name, valid) = (dump.replace('/', "-"), fs::read(dumps.join(dump)).unwrap());
            survives(folder.path(), &name, &valid, &flips, span, cut);
        }
    }
}
