//! The language server as an editor meets it: its answers by table, broken messages too, and its limits.

mod editor;
mod neovim;

use std::fs;

use serde_json::{Value, json};

use crate::run::lab::{Lab, go_until};
use advlab_train::Event;
use editor::Editor;

const SCRIPT: &str = r#"//! Mine: 数 and 😀 count in UTF-16.
import "grpo" as grpo;
import "beside" as beside;

fn params() {
    #{ eps: #{ value: 0.5, min: 0.0, doc: "keeps away from 0" } }
}

fn centred(r, to) { r - r.mean(to) }

fn advantage(batch, p) {
    let r = batch.reward; let label = "😀数"; let c = centred(r, "group");
    let s = if p.eps > 0.0 { r.std("group") } else { r };
    c / (s + p.eps) + 0.0 * beside::twice(r)
}
"#;
const BESIDE: &str = "fn twice(x) { 2.0 * x }\n";

fn opened() -> Editor {
    let mut editor = Editor::new(json!({}));
    editor.write("beside.rhai", BESIDE);
    editor.open("mine.rhai", SCRIPT);
    editor
}

/// A place is given by what is before it and what is after it. An answer has the text that is expected, or none.
#[test]
fn each_request_is_answered_about_its_place() {
    let mut editor = opened();
    for (method, before, after, expected) in [
        (
            "hover",
            "= batch.",
            "reward",
            "response tensor   128 values",
        ),
        ("hover", "let ", "c = ", "mean 0   std 0.3791"),
        ("hover", "let ", "s = ", "group tensor   16 values"),
        ("hover", "let ", "label", "😀数"),
        ("hover", "    c ", "/ (s", "a / b"),
        ("hover", "    c ", "/ (s", "here: response tensor"),
        ("hover", "{ r.", "std(", "x.std(level, [selection])"),
        ("hover", "c = ", "centred(", "centred(r, to)"),
        (
            "hover",
            "s + p.",
            "eps",
            "p.eps = 0.5\\nkeeps away from 0\\na number, at least 0; default 0.5",
        ),
        (
            "hover",
            "import \"",
            "grpo",
            "GRPO: the reward, normalised in its group",
        ),
        ("hover", "beside::", "twice", "twice(x) of "),
        (
            "hover",
            "= ",
            "batch.reward",
            "the built-in batch: 128 responses",
        ),
        ("hover", "//! M", "ine", "null"),
        (
            "definition",
            "c = ",
            "centred(",
            r#""start":{"line":8,"character":3}"#,
        ),
        (
            "definition",
            "    ",
            "c / (",
            r#""start":{"line":11,"character":49}"#,
        ),
        (
            "definition",
            "s + p.",
            "eps",
            r#""start":{"line":5,"character":7}"#,
        ),
        ("definition", "import \"", "grpo", "grpo.rhai"),
        ("definition", "beside::", "twice", "beside.rhai"),
        ("definition", "r.", "mean(", "null"),
        (
            "completion",
            "= batch.",
            "reward",
            r#""label":"old_logp","kind":6,"detail":"token""#,
        ),
        (
            "completion",
            "= batch.",
            "reward",
            r#""newText":"map_groups(""#,
        ),
        ("completion", "s + p.", "eps", r#""label":"eps""#),
        ("completion", "(r, \"", "group", r#""label":"trajectory""#),
        ("completion", "beside::", "twice", r#""label":"twice""#),
        ("completion", "+ 0.0 * ", "beside", r#""label":"centred""#),
        ("completion", "+ 0.0 * ", "beside", r#""label":"label""#),
        ("completion", "import \"", "beside", r#""label":"ppo_clip""#),
        (
            "signatureHelp",
            "r.mean(",
            "to)",
            r#""label":"x.mean(level, [selection])""#,
        ),
        (
            "signatureHelp",
            "centred(r, ",
            "\"group",
            r#""activeParameter":1"#,
        ),
        (
            "signatureHelp",
            "beside::twice(",
            "r",
            r#""label":"twice(x)""#,
        ),
        (
            "documentSymbol",
            "",
            "",
            r#""name":"advantage","detail":"advantage(batch, p)","kind":12"#,
        ),
        ("inlayHint", "", "", r#"": response""#),
        (
            "inlayHint",
            "",
            "",
            r#"{"position":{"line":12,"character":9},"label":": group","kind":1}"#,
        ),
    ] {
        let answer = editor.at(method, before, after, json!({})).to_string();
        assert!(
            answer.contains(expected),
            "{method} {before}¦{after}: {answer}"
        );
    }
    assert!(editor.diagnostics().is_empty());
    let grpo = editor.at("definition", "import \"", "grpo", json!({}))["uri"].clone();
    let file = grpo.as_str().unwrap().strip_prefix("file://").unwrap();
    assert!(fs::metadata(file).unwrap().permissions().readonly());
    assert!(fs::read_to_string(file).unwrap().starts_with("//! GRPO"));
    editor.set_settings(json!({ "advlab": { "inlayHints": false } }));
    assert_eq!(editor.at("inlayHint", "", "", json!({})), Value::Null);
}

/// Renaming, then the whole text; or why it is refused.
#[test]
fn a_name_is_renamed_where_it_means_the_same() {
    let mut editor = opened();
    for (before, after, name, expected) in [
        (
            "let ",
            "r = batch",
            "x",
            "let x = batch.reward; let label = \"😀数\"; let c = centred(x, \"group\");",
        ),
        (
            "let ",
            "r = batch",
            "x",
            "fn centred(r, to) { r - r.mean(to) }",
        ),
        (
            "fn ",
            "centred",
            "away",
            "fn away(r, to) { r - r.mean(to) }",
        ),
        ("fn ", "centred", "away", "let c = away(r"),
        ("fn ", "advantage", "a", "a hook"),
        ("let ", "r = batch", "c", "used already"),
        ("let ", "r = batch", "let", "no word of the language"),
        ("let ", "r = batch", "a b", "letters, digits"),
        ("batch.", "reward", "x", "no variable or function"),
        ("//! ", "Mine", "x", "no variable or function"),
    ] {
        let answer = editor.at("rename", before, after, json!({ "newName": name }));
        let text = editor.edited(&answer);
        assert!(text.contains(expected), "{before}¦{after} {name}: {text}");
    }
}

/// What is wrong, what a code action makes of it, and that the diagnostic is gone then.
#[test]
fn what_a_help_says_is_done_by_an_action() {
    let mut editor = opened();
    for (right, slip, message) in [
        (
            "batch.reward",
            "batch.rewrad",
            "the batch has no column `rewrad`\nhelp: did you mean `reward`?\nnote: in a dry run on the built-in batch",
        ),
        ("r.std(", "r.sdt(", "there is no function `sdt`"),
        ("c / (s", "cc / (s", "there is no variable `cc`"),
        (
            "fn advantage(",
            "fn advantge(",
            "`advantge` is not a hook's name",
        ),
        (
            "import \"grpo\"",
            "import \"gpro\"",
            "there is no recipe \"gpro\" to import",
        ),
        (
            "= batch.reward",
            "= reward",
            "there is no variable `reward`",
        ),
        ("(s + p.eps)", "(s + p.scale)", "`p` has no `scale`"),
    ] {
        let wrong = SCRIPT.replacen(right, slip, 1);
        editor.change(&wrong);
        let found = editor.diagnostics();
        let shown = found
            .first()
            .map_or("", |one| one["message"].as_str().unwrap());
        assert!(shown.contains(message), "{slip}: {found:?}");
        let range = json!({ "range": found[0]["range"], "context": { "diagnostics": found } });
        let actions = editor.at("codeAction", "", "", range);
        let text = editor.edited(&actions[0]["edit"]);
        assert!(text != wrong, "{slip}: {actions}");
        editor.change(&text);
        assert_eq!(editor.diagnostics(), [Value::Null; 0], "{slip}: {text}");
    }
    // Without `params()` yet, above the comment of the first function.
    editor.change("//! Mine.\n\n// All.\nfn advantage(batch, p) { batch.reward * p.k }\n");
    let range = editor.diagnostics()[0]["range"].clone();
    let actions = editor.at("codeAction", "", "", json!({ "range": range }));
    assert_eq!(
        editor.edited(&actions[0]["edit"]),
        "//! Mine.\n\nfn params() {\n    #{ k: #{ value: 1.0, doc: \"\" } }\n}\n\n// All.\nfn advantage(batch, p) { batch.reward * p.k }\n"
    );
}

#[test]
fn an_error_in_an_import_is_shown_at_the_import_with_its_place() {
    let mut editor = opened();
    editor.write("beside.rhai", "fn twice(x) {\n    2.0 * y\n}\n");
    editor.tell(
        "textDocument/didSave",
        json!({ "textDocument": { "uri": editor.uri("beside.rhai") } }),
    );
    let found = editor.diagnostics();
    assert_eq!(
        found[0]["range"]["start"],
        json!({ "line": 2, "character": 7 })
    );
    let related = &found[0]["relatedInformation"][0]["location"];
    assert!(
        related["uri"].as_str().unwrap().ends_with("beside.rhai"),
        "{found:?}"
    );
    assert_eq!(
        related["range"]["start"],
        json!({ "line": 1, "character": 10 })
    );
    editor.write("beside.rhai", BESIDE);
    editor.tell(
        "textDocument/didSave",
        json!({ "textDocument": { "uri": editor.uri("beside.rhai") } }),
    );
    assert_eq!(editor.diagnostics(), [Value::Null; 0]);
}

/// Messages that are broken or about nothing: an error or nothing, and the next request is answered.
#[test]
fn broken_messages_end_nothing() {
    let mut editor = opened();
    let far = json!({ "line": 4_000_000_000u64, "character": 4_000_000_000u64 });
    let own = json!({ "uri": editor.uri("mine.rhai") });
    let methods = "hover completion signatureHelp documentSymbol rename definition inlayHint codeAction nothing";
    for method in methods.split(' ') {
        for params in [
            json!(null),
            json!([1, "a"]),
            json!({ "textDocument": { "uri": "file:///nowhere.rhai" }, "position": far }),
            json!({ "textDocument": own, "position": far, "range": { "start": far, "end": far } }),
            json!({ "textDocument": own, "position": { "line": -1, "character": 1.5 }, "range": 7 }),
            json!({ "textDocument": own, "position": "here", "newName": 5 }),
            // Between the halves of a letter of two units.
            json!({ "textDocument": own, "position": { "line": 11, "character": 40 }, "newName": "x" }),
        ] {
            editor.ask(&format!("textDocument/{method}"), params);
        }
    }
    let change = |range: Value, text: &str| json!({ "range": range, "text": text });
    for (method, params) in [
        (
            "textDocument/didChange",
            json!({ "textDocument": { "uri": "file:///nowhere.rhai", "version": 1 }, "contentChanges": [] }),
        ),
        (
            "textDocument/didChange",
            json!({ "textDocument": own, "contentChanges": [change(json!(5), "")] }),
        ),
        (
            "textDocument/didClose",
            json!({ "textDocument": { "uri": "file:///nowhere.rhai" } }),
        ),
        ("textDocument/didOpen", json!({})),
        ("workspace/didChangeConfiguration", json!(null)),
        ("$/cancelRequest", json!({ "id": 99_999 })),
        ("$/nothing", json!(null)),
    ] {
        editor.tell(method, params);
    }
    editor.open("mine.rhai", SCRIPT);
    let answer = editor.at("hover", "let ", "r = ", json!({})).to_string();
    assert!(answer.contains("response tensor"), "{answer}");
}

/// Edits by ranges that count UTF-16, at places outside of the text too, leave the text that an editor has.
#[test]
fn edits_count_in_utf_16() {
    let mut editor = opened();
    let place = |line: u64, character: u64| json!({ "line": line, "character": character });
    editor.tell(
        "textDocument/didChange",
        json!({ "textDocument": { "uri": editor.uri("mine.rhai"), "version": 2 }, "contentChanges": [
            // 😀 is two units, 数 is one.
            { "range": { "start": place(11, 39), "end": place(11, 42) }, "text": "é" },
            { "range": { "start": place(11, 18), "end": place(11, 24) }, "text": "rewrad" },
            { "range": { "start": place(999, 0), "end": place(999, 9) }, "text": "// 😀 end" },
        ] }),
    );
    let found = editor.diagnostics();
    assert_eq!(
        found[0]["range"],
        json!({ "start": place(11, 18), "end": place(11, 24) })
    );
    let all = editor.ask(
        "textDocument/documentSymbol",
        json!({ "textDocument": { "uri": editor.uri("mine.rhai") } }),
    );
    assert_eq!(all[2]["range"]["end"], place(14, 1), "{all}");
}

/// A script without an end keeps nobody waiting, and is stopped; a document that is closed meanwhile gets no diagnostics.
#[test]
fn an_endless_script_is_stopped_and_blocks_nothing() {
    let mut editor = Editor::new(json!({}));
    let endless = "fn advantage(batch, p) { loop { } batch.reward }";
    editor.open("endless.rhai", endless);
    // Answered before the check ends, or it would not come before its diagnostics.
    let answer = editor.at("completion", "batch.", "reward", json!({}));
    assert!(!editor.has_news(), "{answer}");
    let found = editor.diagnostics();
    assert!(
        found[0]["message"].as_str().unwrap().contains("stopped"),
        "{found:?}"
    );
    editor.change(&format!("{endless} "));
    editor.tell(
        "textDocument/didClose",
        json!({ "textDocument": { "uri": editor.uri("endless.rhai") } }),
    );
    let hover = json!({ "textDocument": { "uri": editor.uri("endless.rhai") }, "position": { "line": 0, "character": 0 } });
    assert_eq!(editor.ask("textDocument/hover", hover), Value::Null);
    editor.open(
        "other.rhai",
        "fn advantage(batch, p) { let r = batch.reward; r }",
    );
    assert!(
        editor
            .at("hover", "let ", "r = ", json!({}))
            .to_string()
            .contains("response")
    );
    let late = editor
        .told
        .iter()
        .filter(|(uri, version, _)| uri.ends_with("endless.rhai") && *version == 2);
    assert_eq!(late.count(), 0);
}

/// Fifty changes of ten thousand lines, with a request after each: every request has one answer, those that wait are few, and
/// what is told is about the last text only.
#[test]
fn many_changes_of_a_long_text_lead_to_answers_about_the_last_one() {
    let mut editor = Editor::new(json!({}));
    let lines = "    // a line\n".repeat(10_000);
    let text = |name: &str| {
        format!(
            "fn advantage(batch, p) {{\n{lines}    let {name} = batch.reward;\n    {name}\n}}\n"
        )
    };
    editor.open("long.rhai", &text("a0"));
    assert!(editor.diagnostics().is_empty());
    let place = json!({ "line": 10_001, "character": 8 });
    let hover = json!({ "textDocument": { "uri": editor.uri("long.rhai") }, "position": place });
    let mut asked = Vec::new();
    for number in 1..=50 {
        editor.send_change(&text(&format!("a{number}")));
        asked.extend((0..2).map(|_| editor.send("textDocument/hover", hover.clone())));
    }
    let mut refused = 0;
    for id in asked {
        let answer = editor.answer_to(id);
        match answer["code"].as_i64() {
            Some(code) => refused += i64::from(code == -32801),
            None => assert!(answer.to_string().contains("a50"), "{answer}"),
        }
    }
    assert!(refused >= 100 - 64 && refused < 100, "{refused}");
    let versions = editor.told.iter().map(|(_, version, _)| *version);
    assert_eq!(versions.collect::<Vec<_>>(), [1, 51]);
}

#[test]
fn a_connection_ends_in_any_order() {
    for (messages, expected) in [
        ("initialize shutdown exit", "Ok(true)"),
        (
            "initialize initialized shutdown hover shutdown exit",
            "Ok(true)",
        ),
        ("initialize exit", "Ok(false)"),
        ("initialize open exit", "Ok(false)"),
        ("initialize open shutdown", "Ok(true)"),
        ("initialize open", "Ok(false)"),
        ("hover initialize shutdown exit", "Ok(true)"),
        ("exit", "Err"),
        ("shutdown exit", "Err"),
        ("", "Err"),
    ] {
        let ended = editor::session(messages);
        assert!(ended.starts_with(expected), "{messages}: {ended}");
    }
}

/// The newest run of the script gives the batch and the settings; when it writes, the values are new.
#[test]
fn the_batch_is_the_last_one_of_the_newest_run_of_the_script() {
    let mut lab = Lab::new(
        "fn params() { #{ k: #{ value: 2.0 } } }\nfn advantage(batch, p) { let r = batch.reward; r * p.k }\n",
    );
    lab.config.params = toml::toml! { k = 3.0 };
    let mut run = lab.create();
    go_until(
        &mut run,
        |event| matches!(event, Event::Step { row, .. } if row.step == 5),
    );
    drop(run);
    let mut editor = Editor::within(lab.place(), json!({ "batch": "nowhere.jsonl" }));
    editor.open("recipe.rhai", &fs::read_to_string(lab.script()).unwrap());
    let about = |editor: &mut Editor| {
        editor
            .at("hover", "= ", "batch.reward", json!({}))
            .to_string()
    };
    assert!(about(&mut editor).contains("run, step 4: 16 responses in 4 groups of 4"));
    let value = editor.at("hover", "r * p.", "k", json!({})).to_string();
    assert!(value.contains("p.k = 3.0"), "{value}");
    go_until(
        &mut lab.resume(),
        |event| matches!(event, Event::Step { row, .. } if row.step == 9),
    );
    while !about(&mut editor).contains("run, step 8:") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // Another script of the same folder has no run, and a setting that is no file.
    editor.open("other.rhai", "fn advantage(batch, p) { batch.reward }");
    let found = editor.diagnostics();
    assert!(
        found[0]["message"]
            .as_str()
            .unwrap()
            .contains("so the built-in batch is used"),
        "{found:?}"
    );
}
