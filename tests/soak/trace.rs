//! Runs a program that is stopped before each system call that changes a file: there it is killed, or the call fails or waits.

use std::ffi::c_long;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use libc::{pid_t, sock_filter, user_regs_struct};

/// What happens at a change of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// The program is killed before it.
    Kill,
    /// The program is killed after half of a write; before any other change.
    KillHalfway,
    Fail(Failure),
    Wait(Duration),
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
    pub status: ExitStatus,
    pub stderr: String,
}

/// A program that takes longer is killed by SIGALRM.
const SECONDS: u32 = 120;

/// Calls on an open file, which is the first argument.
const WRITES: [c_long; 8] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
];

/// Calls with a path; opening one counts if it may make or cut the file.
const PATHS: [c_long; 12] = [
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_truncate,
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
    // The third argument of `openat`.
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

fn check(result: c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn ptrace(request: u32, process: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the requests that are made with this write nothing into this process.
    check(unsafe { libc::ptrace(request, process, 0usize, data) })
}

fn set_registers(thread: pid_t, registers: &user_regs_struct) {
    // SAFETY: it only reads the registers. A thread that was killed has none.
    unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0usize, &raw const *registers) };
}

/// Lets a program go on. One that was killed has gone on already.
fn go_on(process: pid_t, signal: i32) {
    let _ = ptrace(libc::PTRACE_CONT, process, signal as usize);
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
        unsafe {
            libc::alarm(SECONDS);
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            check(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program).into())?;
        }
        ptrace(libc::PTRACE_TRACEME, 0, 0)
    };
    // SAFETY: `begin` makes system calls only.
    let child = unsafe { command.pre_exec(begin) }.spawn().unwrap();
    let main = child.id() as pid_t;
    let (mut changes, mut ended, mut is_followed) = (0, None, false);
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
            libc::PTRACE_EVENT_SECCOMP => stopped(process, main, folder, &mut changes, &act),
            // After `exec`.
            0 if signal == libc::SIGTRAP && !is_followed => {
                is_followed = true;
                let options = libc::PTRACE_O_TRACESECCOMP
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_TRACEFORK
                    | libc::PTRACE_O_TRACEVFORK
                    | libc::PTRACE_O_EXITKILL;
                ptrace(libc::PTRACE_SETOPTIONS, process, options as usize).unwrap();
                go_on(process, 0);
            }
            // A new thread begins with a stop.
            0 if [libc::SIGSTOP, libc::SIGTRAP].contains(&signal) => go_on(process, 0),
            0 => go_on(process, signal),
            _ => go_on(process, 0),
        }
    }
    Traced {
        changes,
        status: ExitStatus::from_raw(ended.expect("the program ended")),
        stderr: std::fs::read_to_string(log.path()).unwrap(),
    }
}

/// A thread is before a call.
fn stopped(
    thread: pid_t,
    main: pid_t,
    folder: &Path,
    changes: &mut usize,
    act: &impl Fn(usize) -> Option<Act>,
) {
    // SAFETY: all bits may be zero.
    let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: it writes the registers.
    let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0usize, &raw mut registers) };
    if read == -1 {
        // It was killed.
        return;
    }
    let call = registers.orig_rax as c_long;
    let file = || std::fs::read_link(format!("/proc/{main}/fd/{}", registers.rdi));
    if WRITES.contains(&call) && !file().is_ok_and(|file| file.starts_with(folder)) {
        return go_on(thread, 0);
    }
    let number = *changes;
    *changes += 1;
    let is_write = [libc::SYS_write, libc::SYS_pwrite64].contains(&call) && registers.rdx > 1;
    let kill = || {
        // SAFETY: it is the process that this function follows.
        unsafe { libc::kill(main, libc::SIGKILL) };
    };
    match act(number) {
        Some(Act::Kill) => return kill(),
        Some(Act::KillHalfway) if is_write => {
            registers.rdx /= 2;
            set_registers(thread, &registers);
            let _ = ptrace(libc::PTRACE_SYSCALL, thread, 0);
            let mut status = 0;
            // SAFETY: it writes the status. The thread stops behind the call.
            unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
            return kill();
        }
        Some(Act::KillHalfway) => return kill(),
        Some(Act::Fail(failure)) => {
            // The first one that fails is shortened first.
            if failure == Failure::Full && is_write && number.checked_sub(1).and_then(act).is_none()
            {
                registers.rdx /= 2;
            } else if let Some(error) = failure.error(call) {
                registers.orig_rax = u64::MAX;
                registers.rax = -i64::from(error) as u64;
            }
            set_registers(thread, &registers);
        }
        Some(Act::Wait(time)) => std::thread::sleep(time),
        None => {}
    }
    go_on(thread, 0);
}

impl Failure {
    /// The error of a call, if it fails.
    fn error(self, call: c_long) -> Option<i32> {
        let takes_room = WRITES.contains(&call) && call != libc::SYS_ftruncate
            || [libc::SYS_openat, libc::SYS_mkdir, libc::SYS_mkdirat].contains(&call);
        match self {
            Failure::Full => takes_room.then_some(libc::ENOSPC),
            Failure::ReadOnly => {
                (![libc::SYS_fsync, libc::SYS_fdatasync].contains(&call)).then_some(libc::EROFS)
            }
            Failure::Gone => Some(libc::EIO),
        }
    }
}
