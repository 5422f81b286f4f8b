//! Where the time of a computation goes: by stage, and by the operation and line that asked for it.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::{Level, Origin};

/// The stages of computations, in their order, as an executor notes them down. Noting takes time itself: some 5 %.
#[derive(Debug)]
pub struct Profile {
    began: Instant,
    stages: Mutex<Vec<Stage>>,
}

/// A part of a computation that ran by itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stage {
    /// Whether it was one pass over the tokens through several operations; else one operation in full.
    pub is_pass: bool,
    /// The level of what it computed in full; of a pass, that of tokens.
    pub level: Level,
    /// When it began, in seconds of [`Profile::clock`].
    pub started: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The bytes of columns and token values that it read.
    pub read: usize,
    /// The bytes of token values that it wrote.
    pub written: usize,
    /// What it computed, with each operation's share of the seconds.
    pub operations: Vec<Operation>,
}

/// An operation of a stage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Operation {
    /// The operation, as scripts write it.
    pub name: &'static str,
    /// The line of the script that it stands in, where one does.
    pub origin: Option<Origin>,
    /// Its share of the stage's time, in seconds.
    pub seconds: f64,
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            began: Instant::now(),
            stages: Mutex::default(),
        }
    }
}

impl Profile {
    /// Seconds since the profile was made.
    pub fn clock(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Notes down a stage that has just ended; when it began follows from that.
    pub(super) fn note(&self, stage: Stage) {
        let started = self.clock() - stage.seconds;
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        stages.push(Stage { started, ..stage });
    }

    /// The stages since this was last asked for.
    pub fn take(&self) -> Vec<Stage> {
        std::mem::take(&mut self.stages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
