//! A trainer's one call a step: the newest version, its state, and the way back where it fails.

use advlab::live::{LiveEvent, LiveOptions, LiveRecipe};
use advlab::script::State;
use advlab::{Batch, Host};
use serde_json::json;

use super::lab::{Lab, batch, batch_with};

/// Counts its steps in `this.n`, and fails where a reward is above 5.
fn fragile(factor: u32) -> String {
    format!(
        "fn init(p) {{ #{{ n: 0 }} }}
fn advantage(batch, p) {{
    this.n += 1; metric(\"n\", this.n);
    if batch.reward.max(\"batch\").value() > 5.0 {{ throw \"too much\"; }}
    batch.reward * {factor}.0
}}"
    )
}

fn fields(state: &State) -> serde_json::Value {
    state.to_json()["map"].clone()
}

#[test]
fn a_save_between_steps_is_used_by_the_next_one() {
    let mut lab = Lab::new(&fragile(1));
    let first = lab.live.step(&batch()).unwrap();
    assert_eq!(first.outcome.advantage.at(0, 0), 1.0);
    assert_eq!(first.outcome.reports.metrics, [("n".to_string(), 1.0)]);
    assert!(first.events.is_empty());
    lab.save(&fragile(2));
    while lab.live.newest().serial() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let second = lab.live.step(&batch()).unwrap();
    assert_eq!(second.outcome.advantage.at(0, 0), 2.0);
    assert_eq!(second.loaded.serial(), 1);
    let [LiveEvent::Published(change)] = &second.events[..] else {
        panic!("{:#?}", second.events);
    };
    assert_eq!(change.to, *second.loaded.version());
    assert_eq!(fields(lab.live.state()), json!({ "n": 2 }));
}

#[test]
fn a_step_that_no_version_can_do_changes_nothing() {
    let mut lab = Lab::new(&fragile(1));
    lab.live.step(&batch()).unwrap();
    for _ in 0..2 {
        let error = lab.live.step(&batch_with(&[9.0, 0.0])).unwrap_err();
        assert!(error.to_string().contains("too much"));
        assert_eq!(fields(lab.live.state()), json!({ "n": 1 }));
    }
    lab.live.step(&batch()).unwrap();
    assert_eq!(fields(lab.live.state()), json!({ "n": 2 }));
}

#[test]
fn a_batch_at_fault_takes_no_version_out_of_use() {
    let mut lab = Lab::new(&fragile(1).replace("too much", "too much for the first"));
    lab.live.step(&batch()).unwrap();
    lab.publish(&fragile(2));
    let without_reward = Batch::builder()
        .groups([0, 0])
        .response("score", vec![1.0, 0.0]);
    let without_reward = without_reward.build().unwrap();
    let at_fault = [
        (&without_reward, "reward"),
        (&batch_with(&[9.0, 0.0]), "too much"),
    ];
    // The second version meets such batches at its first step, and then at later ones.
    for n in 1..4 {
        for (batch, why) in at_fault {
            let before = (lab.live.in_use().serial(), lab.live.fallbacks().count());
            let error = lab.live.step(batch).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("first"), "{error}");
            assert_eq!(fields(lab.live.state()), json!({ "n": n }));
            let after = (lab.live.in_use().serial(), lab.live.fallbacks().count());
            assert_eq!(after, before);
            assert_eq!(lab.live.newest().serial(), 1);
        }
        let step = lab.live.step(&batch()).unwrap();
        assert_eq!(step.loaded.serial(), 1);
        assert_eq!(step.outcome.advantage.at(0, 0), 2.0);
        assert_eq!(fields(lab.live.state()), json!({ "n": n + 1 }));
        assert!(step.events.is_empty(), "{:#?}", step.events);
    }
}

/// An edit may fail at its first step, and the version before it at a later one.
#[test]
fn a_run_falls_back_as_far_as_a_version_that_works() {
    let from = |step: u32| {
        format!(
            "fn advantage(batch, p) {{ if batch.step >= {step} {{ \"text\" }} else {{ batch.reward * {step}.0 }} }}"
        )
    };
    let mut lab = Lab::new(&from(99));
    for step in [20, 18, 16, 14, 12, 8, 6, 4] {
        lab.live.step(&batch().at_step(1)).unwrap();
        lab.publish(&from(step));
    }
    let mut used = |step| {
        let done = lab.live.step(&batch().at_step(step)).unwrap();
        (done.outcome.advantage.at(0, 0), done.events.len())
    };
    assert_eq!([3, 4, 5].map(&mut used), [(4.0, 0), (6.0, 1), (6.0, 0)]);
    assert_eq!([9, 10].map(&mut used), [(12.0, 2), (12.0, 0)]);
    // The first of nine versions is the last one that is kept.
    assert_eq!([30, 31].map(&mut used), [(99.0, 5), (99.0, 0)]);
}

/// Where all versions of a resumed run fail before it has begun a step, it is as it was: with the version to fall back to.
#[test]
fn a_resumed_run_that_no_version_can_go_on_with_keeps_its_fallback() {
    let compiled = |factor| Host::new().compile("x.rhai", &fragile(factor)).unwrap();
    let left = [1, 2].map(|factor| (compiled(factor), compiled(factor).init().unwrap()));
    let versions = left.clone().map(|(recipe, _)| recipe.version().clone());
    let options = LiveOptions {
        left: left.to_vec(),
        ..LiveOptions::default()
    };
    let mut live = LiveRecipe::without_file(&Host::new(), compiled(2), options).unwrap();
    let error = || Err::<(), _>(advlab::Diagnostic::error("no").into());
    let attempt = live.attempt(&batch(), |_, _| error());
    assert!(attempt.result.is_err() && attempt.failed.len() == 2);
    let (fallback, _) = live.fallbacks().last().unwrap();
    assert_eq!(
        [fallback, live.in_use()].map(|one| one.version()),
        versions.each_ref()
    );
}

#[test]
fn batches_without_a_step_are_counted() {
    let script = "fn advantage(batch, p) { metric(\"step\", batch.step); if batch.reward.max(\"batch\").value() > 5.0 { throw \"no\"; } batch.reward }";
    let mut lab = Lab::new(script);
    let step = |live: &mut LiveRecipe, batch: Batch| {
        let step = live.step(&batch);
        step.map_or(-1.0, |step| step.outcome.reports.metrics[0].1)
    };
    let live = &mut lab.live;
    assert_eq!([step(live, batch()), step(live, batch())], [0.0, 1.0]);
    // A step that fails is not counted, and one with a number of its own is the one to count from.
    assert_eq!(step(live, batch_with(&[9.0, 0.0])), -1.0);
    assert_eq!(step(live, batch()), 2.0);
    assert_eq!(step(live, batch().at_step(7)), 7.0);
    assert_eq!(step(live, batch()), 8.0);
    let options = LiveOptions {
        left: vec![(live.in_use().recipe().clone(), live.state().clone())],
        next_step: live.next_step(),
        ..LiveOptions::default()
    };
    let path = lab.path("recipe.rhai");
    let mut live = LiveRecipe::watch(&Host::new(), path.to_str().unwrap(), options).unwrap();
    assert_eq!(step(&mut live, batch()), 9.0);
}

#[test]
fn groups_are_named_by_any_integer_or_string() {
    let id = |id: advlab::batch::GroupId| id.to_string();
    let name = || String::from("a");
    for (found, expected) in [
        (id(7u8.into()), "7"),
        (id((-3i8).into()), "-3"),
        (id((&7usize).into()), "7"),
        // An integer beyond i64 is named by its digits.
        (id(u64::MAX.into()), r#""18446744073709551615""#),
        (id("a".into()), r#""a""#),
        (id((&"a").into()), r#""a""#),
        (id(name().into()), r#""a""#),
        (id((&name()).into()), r#""a""#),
        (id(std::sync::Arc::<str>::from("a").into()), r#""a""#),
    ] {
        assert_eq!(found, expected);
    }
}

/// A version with other rows than the one in use is not tried on that one's batch, and a step falls back to no version with other
/// rows: the caller repeats it with those.
const PLAIN: &str = "fn advantage(batch, p) { batch.reward }";
const TURNS: &str =
    "fn advantage(batch, p) { batch.step_reward + 0 * batch.reward.last(\"trajectory\") }";

/// A step at which the caller has rows of one kind, or of any version's: the first advantage.
fn step_by(lab: &mut Lab, turns: Option<bool>, number: u64) -> Result<f64, String> {
    let by_turns = Batch::builder()
        .groups([0, 0, 0, 0])
        .response("reward", vec![7.0, 7.0, 11.0, 11.0])
        .response("step_reward", vec![3.0, 4.0, 5.0, 6.0])
        .response("trajectory", vec![0.0, 0.0, 1.0, 1.0]);
    let is_by_turns = turns == Some(true);
    let rows = if is_by_turns {
        by_turns.build().unwrap()
    } else {
        batch()
    };
    let rows = rows.at_step(number);
    lab.live.rows_are_turns(turns);
    let _ = lab.live.begin_step();
    let attempt = (lab.live).attempt(&rows, |recipe, state| recipe.advantage(&rows, state));
    let first = attempt.result.map(|outcome| outcome.advantage.at(0, 0));
    first.map_err(|error| error.to_string())
}

#[test]
fn rows_are_those_of_the_version_that_computes() {
    let (plain, turns) = (PLAIN, TURNS);
    let broken = turns.replace("+ 0", "+ batch.missing + 0");
    let mut lab = Lab::new(plain);
    let step = |lab: &mut Lab, is_by_turns: bool| step_by(lab, Some(is_by_turns), 0);
    assert_eq!(step(&mut lab, false).unwrap(), 1.0);
    let untried = "not tried on the last batch, because this version takes turns as rows";
    assert_eq!(lab.warned(turns), [untried]);
    // The save came after the caller looked at the version.
    let error = step(&mut lab, false).unwrap_err();
    assert!(error.contains("takes different rows"), "{error}");
    assert!(lab.live.is_repeated());
    assert_eq!(step(&mut lab, true).unwrap(), 3.0);
    assert!(!lab.live.is_repeated());
    lab.reject(&broken, "no column `missing`");
    assert_eq!(lab.warned(plain).len(), 1);
    assert_eq!(step(&mut lab, false).unwrap(), 1.0);
    // A version that no check has tried fails at its step, which an earlier version computes with its own rows.
    lab.warned(&broken);
    let error = step(&mut lab, true).unwrap_err();
    assert!(error.contains("takes different rows"), "{error}");
    assert_eq!(lab.text(), plain);
    assert!(lab.live.events().is_empty());
    assert_eq!(step(&mut lab, false).unwrap(), 1.0);
    assert!(lab.failed_at_step().0.contains("no column `missing`"));
    // The next save is tried on the rows on which that version failed.
    lab.reject(&format!("{broken} // again"), "no column `missing`");
    // Rows that do not depend on the version are those of any.
    assert_eq!(step_by(&mut lab, None, 0).unwrap(), 1.0);
    lab.reject(turns, "no column `step_reward`");
}

#[test]
fn a_batch_that_fails_with_both_kinds_of_rows_changes_nothing() {
    let late = "if batch.step == 6 { throw \"too much\"; } batch.";
    let [plain, turns] = [PLAIN, TURNS].map(|text| text.replacen("batch.", late, 1));
    let mut lab = Lab::new(&plain);
    assert_eq!(step_by(&mut lab, Some(false), 4).unwrap(), 1.0);
    lab.warned(&turns);
    let error = step_by(&mut lab, Some(true), 6).unwrap_err();
    assert!(error.contains("takes different rows"), "{error}");
    assert!(lab.live.is_repeated());
    let error = step_by(&mut lab, Some(false), 6).unwrap_err();
    assert!(error.contains("too much"), "{error}");
    assert!(!lab.live.is_repeated() && lab.live.events().is_empty());
    assert_eq!(lab.live.in_use().recipe().text(), plain);
    assert_eq!(step_by(&mut lab, Some(true), 7).unwrap(), 3.0);
    assert_eq!(lab.live.in_use().recipe().text(), turns);
}
