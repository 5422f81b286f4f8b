//! Units, currencies and powers of ten, with the words that name them.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The names of units and the like, each followed by its other spellings.
const UNITS: &str = "cm centimeter centimetre, mm millimeter millimetre, km kilometer kilometre, m meter metre, \
    inch in inches, foot ft feet, yard yd, mile mi, kg kilogram, g gram, mg milligram, pound lb £ gbp, ounce oz, \
    l liter litre, ml milliliter millilitre, hour hr h, minute min, second sec s, day, week, month, year yr, \
    dollar usd ¤ $, euro eur €, cent ¢, yen ¥ jpy, rupee ₹ inr, degree deg \\degree, unit, radian rad, \
    mile/hour mph, km/hour kph, % percent percentage pct, point, / per, square sq, cubic, \
    1e2 hundred, 1e3 thousand, 1e6 million, 1e9 billion, 1e12 trillion";

static UNIT_NAMES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let words = UNITS.split(", ").map(|words| words.split(' '));
    let named = |words: std::str::Split<'static, char>| {
        let name = words.clone().next().unwrap_or_default();
        words.map(move |word| (word, name))
    };
    words.flat_map(named).collect()
});

/// Returns the name in [`UNITS`] of a word after a number, in the singular or the plural: a unit, `%`, `/` for `per`, `square` or
/// `cubic`, or a power of ten.
pub(super) fn unit(word: &str) -> Option<&'static str> {
    let singular = word.strip_suffix('s').unwrap_or(word);
    let names = &UNIT_NAMES;
    names.get(word).or_else(|| names.get(singular)).copied()
}

/// Returns the name of a currency, for a sign that can stand before a number.
pub(super) fn currency(sign: &str) -> Option<&'static str> {
    unit(sign).filter(|_| matches!(sign, "¤" | "€" | "£" | "¥" | "₹"))
}
