//! What a cluster and a closed terminal send: SIGTERM stops a run at a checkpoint, and a hangup under `nohup` does not.

use std::process::{Child, Command, ExitStatus, Stdio};

use super::lab::{Lab, STATEFUL, replayed, rows, steps_of, wait_until};

/// A run without an end, begun by this command.
struct Going {
    lab: Lab,
    child: Child,
}

impl Going {
    fn start(program: &str, arguments: &[&str]) -> Going {
        let mut lab = Lab::new(STATEFUL);
        lab.config.steps = 1_000_000;
        // No checkpoint but the first one, and that of the stop.
        lab.config.checkpoint_every = 1_000_000;
        lab.write_config();
        let child = Command::new(program)
            .args(arguments)
            .arg("train")
            .arg(lab.place().join("config.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut going = Going { lab, child };
        going.until_step(5);
        going
    }

    fn steps(&self) -> usize {
        steps_of(&self.lab)
    }

    fn until_step(&mut self, step: usize) {
        wait_until(20, || self.steps() >= step);
        assert_eq!(self.child.try_wait().unwrap(), None, "the run has ended");
        assert!(self.steps() >= step, "{} steps", self.steps());
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until(20, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("the run ends")
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sigterm_stops_a_run_at_a_checkpoint() {
    let mut going = Going::start(env!("CARGO_BIN_EXE_advlab"), &[]);
    going.signal("-TERM");
    // As after Ctrl-C: it was asked to stop, and did.
    assert_eq!(going.end().code(), Some(0));
    let (lab, done) = (&going.lab, going.steps());
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
    going.signal("-HUP");
    going.until_step(going.steps() + 50);
    // The other signal is heard all the same.
    going.signal("-TERM");
    assert_eq!(going.end().code(), Some(0));
}
