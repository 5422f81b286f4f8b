//! What a version must pass: nothing that would fail at the next step is published, and nothing that would not is kept out.

use std::time::{Duration, Instant};

use advlab::live::{LiveEvent, LiveOptions};
use advlab::script::{Hook, Setting};

use super::lab::{Lab, batch, batch_with, set, times};

fn advantage(body: &str) -> String {
    format!("fn advantage(batch, p) {{ {body} }}\n")
}

#[test]
fn a_version_without_an_end_is_rejected_and_the_run_never_waits() {
    let mut lab = Lab::with(
        &times(1),
        LiveOptions {
            deadline: Some(Duration::from_millis(300)),
            ..LiveOptions::default()
        },
    );
    // Before the first batch, and after it.
    for count in 0..2 {
        lab.save(&advantage(&format!(
            "let n = {count}; while true {{ n += 1; }} batch.reward"
        )));
        let mut longest = Duration::ZERO;
        let started = Instant::now();
        let message = loop {
            let before = Instant::now();
            lab.live.begin_step().unwrap();
            longest = longest.max(before.elapsed());
            match &lab.live.events()[..] {
                [] => std::thread::sleep(Duration::from_millis(1)),
                [LiveEvent::Rejected { error, .. }] => break error.to_string(),
                other => panic!("{other:#?}"),
            }
            assert!(started.elapsed() < Duration::from_secs(15));
        };
        assert!(message.contains("stopped after 0.300 s"), "{message}");
        assert!(longest < Duration::from_millis(100), "{longest:?}");
        assert_eq!(lab.step().serial(), 0);
    }
    // So are `params` and `init`.
    lab.save(&format!(
        "fn params() {{ let n = 0; while true {{ n += 1; }} #{{}} }}\n{}",
        times(2)
    ));
    assert!(lab.rejected().contains("stopped after"));
    lab.save(&format!(
        "fn init(p) {{ let n = 0; while true {{ n += 1; }} #{{}} }}\n{}",
        times(2)
    ));
    assert!(lab.rejected().contains("stopped after"));
}

#[test]
fn what_fails_on_the_last_batch_is_rejected() {
    let mut lab = Lab::new(&times(1));
    lab.step();
    lab.save(&advantage("batch.reward / (batch.reward - 1.0)"));
    let message = lab.rejected();
    assert!(message.contains("the advantage is inf"), "{message}");
    assert!(
        message.contains("in a dry run on the last batch"),
        "{message}"
    );
    lab.save(&advantage("batch.reward.mean(\"group\")"));
    assert!(lab.rejected().contains("group tensor"));
    lab.save(&advantage("batch.rewards"));
    assert!(lab.rejected().contains("`reward`"));
    lab.save(&advantage("batch.value"));
    lab.rejected();
    // A loss too, also where there is an advantage.
    lab.save(&format!(
        "{}fn loss(batch, p) {{ batch.reward.mean(\"batch\") }}\n",
        times(2)
    ));
    assert!(lab.rejected().contains("does not depend on `batch.logp`"));
    let returns = format!("{}fn returns(batch, p) {{ batch.value }}\n", times(2));
    lab.save(&returns);
    let message = lab.rejected();
    assert!(message.contains("no column `value`"), "{message}");
    assert_eq!(lab.step().serial(), 0);
    lab.save(&format!(
        "{}fn loss(batch, p) {{ (batch.logp * batch.advantage).mean(\"batch\") }}\n",
        times(2)
    ));
    let published = lab.published();
    let has_loss = || lab.live.newest().recipe().has(Hook::Loss);
    assert!(has_loss() && published.from != published.to);
    lab.save(&times(3));
    lab.published();
    assert!(!has_loss());
}

#[test]
fn what_every_run_meets_must_not_fail() {
    let mut lab = Lab::new(&times(1));
    lab.step();
    // 0 / 0 where a group's rewards are equal, as in no group of the last batch.
    let normalised = "let r = batch.reward; (r - r.mean(\"group\")) / r.std(\"group\")";
    lab.save(&advantage(normalised));
    let message = lab.rejected();
    assert!(message.contains("NaN"), "{message}");
    assert!(
        message.contains("in a dry run on a batch whose responses are all right"),
        "{message}"
    );
    // A recipe that fails there already may be edited all the same.
    let mut lab = Lab::new(&advantage(normalised));
    lab.step();
    lab.save(&advantage(&format!("{normalised} * 2.0")));
    lab.published();
}

#[test]
fn what_only_some_runs_meet_is_a_warning() {
    let mut lab = Lab::new(&times(1));
    lab.step();
    let of_two = "if batch.reward.count(\"group\").min(\"batch\").value() < 2.0 { throw \"k is 2\"; } batch.reward";
    lab.save(&advantage(of_two));
    let events = lab.until(|event| matches!(event, LiveEvent::Warned { .. }));
    match &events[..] {
        [LiveEvent::Published(_), LiveEvent::Warned { warnings, .. }] => {
            assert_eq!(warnings.len(), 1, "{warnings:#?}");
            let message = &warnings[0].message;
            assert!(
                message.contains("would fail on groups of one: k is 2"),
                "{message}"
            );
        }
        other => panic!("{other:#?}"),
    }
    // Once said, the next edit does not say it again.
    lab.step();
    lab.save(&advantage(&format!("{of_two} * 2.0")));
    lab.published();
    lab.nothing();
}

#[test]
fn a_lint_warning_is_said_when_it_is_new() {
    let lab = Lab::new(&times(1));
    let odd = |factor: u32| {
        let unread = "fn params() { #{ k: #{ value: 4 } } }";
        format!(
            "{unread}\n{}",
            advantage(&format!("batch.reward * {factor}.0"))
        )
    };
    lab.save(&odd(2));
    let events = lab.until(|event| matches!(event, LiveEvent::Warned { .. }));
    assert_eq!(events.len(), 2, "{events:#?}");
    lab.save(&odd(3));
    lab.published();
    lab.nothing();
}

#[test]
fn a_version_that_fails_at_a_step_gives_way_to_the_one_before() {
    let mut lab = Lab::new(&times(1));
    let first = lab.step();
    let fragile = advantage(
        "if batch.reward.max(\"batch\").value() > 5.0 { throw \"too much\"; } batch.reward * 3.0",
    );
    lab.save(&fragile);
    lab.published();
    lab.step();
    let unusual = batch_with(&[9.0, 0.0, 0.0, 1.0]);
    assert!(std::sync::Arc::ptr_eq(&lab.step_on(&unusual), &first));
    match &lab.until(|_| true)[..] {
        [
            LiveEvent::Rejected {
                error,
                still_using,
                at_step: true,
                ..
            },
        ] => {
            assert!(error.to_string().contains("too much"));
            assert_eq!(still_using, first.version());
        }
        other => panic!("{other:#?}"),
    }
    for _ in 0..3 {
        assert_eq!(lab.step().serial(), 0);
    }
    // Saved again, it is tried again; an edit that does not mend it meets the same batch, though the run has gone on.
    lab.save(&fragile);
    assert!(
        lab.rejected()
            .contains("the batch on which a version failed")
    );
    lab.save(&fragile.replace("3.0", "4.0"));
    let message = lab.rejected();
    assert!(
        message.contains("the batch on which a version failed"),
        "{message}"
    );
    lab.save(&times(1));
    assert!(matches!(
        lab.until(|_| true)[..],
        [LiveEvent::Reverted { .. }]
    ));
    lab.save(&fragile.replace("5.0", "50.0"));
    lab.published();
    assert_eq!(lab.step_on(&unusual).serial(), 2);
}

#[test]
fn the_first_version_has_nothing_to_give_way_to() {
    let mut lab = Lab::new(&advantage("throw \"always\""));
    let error = lab.live.step(&batch()).unwrap_err();
    assert!(error.to_string().contains("always"));
    // But it is mended by an edit.
    lab.save(&times(1));
    lab.published();
    assert_eq!(lab.step().serial(), 1);
}

#[test]
fn required_hooks_must_stay() {
    let loss = "fn loss(batch, p) { (batch.logp * batch.reward).mean(\"batch\") }\n";
    let lab = Lab::with(
        loss,
        LiveOptions {
            requires: vec![Hook::Loss],
            ..LiveOptions::default()
        },
    );
    lab.save(&times(1));
    assert!(lab.rejected().contains("no `loss`, which this run calls"));
    lab.save(&format!("{loss}{}", times(1)));
    lab.published();
    assert!(lab.live.newest().recipe().has(Hook::Advantage));
}

#[test]
fn the_runs_settings_hold_for_each_version() {
    let scaled = |params: &str| {
        format!(
            "fn params() {{ #{{ {params} }} }}\nfn advantage(batch, p) {{ batch.reward * p.scale }}\n"
        )
    };
    let mut lab = Lab::with(
        &scaled("scale: #{ value: 1.0, min: 0.0 }, k: #{ value: 1 }"),
        set("k", "8"),
    );
    // A default changes, a parameter comes, the run's own value stays, which is told too.
    lab.save(&scaled(
        "scale: #{ value: 2.0, min: 0.0 }, k: #{ value: 3 }, more: #{ value: true }",
    ));
    let published = lab.published();
    let changes: Vec<_> = published
        .parameters
        .iter()
        .map(|change| {
            (
                change.name.as_str(),
                change.was.clone(),
                change.now.clone(),
                change.set_by_run,
            )
        })
        .collect();
    assert_eq!(
        changes,
        [
            ("k", Some(Setting::Whole(8)), Some(Setting::Whole(8)), true),
            ("more", None, Some(Setting::Truth(true)), false),
            (
                "scale",
                Some(Setting::Number(1.0)),
                Some(Setting::Number(2.0)),
                false
            ),
        ]
    );
    assert!(published.parameters[0].is_held() && !published.parameters[2].is_held());
    assert_eq!(
        lab.step().recipe().params().get("k"),
        Some(&Setting::Whole(8))
    );
    // Bounds that the run's value breaks.
    lab.save(&scaled("scale: #{ value: 2.0 }, k: #{ value: 3, max: 4 }"));
    let message = lab.rejected();
    assert!(
        message.contains("at most 4") && message.contains("the run sets k=8"),
        "{message}"
    );
    // The parameter goes, and comes back.
    lab.save(&scaled(
        "scale: #{ value: 2.0, min: 0.0 }, more: #{ value: true }",
    ));
    let published = lab.published();
    assert_eq!(published.parameters.len(), 1);
    let gone = &published.parameters[0];
    assert_eq!(
        (gone.name.as_str(), &gone.now, gone.set_by_run),
        ("k", &None, true)
    );
    lab.save(&scaled("scale: #{ value: 2.0 }, k: #{ value: 3 }"));
    lab.published();
    assert_eq!(
        lab.step().recipe().params().get("k"),
        Some(&Setting::Whole(8))
    );
}
