//! Small degenerate batches in the likeness of a run's own: what a recipe may meet before long.

use crate::batch::{Batch, TokenValues};

/// Groups that are taken over: two, so that a mean over the batch is not one over the group, and one to spare.
const GROUPS: usize = 3;
/// Responses of a group that are taken over. A run's groups have their own size here, as `k` is chosen to go with it.
const GROUP_SIZE: usize = 256;
/// Tokens of a response that are taken over.
const TOKENS: usize = 8;

pub(super) const SHAPES: [Shape; 5] = [
    Shape {
        right: Some(true),
        is_common: true,
        ..Shape::new("a batch whose responses are all right")
    },
    Shape {
        right: Some(false),
        is_common: true,
        ..Shape::new("a batch whose responses are all wrong")
    },
    Shape {
        alone: true,
        ..Shape::new("groups of one")
    },
    Shape {
        length: |_, _| 1,
        ..Shape::new("one-token responses")
    },
    Shape {
        length: |index, own| if index == 0 { 0 } else { own },
        ..Shape::new("a response without tokens")
    },
];

/// The columns that most runs have: for checks before a run's first batch.
pub(super) fn usual() -> Option<Batch> {
    let tokens: [&[f64]; 4] = [&[-0.5, -0.25], &[-1.0], &[-0.75, -0.5, -0.25], &[-0.5]];
    let columns = ["logp", "old_logp", "ref_logp", "entropy", "value"];
    let builder = Batch::builder()
        .groups([0, 0, 1, 1])
        .response("reward", vec![1.0, 0.0, 0.0, 1.0])
        .response("correct", vec![1.0, 0.0, 0.0, 1.0]);
    columns
        .iter()
        .fold(builder, |builder, column| builder.ragged(*column, tokens))
        .build()
        .ok()
}

/// A degenerate batch, but for the columns and the sizes of the run that it is made for.
pub(super) struct Shape {
    /// As in "fails on ...".
    pub(super) name: &'static str,
    /// Whether every run meets batches or groups like it, or only some kinds of runs do.
    pub(super) is_common: bool,
    /// Whether all responses are right, or wrong; `None` leaves them.
    right: Option<bool>,
    /// Whether each response is a group of its own.
    alone: bool,
    /// The number of tokens of the response at an index that has had so many.
    length: fn(usize, usize) -> usize,
}

impl Shape {
    const fn new(name: &'static str) -> Shape {
        Shape {
            name,
            is_common: false,
            right: None,
            alone: false,
            length: |_, own| own,
        }
    }

    /// The batch in the likeness of `like`, with its columns, its group sizes and values of its own; `None` where the
    /// shape has none, as that of a run without tokens.
    pub(super) fn batch(&self, like: &Batch) -> Option<Batch> {
        let layout = like.layout();
        let taken: Vec<(usize, usize)> = (0..layout.groups().min(GROUPS))
            .flat_map(|group| {
                let members = layout.members(group).iter().take(GROUP_SIZE);
                members.map(move |&response| (group, response as usize))
            })
            .collect();
        let own = |response: usize| layout.tokens_of(response).len();
        let lengths: Vec<usize> = taken
            .iter()
            .enumerate()
            .map(|(index, &(_, response))| (self.length)(index, own(response).min(TOKENS)))
            .collect();
        let groups = taken.iter().enumerate();
        let mut builder = Batch::builder()
            .groups(groups.map(|(index, &(group, _))| if self.alone { index } else { group }))
            .step(like.step());
        if layout.tokens() > 0 {
            builder = builder.lengths(lengths.iter().copied());
        }
        for (name, values) in like.response_columns() {
            let value =
                |(&(_, response), &length): (&(usize, usize), &usize)| match (name, self.right) {
                    ("reward" | "correct", Some(right)) => f64::from(u8::from(right)),
                    // A length that counts the tokens counts those that are left; another one stays.
                    ("length", _) if values[response] == own(response) as f64 => length as f64,
                    _ => values[response],
                };
            let column: Vec<f64> = taken.iter().zip(&lengths).map(value).collect();
            builder = builder.response(name, column);
        }
        for (name, values) in like.token_columns() {
            let mut rows = Vec::new();
            for (&(_, response), &length) in taken.iter().zip(&lengths) {
                let mut row = tokens(values, like, response, length);
                if let (("token_reward", Some(right)), Some(last)) =
                    ((name, self.right), row.len().checked_sub(1))
                {
                    row.fill(0.0);
                    row[last] = f64::from(u8::from(right));
                }
                rows.push(row);
            }
            builder = if values.is_f64() {
                builder.ragged(name, rows)
            } else {
                // It was f32 before it was widened.
                let narrow = |row: &Vec<f64>| row.iter().map(|&value| value as f32).collect();
                builder.ragged(name, rows.iter().map(narrow).collect::<Vec<Vec<f32>>>())
            };
        }
        builder.build().ok()
    }
}

/// The first tokens of a response that count; where it has fewer, its last one again, or 0.
fn tokens(values: &TokenValues, like: &Batch, response: usize, length: usize) -> Vec<f64> {
    let mut row: Vec<f64> = values
        .of_response(like.layout(), response)
        .take(length)
        .collect();
    let last = row.last().copied().unwrap_or(0.0);
    row.resize(length, last);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_the_columns_and_group_sizes_of_the_run() {
        let padded = ndarray::array![[-0.1f32, -0.2, 9.0], [-0.3, 9.0, 9.0], [-0.4, -0.5, -0.6]];
        let mask = ndarray::array![[1, 1, 0], [1, 0, 0], [1, 1, 1]];
        let like = Batch::builder()
            .groups(["a", "b", "a"])
            .mask(mask.view())
            .response("reward", vec![1.0, 0.0, 0.5])
            .response("length", vec![2.0, 1.0, 700.0])
            .token("old_logp", padded.view())
            .build()
            .unwrap();
        let all = SHAPES.map(|shape| {
            let batch = shape.batch(&like).unwrap();
            let columns: Vec<&str> = batch.columns().collect();
            assert_eq!(
                columns,
                like.columns().collect::<Vec<_>>(),
                "{}",
                shape.name
            );
            assert!(!batch.token_column("old_logp").unwrap().is_f64());
            batch
        });
        let right = &all[0];
        assert_eq!(right.response_column("reward").unwrap(), [1.0; 3]);
        assert_eq!(right.response_column("length").unwrap(), [2.0, 700.0, 1.0]);
        let layout = right.layout();
        let sizes: Vec<usize> = (0..2).map(|group| layout.members(group).len()).collect();
        assert_eq!(sizes, [2, 1]);
        assert_eq!(layout.tokens(), like.layout().tokens());
        assert_eq!(all[1].response_column("reward").unwrap(), [0.0; 3]);
        assert_eq!(all[2].layout().groups(), 3);
        assert_eq!(all[3].layout().tokens(), 3);
        assert_eq!(all[4].layout().tokens_of(0).len(), 0);
        assert_eq!(all[4].response_column("length").unwrap()[0], 0.0);
    }

    #[test]
    fn a_batch_without_tokens_has_them_too() {
        let like = Batch::builder()
            .groups([0, 0])
            .response("reward", vec![1.0, 0.0])
            .build()
            .unwrap();
        assert!(SHAPES.iter().all(|shape| shape.batch(&like).is_some()));
        assert!(usual().is_some());
    }
}
