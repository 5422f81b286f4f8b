//! Spreads an advantage over the rows of a padded tensor: its value where a token counts, 0 everywhere else.

use std::io::{self, Write};
use std::path::Path;

use super::element::Element;
use crate::batch::files::{Advantage, WriteError};
use crate::batch::{Batch, FloatBuffer, Layout, TokenValues};

/// The name of the tensor in padded files.
pub(super) const NAME: &str = "advantages";

/// An advantage as a tensor, written row by row.
pub(in crate::batch::files) struct Spread<'a> {
    layout: &'a Layout,
    advantage: Advantage<'a>,
    /// T; `None` where the file has no tokens at all and the advantage is one of responses.
    width: Option<usize>,
    element: Element,
}

impl<'a> Spread<'a> {
    /// `width` is that of the file's token tensors, if it has any; `wide` is whether its numbers of responses are f64, which
    /// counts where it has no token column.
    pub(in crate::batch::files) fn new(
        batch: &'a Batch,
        advantage: Advantage<'a>,
        width: Option<usize>,
        wide: bool,
    ) -> Self {
        let layout: &Layout = batch.layout();
        let width = match advantage {
            Advantage::Response(_) => width,
            Advantage::Token(_) => width.or(Some(layout.width())),
        };
        let wide = match batch.tokens.is_empty() {
            true => wide,
            false => batch.tokens.values().any(TokenValues::is_f64),
        };
        Spread {
            layout,
            advantage,
            width,
            element: if wide { Element::F64 } else { Element::F32 },
        }
    }

    pub(super) fn element(&self) -> &Element {
        &self.element
    }

    /// [B, T], or [B] where there is no T.
    pub(super) fn shape(&self) -> Vec<usize> {
        std::iter::once(self.layout.responses())
            .chain(self.width)
            .collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        let size = if self.element == Element::F64 { 8 } else { 4 };
        self.shape()
            .iter()
            .map(|&size| size as u64)
            .product::<u64>()
            * size
    }

    /// Looks for a value that is no number in the file to be.
    pub(in crate::batch::files) fn check(&self, out: &Path) -> Result<(), WriteError> {
        let holds = |value: f64| match self.element {
            Element::F64 => value.is_finite(),
            _ => (value as f32).is_finite(),
        };
        for response in 0..self.layout.responses() {
            let mut tokens = self.layout.tokens_of(response);
            let (token, found) = match self.advantage {
                // What no token has is not written.
                Advantage::Response(_) if self.width.is_some() && tokens.is_empty() => continue,
                Advantage::Response(values) => match holds(values[response]) {
                    true => continue,
                    false => (None, values[response]),
                },
                Advantage::Token(values) => match tokens.find(|&at| !holds(values.get(at))) {
                    None => continue,
                    Some(at) => (Some(at), values.get(at)),
                },
            };
            let place = token.map(|at| format!(", {},", self.column(response, at)));
            return Err(WriteError::NoValue {
                path: out.to_path_buf(),
                response,
                place: place.unwrap_or_default(),
                found,
                why: match found.is_finite() {
                    true => ", which is too large for f32 (`--dtype f64` writes f64)",
                    false => "",
                },
            });
        }
        Ok(())
    }

    /// The column of a response's token, in words.
    fn column(&self, response: usize, token: usize) -> String {
        let nth = token - self.layout.tokens_of(response).start;
        let columns = self
            .layout
            .runs(response)
            .iter()
            .flat_map(|run| run.columns());
        columns
            .skip(nth)
            .map(|column| format!("token {column}"))
            .next()
            .unwrap_or_default()
    }

    /// Writes all numbers, little-endian.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut row = Vec::new();
        for response in 0..self.layout.responses() {
            row.clear();
            match self.element {
                Element::F64 => self.row(response, &mut row, |value| value.to_le_bytes()),
                // The precision of the batch's tokens; `check` has seen that nothing becomes infinite.
                _ => self.row(response, &mut row, |value| (value as f32).to_le_bytes()),
            }
            out.write_all(&row)?;
        }
        Ok(())
    }

    fn row<const SIZE: usize>(
        &self,
        response: usize,
        row: &mut Vec<u8>,
        bytes: impl Fn(f64) -> [u8; SIZE],
    ) {
        let Some(width) = self.width else {
            if let Advantage::Response(values) = self.advantage {
                row.extend(bytes(values[response]));
            }
            return;
        };
        row.resize(width * SIZE, 0);
        let mut next = self.layout.tokens_of(response).start;
        for run in self.layout.runs(response) {
            let columns = run.columns();
            let cells = row[columns.start * SIZE..columns.end * SIZE].chunks_exact_mut(SIZE);
            match self.advantage {
                Advantage::Response(values) => {
                    let value = bytes(values[response]);
                    cells.for_each(|cell| cell.copy_from_slice(&value));
                }
                Advantage::Token(FloatBuffer::F32(values)) => {
                    let values = values[next..].iter().map(|&value| f64::from(value));
                    cells
                        .zip(values)
                        .for_each(|(cell, value)| cell.copy_from_slice(&bytes(value)));
                }
                Advantage::Token(FloatBuffer::F64(values)) => {
                    cells
                        .zip(&values[next..])
                        .for_each(|(cell, &value)| cell.copy_from_slice(&bytes(value)));
                }
            }
            next += columns.len();
        }
    }
}
