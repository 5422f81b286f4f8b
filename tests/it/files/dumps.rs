//! What trainers write is read as it is: their own files, compressed ones, folders of them. `tests/data/dumps` says where each
//! is from.

use std::fs;
use std::path::{Path, PathBuf};

use super::{notes, per_response, read, refused};
use advlab::batch::Batch;
use advlab::files::{self, Rollouts, steps};

fn data(name: &str) -> PathBuf {
    let dumps = Path::new(crate::ROOT).join("tests/data/dumps");
    dumps.join(name)
}

/// All that a reader makes of a file.
fn told(rollouts: &Rollouts) -> String {
    let (batch, layout) = (&rollouts.batch, rollouts.batch.layout());
    let group = |group| {
        let name = layout.group_id(group).name();
        format!("{name:?} {:?}", layout.members(group))
    };
    let groups: Vec<String> = (0..layout.groups()).map(group).collect();
    let texts = batch.texts();
    let texts: Vec<String> = texts
        .map(|(name, texts)| format!("{name} {:?}", texts[0]))
        .collect();
    let lengths = (0..layout.responses()).map(|response| layout.tokens_of(response).len());
    let lengths: Vec<usize> = lengths.collect();
    format!(
        "step {}, tokens {lengths:?}, reward {:?}; columns {}\ngroups {}\ntexts {}\n{}\n",
        batch.step(),
        batch.response_column("reward").unwrap_or_default(),
        batch.columns().collect::<Vec<_>>().join(", "),
        groups.join(", "),
        texts.join(", "),
        notes(rollouts).join("\n")
    )
}

#[test]
fn every_trainer_s_dump_reads_without_a_map() {
    let mut all = String::new();
    for dump in "trl verl roll nemo_rl skyrl areal prime_rl tinker slime".split(' ') {
        let steps = steps(data(dump)).unwrap();
        assert_eq!(steps.len(), 2, "{dump}: {steps:?}");
        let names: Vec<_> = steps.iter().map(|step| step.file_name().unwrap()).collect();
        all += &format!("# {dump} {names:?}\n{}\n", told(&read(&steps[1])));
    }
    let files = "trl_plain.parquet verl_validation.jsonl ../open_instruct.jsonl";
    for dump in files.split(' ') {
        all += &format!("# {dump}\n{}\n", told(&read(data(dump))));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn compressed_lines_and_parquet_come_back_with_an_advantage() {
    let folder = tempfile::tempdir().unwrap();
    let whole = told(&read(data("verl/9.jsonl")));
    for (input, output) in [
        ("verl_9.jsonl.gz", "a.jsonl.zst"),
        ("verl_9.jsonl.zst", "a.jsonl.gz"),
        ("trl/completions_00001.parquet", "b.parquet"),
        ("roll/rollout_dump_data.step_3.jsonl", "c.jsonl"),
    ] {
        let rollouts = read(data(input));
        if input.starts_with("verl_9") {
            assert_eq!(told(&rollouts), whole);
        }
        let out = folder.path().join(output);
        let responses = rollouts.batch.layout().responses();
        let values: Vec<f64> = (0..responses).map(|at| at as f64 / 7.0).collect();
        let advantage = per_response(&rollouts, &values);
        rollouts.write_advantage(&out, &advantage).unwrap();
        let (before, again) = (rollouts.batch, read(&out).batch);
        let written = again.response_column("advantage");
        assert_eq!(written, Some(&values[..]), "{output}");
        let reward = |batch: &'_ Batch| batch.response_column("reward").unwrap().to_vec();
        assert_eq!(reward(&again), reward(&before), "{output}");
    }
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 4, "no part of a file is left");
}

/// A folder's files are opened one at a time, skippable frames are passed over, and rows do not have what they share all at
/// once.
#[test]
fn odd_dumps_are_read_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let frame = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let zst = fs::read(data("verl_9.jsonl.zst")).unwrap();
    fs::write(place("a.jsonl.zst"), [&frame[..], &zst, &frame].concat()).unwrap();
    let plain = told(&read(data("verl/9.jsonl")));
    assert_eq!(told(&read(place("a.jsonl.zst"))), plain);
    let rows = |rows: usize| vec!["1"; rows].join(",");
    let roll = format!(
        "{{\"responses\": [{}], \"scores\": [{}], \"prompt\": \"{}\"}}\n",
        vec!["\"a\""; 300].join(","),
        rows(300),
        "p".repeat(5000)
    );
    fs::write(place("roll.jsonl"), roll.repeat(2)).unwrap();
    assert_eq!(read(place("roll.jsonl")).batch.layout().responses(), 600);
}

#[test]
fn what_does_not_unpack_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        refused(&path).replace(&format!("{}/", folder.path().display()), "")
    };
    let bytes = |name: &str| fs::read(data(name)).unwrap();
    let mut zst = bytes("verl_9.jsonl.zst");
    let (last, gz) = (zst.len() - 1, bytes("verl_9.jsonl.gz"));
    let cut = zst[..last - 20].to_vec();
    zst[last] ^= 1;
    let trl = bytes("trl_plain.parquet");
    let all = [
        read("sum.jsonl.zst", &zst),
        read("cut.jsonl.zst", &cut),
        read("cut.jsonl.gz", &gz[..gz.len() - 9]),
        read("text.jsonl.gz", b"{\"group\": 1, \"reward\": 1}"),
        read("text.parquet", b"{\"group\": 1, \"reward\": 1}"),
        read("cut.parquet", &trl[..trl.len() - 9]),
        read("zstd.parquet", include_bytes!("../../data/zstd.parquet")),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn folders_are_read_in_the_order_of_their_steps() {
    let folder = tempfile::tempdir().unwrap();
    let names = "step_10.jsonl step_9.jsonl config.toml .hidden step_9b.jsonl.gz";
    for name in names.split(' ') {
        fs::write(folder.path().join(name), "").unwrap();
    }
    fs::create_dir(folder.path().join("checkpoint-3")).unwrap();
    let names: Vec<_> = steps(folder.path()).unwrap();
    let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["step_9.jsonl", "step_9b.jsonl.gz", "step_10.jsonl"]);
    let step = files::step_of(Path::new("a/global_step_12_evals"));
    assert_eq!(step, Some(12));
    assert_eq!(files::step_of(Path::new("a2/b.jsonl")), None);
    let empty = folder.path().join("checkpoint-3");
    let error = steps(&empty).unwrap_err().to_string();
    assert!(error.contains("there are no rollouts in the folder"));
}
