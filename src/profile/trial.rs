//! One run of a recipe, taken apart.

use std::time::Instant;

use ndarray::Array2;

use crate::batch::Batch;
use crate::diagnostic::Diagnostics;
use crate::script::{Hook, MapGroups, Recipe};
use crate::session::InputTrial;
use crate::tensor::profile::{Profile, Stage, StageKind};

/// One run of all hooks of a recipe on a batch.
#[derive(Debug)]
pub(super) struct Trial {
    /// What it did, one after the other.
    pub(super) parts: Vec<HookTime>,
    /// What the executor did meanwhile, where it noted that down.
    pub(super) stages: Vec<Stage>,
    /// The most bytes that tensors held at once, beside the batch and the padded array.
    pub(super) peak: usize,
    /// Whether kernels answered its hooks, or some of those that it imports.
    pub(super) is_native: bool,
    /// The calls of `map_groups`.
    pub(super) map_groups: Vec<MapGroups>,
}

/// The run of a hook.
#[derive(Debug)]
pub(super) struct HookTime {
    pub(super) name: &'static str,
    /// In seconds, from the beginning of the profile or of the run.
    pub(super) started: f64,
    pub(super) seconds: f64,
}

impl Trial {
    /// Runs the recipe once. Its advantage goes into a padded array [B, T], or where there is a loss, its own or another
    /// recipe's behind it, the gradient of that.
    pub(super) fn of(
        recipe: &Recipe,
        loss: Option<&Recipe>,
        batch: &Batch,
        padded: &mut Array2<f32>,
        profile: Option<&Profile>,
    ) -> Result<Trial, Diagnostics> {
        let guard = recipe.host().guard();
        let before = guard.begin_run();
        let began = Instant::now();
        let clock = || match profile {
            Some(profile) => profile.clock(),
            None => began.elapsed().as_secs_f64(),
        };
        let mut parts = Vec::new();
        let mut part = |name, started: f64| {
            let seconds = clock() - started;
            parts.push(HookTime {
                name,
                started,
                seconds,
            });
        };
        let mut state = recipe.init()?;
        let (mut advantage, mut weighted) = (None, batch.clone());
        let mut is_native = false;
        let mut map_groups = Vec::new();
        let loss = Some(recipe).filter(|own| own.has(Hook::Loss)).or(loss);
        if recipe.has(Hook::Advantage) {
            let started = clock();
            if loss.is_some() {
                let outcome = recipe.advantage(batch, &mut state)?;
                is_native |= outcome.native.is_some();
                weighted = outcome.weighted(batch);
                advantage = Some(outcome.advantage);
                map_groups = outcome.map_groups;
            } else {
                let padded = &mut padded.view_mut();
                let outcome = recipe.advantage_into(batch, &mut state, padded)?;
                is_native |= outcome.native.is_some();
                map_groups = outcome.map_groups;
            }
            part("advantage", started);
        }
        if let Some(behind) = loss {
            if !recipe.has(Hook::Loss) {
                state = behind.init()?;
            }
            let started = clock();
            let padded = &mut padded.view_mut();
            let loss = behind.loss_into(&weighted, advantage.as_ref(), &mut state, padded)?;
            is_native |= loss.native.is_some();
            map_groups.extend(loss.map_groups);
            part("loss and gradient", started);
        }
        Ok(Trial {
            parts,
            stages: profile.map(Profile::take).unwrap_or_default(),
            peak: guard.peak() - before,
            is_native,
            map_groups,
        })
    }

    /// The trial of an input at the prompt.
    pub(super) fn of_input(trial: InputTrial) -> Trial {
        let part = HookTime {
            name: "input",
            started: trial.started,
            seconds: trial.seconds,
        };
        Trial {
            parts: vec![part],
            stages: trial.stages,
            peak: trial.peak,
            is_native: false,
            // Told of recipes only.
            map_groups: Vec::new(),
        }
    }

    /// Shares the time of each pass out to its operations as they took it in another run, of a profile by operation.
    pub(super) fn share_out(&mut self, by_operation: &Trial) {
        for (stage, timed) in self.stages.iter_mut().zip(&by_operation.stages) {
            if stage.kind == StageKind::Pass && stage.operations.len() == timed.operations.len() {
                for (operation, timed_one) in stage.operations.iter_mut().zip(&timed.operations) {
                    operation.seconds = stage.seconds * timed_one.seconds / timed.seconds;
                }
            }
        }
    }

    /// How long it took.
    pub(super) fn seconds(&self) -> f64 {
        self.parts.iter().map(|part| part.seconds).sum()
    }

    /// The time in the script and in making plans: what no stage took.
    pub(super) fn in_script(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(|stage| stage.seconds).sum();
        (self.seconds() - stages).max(0.0)
    }
}
