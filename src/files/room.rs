//! Limits the memory that a file may take, because a small file can claim, or decompress to, more bytes than any machine has.

use std::fs;
use std::io;

/// The memory that a response takes without its arrays, in bytes.
pub(super) const ROW: u64 = 64;

/// A limit of half the memory that the process can still take. The other half is needed when growing vectors are copied.
#[derive(Clone, Copy)]
pub(super) struct Room(u64);

impl Room {
    pub(super) fn now() -> Room {
        let read = |(path, name, unit): (&str, &str, u64)| {
            let text = fs::read_to_string(path).ok()?;
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(unit * rest.split_whitespace().next()?.parse::<u64>().ok()?)
        };
        // Limits, each with the part of it that is in use. The pages of files in a cgroup do not count, because they can be freed.
        let sources = [
            (("/proc/meminfo", "MemAvailable:", 1024), ("", "", 1)),
            (
                ("/proc/self/limits", "Max address space", 1),
                ("/proc/self/status", "VmSize:", 1024),
            ),
            (
                ("/sys/fs/cgroup/memory.max", "", 1),
                ("/sys/fs/cgroup/memory.stat", "anon ", 1),
            ),
        ];
        let bytes = sources
            .into_iter()
            .filter_map(|(limit, used)| Some(read(limit)?.saturating_sub(read(used).unwrap_or(0))));
        Room(bytes.min().unwrap_or(u64::MAX) / 2)
    }

    /// Fails if `bytes` exceed this limit. The message begins with `what`.
    pub(super) fn check(self, bytes: u64, what: &str) -> io::Result<()> {
        if bytes <= self.0 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{what} more than {:.1} GB, half of the memory available to this process",
            self.0 as f64 / 1e9
        )))
    }
}
