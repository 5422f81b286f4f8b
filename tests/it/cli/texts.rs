//! Completions as text: verified, counted in tokens, looked at.

use std::path::Path;

use super::lab::Lab;
use crate::parquet_rows;

/// Two prompts and three responses to each; the last has no answer.
const TEXTS: &str = include_str!("../../data/math.jsonl");

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("texts.jsonl", TEXTS);
    lab
}

fn tokenizer(name: &str) -> String {
    let folder = Path::new(crate::ROOT).join("tests/data/tokenizers");
    folder.join(name).display().to_string()
}

#[test]
fn verify_counts_writes_and_explains() {
    let lab = lab();
    let ran = lab.ok("verify texts.jsonl -o out.jsonl --explain");
    let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in ["right 3 50.0 %", "wrong 2 33.3 %", "no answer 1"] {
        assert!(words.contains(row), "{words}");
    }
    ran.shows("wrong: 2/6   (reference: 0.75)");
    let written = lab.read("out.jsonl");
    let lines = written.lines().zip(TEXTS.lines());
    for ((written, line), right) in lines.zip([true, true, false, true, false, false]) {
        let head = line.strip_suffix('}').expect("an object");
        assert_eq!(written, format!("{head}, \"correct\": {right}}}"));
    }
    // What is written has its column; written again it is the same.
    let again = lab.run("verify out.jsonl -o again.jsonl");
    assert_eq!((again.status, lab.read("again.jsonl")), (0, written));
}

#[test]
fn verify_writes_to_the_last_of_equal_fields() {
    let lab = lab();
    let flags = format!("--tokenizer {}", tokenizer("gpt.json"));
    let twice = r#"{"correct":1,"completion":"5","correct":2,"solution":"5"}"#;
    let once = r#"{"correct": 0, "completion": "5", "solution": "5"}"#;
    let counted = once
        .replace(": 0", ": true")
        .replace('}', ", \"length\": 1}");
    for (line, flags, written) in [
        (twice, "", twice.replace(":2", ":true")),
        (once, &flags, counted),
    ] {
        lab.write("line.jsonl", line);
        lab.ok(&format!("verify line.jsonl -o out.jsonl {flags}"));
        assert_eq!(lab.read("out.jsonl").trim_end(), written, "{line}");
    }
}

#[test]
fn verify_writes_the_kind_of_lines_that_the_name_says() {
    let lab = lab();
    lab.ok("verify texts.jsonl -o plain.jsonl");
    let texts = lab.read("texts.jsonl");
    parquet_rows::write(&lab.path().join("texts.parquet"), &texts).unwrap();
    lab.ok("verify texts.parquet -o verified.parquet")
        .shows("right");
    let written = "apply rloo verified.parquet --map group=solution -o copy.parquet";
    lab.ok(written);
    for packed in ["packed.jsonl.gz", "packed.jsonl.zst"] {
        for command in [
            format!("verify texts.jsonl -o {packed}"),
            format!("verify {packed} -o again.jsonl"),
        ] {
            lab.ok(&command).shows("right");
        }
        let rights = |name: &str| lab.read(name).matches("\"correct\": true").count();
        let found = ["again.jsonl", "plain.jsonl"].map(rights);
        assert_eq!(found, [3, 3], "{packed}");
    }
    for other in ["mine.rhai", "tensors.safetensors", "rows.parquet"] {
        let ran = lab.run(&format!("verify texts.jsonl -o {other}"));
        ran.says("the same kind of file");
        assert_eq!((ran.status, lab.path().join(other).exists()), (1, false));
    }
}

/// Nobody reads its output, so that it is in the middle of its work when it is told to end.
#[cfg(unix)]
#[test]
fn an_interrupted_command_leaves_no_temporary_file() {
    use std::process::{Command, Stdio};
    let lab = lab();
    lab.write("long.jsonl", &TEXTS.repeat(100_000));
    let aside = lab.path().join("aside");
    std::fs::create_dir(&aside).expect("a folder");
    let files = || std::fs::read_dir(&aside).expect("a folder").count();
    let mut child = lab.command("verify long.jsonl -o -");
    let child = child.env("TMPDIR", &aside).env("RAYON_NUM_THREADS", "1");
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("advlab");
    while files() == 0 {
        assert!(child.try_wait().expect("a process").is_none());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &id]).status();
    assert!(kill.expect("kill").success());
    let output = child.wait_with_output().expect("a process");
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(143), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    assert_eq!(files(), 0);
}

#[test]
fn verify_counts_tokens_where_the_lines_have_no_length() {
    let lab = lab();
    let flags = format!("--tokenizer {}", tokenizer("gpt.json"));
    let command = format!("verify texts.jsonl -o out.jsonl {flags}");
    lab.ok(&command).shows("tokens on average");
    // What `apply` counts by the same tokenizer.
    let lengths = |file: &str, flags: &str| {
        let script = "fn advantage(batch, p) { batch.length * 1.0 }";
        lab.write("length.rhai", script);
        lab.ok(&format!("apply length.rhai {file} {flags} -o length.jsonl"));
        let text = lab.read("length.jsonl");
        let of = |line: &str| line.split("\"advantage\": ").nth(1).map(str::to_string);
        text.lines().map(of).collect::<Vec<_>>()
    };
    let counted = lengths("texts.jsonl", &flags);
    assert_eq!(counted, lengths("out.jsonl", ""));
    // A length that is there stays, and that is said.
    let again = lab.run(&command.replace("texts.jsonl -o out", "out.jsonl -o again"));
    again.says("the tokenizer is not used");
    assert_eq!(lab.read("again.jsonl"), lab.read("out.jsonl"));
}

/// The larger the file, the more blocks; what is held does not grow with it.
#[cfg(target_os = "linux")]
#[test]
fn verify_holds_a_few_blocks_of_a_file() {
    use std::io::Read;
    let lab = lab();
    // 64 KiB each.
    let note = "x".repeat((1 << 16) - 50);
    let line = format!("{{\"completion\": \"4\", \"solution\": \"4\", \"note\": \"{note}\"}}\n");
    let peak = |copies: usize| -> u64 {
        lab.write("large.jsonl", &line.repeat(copies));
        let mut verify = lab.command("verify large.jsonl -o -");
        // Blocks are as large as there are threads.
        let mut verify = verify
            .env("RAYON_NUM_THREADS", "2")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("advlab");
        // The output is written once all of it is there; then the process waits for its reader.
        let mut output = verify.stdout.take().expect("a pipe");
        output.read_exact(&mut [0]).expect("output");
        let status = std::fs::read_to_string(format!("/proc/{}/status", verify.id()));
        let status = status.expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let size = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        verify.kill().expect("a process");
        verify.wait().expect("a process");
        size.expect("its memory")
    };
    let (small, large) = (peak(12 << 4), peak(48 << 4));
    assert!(large < small + (24 << 10), "{small} and {large} kB");
}

#[test]
fn verify_says_what_is_wrong() {
    let lab = lab();
    lab.write("none.txt", "");
    lab.expect(
        "
1  verify texts.jsonl --solution gold  =>  there is no field `gold`
1  verify rollouts.jsonl  =>  which field has the solution
1  verify texts.jsonl -o texts.jsonl  =>  is the input itself
1  verify none.jsonl  =>  cannot be read
1  verify none.txt  =>  rollouts are read from .jsonl, .jsonl.gz, .jsonl.zst, .parquet files",
    );
    lab.write("cut.jsonl", &format!("{TEXTS}{{\"completion\": \"4"));
    let ran = lab.run("verify cut.jsonl -o out.jsonl");
    ran.ends(1, "cut.jsonl, line 7");
    assert!(!lab.path().join("out.jsonl").exists());
}

/// The listing of the GRPO-lambda paper: completions, references and a tokenizer in, advantages out.
#[test]
fn advantages_come_from_completions_and_references() {
    let lab = lab();
    for name in ["gpt.json", "sentencepiece.json"] {
        let tokenizer = tokenizer(name);
        let ran = lab.ok(&format!(
            "apply grpo_lambda texts.jsonl --tokenizer {tokenizer} -o {name}l"
        ));
        let notes = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            notes.contains("the number of tokens in `completion`, counted by"),
            "{notes}"
        );
        assert!(notes.contains("there is no column `reward`"), "{notes}");
        assert_eq!(lab.read(&format!("{name}l")).lines().count(), 6);
    }
    lab.write("no.json", "{}");
    lab.expect(&format!(
        "0  apply grpo_lambda texts.jsonl  =>  words
         1  apply grpo_lambda texts.jsonl --tokenizer no.json  =>  it is not a tokenizer
         0  apply grpo rollouts.jsonl --tokenizer {}  =>  the tokenizer is not used",
        tokenizer("gpt.json")
    ));
}

#[test]
fn scripts_have_verdicts_as_a_column() {
    let lab = lab();
    lab.files(
        r#"== mine.rhai
fn reward(batch, p) { batch.verified }
fn advantage(batch, p) { batch.reward - batch.reward.mean("group") }
"#,
    );
    lab.ok("apply mine.rhai texts.jsonl -o out.jsonl");
    let first = lab.read("out.jsonl");
    let first = first.lines().next().expect("a line");
    assert!(first.contains("\"advantage\": 0.333"), "{first}");
    // References may be numbers, but not now a number and now a text.
    let number = "{\"group\": 1, \"completion\": \"It is 42.\", \"solution\": 42}\n";
    lab.write("numbers.jsonl", number);
    lab.ok("apply mine.rhai numbers.jsonl");
    let text = number.replace("42}", "\"x\"}");
    lab.write("mixed.jsonl", &format!("{number}{text}"));
    lab.expect(
        "1  apply mine.rhai mixed.jsonl  =>  line 2, `solution`: found the string
         1  apply mine.rhai rollouts.jsonl  =>  verified",
    );
}

#[test]
fn look_shows_why_a_response_got_its_advantage() {
    let lab = lab();
    let group = lab.ok("look texts.jsonl a --recipe grpo").out;
    assert_eq!(group.matches("answer found").count(), 3, "{group}");
    let input = ":look correct == 0 & advantage < 0\n:look worst\n";
    let out = lab.prompt("repl texts.jsonl --recipe grpo", input);
    for part in ["response 2", "response 4", "none (no answer"] {
        assert!(out.contains(part), "{out}");
    }
    let best = "response 3  &  group b  &  advantage  &  answer found: 42 (right; reference: 42)";
    lab.expect(&format!(
        "0  look texts.jsonl best --recipe grpo  =>  {best}"
    ));
    lab.expect(
        "
0  look texts.jsonl group==\"b\"&correct==1  =>  group b  =/>  group a
1  look texts.jsonl nothing  =>  `nothing` is neither a column nor a group
1  look texts.jsonl verifed==0 --recipe grpo  =>  did you mean `verified`?",
    );
}
