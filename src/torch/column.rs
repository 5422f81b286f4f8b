//! Tensors of libtorch as the memory of columns and of results: computed with where they lie, and copied to the host once,
//! when somebody reads them there.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tch::kind::Element;
use tch::{Kind, Tensor};

use super::{Result, TorchError, to_vec};
use crate::batch::{Buffer, Layout, Owner, Padded, TokenValues};

/// A tensor that is a buffer's memory.
pub(crate) struct OnDevice<T> {
    /// A tensor is for one thread at a time.
    tensor: Mutex<Tensor>,
    /// Where the tensor is no padded column as it came: the layout whose tokens stand at the left of its rows, and are
    /// the buffer's numbers.
    rows: Option<Arc<Layout>>,
    length: usize,
    copy: OnceLock<Vec<T>>,
}

impl<T: Element + Copy> OnDevice<T> {
    /// The numbers are all of the tensor's, row by row; or of each row as many as the layout has tokens there.
    pub(crate) fn new(tensor: Tensor, rows: Option<Arc<Layout>>) -> Self {
        let length = (rows.as_ref()).map_or_else(|| tensor.numel(), |layout| layout.tokens());
        OnDevice {
            tensor: Mutex::new(tensor),
            rows,
            length,
            copy: OnceLock::new(),
        }
    }

    /// The tensor itself, which shares its memory.
    pub(crate) fn tensor(&self) -> Tensor {
        let tensor = self.tensor.lock();
        tensor
            .unwrap_or_else(PoisonError::into_inner)
            .shallow_clone()
    }

    /// The numbers on the host.
    ///
    /// # Errors
    /// [`TorchError`] where the device does not give them.
    pub(crate) fn read(&self) -> Result<&[T]> {
        if let Some(copy) = self.copy.get() {
            return Ok(copy);
        }
        let tensor = self.tensor();
        let mut values = to_vec(&tensor)?;
        if let Some(layout) = &self.rows {
            let width = values.len() / layout.responses().max(1);
            // In place: no token stands further right than before.
            for response in 0..layout.responses() {
                let tokens = layout.tokens_of(response);
                let row = response * width;
                values.copy_within(row..row + tokens.len(), tokens.start);
            }
            values.truncate(layout.tokens());
        }
        Ok(self.copy.get_or_init(|| values))
    }

    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        self.copy.get().is_some()
    }
}

impl<T: Element + Copy + Send + Sync + 'static> Owner<T> for OnDevice<T> {
    /// Panics where the device, which has computed the numbers, does not give them any more.
    fn as_slice(&self) -> &[T] {
        match self.read() {
            Ok(values) => values,
            Err(error) => panic!("a column on a device cannot be read: {error}"),
        }
    }

    fn length(&self) -> usize {
        self.length
    }
}

/// A padded token column [B, T] of a tensor on any device, float64, float32, float16 or bfloat16 (these two are computed
/// with as float32). The column shares the tensor's memory, so nobody may write into that any more; gradients do not
/// go into it.
///
/// # Errors
/// [`TorchError`] for another shape or kind.
pub fn column(tensor: &Tensor) -> Result<TokenValues> {
    let refused = |what: String| TorchError::Refused(what);
    let &[rows, columns] = &tensor.size()[..] else {
        let shape = tensor.size();
        return Err(refused(format!(
            "a token column is [responses, tokens], this tensor is {shape:?}"
        )));
    };
    // Sizes of tensors are not negative.
    let shape = (rows as usize, columns as usize);
    let tensor = tensor.f_detach()?;
    let column = match tensor.f_kind()? {
        Kind::Double => {
            let buffer = Buffer::new(OnDevice::<f64>::new(tensor, None));
            Padded::new(buffer, shape).map(TokenValues::F64)
        }
        Kind::Float | Kind::Half | Kind::BFloat16 => {
            let buffer = Buffer::new(OnDevice::<f32>::new(tensor, None));
            Padded::new(buffer, shape).map(TokenValues::F32)
        }
        kind => {
            return Err(refused(format!(
                "a token column is of a floating-point kind, this tensor is {kind:?}"
            )));
        }
    };
    match column {
        Some(column) => Ok(column),
        None => unreachable!("a tensor has as many numbers as its shape says"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_numbers_of_its_tensor_whatever_its_kind_and_strides() {
        let numbers = Tensor::from_slice(&[0.5f64, -1.25, 3.0, 65504.0, 0.0, 2.0]);
        let turned = numbers.view([3, 2]).tr();
        for kind in [Kind::Double, Kind::Float, Kind::Half, Kind::BFloat16] {
            let tensor = turned.to_kind(kind);
            let found: Vec<f64> = match column(&tensor).unwrap() {
                TokenValues::F64(array) => array.values(0, 0..3).collect(),
                TokenValues::F32(array) => array.values(0, 0..3).map(f64::from).collect(),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, [0.5, 3.0, 0.0], "{kind:?}");
        }
        let refused = column(&numbers).unwrap_err().to_string();
        assert!(refused.contains("this tensor is [6]"), "{refused}");
        let refused = column(&turned.to_kind(Kind::Int64))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("this tensor is Int64"), "{refused}");
    }
}
