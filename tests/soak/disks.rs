//! Disks that are full, read-only, gone or slow at any change of a file.

use std::time::Duration;

use super::Trials;
use super::cases::expected;
use super::trace::{Act, Failure};

#[test]
fn disks_that_fail_at_some_changes() {
    failing(&Trials::few(24));
}

#[test]
#[ignore = "takes an hour"]
fn disks() {
    failing(&Trials::many(2000));
}

/// What a disk does at a change, and whether that is the only one.
const KINDS: [(Act, bool); 7] = [
    (Act::Fail(Failure::Full), false),
    (Act::Fail(Failure::Full), true),
    (Act::Fail(Failure::ReadOnly), false),
    (Act::Fail(Failure::ReadOnly), true),
    (Act::Fail(Failure::Gone), false),
    (Act::Fail(Failure::Gone), true),
    (Act::Wait(Duration::from_millis(5)), false),
];

/// Lets the changes of files fail, each with all later ones or alone. The command says so; nothing is lost, and it goes on
/// once the disk is well.
fn failing(trials: &Trials) {
    let mut points = Vec::new();
    for expected in expected() {
        let kinds = (0..expected.changes).flat_map(|at| KINDS.map(|kind| (at, kind)));
        points.extend(kinds.map(|(at, kind)| (expected, at, kind)));
    }
    let possible = points.len();
    // No multiple of the number of kinds, so that all of them come.
    let mut stride = points.len().div_ceil(trials.count).max(1);
    stride += usize::from(stride > 1 && stride % KINDS.len() == 0);
    points.rotate_left(trials.seed as usize % stride);
    let (mut done, mut ended, mut wrong) = (0, 0, Vec::new());
    for (expected, at, (act, is_once)) in points.into_iter().step_by(stride) {
        if trials.is_over(done) {
            break;
        }
        done += 1;
        let is_failing = |change| change == at || change > at && !is_once;
        let can_remove = matches!(act, Act::Fail(Failure::Full) | Act::Wait(_));
        let checked = expected.check(|change| is_failing(change).then_some(act), can_remove);
        let checked = checked.and_then(|traced| match traced.status.code() {
            // A file that cannot be tidied away is no error.
            Some(0) => Ok(0),
            Some(1) if traced.stderr.contains("os error") => Ok(1),
            _ => Err(format!("{}: {traced:?}", expected.case.name)),
        });
        match checked {
            Ok(count) => ended += count,
            Err(what) => wrong.push(format!("{act:?} at change {at}, once {is_once}: {what}")),
        }
    }
    println!(
        "{done} of {possible} failures of disks, {ended} ended a command, seed {}",
        trials.seed
    );
    assert!(
        wrong.is_empty(),
        "{} of {done}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
