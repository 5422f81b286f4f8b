//! Token columns that come as rows of their own length each.

use std::sync::Arc;

use self::sealed::RaggedValues;
use crate::batch::{Floats, Layout};

/// The rows of a column one after another.
#[derive(Clone, Debug)]
pub(super) struct Ragged {
    starts: Vec<usize>,
    values: RaggedValues,
}

/// An element type of ragged rows: f32 or f64.
pub trait RaggedValue: Copy + sealed::Sealed {}
impl RaggedValue for f32 {}
impl RaggedValue for f64 {}

mod sealed {
    #[derive(Clone, Debug)]
    pub enum RaggedValues {
        F32(Vec<f32>),
        F64(Vec<f64>),
    }

    pub trait Sealed: Sized {
        fn wrap(values: Vec<Self>) -> RaggedValues;
    }
    impl Sealed for f32 {
        fn wrap(values: Vec<f32>) -> RaggedValues {
            RaggedValues::F32(values)
        }
    }
    impl Sealed for f64 {
        fn wrap(values: Vec<f64>) -> RaggedValues {
            RaggedValues::F64(values)
        }
    }
}

impl Ragged {
    pub(super) fn new<T: RaggedValue, R: AsRef<[T]>>(rows: impl IntoIterator<Item = R>) -> Self {
        let mut starts = vec![0];
        let mut values: Vec<T> = Vec::new();
        for row in rows {
            values.extend_from_slice(row.as_ref());
            starts.push(values.len());
        }
        let values = T::wrap(values);
        Ragged { starts, values }
    }

    /// Number of rows.
    pub(super) fn responses(&self) -> usize {
        self.starts.len() - 1
    }

    /// The length of a row.
    pub(super) fn length(&self, response: usize) -> usize {
        self.starts[response + 1] - self.starts[response]
    }

    /// Only the tokens that count.
    pub(super) fn compact(self, layout: &Layout) -> Floats {
        fn pick<T: Copy>(values: Vec<T>, starts: &[usize], layout: &Layout) -> Arc<Vec<T>> {
            if values.len() == layout.tokens() {
                return values.into();
            }
            let mut kept = Vec::with_capacity(layout.tokens());
            for response in 0..layout.responses() {
                let row = &values[starts[response]..starts[response + 1]];
                for run in layout.runs(response) {
                    kept.extend_from_slice(&row[run.columns()]);
                }
            }
            kept.into()
        }
        match self.values {
            RaggedValues::F32(values) => Floats::F32(pick(values, &self.starts, layout)),
            RaggedValues::F64(values) => Floats::F64(pick(values, &self.starts, layout)),
        }
    }
}
