//! Simplifies LaTeX and Unicode: each sign gets one spelling, fonts and sizes are removed, and spacing commands become blanks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Captures;

use super::text::patterns;

/// Commands and signs without meaning, which are removed.
const NOTHING: &str = r"\left \right \middle \big \bigl \bigr \Big \Bigl \Bigr \bigg \biggl \biggr \Bigg \displaystyle \textstyle
    \scriptstyle \large \Large \normalsize \small \limits \mathbf \mathit \mathsf \boldsymbol \bm \underline \boxed \fbox \! \'
    \- \/ \negthinspace \negmedspace \negthickspace \nobreak \allowbreak \mathstrut \strut \relax \nonumber \notag `";

/// Commands and signs that mean a space.
const BLANKS: &str = r"\( \) \[ \] \, \; \: \> \enspace \enskip \thinspace \medspace \thickspace \space \nobreakspace \hspace ~";

/// Spaces that are too wide to group digits.
const GAPS: &str = r"\quad \qquad \hfill \hfil \newline \linebreak \par";

/// The spellings that the parser knows, each followed by its synonyms.
const SPELLINGS: &str = r"\text \textbf \textrm \mathrm \mbox \textit \emph \operatorname \rm \texttt \textsf ;
    \text{or} \lor \vee 或 或者 ; \text{and} \land \wedge 和 且 与 及 ; \frac \dfrac \tfrac \cfrac ; \binom \dbinom \tbinom ;
    \frac{1}{2} ½ ; \frac{1}{3} ⅓ ; \frac{2}{3} ⅔ ; \frac{1}{4} ¼ ; \frac{3}{4} ¾ ; \root \surd √ ; \overline \bar \dot ;
    \leq \le \leqslant \leqq \ngtr ≤ ⩽ ≦ ≯ ; \geq \ge \geqslant \geqq \nless ≥ ⩾ ≧ ≮ ; \neq \ne ≠ ; \approx \simeq ≈ ≃ ;
    < \lt \ngeq ≱ ; > \gt \nleq ≰ ; * \times \cdot \cdotp \ast × ⋅ · ∙ ∗ ; / \div ÷ ⁄ ∕ ; - − – — － ‐ ‑ ; \pm ± ;
    \degree ° ; \infty ∞ ; | \lvert \rvert \vert ; \{ \lbrace ; \} \rbrace ; : \colon ∶ ; \ldots \dots \cdots \dotsc … ;
    \reals ℝ ; \setminus \backslash ∖ ; \emptyset \varnothing ∅ ; \in ∈ ; \cup ∪ ; \cap ∩ ; ¤ \$ \textdollar ; , 、 ; . 。 ;
    % \% ; # \# ; & \& ; _ \_ ; \pi π ; \theta θ ; \alpha α ; \beta β ; \gamma γ ; \lambda λ ; \mu μ ; \sigma σ ;
    \phi φ ; \omega ω ; \angle ∠ ; \triangle △ ; 0 ⁰ ; 1 ¹ ; 2 ² ; 3 ³ ; 4 ⁴ ; 5 ⁵ ; 6 ⁶ ; 7 ⁷ ; 8 ⁸ ; 9 ⁹ ;
    _0 ₀ ; _1 ₁ ; _2 ₂ ; _3 ₃ ; _4 ₄ ; _5 ₅ ; _6 ₆ ; _7 ₇ ; _8 ₈ ; _9 ₉";

/// A thousands separator, such as `{,}`, `,\!` or `'`, that cannot be the comma between two numbers of a list.
pub(super) const GROUPING: &str = concat!(
    r"(?:(?:\\(?:text|textrm|mathrm|mathpunct|mathord|mbox)\s*)?\{\s*(?:,|'|\\[,:;!])\s*(?:\\!)?\s*\}(?:\\[!,:;]|\s|~)*",
    r"|(?:\\!\s*)*,(?:\s*\\!)+\s*|\\!\s*,\s*| ?\\(?:thinspace\b|,)\s*|['’‘ʼ´˙٬])"
);

static SHORT: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let mut short = HashMap::new();
    short.extend(NOTHING.split_whitespace().map(|own| (own, String::new())));
    short.extend(BLANKS.split_whitespace().map(|own| (own, " ".to_string())));
    short.extend(GAPS.split_whitespace().map(|own| (own, "  ".to_string())));
    for row in SPELLINGS.split(" ;") {
        let mut words = row.split_whitespace();
        let name = words.next().unwrap_or_default();
        // A space ends the command, so that a letter after it does not become part of its name.
        let is_command = name.len() > 2 && name.ends_with(char::is_alphabetic);
        let name = format!("{name}{}", if is_command { " " } else { "" });
        short.extend(words.map(|own| (own, name.clone())));
    }
    short
});

/// Returns the parser's spelling of a command or a sign.
fn spelled(sign: &str) -> Cow<'_, str> {
    if let Some(short) = SHORT.get(sign) {
        return short.into();
    }
    let letter = sign.trim_start_matches('\\').chars().next();
    match letter.unwrap_or_default() {
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => "".into(),
        // These are the full-width forms of ASCII.
        wide @ '\u{ff01}'..='\u{ff5e}' => char::from_u32(wide as u32 - 0xfee0)
            .map_or_else(|| sign.into(), |ascii| ascii.to_string().into()),
        blank if blank.is_whitespace() => " ".into(),
        _ => sign.into(),
    }
}

/// Returns the text with one spelling for each sign, without blanks around it and without punctuation at its end. The `$` around
/// a formula is removed; a `$` for money becomes `¤`.
pub(super) fn cleaned(text: &str) -> String {
    patterns!(IDLE = r"(?:[\s.,;]|\\\\)+$");
    IDLE.replace(spelled_out(text).trim_start(), "")
        .into_owned()
}

/// Works like [`cleaned`], but keeps the blanks and the punctuation around the text.
pub(super) fn spelled_out(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ,-+/=:()".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.to_string();
    }
    patterns! {
        SIGN = r"(?s)\\(?:[A-Za-z]+|.|$)|[$~`]|或者|[^\x00-\x7f]";
        POWERS = "[⁰¹²³⁴⁵⁶⁷⁸⁹]+";
        DEGREE = {
            let letter = r"(?:\\circ|\\(?:text|mathrm|textrm)\s*\{\s*o\s*\})";
            format!(r"\^\s*(?:o\b|\{{\s*o\s*\}}|{letter}|\{{\s*{letter}\s*\}})")
        };
        /// Spacing commands with a length.
        SPACE = {
            let braces = r"\\(?:[hv]space\*?|mspace|[hv]?phantom)\s*\{[^{}]*\}";
            let length = r"\\(?:[hm]skip|m?kern)\s*-?[0-9.]+\s*(?:em|ex|mu|pt|cm|mm|in)";
            format!("{braces}|{length}")
        };
        /// A unit as a fraction.
        UNITS = {
            let unit = r"\{\s*(\\text\s*\{[^{}]*\}\s*(?:\^\{?[0-9]\}?)?)\s*\}";
            format!(r"\\frac\s*{unit}\s*{unit}")
        };
        /// The ending of an ordinal number in LaTeX, as in `12^{th}` and `12^{\mathrm{th}}`.
        ORDINAL = r"([0-9])\s*\^?\s*\{?\s*(?:\\(?:text|mathrm|textrm)\s*\{\s*)?(?:st|nd|rd|th)\b(?:\s*\})*";
        /// A number in quotation marks, as in a list of Python.
        QUOTED = r#"(^|[\[(,]\s*)["'](-?[0-9.]+)["']"#;
        /// A command with its backslash written twice, as in a string of Python.
        TWICE = r"(^|[^\\])\\\\([A-Za-z]{2})";
        GROUPS = format!("[0-9]{{1,3}}(?:{GROUPING}[0-9]{{3}})+");
        GROUP = GROUPING;
    }
    let is_twice = text.contains("\\\\") && !text.contains("\\begin");
    let text = if is_twice {
        TWICE.replace_all(text, "$1\\$2")
    } else {
        text.into()
    };
    let text = text
        .replace("\\mathbb{R}", "\\reals ")
        .replace("\\mathbb R", "\\reals ")
        .replace("\\not=", "\\neq ")
        .replace("\\not =", "\\neq ")
        .replace("...", "\\ldots ");
    let text = DEGREE.replace_all(&text, "\\degree ");
    let text = ORDINAL.replace_all(&text, "$1");
    let text = QUOTED.replace_all(&text, "$1$2");
    let text = POWERS.replace_all(&text, "^{$0}");
    let text = SPACE.replace_all(&text, " ");
    let grouped = |number: &Captures| GROUP.replace_all(&number[0], "{,}").into_owned();
    let text = GROUPS.replace_all(&text, grouped);
    let starts_number = |c: char| c.is_ascii_digit() || c == '.';
    let dollars = text.matches('$').count() - text.matches("\\$").count();
    let (mut out, mut end) = (String::with_capacity(text.len()), 0);
    for sign in SIGN.find_iter(&text) {
        out.push_str(&text[end..sign.start()]);
        end = sign.end();
        match sign.as_str() {
            // If the number of `$` is odd, a `$` before a number stands for money.
            "$" if dollars % 2 == 1 && text[end..].starts_with(starts_number) => out.push('¤'),
            "$" => out.push(' '),
            sign => out.push_str(&spelled(sign)),
        }
    }
    out.push_str(&text[end..]);
    if out.contains("\\frac") && out.contains("\\text") {
        out = UNITS.replace_all(&out, "$1/$2").into_owned();
    }
    without_stars(&out).into_owned()
}

/// Removes Markdown's `**`; between operands, `**` is a power and becomes `^`.
pub(super) fn without_stars(text: &str) -> Cow<'_, str> {
    patterns!(POWER = r"([\pL\pN)}])\*\*(-?\b|[({])");
    if !text.contains("**") {
        return text.into();
    }
    POWER.replace_all(text, "$1^$2").replace("**", "").into()
}
