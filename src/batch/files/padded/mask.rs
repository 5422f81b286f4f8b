//! Which tokens of a padded file count, and what is to be said of the others.

use super::columns::Padded;
use super::tensors::{Tensor, shape};
use crate::batch::TokenValues;
use crate::batch::files::names::Reading;
use crate::batch::files::{Note, ReadError};
use crate::batch::layout::Tokens;

impl Padded<'_> {
    /// Which tokens count.
    pub(super) fn mask(&mut self, tensor: &Tensor) -> Result<Tokens, ReadError> {
        if !tensor.element.is_number() {
            return Err(self.wrong(tensor, tensor.describe(), "numbers or booleans"));
        }
        let (rows, width) = (
            self.rows,
            self.width.as_ref().map_or(0, |(width, _)| *width),
        );
        let mut mask: Vec<bool> = Vec::new();
        let mut wrong = None;
        let mut numbers = Vec::new();
        self.reader.pieces(tensor, |bytes| {
            numbers.clear();
            tensor.element.push_f64(bytes, &mut numbers);
            for &value in &numbers {
                if value != 0.0 && value != 1.0 {
                    wrong.get_or_insert((mask.len(), value));
                }
                mask.push(value == 1.0);
            }
            Ok(())
        })?;
        let place = |row: usize, column: usize| match tensor.fortran {
            true => column * rows + row,
            false => row * width + column,
        };
        if let Some((at, value)) = wrong {
            let (row, column) = match tensor.fortran {
                true => (at % rows, at / rows),
                false => (at / width, at % width),
            };
            return Err(self.wrong(
                tensor,
                format!("{value} at response {row}, token {column}"),
                "1 for a token that counts or 0 for one that does not",
            ));
        }
        let mut tokens = Tokens::padded(width);
        for row in 0..rows {
            tokens.add((0..width).map(|column| mask[place(row, column)]));
        }
        Ok(tokens)
    }
}

/// What may be the mask of a file that has none by our names, and what to do.
pub(super) fn hint(readings: &[(Reading, &Tensor)], rows: usize, width: Option<usize>) -> String {
    // The masks that trainers call by name come first; `attention_mask` may mark the prompt too.
    const LIKELY: [&str; 5] = [
        "completion_mask",
        "action_mask",
        "loss_mask",
        "loss_masks",
        "attention_mask",
    ];
    let masks = || {
        readings.iter().map(|(_, tensor)| *tensor).filter(|tensor| {
            tensor.element.is_number() && tensor.shape.len() == 2 && tensor.shape[0] == rows
        })
    };
    let candidate = LIKELY
        .iter()
        .find_map(|name| masks().find(|tensor| tensor.name == *name))
        .or_else(|| masks().find(|tensor| tensor.name.contains("mask")));
    let (Some(tensor), Some(width)) = (candidate, width) else {
        return String::new();
    };
    let name = &tensor.name;
    match tensor.shape[1].checked_sub(width) {
        Some(0) => {
            format!("; if `{name}` says which tokens of a response do, say `--map mask={name}`")
        }
        Some(prompt) => format!(
            "; `{name}` is {}, {prompt} wider than the responses: if it is of prompt and response, as verl's is, its last {width} columns are the mask (`{name}[:, -{width}:]`, to be added to the file as `response_mask`)",
            shape(&tensor.shape)
        ),
        None => String::new(),
    }
}

/// What is to be said of responses that the mask leaves without a token.
pub(super) fn no_tokens(tokens: &Tokens) -> Option<Note> {
    let mut bare = (0..tokens.responses())
        .filter(|&row| tokens.row_length(row) > 0 && tokens.runs(row).is_empty());
    let first = bare.next()?;
    Some(Note::NoTokens {
        responses: 1 + bare.count(),
        first: format!("response {first}"),
    })
}

/// What is to be said of rewards that stand where the mask is 0. NaN there is what padding may be.
pub(super) fn masked_reward(
    tensor: &Tensor,
    values: &TokenValues,
    tokens: &Tokens,
) -> Option<Note> {
    let lost = |value: f64| value.is_finite() && value != 0.0;
    let find = |row: usize| match values {
        TokenValues::F32(array) => {
            outside(tokens, row).find(|&column| lost(f64::from(array.get(row, column))))
        }
        TokenValues::F64(array) => {
            outside(tokens, row).find(|&column| lost(array.get(row, column)))
        }
        _ => None,
    };
    let mut rows = (0..tokens.responses()).filter_map(|row| Some((row, find(row)?)));
    let (row, column) = rows.next()?;
    Some(Note::MaskedReward {
        field: tensor.name.clone(),
        responses: 1 + rows.count(),
        first: format!("response {row}, token {column}"),
    })
}

/// The columns of a row that do not count.
fn outside(tokens: &Tokens, row: usize) -> impl Iterator<Item = usize> + '_ {
    let runs = tokens.runs(row);
    let starts = std::iter::once(0).chain(runs.iter().map(|run| run.columns().end));
    let ends = runs.iter().map(|run| run.columns().start);
    let ends = ends.chain([tokens.row_length(row)]);
    starts.zip(ends).flat_map(|(start, end)| start..end)
}
