//! A tensor of a file to be, whatever the file.

use std::io::{self, Write};

use safetensors::Dtype;
use zerocopy::IntoBytes;

use super::tensor::Kind;

type WriteBytes<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

/// A name, a type and a shape, and what writes the numbers.
pub(super) struct Written<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Kind,
    pub(super) shape: Vec<usize>,
    /// How many bytes `write` gives.
    pub(super) bytes: u64,
    pub(super) write: WriteBytes<'a>,
}

impl<'a> Written<'a> {
    /// A tensor of numbers.
    pub(super) fn new(
        name: &'a str,
        dtype: Dtype,
        shape: Vec<usize>,
        write: impl Fn(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Self {
        let elements: u64 = shape.iter().map(|&size| size as u64).product();
        Written {
            name,
            kind: Kind::Number(dtype),
            shape,
            bytes: elements * dtype.bitsize() as u64 / 8,
            write: Box::new(write),
        }
    }

    /// Numbers [B] that are in memory.
    pub(super) fn of<T: IntoBytes + zerocopy::Immutable>(
        name: &'a str,
        dtype: Dtype,
        values: impl AsRef<[T]> + 'a,
    ) -> Self {
        let shape = vec![values.as_ref().len()];
        Written::new(name, dtype, shape, move |out| {
            out.write_all(values.as_ref().as_bytes())
        })
    }

    /// Strings [B] as numpy keeps them: four bytes a character, filled up with zeros.
    pub(super) fn strings<'t>(
        name: &'a str,
        texts: impl ExactSizeIterator<Item = &'t str> + Clone + 'a,
    ) -> Self {
        let longest = texts.clone().map(|text| text.chars().count()).max();
        let (width, count) = (longest.unwrap_or(0).max(1), texts.len());
        let write = move |out: &mut dyn Write| {
            texts.clone().try_for_each(|text| {
                let mut letters: Vec<u32> = text.chars().map(u32::from).collect();
                letters.resize(width, 0);
                out.write_all(letters.as_bytes())
            })
        };
        Written {
            name,
            kind: Kind::String(width),
            shape: vec![count],
            bytes: (4 * width * count) as u64,
            write: Box::new(write),
        }
    }
}
