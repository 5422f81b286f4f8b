//! A Rust trainer's view: load a recipe, make a batch from the step's arrays, get an array of advantages.
//!
//!     cargo run --example embed

use advlab::{Batch, Host};
use ndarray::{Array1, Array2, array};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut recipe = Host::new().load("reinforce_pp")?;
    recipe.set_text("kl_beta", "0.01")?;
    let mut state = recipe.init()?;

    // What a trainer has after a rollout: 4 responses of up to 3 tokens to 2 prompts, padded.
    let reward: Array1<f32> = array![1.0, 0.0, 0.0, 1.0];
    let mask: Array2<u8> = array![[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]];
    let old_logp: Array2<f32> = array![
        [-0.5, -1.0, -0.1],
        [-0.7, -0.2, 0.0],
        [-2.0, 0.0, 0.0],
        [-0.3, -0.4, -0.9]
    ];
    let ref_logp: Array2<f32> = &old_logp - 0.05;

    // The big arrays are borrowed, not copied.
    let batch = Batch::builder()
        .groups([0, 0, 1, 1])
        .mask(mask.view())
        .response("reward", reward.view())
        .token("old_logp", old_logp.view())
        .token("ref_logp", ref_logp.view())
        .build()?;

    let outcome = recipe.advantage(&batch, &mut state)?;
    let advantage: Array2<f32> = outcome.advantage.to_padded();
    println!("{advantage:.3}");
    Ok(())
}
