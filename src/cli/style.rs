//! The terminal that a standard stream may be: its colours and its width.

use advlab::diagnostic::Diagnostic;
use advlab::paint::{Paint, WIDTH};
use console::Term;

/// Columns that lines are made for, however narrow the terminal is.
const NARROWEST: usize = 40;

/// Colours and lines for standard output.
pub fn on_stdout() -> Paint {
    of(&Term::stdout())
}

fn of(stream: &Term) -> Paint {
    let wants_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let size = stream.is_term().then(|| stream.size_checked());
    Paint {
        color: wants_color && stream.is_term(),
        width: size
            .flatten()
            .map_or(WIDTH, |(_, columns)| usize::from(columns).max(NARROWEST)),
    }
}

/// Colours and lines for what programs read as well: whole lines where there is no terminal.
pub fn whole(stream: &Term) -> Paint {
    let width = if stream.is_term() {
        of(stream).width
    } else {
        usize::MAX
    };
    Paint {
        width,
        ..of(stream)
    }
}

/// Problems as a stream shows them.
pub fn rendered(problems: &[Diagnostic], stream: &Term) -> String {
    let paint = whole(stream);
    let rendered = problems.iter().map(|problem| problem.render_within(paint));
    rendered.collect()
}

/// Prints problems on standard error.
pub fn tell(problems: &[Diagnostic]) {
    eprint!("{}", rendered(problems, &Term::stderr()));
}
