//! Finds the known name that is nearest to a misspelt name, for messages that ask "did you mean".

/// Returns the candidate nearest to `name`, or `None` if no candidate is so near that `name` is a likely misspelling of it.
///
/// Nearness is the Damerau-Levenshtein distance without regard to case. The largest accepted distance is a third of the name's
/// length, but at least one and at most three letters. A candidate has distance 0 if `name` has at least three letters and the
/// candidate begins with it, or if the candidate has at least two letters, which are the initials of the words of `name`. Among
/// equally near candidates, one with the same letters is preferred (`std` for `sdt`), then the first.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    // The initials make `lr` the nearest candidate to `learning_rate`.
    let initials: String = wanted
        .split('_')
        .filter_map(|word| word.chars().next())
        .collect();
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    let rank = |candidate: &str| {
        let lowered = candidate.to_lowercase();
        // A missing ending (`adv` for `advantage`) is a likelier error than a wrong letter.
        let is_cut = wanted.len() >= 3 && lowered.starts_with(&wanted);
        let distance = if is_cut || lowered.len() > 1 && lowered == initials {
            0
        } else {
            strsim::damerau_levenshtein(&wanted, &lowered)
        };
        (distance, letters(&lowered) != letters(&wanted))
    };
    let ranked = candidates.into_iter().map(|one| (rank(one), one));
    let near = ranked.filter(|((distance, _), _)| *distance <= allowed);
    near.min_by_key(|(rank, _)| *rank).map(|(_, one)| one)
}

/// Returns the clause ``did you mean `x`?`` or, if no candidate is near, a clause that lists the candidates as [`list`] does.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = candidates.into_iter().collect();
    match nearest(name, all.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if all.is_empty() => "there is none to choose from".to_string(),
        None => format!("there is {}", list(all)),
    }
}

/// Returns names in backquotes, separated by commas: at most sixteen names, followed by the number of further names.
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 16;
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.get(SHOWN..).map_or(0, <[String]>::len) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_name_and_strangers_do_not() {
        let columns = ["reward", "old_logp", "ref_logp", "length"];
        assert_eq!(nearest("rewrad", columns), Some("reward"));
        assert_eq!(nearest("old_log", columns), Some("old_logp"));
        assert_eq!(nearest("ppo", ["opo", "ppo_clip"]), Some("ppo_clip"));
        assert_eq!(nearest("Length", columns), Some("length"));
        assert_eq!(nearest("sdt", ["set", "std"]), Some("std"));
        assert_eq!(nearest("learning_rate", ["eps", "lr"]), Some("lr"));
        assert_eq!(nearest("temperature", columns), None);
        assert_eq!(nearest("k", ["eps", "std"]), None);
    }
}
