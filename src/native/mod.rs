//! Kernels: Rust code in place of the losses of some built-ins, with the same bits as their scripts.
//!
//! A kernel belongs to the exact text of the shipped script, imports included: an edited copy is another version, and runs as a
//! script. A kernel declines inputs that it does not support (rows with holes, columns of an unusual kind, values that are not
//! finite). Then the script runs, so that results, errors and notes are always the same as the script's.

mod inputs;
mod pacs;
mod ppo_clip;

use std::sync::Arc;

use crate::script::Kernel;
pub use crate::script::{Mode, Native};

/// The built-ins whose loss has a kernel.
const KERNELS: [(&str, Kernel); 2] = [("ppo_clip", ppo_clip::loss), ("pacs", pacs::loss)];

impl Native {
    /// All kernels, used in the given mode.
    pub fn new(mode: Mode) -> Native {
        Native {
            kernels: &KERNELS,
            mode,
            known: Arc::default(),
        }
    }
}
