//! Formats text for a terminal: in colours, in bold or dim type, and in lines that fit the terminal's width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Settings for text: whether it has colours, and the width of its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// Whether colours, bold and dim type are used.
    pub color: bool,
    /// The width of a line, in columns.
    pub width: usize,
}

impl Paint {
    /// The settings for plain text in lines of [`WIDTH`] columns.
    pub const PLAIN: Paint = Paint {
        color: false,
        width: WIDTH,
    };

    /// Returns a heading in bold.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Returns secondary text, dimmed.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Returns a drawing in blue.
    pub fn blue(self, text: &str) -> String {
        self.with("34", text)
    }

    /// Returns a string in the style of the terminal code `code`, or the unchanged string if `color` is false or the string is
    /// empty.
    pub fn with(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }
}

/// The width of a line in files, pipes and tests, in columns.
pub const WIDTH: usize = 80;

/// Returns the number of terminal columns that a string takes. Some characters take two or none; [`Paint`]'s codes take none.
pub fn width(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    let after_code = |part: &str| part.split_once('m').map_or(0, |(_, rest)| rest.width());
    first + parts.map(after_code).sum::<usize>()
}

/// Escapes, as in `\u{1b}`, the characters in a string from a file or a script that control a terminal (such as ESC, or a change
/// of writing direction).
pub fn visible(text: &str) -> String {
    escaped(text, &[])
}

/// Works like [`visible`], but leaves the characters in `kept` as they are.
pub fn escaped(text: &str, kept: &[char]) -> String {
    let obeyed = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |letter: char| match letter {
        letter if obeyed(letter) && !kept.contains(&letter) => letter.escape_unicode().to_string(),
        letter => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Returns a string cut to at most `room` columns; `…` marks the cut. `room` must be at least 1.
pub fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_string();
    }
    let mut taken = 1;
    let fits = |letter: &char| {
        taken += letter.width().unwrap_or(0);
        taken <= room
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

/// Wraps text to lines of at most `columns` columns, including the prefix `start` of each line. A text that fits in one line
/// keeps the spaces between its words. A word that is longer than a line gets a line of its own.
pub fn wrapped(start: &str, text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(width(start));
    if width(text) <= room && !text.contains('\n') {
        return format!("{start}{}", text.trim_end());
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= room => *line += &format!(" {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    format!("{start}{}", lines.join(&format!("\n{start}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(visible("a\x1b[31mb\u{7}"), "a\\u{1b}[31mb\\u{7}");
        assert_eq!(visible("\u{202e}abc\u{85}"), "\\u{202e}abc\\u{85}");
        assert_eq!(visible("häß 数学"), "häß 数学");
    }

    #[test]
    fn words_fill_the_lines_of_any_width() {
        let text = "the mean of  数学 and more";
        assert_eq!(wrapped("  ", text, 20), "  the mean of 数学\n  and more");
        assert_eq!(wrapped("  ", text, 19), "  the mean of 数学\n  and more");
        assert_eq!(wrapped("", text, 15), "the mean of\n数学 and more");
        assert_eq!(wrapped("", text, 80), text);
        assert_eq!(wrapped("", "longer than this", 3), "longer\nthan\nthis");
    }

    #[test]
    fn texts_are_cut_by_the_columns_that_they_take() {
        assert_eq!(width("数学"), 4);
        assert_eq!(cut("数学数学", 5), "数学…");
        assert_eq!(cut("数学数学", 8), "数学数学");
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
