//! What a cluster and a closed terminal send: SIGTERM stops a run at a checkpoint, and a hangup under `nohup` does not.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::lab::{Lab, STATEFUL, advlab, replayed, rows};

const PATIENCE: Duration = Duration::from_secs(20);

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
        let config = lab.config_file();
        let child = Command::new(program)
            .args(arguments)
            .arg("train")
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut going = Going { lab, child };
        going.until_step(5);
        going
    }

    fn steps(&self) -> usize {
        let text = std::fs::read_to_string(self.lab.file("metrics.jsonl"));
        text.map_or(0, |text| text.lines().count())
    }

    fn until_step(&mut self, step: usize) {
        let started = Instant::now();
        while self.steps() < step {
            assert_eq!(self.child.try_wait().unwrap(), None, "the run has ended");
            assert!(started.elapsed() < PATIENCE, "{} steps", self.steps());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    fn end(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "the run goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
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
    let run = lab.run();
    let more = (done + 10).to_string();
    let output = advlab(&["train", "--resume", run.to_str().unwrap(), "--steps", &more]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(rows(&run).len(), done + 10);
    let steps = done as u64 + 10;
    assert_eq!(replayed(&run), (steps, None));
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
