//! A thread that prints what a run tells: a step never waits for a terminal that is paused, or for a slow reader.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use indicatif::ProgressBar;

/// Bytes that wait to be printed, at most; what comes beyond is left out.
const MOST: usize = 8 << 20;
/// What a message takes beside its text.
const OVERHEAD: usize = 64;

pub enum Output {
    /// Lines above the bar.
    Lines(String),
    /// The bar's position and message.
    Progress(u64, String),
    /// Ends the bar, and says when all before is printed.
    FinishBar(SyncSender<()>),
}

/// Ends with all printed when it is dropped.
pub struct Printer {
    /// `None` once it ends.
    queue: Option<Sender<Output>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<AtomicUsize>,
    /// Lines that were left out since the last ones that were not.
    left_out: AtomicUsize,
}

impl Printer {
    pub fn new(bar: ProgressBar) -> Printer {
        let (queue, outputs) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let of_thread = waiting.clone();
        Printer {
            queue: Some(queue),
            thread: Some(std::thread::spawn(move || {
                print(&bar, &outputs, &of_thread)
            })),
            waiting,
            left_out: AtomicUsize::new(0),
        }
    }

    /// Prints it in its turn, unless too much waits already. How many lines are left out is told before the next ones.
    pub fn send(&self, output: Output) {
        let is_full = self.waiting.load(Ordering::Relaxed) + size(&output) > MOST;
        match output {
            Output::Lines(lines) if is_full => {
                let count = lines.lines().count();
                self.left_out.fetch_add(count, Ordering::Relaxed);
            }
            Output::Progress(..) if is_full => {}
            Output::Lines(lines) => {
                self.tell_left_out();
                self.queue(Output::Lines(lines));
            }
            output => self.queue(output),
        }
    }

    fn tell_left_out(&self) {
        let count = self.left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            let lines =
                format!("[{count} lines are left out: they came faster than they were read]");
            self.queue(Output::Lines(lines));
        }
    }

    fn queue(&self, output: Output) {
        self.waiting.fetch_add(size(&output), Ordering::Relaxed);
        if let Some(queue) = &self.queue {
            // The thread ends with the queue.
            let _ = queue.send(output);
        }
    }

    /// Ends the bar, once all before is printed: the run is over, and waits for its reader.
    pub fn finish_bar(&self) {
        self.tell_left_out();
        let (done, wait) = sync_channel(1);
        self.queue(Output::FinishBar(done));
        let _ = wait.recv();
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.tell_left_out();
        self.queue = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn size(output: &Output) -> usize {
    OVERHEAD
        + match output {
            Output::Lines(text) | Output::Progress(_, text) => text.len(),
            Output::FinishBar(_) => 0,
        }
}

fn print(bar: &ProgressBar, outputs: &Receiver<Output>, waiting: &AtomicUsize) {
    for output in outputs {
        let size = size(&output);
        match output {
            Output::Lines(lines) => bar.suspend(|| {
                // A run goes on where nobody reads it any more.
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
        waiting.fetch_sub(size, Ordering::Relaxed);
    }
}
