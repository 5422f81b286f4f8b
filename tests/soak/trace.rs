//! Runs a program that is stopped before each system call that changes a file: there it is killed, the call fails or waits, or
//! the clock goes back.

use std::ffi::c_long;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::{pid_t, sock_filter, user_regs_struct};

/// What happens at a change of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// The program is killed before it.
    Kill,
    /// The program is killed after half of a write; before any other change.
    KillHalfway,
    Signal(i32),
    Fail(Failure),
    Wait(Duration),
    /// From here on the time of day is earlier by so many seconds more.
    Back(i64),
}

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    /// Half of a write fits, and nothing after it. Files can still be renamed, cut and removed.
    Full,
    ReadOnly,
    /// Nothing works, as on a network drive whose server is gone.
    Gone,
}

/// How a program ended.
#[derive(Debug)]
pub struct Traced {
    pub changes: usize,
    /// The files that were written (`write`), put on the disk (`sync`) or got a name (`name`), in order.
    pub order: Vec<(&'static str, PathBuf)>,
    pub status: ExitStatus,
    pub stderr: String,
}

/// A program that takes longer is killed by SIGALRM.
const SECONDS: u32 = 120;

/// Calls on an open file, which is the first argument.
const WRITES: [c_long; 6] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
];

/// Calls with a path; opening one counts if it may make or cut the file.
const PATHS: [c_long; 7] = [
    libc::SYS_rename,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_openat,
];

/// Stops the program at the calls above.
fn filter() -> Vec<sock_filter> {
    let code = |code, yes, no, value| sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let load = |offset| code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let answer = |value| code(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let equal = |call, no| code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, no, call);
    let [stop, go] = [libc::SECCOMP_RET_TRACE, libc::SECCOMP_RET_ALLOW].map(answer);
    let mut filter = vec![load(0)];
    let others = WRITES.into_iter().chain(PATHS);
    for call in others.filter(|call| *call != libc::SYS_openat) {
        filter.extend([equal(call as u32, 1), stop]);
    }
    let makes = (libc::O_CREAT | libc::O_TRUNC) as u32;
    let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    // The time of day, by the first argument; the third argument of `openat`.
    filter.extend([equal(libc::SYS_clock_gettime as u32, 4), load(16)]);
    filter.extend([equal(libc::CLOCK_REALTIME as u32, 1), stop, go]);
    let open = [
        equal(libc::SYS_openat as u32, 3),
        load(16 + 2 * 8),
        code(has, 0, 1, makes),
        stop,
        go,
    ];
    filter.extend(open);
    filter
}

/// A program that is followed.
struct Followed<'a> {
    main: pid_t,
    folder: &'a Path,
    changes: usize,
    order: Vec<(&'static str, PathBuf)>,
    /// How far its clock is behind, in seconds.
    behind: i64,
}

/// Whether it worked: not if the program was killed.
fn ptrace(request: u32, process: pid_t, data: usize) -> bool {
    // SAFETY: the requests that are made with this write nothing into this process.
    unsafe { libc::ptrace(request, process, 0usize, data) == 0 }
}

fn registers(thread: pid_t) -> Option<user_regs_struct> {
    // SAFETY: all bits may be zero.
    let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: it writes the registers. A thread that was killed has none.
    let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0usize, &raw mut registers) };
    (read == 0).then_some(registers)
}

fn set_registers(thread: pid_t, registers: &user_regs_struct) {
    // SAFETY: it only reads the registers. A thread that was killed has none.
    unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0usize, &raw const *registers) };
}

/// Lets a program go on. One that was killed has gone on already.
fn go_on(process: pid_t, signal: i32) {
    ptrace(libc::PTRACE_CONT, process, signal as usize);
}

/// Runs a command, and does what `act` says at its changes of files in a folder, which have numbers from 0.
pub fn run(command: &mut Command, folder: &Path, act: impl Fn(usize) -> Option<Act>) -> Traced {
    let log = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log.reopen().unwrap());
    let filter = filter();
    let begin = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        let mode = libc::SECCOMP_MODE_FILTER as usize;
        // SAFETY: these calls may be made between fork and exec, and `program` outlives them.
        let is_ready = unsafe {
            libc::alarm(SECONDS);
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
        };
        if is_ready && ptrace(libc::PTRACE_TRACEME, 0, 0) {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    #[expect(clippy::zombie_processes, reason = "`waitpid` waits for it")]
    // SAFETY: `begin` makes system calls only.
    let child = unsafe { command.pre_exec(begin) }.spawn().unwrap();
    let main = child.id() as pid_t;
    let mut followed = Followed {
        main,
        folder,
        changes: 0,
        order: Vec::new(),
        behind: 0,
    };
    let (mut ended, mut is_followed) = (None, false);
    loop {
        let mut status = 0;
        // Only children of this thread: other tests have their own.
        let which = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: it writes the status.
        let process = unsafe { libc::waitpid(-1, &raw mut status, which) };
        if process == -1 {
            break;
        }
        if !libc::WIFSTOPPED(status) {
            ended = (process == main).then_some(status).or(ended);
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_SECCOMP => followed.stopped(process, &act),
            // After `exec`.
            0 if signal == libc::SIGTRAP && !is_followed => {
                is_followed = true;
                ask_the_system_for_the_time(process);
                let options = libc::PTRACE_O_TRACESECCOMP
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_TRACEFORK
                    | libc::PTRACE_O_TRACEVFORK
                    | libc::PTRACE_O_EXITKILL;
                ptrace(libc::PTRACE_SETOPTIONS, process, options as usize);
                go_on(process, 0);
            }
            // A new thread begins with a stop.
            0 if [libc::SIGSTOP, libc::SIGTRAP].contains(&signal) => go_on(process, 0),
            0 => go_on(process, signal),
            _ => go_on(process, 0),
        }
    }
    Traced {
        changes: followed.changes,
        order: followed.order,
        status: ExitStatus::from_raw(ended.expect("the program ended")),
        stderr: std::fs::read_to_string(log.path()).unwrap(),
    }
}

/// The memory of a program.
fn memory(process: pid_t) -> File {
    let path = format!("/proc/{process}/mem");
    File::options().read(true).write(true).open(path).unwrap()
}

/// A text of a program, up to its end.
fn text(thread: pid_t, at: u64) -> String {
    let (memory, mut bytes, mut byte) = (memory(thread), Vec::new(), [0]);
    while memory
        .read_exact_at(&mut byte, at + bytes.len() as u64)
        .is_ok()
        && byte != [0]
    {
        bytes.extend(byte);
    }
    String::from_utf8(bytes).unwrap()
}

/// A program that begins is told nothing of the kernel's functions in its own memory, which give the time without a system call.
fn ask_the_system_for_the_time(process: pid_t) {
    const AT_IGNORE: u64 = 1;
    let memory = memory(process);
    let word = |at| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, at).unwrap();
        u64::from_ne_bytes(word)
    };
    // The number of arguments, the arguments, the environment, each with a 0 behind it, and then pairs.
    let mut at = registers(process).unwrap().rsp + 8;
    for _ in 0..2 {
        while word(at) != 0 {
            at += 8;
        }
        at += 8;
    }
    while word(at) != libc::AT_NULL {
        if word(at) == libc::AT_SYSINFO_EHDR {
            memory.write_all_at(&AT_IGNORE.to_ne_bytes(), at).unwrap();
        }
        at += 16;
    }
}

impl Followed<'_> {
    /// A thread is before a call.
    fn stopped(&mut self, thread: pid_t, act: &impl Fn(usize) -> Option<Act>) {
        let Some(mut registers) = registers(thread) else {
            return;
        };
        let call = registers.orig_rax as c_long;
        if call == libc::SYS_clock_gettime {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let time = [
                now.as_secs() as i64 - self.behind,
                now.subsec_nanos().into(),
            ];
            let bytes: Vec<u8> = time.into_iter().flat_map(i64::to_ne_bytes).collect();
            memory(thread).write_all_at(&bytes, registers.rsi).unwrap();
            // The call is left out, and this is its result.
            (registers.orig_rax, registers.rax) = (u64::MAX, 0);
            set_registers(thread, &registers);
            return go_on(thread, 0);
        }
        let file = || std::fs::read_link(format!("/proc/{}/fd/{}", self.main, registers.rdi));
        if WRITES.contains(&call) && !file().is_ok_and(|file| file.starts_with(self.folder)) {
            return go_on(thread, 0);
        }
        let named = match call {
            libc::SYS_rename => registers.rsi,
            libc::SYS_renameat2 => registers.r10,
            libc::SYS_openat => registers.rsi,
            libc::SYS_mkdir => registers.rdi,
            _ => 0,
        };
        match (call, file()) {
            (libc::SYS_fsync | libc::SYS_fdatasync, Ok(file)) => self.order.push(("sync", file)),
            (call, Ok(file)) if WRITES.contains(&call) => self.order.push(("write", file)),
            _ if named != 0 => self.order.push(("name", text(thread, named).into())),
            _ => {}
        }
        let number = self.changes;
        self.changes += 1;
        let is_write = [libc::SYS_write, libc::SYS_pwrite64].contains(&call) && registers.rdx > 1;
        let act_now = act(number);
        match act_now {
            Some(Act::Kill | Act::KillHalfway) => {
                if is_write && act_now == Some(Act::KillHalfway) {
                    registers.rdx /= 2;
                    set_registers(thread, &registers);
                    ptrace(libc::PTRACE_SYSCALL, thread, 0);
                    let mut status = 0;
                    // SAFETY: it writes the status. The thread stops behind the call.
                    unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
                }
                // SAFETY: it is the process that is followed.
                unsafe { libc::kill(self.main, libc::SIGKILL) };
                return;
            }
            Some(Act::Fail(failure)) => {
                let is_first = number.checked_sub(1).and_then(act).is_none();
                if failure == Failure::Full && is_write && is_first {
                    registers.rdx /= 2;
                } else if let Some(error) = failure.error(call) {
                    registers.orig_rax = u64::MAX;
                    registers.rax = -i64::from(error) as u64;
                }
                set_registers(thread, &registers);
            }
            // SAFETY: it is the process that is followed.
            Some(Act::Signal(signal)) => drop(unsafe { libc::kill(self.main, signal) }),
            Some(Act::Wait(time)) => std::thread::sleep(time),
            Some(Act::Back(seconds)) => self.behind += seconds,
            None => {}
        }
        go_on(thread, 0);
    }
}

impl Failure {
    /// The error of a call, if it fails.
    fn error(self, call: c_long) -> Option<i32> {
        let takes_room = WRITES.contains(&call) && call != libc::SYS_ftruncate
            || [libc::SYS_openat, libc::SYS_mkdir].contains(&call);
        match self {
            Failure::Full => takes_room.then_some(libc::ENOSPC),
            Failure::ReadOnly => {
                (![libc::SYS_fsync, libc::SYS_fdatasync].contains(&call)).then_some(libc::EROFS)
            }
            Failure::Gone => Some(libc::EIO),
        }
    }
}
