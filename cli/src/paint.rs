//! Text for a terminal: lines and tables that fit the terminal's width.

pub use advlab::paint::{Paint, WIDTH, cut, visible, width, wrapped};

use advlab::paint::escaped;

/// The characters of which bar charts in text are made, from the lowest to the highest.
pub const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The smallest width in columns to which lines are wrapped, even if the terminal is narrower.
pub const NARROWEST: usize = 40;

/// Makes lines safe to print, whatever the origin of their parts: escapes them as [`visible`] does, except for line breaks, tabs
/// and colour codes such as those of [`Paint`].
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

/// Pads a string with spaces to at least `columns` columns.
pub fn filled(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Folds a line of a script or a formula that is wider than `columns`: the rest of the line, and a note that follows a gap of
/// three spaces, continue below with more indentation.
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

/// Aligns cells in columns, two spaces apart: the first column is left-aligned, all other columns are right-aligned.
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

/// Wraps text to lines of at most `columns` columns, indented by `indent`. The text begins beside `head`, or below it if `head`
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

/// Wraps text to lines of at most `columns` columns. The first line follows `start`, and later lines are aligned with the text
/// after `start`.
pub fn laid_out(start: &str, text: &str, columns: usize) -> String {
    beside(start.trim_end(), start.len(), text, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_printed_with_the_codes_of_colours_alone() {
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
    fn a_text_starts_beside_its_head_or_below_it() {
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
    fn texts_are_filled_by_the_columns_that_they_take() {
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
