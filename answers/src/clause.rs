//! Decides what the words around a value say: that it is not the answer, that it is the answer of one case, or that it belongs to
//! a condition.

use std::sync::LazyLock;

use regex::Regex;

use super::text::pattern;

/// Returns whether the words before and behind a value deny or bound the value, as in `not 5`, `less than 5` and `5 or more`.
pub(super) fn is_denied([before, behind]: [&str; 2]) -> bool {
    static NOT: LazyLock<Regex> = LazyLock::new(|| {
        let words =
            "not|never|neither|nor|cannot|unknown|unlikely|impossible|hardly|wrong|incorrect|false";
        pattern(&format!(r"(?i)\b(?:{words})\b|n[’']t\b"))
    });
    /// A clause before the value's own clause, or about something else than the value, as in `those that are not prime are 5`.
    static OTHER: LazyLock<Regex> = LazyLock::new(|| {
        let before = r"(?s:.*)(?:[.;]\s|,\s+(?:and|but|so|it|we|the|hence|thus|therefore|then)\b)";
        let verb = r"\b(?:is|are|was|were|equals?)\b";
        pattern(&format!(
            r"(?i){before}|\b(?:that|which|who)\s+\pL+\s*(?:not\b|n[’']t\b)[^,;]*?{verb}"
        ))
    });
    static BOUND: LazyLock<Regex> = LazyLock::new(|| {
        let words = "than|least|most|except|exclud(?:es?|ing)|exceed(?:s|ing)?|between|within|beyond|under|over|above|below|up to|besides|\
            (?:different|apart|far|away) from|(?:any|anything|any \\pL+|all|everything|nothing|none) (?:but|like)|\
            (?:bounded|above|below|divisible) by|minus|twice|(?:half|multiple|square|cube|root) of|as (?:much|many|few|little|high|low) as|in excess of|upwards of";
        let range = r"^[\s$)]*(?:to|through)";
        pattern(&format!(
            r"(?i)(?:{range}|\b(?:{words})|(?:^|[^<>=-])[<>≤≥≠]|!=|\\(?:neq?|[gl]eq?))[\s:$(*]*$"
        ))
    });
    static BEHIND: LazyLock<Regex> = LazyLock::new(|| {
        let more = "more|less|fewer|greater|higher|lower|larger|smaller|bigger|above|below|over|under|up|beyond|longer|older|later";
        let bound = format!(
            r"(?:\pL+\s+)?(?:(?:or|and)\s+(?:\pL+\s+){{0,2}}(?:{more})|at\s+(?:least|most))"
        );
        let verb = "is|are|was|can|could|does|would|will|must|may|might|should";
        let denied = format!(r"(?:{verb})(?:n?[’']t|\s*not|\s+(?:impossible|excluded|never))");
        let wrong = r"(?:(?:\pL+\s+){0,2}(?:is|was)\s+)?(?:wrong|incorrect|false)";
        pattern(&format!(
            r"(?i)^[\s$()*,%]*(?:(?:{bound}|{denied}|{wrong})\b|(?:to|through)[\s$(]*$)"
        ))
    });
    NOT.is_match(&OTHER.replace_all(before, " "))
        || BOUND.is_match(before)
        || BEHIND.is_match(behind)
}

/// The words that begin a case.
pub(super) const CASES: &str = "if|when|whenever|unless|otherwise|else|in (?:the )?case";

/// Returns whether the text behind a value begins with a case of the value, after at most one word such as a unit.
pub(super) fn is_case(behind: &str) -> bool {
    static CASE: LazyLock<Regex> = LazyLock::new(|| {
        let signs = r"(?:[\s$(){}*,;]|\\text\b|\\[)\]])*";
        pattern(&format!(r"(?i)^{signs}(?:\pL+\s+)?(?:{CASES}|for)\b"))
    });
    CASE.is_match(behind)
}

/// Returns whether the text before a value ends with `otherwise`.
pub(super) fn is_otherwise(before: &str) -> bool {
    static OTHERWISE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)\b(?:otherwise|else|in which case)\b[\s,:$({\\]*(?:it is|is)?[\s$({\\]*$")
    });
    OTHERWISE.is_match(before)
}

/// Returns whether the value behind a clause belongs to a condition: the clause has a word such as `if`, or a preposition such as
/// `for` with no verb after it. A value after `and` has its own clause.
pub(super) fn is_conditional(clause: &str) -> bool {
    static CONDITION: LazyLock<Regex> = LazyLock::new(|| {
        let reasons = "where|since|because|while|provided|given|assuming|setting|taking|letting|putting|substituting|suppose";
        pattern(&format!(r"(?i)\b(?:{CASES}|{reasons})\b"))
    });
    static PREPOSITION: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?i)\b(?:for|at|as|with|by|upon|after|before|mod|modulo|out of)\b")
    });
    static VERB: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\b(?:is|are|was|were|be|equals?)\b"));
    static AND: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\b(?:and|or|but|otherwise|else)\b[\s$(]*$"));
    let is_behind_preposition = || {
        let last = PREPOSITION.find_iter(clause).last();
        last.is_some_and(|last| !VERB.is_match(&clause[last.end()..]))
    };
    !AND.is_match(clause) && (CONDITION.is_match(clause) || is_behind_preposition())
}
