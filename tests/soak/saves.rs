//! A run beside a writer whose saves are whole, half, wrong, endless, or no files at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use advlab::Host;
use advlab::native::Mode;
use advlab_train::{Ending, Event, LogEvent, Run, RunFolder};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::lab::{Lab, go, lines, replayed, rows};
use super::{Trials, number_of};

#[test]
fn some_saves() {
    storm(&Trials::few(120));
}

#[test]
#[ignore = "takes an hour"]
fn saves() {
    storm(&Trials::many(100_000));
}

/// The time in which a good save is used: 99 % of them.
const IN_USE: Duration = Duration::from_millis(300);
/// What a run may keep beyond its memory at the start, in MB.
const MORE: u64 = 150;
/// What a script may take before it is stopped, besides tensors, in MB.
const SCRIPT: u64 = 512;

/// A recipe that does not compile if a part is cut off, and that begins with a fresh state.
fn good(number: usize) -> String {
    format!(
        "import \"scale\" as scale;
fn init(p) {{ #{{ steps: 0 }} }}
fn migrate(old, p) {{ #{{ steps: 0 }} }}
fn advantage(batch, p) {{
    this.steps += 1;
    metric(\"steps\", this.steps);
    let r = batch.reward - batch.reward.mean(\"batch\");
    scale::by(r, {number}.0)
}}
"
    )
}

const SCALE: &str = "fn by(x, factor) { x * factor * 0.001 }\n";

/// Kinds of scripts that are no good, each with bodies of its `advantage`.
const WRONG: &str = r#"
# loops without an end
loop {}
try { loop {} } catch { batch.reward }
loop { print("again"); }
let i = 0; loop { metric(`m${i}`, i); i += 1; }
batch.map_groups(|g| { loop {} })
let a = [3, 1, 2]; a.sort(|x, y| { loop {} }); batch.reward
# takes memory without an end
let t = "x"; loop { t += t; }
let a = []; a.pad(1000000000, 0); batch.reward
let s = "x"; s.pad(10, ""); batch.reward
let xs = []; loop { xs.push(batch.old_logp + xs.len()); }
let m = #{}; loop { m[`k${m.len()}`] = m; }
let i = 0; loop { remember(`t${i}`, batch.key("group"), batch.reward); i += 1; }
loop { this.inner = #{ inner: this }; }
# closures in closures
let a = []; a.pad(3000, 1); a.some(|x| a.some(|y| a.some(|z| z == 2))); batch.reward
let a = []; a.pad(3000, 1); a.all(|x| a.reduce(|s, y| s + a.index_of(|z| z == 2), 0) < 0); batch.reward
let a = []; a.pad(3000, 1); loop { a.map(|x| a.contains(2)); }
let a = []; a.pad(30000, 1); a.map(|x| { for i in 0..100000 { } }); batch.reward
# swallows what ends it
let a = [1, 2]; a.dedup(|x, y| { loop {} }); batch.reward
let n = 0; let a = [1, 2]; a.dedup(|x, y| { loop { n += 1; } }); metric("n", n); batch.reward
let x = binomial_ratio(batch.reward + 1e15, batch.reward + 2e15, 1e14).sum("batch"); print(x); print(`${x}`); print([x]); batch.reward
# holds memory
let s = "a"; s.pad(1000000, 'a'); let a = []; for i in 0..3000 { a.push(s.chars()); } batch.reward
let s = "a"; s.pad(1000000, 'a'); let a = []; a.pad(30000, 1); a.map(|x| s.chars()); batch.reward
let s = "a"; s.pad(32000, 'a'); let m = #{}; for i in 0..16000 { m[`${i}`] = s.to_blob(); } batch.reward
let k = batch.key("group"); let a = []; for i in 0..30000 { a.push(recall("t", k, 0)); } batch.reward
let k = batch.key("group"); let a = []; for i in 0..30000 { a.push(k == k); } batch.reward
let a = []; for i in 0..32000 { a.push(batch.group_by(batch.reward + i)); } batch.reward
let a = []; for i in 0..32000 { a.push(batch.regroup(batch.reward + i)); } batch.reward
let a = []; for i in 0..32000 { a.push(batch.with(#{ c: i + 0 * batch.reward }).key("c", "group")); } batch.reward
let s = "x"; s.pad(1000000, 'x'); let f = |n, f| { let m = #{}; for i in 0..55 { m[`${i}`] = s + `${i}`; } if n > 0 { f.call(n - 1, f); } }; f.call(28, f); batch.reward
# asks for too much at once
let a = "x"; while a.len() < 65536 { a += a; } a.replace("x", a); batch.reward
Fn("sleep").call(100000000); batch.reward
[100000000].map(Fn("sleep")); batch.reward
# keeps what no checkpoint has
let v = this.x; let t = v.tag; v.tag = t + 1; this.x = v; metric("tag", t); batch.reward * (1.0 + 0.01 * t) } fn init(p) { #{ x: 1 }
[3.0, 0.0 / 0.0, 1.0].sort(); [1, "a"].sort(); batch.reward
# a turned sign
batch.reward.mean("group") - batch.reward
-batch.reward
# goes too deep
let f = |f| f.call(f); f.call(f)
let a = []; for n in 0..30000 { a = [a]; } batch.reward
} fn advantage(batch, p) { d(batch.reward) } fn d(x) { d(x + 1)
# maths that panics elsewhere
1 / 0; batch.reward / 0.0
-9223372036854775808 / -1; abs(-9223372036854775807 - 1); batch.reward
9223372036854775807 + 1; 1 << 70; batch.reward
binomial(9223372036854775807, 2); batch.reward
(batch.reward - 2).log() * 1e308 * 1e308
# wrong levels and names
batch.reward.mean("batch")
batch.rewrad
throw "no"
sleep(100); eval("1"); exit(0)
# fails at a step
if batch.step % 5 == 0 { throw "planned"; } batch.reward
if batch.step % 4 == 1 { return batch.reward * (0.0 / 0.0); } batch.reward
if batch.step % 97 == 0 { loop {} } batch.reward
# bad parameters
batch.reward } fn params() { 5
batch.reward } fn params() { #{ w: #{ value: 99, min: 0, max: 1 } }
batch.reward } fn init(p) { loop {}
batch.reward } fn migrate(old, p) { throw 3
# not Rhai
/*
let s = "
"#;

/// Kinds of saves of which no text is good, and of files that are none.
const OTHER: [&str; 14] = [
    "cut in place",
    "half of a script",
    "deleted",
    "a link to nothing",
    "a link to itself",
    "a pipe",
    "a device",
    "a socket",
    "a folder",
    "a huge file",
    "bytes that are no text",
    "many warnings",
    "a broken import",
    "a mutated script",
];

struct Writer {
    random: ChaCha8Rng,
    folder: PathBuf,
    saved: BTreeMap<&'static str, usize>,
}

impl Writer {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes room for a file, whatever is there.
    fn clear(path: &Path) {
        let Ok(found) = fs::symlink_metadata(path) else {
            return;
        };
        if found.is_dir() {
            fs::remove_dir(path).unwrap();
        } else if !found.is_file() || found.permissions().mode() & 0o200 == 0 {
            fs::remove_file(path).unwrap();
        }
    }

    /// Saves a text in one of the ways of editors.
    fn save(&mut self, path: &Path, text: &str) {
        Writer::clear(path);
        let beside = self.path(".recipe.rhai.swp");
        match self.random.random_range(0..6) {
            0 | 1 => fs::write(path, text).unwrap(),
            2 => {
                fs::write(&beside, text).unwrap();
                fs::rename(&beside, path).unwrap();
            }
            3 => {
                let middle = self.random.random_range(0..=text.len() / 2);
                let (half, rest) = text.as_bytes().split_at(middle);
                let mut file = File::create(path).unwrap();
                file.write_all(half).unwrap();
                self.pause(5);
                file.write_all(rest).unwrap();
            }
            4 => {
                let _ = fs::rename(path, &beside);
                fs::write(path, text).unwrap();
            }
            _ => {
                let _ = fs::remove_file(path);
                self.pause(5);
                fs::write(path, text).unwrap();
            }
        }
    }

    fn pause(&mut self, milliseconds: u64) {
        let time = self.random.random_range(0..=milliseconds);
        std::thread::sleep(Duration::from_millis(time));
    }

    /// A save of any kind.
    fn any(&mut self, number: usize) {
        let recipe = self.path("recipe.rhai");
        let mut kinds = WRONG.split("\n# ").skip(1);
        let wrong = kinds.clone().count();
        let kind = self.random.random_range(0..wrong + OTHER.len() + 4);
        let name = if let Some(kind) = kinds.nth(kind) {
            let (name, bodies) = kind.split_once('\n').unwrap();
            let bodies: Vec<&str> = bodies.lines().collect();
            let body = bodies[self.random.random_range(0..bodies.len())];
            let text = format!("// {number}\nfn advantage(batch, p) {{ {body} }}\n");
            self.save(&recipe, &text);
            name
        } else if let Some(name) = OTHER.get(kind - wrong) {
            self.other(name, &recipe, number);
            name
        } else {
            self.save(&recipe, &good(number));
            "good"
        };
        *self.saved.entry(name).or_default() += 1;
    }

    fn other(&mut self, name: &str, path: &Path, number: usize) {
        let text = good(number);
        if name != "cut in place" && name != "a broken import" {
            Writer::clear(path);
        }
        match name {
            "cut in place" if path.is_file() => {
                let length = self.random.random_range(0..200);
                let file = File::options().write(true).open(path);
                file.unwrap().set_len(length).unwrap();
            }
            "half of a script" | "cut in place" => {
                Writer::clear(path);
                fs::write(path, &text[..self.random.random_range(0..text.len())]).unwrap();
            }
            "many warnings" => {
                let unread: String = (0..2000).map(|n| format!("p{n}: {n}, ")).collect();
                let text = format!(
                    "fn params() {{ #{{ {unread} }} }}\nfn advantage(batch, p) {{ batch.reward }}\n"
                );
                fs::write(path, text).unwrap();
            }
            "bytes that are no text" => {
                let length = self.random.random_range(1..5000);
                let bytes: Vec<u8> = (0..length).map(|_| self.random.random()).collect();
                fs::write(path, bytes).unwrap();
            }
            "a huge file" => File::create(path).unwrap().set_len(1 << 30).unwrap(),
            "a mutated script" => {
                let mut bytes = text.into_bytes();
                for _ in 0..self.random.random_range(1..6) {
                    let at = self.random.random_range(0..bytes.len());
                    match self.random.random_range(0..3) {
                        0 => bytes[at] = self.random.random_range(32..127),
                        1 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, b"(){}[]\"`;,.$#|&"[self.random.random_range(0..15)]),
                    }
                }
                fs::write(path, bytes).unwrap();
            }
            "a broken import" => {
                let import = self.path("scale.rhai");
                Writer::clear(&import);
                match self.random.random_range(0..4) {
                    0 => self.other("a pipe", &import, number),
                    1 => self.other("a device", &import, number),
                    2 => self.save(&import, "import \"recipe\" as r;\nfn by(x, y) { x }\n"),
                    _ => self.save(&import, "fn by(x { x }\n"),
                }
            }
            _ => {
                let _ = fs::remove_file(path);
                match name {
                    "a link to nothing" => symlink("/nowhere/at/all", path).unwrap(),
                    "a link to itself" => symlink(path, path).unwrap(),
                    "a device" => symlink("/dev/zero", path).unwrap(),
                    "a folder" => fs::create_dir(path).unwrap(),
                    "a socket" => drop(UnixListener::bind(path).unwrap()),
                    "a pipe" => {
                        let made = Command::new("mkfifo").arg(path).status();
                        assert!(made.unwrap().success());
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A version that a step uses, or why it does not.
type Told = (String, Option<String>);

/// Saves in bursts. Behind each burst there is a good save, into quiet: gives how long these waited for a step, how many were
/// saved again because their check ran out of time, and the last one.
fn write(
    writer: &mut Writer,
    trials: &Trials,
    told: &Receiver<Told>,
) -> (Vec<Duration>, usize, String) {
    let (mut waits, mut again, mut done) = (Vec::new(), 0, 1);
    let (import, recipe) = (writer.path("scale.rhai"), writer.path("recipe.rhai"));
    while !trials.is_over(done) {
        for _ in 0..writer.random.random_range(20..100) {
            done += 1;
            writer.any(done);
            // Now and then there is time to look at it.
            let is_looked_at = writer.random.random_range(0..12) == 0;
            writer.pause(if is_looked_at { 250 } else { 3 });
        }
        std::thread::sleep(Duration::from_millis(500));
        writer.save(&import, SCALE);
        let saved = loop {
            while told.try_recv().is_ok() {}
            done += 1;
            writer.save(&recipe, &good(done));
            let saved = Instant::now();
            let version = Host::new().load(recipe.to_str().unwrap()).unwrap();
            let version = version.version().as_str();
            let mut answers =
                std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(300)).ok());
            match answers
                .find(|(told, _)| told == version)
                .expect("an answer")
                .1
            {
                None => break saved,
                // A machine that does much else may not check it in time.
                Some(why) if why.contains("the time limit") => again += 1,
                Some(why) => panic!("save {done}: {why}"),
            }
        };
        waits.push(saved.elapsed());
    }
    waits.sort();
    (waits, again, good(done))
}

fn storm(trials: &Trials) {
    println!("seed {}", trials.seed);
    let mut lab = Lab::new(&good(1));
    let mut writer = Writer {
        random: trials.random(),
        folder: lab.place().to_path_buf(),
        saved: BTreeMap::new(),
    };
    fs::write(writer.path("scale.rhai"), SCALE).unwrap();
    lab.config.steps = 100_000_000;
    lab.config.checkpoint_every = 100;
    lab.config.check_deadline_ms = 250;
    lab.config.hook_deadline_s = 1;
    let stop = AtomicBool::new(false);
    let mut run = lab.create();
    let (tell, told) = channel();
    let memory = |name| number_of(std::process::id(), name) / 1000;
    let start = memory("VmRSS:");
    let (waits, again, last) = std::thread::scope(|scope| {
        let (writer, told) = (&mut writer, told);
        let writing = scope.spawn(move || write(writer, trials, &told));
        let mut observer = |event: &Event<'_>| match event {
            Event::Step { .. } => {
                stop.store(writing.is_finished(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
            Event::Log(notice) => {
                let told = match notice.line.event.clone() {
                    LogEvent::Use { recipe, .. } => (recipe.version, None),
                    LogEvent::Failed { recipe, error, .. } => (recipe.version, Some(error)),
                    LogEvent::Rejected { version, error, .. } => (version, Some(error)),
                    _ => return,
                };
                // The writer may have ended.
                let _ = tell.send(told);
            }
            _ => {}
        };
        let ending = run.go(&stop, &mut observer).unwrap();
        assert_eq!(ending, Ending::Stopped(run.step()));
        writing.join().unwrap()
    });
    let (steps, most, left) = (run.step(), memory("VmHWM:"), memory("VmRSS:"));
    drop(run);
    let reloads = lines(&lab.file("reloads.jsonl"));
    let count = |name: &str| reloads.iter().filter(|line| line["event"] == name).count();
    let [used, rejected, failed] = ["use", "rejected", "failed"].map(count);
    let part = |share: usize| waits[(waits.len() - 1) * share / 100];
    let [half, most_waits, all] = [50, 99, 100].map(part);
    let (saves, seed) = (
        writer.saved.values().sum::<usize>() + waits.len() + again,
        trials.seed,
    );
    println!(
        "{saves} saves, seed {seed}, {steps} steps: {used} used, {rejected} rejected, {failed} failed at a step"
    );
    println!(
        "memory {start} MB at the start, {most} at most, {left} at the end; {:?}",
        writer.saved
    );
    println!(
        "{} good saves into quiet, {again} saved again, used after {half:?} (median), {most_waits:?} (99 %), {all:?} (all)",
        waits.len()
    );

    // Each row once; the log and the rows name the same versions, and each is kept whole.
    let rows = rows(&lab.run());
    let numbers = rows.iter().map(|row| row["step"].as_u64().unwrap());
    assert!(numbers.eq(0..steps));
    let versions = rows.iter().map(|row| row["version"].as_str().unwrap());
    let mut versions: Vec<(u64, &str)> = (0..).zip(versions).collect();
    versions.dedup_by_key(|(_, version)| *version);
    let folder = RunFolder::read(&lab.run());
    assert_eq!(folder.log().unwrap().versions(), versions);
    let kept = |version| folder.recipe_named(&Host::new(), version).unwrap().unwrap();
    for (_, version) in &versions {
        assert_eq!(kept(version).version().as_str(), *version);
    }
    assert_eq!(kept(versions.last().unwrap().1).text(), last);
    // It ends as any run does, and repeats itself.
    go(&mut Run::resume(&lab.run(), Some(steps + 5), Mode::Off).unwrap());
    assert_eq!(replayed(&lab.run()), (steps + 5, None));
    if trials.is_long {
        assert!(left <= start + MORE && most <= start + SCRIPT + MORE && most_waits <= IN_USE);
    }
}
