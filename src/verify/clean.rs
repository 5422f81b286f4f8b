//! LaTeX and Unicode in fewer words: one spelling for each sign, no fonts, no sizes, no spacing commands.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::text::pattern;

/// What says nothing.
const NOTHING: &str = r"\left \right \big \bigl \bigr \Big \Bigl \Bigr \bigg \biggl \biggr \Bigg \displaystyle \textstyle
    \large \Large \normalsize \small \limits \mathbf \mathit \mathsf \boldsymbol \bm \underline \boxed \fbox \! \' `";

/// What is a blank.
const BLANKS: &str = r"\( \) \[ \] \, \; \: \quad \qquad \enspace \hspace \newline ~";

/// On each line the spelling that the parser knows, and what means the same.
const SPELLINGS: &str = r"
    \text \textbf \textrm \mathrm \mbox \textit \emph \operatorname \rm \texttt \textsf
    \text{or} \lor \vee
    \text{and} \land \wedge
    \frac \dfrac \tfrac \cfrac
    \frac{1}{2} ½
    \frac{1}{3} ⅓
    \frac{2}{3} ⅔
    \frac{1}{4} ¼
    \frac{3}{4} ¾
    \binom \dbinom \tbinom
    \root \surd √
    \overline \bar
    \leq \le \leqslant ≤ ⩽
    \geq \ge \geqslant ≥ ⩾
    \neq \ne ≠
    \approx \simeq ≈
    < \lt
    > \gt
    * \times \cdot \cdotp \ast × ⋅ · ∙ ∗
    / \div ÷ ⁄ ∕
    - − – — － ‐ ‑
    \pm ±
    | \lvert \rvert \vert
    \{ \lbrace
    \} \rbrace
    : \colon
    \setminus \backslash ∖
    \emptyset \varnothing ∅
    \in ∈
    \cup ∪
    \cap ∩
    \reals ℝ
    \infty ∞
    \ldots \dots \cdots \dotsc …
    \degree °
    % \%
    ¤ \$ \textdollar
    # \#
    & \&
    _ \_
    \acos \arccos
    \asin \arcsin
    \atan \arctan
    \pi π
    \theta θ
    \alpha α
    \beta β
    \gamma γ
    \lambda λ
    \mu μ
    \sigma σ
    \phi φ
    \omega ω";

static SHORT: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let mut short = HashMap::new();
    short.extend(NOTHING.split_whitespace().map(|own| (own, String::new())));
    short.extend(BLANKS.split_whitespace().map(|own| (own, " ".to_string())));
    for line in SPELLINGS.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        // No letter behind a command is a part of it.
        let is_command = name.len() > 2 && name.ends_with(char::is_alphabetic);
        let name = format!("{name}{}", if is_command { " " } else { "" });
        short.extend(words.map(|own| (own, name.clone())));
    }
    short
});

/// A sign that is a command or no ASCII, as the parser knows it; `behind` it the rest of the text.
fn spelled(sign: &str, behind: &str, dollars: usize) -> String {
    const POWERS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹";
    let letter = sign.chars().next().unwrap_or_default();
    let ascii = (letter as u32).wrapping_sub(0xff00 - 0x20);
    match letter {
        // One alone, or one before a number beside formulas, is money.
        '$' => {
            let is_money = behind.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            (if dollars % 2 == 1 && is_money {
                "¤"
            } else {
                " "
            })
            .to_string()
        }
        _ if SHORT.contains_key(sign) => SHORT[sign].clone(),
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => String::new(),
        _ if sign
            .trim_start_matches('\\')
            .starts_with(char::is_whitespace) =>
        {
            " ".to_string()
        }
        _ if POWERS.contains(letter) => {
            let digit = |own| POWERS.chars().position(|power| power == own);
            let digits = sign
                .chars()
                .filter_map(digit)
                .map(|digit| digit.to_string());
            format!("^{{{}}}", digits.collect::<String>())
        }
        // Letters of full width are those of ASCII, further up.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(ascii).map(String::from).unwrap_or_default(),
        _ => sign.to_string(),
    }
}

/// A text with one spelling for what is the same. `$` around formulas goes; a `$` that is money becomes `¤`.
pub(super) fn cleaned(text: &str) -> String {
    static SIGN: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?s)\\(?:[A-Za-z]+|.|$)|[$~`]|[⁰¹²³⁴⁵⁶⁷⁸⁹]+|[^\x00-\x7f]"));
    static DEGREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})"));
    let text = text
        .replace("\\mathbb{R}", "\\reals ")
        .replace("\\mathbb R", "\\reals ")
        .replace("...", "\\ldots ");
    let text = DEGREE.replace_all(&text, "\\degree ");
    let dollars = text.matches('$').count() - text.matches("\\$").count();
    let short = |found: &Captures| {
        let end = found.get(0).map_or(0, |sign| sign.end());
        spelled(&found[0], &text[end..], dollars)
    };
    let out = SIGN.replace_all(&text, short);
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
