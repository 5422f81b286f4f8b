//! Characters of a line, eight at a time, the first in the lowest byte of a word. Each function sets the highest bit of the
//! bytes that it looks for: exactly up to the first of them, and of bytes after that perhaps of others too.

pub(super) const LOW: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGH: u64 = 0x8080_8080_8080_8080;

/// The next eight bytes, with zeros where fewer are left.
#[inline]
pub(super) fn eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => bytes
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

#[inline]
pub(super) fn equal(word: u64, byte: u8) -> u64 {
    let other = word ^ (LOW * u64::from(byte));
    other.wrapping_sub(LOW) & !other & HIGH
}

#[inline]
pub(super) fn below_space(word: u64) -> u64 {
    word.wrapping_sub(LOW * 0x20) & !word & HIGH
}

/// Bytes that are not of ASCII, all of them exactly.
#[inline]
pub(super) fn beyond_ascii(word: u64) -> u64 {
    word & HIGH
}

#[inline]
fn no_digit(word: u64) -> u64 {
    let value = word ^ (LOW * u64::from(b'0'));
    (value.wrapping_add(LOW * (0x80 - 10)) | value) & HIGH
}

/// How many bytes come before the first that is marked.
#[inline]
pub(super) fn before(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// How many digits come first.
#[inline]
pub(super) fn digits(bytes: &[u8]) -> usize {
    let mut count = 0;
    loop {
        let marks = no_digit(eight(&bytes[count..]));
        count += before(marks);
        if marks != 0 {
            return count;
        }
    }
}
