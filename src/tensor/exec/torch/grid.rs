//! The tokens of a layout as rows [B, L] of a tensor: each response's at the left, in their order, whatever holes its mask
//! has. What stands to the right of them is never looked at.

use std::sync::Arc;

use tch::kind::Element;
use tch::{Device, Kind, Tensor};

use crate::batch::{Buffer, FloatBuffer, Layout, TokenValues};
use crate::tensor::exec::Precision;
use crate::tensor::exec::elementwise::column;
use crate::tensor::{Guard, TensorError};
use crate::torch::{self, OnDevice, Result};

pub(super) struct Grid {
    pub(super) layout: Arc<Layout>,
    pub(super) device: Device,
    /// L: the tokens of the longest response.
    width: usize,
    /// [B, L]: where there is a token.
    pub(super) mask: Tensor,
    /// [B, L]: where there is a response's last one.
    last: Tensor,
}

impl Grid {
    /// The grid of a layout that has tokens.
    pub(super) fn new(layout: &Arc<Layout>, device: Device) -> Result<Grid> {
        let lengths = (0..layout.responses()).map(|response| layout.tokens_of(response).len());
        let lengths: Vec<i64> = lengths.map(|length| length as i64).collect();
        let width = lengths.iter().max().map_or(0, |&longest| longest as usize);
        let columns = Tensor::f_arange(width as i64, (Kind::Int64, device))?;
        let lengths = torch::indices(&lengths, device)?.f_unsqueeze(1)?;
        Ok(Grid {
            layout: layout.clone(),
            device,
            width,
            mask: columns.f_lt_tensor(&lengths)?,
            last: columns.f_eq_tensor(&lengths.f_sub_scalar(1)?)?,
        })
    }

    /// [B, L].
    pub(super) fn shape(&self) -> [i64; 2] {
        [self.layout.responses() as i64, self.width as i64]
    }

    /// How many bytes a tensor of f64s over the grid has.
    pub(super) fn bytes(&self) -> usize {
        self.layout.responses() * self.width * size_of::<f64>()
    }

    /// x where there is a token, and another number elsewhere.
    pub(super) fn masked(&self, x: &Tensor, other: f64) -> Result<Tensor> {
        Ok(x.f_where_scalarother(&self.mask, other)?)
    }

    /// x [B, 1] on the last token of each response, 0 on the others.
    pub(super) fn at_last_token(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_where_scalarother(&self.last, 0.0)?)
    }

    /// The next token's value, and a number after the last.
    pub(super) fn next(&self, x: &Tensor, fill: f64) -> Result<Tensor> {
        let shifted = x.f_expand(self.shape(), false)?.f_roll([-1], [1])?;
        Ok(shifted.f_where_scalarother(&self.last.f_logical_not()?, fill)?)
    }

    /// The previous token's value, and a number before the first.
    pub(super) fn prev(&self, x: &Tensor, fill: f64) -> Result<Tensor> {
        let [rows, width] = self.shape();
        let first = Tensor::f_full([rows, 1], fill, (x.f_kind()?, self.device))?;
        let before = x.f_expand(self.shape(), false)?.f_narrow(1, 0, width - 1)?;
        Ok(Tensor::f_cat(&[first, before], 1)?)
    }

    /// A column: where it lies if that is a tensor, else copied to the device.
    pub(super) fn column(
        &self,
        values: &TokenValues,
        guard: &Guard,
    ) -> std::result::Result<Result<Tensor>, TensorError> {
        if let Some(tensor) = of_column(values) {
            return Ok(self.packed(&tensor));
        }
        let values = column(values, &self.layout, guard)?;
        Ok(self.tokens(&values))
    }

    /// A padded column [B, T] as the grid has it.
    fn packed(&self, padded: &Tensor) -> Result<Tensor> {
        let padded = padded.f_to_device(self.device)?;
        let (layout, width) = (&self.layout, self.width);
        let starts_at_0 = |response| match layout.runs(response) {
            [] => true,
            [run] => run.start == 0,
            _ => false,
        };
        if (0..layout.responses()).all(starts_at_0) {
            return Ok(padded.f_narrow(1, 0, width as i64)?);
        }
        let mut columns = vec![0; layout.responses() * width];
        for response in 0..layout.responses() {
            let runs = layout.runs(response).iter();
            let row = &mut columns[response * width..];
            row.iter_mut()
                .zip(runs.flat_map(|run| run.columns()))
                .for_each(|(index, column)| *index = column as i64);
        }
        let columns = torch::indices(&columns, self.device)?;
        Ok(padded.f_gather(1, &columns.f_view(self.shape())?, false)?)
    }

    /// Values of tokens, response by response.
    pub(super) fn tokens(&self, values: &FloatBuffer) -> Result<Tensor> {
        match (of_buffer(values), values) {
            (Some(tensor), _) => Ok(tensor.f_to_device(self.device)?),
            (None, FloatBuffer::F32(values)) => self.rows(values),
            (None, FloatBuffer::F64(values)) => self.rows(values),
        }
    }

    fn rows<T: Precision + Element>(&self, values: &[T]) -> Result<Tensor> {
        let mut rows = vec![T::ZERO; self.layout.responses() * self.width];
        for (response, row) in rows.chunks_mut(self.width).enumerate() {
            let tokens = self.layout.tokens_of(response);
            row[..tokens.len()].copy_from_slice(&values[tokens]);
        }
        let rows = Tensor::f_from_slice(&rows)?.f_view(self.shape())?;
        Ok(rows.f_to_device(self.device)?)
    }

    /// A tensor's tokens, response by response, left where they are until somebody reads them.
    pub(super) fn buffer(&self, tensor: &Tensor) -> Result<FloatBuffer> {
        let (tensor, layout) = (tensor.f_expand(self.shape(), false)?, self.layout.clone());
        Ok(match tensor.f_kind()? {
            Kind::Double => FloatBuffer::F64(Buffer::new(OnDevice::new(tensor, Some(layout)))),
            _ => FloatBuffer::F32(Buffer::new(OnDevice::new(tensor, Some(layout)))),
        })
    }
}

/// The tensor that a column is.
pub(in crate::tensor::exec) fn of_column(values: &TokenValues) -> Option<Tensor> {
    match values {
        TokenValues::F32(array) => Some(array.as_buffer()?.owner::<OnDevice<f32>>()?.tensor()),
        TokenValues::F64(array) => Some(array.as_buffer()?.owner::<OnDevice<f64>>()?.tensor()),
        _ => None,
    }
}

/// The tensor that has computed values.
pub(super) fn of_buffer(values: &FloatBuffer) -> Option<Tensor> {
    match values {
        FloatBuffer::F32(values) => Some(values.owner::<OnDevice<f32>>()?.tensor()),
        FloatBuffer::F64(values) => Some(values.owner::<OnDevice<f64>>()?.tensor()),
    }
}

/// Copies values that a device has to the host, where it has any, so that reading them there cannot fail.
pub(super) fn fetch(values: &FloatBuffer) -> Result<()> {
    match values {
        FloatBuffer::F32(values) => values.owner::<OnDevice<f32>>().map(|o| o.read().map(drop)),
        FloatBuffer::F64(values) => values.owner::<OnDevice<f64>>().map(|o| o.read().map(drop)),
    }
    .unwrap_or(Ok(()))
}
