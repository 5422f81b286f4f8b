//! Spreads an advantage over the rows of a padded tensor: its value where a token counts, 0 everywhere else.

use std::io::{self, Write};
use std::path::Path;

use super::element::Element;
use crate::batch::files::WriteError;
use crate::batch::{Batch, Computed, Layout, Level, TokenValues};

/// The name of the tensor in padded files.
pub(super) const NAME: &str = "advantages";

/// An advantage as a tensor, written row by row.
pub(in crate::batch::files) struct Spread<'a> {
    layout: &'a Layout,
    advantage: &'a Computed,
    /// T; `None` where the file has no tokens at all and the advantage is one of responses.
    width: Option<usize>,
    element: Element,
}

impl<'a> Spread<'a> {
    /// `width` is that of the file's token tensors, if it has any; `wide` is whether its numbers of responses are f64, which
    /// counts where it has no token column.
    pub(in crate::batch::files) fn new(
        batch: &'a Batch,
        advantage: &'a Computed,
        width: Option<usize>,
        wide: bool,
    ) -> Self {
        let layout: &Layout = batch.layout();
        let width = match advantage.level() {
            Level::Token => width.or(Some(layout.width())),
            _ => width,
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
            // What no token has is not written.
            let is_token = self.advantage.level() == Level::Token;
            let mut columns = self
                .layout
                .stretches(response)
                .flat_map(|(_, columns)| columns);
            let mut cells = match self.layout.tokens_of(response).len() {
                0 if self.width.is_none() => 0..1,
                length if is_token => 0..length,
                length => 0..length.min(1),
            };
            let Some(token) = cells.find(|&token| !holds(self.advantage.at(response, token)))
            else {
                continue;
            };
            let found = self.advantage.at(response, token);
            let column = columns.nth(token).filter(|_| is_token);
            let place = column.map(|column| format!(", token {column},"));
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
            row.extend(bytes(self.advantage.at(response, 0)));
            return;
        };
        row.resize(width * SIZE, 0);
        let (cells, _) = row.as_chunks_mut();
        let advantage = self.advantage;
        self.layout.scatter(response, cells, |token| {
            bytes(advantage.at_token(response, token))
        });
    }
}
