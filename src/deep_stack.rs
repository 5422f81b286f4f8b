//! Threads whose stacks are large enough for the values of scripts.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::thread;

use rayon::ThreadPoolBuilder;

use crate::allocation::{held, moved};

/// The bytes of such a stack.
///
/// The script engine drops, clones and compares values by recursion, and a value can be as deep as it has elements: 2^15 arrays and
/// 2^14 maps, nested in each other, take below 1 KiB per level in a debug build. Only touched pages become memory.
pub(crate) const STACK: usize = 256 << 20;

thread_local! {
    static IS_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function on a thread with a deep stack, which is this thread if it has one. All code that calls scripts does so; a program
/// that calls many does so at its start, because that saves a thread for each of its calls.
///
/// The function's parallel loops use rayon's global pool. If this thread belongs to another pool, they run in sequence, because no
/// thread of a pool may wait for what the pool has to do; pools with deep stacks ([`pool`]) have no such limit.
///
/// # Panics
/// If the function panics, or no thread can be started.
pub fn call<R: Send>(function: impl FnOnce() -> R + Send) -> R {
    if IS_DEEP.get() {
        return function();
    }
    let function = || {
        IS_DEEP.set(true);
        (function(), held())
    };
    let failed = |error: &dyn std::error::Error| -> ! { panic!("no thread for a script: {error}") };
    let (result, bytes) = if rayon::current_thread_index().is_some() {
        let alone = pool(ThreadPoolBuilder::new().num_threads(1)).build();
        alone
            .unwrap_or_else(|error| failed(&error))
            .install(function)
    } else {
        thread::scope(|scope| {
            let thread = thread::Builder::new().stack_size(STACK);
            let thread = thread.spawn_scoped(scope, function);
            let done = thread.unwrap_or_else(|error| failed(&error)).join();
            done.unwrap_or_else(|panic| resume_unwind(panic))
        })
    };
    // The caller frees the result.
    moved(bytes);
    result
}

/// A pool of rayon in which scripts can be called: its threads have deep stacks.
pub fn pool(threads: ThreadPoolBuilder) -> ThreadPoolBuilder {
    threads
        .stack_size(STACK)
        .start_handler(|_| IS_DEEP.set(true))
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// Nested calls until the stack is half full.
    fn depth(levels: usize) -> usize {
        let page = std::hint::black_box([levels as u8; 4096]);
        match levels {
            0 => usize::from(page[0]),
            _ => 1 + depth(levels - 1),
        }
    }

    const LEVELS: usize = STACK / 4096 / 4;

    #[test]
    fn a_call_has_a_deep_stack_on_every_thread() {
        let deep = || call(|| depth(LEVELS));
        assert_eq!(deep(), LEVELS);
        assert_eq!(call(deep), LEVELS);
        let one = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        // A thread of the pool that waited for the pool would wait for ever.
        assert_eq!(
            one.install(|| call(|| rayon::join(deep, deep))),
            (LEVELS, LEVELS)
        );
        let all = pool(ThreadPoolBuilder::new().num_threads(3))
            .build()
            .unwrap();
        let (threads, levels) = all.install(|| call(|| (rayon::current_num_threads(), deep())));
        assert_eq!((threads, levels), (3, LEVELS));
    }

    #[test]
    fn a_panic_and_what_is_allocated_are_the_callers() {
        let before = held();
        call(|| moved(16));
        assert_eq!(held() - before, 16);
        let panic = catch_unwind(|| call(|| panic!("inside"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"inside"));
    }
}
