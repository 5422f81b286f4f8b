//! A run that is stopped goes on to the same numbers.

use advlab::train::{Ending, Run, TrainError};

use super::lab::{Lab, STATEFUL, go, go_to, lines, replayed, rows};

#[test]
fn a_resumed_run_has_the_numbers_of_one_that_never_stopped() {
    let lab = Lab::new(STATEFUL);
    let whole = lab.unstopped();
    let mut run = Run::create(lab.config.clone()).unwrap();
    assert_eq!(go_to(&mut run, 3), Ending::Stopped(3));
    drop(run);
    // Right behind a checkpoint, before one, behind one that was not asked for, and not at all.
    for stop in [5, 9, 10, 10, 17] {
        let mut run = Run::resume(&lab.run(), None).unwrap();
        assert!(run.notes().is_empty());
        assert_eq!(go_to(&mut run, stop), Ending::Stopped(stop));
        assert_eq!(rows(&lab.run()), whole[..stop as usize]);
    }
    let mut run = Run::resume(&lab.run(), None).unwrap();
    assert_eq!(go(&mut run), Ending::Finished);
    assert_eq!(rows(&lab.run()), whole);
    // One start, however often it was gone on with.
    assert_eq!(lines(&lab.file("reloads.jsonl")).len(), 1);
    replayed(&lab.run());
}

#[test]
fn a_finished_run_says_so_and_goes_on_with_more_steps() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 7;
    let mut run = Run::create(lab.config.clone()).unwrap();
    assert_eq!(go(&mut run), Ending::Finished);
    drop(run);
    let error = Run::resume(&lab.run(), None).err().unwrap();
    assert!(
        matches!(error, TrainError::Done { steps: 7, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("--steps 14"), "{error}");
    // Asking for fewer changes nothing either.
    let config = std::fs::read(lab.file("config.toml")).unwrap();
    let error = Run::resume(&lab.run(), Some(3)).err().unwrap();
    assert!(
        matches!(error, TrainError::Done { steps: 7, .. }),
        "{error}"
    );
    assert_eq!(std::fs::read(lab.file("config.toml")).unwrap(), config);

    let mut run = Run::resume(&lab.run(), Some(12)).unwrap();
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
    let mut run = Run::create(lab.config.clone()).unwrap();
    go_to(&mut run, 6);
    drop(run);
    std::fs::remove_file(lab.script()).unwrap();
    go(&mut Run::resume(&lab.run(), None).unwrap());
    assert_eq!(rows(&lab.run()), whole);
}
