//! The memory that a file may take: a small one can claim, or unpack to, more than any machine has.

use std::fs;
use std::io;

/// The bytes of a response in memory, without its arrays.
pub(super) const ROW: u64 = 64;

/// Half of the memory that is free to the process: vectors that grow are copied.
#[derive(Clone, Copy)]
pub(super) struct Room(u64);

impl Room {
    pub(super) fn now() -> Room {
        let number = |path: &str, name: &str| {
            let text = fs::read_to_string(path).ok()?;
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            let unit = if rest.ends_with("kB") { 1024 } else { 1 };
            Some(unit * rest.split_whitespace().next()?.parse::<u64>().ok()?)
        };
        let space = number("/proc/self/limits", "Max address space");
        let container = number("/sys/fs/cgroup/memory.max", "");
        // The copies of files that also count as a container's are dropped when it needs their memory.
        let free = [
            (number("/proc/meminfo", "MemAvailable:"), None),
            (space, number("/proc/self/status", "VmSize:")),
            (container, number("/sys/fs/cgroup/memory.stat", "anon ")),
        ];
        let free = free
            .into_iter()
            .filter_map(|(all, taken)| Some(all?.saturating_sub(taken.unwrap_or(0))));
        Room(free.min().unwrap_or(u64::MAX) / 2)
    }

    /// An error, before the memory is taken, if something takes more.
    pub(super) fn check(self, bytes: u64, what: &str) -> io::Result<()> {
        if bytes <= self.0 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{what} more than {:.1} GB, half of the memory that is free",
            self.0 as f64 / 1e9
        )))
    }
}
