//! Decides what the words around a value say: that it is not the answer, that it is the answer of one case, or that it belongs to
//! a condition.

use std::sync::LazyLock;

use regex::Regex;

use super::text::pattern;

/// Returns whether the words directly before or behind a value refute it, as in `is not 5`, `more than 5` and `5 is wrong`. In a text
/// without a phrase that marks the answer, other words of denial may be about something else.
pub(super) fn is_refuted([before, behind]: [&str; 2]) -> bool {
    static BEFORE: LazyLock<Regex> = LazyLock::new(|| {
        let not = r"(?:\b(?:not|never|cannot)|n[’']t)(?:\s+(?:be|equal))?";
        let than = r"\b(?:less|more|greater|fewer|smaller|larger|other) than";
        pattern(&format!(
            r"(?i)(?:{not}|{than}|\b(?:excludes?|exceeds?)|≠|!=)[\s:$(*]*$"
        ))
    });
    static BEHIND: LazyLock<Regex> = LazyLock::new(|| {
        let not = r"(?:is|was|can|could|will|would|must|should)(?:n?[’']t|\s*not|\s+never)\b";
        let wrong = r"(?:(?:is|was)\s+|\()(?:wrong|incorrect|false|impossible|excluded)\b";
        pattern(&format!(r"(?i)^[\s$)*,%]*(?:{not}|{wrong})"))
    });
    BEFORE.is_match(before) || BEHIND.is_match(behind)
}

/// Returns whether the words before and behind a value deny or bound the value, as in `not 5`, `less than 5` and `5 or more`.
pub(super) fn is_denied([before, behind]: [&str; 2]) -> bool {
    static NOT: LazyLock<Regex> = LazyLock::new(|| {
        let words = "not|never|neither|nor|cannot|unknown|unlikely|impossible|hardly";
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
        let and = r"(?:or\s+(?:\pL+\s+){0,2}|and\s+(?:even\s+)?)";
        let bound = format!(r"(?:\pL+\s+)?(?:{and}(?:{more})|at\s+(?:least|most))");
        let verb = "is|are|was|can|could|does|would|will|must|may|might|should";
        let denied = format!(r"(?:{verb})(?:n?[’']t|\s*not|\s+(?:impossible|excluded|never))");
        let wrong = r"(?:\pL+\s+){0,2}(?:is|was)\s+(?:wrong|incorrect|false)";
        pattern(&format!(
            r"(?i)^[\s$()*,%]*(?:(?:{bound}|{denied}|{wrong})\b|(?:to|through)[\s$(]*$)"
        ))
    });
    is_refuted([before, behind])
        || NOT.is_match(&OTHER.replace_all(before, " "))
        || BOUND.is_match(before)
        || BEHIND.is_match(behind)
}

/// The words that begin a case.
pub(super) const CASES: &str = "if|when|whenever|unless|otherwise|else|in (?:the )?case";

/// Returns whether the text behind a value begins with a case of the value, after at most one word such as a unit.
pub(super) fn is_case(behind: &str) -> bool {
    static CASE: LazyLock<Regex> = LazyLock::new(|| {
        let signs = r"(?:[\s$(){}*,;]|\\text\b|\\[)\]])*";
        // A variable follows `for`, as in `for n odd`; `$20 for apples` is no case.
        let of = r"for\s+(?:odd|even|(?:(?:all|every|each)\s+)*[$\\({]*[b-hj-z])";
        pattern(&format!(
            r"(?i:^{signs}(?:\pL+\s+)?(?:(?:{CASES})\b|{of}\b))"
        ))
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

/// Returns whether a value belongs to a condition: the clause before the value has a word such as `if`, or ends with a word such as
/// `for` before an equation, as in `for n = 3`. A value after `and` has its own clause.
pub(super) fn is_conditional(clause: &str, value: &str) -> bool {
    static CONDITION: LazyLock<Regex> = LazyLock::new(|| {
        let reasons = "where|since|because|while|provided|given|assuming|setting|taking|letting|putting|substituting|suppose";
        pattern(&format!(r"(?i)\b(?:{CASES}|{reasons})\b"))
    });
    static PREPOSITION: LazyLock<Regex> = LazyLock::new(|| {
        let name = r"[\pL\\{}^_()0-9]{1,20}\s*=[\s$(]*";
        pattern(&format!(
            r"(?i)\b(?:for|at|as|with|by|upon|after|before)\s[\s$(\\]*({name})?$"
        ))
    });
    static DIVISOR: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\b(?:mod|modulo|divided by|division by|out of)[\s$(]*$"));
    static AND: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"(?i)\b(?:and|or|but|otherwise|else)\b[\s$(]*$"));
    let is_equation = || {
        let found = PREPOSITION.captures(clause);
        found.is_some_and(|found| found.get(1).is_some() || value.contains('='))
    };
    !AND.is_match(clause)
        && (CONDITION.is_match(clause) || is_equation() || DIVISOR.is_match(clause))
}
