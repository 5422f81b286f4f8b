//! What is said of a live recipe: each event in one line of plain text.

use advlab::live::LiveEvent;

use super::lab::{Lab, batch, batch_with, set};

/// An event, with what no two runs share taken out.
fn shown(lab: &Lab, event: &LiveEvent) -> String {
    let line = event.to_string();
    assert!(!line.contains(['\n', '\u{1b}']), "{line}");
    let line = line.replace(&lab.folder.path().display().to_string(), "FOLDER");
    let Some((before, rest)) = line.split_once("checked in ") else {
        return line;
    };
    let (_, after) = rest.split_once(')').expect("a time in brackets");
    format!("{before}checked in TIME){after}")
}

fn with_default(k: u32, eps: &str) -> String {
    format!(
        "fn params() {{ #{{ k: #{{ value: {k} }}, eps: #{{ value: {eps} }} }} }}\nfn advantage(batch, p) {{ batch.reward * p.k }}\n"
    )
}

#[test]
fn each_event_is_one_line() {
    let mut lab = Lab::with(&with_default(4, "1e-6"), set("k", "8"));
    lab.step();
    let mut said = Vec::new();
    let six = with_default(6, "1e-3");
    let broken =
        "fn advantage(batch, p) {\n    let x = mena(batch.reward);\n    x.meen(\"batch\")\n}\n";
    // The default that the run does not use, and one that it does; the other one alone; an error; the version in use again.
    for text in [&with_default(5, "1e-3"), &six, broken, &six] {
        lab.save(text);
        said.push(shown(&lab, &lab.next()));
        lab.step();
    }
    std::fs::remove_file(lab.path("recipe.rhai")).unwrap();
    said.push(shown(&lab, &lab.next()));
    // A parameter that the run had set is renamed.
    lab.save(&six.replace("k:", "n:").replace("p.k", "p.n"));
    said.push(shown(&lab, &lab.next()));
    // Groups of one have no other: worth a warning, as the run may never have them.
    lab.save("fn advantage(batch, p) {\n    if batch.reward.count(\"group\").min(\"batch\").value() < 2 { throw \"alone\"; }\n    batch.reward\n}\n");
    let events = lab.until(|event| matches!(event, LiveEvent::Warned { .. }));
    said.push(shown(&lab, &events[1]));
    lab.live.begin_step().unwrap();
    let alone = batch_with(&[1.0]);
    let attempt = (lab.live).attempt(&batch(), |recipe, state| recipe.advantage(&alone, state));
    attempt.result.unwrap();
    said.push(shown(&lab, &lab.next()));
    let why = "no inotify".to_string();
    said.push(LiveEvent::PollingOnly { why }.to_string());
    insta::assert_snapshot!(said.join("\n"));
}
