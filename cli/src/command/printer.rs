//! A thread that prints what a run reports: a step never waits for a paused terminal or a slow reader.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use indicatif::ProgressBar;

/// Messages that may wait to be printed; further ones are left out.
const MOST: usize = 1 << 12;

pub enum Output {
    /// Lines above the bar.
    Lines(String),
    /// The bar's position and message.
    Progress(u64, String),
    /// Ends the bar, and answers when everything before is printed.
    FinishBar(SyncSender<()>),
}

/// Prints everything that waits before it is dropped.
pub struct Printer {
    /// `None` once it ends.
    queue: Option<SyncSender<Output>>,
    thread: Option<JoinHandle<()>>,
    /// Lines that were left out since the last ones that were not.
    left_out: AtomicUsize,
}

impl Printer {
    pub fn new(bar: ProgressBar) -> Printer {
        let (queue, outputs) = sync_channel(MOST);
        Printer {
            queue: Some(queue),
            thread: Some(std::thread::spawn(move || print(&bar, &outputs))),
            left_out: AtomicUsize::new(0),
        }
    }

    /// Prints it in its turn, unless too many messages wait already. The next lines say how many were left out.
    pub fn send(&self, output: Output) {
        let Some(queue) = &self.queue else { return };
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let is_told = left_out == 0 || queue.try_send(Output::Lines(message(left_out))).is_ok();
        if !is_told {
            self.left_out.fetch_add(left_out, Ordering::Relaxed);
        }
        if let Err(TrySendError::Full(Output::Lines(lines))) = queue.try_send(output) {
            let count = lines.lines().count();
            self.left_out.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Ends the bar once everything before is printed: the run is over, and waits for its reader.
    pub fn finish_bar(&self) {
        let (done, wait) = sync_channel(1);
        if let Some(queue) = &self.queue {
            self.flush(queue);
            let _ = queue.send(Output::FinishBar(done));
        }
        let _ = wait.recv();
    }

    /// Waits for room, and says how many lines were left out.
    fn flush(&self, queue: &SyncSender<Output>) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = queue.send(Output::Lines(message(left_out)));
        }
    }
}

fn message(left_out: usize) -> String {
    format!("[{left_out} lines are left out: they came faster than they were read]")
}

impl Drop for Printer {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.flush(&queue);
        }
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn print(bar: &ProgressBar, outputs: &Receiver<Output>) {
    for output in outputs {
        match output {
            // A run goes on if nobody reads its output any more.
            Output::Lines(lines) => bar.suspend(|| {
                let _ = writeln!(std::io::stdout(), "{lines}");
            }),
            Output::Progress(position, message) => {
                bar.set_message(message);
                bar.set_position(position);
            }
            Output::FinishBar(done) => {
                bar.finish_and_clear();
                let _ = done.send(());
            }
        }
    }
}
