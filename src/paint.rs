//! Text for a terminal: its colours, its weights, and lines that fit its width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Colours and the width of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// Whether there are colours at all.
    pub color: bool,
    /// The columns of a line.
    pub width: usize,
}

impl Paint {
    /// Plain text in lines of [`WIDTH`] columns.
    pub const PLAIN: Paint = Paint {
        color: false,
        width: WIDTH,
    };

    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Secondary text.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// A picture.
    pub fn blue(self, text: &str) -> String {
        self.with("34", text)
    }

    /// A string with the code of a colour.
    pub fn with(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }
}

/// The columns of a line in files, pipes and tests.
pub const WIDTH: usize = 80;

/// Columns that lines are made for, however narrow the terminal is.
pub const NARROWEST: usize = 40;

/// The columns of a terminal that a string takes: some characters take two, some none; [`Paint`]'s codes take none.
pub fn width(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    let after_code = |part: &str| part.split_once('m').map_or(0, |(_, rest)| rest.width());
    first + parts.map(after_code).sum::<usize>()
}

/// A string from a file or a script, with the characters that control a terminal (such as ESC, or a change of writing
/// direction) escaped: `\u{1b}`.
pub fn visible(text: &str) -> String {
    escaped(text, &[])
}

fn escaped(text: &str, kept: &[char]) -> String {
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

/// Lines as they are printed, wherever their parts are from: escaped as by [`visible`], except for the codes of [`Paint`].
pub fn printed(lines: &str) -> String {
    let shown = |text: &str| escaped(text, &['\n', '\t']);
    let is_code = |code: &str| {
        code.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b';')
    };
    let mut parts = lines.split("\x1b[");
    let first = parts.next().map(shown);
    let others = parts.map(|part| match part.split_once('m') {
        Some((code, rest)) if is_code(code) => format!("\x1b[{code}m{}", shown(rest)),
        _ => shown(&format!("\x1b[{part}")),
    });
    first.into_iter().chain(others).collect()
}

/// A string cut to at most `room` columns; `…` marks the cut.
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

/// A string padded with blanks to at least `columns` columns.
pub fn filled(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Wraps text to lines of at most `columns`, each after the same prefix; text that fits in one line keeps its blanks. A longer
/// word gets a line of its own.
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

/// A line of a script or a formula, folded if it is too long: a note after a wide gap, and the rest of the line,
/// continue below with more indentation.
pub fn folded(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_string();
    }
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let below = format!("{indent}    ");
    if let Some((text, note)) = text.rsplit_once("   ") {
        let text = folded(&format!("{indent}{}", text.trim_end()), columns);
        return format!("{text}\n{}", wrapped(&below, note, columns));
    }
    format!("{indent}{}", &wrapped(&below, text, columns)[below.len()..])
}

/// Rows of cells in columns, two blanks apart: the first column to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |index: usize| {
        rows.iter()
            .filter_map(|row| row.get(index))
            .map(|cell| width(cell))
            .max()
    };
    let widths: Vec<usize> = (0..columns).filter_map(widest).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(index, (cell, &room))| match index {
            0 => format!("  {}", filled(cell, room)),
            _ => format!("  {}{cell}", " ".repeat(room - width(cell))),
        });
        cells.collect()
    };
    rows.iter().map(line).collect()
}

/// Wraps text to lines of at most `columns`, indented by `indent`. The first line starts beside `head`, or below it if `head`
/// is too long.
pub fn beside(head: &str, indent: usize, text: &str, columns: usize) -> String {
    let lines = wrapped(&" ".repeat(indent), text, columns);
    if text.is_empty() {
        head.to_string()
    } else if width(head) < indent.max(1) {
        filled(head, indent) + &lines[indent..]
    } else {
        format!("{head}\n{lines}")
    }
}

/// Wraps text to lines of at most `columns` after `start`; later lines are aligned with the beginning of the first.
pub fn laid_out(start: &str, text: &str, columns: usize) -> String {
    beside(start.trim_end(), start.len(), text, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(visible("a\x1b[31mb\u{7}"), "a\\u{1b}[31mb\\u{7}");
        assert_eq!(visible("\u{202e}abc\u{85}"), "\\u{202e}abc\\u{85}");
        assert_eq!(visible("häß 数学"), "häß 数学");
        let bold = Paint {
            color: true,
            width: 9,
        }
        .bold("k");
        for (text, expected) in [
            (&*bold, &*bold),
            ("a\n\tb 数", "a\n\tb 数"),
            (
                "\x1b]0;a\u{7}\x1b[2J\r",
                "\\u{1b}]0;a\\u{7}\\u{1b}[2J\\u{d}",
            ),
            ("\x1b\x1b[1m\x1b[", "\\u{1b}\x1b[1m\\u{1b}["),
            ("\u{202e}\x1b[1\x1b[0m", "\\u{202e}\\u{1b}[1\x1b[0m"),
        ] {
            assert_eq!(printed(text), expected);
        }
    }

    #[test]
    fn words_fill_the_lines_of_any_width() {
        let text = "the mean of  数学 and more";
        assert_eq!(wrapped("  ", text, 20), "  the mean of 数学\n  and more");
        assert_eq!(wrapped("  ", text, 19), "  the mean of 数学\n  and more");
        assert_eq!(wrapped("", text, 15), "the mean of\n数学 and more");
        assert_eq!(wrapped("", text, 80), text);
        assert_eq!(beside("", 0, "", 10), "");
        assert_eq!(
            beside("  k", 5, "how many are", 13),
            "  k  how many\n     are"
        );
        let bold = Paint {
            color: true,
            width: 9,
        }
        .bold("k");
        assert_eq!(beside(&bold, 3, "is", 9), format!("{bold}  is"));
        assert_eq!(beside("long", 3, "a head", 9), "long\n   a head");
        assert_eq!(wrapped("", "longer than this", 3), "longer\nthan\nthis");
    }

    #[test]
    fn a_line_of_code_that_is_too_long_goes_on_below() {
        let fold = |line: &str| folded(line, 20);
        assert_eq!(fold("  let a =  b; // c"), "  let a =  b; // c");
        assert_eq!(
            fold("  max(alpha, a,  gamma)"),
            "  max(alpha, a,\n      gamma)"
        );
        assert_eq!(
            fold("  d = r  - v     of tokens"),
            "  d = r  - v\n      of tokens"
        );
    }

    #[test]
    fn texts_are_cut_and_filled_by_the_columns_that_they_take() {
        assert_eq!(width("数学"), 4);
        assert_eq!(cut("数学数学", 5), "数学…");
        assert_eq!(cut("数学数学", 8), "数学数学");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(filled("数学", 6), "数学  ");
        assert_eq!(filled("abc", 2), "abc");
    }

    #[test]
    fn a_text_goes_on_below_its_beginning() {
        let line = "pass@1 0.107  pass@16 0.719";
        assert_eq!(
            laid_out("step 50    ", line, 80),
            format!("step 50    {line}")
        );
        let words = laid_out("step 3     ", "the script is gone", 24);
        assert_eq!(words, "step 3     the script is\n           gone");
    }

    #[test]
    fn cells_line_up_in_columns() {
        let rows =
            [["name", "n"], ["数学", "128"], ["a", ""]].map(|row| row.map(String::from).to_vec());
        assert_eq!(table(&rows), ["  name    n", "  数学  128", "  a        "]);
    }
}
