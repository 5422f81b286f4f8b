//! A batch that a run has kept, as its recipe sees it: groups, responses with their tokens, and who gets the gradient.

use std::path::Path;

use serde_json::{Value, json};

use super::curve::rounded;
use crate::report::study::{Mass, Objective, accuracies, label, objectives, with_advantage};
use advlab::Batch;
use advlab::batch::{Level, ReadOptions, Tokenize, read, spans};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::script::{Hook, Host, Outcome, Recipe};
use advlab_train::tokenizer::Tokenizer;
use advlab_train::{Config, RunFolder};

/// A batch with the advantage that the version of its step gives it.
pub(super) struct Seen {
    recipe: Recipe,
    loss: Recipe,
    batch: Batch,
    outcome: Outcome,
    /// The largest |A|.
    most: f64,
    /// Whether the recipe has a state and the folder has not kept it: it was as at the first step.
    is_first_state: bool,
    tokenizer: Option<Tokenizer>,
}

impl Seen {
    /// The batch of a step of a run.
    pub(super) fn open(
        run: &Path,
        config: Option<&Config>,
        step: u64,
    ) -> Result<Seen, Diagnostics> {
        let kept = RunFolder::open(run)?;
        let found = kept.batches().iter().find(|(own, _)| *own == step);
        let Some((_, path)) = found else {
            return Err(Diagnostic::error(format!(
                "the batch of step {step} is not kept any more"
            ))
            .into());
        };
        let host = Host::new().with_seed(kept.seed().unwrap_or_default());
        let recipe = kept.recipe_at(&host, step)?;
        let batch = read(path, &ReadOptions::default())?.batch;
        let batch = with_advantage(&recipe, &batch)?.0.into_owned();
        let state = kept.state_at(step)?;
        let is_first_state = state.is_none() && recipe.has(Hook::Init);
        let mut state = state.map_or_else(|| recipe.init(), Ok)?;
        let outcome = recipe.advantage(&batch, &mut state)?;
        let model = config.map(|config| &*config.transformer.model);
        let model = model.filter(|model| !model.is_empty()).map(Path::new);
        let mut seen = Seen {
            loss: kept.loss(&host)?,
            // Words are told apart where it cannot be read.
            tokenizer: model
                .and_then(|model| Tokenizer::load(&model.join("tokenizer.json"), false).ok()),
            recipe,
            batch,
            outcome,
            most: 0.0,
            is_first_state,
        };
        let all = (0..seen.batch.layout().responses()).flat_map(|one| seen.advantages(one));
        seen.most = all.fold(0.0, |most, a| most.max(a.abs()));
        Ok(seen)
    }

    /// The groups, and the shares of the signal.
    pub(super) fn groups(&self) -> Result<Value, Diagnostics> {
        let layout = self.batch.layout();
        let mean = |group: usize, of: &dyn Fn(usize) -> f64| {
            let members = layout.members(group);
            let sum: f64 = members.iter().map(|&one| of(one as usize)).sum();
            rounded(sum / members.len().max(1) as f64)
        };
        let accuracy = self.outcome.correct.as_ref().map(accuracies);
        let of = |group: usize| {
            json!([
                layout.group_id(group).name(),
                layout.members(group).len(),
                accuracy.as_ref().map(|all| rounded(all[group])),
                mean(group, &|one| {
                    let all = self.advantages(one);
                    all.iter().map(|a| a.abs()).sum::<f64>() / all.len().max(1) as f64
                }),
                mean(group, &|one| layout.tokens_of(one).len() as f64),
            ])
        };
        let groups: Vec<Value> = (0..layout.groups()).map(of).collect();
        Ok(json!({
            "recipe": label(&self.recipe),
            "version": self.recipe.version().short(),
            "is_first_state": self.is_first_state,
            "groups": groups,
            "mass": Mass::of_outcome(&self.recipe, &self.loss, &self.batch, &self.outcome)?,
        }))
    }

    /// How many groups there are.
    pub(super) fn size(&self) -> usize {
        self.batch.layout().groups()
    }

    /// The responses of a group, with the largest |A| of the batch.
    pub(super) fn responses(&self, group: usize) -> Option<Value> {
        let layout = self.batch.layout();
        if group >= self.size() {
            return None;
        }
        let members = layout.members(group).iter().map(|&one| one as usize);
        let first = members.clone().next()?;
        let prompt = self.batch.text("prompt").map(|texts| &*texts[first]);
        Some(json!({
            "prompt": prompt,
            "most": self.most,
            "responses": members.map(|one| self.response(one)).collect::<Vec<_>>(),
        }))
    }

    fn response(&self, response: usize) -> Value {
        let length = self.batch.layout().tokens_of(response).len();
        let text = self.batch.text("completion").map(|texts| &*texts[response]);
        let tokenizer = self.tokenizer.as_ref().map(|one| one as &dyn Tokenize);
        let ends = text.and_then(|text| {
            let spans = spans(text, length, tokenizer)?;
            // In characters as a browser counts them: what stands before a token belongs to it.
            let ends = spans.iter().scan((0, 0), |(at, count), span| {
                *count += text.get(*at..span.end)?.encode_utf16().count();
                *at = span.end;
                Some(*count)
            });
            let ends: Vec<usize> = ends.collect();
            (ends.len() == length).then_some(ends)
        });
        let given = self.batch.response_column("reward");
        let reward = match &self.outcome.reward {
            Some(reward) => Some(reward.by_response()[response]),
            None => given.map(|reward| reward[response]),
        };
        json!({
            "number": response,
            "reward": reward.map(rounded),
            "length": length,
            "text": text,
            "solution": self.batch.solution(response),
            "ends": ends,
            "advantages": self.advantages(response).into_iter().map(rounded).collect::<Vec<_>>(),
        })
    }

    /// The advantages of a response: one, or one a token.
    fn advantages(&self, response: usize) -> Vec<f64> {
        let advantage = &self.outcome.advantage;
        let values = match advantage.level() {
            Level::Token => self.batch.layout().tokens_of(response).len(),
            _ => 1,
        };
        (0..values)
            .map(|token| advantage.at(response, token))
            .collect()
    }

    /// What the recipe optimises, as a drawing.
    pub(super) fn objective(&self) -> Result<Value, Diagnostics> {
        let layout = self.batch.layout();
        let sizes = (0..layout.groups()).map(|group| layout.members(group).len());
        let size = sizes.max().unwrap_or(1).clamp(2, 1024);
        let objective = Objective::of(&self.recipe, Some(&self.batch), size)?;
        let notes = objective.notes.clone();
        let svg = objectives::figure(&[(label(&self.recipe), objective)]).svg();
        Ok(json!({ "svg": svg, "notes": notes }))
    }
}
