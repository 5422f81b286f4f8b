//! LaTeX and Unicode in fewer words: one spelling for each sign, no fonts, no sizes, no spacing commands.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The spelling that the parser knows, and what means the same.
const SPELLINGS: &[(&str, &str)] = &[
    (
        "",
        "\\left \\right \\big \\bigl \\bigr \\Big \\Bigl \\Bigr \\bigg \\biggl \\biggr \\Bigg \\displaystyle \\textstyle \
        \\large \\Large \\normalsize \\small \\limits \\mathbf \\mathit \\mathsf \\boldsymbol \\bm \\underline \\boxed \\fbox \
        \\! \\' ` \u{200b} \u{200c} \u{200d} \u{2060} \u{feff}",
    ),
    (
        " ",
        "\\( \\) \\[ \\] \\, \\; \\: \\quad \\qquad \\enspace \\hspace \\newline ~",
    ),
    (
        "\\text",
        "\\textbf \\textrm \\mathrm \\mbox \\textit \\emph \\operatorname \\rm \\texttt \\textsf",
    ),
    ("\\text{ or }", "\\lor \\vee"),
    ("\\text{ and }", "\\land \\wedge"),
    ("\\frac", "\\dfrac \\tfrac \\cfrac"),
    ("\\frac{1}{2}", "½"),
    ("\\frac{1}{3}", "⅓"),
    ("\\frac{2}{3}", "⅔"),
    ("\\frac{1}{4}", "¼"),
    ("\\frac{3}{4}", "¾"),
    ("\\binom", "\\dbinom \\tbinom"),
    ("\\root ", "\\surd √"),
    ("\\overline", "\\bar"),
    ("\\leq ", "\\le \\leqslant ≤ ⩽"),
    ("\\geq ", "\\ge \\geqslant ≥ ⩾"),
    ("\\neq ", "\\ne ≠"),
    ("\\approx ", "\\simeq ≈"),
    ("<", "\\lt"),
    (">", "\\gt"),
    ("*", "\\times \\cdot \\cdotp \\ast × ⋅ · ∙ ∗"),
    ("/", "\\div ÷ ⁄ ∕"),
    ("-", "− – — － ‐ ‑"),
    ("\\pm ", "±"),
    ("|", "\\lvert \\rvert \\vert"),
    ("\\{", "\\lbrace"),
    ("\\}", "\\rbrace"),
    (":", "\\colon"),
    ("\\setminus ", "\\backslash ∖"),
    ("\\emptyset ", "\\varnothing ∅"),
    ("\\in ", "∈"),
    ("\\cup ", "∪"),
    ("\\cap ", "∩"),
    ("\\reals ", "ℝ"),
    ("\\infty ", "∞"),
    ("\\ldots ", "\\dots \\cdots \\dotsc …"),
    ("\\degree ", "°"),
    ("%", "\\%"),
    ("¤", "\\$ \\textdollar"),
    ("#", "\\#"),
    ("&", "\\&"),
    ("_", "\\_"),
    ("\\acos ", "\\arccos"),
    ("\\asin ", "\\arcsin"),
    ("\\atan ", "\\arctan"),
    ("\\pi ", "π"),
    ("\\theta ", "θ"),
    ("\\alpha ", "α"),
    ("\\beta ", "β"),
    ("\\gamma ", "γ"),
    ("\\lambda ", "λ"),
    ("\\mu ", "μ"),
    ("\\sigma ", "σ"),
    ("\\phi ", "φ"),
    ("\\omega ", "ω"),
];

static SHORT: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let pairs = SPELLINGS.iter();
    pairs
        .flat_map(|(short, long)| long.split(' ').map(|own| (own, *short)))
        .collect()
});

/// A letter that is not of ASCII, as LaTeX or ASCII has it.
fn push_letter(letter: char, written: &str, out: &mut String) {
    if let Some(short) = SHORT.get(written) {
        out.push_str(short);
    } else if letter.is_whitespace() {
        out.push(' ');
    } else if let Some(power) = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|own| own == letter)
    {
        out.push_str(&format!("^{{{power}}}"));
    } else if ('\u{ff01}'..='\u{ff5e}').contains(&letter) {
        // Letters of full width are those of ASCII, further up.
        out.extend(char::from_u32(letter as u32 - 0xff00 + 0x20));
    } else {
        out.push(letter);
    }
}

/// A text with one spelling for what is the same. `$` around formulas goes; a `$` that is money becomes `¤`.
pub(super) fn cleaned(text: &str) -> String {
    let text = text
        .replace("\\mathbb{R}", "\\reals ")
        .replace("\\mathbb R", "\\reals ")
        .replace("...", "\\ldots ")
        .replace("^\\circ", "\\degree ")
        .replace("^{\\circ}", "\\degree ");
    let mut out = String::with_capacity(text.len());
    let dollars = text.matches('$').count() - text.matches("\\$").count();
    let mut rest = text.as_str();
    while let Some(letter) = rest.chars().next() {
        let mut length = letter.len_utf8();
        if letter == '\\' {
            let sign = rest[1..].chars().next();
            let letters = rest[1..]
                .bytes()
                .take_while(u8::is_ascii_alphabetic)
                .count();
            length += letters.max(sign.map_or(0, char::len_utf8));
        }
        let (own, after) = rest.split_at(length);
        rest = after;
        match letter {
            '\\' if own[1..].starts_with([' ', '\n']) => out.push(' '),
            '\\' | '~' | '`' => out.push_str(SHORT.get(own).unwrap_or(&own)),
            // One alone, or one before a number beside formulas, is money.
            '$' if dollars % 2 == 1
                && after.starts_with(|c: char| c.is_ascii_digit() || c == '.') =>
            {
                out.push('¤');
            }
            '$' => out.push(' '),
            letter if letter.is_ascii() => out.push(letter),
            letter => push_letter(letter, own, &mut out),
        }
    }
    trimmed(&without_stars(&out)).to_string()
}

/// Markdown's stars go; those between two operands are a power.
pub(super) fn without_stars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("**") {
        out.push_str(before);
        rest = behind;
        let ends_operand = out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, ')' | '}'));
        let starts =
            rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '(' | '{' | '-'));
        if ends_operand && starts {
            out.push('^');
        }
    }
    out + rest
}

/// Without what may stand around an answer: blanks, periods, commas, a backslash pair.
fn trimmed(text: &str) -> &str {
    let is_idle = |c: char| c.is_whitespace() || matches!(c, '.' | ',' | ';');
    let less = text.trim().trim_end_matches(is_idle);
    match less.strip_suffix("\\\\") {
        Some(less) => trimmed(less),
        None => less,
    }
}
