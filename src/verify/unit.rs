//! Units, currencies and words that stand behind a number.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A unit as the powers of its parts, by name: `km/h` is `hour^-1 km^1`.
pub(super) type Unit = Vec<(String, i32)>;

/// Units that are known, each by its name and by what else it is called.
const UNITS: &str = "cm centimeter centimetre, mm millimeter millimetre, km kilometer kilometre, m meter metre, \
    inch in inches, foot ft feet, yard yd, mile mi, kg kilogram, g gram, mg milligram, pound lb £ gbp, ounce oz, \
    l liter litre, ml milliliter millilitre, hour hr h, minute min, second sec s, day, week, month, year yr, \
    dollar usd ¤ $, euro eur €, cent ¢, yen ¥ jpy, rupee ₹ inr, degree deg, unit, radian rad";

static NAMES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let units = UNITS.split(", ").map(|unit| unit.split(' '));
    units
        .flat_map(|words| {
            words
                .clone()
                .map(move |word| (word, words.clone().next().unwrap_or(word)))
        })
        .collect()
});

/// Words with a meaning of their own beside a number.
const WORDS: [&str; 13] = [
    "and",
    "or",
    "percent",
    "percentage",
    "pct",
    "points",
    "per",
    "square",
    "sq",
    "cubic",
    "mph",
    "kph",
    "choose",
];

/// The power of ten that a word is.
pub(super) fn power_of_ten(word: &str) -> Option<i64> {
    Some(match word {
        "hundred" => 2,
        "thousand" => 3,
        "million" => 6,
        "billion" => 9,
        "trillion" => 12,
        _ => return None,
    })
}

/// Whether letters are a word, however few.
pub(super) fn is_word(word: &str) -> bool {
    let word = word.to_lowercase();
    WORDS.contains(&&*word) || power_of_ten(&word).is_some() || known(&word).is_some()
}

/// The name of a unit that is known, by any of its words, in the singular or the plural.
pub(super) fn known(word: &str) -> Option<&'static str> {
    let singular = word.strip_suffix('s').unwrap_or(word);
    NAMES.get(word).or_else(|| NAMES.get(singular)).copied()
}

/// The parts of the unit that a word is, each to a power.
pub(super) fn parts(word: &str) -> Unit {
    let word = word.to_lowercase();
    let parts: &[(&str, i32)] = match &*word {
        "mph" => &[("mile", 1), ("hour", -1)],
        "kph" => &[("km", 1), ("hour", -1)],
        word => &[(
            known(word).unwrap_or(word.strip_suffix('s').unwrap_or(word)),
            1,
        )],
    };
    let owned = parts.iter().map(|(name, power)| (name.to_string(), *power));
    owned.collect()
}
