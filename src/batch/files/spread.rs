//! An advantage as a file holds it: its value where a token counts, 0 everywhere else.

use std::io::{self, Write};

use zerocopy::{Immutable, IntoBytes};

use crate::batch::{Computed, FloatBuffer, Layout, Level};

/// The name of the tensor in padded files.
pub(super) const NAME: &str = "advantages";

/// An advantage that is written response by response.
pub(super) struct Spread<'a> {
    layout: &'a Layout,
    advantage: &'a Computed,
    /// T of a tensor; `None` where the file has no tokens at all and the advantage is one of responses.
    width: Option<usize>,
    /// Whether a tensor is f64; it is f32 otherwise.
    pub(super) is_f64: bool,
}

impl<'a> Spread<'a> {
    /// `width` is that of the file's token tensors, if it has any.
    pub(super) fn new(advantage: &'a Computed, width: Option<usize>, is_f64: bool) -> Self {
        let layout: &Layout = advantage.layout();
        Spread {
            layout,
            advantage,
            width: match advantage.level() {
                Level::Token => width.or(Some(layout.width())),
                _ => width,
            },
            is_f64,
        }
    }

    /// The first value that `holds` refuses: its response, its token's column where it is a token's, and the value.
    /// A value that no token has is not written to a tensor [B, T].
    pub(super) fn find(
        &self,
        of_tensor: bool,
        holds: impl Fn(f64) -> bool,
    ) -> Option<(usize, Option<usize>, f64)> {
        let is_token = self.advantage.level() == Level::Token;
        let value = self.advantage.lookup();
        (0..self.layout.responses()).find_map(|response| {
            let cells = match self.layout.tokens_of(response).len() {
                length if is_token => 0..length,
                0 if of_tensor && self.width.is_some() => 0..0,
                _ => 0..1,
            };
            let first = self.layout.tokens_of(response).start;
            let value = |token| value(response, first + token);
            let token = cells.into_iter().find(|&token| !holds(value(token)))?;
            let mut columns = self
                .layout
                .stretches(response)
                .flat_map(|(_, columns)| columns);
            let column = columns.nth(token).filter(|_| is_token);
            Some((response, column, value(token)))
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
        let value = self.advantage.lookup();
        let mut row = vec![T::default(); self.width.unwrap_or(1)];
        for response in 0..self.layout.responses() {
            row.fill(T::default());
            if self.width.is_none() {
                row[0] = narrow(self.advantage.at(response, 0));
            } else {
                let narrowed = |token| narrow(value(response, token));
                self.layout.scatter(response, &mut row, narrowed);
            }
            out.write_all(row.as_bytes())?;
        }
        Ok(())
    }

    /// A response's advantage in JSON: a number, or an array with 0 where the mask is 0. All are finite.
    pub(super) fn json(&self, response: usize, out: &mut Vec<u8>) {
        if self.advantage.level() == Level::Response {
            return number(out, self.advantage.at(response, 0));
        }
        let mut column = 0;
        out.push(b'[');
        let pad = |out: &mut Vec<u8>, columns: std::ops::Range<usize>| {
            columns.for_each(|_| out.extend_from_slice(b"0.0, "));
        };
        for (tokens, columns) in self.layout.stretches(response) {
            pad(out, column..columns.start);
            for token in tokens {
                match self.advantage.buffer() {
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
