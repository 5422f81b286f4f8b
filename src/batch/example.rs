//! A small batch that the documentation's examples run on.

use super::Batch;

impl Batch {
    /// Five responses to two prompts, `a` (three, two of them right) and `b` (two, both wrong), with all usual columns.
    ///
    /// Every example of the documentation runs on it.
    pub fn example() -> Batch {
        let built = Batch::builder()
            .groups(["a", "a", "a", "b", "b"])
            .response("reward", vec![1.0, 0.0, 1.0, 0.0, 0.0])
            .ragged("old_logp", EXAMPLE_OLD_LOGP)
            .ragged("ref_logp", EXAMPLE_REF_LOGP)
            .ragged("logp", EXAMPLE_LOGP)
            .ragged("value", EXAMPLE_VALUE)
            .ragged("entropy", EXAMPLE_ENTROPY)
            .build();
        match built {
            Ok(batch) => batch,
            Err(error) => unreachable!("the example batch is right: {error}"),
        }
    }
}

const EXAMPLE_OLD_LOGP: [&[f64]; 5] = [
    &[-0.5, -0.75],
    &[-1.0, -0.5, -0.25],
    &[-1.5],
    &[-0.5, -0.5],
    &[-0.25],
];
const EXAMPLE_REF_LOGP: [&[f64]; 5] = [
    &[-0.75, -0.75],
    &[-1.5, -0.25, 0.0],
    &[-1.0],
    &[-0.625, -0.375],
    &[-0.75],
];
const EXAMPLE_LOGP: [&[f64]; 5] = [
    &[-0.25, -0.5],
    &[-1.25, -0.5, -0.5],
    &[-1.0],
    &[-0.75, -0.5],
    &[-0.5],
];
const EXAMPLE_VALUE: [&[f64]; 5] = [
    &[0.5, 0.75],
    &[0.5, 0.25, 0.25],
    &[0.5],
    &[0.25, 0.0],
    &[0.25],
];
const EXAMPLE_ENTROPY: [&[f64]; 5] = [
    &[0.5, 0.75],
    &[1.0, 0.5, 0.25],
    &[1.5],
    &[0.5, 0.5],
    &[0.25],
];
