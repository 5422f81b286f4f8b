//! What is said of a live recipe: each event in one line of plain text.

use advlab::live::LiveEvent;

use super::lab::{Lab, batch, set};

/// The next event, with what no two runs share taken out.
fn next(lab: &Lab) -> String {
    let events = lab.until(|_| true);
    let [event] = &events[..] else {
        panic!("not one event: {events:#?}");
    };
    shown(lab, event)
}

fn shown(lab: &Lab, event: &LiveEvent) -> String {
    let line = event.to_string();
    assert!(!line.contains(['\n', '\u{1b}']), "{line}");
    let line = line.replace(&lab.folder.path().display().to_string(), "FOLDER");
    match line.split_once("checked in ") {
        Some((before, rest)) => {
            let (_, after) = rest.split_once(')').expect("a time in brackets");
            format!("{before}checked in TIME){after}")
        }
        None => line,
    }
}

fn with_default(k: u32) -> String {
    format!(
        "fn params() {{ #{{ k: #{{ value: {k} }}, eps: #{{ value: 1e-6 }} }} }}\nfn advantage(batch, p) {{ batch.reward * p.k }}\n"
    )
}

#[test]
fn each_event_is_one_line() {
    let options = set("k", "8");
    let mut lab = Lab::with(&with_default(4), options);
    lab.step();
    let mut said = Vec::new();
    // The default that the run does not use, and one that it does.
    lab.save(&with_default(5).replace("1e-6", "1e-3"));
    said.push(next(&lab));
    // And the other one alone.
    lab.save(&with_default(6).replace("1e-6", "1e-3"));
    said.push(next(&lab));
    lab.step();
    lab.save(
        "fn advantage(batch, p) {\n    let x = mena(batch.reward);\n    x.meen(\"batch\")\n}\n",
    );
    said.push(next(&lab));
    lab.save(&with_default(6).replace("1e-6", "1e-3"));
    said.push(next(&lab));
    std::fs::remove_file(lab.path("recipe.rhai")).unwrap();
    said.push(next(&lab));
    // A parameter that the run had set is renamed.
    let renamed = with_default(6).replace("k:", "n:").replace("p.k", "p.n");
    lab.save(&renamed.replace("1e-6", "1e-3"));
    said.push(next(&lab));
    // Groups of one have no other: worth a warning, as the run may never have them.
    let alone = "fn advantage(batch, p) {\n    if batch.reward.count(\"group\").min(\"batch\").value() < 2 { throw \"alone\"; }\n    batch.reward\n}\n";
    lab.save(alone);
    let events = lab.until(|event| matches!(event, LiveEvent::Warned { .. }));
    said.push(shown(&lab, &events[1]));
    lab.live.begin_step().unwrap();
    let alone = super::lab::batch_with(&[1.0]);
    let attempt = (lab.live).attempt(&batch(), |recipe, state| recipe.advantage(&alone, state));
    attempt.result.unwrap();
    said.push(next(&lab));
    let why = "no inotify".to_string();
    said.push(LiveEvent::PollingOnly { why }.to_string());
    insta::assert_snapshot!(said.join("\n"));
}
