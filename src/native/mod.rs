//! Kernels: Rust code that computes the losses of some built-ins, with the same bits as their scripts.
//!
//! A kernel belongs to the exact text of the shipped script, including its imports. An edited copy is another version, and runs
//! as a script. A kernel declines inputs that it does not support (some settings, masks with holes, columns of an unusual kind)
//! and results that are not finite. The script runs in these cases, so results, errors and notes are the same as without
//! kernels.

mod inputs;
mod pacs;
mod ppo_clip;

use std::sync::Arc;

use crate::script::Kernel;
pub use crate::script::{Mode, Native};

/// The built-ins that have a kernel for their loss, each with the kernels for f32 and for f64.
const KERNELS: [(&str, [Kernel; 2]); 2] = [
    ("ppo_clip", [ppo_clip::loss::<f32>, ppo_clip::loss::<f64>]),
    ("pacs", [pacs::loss::<f32>, pacs::loss::<f64>]),
];

impl Native {
    /// Returns all kernels, to be used in the given mode.
    pub fn new(mode: Mode) -> Native {
        Native {
            kernels: &KERNELS,
            mode,
            known: Arc::default(),
        }
    }
}
