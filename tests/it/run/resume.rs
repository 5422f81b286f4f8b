//! A run that is stopped goes on to the same numbers.

use advlab::files::{ReadOptions, read};
use advlab::native::Mode;
use advlab_train::{Ending, Event, Run, Schedule};

use super::lab::{Lab, STATEFUL, go, go_to, go_until, lines, replayed, rows, says};

#[test]
fn a_resumed_run_has_the_numbers_of_one_that_never_stopped() {
    let lab = Lab::new(STATEFUL);
    let whole = lab.unstopped();
    assert_eq!(go_to(&mut lab.create(), 3), Ending::Stopped(3));
    // Right behind a checkpoint, before one, behind one that was not asked for, and not at all.
    for stop in [5, 9, 10, 10, 17] {
        let mut run = lab.resume();
        assert!(run.notes().is_empty());
        assert_eq!(go_to(&mut run, stop), Ending::Stopped(stop));
        assert_eq!(rows(&lab.run()), whole[..stop as usize]);
    }
    assert_eq!(go(&mut lab.resume()), Ending::Finished);
    assert_eq!(rows(&lab.run()), whole);
    // One start, however often it was gone on with.
    assert_eq!(lines(&lab.file("reloads.jsonl")).len(), 1);
    replayed(&lab.run());
}

/// Its rates were those of the steps that it began with: more of them would not replay.
#[test]
fn a_run_whose_rate_falls_to_0_has_the_steps_that_it_began_with() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.lr_schedule = Schedule::Cosine;
    go_to(&mut lab.create(), 2);
    let error = Run::resume(&lab.run(), Some(48), Mode::Off).err().unwrap();
    assert_eq!(
        error[0].message,
        "the run's learning rate falls to 0 at step 24"
    );
    go(&mut lab.resume());
    assert_eq!(replayed(&lab.run()), (24, None));
}

#[test]
fn a_finished_run_says_so_and_goes_on_with_more_steps() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 7;
    assert_eq!(go(&mut lab.create()), Ending::Finished);
    let refused = |steps| {
        let error = Run::resume(&lab.run(), steps, Mode::Off).err().unwrap();
        error.to_string()
    };
    says(&refused(None), &["has done 7 steps already", "--steps 14"]);
    // Asking for fewer changes nothing either.
    let config = std::fs::read(lab.file("config.toml")).unwrap();
    says(&refused(Some(3)), &["has done 7 steps already"]);
    assert_eq!(std::fs::read(lab.file("config.toml")).unwrap(), config);

    let mut run = Run::resume(&lab.run(), Some(12), Mode::Off).unwrap();
    assert_eq!(go(&mut run), Ending::Finished);
    let mut resumed = rows(&lab.run());
    lab.config.steps = 12;
    // The last step of the first part was evaluated, as the last one is.
    assert!(!resumed[6]["evaluation"].is_null());
    resumed[6].as_object_mut().unwrap().remove("evaluation");
    assert_eq!(resumed, lab.unstopped());
    replayed(&lab.run());
}

#[test]
fn a_script_that_is_gone_does_not_keep_a_run_from_going_on() {
    let lab = Lab::new(STATEFUL);
    let whole = lab.unstopped();
    go_to(&mut lab.create(), 6);
    std::fs::remove_file(lab.script()).unwrap();
    go(&mut lab.resume());
    assert_eq!(rows(&lab.run()), whole);
}

/// The policy is evaluated before the first step, and as a stop leaves it; what is recorded does not depend on stops.
#[test]
fn a_stop_is_evaluated() {
    let lab = Lab::new(STATEFUL);
    let mut evaluated = Vec::new();
    go_until(&mut lab.create(), |event| match event {
        Event::Evaluated { done, .. } => {
            evaluated.push(*done);
            false
        }
        event => matches!(event, Event::Step { row, .. } if row.step == 12),
    });
    assert_eq!(evaluated, [0, 10, 13]);
}

/// Tokens of two digits would make one text of two states.
#[test]
fn the_state_of_a_turn_has_each_of_its_tokens() {
    let mut lab = Lab::new("fn advantage(batch, p) { batch.reward }");
    (
        lab.config.maze_turns,
        lab.config.steps,
        lab.config.batch_every,
    ) = (2, 1, 1);
    go(&mut lab.create());
    let path = lab.file("batches/step-000000.safetensors");
    let batch = read(&path, &ReadOptions::default()).unwrap().batch;
    let states = batch.text("state").unwrap();
    for state in states.iter() {
        let tokens: Vec<u32> = serde_json::from_str(state).unwrap();
        assert_eq!(tokens.len(), 4, "{state}");
    }
}

/// The loss and another hook report one name: neither hides in a mean of the two.
#[test]
fn metrics_of_one_name_are_kept_by_their_hooks() {
    let script = r#"
fn reward(batch, p) { metric("shaped", 2.0); batch.reward }
fn advantage(batch, p) { metric("size", 8.0); metric("once", 1.0); batch.reward - 0.5 }
fn loss(batch, p) {
    metric("size", batch.reward.count("batch").value());
    metric("shaped", 3.0);
    -(batch.advantage * batch.logp).mean("batch")
}
"#;
    let rows = Lab::new(script).unstopped();
    let expected = serde_json::json!({
        "advantage/size": 8.0, "loss/size": 8.0, "once": 1.0, "reward/shaped": 2.0, "loss/shaped": 3.0
    });
    assert_eq!(rows[0]["metrics"], expected);
}

#[test]
fn an_edit_between_two_parts_of_a_run_is_used_by_the_first_step() {
    let lab = Lab::new(STATEFUL);
    go_to(&mut lab.create(), 6);
    std::fs::write(lab.script(), STATEFUL.replace("0.01 *", "0.02 *")).unwrap();
    assert_eq!(go_to(&mut lab.resume(), 8), Ending::Stopped(8));
    let version = |step: usize| rows(&lab.run())[step]["version"].clone();
    assert!(version(5) != version(6) && version(6) == version(7));
    replayed(&lab.run());
}
