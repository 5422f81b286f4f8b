//! The folder of a run or of a language model with one of its files damaged, for whoever uses it; and requests to the page that
//! shows a run.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use advlab::Host;
use advlab::diagnostic::Diagnostics;
use advlab::native::Mode;
use advlab_cli::report::view::{Server, Site};
use advlab_train::{Config, Replay, Run, RunFolder};
use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{Rng, Target, files, json_or_bytes, mutated, pick};
use crate::rollouts::folder;
use crate::texts::holds;

/// A folder with one of its files damaged, and what is done with it.
pub struct Folders {
    place: TempDir,
    /// The files, by their paths in the folder.
    files: Vec<(String, Vec<u8>)>,
    used: fn(&Folders, &str) -> Result<bool, String>,
}

const STEPS: u64 = 3;
const SETTINGS: &str = "recipe = 'RECIPE'\nout = 'RUN'\nsteps = 3\nmaze_size = 2\ncheckpoint_every = 1\nbatch_every = 1\n\
     tensorboard = false\nrollout_batch_size = 4\ngroup_size = 4\neval_prompts = 4\neval_samples = 4\nhidden_size = 4\n";
const RECIPE: &str = "fn init(p) { #{ n: 0 } }\nfn advantage(batch, p) { this.n += 1; batch.reward - batch.reward.mean(\"group\") }\n";

impl Folders {
    /// The folder `folder` of `place`.
    pub fn new(place: TempDir, used: fn(&Folders, &str) -> Result<bool, String>) -> Folders {
        let folder = place.path().join("folder");
        let name = |path: PathBuf| path.strip_prefix(&folder).unwrap().display().to_string();
        let files = files(&folder).into_iter();
        let files = files.map(|(path, bytes)| (name(path), bytes)).collect();
        Folders { place, files, used }
    }

    /// A small run's folder.
    fn of_run(used: fn(&Folders, &str) -> Result<bool, String>) -> Folders {
        let place = folder();
        let at = |name: &str| place.path().join(name).display().to_string();
        fs::write(at("mine.rhai"), RECIPE).unwrap();
        let config = SETTINGS
            .replace("RECIPE", &at("mine.rhai"))
            .replace("RUN", &at("folder"));
        let config = Config::parse("run.toml".as_ref(), &config).unwrap();
        let mut run = Run::create(config).unwrap();
        run.go(&AtomicBool::new(false), &mut |_| {}).unwrap();
        drop(run);
        Folders::new(place, used)
    }

    /// A run's folder for whoever reads it: all that it has, the page of it as a file, a replay.
    pub fn read() -> Box<dyn Target> {
        Box::new(Folders::of_run(Folders::read_run))
    }

    /// A run's folder for whoever goes on with it: the run is refused, or has the row of each step once.
    pub fn resumed() -> Box<dyn Target> {
        Box::new(Folders::of_run(Folders::resume_run))
    }

    pub fn path(&self) -> PathBuf {
        self.place.path().join("folder")
    }

    /// The folder with one file as an input says: the path, a line feed, the contents. Returns the path.
    fn install(&self, input: &[u8]) -> Option<&str> {
        let end = input.iter().position(|byte| *byte == b'\n')?;
        let (name, contents) = (&input[..end], &input[end + 1..]);
        let name = &*self.files.iter().find(|file| file.0.as_bytes() == name)?.0;
        let _ = fs::remove_dir_all(self.path());
        for (own, contents) in &self.files {
            let path = self.path().join(own);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        fs::write(self.path().join(name), contents).unwrap();
        // Most checkpoints have the right checksums, so that they are read.
        let checkpoint = name.strip_prefix("checkpoints/");
        let checkpoint = checkpoint.filter(|_| contents.len() % 4 > 0);
        if let Some((step, file)) = checkpoint.and_then(|path| path.split_once('/')) {
            let path = self.path().join("checkpoints").join(step).join("run.json");
            let mut sealed: Value =
                serde_json::from_slice(&fs::read(&path).unwrap()).unwrap_or_default();
            let run = sealed["run"].to_string();
            if file == "run.json" && sealed.is_object() {
                sealed["crc"] = crc32c::crc32c(run.as_bytes()).into();
            } else if sealed["files"].is_object() {
                sealed["files"][file] = crc32c::crc32c(contents).into();
            }
            fs::write(path, sealed.to_string()).unwrap();
        }
        Some(name)
    }

    /// The value that was read; `None` for an error, which must name the folder or a file in it.
    pub fn named<T>(&self, name: &str, got: Result<T, Diagnostics>) -> Result<Option<T>, String> {
        let Err(error) = got else {
            return Ok(got.ok());
        };
        let is_named = error
            .render(false)
            .contains(&*self.path().to_string_lossy());
        let unnamed = || format!("an error does not name the file: {name}: {error}");
        holds(is_named, unnamed).map(|()| None)
    }

    fn read_run(&self, name: &str) -> Result<bool, String> {
        let (path, host) = (self.path(), Host::new());
        let run = RunFolder::read(&path);
        self.named(name, run.config())?;
        self.named(name, run.log())?;
        let mut is_whole = self.named(name, run.rows())?.is_some();
        is_whole &= self.named(name, run.loss(&host))?.is_some();
        for step in 0..STEPS + 2 {
            is_whole &= self.named(name, run.recipe_at(&host, step))?.is_some();
            is_whole &= self.named(name, run.state_at(step))?.is_some();
        }
        if let Ok(site) = Site::of(std::slice::from_ref(&path)) {
            let _ = site.export(&self.place.path().join("page.html"));
        }
        // A large run takes much memory, which is no fault of its reader.
        if name != "config.toml" {
            is_whole &= Replay::open(&path, Mode::Off).is_ok();
        }
        Ok(is_whole)
    }

    fn resume_run(&self, name: &str) -> Result<bool, String> {
        let path = self.path();
        if name == "config.toml" {
            return Ok(false);
        }
        let resumed = Run::resume(&path, Some(STEPS + 1), Mode::Off);
        let Some(mut run) = self.named(name, resumed)? else {
            return Ok(false);
        };
        // The recipe may refuse a changed state at its next step.
        if run.go(&AtomicBool::new(false), &mut |_| {}).is_err() {
            return Ok(false);
        }
        let rows = RunFolder::read(&path).rows();
        let rows = rows.map_err(|error| format!("its rows are damaged: {error}"))?;
        let steps: Vec<u64> = rows.iter().map(|row| row.step).collect();
        let are_all = steps.iter().copied().eq(0..=STEPS);
        // What a changed row said, nobody can know.
        let is_right = are_all || name == "metrics.jsonl";
        holds(is_right, || format!("other rows: {name}: {steps:?}"))?;
        Ok(true)
    }
}

impl Target for Folders {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let seed =
            |(name, contents): &(String, Vec<u8>)| [name.as_bytes(), b"\n", contents].concat();
        self.files.iter().map(seed).collect()
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let seed = pick(rng, corpus);
        let end = seed.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let (name, contents) = (&seed[..end], seed.get(end + 1..).unwrap_or_default());
        let names = "eos_token_id~stop_strings~eos_token~chat_template~hidden_size~rope_theta~head_dim~architectures~weight_map~\
             step~event~version~script~state~map~tables~fallbacks~recipe~loss_state~error~back_to~hook~platform";
        let changed = json_or_bytes(
            rng,
            &[contents.to_vec()],
            names,
            "null~{~\n~\"step\":9~0~{% for m in messages %}~{{~}}~ * ~range(~|~[",
        );
        [name, b"\n", &changed].concat()
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        match self.install(input) {
            Some(name) => (self.used)(self, name),
            None => Ok(false),
        }
    }
}

/// Requests: an answer is a whole one, and only whoever has the token gets more than a refusal.
pub struct Page {
    _run: Folders,
    port: u16,
    token: String,
}

impl Page {
    pub fn start() -> Box<dyn Target> {
        let run = Folders::of_run(Folders::read_run);
        fs::write(run.path().join("secret"), "unseen").unwrap();
        let server = Server::bind(Site::of(&[run.path()]).unwrap(), Some(0)).unwrap();
        let address = server.address().unwrap();
        std::thread::spawn(move || server.serve());
        let address = address.strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = address.split_once("/?token=").unwrap();
        let (port, token) = (port.parse().unwrap(), token.to_string());
        Box::new(Page {
            _run: run,
            port,
            token,
        })
    }
}

/// Stands for the token in inputs, which is another one in each process.
const TOKEN: &str = "TOKEN";

impl Target for Page {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let paths = "/?~/news?~/sample?run=0&~/lines?run=0&file=metrics&from=0&~/lines?run=0&file=reloads&from=7&~/batch?run=0&step=1&~\
             /objective?run=0&step=2&~/group?run=0&step=1&group=0&~/change?run=0&from=a&to=b&~/../secret?~/%2e%2e/secret?a=%00&";
        let whole = paths.split('~').map(|path| format!("{path}token={TOKEN}"));
        let head = |path| {
            format!("GET {path} HTTP/1.1\r\nHost: localhost:80\r\nAccept: */*\r\n\r\n").into_bytes()
        };
        whole
            .chain(paths.split('~').map(str::to_string))
            .map(head)
            .collect()
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let words = "TOKEN~token=~run=~step=~from=~file=~&~?~%~%ff~../~\r\n~\r\n\r\n~POST ~HEAD ~GET ~HTTP/1.0~Host: ~127.0.0.1~\0~\
             Host: evil.example\r\n~Content-Length: 99999999999\r\n~Transfer-Encoding: chunked\r\n~18446744073709551616";
        mutated(rng, corpus, words)
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let place = |bytes: &[u8], part: &str| {
            bytes
                .windows(part.len())
                .position(|own| own == part.as_bytes())
        };
        let mut request = input.to_vec();
        while let Some(at) = place(&request, TOKEN) {
            request.splice(at..at + TOKEN.len(), self.token.bytes());
        }
        let stream = TcpStream::connect(("127.0.0.1", self.port));
        let mut stream = stream.map_err(|error| format!("it answers nobody: {error}"))?;
        let mut answer = Vec::new();
        // One that is refused may be cut off.
        let _ = stream
            .write_all(&request)
            .and_then(|()| stream.shutdown(Shutdown::Write));
        if stream.read_to_end(&mut answer).is_err() || answer.is_empty() {
            return Ok(false);
        }
        let text = String::from_utf8(answer).map_err(|error| format!("it is no text: {error}"))?;
        let (head, body) = text
            .split_once("\r\n\r\n")
            .ok_or(format!("no head: {text}"))?;
        let length = format!("Content-Length: {}", body.len());
        let is_whole = head.starts_with("HTTP/1.1 ") && head.lines().any(|line| line == length);
        holds(is_whole, || format!("not a whole answer: {head}"))?;
        let is_good = head.starts_with("HTTP/1.1 200 ");
        let is_known = place(&request, &self.token).is_some() || !is_good;
        let is_due = is_known && !text.contains("unseen") && !text.contains(&self.token);
        holds(is_due, || format!("more than its due: {head}"))?;
        Ok(is_good)
    }
}
