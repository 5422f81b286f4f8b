//! The header of an npy array: type, order and shape, in a Python literal. It is our own since crates take the memory
//! that a header claims, and those that know numpy's strings or half floats parse all of Python's literals.

use std::io::{self, Read};

use safetensors::Dtype;
use serde::Deserialize;

use super::json::shorten;
use super::tensor::{Kind, number};

const MAGIC: &[u8] = b"\x93NUMPY";
/// numpy's own are at most a few hundred bytes, and it refuses more than 10000 by default.
const LONGEST: usize = 64 << 10;

/// Names of types that strings come in which are not read: numpy turns them into one that is.
pub(super) const UNREAD_STRINGS: [&str; 2] = ["Python objects", "strings of bytes"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Npy {
    pub(super) kind: Kind,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: Vec<usize>,
    /// Bytes before the numbers.
    pub(super) size: u64,
}

impl Npy {
    /// Reads the header, or says what is wrong with it.
    pub(super) fn read(input: &mut impl Read) -> Result<Npy, String> {
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "it is cut off in its header".to_string(),
            _ => error.to_string(),
        };
        let mut start = [0; 8];
        input.read_exact(&mut start).map_err(cut)?;
        if !start.starts_with(MAGIC) {
            return Err("it is no npy array".to_string());
        }
        let (length, prefix) = if start[6] == 1 {
            let mut length = [0; 2];
            input.read_exact(&mut length).map_err(cut)?;
            (usize::from(u16::from_le_bytes(length)), 10)
        } else {
            let mut length = [0; 4];
            input.read_exact(&mut length).map_err(cut)?;
            (u32::from_le_bytes(length) as usize, 12)
        };
        if length > LONGEST {
            return Err(format!(
                "its header claims {length} bytes, where numpy writes a few hundred"
            ));
        }
        let mut text = vec![0; length];
        input.read_exact(&mut text).map_err(cut)?;
        let literal = String::from_utf8(text).map_err(|_| "its header is no text".to_string())?;
        let header: Header = serde_json::from_str(&json(&literal)).map_err(|error| {
            let literal = shorten(literal.trim_end(), 120);
            format!("its header cannot be read ({error}): {literal}")
        })?;
        let (kind, big_endian) = match header.descr.as_str() {
            Some(code) => kind(code),
            None => (Kind::Other("a structured type".to_string()), false),
        };
        Ok(Npy {
            kind,
            big_endian,
            fortran: header.fortran_order,
            shape: header.shape,
            size: (prefix + length) as u64,
        })
    }
}

/// The literal's parts.
#[derive(Deserialize)]
struct Header {
    descr: serde_json::Value,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// A Python literal in JSON. Numbers of Python 2 end in an L.
fn json(literal: &str) -> String {
    let literal = literal.replace(['\'', '"'], "\"").replace('(', "[");
    let literal = literal.replace("L,", ",").replace("L)", ")");
    let literal = literal.replace(')', "]").replace(", }", "}");
    let literal = literal.replace(",]", "]").replace(",}", "}");
    literal.replace("False", "false").replace("True", "true")
}

/// The header of an array in row order; `code` is numpy's name for the type, such as `<f4`.
pub(super) fn header(code: &str, shape: &[usize]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(|size| format!("{size},")).collect();
    let mut text = format!(
        "{{'descr': '{code}', 'fortran_order': False, 'shape': ({}), }}",
        sizes.join(" ")
    );
    // The numbers start at a multiple of 64, as numpy has it.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 11;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.into_bytes());
    bytes
}

/// numpy's name for a type that is written.
pub(super) fn code(kind: &Kind) -> String {
    match kind {
        Kind::Number(Dtype::BOOL) => "|b1".to_string(),
        Kind::String(letters) => format!("<U{letters}"),
        kind => {
            let name = kind.to_string();
            let bits: usize = name[1..].parse().unwrap_or_default();
            format!("<{}{}", &name[..1], bits / 8)
        }
    }
}

fn kind(code: &str) -> (Kind, bool) {
    let (order, name) = match code.chars().next() {
        Some(order @ ('<' | '>' | '|' | '=')) => (order, &code[1..]),
        _ => ('|', code),
    };
    let size = |letter: char| name.strip_prefix(letter)?.parse::<usize>().ok();
    let of_bits = |letter: char| {
        let bits = size(letter.to_ascii_lowercase())?.checked_mul(8)?;
        number(&format!("{letter}{bits}"))
    };
    let known = match name {
        "b1" | "?" => Some(Dtype::BOOL),
        _ => ['U', 'I', 'F'].into_iter().find_map(of_bits),
    };
    let other = || match name {
        "O" => format!("{} (pickled)", UNREAD_STRINGS[0]),
        _ if name.starts_with(['S', 'a']) => format!("{} (`{code}`)", UNREAD_STRINGS[1]),
        _ => format!("numpy type `{code}`"),
    };
    let strings = || size('U').map(Kind::String);
    let kind = known.map(Kind::Number).or_else(strings);
    (kind.unwrap_or_else(|| Kind::Other(other())), order == '>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Npy, String> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        Npy::read(&mut bytes.as_slice())
    }

    #[test]
    fn headers_are_read_and_written() {
        let npy = read("{'descr': '>f4', 'fortran_order': True, 'shape': (3L, 4), }").unwrap();
        assert_eq!(
            (npy.kind, npy.big_endian, npy.fortran),
            (Kind::Number(Dtype::F32), true, true)
        );
        assert_eq!(npy.shape, [3, 4]);
        for shape in [&[][..], &[5], &[5, 0]] {
            let bytes = header("<f8", shape);
            assert_eq!(bytes.len() % 64, 0);
            let npy = Npy::read(&mut bytes.as_slice()).unwrap();
            assert_eq!(
                (npy.shape.as_slice(), npy.size),
                (shape, bytes.len() as u64)
            );
        }
        assert_eq!(
            read("{'descr': '<U7', 'fortran_order': False, 'shape': (2,)}")
                .unwrap()
                .kind,
            Kind::String(7)
        );
        assert!(
            read("{'descr': '<f4', 'shape': (2,)}")
                .unwrap_err()
                .contains("fortran_order")
        );
        assert!(read("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}").is_err());
        let mut lying = b"\x93NUMPY\x02\x00".to_vec();
        lying.extend(u32::MAX.to_le_bytes());
        assert!(
            Npy::read(&mut lying.as_slice())
                .unwrap_err()
                .contains("claims")
        );
    }
}
