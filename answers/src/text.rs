//! Answers in words: normalises texts so that they can be compared, and finds the letters of choices.

/// Declares regular expressions, which are compiled when they are first used.
macro_rules! patterns {
    ($($(#[$doc:meta])* $name:ident = $source:expr);* $(;)?) => {
        $($(#[$doc])* static $name: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
            regex::Regex::new(&$source).expect("a constant pattern should compile")
        });)*
    };
}
pub(super) use patterns;

/// Returns a cleaned text, normalised so that equal answers are equal texts: case, articles, `and`, the plural, blanks, fonts,
/// periods and commas are ignored.
pub(super) fn folded(text: &str) -> String {
    patterns! {
        /// The point of a number is kept; the points of `a.m.` are removed.
        POINTS = r"(^|[^0-9])[.,]+|[.,]+([^0-9]|$)";
    }
    // The braces of `} ]` are the answer; the braces of `{5}` are not.
    if !text.contains(char::is_alphanumeric) {
        return text.split_whitespace().collect();
    }
    let text = text.replace("\\text", "").to_lowercase();
    let text = text.replace(['{', '}', '¤'], "");
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_kept = |at: &usize| match words[*at] {
        "and" => false,
        // The first of two letters is no article.
        "a" => words
            .get(at + 1)
            .is_none_or(|next| next.len() < 2 || *next == "and"),
        "an" | "the" => words.len() == 1,
        _ => true,
    };
    let singular = |at: usize| match words[at].strip_suffix('s') {
        Some(word) if word.len() > 3 && word.chars().all(char::is_alphabetic) => word,
        _ => words[at],
    };
    let kept: Vec<&str> = (0..words.len()).filter(is_kept).map(singular).collect();
    let text = kept.join(" ");
    if text.chars().all(|c| "ivx, ".contains(c)) {
        // Without the commas, `I, III` would be `II, II`.
        return text.replace(", ", ",").replace(' ', ",");
    }
    POINTS.replace_all(&text, "$1$2").replace(' ', "")
}

/// Returns the letter of a choice, such as `B`, `(B)`, `B. 42`, `B)42`, `B (42)` and `Option B`, and the text after the letter.
pub(super) fn choice(text: &str) -> Option<(char, String)> {
    patterns! {
        /// `(A)+1` is no choice.
        CHOICE = concat!(
            r"^\s*(?i:option\s*)?(?i:choice\s*)?(?i:answer\s*)?(?:([A-Z])(?:\s+\((.*)\))?$|\(?\s*([A-Z])\s*\)[ .,:]*((?:[^+*/=_<>^].*)?)$",
            r"|(?:\(\s*([a-z])\s*\)|([A-Za-z])[).:])(?:$|[ .,:]+(.*)$))",
        );
        /// The text after a letter that is not the only choice, such as `or C`.
        ANOTHER = r"^(?:and |or |[A-Za-z]$|.{0,6}\(\s*[A-Za-z]\s*\).{0,5}$)|(?:^|[\s,;])\(?[A-Z][).:](?:[\s0-9]|$)";
    }
    let text = text.replace("\\text", "").replace(['{', '}'], "");
    let found = CHOICE.captures(text.trim())?;
    let group = |at: [usize; 4]| at.into_iter().find_map(|at| found.get(at));
    let behind = group([2, 4, 7, 7]).map_or("", |behind| behind.as_str());
    let letter = group([1, 3, 5, 6])?.as_str().chars().next()?;
    let is_one = !ANOTHER.is_match(behind);
    is_one.then(|| (letter.to_ascii_uppercase(), behind.to_string()))
}

/// Returns whether a text is a time or a ratio, such as `3:00`, `1 : 2 : 3` and `7:45 a.m.`
pub(super) fn is_ratio(text: &str) -> bool {
    patterns!(RATIO = r"^[0-9.]+(?::[0-9.]+)+(?:am|pm)?$");
    text.contains(':') && RATIO.is_match(&folded(text))
}

/// Returns the ratio after the last `=`, as in `V_1:V_2 = 2:3`.
pub(super) fn named_ratio(text: &str) -> Option<&str> {
    let (_, ratio) = text.rsplit_once('=')?;
    is_ratio(ratio).then_some(ratio.trim())
}

/// Returns the text directly before a position, at most `most` bytes of it.
pub(super) fn near(text: &str, end: usize, most: usize) -> &str {
    let mut starts = end.saturating_sub(most)..=end;
    starts.find_map(|at| text.get(at..end)).unwrap_or_default()
}
