//! Simplifies LaTeX and Unicode: one spelling for each sign, no fonts, no sizes, no spacing commands.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use super::text::pattern;

/// What says nothing.
const NOTHING: &str = r"\left \right \big \bigl \bigr \Big \Bigl \Bigr \bigg \biggl \biggr \Bigg \displaystyle \textstyle
    \large \Large \normalsize \small \limits \mathbf \mathit \mathsf \boldsymbol \bm \underline \boxed \fbox \! \' `";

/// What is a blank.
const BLANKS: &str = r"\( \) \[ \] \, \; \: \quad \qquad \enspace \hspace \newline ~";

/// The spellings that the parser knows, each with its synonyms.
const SPELLINGS: &str = r"\text \textbf \textrm \mathrm \mbox \textit \emph \operatorname \rm \texttt \textsf ;
    \text{or} \lor \vee ; \text{and} \land \wedge ; \frac \dfrac \tfrac \cfrac ; \binom \dbinom \tbinom ;
    \frac{1}{2} ½ ; \frac{1}{3} ⅓ ; \frac{2}{3} ⅔ ; \frac{1}{4} ¼ ; \frac{3}{4} ¾ ; \root \surd √ ; \overline \bar ;
    \leq \le \leqslant ≤ ⩽ ; \geq \ge \geqslant ≥ ⩾ ; \neq \ne ≠ ; \approx \simeq ≈ ; < \lt ; > \gt ;
    * \times \cdot \cdotp \ast × ⋅ · ∙ ∗ ; / \div ÷ ⁄ ∕ ; - − – — － ‐ ‑ ; \pm ± ; \degree ° ; \infty ∞ ;
    | \lvert \rvert \vert ; \{ \lbrace ; \} \rbrace ; : \colon ; \ldots \dots \cdots \dotsc … ; \reals ℝ ;
    \setminus \backslash ∖ ; \emptyset \varnothing ∅ ; \in ∈ ; \cup ∪ ; \cap ∩ ; ¤ \$ \textdollar ;
    % \% ; # \# ; & \& ; _ \_ ; \pi π ; \theta θ ; \alpha α ; \beta β ; \gamma γ ; \lambda λ ; \mu μ ; \sigma σ ;
    \phi φ ; \omega ω ; 0 ⁰ ; 1 ¹ ; 2 ² ; 3 ³ ; 4 ⁴ ; 5 ⁵ ; 6 ⁶ ; 7 ⁷ ; 8 ⁸ ; 9 ⁹";

static SHORT: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let mut short = HashMap::new();
    short.extend(NOTHING.split_whitespace().map(|own| (own, String::new())));
    short.extend(BLANKS.split_whitespace().map(|own| (own, " ".to_string())));
    for row in SPELLINGS.split(" ;") {
        let mut words = row.split_whitespace();
        let name = words.next().unwrap_or_default();
        // No letter behind a command is a part of it.
        let is_command = name.len() > 2 && name.ends_with(char::is_alphabetic);
        let name = format!("{name}{}", if is_command { " " } else { "" });
        short.extend(words.map(|own| (own, name.clone())));
    }
    short
});

/// A sign that is a command or no ASCII, as the parser knows it.
fn spelled(sign: &str) -> Cow<'_, str> {
    if let Some(short) = SHORT.get(sign) {
        return short.into();
    }
    let letter = sign.trim_start_matches('\\').chars().next();
    match letter.unwrap_or_default() {
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => "".into(),
        blank if blank.is_whitespace() => " ".into(),
        _ => sign.into(),
    }
}

/// A text with one spelling for equal content. `$` around formulas is removed; a `$` for money becomes `¤`.
pub(super) fn cleaned(text: &str) -> String {
    static SIGN: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?s)\\(?:[A-Za-z]+|.|$)|[$~`]|[^\x00-\x7f]"));
    static POWERS: LazyLock<Regex> = LazyLock::new(|| pattern("[⁰¹²³⁴⁵⁶⁷⁸⁹]+"));
    static DEGREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})"));
    static IDLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:[\s.,;]|\\\\)+$"));
    let text = text
        .replace("\\mathbb{R}", "\\reals ")
        .replace("\\mathbb R", "\\reals ")
        .replace("...", "\\ldots ");
    let text = DEGREE.replace_all(&text, "\\degree ");
    let text = POWERS.replace_all(&text, "^{$0}");
    let starts_number = |c: char| c.is_ascii_digit() || c == '.';
    let dollars = text.matches('$').count() - text.matches("\\$").count();
    let (mut out, mut end) = (String::with_capacity(text.len()), 0);
    for sign in SIGN.find_iter(&text) {
        out.push_str(&text[end..sign.start()]);
        end = sign.end();
        match sign.as_str() {
            // A single one, or one before a number beside formulas, is money.
            "$" if dollars % 2 == 1 && text[end..].starts_with(starts_number) => out.push('¤'),
            "$" => out.push(' '),
            sign => out.push_str(&spelled(sign)),
        }
    }
    out.push_str(&text[end..]);
    // Blanks, periods, commas or two backslashes around an answer do not count.
    IDLE.replace(without_stars(&out).trim_start(), "")
        .into_owned()
}

/// Removes Markdown's stars; stars between two operands are a power.
pub(super) fn without_stars(text: &str) -> Cow<'_, str> {
    static POWER: LazyLock<Regex> = LazyLock::new(|| pattern(r"([\pL\pN)}])\*\*(-?\b|[({])"));
    match text.contains("**") {
        true => POWER.replace_all(text, "$1^$2").replace("**", "").into(),
        false => text.into(),
    }
}
