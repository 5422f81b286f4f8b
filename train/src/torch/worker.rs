//! The thread that calls libtorch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use advlab::diagnostic::{Diagnostic, Diagnostics};

/// A thread of its own for calls of libtorch, which starts a team of threads for each thread that calls it. Dropping it waits
/// for its end.
pub struct Worker {
    /// Of one thread; `None` while it is being dropped.
    pool: Option<ThreadPool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Diagnostics`] if the system gives none.
    pub fn start() -> Result<Worker, Diagnostics> {
        let mut thread = None;
        let spawn = |own: rayon::ThreadBuilder| {
            let builder = thread::Builder::new().name("libtorch".to_string());
            thread = Some(builder.spawn(|| own.run())?);
            Ok(())
        };
        let pool = ThreadPoolBuilder::new().num_threads(1).spawn_handler(spawn);
        let pool = pool.build().map_err(|error| {
            Diagnostics::from(Diagnostic::error(format!(
                "no thread for libtorch: {error}"
            )))
        })?;
        Ok(Worker {
            pool: Some(pool),
            thread,
        })
    }

    /// What `work` gives on the thread; it is waited for.
    ///
    /// # Errors
    /// [`Diagnostics`] if it panics, as `tch` does in what has no name with `f_`.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, Diagnostics> {
        let Some(pool) = &self.pool else {
            unreachable!("the thread ends when its owner does");
        };
        catch_unwind(AssertUnwindSafe(|| pool.install(work))).map_err(|panic| {
            let message = format!("libtorch's thread panicked: {}", first_line(&*panic));
            Diagnostic::error(message).into()
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pool = None;
        if let Some(thread) = self.thread.take() {
            // It has been told to end, and panics were caught.
            let _ = thread.join();
        }
    }
}

fn first_line(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let line = text.and_then(|text| text.lines().next());
    line.unwrap_or("it does not say why")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn all_work_is_done_on_one_thread_and_a_panic_is_an_error() {
        let worker = Worker::start().unwrap();
        let id = || thread::current().id();
        let first = worker.run(id).unwrap();
        assert_ne!(first, id());
        let error = worker.run(|| panic!("no\nstack")).unwrap_err();
        assert_eq!(error[0].message, "libtorch's thread panicked: no");
        assert_eq!(worker.run(id).unwrap(), first);
    }

    #[test]
    fn dropping_it_waits_for_its_thread() {
        struct Gone(mpsc::Sender<()>);
        impl Drop for Gone {
            fn drop(&mut self) {
                thread::sleep(std::time::Duration::from_millis(20));
                self.0.send(()).unwrap();
            }
        }
        thread_local! {
            static LAST: std::cell::OnceCell<Gone> = const { std::cell::OnceCell::new() };
        }
        let (sender, gone) = mpsc::channel();
        let worker = Worker::start().unwrap();
        worker
            .run(|| LAST.with(|last| last.set(Gone(sender)).is_ok()))
            .unwrap();
        assert!(gone.try_recv().is_err());
        drop(worker);
        assert!(gone.try_recv().is_ok());
    }
}
