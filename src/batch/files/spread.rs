//! An advantage as a file holds it: its value where a token counts, 0 everywhere else.

use std::io::{self, Write};

use zerocopy::{Immutable, IntoBytes};

use super::Advantage;
use crate::batch::{Batch, FloatBuffer, Layout, TokenValues};

/// The name of the tensor in padded files.
pub(super) const NAME: &str = "advantages";

/// An advantage that is written response by response.
pub(super) struct Spread<'a> {
    layout: &'a Layout,
    advantage: Advantage<'a>,
    /// T of a tensor; `None` where the file has no tokens at all and the advantage is one of responses.
    width: Option<usize>,
    /// Whether a tensor is f64; it is f32 otherwise.
    pub(super) is_f64: bool,
}

impl<'a> Spread<'a> {
    /// `width` is that of the file's token tensors, if it has any; `is_f64` is whether its numbers of responses are f64,
    /// which counts where it has no token column.
    pub(super) fn new(
        batch: &'a Batch,
        advantage: Advantage<'a>,
        width: Option<usize>,
        is_f64: bool,
    ) -> Self {
        let layout: &Layout = batch.layout();
        Spread {
            layout,
            advantage,
            width: match advantage {
                Advantage::Response(_) => width,
                Advantage::Token(_) => width.or(Some(layout.width())),
            },
            is_f64: if batch.tokens.is_empty() {
                is_f64
            } else {
                batch.tokens.values().any(TokenValues::is_f64)
            },
        }
    }

    /// The first value that `holds` refuses: its response, its token's column where it is a token's, and the value.
    /// What no token has is not written to a tensor [B, T].
    pub(super) fn find(
        &self,
        of_tensor: bool,
        holds: impl Fn(f64) -> bool,
    ) -> Option<(usize, Option<usize>, f64)> {
        let is_unwritten = |response| {
            of_tensor && self.width.is_some() && self.layout.tokens_of(response).is_empty()
        };
        (0..self.layout.responses()).find_map(|response| match self.advantage {
            Advantage::Response(_) if is_unwritten(response) => None,
            Advantage::Response(values) => {
                let value = values[response];
                (!holds(value)).then_some((response, None, value))
            }
            Advantage::Token(values) => {
                let token = self
                    .layout
                    .tokens_of(response)
                    .find(|&token| !holds(values.get(token)))?;
                let mut stretches = self.layout.stretches(response);
                let (tokens, columns) = stretches.find(|(tokens, _)| tokens.contains(&token))?;
                let column = columns.start + token - tokens.start;
                Some((response, Some(column), values.get(token)))
            }
        })
    }

    /// [B, T], or [B] where there is no T.
    pub(super) fn shape(&self) -> Vec<usize> {
        let responses = self.layout.responses();
        std::iter::once(responses).chain(self.width).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        let size = if self.is_f64 { 8 } else { 4 };
        let sizes = self.shape().into_iter();
        sizes.map(|size| size as u64).product::<u64>() * size
    }

    /// Writes the tensor's numbers.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.is_f64 {
            self.write_as(out, |value| value)
        } else {
            // The precision of the batch's tokens; it has been seen that nothing becomes infinite.
            self.write_as(out, |value| value as f32)
        }
    }

    fn write_as<T: Copy + Default + IntoBytes + Immutable>(
        &self,
        out: &mut impl Write,
        narrow: impl Fn(f64) -> T,
    ) -> io::Result<()> {
        let mut row = vec![T::default(); self.width.unwrap_or(1)];
        for response in 0..self.layout.responses() {
            row.fill(T::default());
            match self.advantage {
                Advantage::Response(values) if self.width.is_none() => {
                    row[0] = narrow(values[response]);
                }
                Advantage::Response(values) => {
                    let value = narrow(values[response]);
                    self.layout.scatter(response, &mut row, |_| value);
                }
                Advantage::Token(FloatBuffer::F32(values)) => {
                    let values: &[f32] = values;
                    self.layout
                        .scatter(response, &mut row, |token| narrow(values[token].into()));
                }
                Advantage::Token(FloatBuffer::F64(values)) => {
                    let values: &[f64] = values;
                    self.layout
                        .scatter(response, &mut row, |token| narrow(values[token]));
                }
            }
            out.write_all(row.as_bytes())?;
        }
        Ok(())
    }

    /// A response's advantage in JSON: a number, or an array with 0 where the mask is 0. All are finite.
    pub(super) fn json(&self, response: usize, out: &mut Vec<u8>) {
        let values = match self.advantage {
            Advantage::Response(values) => return number(out, values[response]),
            Advantage::Token(values) => values,
        };
        let mut column = 0;
        out.push(b'[');
        let pad = |out: &mut Vec<u8>, columns: std::ops::Range<usize>| {
            columns.for_each(|_| out.extend_from_slice(b"0.0, "));
        };
        for (tokens, columns) in self.layout.stretches(response) {
            pad(out, column..columns.start);
            for token in tokens {
                match values {
                    FloatBuffer::F32(values) => number(out, values[token]),
                    FloatBuffer::F64(values) => number(out, values[token]),
                }
                out.extend_from_slice(b", ");
            }
            column = columns.end;
        }
        pad(out, column..self.layout.row_length(response));
        if out.ends_with(b", ") {
            out.truncate(out.len() - 2);
        }
        out.push(b']');
    }
}

/// The shortest number that reads back as the same one.
fn number<T: serde::Serialize>(out: &mut Vec<u8>, value: T) {
    // Writing a float to memory cannot fail.
    let _ = serde_json::to_writer(out, &value);
}
