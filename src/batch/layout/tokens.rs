//! The tokens that count, row by row, as stretches of neighbours.

use std::ops::Range;

/// Neighbouring tokens of one response that all count, by their columns in the padded row (or the ragged array).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Column of the first token.
    pub start: u32,
    /// Number of tokens.
    pub len: u32,
}

impl Run {
    /// The columns of the run.
    pub fn columns(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The lengths of the rows that the tokens came in, for writing an advantage back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    Padded(usize),
    Ragged(Vec<u32>),
}

/// The columns of the tokens that count, row by row; a [`Layout`] is built from these and the groups.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    pub(super) runs: Vec<Run>,
    pub(super) run_start: Vec<usize>,
    pub(super) rows: Rows,
}

impl Tokens {
    /// Rows padded to `width`; `add` follows for each.
    pub(crate) fn padded(width: usize) -> Self {
        Tokens {
            runs: Vec::new(),
            run_start: vec![0],
            rows: Rows::Padded(width),
        }
    }

    pub(crate) fn ragged() -> Self {
        Tokens {
            rows: Rows::Ragged(Vec::new()),
            ..Tokens::padded(0)
        }
    }

    /// Adds a response by its mask. The caller has checked that rows stay below 2^32 tokens.
    pub(crate) fn add(&mut self, mask: impl ExactSizeIterator<Item = bool>) {
        let length = mask.len();
        let mut open: Option<u32> = None;
        for (column, counts) in mask.chain([false]).enumerate() {
            match (counts, open) {
                (true, None) => open = Some(column as u32),
                (false, Some(start)) => {
                    self.runs.push(Run {
                        start,
                        len: column as u32 - start,
                    });
                    open = None;
                }
                _ => {}
            }
        }
        self.close_row(length);
    }

    /// Adds a response by the stretches of its row that count.
    pub(crate) fn add_runs(&mut self, runs: &[Run], length: usize) {
        self.runs.extend_from_slice(runs);
        self.close_row(length);
    }

    /// Adds a response of `length` tokens that all count.
    pub(crate) fn add_full(&mut self, length: usize) {
        if length > 0 {
            self.runs.push(Run {
                start: 0,
                len: length as u32,
            });
        }
        self.close_row(length);
    }

    pub(super) fn close_row(&mut self, length: usize) {
        self.run_start.push(self.runs.len());
        if let Rows::Ragged(lengths) = &mut self.rows {
            lengths.push(length as u32);
        }
    }

    /// The length of a row, tokens that do not count included.
    pub(crate) fn row_length(&self, response: usize) -> usize {
        match &self.rows {
            Rows::Padded(width) => *width,
            Rows::Ragged(lengths) => lengths[response] as usize,
        }
    }

    /// The stretches of a row that count.
    pub(crate) fn runs(&self, response: usize) -> &[Run] {
        &self.runs[self.run_start[response]..self.run_start[response + 1]]
    }

    /// T, where the rows are padded.
    pub(crate) fn width(&self) -> Option<usize> {
        match &self.rows {
            Rows::Padded(width) => Some(*width),
            Rows::Ragged(_) => None,
        }
    }

    pub(crate) fn responses(&self) -> usize {
        self.run_start.len() - 1
    }
}
