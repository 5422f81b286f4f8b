//! What a version must pass: nothing that would fail at the next step is published, and nothing that would not is kept out.

use advlab::live::LiveOptions;
use advlab::script::{Hook, Host, ParamValue, State};
use advlab::{Diagnostics, LiveRecipe};

use super::lab::{A_WHILE, Lab, batch, batch_with, set, times, within};

fn advantage(body: &str) -> String {
    format!("fn advantage(batch, p) {{ {body} }}\n")
}

const ENDLESS: &str = "let n = 0; while true { n += 1; }";

#[test]
fn a_version_without_an_end_is_rejected_and_the_run_never_waits() {
    let mut lab = Lab::with(&times(1), within(300));
    // Before the first batch, and after it.
    for count in 0..2 {
        lab.reject(
            &advantage(&format!("{ENDLESS} batch.reward * {count}.0")),
            "stopped after 0.300 s",
        );
        assert_eq!(lab.step().serial(), 0);
    }
    for hook in ["params()", "init(p)"] {
        let script = format!("fn {hook} {{ {ENDLESS} #{{}} }}\n{}", times(2));
        lab.reject(&script, "stopped after");
    }
    // Steps are done while a check goes on.
    let mut lab = Lab::new(&times(1));
    lab.save(&advantage(&format!("{ENDLESS} batch.reward")));
    std::thread::sleep(A_WHILE);
    assert_eq!(lab.step().serial(), 0);
    assert!(lab.live.events().is_empty());
}

#[test]
fn what_fails_on_the_last_batch_is_rejected() {
    let mut lab = Lab::new(&times(1));
    lab.step();
    for (body, why) in [
        (
            "batch.reward / (batch.reward - 1.0)",
            "the advantage is inf",
        ),
        ("batch.reward / 0.0", "in a dry run on the last batch"),
        ("batch.reward.mean(\"group\")", "group tensor"),
        ("batch.rewards", "`reward`"),
        ("batch.value", "no column `value`"),
    ] {
        lab.reject(&advantage(body), why);
    }
    // A loss and returns too, although there is an advantage.
    let two = times(2);
    let without_logp = "fn loss(batch, p) { batch.reward.mean(\"batch\") }";
    lab.reject(
        &format!("{two}{without_logp}"),
        "does not depend on `batch.logp`",
    );
    let without_value = "fn returns(batch, p) { batch.value }";
    lab.reject(&format!("{two}{without_value}"), "no column `value`");
    assert_eq!(lab.step().serial(), 0);
    let loss = "fn loss(batch, p) { (batch.logp * batch.advantage).mean(\"batch\") }\n";
    let published = lab.publish(&format!("{two}{loss}"));
    let has_loss = || lab.live.newest().recipe().has(Hook::Loss);
    assert!(has_loss() && published.from != published.to);
    lab.publish(&times(3));
    assert!(!has_loss());
}

/// At load and at a save, with the same reason; what may go well for some batch is let through.
#[test]
fn a_version_that_needs_a_column_that_no_batch_has_is_refused_before_the_first() {
    let options = |lacks: &[(&str, &str)], gives: &[&str]| LiveOptions {
        lacks: lacks
            .iter()
            .map(|(name, why)| (name.to_string(), why.to_string()))
            .collect(),
        gives: gives.iter().map(|name| name.to_string()).collect(),
        ..LiveOptions::default()
    };
    let some = options(
        &[("old_logp", "no log-probs"), ("logp", "no log-probs")],
        &[],
    );
    let only = options(
        &[("", "only rewards"), ("value", "no critic")],
        &["reward", "part_"],
    );
    let kl = "fn params() { #{ kl: #{ value: 0.0 } } }\nfn advantage(batch, p) { if p.kl > 0 { batch.logp } else { batch.reward } }";
    let with_loss = "fn loss(batch, p) { batch.logp.mean(\"batch\") }";
    for (options, body, why) in [
        (&some, "batch.old_logp", Some("no log-probs")),
        (&some, "batch.mine * batch.logp", Some("no log-probs")),
        (
            &some,
            "batch.key(\"name\"); batch[\"old_logp\"]",
            Some("no log-probs"),
        ),
        (&some, "batch.mine * batch.value + batch.truncated", None),
        (
            &some,
            "if batch.has(\"old_logp\") { batch.old_logp } else { batch.reward }",
            None,
        ),
        (
            &some,
            "if batch.step < 3000 { batch.old_logp } else { batch.reward }",
            None,
        ),
        (
            &some,
            "if batch.reward.max(\"batch\").value() > 0 { batch.old_logp } else { batch.reward }",
            None,
        ),
        (
            &some,
            "let m = #{ old_logp: batch.reward }; m.old_logp",
            None,
        ),
        (&some, "try { batch.old_logp } catch { batch.reward }", None),
        (&only, "batch.value", Some("no critic")),
        (&only, "batch.mine", Some("only rewards")),
        (&only, "batch.truncated", Some("only rewards")),
        (&only, "batch.logp", Some("only rewards")),
        (
            &only,
            "batch.reward + batch.part_format + batch.length + batch.correct",
            None,
        ),
    ] {
        let script = advantage(body);
        let loaded = |options: LiveOptions| -> Result<LiveRecipe, Diagnostics> {
            let recipe = Host::new().compile("mine", &script)?;
            LiveRecipe::without_file(&Host::new(), recipe, options)
        };
        let mut lab = Lab::with(&times(1), options.clone());
        match (loaded(options.clone()), why) {
            (Ok(_), None) => drop(lab.publish(&script)),
            (Err(error), Some(why)) => {
                let said = error[0].message.clone();
                assert!(
                    said.starts_with("no batch of this run has the column `"),
                    "{error}"
                );
                assert_eq!(error[0].help.as_deref(), Some(why), "{body}");
                lab.reject(&script, &said);
                lab.step();
                lab.reject(&format!("{script}// again"), &said);
            }
            (found, why) => panic!("{body}: {:?} instead of {why:?}", found.err()),
        }
        // A version that has run already is not tried again.
        let recipe = Host::new().compile("mine", &script).unwrap();
        let left = vec![(recipe, State::default())];
        assert!(
            loaded(LiveOptions {
                left,
                ..options.clone()
            })
            .is_ok(),
            "{body}"
        );
    }
    // A parameter decides, and a loss beside an advantage does not run.
    let lab = Lab::with(&format!("{kl}\n{with_loss}"), some.clone());
    lab.nothing();
    let set = LiveOptions {
        settings: vec![("kl".into(), "1".into())],
        ..some
    };
    let recipe = Host::new().compile("mine", kl).unwrap();
    assert!(LiveRecipe::without_file(&Host::new(), recipe, set).is_err());
}

/// A run that never passes an advantage to the recipe runs no loss on it, so a loss that would fail rejects no save.
#[test]
fn a_loss_that_the_run_does_not_run_is_not_tried() {
    let with_loss = format!(
        "{}\nfn loss(batch, p) {{ batch.mine.mean(\"batch\") }}",
        times(2)
    );
    let lacks = [("advantage".to_string(), "only advantages".to_string())];
    for (lacks, is_tried) in [(Some(lacks), false), (None, true)] {
        let options = LiveOptions {
            lacks: lacks.into_iter().flatten().collect(),
            ..LiveOptions::default()
        };
        let mut lab = Lab::with(&times(1), options);
        lab.step();
        if is_tried {
            lab.reject(&with_loss, "no column `mine`");
        } else {
            lab.publish(&with_loss);
        }
    }
}

#[test]
fn what_every_run_meets_must_not_fail() {
    let mut lab = Lab::new(&times(1));
    lab.step();
    // 0 / 0 if a group's rewards are equal, as in no group of the last batch.
    let normalised = "let r = batch.reward; (r - r.mean(\"group\")) / r.std(\"group\")";
    let why = "in a dry run on a batch whose responses are all right";
    lab.reject(&advantage(normalised), why);
    // A recipe that fails there already may be edited all the same.
    let mut lab = Lab::new(&advantage(normalised));
    lab.step();
    lab.publish(&advantage(&format!("{normalised} * 2.0")));
}

#[test]
fn a_warning_is_said_when_it_is_new() {
    let mut lab = Lab::new(&times(1));
    lab.step();
    // What only some runs meet.
    let of_two = "if batch.reward.count(\"group\").min(\"batch\").value() < 2.0 { throw \"k is 2\"; } batch.reward";
    let warnings = lab.warned(&advantage(of_two));
    assert_eq!(
        warnings,
        ["this version would fail on groups of one: k is 2"]
    );
    lab.step();
    lab.publish(&advantage(&format!("{of_two} * 2.0")));
    // What the lint finds.
    let unread = "fn params() { #{ k: #{ value: 4 } } }\n";
    assert_eq!(lab.warned(&format!("{unread}{}", times(2))).len(), 1);
    lab.publish(&format!("{unread}{}", times(3)));
    lab.nothing();
}

/// Beside the version of the last step, however many were saved since.
#[test]
fn a_version_is_told_with_its_effect_on_the_last_batch() {
    let centred = |factor: &str| {
        advantage(&format!(
            "{factor} * (batch.reward - batch.reward.mean(\"group\"))"
        ))
    };
    let mut lab = Lab::new(&centred("1.0"));
    // Nothing is known of a batch yet.
    let first = lab.publish(&centred("2.0"));
    assert_eq!(first.effect, [""; 0]);
    lab.step();
    let turned = lab.publish(&centred("-2.0"));
    let worse = "no longer holds: right up, wrong down: raises 2 wrong responses and lowers 2 right responses, of 4 in total, and so favours wrong responses: is a sign reversed?";
    let numbers = |text: &str| {
        format!("advantage on the last batch compared with the last step's version{text}")
    };
    let expected = [
        numbers(": correlation -1.00, std 1.155 -> 1.155"),
        worse.to_string(),
    ];
    assert_eq!(turned.effect, expected);
    let larger = lab.publish(&centred("2000.0"));
    let beside = numbers(": correlation 1.00, std 1.155 -> 1155");
    assert_eq!(larger.effect, [beside]);
    lab.step();
    let same = lab.publish(&centred("0.0"));
    let [numbers, nothing] = &same.effect[..] else {
        panic!("{same:?}");
    };
    // Without a spread there is no correlation.
    assert_eq!(
        numbers,
        "advantage on the last batch compared with the last step's version: std 1155 -> 0"
    );
    assert!(
        nothing.ends_with("every advantage is 0: this recipe gives no learning signal"),
        "{nothing}"
    );
    lab.step();
    let back = lab.publish(&centred("1.0"));
    assert_eq!(
        back.effect,
        ["advantage on the last batch compared with the last step's version: std 0 -> 0.5774"]
    );
}

/// By token, and with the states that the versions have.
#[test]
fn an_effect_is_that_of_tokens_and_states() {
    let counting = |body: &str| {
        format!("fn init(p) {{ #{{ n: 0 }} }}\nfn advantage(batch, p) {{ this.n += 1; {body} }}\n")
    };
    let mut lab = Lab::new(&counting("batch.reward"));
    lab.step();
    lab.step();
    // The second step again, which has it twice as large, at the first token of a response only.
    let by_token = "batch.reward * this.n * where(batch.old_logp < -0.3, 1.0, 0.0)";
    let effect = lab.publish(&counting(by_token)).effect;
    assert_eq!(
        effect[0],
        "advantage on the last batch compared with the last step's version: correlation 0.58, std 0.5774 -> 0.9258"
    );
}

#[test]
fn a_version_that_fails_at_a_step_gives_way_to_the_one_before() {
    let mut lab = Lab::new(&times(1));
    let first = lab.step();
    let fragile = advantage(
        "if batch.reward.max(\"batch\").value() > 5.0 { throw \"too much\"; } batch.reward * 3.0",
    );
    lab.publish(&fragile);
    lab.step();
    let unusual = batch_with(&[9.0, 0.0, 0.0, 1.0]);
    assert!(std::sync::Arc::ptr_eq(&lab.step_on(&unusual), &first));
    let (error, still_using) = lab.failed_at_step();
    assert!(error.contains("too much") && still_using == first.version().to_string());
    for _ in 0..3 {
        assert_eq!(lab.step().serial(), 0);
    }
    // Saved again, it is tried again; an edit that does not mend it meets the same batch, though the run has gone on.
    let why = "the batch on which a version failed";
    lab.reject(&fragile, why);
    lab.reject(&fragile.replace("3.0", "4.0"), why);
    lab.revert(&times(1));
    lab.publish(&fragile.replace("5.0", "50.0"));
    assert_eq!(lab.step_on(&unusual).serial(), 2);
}

#[test]
fn the_first_version_has_nothing_to_give_way_to() {
    let mut lab = Lab::new(&advantage("throw \"always\""));
    let error = lab.live.step(&batch()).unwrap_err();
    assert!(error.to_string().contains("always"));
    // But it is mended by an edit.
    lab.publish(&times(1));
    assert_eq!(lab.step().serial(), 1);
}

#[test]
fn required_hooks_must_stay() {
    let loss = "fn loss(batch, p) { (batch.logp * batch.reward).mean(\"batch\") }\n";
    let options = LiveOptions {
        requires: vec![Hook::Loss],
        ..LiveOptions::default()
    };
    let lab = Lab::with(loss, options);
    lab.reject(&times(1), "no `loss`, which this run calls");
    lab.publish(&format!("{loss}{}", times(1)));
    assert!(lab.live.newest().recipe().has(Hook::Advantage));
}

#[test]
fn the_runs_settings_hold_for_each_version() {
    let body = "fn advantage(batch, p) { batch.reward * p.scale }";
    let scaled = |params: &str| format!("fn params() {{ #{{ {params} }} }}\n{body}\n");
    let first = scaled("scale: #{ value: 1.0, min: 0.0 }, k: #{ value: 1 }");
    let mut lab = Lab::with(&first, set("k", "8"));
    let more = "scale: #{ value: 2.0, min: 0.0 }, more: #{ value: true }";
    for (params, changes) in [
        // A default changes, a parameter comes, the run's own value stays.
        (
            format!("{more}, k: #{{ value: 3 }}"),
            "k stays 8, because the run sets it; more is new: true; scale 1.0 -> 2.0",
        ),
        // The parameter goes, and comes back.
        (
            more.to_string(),
            "k (set to 8 by the run) is no longer declared",
        ),
        (format!("{more}, k: #{{ value: 4 }}"), "k is new: 8"),
    ] {
        assert_eq!(lab.publish(&scaled(&params)).parameters.join("; "), changes);
        let k = lab.step().recipe().params().get("k").cloned();
        assert_eq!(k, params.contains('k').then_some(ParamValue::Integer(8)));
    }
    // Bounds that the run's value breaks.
    let bounded = scaled(&format!("{more}, k: #{{ value: 3, max: 4 }}"));
    lab.save(&bounded);
    let message = lab.rejected();
    let says = |words| message.contains(words);
    assert!(says("at most 4") && says("the run sets k=8"), "{message}");
}
