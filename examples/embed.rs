//! Uses advlab as a Rust trainer does: the recipe follows its file, and each step's arrays give an array of advantages.
//!
//!     cargo run --example embed -- scripts/k_annealed.rhai    (edit the file while it runs)

use std::{env, thread, time::Duration};

use advlab::{Batch, Host, LiveRecipe};
use ndarray::{Array2, array};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = env::args().nth(1).unwrap_or("grpo".to_string());
    let mut live = LiveRecipe::watch(&Host::new(), &name, Default::default())?;
    for step in 0..10 {
        // The arrays of a trainer after a rollout: 4 responses to 2 prompts, padded to 3 tokens. `old_logp` is not copied.
        let mask = array![[1u8, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]];
        let old_logp: Array2<f32> = mask.mapv(|counts| -0.5 * f32::from(counts));
        let batch = Batch::builder()
            .groups([0, 0, 1, 1])
            .mask(mask.view())
            .response("reward", vec![1.0, 0.0, 0.0, 1.0])
            .token("old_logp", old_logp)
            .step(step);
        let done = live.step(&batch.build()?)?; // by the newest version that passed its checks
        let advantage: Array2<f32> = done.outcome.advantage.to_padded();
        println!("step {step}, {}:\n{advantage:.3}", done.loaded.version());
        done.events.iter().for_each(|event| println!("{event}"));
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
