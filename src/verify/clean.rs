//! LaTeX and Unicode in fewer words: one spelling for each sign, no fonts, no sizes, no spacing commands.

use std::borrow::Cow;

/// Letters and signs as LaTeX or ASCII has them.
fn sign(letter: char) -> Option<Cow<'static, str>> {
    if letter.is_ascii() {
        return match letter {
            '~' => Some(" ".into()),
            '`' => Some("".into()),
            _ => None,
        };
    }
    let greek = "pi theta alpha beta gamma lambda mu sigma phi omega".split(' ');
    if let Some((_, name)) = "πθαβγλμσφω"
        .chars()
        .zip(greek)
        .find(|(own, _)| *own == letter)
    {
        return Some(format!("\\{name} ").into());
    }
    if let Some(power) = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|own| own == letter) {
        return Some(format!("^{{{power}}}").into());
    }
    if let Some(at) = "½⅓⅔¼¾".chars().position(|own| own == letter) {
        let (above, below) = [(1, 2), (1, 3), (2, 3), (1, 4), (3, 4)][at];
        return Some(format!("\\frac{{{above}}}{{{below}}}").into());
    }
    let short = match letter {
        '−' | '–' | '—' | '－' | '‐' | '‑' => "-",
        '×' | '⋅' | '·' | '∙' | '∗' => "*",
        '÷' | '⁄' | '∕' => "/",
        '√' => "\\root ",
        '∞' => "\\infty ",
        '≤' | '⩽' => "\\leq ",
        '≥' | '⩾' => "\\geq ",
        '≠' => "\\neq ",
        '≈' => "\\approx ",
        '∈' => "\\in ",
        '∪' => "\\cup ",
        '∩' => "\\cap ",
        '∖' => "\\setminus ",
        '∅' => "\\emptyset ",
        'ℝ' => "\\reals ",
        '±' => "\\pm ",
        '°' => "^\\circ ",
        '…' => "\\ldots ",
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => "",
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        // Letters of full width are those of ASCII, further up.
        '\u{ff01}'..='\u{ff5e}' => {
            let plain = char::from_u32(letter as u32 - 0xff00 + 0x20)?;
            return Some(plain.to_string().into());
        }
        _ => return None,
    };
    Some(short.into())
}

/// A command in the spelling that the parser knows; `None` for one that stays as it is.
fn command(name: &str) -> Option<&'static str> {
    Some(match name {
        "left" | "right" | "big" | "bigl" | "bigr" | "Big" | "Bigl" | "Bigr" | "bigg" | "biggl"
        | "biggr" | "Bigg" | "displaystyle" | "textstyle" | "large" | "Large" | "limits"
        | "mathbf" | "boldsymbol" | "bm" | "underline" | "boxed" | "fbox" | "mathit" | "mathsf"
        | "!" | "normalsize" | "small" => "",
        "(" | ")" | "[" | "]" | "," | ";" | ":" | " " | "quad" | "qquad" | "enspace" | "hspace"
        | "\n" | "newline" => " ",
        "dfrac" | "tfrac" | "cfrac" => "\\frac",
        "dbinom" | "tbinom" => "\\binom",
        "surd" => "\\root ",
        "le" | "leqslant" => "\\leq ",
        "ge" | "geqslant" => "\\geq ",
        "ne" => "\\neq ",
        "lt" => "<",
        "gt" => ">",
        "times" | "cdot" | "ast" | "cdotp" => "*",
        "div" => "/",
        "lvert" | "rvert" | "vert" => "|",
        "lbrace" => "\\{",
        "rbrace" => "\\}",
        "colon" => ":",
        "backslash" => "\\setminus ",
        "varnothing" => "\\emptyset ",
        "simeq" => "\\approx ",
        "dots" | "cdots" | "dotsc" => "\\ldots ",
        "bar" => "\\overline",
        "degree" => "^\\circ ",
        "textbf" | "textrm" | "mathrm" | "mbox" | "textit" | "emph" | "operatorname" | "rm"
        | "texttt" | "textsf" => "\\text",
        "lor" | "vee" => "\\text{ or }",
        "land" | "wedge" => "\\text{ and }",
        "%" => "%",
        "$" | "textdollar" => "¤",
        "#" => "#",
        "&" => "&",
        "_" => "_",
        "'" => "",
        "arccos" => "\\acos ",
        "arcsin" => "\\asin ",
        "arctan" => "\\atan ",
        _ => return None,
    })
}

/// A text with one spelling for what is the same. `$` around formulas goes; a `$` that is money becomes `¤`.
pub(super) fn cleaned(text: &str) -> String {
    let text = text
        .replace("\\mathbb{R}", "\\reals ")
        .replace("\\mathbb R", "\\reals ");
    let text = text.replace("...", "\\ldots ");
    let mut out = String::with_capacity(text.len());
    let dollars = text.matches('$').count() - text.matches("\\$").count();
    let mut rest = text.as_str();
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        if letter == '\\' {
            let name_end = after
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(after.len());
            let length = after.chars().next().map_or(0, char::len_utf8);
            let name = &after[..name_end.max(length)];
            match command(name) {
                Some(short) => out.push_str(short),
                None => {
                    out.push('\\');
                    out.push_str(name);
                }
            }
            rest = &after[name.len()..];
            continue;
        }
        rest = after;
        match letter {
            // One alone, or one before a number beside formulas, is money.
            '$' if dollars % 2 == 1
                && after.starts_with(|c: char| c.is_ascii_digit() || c == '.') =>
            {
                out.push('¤');
            }
            '$' => out.push(' '),
            letter => match sign(letter) {
                Some(short) => out.push_str(&short),
                None => out.push(letter),
            },
        }
    }
    trimmed(&without_stars(&out)).to_string()
}

/// Markdown's stars go; those between two operands are a power.
pub(super) fn without_stars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("**") {
        out.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        let ends_operand = out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, ')' | '}'));
        let starts =
            rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '(' | '{' | '-'));
        if ends_operand && starts {
            out.push('^');
        }
    }
    out + rest
}

/// Without what may stand around an answer: blanks, a period, a backslash pair.
fn trimmed(text: &str) -> &str {
    let mut text = text.trim();
    loop {
        let less = text
            .strip_suffix("\\\\")
            .or_else(|| text.strip_suffix('.'))
            .unwrap_or(text);
        let less = less.trim_end_matches([',', ';']).trim();
        if less == text {
            return text;
        }
        text = less;
    }
}
