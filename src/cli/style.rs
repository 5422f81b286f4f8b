//! The terminal that a standard stream may be: its colours and its width.

use advlab::diagnostic::Diagnostic;
use advlab::paint::{Paint, WIDTH};
use console::Term;

/// Colours and lines for standard output.
pub fn on_stdout() -> Paint {
    of(&Term::stdout())
}

/// Colours and lines for standard error.
pub fn on_stderr() -> Paint {
    of(&Term::stderr())
}

fn of(stream: &Term) -> Paint {
    let wants_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let size = stream.is_term().then(|| stream.size_checked());
    Paint {
        color: wants_color && stream.is_term(),
        width: size
            .flatten()
            .map_or(WIDTH, |(_, columns)| usize::from(columns)),
    }
}

/// Problems as a stream shows them: in lines of the terminal's width, whole where programs may read them.
pub fn rendered(problems: &[Diagnostic], stream: &Term) -> String {
    let mut paint = of(stream);
    if !stream.is_term() {
        paint.width = usize::MAX;
    }
    let rendered = problems.iter().map(|problem| problem.render_within(paint));
    rendered.collect()
}
