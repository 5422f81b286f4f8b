//! What was typed, saved as a script: it gives what the prompt gave.

use super::{play, session};

/// Sessions whose last value per response or token is what the saved recipe must give.
const SESSIONS: &[&str] = &[
    "batch.reward - batch.reward.mean(\"group\")",
    "let a = [1, 2, 3]\n\na.pop()\n\nbatch.reward * a.len()",
    "let a = batch.reward; a - 1\n\na * 2",
    "let a = batch.reward; let b = a * 2; b\n\nb + 1",
    "let last = batch.reward\n\nbatch.reward * 2\n\n_ + last",
    "batch.reward.mean(\"group\")\n\nbatch.reward - _\n\nprint(`x ${_.mean(\"batch\")}`)\n\n_ * 2",
    "import \"passk\" as q;\n\nlet a = q::advantage(batch, #{ k: 2 })\n\na - q::advantage(batch, #{ k: 4 })",
    ":recipe passk k=2\n\nimport \"grpo\" as g;\n\ng::advantage(batch, #{ eps: 1.0, std: \"sample\" }) * p.k",
    ":recipe passk k=2\n\nbatch.reward * p.k\n\n:set k=4",
    "fn f(x) { x * 2 }\n\nfn f(z) { z * 3 }\n\nf(batch.reward)",
    "fn  f(x) { x * 2 } // two spaces\n\nlet x = batch.reward // note\n\nf(x) // and another",
    "let c = '`'\n\nbatch.reward * 2 /* a /* b */ c */",
    "let n = 1\n\nn += 1; n\n\nbatch.reward * n\n\nn += 1",
    "let s = 0\n\nfor g in batch.groups { s += g.reward.len(); }\n\ns\n\nbatch.reward * s",
    "import \"grpo\" as g;\n\ng::advantage(batch, #{ eps: 0.0, std: \"population\" })",
    "batch.old_logp\n\n_.cumsum()\n\n_ - _.mean(\"response\")",
    "let f = |x| x + 1\n\nf.call(batch.reward)",
    "switch 3 { 1 => 2, _ => 5 }\n\nbatch.reward * _",
    "_\n\nbatch.reward\n\n_ + 1",
    "batch.reward\n\n2\n\nbatch.length * _\n\n_ + _ * _",
    "batch.random(\"response\")\n\nbatch.random(\"response\")",
    "// only a comment\n\nbatch.reward // the reward",
];

#[test]
fn a_saved_session_gives_what_the_prompt_gave() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, inputs) in SESSIONS.iter().enumerate() {
        let file = folder.path().join(format!("s{number}.rhai"));
        let mut session = session();
        for input in inputs.split("\n\n") {
            let reply = session.submit(input);
            assert!(!reply.is_error, "{input}: {}", reply.text);
        }
        let text = session.submit(&format!(":save {}", file.display())).text;
        let is_same = text.contains("a recipe") && !text.contains("is not the value");
        let script = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(is_same, "{inputs}\n---\n{text}\n---\n{script}");
    }
}

/// What is refused leaves no file, and a file that the session did not write stays as it is.
#[test]
fn a_file_is_written_for_a_recipe_and_over_no_other_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.rhai");
    let save = format!("> :save {}", file.display());
    let mut session = session();
    let refused = format!(
        "{save}
        ! nothing that makes a recipe
        > 1 + 1
        {save}
        ! nothing that makes a recipe
        > :recipe passk k=2
        > advantage() * 2
        {save}
        ! import \"passk\" as passk;"
    );
    play(&mut session, &refused);
    assert!(!file.exists());
    let written = format!("> :reset\n> batch.reward * 2\n{save}\n> _ + 1\n{save}");
    play(&mut session, &written);
    std::fs::write(&file, "// MY EDITS").expect("an edit");
    play(&mut session, &format!("{save}\n! is not replaced"));
    let text = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(text, "// MY EDITS");
}
