//! Units, currencies and words that stand behind a number.

/// A unit as the powers of its parts, by name: `km/h` is `hour^-1 km^1`.
pub(super) type Unit = Vec<(String, i32)>;

/// Words for one unit, the first of which is its name.
const UNITS: &[&[&str]] = &[
    &["cm", "centimeter", "centimetre"],
    &["mm", "millimeter", "millimetre"],
    &["km", "kilometer", "kilometre"],
    &["m", "meter", "metre"],
    &["inch", "in", "inches"],
    &["foot", "ft", "feet"],
    &["yard", "yd"],
    &["mile", "mi"],
    &["kg", "kilogram"],
    &["g", "gram"],
    &["mg", "milligram"],
    &["pound", "lb", "£", "gbp"],
    &["ounce", "oz"],
    &["l", "liter", "litre"],
    &["ml", "milliliter", "millilitre"],
    &["hour", "hr", "h"],
    &["minute", "min"],
    &["second", "sec", "s"],
    &["day"],
    &["week"],
    &["month"],
    &["year", "yr"],
    &["dollar", "usd", "¤", "$"],
    &["euro", "eur", "€"],
    &["cent", "¢"],
    &["yen", "¥", "jpy"],
    &["rupee", "₹", "inr"],
    &["degree", "deg"],
    &["unit"],
    &["radian", "rad"],
];

/// Numbers that are words.
const MULTIPLES: [(&str, u32); 5] = [
    ("hundred", 2),
    ("thousand", 3),
    ("million", 6),
    ("billion", 9),
    ("trillion", 12),
];

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
pub(super) fn power_of_ten(word: &str) -> Option<u32> {
    let found = MULTIPLES.iter().find(|(own, _)| *own == word);
    found.map(|(_, power)| *power)
}

/// Whether letters are a word, however few.
pub(super) fn is_word(word: &str) -> bool {
    let word = word.to_lowercase();
    word.chars().count() > 1
        && (WORDS.contains(&&*word) || power_of_ten(&word).is_some() || known(&word).is_some())
}

/// The name of a unit that is known, by any of its words, in the singular or the plural.
pub(super) fn known(word: &str) -> Option<&'static str> {
    let singular = word.strip_suffix('s').unwrap_or(word);
    let is_of = |unit: &&&[&str]| unit.contains(&word) || unit.contains(&singular);
    UNITS.iter().find(is_of).map(|unit| unit[0])
}

/// The parts of the unit that a word is, each to a power.
pub(super) fn parts(word: &str) -> Vec<(String, i32)> {
    let word = word.to_lowercase();
    let of = |parts: &[(&str, i32)]| {
        let parts = parts.iter();
        parts
            .map(|(name, power)| ((*name).to_string(), *power))
            .collect()
    };
    match &*word {
        "mph" => of(&[("mile", 1), ("hour", -1)]),
        "kph" => of(&[("km", 1), ("hour", -1)]),
        word => {
            let singular = word.strip_suffix('s').unwrap_or(word);
            vec![(known(word).unwrap_or(singular).to_string(), 1)]
        }
    }
}
