//! Where the time of a computation goes: by stage, and by the operation and line that asked for it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::{Origin, Value};
use crate::batch::Layout;

/// The stages of computations, in their order, as an executor notes them down.
#[derive(Debug)]
pub struct Profile {
    began: Instant,
    detail: AtomicU8,
    /// The nanoseconds that looking at the clock takes.
    of_clock: u64,
    stages: Mutex<Vec<Stage>>,
}

/// How closely a profile looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Detail {
    /// Nothing is noted down.
    Nothing,
    /// Stages: noting these down takes no time to speak of.
    Stages,
    /// Stages, with the share that each operation of a pass has in its time. To find it out, each is timed in each tile,
    /// and passes take longer; what looking at the clock takes is not in the shares.
    Operations,
}

/// A part of a computation that ran by itself.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What it was.
    pub kind: StageKind,
    /// When it began, in seconds of [`Profile::clock`].
    pub started: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The bytes of columns and values that it read.
    pub read: usize,
    /// The bytes of values that it wrote.
    pub written: usize,
    /// What it computed.
    pub operations: Vec<Operation>,
    /// When each thread was at work on a pass.
    pub blocks: Vec<Busy>,
}

/// What a stage was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// One pass over the tokens through several operations, tile by tile.
    Pass,
    /// One operation in full, as the naive executor does it. Of token values or positions in the fused executor, why it
    /// did not go by tiles.
    InFull(Option<&'static str>),
    /// Values that were computed before, written into a padded array.
    Padding,
}

/// An operation of a stage.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The operation, as scripts write it.
    pub name: &'static str,
    /// The line of the script that it stands in, where one does.
    pub origin: Option<Origin>,
    /// Its share of the stage's time, in seconds; of a pass 0 where [`Detail`] is stages.
    pub seconds: f64,
    /// The bytes that the stage read for it first.
    pub read: usize,
    /// The bytes of its values that the stage wrote.
    pub written: usize,
}

/// When a thread was at work on a block of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// The thread, from 0.
    pub thread: usize,
    /// When it began, in seconds of [`Profile::clock`].
    pub started: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Profile {
    /// A profile that has nothing in it yet.
    pub fn new(detail: Detail) -> Profile {
        let look = |_| Instant::now().elapsed().as_nanos() as u64;
        Profile {
            began: Instant::now(),
            detail: AtomicU8::new(detail as u8),
            of_clock: (0..100).map(look).min().unwrap_or(0),
            stages: Mutex::default(),
        }
    }

    /// Looks closer, or less closely, from here on.
    pub fn set_detail(&self, detail: Detail) {
        self.detail.store(detail as u8, Ordering::Relaxed);
    }

    fn is(&self, detail: Detail) -> bool {
        self.detail.load(Ordering::Relaxed) == detail as u8
    }

    /// Whether anything is noted down.
    pub(super) fn is_on(&self) -> bool {
        !self.is(Detail::Nothing)
    }

    /// Seconds since the profile was made.
    pub fn clock(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// What looking at the clock takes, in nanoseconds; `None` where no operation is to be timed by itself.
    pub(super) fn of_clock(&self) -> Option<u64> {
        self.is(Detail::Operations).then_some(self.of_clock)
    }

    pub(super) fn note(&self, stage: Stage) {
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        stages.push(stage);
    }

    /// Notes down that values were written into a padded array.
    pub(super) fn note_padding(&self, started: f64, values: &Value, layout: &Layout) {
        self.note(Stage {
            kind: StageKind::Padding,
            started,
            seconds: self.clock() - started,
            read: values.buffer().bytes(),
            written: layout.responses() * layout.width() * size_of::<f32>(),
            operations: Vec::new(),
            blocks: Vec::new(),
        });
    }

    /// The stages since this was last asked for.
    pub fn take(&self) -> Vec<Stage> {
        std::mem::take(&mut self.stages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
