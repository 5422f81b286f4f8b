//! The parts of an embedded RLVR run: the tasks that give prompts and verify responses, and the policies that learn.

pub mod policy;
pub mod random;
pub mod task;
