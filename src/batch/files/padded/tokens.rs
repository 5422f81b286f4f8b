//! The [B, T] tensors of a padded file as columns of tokens.

use ndarray::{Array2, ShapeBuilder};

use super::columns::Padded;
use super::element::Element;
use super::tensors::Tensor;
use crate::batch::files::names::{Reading, Role};
use crate::batch::files::{Dtype, Note, ReadError};
use crate::batch::layout::Tokens;
use crate::batch::{self, TokenValues};

impl Padded<'_> {
    /// A [B, T] tensor in row order.
    pub(super) fn tokens(&mut self, tensor: &Tensor) -> Result<TokenValues, ReadError> {
        let dtype = self.dtype.unwrap_or(match tensor.element {
            Element::F64 => Dtype::F64,
            _ => Dtype::F32,
        });
        match dtype {
            Dtype::F32 => Ok(self.arrange(tensor, Self::f32)?.into()),
            Dtype::F64 => Ok(self.arrange(tensor, Self::f64)?.into()),
        }
    }

    fn f32(&mut self, tensor: &Tensor) -> Result<Vec<f32>, ReadError> {
        self.reader.f32(tensor)
    }

    fn f64(&mut self, tensor: &Tensor) -> Result<Vec<f64>, ReadError> {
        self.reader.f64(tensor)
    }

    fn arrange<T: Clone>(
        &mut self,
        tensor: &Tensor,
        read: impl FnOnce(&mut Self, &Tensor) -> Result<Vec<T>, ReadError>,
    ) -> Result<Array2<T>, ReadError> {
        let values = read(self, tensor)?;
        // `find_width` has seen that there are two sizes.
        let dim = (tensor.shape[0], tensor.shape[1]);
        let array = match tensor.fortran {
            true => Array2::from_shape_vec(dim.f(), values)
                .map(|array| array.as_standard_layout().into_owned()),
            false => Array2::from_shape_vec(dim, values),
        };
        array.map_err(|error| self.wrong(tensor, tensor.describe(), format!("an array ({error})")))
    }

    /// NaN that counts makes every result of its group NaN: better said of the file than of the result.
    pub(super) fn check_finite(
        &mut self,
        reading: &Reading,
        tensor: &Tensor,
        values: &TokenValues,
        tokens: Option<&Tokens>,
    ) -> Result<(), ReadError> {
        let strays = match values {
            TokenValues::F32(array) => strays(array, f32::is_finite, tokens),
            TokenValues::F64(array) => strays(array, f64::is_finite, tokens),
            _ => None,
        };
        let Some((count, row, column)) = strays else {
            return Ok(());
        };
        let first = format!("response {row}, token {column}");
        if reading.role == Role::Token && self.saved.is_none() {
            let value = match values {
                TokenValues::F32(array) => f64::from(array.get(row, column)),
                TokenValues::F64(array) => array.get(row, column),
                _ => f64::NAN,
            };
            return Err(self.wrong(
                tensor,
                format!("{value} at {first}"),
                "a finite number where the mask is 1",
            ));
        }
        self.notes.push(Note::NotFinite {
            column: reading.ours.clone(),
            first,
            count,
        });
        Ok(())
    }
}

/// How many values that count are not finite, and the row and column of the first.
fn strays<T: batch::Element>(
    array: &batch::Padded<T>,
    finite: impl Fn(T) -> bool,
    tokens: Option<&Tokens>,
) -> Option<(usize, usize, usize)> {
    let mut first = None;
    let mut count = 0;
    let mut look = |row: usize, start: usize, values: &[T]| {
        for (column, &value) in values.iter().enumerate() {
            if !finite(value) {
                first.get_or_insert((row, start + column));
                count += 1;
            }
        }
    };
    let (rows, columns) = array.shape();
    for row in 0..rows {
        let Some(values) = array.row(row, 0..columns) else {
            continue;
        };
        match tokens {
            None => look(row, 0, values),
            Some(tokens) => {
                for run in tokens.runs(row) {
                    look(row, run.start as usize, &values[run.columns()]);
                }
            }
        }
    }
    first.map(|(row, column)| (count, row, column))
}
