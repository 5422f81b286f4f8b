//! What the commands say where something is wrong: what it is, where, and what to do.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::lab::Lab;

#[test]
fn messages() {
    let lab = Lab::new();
    lab.files(
        r#"== typo.rhai
fn advantage(batch, p) {
    let r = batch.rewrad;
    r - r.mean("group")
}
== level.rhai
fn advantage(batch, p) {
    batch.reward.mean("group")
}
== two.rhai
fn advantage(batch, p) {
    let x = mena(batch.reward, "group");
    x.meen("batch")
}
"#,
    );
    std::fs::create_dir(lab.path().join("empty")).expect("a folder");
    lab.replay("messages");
}

/// The size of the check's own groups matters where values do not allow an operation, and nowhere else.
#[test]
fn a_check_that_fails_names_its_own_groups_where_they_matter() {
    let lab = Lab::new();
    lab.advantage("level.rhai", "1.0");
    for (arguments, is_told) in [("check passk --set k=7", true), ("check level.rhai", false)] {
        let ran = lab.run(arguments);
        let told = (ran.status, ran.out.contains("own groups"));
        assert_eq!(told, (1, is_told), "{arguments}");
    }
}

/// Its own batch has no column of yours.
#[test]
fn a_check_without_a_column_asks_for_rollouts_that_have_it() {
    let lab = Lab::new();
    lab.advantage("answer.rhai", "batch.answer * batch.reward");
    lab.advantage("misspelt.rhai", "batch.rewrad");
    let ran = lab.run("check answer.rhai");
    ran.shows("Help: give rollouts that have this column: `advlab check answer.rhai FILE`");
    assert!(!ran.out.contains("it has"), "{}", ran.out);
    lab.run("check misspelt.rhai")
        .shows("did you mean `reward`?");
}

#[test]
fn the_share_of_nan_stands_beside_a_column() {
    let lab = Lab::new();
    let line = |style: &str| format!("{{\"group\": 1, \"reward\": 1, \"style\": {style}}}\n");
    lab.write("nan.jsonl", &[line("NaN"), line("1")].concat());
    let shown = lab.prompt("repl nan.jsonl", "batch\n");
    let row = shown.lines().find(|line| line.contains("style"));
    assert!(
        row.is_some_and(|row| row.ends_with("NaN 50.0 %")),
        "{shown}"
    );
}

/// What was there stays as it was.
#[test]
fn nothing_is_lost() {
    let lab = Lab::new();
    lab.write("mine.rhai", "my own");
    assert_eq!(lab.run("new mine.rhai").status, 1);
    assert_eq!(lab.read("mine.rhai"), "my own");

    lab.write("out.jsonl", "an older result");
    let ran = lab.run("apply passk rollouts.jsonl --set k=9 -o out.jsonl");
    assert_eq!(ran.status, 1);
    assert_eq!(lab.read("out.jsonl"), "an older result");
}

/// Only `--force` lets the output replace the input, and then as a whole, at the end.
#[test]
fn the_input_is_not_overwritten_by_mistake() {
    let lab = Lab::new();
    let before = lab.read("rollouts.jsonl");
    let mut names = vec!["rollouts.jsonl", "./rollouts.jsonl"];
    #[cfg(unix)]
    {
        let input = lab.path().join("rollouts.jsonl");
        std::os::unix::fs::symlink(&input, lab.path().join("link.jsonl")).expect("a link");
        std::fs::hard_link(&input, lab.path().join("hard.jsonl")).expect("a link");
        names.extend(["link.jsonl", "hard.jsonl"]);
    }
    let files = std::fs::read_dir(lab.path()).unwrap().count();
    for name in names {
        let ran = lab.run(&format!("apply grpo rollouts.jsonl -o {name}"));
        ran.ends(1, "is the input itself");
        ran.says("`--force`");
    }
    assert_eq!(lab.read("rollouts.jsonl"), before);
    lab.ok("apply grpo rollouts.jsonl -o rollouts.jsonl --force");
    let after = lab.read("rollouts.jsonl");
    assert_eq!(after.lines().count(), before.lines().count());
    assert!(after.lines().all(|line| line.contains("\"advantage\"")));
    let left = std::fs::read_dir(lab.path()).unwrap().count();
    assert_eq!(left, files, "something was left beside it");
}

/// Probabilities, or -logp, are no log-probs.
#[test]
fn positive_log_probs_are_told() {
    let lab = Lab::new();
    let line = |logp: &str| format!("{{\"group\": 1, \"reward\": 1, \"old_logp\": [{logp}]}}\n");
    let lines = [line("-1, 0, 0.0005"), line("-0.5, 0.5, 2")];
    lab.write("positive.jsonl", &lines.concat());
    let note = "`old_logp` is above 0 at 2 tokens, the first in line 2, token 1: a log-prob is never above 0";
    lab.advantage("logp.rhai", "batch.old_logp");
    lab.ok("apply logp.rhai positive.jsonl").says(note);
    lab.write("negative.jsonl", &line("-1, 0, 0.0005"));
    assert_eq!(lab.ok("apply logp.rhai negative.jsonl").err, "");
}

/// Each: the exit status, the arguments, and a part of the message.
const SLIPS: &str = r#"
0  --help  =>  Usage: advlab <COMMAND>
0  --version  =>  advlab
0  profile grpo rollouts.jsonl --runs 1  =>  grpo e5123f
2    =>  Usage: advlab <COMMAND>
2  aply grpo rollouts.jsonl  =>  'apply'
2  apply  =>  <RECIPE>
2  apply grpo  =>  <INPUTS>
2  apply grpo rollouts.jsonl --stes 3  =>  '--step'
2  apply --recipe grpo rollouts.jsonl  =>  'advlab apply RECIPE ...'
2  verify rollouts.jsonl --map completion=messages  =>  '--completion FIELD'
2  apply grpo rollouts.jsonl --set k  =>  such as k=8 or reward=score
2  apply grpo rollouts.jsonl --dtype f16  =>  f32, f64
2  check grpo --stes 3  =>  '--step'
2  check  =>  <RECIPE>
1  apply passk k=2 rollouts.jsonl  =>  to set a parameter, write `--set k=2`
1  apply grpo broken.jsonl  =>  broken.jsonl, line 1
1  apply sdpo rollouts.jsonl  =>  no column `teacher_logp`  &  docs/mixing.md
1  apply broken.rhai rollouts.jsonl  =>  broken.rhai:1
1  check broken.rhai  =>  broken.rhai:1
1  new broken.rhai  =>  already exists
1  new mine.txt  =>  the name of a recipe's file must end in .rhai, as in mine.rhai
1  new mine.rhai --from nothing  =>  there is no recipe `nothing`
1  apply grpo long.jsonl  =>  long.jsonl, line 2: a response has 1000000000000 tokens
1  apply grpo run  =>  there are no rollouts in the folder
1  apply grpo -  =>  rollouts are read from files, not from a stream
1  apply grpo /dev/stdin  =>  rollouts are read from files, not from a stream
2  apply grpo rollouts.jsonl --step -1  =>  '-1' for '--step <N>': a whole number of at least 0 is needed
2  apply grpo rollouts.jsonl --map reward  =>  such as k=8 or reward=score
1  apply grpo rollouts.jsonl --set eps=1e999  =>  1e999
1  apply grpo rollouts.jsonl --metrics no/m.jsonl  =>  the folder no does not exist
1  look rollouts.jsonl --step 3  =>  `--step` selects a batch of a run's folder
2  train --steps -1  =>  '-1' for '--steps <STEPS>': a whole number of at least 0 is needed
2  train --steps ten  =>  'ten' for '--steps <STEPS>': a whole number of at least 0 is needed
1  train run  =>  `advlab train --resume run`
1  train bare.jsonl  =>  a configuration is in TOML
2  compare grpo --seeds abc  =>  invalid value 'abc' for '--seeds <SEEDS>'
1  new nowhere/x.rhai  =>  the folder nowhere does not exist
1  verify run.safetensors  =>  `verify` reads JSONL or parquet
1  apply grpo run.npz  =>  `safetensors.numpy.save_file(dict(np.load("rollouts.npz")), "rollouts.safetensors")`
1  train --recipe gae  =>  trained without a critic
1  apply rollouts.jsonl grpo  =>  `advlab apply grpo rollouts.jsonl`
1  check rollouts.jsonl  =>  `rollouts.jsonl` is a file of rollouts, not a recipe
1  doc rollouts.jsonl  =>  `rollouts.jsonl` is a file of rollouts, not a recipe
1  new mine.rhai --from rollouts.jsonl  =>  is a file of rollouts, not a recipe
1  repl --recipe rollouts.jsonl  =>  is a file of rollouts, not a recipe
1  apply . rollouts.jsonl  =>  `.` is a folder, not a recipe
2  apply passk rollouts.jsonl --set k 2  =>  such as k=8 or reward=score
2  apply passk rollouts.jsonl --k 2  =>  tip: set it with '--set k=VALUE'
2  compare grpo passk --k 2  =>  tip: set it with '--set k=VALUE'
2  train --lr 0.1  =>  tip: set it with '--set lr=VALUE'
2  check grpo --xml  =>  unexpected argument '--xml'  =/>  --set
2  train --resume run --set k=1  =>  cannot be used with  &  a resumed run keeps its recipe, parameters and configuration
1  view . --export page.txt  =>  must end in .html, as in page.html
2  apply grpo rollouts.jsonl --k 2  =>  unexpected argument '--k'  =/>  --set
1  train --set learning_rate=0.1  =>  did you mean `lr`?
1  look rollouts.jsonl reward=0  =>  `reward=0` is not a condition  &  equality is `==`
1  apply grpo rollouts.jsonl -o out.csv  =>  the same kind of file
1  replay past/metrics.jsonl  =>  a run is a folder: did you mean `past`?
1  apply grpo nested.jsonl  =>  `--map reward=rewards.FIELD`
1  apply grpo nested.jsonl --map reward=rewards.wrong  =>  line 1, `rewards.wrong`: found nothing
0  apply grpo nested.jsonl --map reward=rewards.correct  =>  2 responses in 1 group
1  apply grpo unscored.jsonl  =>  line 2, `reward`: found no value (null, NaN or missing; 2 of 4 responses)  &  `--unscored leave-out`
0  apply dr_grpo unscored.jsonl --unscored zero  =>  scored as 0: 2 responses without a reward  &  4 responses in 1 group
0  apply dr_grpo unscored.jsonl --unscored leave-out  =>  left out: 2 responses without a reward  &  2 responses in 1 group
2  apply grpo unscored.jsonl --unscored none  =>  is not leave-out, zero or error
0  apply grpo uid.jsonl  =>  `group` is read from `uid`
0  objective passk k=4  =>  passk k=4
1  apply verl.rhai rollouts.jsonl  =>  did you mean `old_logp`?
1  apply mask.rhai rollouts.jsonl  =>  a script needs no mask
1  apply gone.rhai bare.jsonl  =>  it has `reward`; derived from these: `token_reward`, `correct`
1  apply ours.rhai verl.jsonl  =>  `--map old_logp=old_log_probs`
1  objective grpo passk k=3 k=4  =>  `passk` is given both `k=3` and `k=4`
1  objective k=3 passk  =>  `k=3` has no recipe before it
1  objective passk =3  =>  "=3" is not of the form NAME=VALUE
1  compare passk =3  =>  such as k=8 or reward=score
2  objective grpo --n abc  =>  invalid value 'abc' for '--n <N>'
2  objective grpo --noise=2  =>  is not a correlation above 0 and below 1
1  objective grpo --noise 0.2  =>  `--noise=0.2`
1  mass grpo rollouts.jsonl --out a.png  =>  ends in .svg, .json, .csv, or .txt; a name without an ending
1  mass grpo rollouts.jsonl --out a.pdf  =>  `rsvg-convert -f pdf -o x.pdf x.svg` makes a PDF of an .svg
1  objective grpo --out a.html  =>  ends in .svg, .json, .csv, or .txt
1  objective grpo --out a.pdf  =>  ends in .svg, .json, .csv, or .txt; `rsvg-convert -f pdf -o x.pdf x.svg`
1  mass grpo  =>  no rollouts are given
1  mass grpo passk k=2  =>  no rollouts are given
1  look rollouts.jsonl maze  =>  `maze` is neither a column nor a group
1  look rollouts.jsonl -1  =>  `-1` is not the number of a response
1  recipes vrel  =>  did you mean `verl`?
"#;

/// Slips of the hand: what was meant is told.
#[test]
fn what_was_meant() {
    let lab = Lab::new();
    for (name, column) in [
        ("verl", "old_log_probs"),
        ("ours", "old_logp"),
        ("mask", "response_mask"),
        ("gone", "length"),
    ] {
        lab.advantage(&format!("{name}.rhai"), &format!("batch.{column}"));
    }
    for folder in ["run", "past"] {
        std::fs::create_dir(lab.path().join(folder)).expect("a folder");
    }
    lab.files(
        r#"== bare.jsonl
{"group": 1, "reward": 1}
== verl.jsonl
{"group": 1, "reward": 1, "old_log_probs": [-1]}
== run/notes.txt
== run.npz
== past/metrics.jsonl
== nested.jsonl
{"group": 1, "rewards": {"correct": 1, "format": 0}}
{"group": 1, "rewards": {"correct": 0, "format": 1}}
== unscored.jsonl
{"group": 1, "reward": 1}
{"group": 1, "reward": null}
{"group": 1, "reward": NaN}
{"group": 1, "reward": 0}
== uid.jsonl
{"uid": "a", "reward": 1}
== long.jsonl
{"group": 1, "reward": 1, "length": 2}
{"group": 1, "reward": 1, "length": 1000000000000}
== broken.rhai
fn advantage(batch, p) {
== broken.jsonl
{"group": 1, "reward":"#,
    );
    lab.expect(SLIPS);
}

/// A pipe that nobody writes to, a device without an end: nothing waits for them.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_an_error_at_once() {
    let lab = Lab::new();
    for ending in ["rhai", "jsonl", "safetensors", "toml", "json"] {
        let name = format!("pipe.{ending}");
        let mut mkfifo = std::process::Command::new("mkfifo");
        let made = mkfifo.arg(lab.path().join(&name)).status();
        assert!(made.expect("mkfifo").success());
        let zero = lab.path().join(name.replace("pipe", "zero"));
        std::os::unix::fs::symlink("/dev/zero", zero).expect("a link");
    }
    let import =
        |name: &str| format!("import \"{name}\" as x;\nfn advantage(batch, p) {{ batch.reward }}");
    lab.write("of_pipe.rhai", &import("pipe"));
    lab.write("of_zero.rhai", &import("zero"));
    for command in [
        "check pipe.rhai",
        "check of_pipe.rhai",
        "apply of_pipe.rhai rollouts.jsonl",
        "apply grpo pipe.jsonl",
        "apply grpo pipe.safetensors",
        "apply grpo rollouts.jsonl --tokenizer pipe.json",
        "apply grpo rollouts.jsonl --state pipe.json",
        "verify pipe.jsonl",
        "train pipe.toml",
        "train --recipe of_pipe.rhai",
    ] {
        for (kind, command) in [
            ("a pipe", command),
            ("a device", &command.replace("pipe", "zero")),
        ] {
            let mut child = lab.command(command);
            let child = child.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = child.spawn().expect("advlab");
            let started = Instant::now();
            while child.try_wait().expect("a process").is_none() {
                if started.elapsed().as_secs() > 600 {
                    child.kill().expect("a process");
                    panic!("{command} waits");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let output = child.wait_with_output().expect("a process");
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command}: {told}");
            assert!(told.contains(kind), "{command}: {told}");
        }
    }
}

/// No text of a crate's comes before the error, and one that nobody reads is no panic.
#[cfg(unix)]
#[test]
fn errors_are_told_once() {
    let lab = Lab::new();
    let file = format!("{}/tests/data/checksums.parquet", crate::ROOT);
    let mut damaged = std::fs::read(file).unwrap();
    for (at, byte) in damaged.iter_mut().enumerate().rev().take(900).skip(8) {
        *byte ^= (at % 3) as u8;
    }
    std::fs::write(lab.path().join("damaged.parquet"), damaged).unwrap();
    let ran = lab.run("apply grpo damaged.parquet");
    ran.ends(1, "");
    assert!(ran.err.starts_with("Error: "), "{}", ran.err);
    for command in ["apply grpo none.jsonl", "apply grpo"] {
        let mut shell = std::process::Command::new("sh");
        let closed = format!("{} {command} 2>&-", env!("CARGO_BIN_EXE_advlab"));
        let status = shell.args(["-c", &closed]).status().unwrap();
        let is_error = [Some(1), Some(2)].contains(&status.code());
        assert!(is_error, "{command}: {status}");
    }
    if std::path::Path::new("/dev/full").exists() {
        std::os::unix::fs::symlink("/dev/full", lab.path().join("full.jsonl")).unwrap();
        let ran = lab.run("apply grpo rollouts.jsonl -o full.jsonl");
        assert_eq!(ran.err.matches("Error").count(), 1, "{}", ran.err);
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_that_says_so() {
    if !std::path::Path::new("/dev/full").exists() {
        eprintln!("skipped: there is no /dev/full");
        return;
    }
    let lab = Lab::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = lab.command("apply grpo rollouts.jsonl");
    let output = command
        .stdout(full.unwrap())
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr);
    let is_told = err.contains("No space left on device") && !err.contains("panicked");
    assert!(is_told, "{err}");
}

/// Lines, rows and arrays that few bytes stand for: an error that says how much there is room for, before the memory is taken.
#[cfg(target_os = "linux")]
#[test]
fn a_small_file_takes_no_more_memory_than_there_is() {
    let lab = Lab::new();
    let line = b"{\"group\": 1, \"reward\": 1}\n";
    // A frame of Zstandard: blocks of 128 kB of one byte, and a last one with a line.
    let block = |length: usize, kind: usize| ((length << 3) | kind).to_le_bytes()[..3].to_vec();
    let blank = [block(131_072, 2), b"\n".to_vec()].concat().repeat(400);
    let head = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 8 << 3][..], &blank].concat();
    let frame = [&head, &block(line.len(), 1)[..], line].concat();
    std::fs::write(lab.path().join("lines.jsonl.zst"), frame).expect("a file");
    let tests = std::path::Path::new(crate::ROOT).join("tests");
    // The second has 17 million rows, of one value in each column.
    for place in ["data/claims.parquet", "gallery/files/rows.parquet"] {
        let name = place.rsplit('/').next().expect("a name");
        std::fs::copy(tests.join(place), lab.path().join(name)).expect("a file");
    }
    for name in ["lines.jsonl.zst", "claims.parquet", "rows.parquet"] {
        let size = std::fs::metadata(lab.path().join(name))
            .expect("a file")
            .len();
        assert!(size < 200_000, "{name}: {size} bytes");
        let command = "ulimit -v 2097152; exec \"$0\" apply dr_grpo \"$1\"";
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", command, env!("CARGO_BIN_EXE_advlab"), name]);
        let shell = shell.current_dir(lab.path()).env("RAYON_NUM_THREADS", "2");
        let output = shell.output().expect("a shell");
        let told = String::from_utf8_lossy(&output.stderr);
        // What the process already uses of its 2.1 GB is not available.
        let is_told =
            told.contains(" GB, half of the memory available") && !told.contains("1.1 GB");
        assert!(is_told && output.status.code() == Some(1), "{name}: {told}");
    }
}
