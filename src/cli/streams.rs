//! The standard streams: the colours and the width of the terminal that each may be, and what is printed on them.

use std::io;

use advlab::diagnostic::Diagnostic;
use advlab::paint::{Paint, WIDTH};
use console::Term;

/// Columns that lines are made for, however narrow the terminal is.
const NARROWEST: usize = 40;

/// Prints a line to standard output; where that fails, the function ends with the error. Its reader may leave before the
/// end, as in `advlab doc | head`: an error like any other, no panic.
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

/// Colours and lines for standard output.
pub fn on_stdout() -> Paint {
    paint(&Term::stdout(), WIDTH)
}

/// Colours and lines for what programs read as well: whole lines where there is no terminal.
pub fn whole(stream: &Term) -> Paint {
    paint(stream, usize::MAX)
}

fn paint(stream: &Term, width_of_files: usize) -> Paint {
    let is_terminal = stream.is_term();
    let wants_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Paint {
        color: wants_color && is_terminal,
        width: if is_terminal {
            usize::from(stream.size().1).max(NARROWEST)
        } else {
            width_of_files
        },
    }
}

/// Prints problems on standard error.
pub fn tell(problems: &[Diagnostic]) {
    let paint = whole(&Term::stderr());
    for problem in problems {
        eprint!("{}", problem.render_within(paint));
    }
}
