//! Decides what the words around a value say: that it is not the answer, that it is the answer of one case, or that it belongs to
//! a condition.

use super::text::patterns;

/// Verbs that deny a value with `not` or `never`.
const VERBS: &str = "is|was|can|could|will|would|must|should";
const NOT: &str = r"(?:n?[’']t|\s*not|\s+never)\b";

/// Words that say that a value is no answer.
const WRONG: &str = "(?:wrong|incorrect|false|impossible|excluded)";

/// Returns whether the words directly before or after a value refute it, as in `is not 5`, `more than 5` and `5 is wrong`. In a
/// text without a phrase that marks the answer, other words of denial may be about something else.
pub(super) fn is_refuted([before, behind]: [&str; 2]) -> bool {
    patterns! {
        BEFORE = {
            let not = r"(?:\b(?:not|never|cannot)|n[’']t)(?:\s+(?:be|equal))?";
            let than = r"\b(?:less|more|greater|fewer|smaller|larger|other) than";
            format!(r"(?i)(?:{not}|{than}|\b(?:excludes?|exceeds?)|≠|!=)[\s:$(*]*$")
        };
        BEHIND = format!(r"(?i)^[\s$)*,%]*(?:(?:{VERBS}){NOT}|(?:(?:is|was)\s+|\(){WRONG}\b)");
    }
    BEFORE.is_match(before) || BEHIND.is_match(behind)
}

/// Returns whether the words before or after a value deny or bound the value, as in `not 5`, `less than 5` and `5 or more`.
pub(super) fn is_denied([before, behind]: [&str; 2]) -> bool {
    patterns! {
        DENIAL = r"(?i)\b(?:not|never|neither|nor|cannot|unknown|unlikely|impossible|hardly)\b|n[’']t\b";
        /// A clause before the value's own clause, or about something else, as in `those that are not prime are 5`.
        OTHER = {
            let before = r"(?s:.*)(?:[.;]\s|,\s+(?:and|but|so|it|we|the|hence|thus|therefore|then)\b)";
            let verb = r"\b(?:is|are|was|were|equals?)\b";
            format!(r"(?i){before}|\b(?:that|which|who)\s+\pL+\s*(?:not\b|n[’']t\b)[^,;]*?{verb}")
        };
        BOUND = {
            let words = "than|least|most|except|exclud(?:es?|ing)|exceed(?:s|ing)?|between|within|beyond|under|over|above|below|up to|\
                besides|(?:different|apart|far|away) from|(?:any|anything|any \\pL+|all|everything|nothing|none) (?:but|like)|\
                (?:bounded|above|below|divisible) by|minus|twice|(?:half|multiple|square|cube|root) of|\
                as (?:much|many|few|little|high|low) as|in excess of|upwards of";
            let range = r"^[\s$)]*(?:to|through)";
            format!(r"(?i)(?:{range}|\b(?:{words})|(?:^|[^<>=-])[<>≤≥≠]|!=|\\(?:neq?|[gl]eq?))[\s:$(*]*$")
        };
        BEHIND = {
            let more = "more|less|fewer|greater|higher|lower|larger|smaller|bigger|above|below|over|under|up|beyond|longer|older|later";
            let and = r"(?:or\s+(?:\pL+\s+){0,2}|and\s+(?:even\s+)?)";
            let bound = format!(r"(?:\pL+\s+)?(?:{and}(?:{more})|at\s+(?:least|most))");
            let denied = format!(r"(?:{VERBS}|are|does|may|might){NOT}|(?:\pL+\s+){{0,2}}(?:is|are|was)\s+{WRONG}");
            format!(r"(?i)^[\s$()*,%]*(?:(?:{bound}|{denied})\b|(?:to|through)[\s$(]*$)")
        };
    }
    is_refuted([before, behind])
        || DENIAL.is_match(&OTHER.replace_all(before, " "))
        || BOUND.is_match(before)
        || BEHIND.is_match(behind)
}

/// The words that begin a case.
pub(super) const CASES: &str = "if|when|whenever|unless|otherwise|else|in (?:the )?case";

/// Returns whether the text after a value begins with a case of the value, after at most one word such as a unit.
pub(super) fn is_case(behind: &str) -> bool {
    patterns! {
        CASE = {
            let signs = r"(?:[\s$(){}*,;]|\\text\b|\\[)\]])*";
            // A variable follows `for`, as in `for n odd`; `$20 for apples` is no case.
            let of = r"for\s+(?:odd|even|(?:(?:all|every|each)\s+)*[$\\({]*[b-hj-z])";
            format!(r"(?i:^{signs}(?:\pL+\s+)?(?:{CASES}|{of})\b)")
        };
    }
    CASE.is_match(behind)
}

/// Returns whether the text before a value ends with `otherwise`.
pub(super) fn is_otherwise(before: &str) -> bool {
    patterns!(
        OTHERWISE = r"(?i)\b(?:otherwise|else|in which case)\b[\s,:$({\\]*(?:it is|is)?[\s$({\\]*$"
    );
    OTHERWISE.is_match(before)
}

/// Returns whether a value belongs to a condition: the clause before the value has a word such as `if`, or ends with a word such as
/// `for` before an equation, as in `for n = 3`. A value after `and` has its own clause.
pub(super) fn is_conditional(clause: &str, value: &str) -> bool {
    patterns! {
        CONDITION = {
            let reasons = "where|since|because|while|provided|given|assuming|setting|taking|letting|putting|substituting|suppose";
            let divisor = r"(?:mod|modulo|divided by|division by|out of)[\s$(]*$";
            format!(r"(?i)\b(?:(?:{CASES}|{reasons})\b|{divisor})")
        };
        PREPOSITION = {
            let name = r"[\pL\\{}^_()0-9]{1,20}\s*=[\s$(]*";
            format!(r"(?i)\b(?:for|at|as|with|by|upon|after|before)\s[\s$(\\]*({name})?$")
        };
        AND = r"(?i)\b(?:and|or|but|otherwise|else)\b[\s$(]*$";
    }
    let is_equation = || {
        let found = PREPOSITION.captures(clause);
        found.is_some_and(|found| found.get(1).is_some() || value.contains('='))
    };
    !AND.is_match(clause) && (CONDITION.is_match(clause) || is_equation())
}
