//! What advlab promises of saves, kills, disks and its page, tried for as long as asked.
//!
//! `cargo test --release --features full --test soak -- --ignored --nocapture NAME`, where NAME is `saves`, `kills`, `disks` or `page`.
//! SOAK_SEED, SOAK_COUNT and SOAK_SECONDS set the seed, the number of trials and the time; docs/reliability.md has the
//! results. Each test also runs in small with all the others.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod cases;
mod disks;
mod kills;
#[path = "../it/run/lab.rs"]
#[allow(dead_code, reason = "the other tests of runs need more of it")]
mod lab;
mod page;
mod saves;
mod trace;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// As in the program: it bounds what a script allocates.
#[global_allocator]
static ALLOCATOR: advlab::allocation::Counting = advlab::allocation::Counting::new();

/// Sends a signal, such as `-INT`.
fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status();
    assert!(sent.unwrap().success());
}

/// A number of a process's status, such as `VmRSS:`, its memory in kilobytes.
fn number_of(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let rest = status.split_once(name).unwrap().1;
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// How much is tried.
struct Trials {
    seed: u64,
    count: usize,
    end: Instant,
    is_long: bool,
}

impl Trials {
    /// Few enough for each change of the code.
    fn few(count: usize) -> Trials {
        Trials {
            seed: 1,
            count,
            end: Instant::now() + Duration::from_secs(600),
            is_long: false,
        }
    }

    /// As many as asked for.
    fn many(count: usize) -> Trials {
        let number = |name: &str, default: usize| {
            let text = std::env::var(name).ok();
            text.map_or(default, |text| text.parse().expect("a whole number"))
        };
        Trials {
            seed: number("SOAK_SEED", 1) as u64,
            count: number("SOAK_COUNT", count),
            end: Instant::now() + Duration::from_secs(number("SOAK_SECONDS", 6 * 3600) as u64),
            is_long: true,
        }
    }

    fn random(&self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed)
    }

    fn is_over(&self, done: usize) -> bool {
        done >= self.count || Instant::now() >= self.end
    }
}
