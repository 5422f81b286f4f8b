//! What makes text fit for a terminal: colours, weights, lines that are not too long.

/// Whether texts carry the codes of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// Whether there are colours at all.
    pub color: bool,
}

impl Paint {
    /// Plain text.
    pub const PLAIN: Paint = Paint { color: false };

    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// What stands back.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Something wrong.
    pub fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Something good, or the first of two things.
    pub fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Something to look at, or the second of two things.
    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    /// A picture's ink.
    pub fn blue(self, text: &str) -> String {
        self.with("34", text)
    }

    /// A text under a code of its own.
    pub fn with(self, code: &str, text: &str) -> String {
        match self.color && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }
}

/// The letters of a line, where a reader's window may be that narrow.
pub(crate) const WIDTH: usize = 80;

/// A text in lines of at most 80 letters, each behind the same start.
pub fn wrapped(start: &str, text: &str) -> String {
    let room = WIDTH.saturating_sub(start.len());
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            lines.push(format!("{start}{line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(format!("{start}{line}"));
    lines.join("\n")
}
