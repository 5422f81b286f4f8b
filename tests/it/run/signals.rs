//! What a cluster and a closed terminal send: SIGTERM stops a run at a checkpoint, and a hangup under `nohup` does not.

use std::process::{Command, ExitStatus};

use super::lab::{Lab, Process, STATEFUL, replayed, rows, steps_of, wait_until};

/// A run without an end, begun by this command.
struct Going {
    lab: Lab,
    run: Process,
}

impl Going {
    fn start(program: &str, arguments: &[&str]) -> Going {
        let mut lab = Lab::new(STATEFUL);
        lab.config.steps = 1_000_000;
        // No checkpoint but the first one, and that of the stop.
        lab.config.checkpoint_every = 1_000_000;
        lab.write_config();
        let mut command = Command::new(program);
        command.args(arguments).arg("train");
        command.arg(lab.place().join("config.toml"));
        let run = Process::start(command);
        let mut going = Going { lab, run };
        going.until_step(5);
        going
    }

    fn until_step(&mut self, step: usize) {
        wait_until(|| steps_of(&self.lab) >= step);
        assert_eq!(self.run.0.try_wait().unwrap(), None, "the run has ended");
        assert!(steps_of(&self.lab) >= step);
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until(|| {
            status = self.run.0.try_wait().unwrap();
            status.is_some()
        });
        status.expect("the run ends")
    }
}

#[test]
fn sigterm_stops_a_run_at_a_checkpoint() {
    let mut going = Going::start(env!("CARGO_BIN_EXE_advlab"), &[]);
    going.run.signal("-TERM");
    // As after Ctrl-C: it was asked to stop, and did.
    assert_eq!(going.end().code(), Some(0));
    let (lab, done) = (&going.lab, steps_of(&going.lab));
    let checkpoint = format!("checkpoints/{done:06}");
    assert!(lab.file(&checkpoint).exists(), "{checkpoint}");
    let steps = done + 10;
    let line = format!("train --resume FOLDER/run --steps {steps}");
    super::lab::done(lab.place(), &line);
    assert_eq!(rows(&lab.run()).len(), steps);
    assert_eq!(replayed(&lab.run()), (steps as u64, None));
}

#[test]
fn under_nohup_a_run_goes_on_after_a_hangup() {
    let mut going = Going::start("nohup", &[env!("CARGO_BIN_EXE_advlab")]);
    going.run.signal("-HUP");
    going.until_step(steps_of(&going.lab) + 50);
    // The other signal is heard all the same.
    going.run.signal("-TERM");
    assert_eq!(going.end().code(), Some(0));
}
