//! What a stage on the device notes down in a profile.

use crate::tensor::Tensor;
use crate::tensor::profile::{Operation, Profile, Stage, StageKind};

/// The times of a stage while it runs. On a GPU an operation's time is that of its launch; the wait for all of them is in
/// the stage's.
pub(super) struct Clock<'a> {
    profile: Option<&'a Profile>,
    started: f64,
    operations: Vec<Operation>,
}

impl<'a> Clock<'a> {
    pub(super) fn start(profile: Option<&'a Profile>) -> Clock<'a> {
        Clock {
            profile,
            started: profile.map_or(0.0, Profile::clock),
            operations: Vec::new(),
        }
    }

    /// Runs an operation that reads and writes so many bytes.
    pub(super) fn timed<R>(
        &mut self,
        tensor: &Tensor,
        (read, written): (usize, usize),
        run: impl FnOnce() -> R,
    ) -> R {
        let Some(profile) = self.profile else {
            return run();
        };
        let started = profile.clock();
        let result = run();
        self.operations.push(Operation {
            name: tensor.inner().prim.name(),
            origin: tensor.origin().cloned(),
            seconds: profile.clock() - started,
            read,
            written,
        });
        result
    }

    pub(super) fn end(self) {
        let (Some(profile), false) = (self.profile, self.operations.is_empty()) else {
            return;
        };
        profile.note(Stage {
            kind: StageKind::Libtorch,
            started: self.started,
            seconds: profile.clock() - self.started,
            read: self.operations.iter().map(|one| one.read).sum(),
            written: self.operations.iter().map(|one| one.written).sum(),
            operations: self.operations,
            blocks: Vec::new(),
        });
    }
}
