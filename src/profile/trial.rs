//! One run of a recipe, taken apart.

use std::time::Instant;

use crate::batch::{Batch, Computed};
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, Recipe};
use crate::tensor::profile::{Profile, Stage};

/// One run of all hooks of a recipe on a batch.
#[derive(Debug)]
pub(super) struct Trial {
    /// What it did, one after the other.
    pub(super) parts: Vec<Part>,
    /// What the executor did meanwhile, where it noted that down.
    pub(super) stages: Vec<Stage>,
    /// The most bytes that tensors and padded arrays held at once, beside the batch.
    pub(super) peak: usize,
}

/// A hook, or writing its result.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    /// In seconds, from the beginning of the profile or of the run.
    pub(super) started: f64,
    pub(super) seconds: f64,
    /// The bytes that writing a padded array reads and writes; `None` for a hook.
    pub(super) moved: Option<(usize, usize)>,
}

impl Trial {
    /// Runs the recipe once.
    pub(super) fn of(
        recipe: &Recipe,
        batch: &Batch,
        profile: Option<&Profile>,
    ) -> Result<Trial, Diagnostics> {
        let guard = recipe.host().guard();
        let before = guard.begin_run();
        let began = Instant::now();
        let clock = || match profile {
            Some(profile) => profile.clock(),
            None => began.elapsed().as_secs_f64(),
        };
        let (mut parts, mut padded) = (Vec::new(), 0);
        let mut part = |name, started: f64, moved| {
            let seconds = clock() - started;
            parts.push(Part {
                name,
                started,
                seconds,
                moved,
            });
        };
        let mut state = recipe.init()?;
        let mut advantage = None;
        if recipe.has(Hook::Advantage) {
            let started = clock();
            let outcome = recipe.advantage(batch, &mut state)?;
            part("advantage", started, None);
            advantage = Some(outcome.advantage);
        }
        if let Some(advantage) = &advantage {
            let started = clock();
            padded = pad(advantage);
            part("padded advantage", started, Some(moved(advantage)));
        }
        if recipe.has(Hook::Loss) {
            let started = clock();
            let loss = recipe.loss(batch, advantage.as_ref(), &mut state)?;
            part("loss and gradient", started, None);
            let started = clock();
            padded = pad(&loss.gradient);
            part("padded gradient", started, Some(moved(&loss.gradient)));
        }
        Ok(Trial {
            parts,
            stages: profile.map(Profile::take).unwrap_or_default(),
            peak: guard.peak() - before + padded,
        })
    }

    /// How long it took.
    pub(super) fn seconds(&self) -> f64 {
        self.parts.iter().map(|part| part.seconds).sum()
    }

    /// The time in the script and in making plans: what no stage took.
    pub(super) fn in_script(&self) -> f64 {
        let hooks = self.parts.iter().filter(|part| part.moved.is_none());
        let stages: f64 = self.stages.iter().map(|stage| stage.seconds).sum();
        (hooks.map(|part| part.seconds).sum::<f64>() - stages).max(0.0)
    }
}

/// Writes values into a new padded array, as a trainer wants them; the bytes of its rows that are written.
fn pad(values: &Computed) -> usize {
    drop(values.to_padded());
    moved(values).1
}

/// The bytes that padding values reads and writes.
fn moved(values: &Computed) -> (usize, usize) {
    let written = values.layout().tokens() * size_of::<f32>();
    (values.buffer().bytes(), written)
}
