//! Small runs, and what is compared of them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use advlab::native::Mode;
use advlab_train::{Config, Difference, Ending, Event, Replay, Run};
use serde_json::Value;
use tempfile::TempDir;

/// A stateful recipe whose numbers depend on everything that a checkpoint has to hold.
pub const STATEFUL: &str = r#"
fn params() { #{ pull: #{ value: 0.5, min: 0.0 } } }
fn init(p) { #{ mean: 0.25, seen: [] } }
fn advantage(batch, p) {
    let now = batch.reward.mean("batch").value();
    this.mean = 0.9 * this.mean + 0.1 * now;
    this.seen.push(now);
    if this.seen.len() > 3 { this.seen.remove(0); }
    metric("mean", this.mean);
    metric("oldest", this.seen[0]);
    let noise = 0.01 * batch.random("response");
    batch.reward - this.mean + noise - p.pull * (batch.old_logp - batch.ref_logp)
}
"#;

/// A folder with a script in it, and a configuration of a small run whose folder is beside it.
pub struct Lab {
    pub folder: TempDir,
    pub config: Config,
}

impl Lab {
    /// With everything that could make a difference: epochs, minibatches, a KL, a reference that changes.
    pub fn new(script: &str) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recipe.rhai");
        std::fs::write(&path, script).unwrap();
        let config = Config {
            maze_size: 2,
            recipe: path.display().to_string(),
            steps: 24,
            rollout_batch_size: 4,
            group_size: 4,
            epochs: 2,
            minibatches: 2,
            hidden_size: 8,
            lr: 1e-2,
            max_grad_norm: 0.5,
            reset_reference_every: 9,
            eval_every: 10,
            eval_prompts: 4,
            eval_samples: 4,
            checkpoint_every: 5,
            batch_every: 4,
            // A save is not rejected because the machine is busy.
            check_deadline_ms: 300_000,
            out: folder.path().join("run").display().to_string(),
            loss_params: toml::toml! { kl_beta = 0.01 },
            ..Config::default()
        };
        Lab { folder, config }
    }

    /// Begins the run.
    pub fn create(&self) -> Run {
        Run::create(self.config.clone()).unwrap()
    }

    /// Goes on with the run.
    pub fn resume(&self) -> Run {
        Run::resume(&self.run(), None, Mode::Off).unwrap()
    }

    pub fn place(&self) -> &Path {
        self.folder.path()
    }

    pub fn run(&self) -> PathBuf {
        self.place().join("run")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.run().join(name)
    }

    pub fn script(&self) -> PathBuf {
        self.place().join("recipe.rhai")
    }

    /// Writes the configuration beside the run, as `config.toml`.
    pub fn write_config(&self) {
        let path = self.place().join("config.toml");
        std::fs::write(path, self.config.to_commented()).unwrap();
    }

    /// The whole run in one go, in a folder of its own; its rows.
    pub fn unstopped(&self) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            out: folder.path().join("run").display().to_string(),
            ..self.config.clone()
        };
        let mut run = Run::create(config).unwrap();
        assert_eq!(go(&mut run), Ending::Finished);
        rows(&folder.path().join("run"))
    }
}

/// Goes on without a look at it.
pub fn go(run: &mut Run) -> Ending {
    run.go(&AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// Goes on until an event is the last one that is waited for: the step of it is finished.
pub fn go_until(run: &mut Run, mut is_last: impl FnMut(&Event<'_>) -> bool) -> Ending {
    let stop = AtomicBool::new(false);
    let mut observer = |event: &Event<'_>| {
        if is_last(event) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    run.go(&stop, &mut observer).unwrap()
}

/// Goes on until this many steps are done.
pub fn go_to(run: &mut Run, steps: u64) -> Ending {
    if run.step() >= steps {
        return run.go(&AtomicBool::new(true), &mut |_| {}).unwrap();
    }
    let is_last = |event: &Event| matches!(event, Event::Step { row, .. } if row.step + 1 >= steps);
    go_until(run, is_last)
}

/// The lines of a file of JSON lines.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let parsed = text.lines().map(serde_json::from_str);
    parsed.collect::<Result<_, _>>().unwrap()
}

/// The rows of a run, without their times.
pub fn rows(run: &Path) -> Vec<Value> {
    let mut rows = lines(&run.join("metrics.jsonl"));
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        assert!(row.remove("time").is_some_and(|time| time.is_f64()));
        row.remove("ms");
    }
    rows
}

/// Repeats a run: the steps that it has, and the first number that differs.
pub fn replayed(run: &Path) -> (u64, Option<Difference>) {
    let replay = Replay::open(run, Mode::Off).unwrap();
    let steps = replay.steps;
    (steps, replay.go(&mut |_: &Event<'_>| {}).unwrap())
}

/// The steps that the run has written.
pub fn steps_of(lab: &Lab) -> usize {
    let metrics = std::fs::read(lab.file("metrics.jsonl")).unwrap_or_default();
    metrics.iter().filter(|&&byte| byte == b'\n').count()
}

/// Waits for something; what hangs is given up after minutes.
pub fn wait_until(mut is_over: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_over() && started.elapsed() < Duration::from_secs(300) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// That a text has all of these parts.
#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// A command line, in which FOLDER is this folder.
pub fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_advlab"));
    let folder = folder.display().to_string();
    command.args(line.split(' ').map(|word| word.replace("FOLDER", &folder)));
    command
}

/// A command that runs beside the test, and does not outlive it.
pub struct Process(pub Child);

impl Process {
    /// Starts a command whose output nobody reads.
    pub fn start(mut command: Command) -> Process {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap())
    }

    pub fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command prints that goes well.
pub fn done(folder: &Path, line: &str) -> String {
    let output = command(folder, line).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command prints where it goes wrong, with the folder's name taken out.
pub fn refused(folder: &Path, line: &str) -> String {
    let output = command(folder, line).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    text.replace(&folder.display().to_string(), "FOLDER")
}
