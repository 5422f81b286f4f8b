//! A small batch that the documentation's examples run on.

use super::{Batch, FloatBuffer};

/// The token columns, response by response.
const TOKENS: [(&str, [f64; 9]); 5] = [
    (
        "old_logp",
        [-0.5, -0.75, -1.0, -0.5, -0.25, -1.5, -0.5, -0.5, -0.25],
    ),
    (
        "ref_logp",
        [-0.75, -0.75, -1.5, -0.25, 0.0, -1.0, -0.625, -0.375, -0.75],
    ),
    (
        "logp",
        [-0.25, -0.5, -1.25, -0.5, -0.5, -1.0, -0.75, -0.5, -0.5],
    ),
    ("value", [0.5, 0.75, 0.5, 0.25, 0.25, 0.5, 0.25, 0.0, 0.25]),
    ("entropy", [0.5, 0.75, 1.0, 0.5, 0.25, 1.5, 0.5, 0.5, 0.25]),
];

impl Batch {
    /// Five responses to two prompts, `a` (three, two of them right) and `b` (two, both wrong), with all usual columns.
    ///
    /// Every example of the documentation runs on it.
    pub fn example() -> Batch {
        let batch = Batch::builder()
            .groups(["a", "a", "a", "b", "b"])
            .lengths([2, 3, 1, 2, 1])
            .response("reward", vec![1.0, 0.0, 1.0, 0.0, 0.0]);
        let built = TOKENS.iter().fold(batch, |batch, (name, values)| {
            batch.token(*name, FloatBuffer::from(values.to_vec()))
        });
        match built.build() {
            Ok(batch) => batch,
            Err(error) => unreachable!("the example batch is right: {error}"),
        }
    }
}
