//! The page of a run under attack: it refuses, it recovers, and the run does not notice.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt};

use super::lab::{Lab, STATEFUL, command, replayed, steps_of};
use super::{Trials, number_of, signal};

#[test]
fn some_attacks_on_the_page() {
    attacks(&Trials::few(60));
}

#[test]
#[ignore = "takes minutes"]
fn page() {
    attacks(&Trials::many(100_000));
}

/// Requests after each of which the page is besieged.
const SIEGE: usize = 2000;
/// Six times the places that the server has for strangers.
const SLOW: usize = 200;
/// What the process may have beyond the start: kilobytes, and threads.
const MORE: [u64; 2] = [100_000, 120];

/// A run with its page.
struct Page {
    child: Child,
    port: u16,
    token: String,
}

impl Page {
    fn start(lab: &Lab) -> Page {
        let mut command = command(lab.place(), "train FOLDER/config.toml --view=0");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let address = line.split_once("http://127.0.0.1:")?.1;
            let (port, token) = address.split_once("/?token=")?;
            let token = token.split_whitespace().next()?;
            Some((port.parse().unwrap(), token.to_string()))
        });
        std::thread::spawn(move || lines.for_each(drop));
        let (port, token) = address.expect("the address of the page");
        Page { child, port, token }
    }

    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let time = Some(Duration::from_secs(10));
        stream.set_read_timeout(time).unwrap();
        stream.set_write_timeout(time).unwrap();
        Some(stream)
    }

    /// The answer to some bytes; it may be cut off.
    fn ask(&self, request: &[u8]) -> String {
        let mut answer = Vec::new();
        if let Some(mut stream) = self.connect() {
            let _ = stream.write_all(request);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut answer);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The head of a request that is answered.
    fn request(&self, target: &str) -> Vec<u8> {
        let sign = if target.contains('?') { '&' } else { '?' };
        let Page { port, token, .. } = self;
        format!("GET {target}{sign}token={token} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: */*\r\n\r\n").into()
    }

    /// Waits until the page is answered again, and gives the time.
    fn is_back(&self) -> Duration {
        let started = Instant::now();
        while !self.ask(&self.request("/")).starts_with("HTTP/1.1 200 ") {
            assert!(started.elapsed().as_secs() < 300, "no page any more");
        }
        started.elapsed()
    }

    /// Kilobytes and threads of the process.
    fn size(&self) -> [u64; 2] {
        ["VmRSS:", "Threads:"].map(|name| number_of(self.child.id(), name))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a mutated request may be of, and texts that mean something in one.
const TARGETS: &str = "/ /news /sample?run=0 /lines?run=0&file=metrics&from=0 /change?run=0&from=aa&to=bb \
     /batch?run=0&step=0 /group?run=0&step=0&group=1 /objective?run=0&step=4 /../../secret?run=99999999999999999999";
const PIECES: &str = "\r\n \0 %2e%2e/ ../ \u{202e} : &from=-1 &step=18446744073709551615 \
     Host:evil.example\r\n Content-Length:99999999999\r\n";

/// One of some words.
fn one_of<'a>(random: &mut ChaCha8Rng, words: &'a str) -> &'a str {
    let words: Vec<&str> = words.split(' ').collect();
    words[random.random_range(0..words.len())]
}

fn mutated(random: &mut ChaCha8Rng, mut request: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.random_range(1..8) {
        let at = random.random_range(0..request.len());
        match random.random_range(0..5) {
            0 => request[at] = random.random(),
            1 if request.len() > 1 => drop(request.remove(at)),
            2 => {
                let piece = one_of(random, PIECES).repeat(random.random_range(1..20));
                request.splice(at..at, piece.into_bytes());
            }
            3 if random.random_range(0..4) == 0 => request.truncate(at.max(1)),
            _ => request.extend((0..random.random_range(0..3000)).map(|_| b'x')),
        }
    }
    request
}

fn attacks(trials: &Trials) {
    let mut random = trials.random();
    let mut lab = Lab::new(STATEFUL);
    lab.config.steps = 100_000_000;
    lab.write_config();
    fs::write(lab.place().join("secret"), "unseen").unwrap();
    let mut page = Page::start(&lab);
    page.is_back();
    let (start, mut most) = (page.size(), [0; 2]);
    let (mut done, mut answered, mut slowest) = (0, 0, Duration::ZERO);
    while !trials.is_over(done) {
        done += 1;
        let mut request = page.request(one_of(&mut random, TARGETS));
        // Half of them have half of a token.
        let is_stranger = random.random();
        if is_stranger {
            let text = String::from_utf8(request).unwrap();
            request = text.replace(&page.token, &page.token[16..]).into();
        }
        let request = mutated(&mut random, request);
        let answer = page.ask(&request);
        let is_answered = answer.starts_with("HTTP/1.1 200 ");
        answered += usize::from(is_answered);
        let is_http = answer.is_empty() || answer.starts_with("HTTP/1.1 ");
        assert!(
            is_http && !answer.contains("unseen") && !(is_stranger && is_answered),
            "{:?}\n{answer}",
            String::from_utf8_lossy(&request)
        );
        if done % SIEGE == 1 {
            slowest = slowest.max(siege(&page, &lab, &mut random));
        }
        if done % 100 == 1 {
            let now = page.size();
            most = [most[0].max(now[0]), most[1].max(now[1])];
        }
    }
    slowest = slowest.max(page.is_back());
    let seed = trials.seed;
    println!("{done} requests, {answered} answered with 200, seed {seed}");
    println!("back {slowest:?} after a siege at most");
    println!("{start:?} kB and threads at the start, {most:?} at most");
    assert!(most[0] <= start[0] + MORE[0] && most[1] <= start[1] + MORE[1]);
    signal(&page.child, "-INT");
    assert!(page.child.wait().unwrap().success());
    assert_eq!(replayed(&lab.run()), (steps_of(&lab) as u64, None));
}

/// Strangers whose requests never end, and friends who do not read their answers: the run goes on, and so does the page, while they
/// are there.
fn siege(page: &Page, lab: &Lab, random: &mut impl Rng) -> Duration {
    let mut streams: Vec<TcpStream> = (0..SLOW).filter_map(|_| page.connect()).collect();
    let whole = page.request("/");
    for stream in &mut streams {
        let is_friend = random.random_range(0..8) == 0;
        let request = if is_friend { &whole } else { &whole[..20] };
        // The server may have closed it already.
        let _ = stream.write_all(request);
    }
    let (started, before) = (Instant::now(), steps_of(lab));
    while steps_of(lab) == before {
        assert!(started.elapsed().as_secs() < 300, "the run stands still");
        std::thread::sleep(Duration::from_millis(5));
    }
    page.is_back()
}
