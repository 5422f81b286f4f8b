//! Text for a terminal: its colours, its weights, and lines that fit its width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How text is dressed for where it is shown.
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

    /// Text that stands back.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// A picture's ink.
    pub fn blue(self, text: &str) -> String {
        self.with("34", text)
    }

    /// A string under a code of its own.
    pub fn with(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }
}

/// The columns of a line where no terminal says how wide it is: in files, pipes and tests.
pub const WIDTH: usize = 80;

/// Columns that lines are made for, however narrow the terminal is.
pub const NARROWEST: usize = 40;

/// The columns of a terminal that a string takes: some letters take two, some none, and [`Paint`]'s codes none.
pub fn width(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    let after_code = |part: &str| part.split_once('m').map_or(0, |(_, rest)| rest.width());
    first + parts.map(after_code).sum::<usize>()
}

/// A string from a file or a script with what a terminal would obey, such as ESC or a change of the writing's
/// direction, written out: `\u{1b}`.
pub fn visible(text: &str) -> String {
    let obeyed = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = |letter: char| match letter {
        letter if obeyed(letter) => letter.escape_unicode().to_string(),
        letter => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A string in at most so many columns, with `…` where it is cut.
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

/// A string with blanks behind it, up to so many columns.
pub fn filled(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Text in lines of at most `columns`, each behind the same start. A word that is longer has a line of its own.
pub fn wrapped(start: &str, text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(width(start));
    let lines = lines_of(text.split_whitespace(), " ", room);
    format!("{start}{}", lines.join(&format!("\n{start}")))
}

/// Parts with a gap between them, as many in a line as have room.
fn lines_of<'t>(parts: impl Iterator<Item = &'t str>, gap: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if width(line) + gap.len() + width(part) <= room => {
                line.push_str(&format!("{gap}{part}"));
            }
            _ => lines.push(part.to_string()),
        }
    }
    lines
}

/// A line of a script or a formula as it is, or where it is too long in several: what stands after a wide gap, or does not
/// fit, goes below, further in; a comment goes on as one.
pub fn folded(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_string();
    }
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let mut marks = ["//! ", "// "].into_iter();
    if let Some(mark) = marks.find(|mark| text.starts_with(mark)) {
        return wrapped(&format!("{indent}{mark}"), &text[mark.len()..], columns);
    }
    let below = format!("{indent}    ");
    if let Some((text, note)) = text.rsplit_once("   ") {
        let text = folded(&format!("{indent}{}", text.trim_end()), columns);
        return format!("{text}\n{}", wrapped(&below, note, columns));
    }
    format!("{indent}{}", &wrapped(&below, text, columns)[below.len()..])
}

/// Text in lines of at most `columns`, indented by `indent`, the first of them beside `head`, or below a `head` that is
/// too long for that.
pub fn beside(head: &str, indent: usize, text: &str, columns: usize) -> String {
    let lines = wrapped(&" ".repeat(indent), text, columns);
    if text.is_empty() {
        head.to_string()
    } else if width(head) < indent {
        filled(head, indent) + &lines[indent..]
    } else {
        format!("{head}\n{lines}")
    }
}

/// A line behind its start, broken between parts that have two blanks or three between them, or else between words;
/// what follows stands below its beginning.
pub fn laid_out(start: &str, line: &str, columns: usize) -> String {
    let room = columns.saturating_sub(start.len());
    if width(line) <= room {
        return format!("{start}{line}");
    }
    let gap = if line.contains("   ") { "   " } else { "  " };
    let parts = line.split(gap).filter(|part| !part.is_empty());
    // A part that is too long is broken between its words.
    let parts: Vec<String> = parts.map(|part| wrapped("", part, room)).collect();
    let lines = lines_of(parts.iter().flat_map(|part| part.lines()), gap, room);
    let indent = " ".repeat(start.len());
    format!("{start}{}", lines.join(&format!("\n{indent}")))
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
        assert_eq!(wrapped("", text, 80), "the mean of 数学 and more");
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
            fold("  a =  b;   // the product"),
            "  a =  b;\n      // the product"
        );
        assert_eq!(
            fold("  max(alpha, a,  gamma)"),
            "  max(alpha, a,\n      gamma)"
        );
        assert_eq!(
            fold("//! what it is for, again"),
            "//! what it is for,\n//! again"
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
    fn a_line_is_broken_between_its_parts_and_never_within_a_word() {
        let line = "evaluation pass@1 0.107  pass@16 0.719  entropy 1.43";
        assert_eq!(
            laid_out("step 50    ", line, 50),
            "step 50    evaluation pass@1 0.107  pass@16 0.719\n           entropy 1.43"
        );
        assert_eq!(
            laid_out("step 50    ", line, usize::MAX),
            format!("step 50    {line}")
        );
        let words = laid_out("step 3     ", "the script is gone", 24);
        assert_eq!(words, "step 3     the script is\n           gone");
        // A table that a script prints keeps its blanks.
        assert_eq!(laid_out("step 3     ", "a     b", 80), "step 3     a     b");
    }
}
