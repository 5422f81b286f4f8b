//! Standard output, whose reader may leave before the end (`advlab doc | head`): an error like any other, no panic.

use std::io;

/// Prints a line to standard output; where that fails, the function ends with the error.
macro_rules! out {
    ($($text:tt)*) => {{
        use std::io::Write;
        writeln!(std::io::stdout(), $($text)*)?;
    }};
}

pub(super) use out;

/// Whether what went wrong is that nobody reads standard output any more: they have seen enough.
pub fn reader_left(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
