//! Token columns that come as rows of their own length each.

use crate::batch::{Buffer, FloatBuffer, Layout};

/// The rows of a column one after another.
#[derive(Clone, Debug)]
pub(super) struct Ragged {
    starts: Vec<usize>,
    values: FloatBuffer,
}

impl Ragged {
    pub(super) fn new<T: Clone, R: AsRef<[T]>>(rows: impl IntoIterator<Item = R>) -> Self
    where
        FloatBuffer: From<Vec<T>>,
    {
        let mut starts = vec![0];
        let mut values: Vec<T> = Vec::new();
        for row in rows {
            values.extend_from_slice(row.as_ref());
            starts.push(values.len());
        }
        let values = values.into();
        Ragged { starts, values }
    }

    /// Rows that begin at `starts`, the end of the last one included.
    pub(super) fn of_rows(starts: Vec<usize>, values: FloatBuffer) -> Self {
        Ragged { starts, values }
    }

    pub(super) fn responses(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn length(&self, response: usize) -> usize {
        self.starts[response + 1] - self.starts[response]
    }

    /// Only the tokens that count.
    pub(super) fn compact(self, layout: &Layout) -> FloatBuffer {
        if self.values.len() == layout.tokens() {
            return self.values;
        }
        match &self.values {
            FloatBuffer::F32(values) => FloatBuffer::F32(self.pick(values, layout)),
            FloatBuffer::F64(values) => FloatBuffer::F64(self.pick(values, layout)),
        }
    }

    fn pick<T: Copy + Send + Sync>(&self, values: &[T], layout: &Layout) -> Buffer<T> {
        let mut kept = Vec::with_capacity(layout.tokens());
        for response in 0..layout.responses() {
            let row = &values[self.starts[response]..self.starts[response + 1]];
            for run in layout.runs(response) {
                kept.extend_from_slice(&row[run.columns()]);
            }
        }
        kept.into()
    }
}
