//! The state of a run, as versions come and go.

use serde_json::json;

use super::lab::{Lab, batch};

/// Counts its steps in `this.n`.
fn counting(extra: &str, factor: u32) -> String {
    format!(
        "fn init(p) {{ #{{ n: 0 }} }}\n{extra}\nfn advantage(batch, p) {{ this.n += 1; batch.reward * {factor}.0 }}\n"
    )
}

fn fields(lab: &Lab) -> serde_json::Value {
    lab.live.state().to_json()["map"].clone()
}

#[test]
fn the_state_outlives_a_reload_and_no_check_touches_it() {
    let mut lab = Lab::new(&counting("", 1));
    lab.step();
    lab.step();
    lab.publish(&counting("", 2));
    assert_eq!(fields(&lab), json!({ "n": 2 }));
    lab.step();
    // `migrate` takes it over once.
    lab.publish(&counting("fn migrate(old, p) { #{ n: old.n * 10 } }", 2));
    lab.step();
    lab.step();
    assert_eq!(fields(&lab), json!({ "n": 32 }));
    let wrong = counting("fn migrate(old, p) { #{ n: old.m } }", 3);
    lab.reject(&wrong, "in a dry run on the run's state");
    // What `init` has beyond it is added.
    lab.publish("fn init(p) { #{ n: 100, mean: 0.5 } }\nfn advantage(batch, p) { this.mean += 1.0; batch.reward }\n");
    lab.step();
    assert_eq!(fields(&lab), json!({ "mean": { "f64": "1.5" }, "n": 32 }));
}

#[test]
fn a_migrate_that_fails_on_the_runs_own_state_changes_nothing() {
    let mut lab = Lab::new(&counting("", 1));
    let first = lab.step();
    let migrate = "fn migrate(old, p) { if old.n > 3 { throw \"too late\"; } old }";
    lab.publish(&counting(migrate, 2));
    // Three steps whose batches were not shown.
    for _ in 0..3 {
        let mut state = lab.live.state().clone();
        first.recipe().advantage(&batch(), &mut state).unwrap();
        lab.live.set_state(state);
    }
    assert_eq!(lab.step().serial(), 0);
    assert_eq!(fields(&lab), json!({ "n": 5 }));
    assert!(lab.failed_at_step().0.contains("too late"));
    lab.step();
    assert!(lab.live.events().is_empty());
}

#[test]
fn a_version_that_gives_way_takes_its_state_with_it() {
    let mut lab = Lab::new(&counting("", 1));
    lab.step();
    lab.publish(
        "fn migrate(old, p) { #{ m: 0 } }\nfn advantage(batch, p) { this.m += 1; if this.m > 2 { throw \"no more\"; } batch.reward }\n",
    );
    lab.step();
    lab.step();
    assert_eq!(fields(&lab), json!({ "m": 2 }));
    // The third step falls back, and is the second of the first version's own.
    assert_eq!(lab.step().serial(), 0);
    assert_eq!(fields(&lab), json!({ "n": 2 }));
}
