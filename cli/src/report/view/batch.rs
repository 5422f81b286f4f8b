//! A batch that a run has kept, with its recipe's advantage: groups, responses with their tokens, and who gets the gradient.

use std::path::Path;

use serde_json::{Value, json};

use super::run::rounded;
use crate::report::study::{
    Mass, Objective, accuracies, label, largest_group, members, objectives, with_advantage,
};
use advlab::Batch;
use advlab::batch::Level;
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::files::{ReadOptions, Tokenize, read, spans};
use advlab::script::{Hook, Host, Outcome, Recipe};
use advlab_train::tokenizer::Tokenizer;
use advlab_train::{Config, RunFolder};

/// A batch of a run with the advantage that its recipe gave it at that step.
pub(super) struct KeptBatch {
    recipe: Recipe,
    loss: Recipe,
    batch: Batch,
    outcome: Outcome,
    /// The largest |A|.
    most: f64,
    /// Whether the recipe has a state that the folder does not have: the first step's was used.
    is_first_state: bool,
    tokenizer: Option<Tokenizer>,
}

impl KeptBatch {
    /// The batch of a step of a run.
    pub(super) fn open(
        run: &Path,
        config: Option<&Config>,
        step: u64,
    ) -> Result<KeptBatch, Diagnostics> {
        let kept = RunFolder::open(run)?;
        let found = kept.batches().iter().find(|(own, _)| *own == step);
        let Some((_, path)) = found else {
            let message = format!("the batch of step {step} is not kept any more");
            return Err(Diagnostic::error(message).into());
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
        // Without a tokenizer, words are told apart.
        let tokenizer = model.map(|model| Tokenizer::load(&model.join("tokenizer.json"), false));
        let mut batch = KeptBatch {
            loss: kept.loss(&host)?,
            tokenizer: tokenizer.and_then(Result::ok),
            recipe,
            batch,
            outcome,
            most: 0.0,
            is_first_state,
        };
        let responses = 0..batch.batch.layout().responses();
        let all = responses.flat_map(|one| batch.advantages(one));
        batch.most = all.fold(0.0, |most, a| most.max(a.abs()));
        Ok(batch)
    }

    /// The groups, and the shares of the signal.
    pub(super) fn groups(&self) -> Result<Value, Diagnostics> {
        let layout = self.batch.layout();
        let accuracy = self.outcome.correct.as_ref().map(accuracies);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let size = |one: usize| {
            let all: Vec<f64> = self.advantages(one).iter().map(|a| a.abs()).collect();
            mean(&all)
        };
        let of = |group: usize| {
            let members = members(layout, group);
            let sizes: Vec<f64> = members.clone().map(size).collect();
            let lengths: Vec<f64> = members
                .map(|one| layout.tokens_of(one).len() as f64)
                .collect();
            json!([
                layout.group_id(group).name(),
                sizes.len(),
                accuracy.as_ref().map(|all| rounded(all[group])),
                rounded(mean(&sizes)),
                rounded(mean(&lengths)),
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
        let members = members(layout, group);
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
            // In UTF-16 units, as a browser counts: text before a token belongs to it.
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

    /// The advantages of a response: one, or one per token.
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

    /// What the recipe optimises, as a figure.
    pub(super) fn objective(&self) -> Result<Value, Diagnostics> {
        let size = largest_group(&self.batch);
        let objective = Objective::of(&self.recipe, Some(&self.batch), size)?;
        let notes = objective.notes.clone();
        let svg = objectives::figure(&[(label(&self.recipe), objective)]).svg();
        Ok(json!({ "svg": svg, "notes": notes }))
    }
}
