//! Files of rollouts: what reads, what is refused, what is noted, and that what is written reads back the same.

mod dumps;
mod odd;
mod padded;
mod properties;
mod rollouts;
mod wrong;

use advlab::batch::{Batch, Computed, FloatBuffer, Level};
use advlab::files::Rollouts;

/// An advantage of one number a response.
fn per_response(rollouts: &Rollouts, values: &[f64]) -> Computed {
    let mut layout = rollouts.batch.layout().clone();
    if layout.responses() != values.len() {
        // That of another batch.
        let other = Batch::builder().groups(0..values.len() as i64).build();
        layout = other.expect("a batch of groups").layout().clone();
    }
    Computed::new(layout, Level::Response, values.to_vec())
}

/// An advantage of one number for each token that counts.
fn per_token(rollouts: &Rollouts, values: &FloatBuffer) -> Computed {
    let layout = rollouts.batch.layout().clone();
    Computed::new(layout, Level::Token, values.clone())
}
