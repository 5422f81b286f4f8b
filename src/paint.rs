//! Colours and weights for a terminal, or none of them.

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
