//! A batch that a run has kept, with its recipe's advantage: groups, responses with their tokens, and who gets the gradient.

use std::path::Path;

use serde_json::{Value, json};

use crate::report::compare::stats::mean;
use crate::report::study::{
    Mass, Objective, accuracies, label, largest_group, members, objectives, with_advantage,
};
use advlab::Batch;
use advlab::batch::Level;
use advlab::diagnostic::Diagnostics;
use advlab::files::{ReadOptions, Tokenize, read, spans};
use advlab::script::{Hook, Host, Outcome, Recipe};
use advlab_train::RunFolder;
use advlab_train::tokenizer::Tokenizer;

/// A batch of a run with the advantage that its recipe gave it at that step.
pub(super) struct KeptBatch {
    recipe: Recipe,
    loss: Recipe,
    batch: Batch,
    outcome: Outcome,
    /// Whether the recipe needs a state that the folder does not have: then the first step's was used.
    is_first_state: bool,
    tokenizer: Option<Tokenizer>,
}

impl KeptBatch {
    /// The batch of a step of a run, in a file.
    pub(super) fn open(kept: &RunFolder, step: u64, path: &Path) -> Result<KeptBatch, Diagnostics> {
        let host = Host::new().with_seed(kept.seed().unwrap_or_default());
        let recipe = kept.recipe_at(&host, step)?;
        let batch = read(path, &ReadOptions::default())?.batch;
        let batch = with_advantage(&recipe, &batch)?.0.into_owned();
        let state = kept.state_at(step)?;
        let is_first_state = state.is_none() && recipe.has(Hook::Init);
        let mut state = state.map_or_else(|| recipe.init(), Ok)?;
        let model = kept.config().map(|config| config.transformer.model);
        let model = model.ok().filter(|model| !model.is_empty());
        // Without a tokenizer, words are told apart.
        let tokenizer = model.map(|model| Path::new(&model).join("tokenizer.json"));
        let tokenizer = tokenizer.and_then(|path| Tokenizer::load(&path, false).ok());
        Ok(KeptBatch {
            outcome: recipe.advantage(&batch, &mut state)?,
            loss: kept.loss(&host)?,
            tokenizer,
            recipe,
            batch,
            is_first_state,
        })
    }

    /// The groups, `[name, responses, accuracy, mean |A|, mean length]`, and the shares of the signal.
    pub(super) fn groups(&self) -> Result<Value, Diagnostics> {
        let layout = self.batch.layout();
        let accuracy = self.outcome.correct.as_ref().map(accuracies);
        let of = |group: usize| {
            let sizes = members(layout, group).map(|one| mean(&self.sizes(one)));
            let lengths = members(layout, group).map(|one| layout.tokens_of(one).len() as f64);
            let (sizes, lengths): (Vec<f64>, Vec<f64>) = sizes.zip(lengths).unzip();
            json!([
                layout.group_id(group).name(),
                sizes.len(),
                accuracy.as_ref().map(|all| all[group]),
                mean(&sizes),
                mean(&lengths),
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
        let sizes = (0..layout.responses()).flat_map(|one| self.sizes(one));
        Some(json!({
            "prompt": self.text("prompt", first),
            "most": sizes.fold(0.0, f64::max),
            "responses": members.map(|one| self.response(one)).collect::<Vec<_>>(),
        }))
    }

    fn text(&self, column: &str, response: usize) -> Option<&str> {
        self.batch.text(column).map(|texts| &*texts[response])
    }

    fn response(&self, response: usize) -> Value {
        let length = self.batch.layout().tokens_of(response).len();
        let text = self.text("completion", response);
        let reward = self.outcome.reward.as_ref();
        let reward = reward.map(|reward| reward.by_response()[response]);
        let given = self.batch.response_column("reward");
        json!({
            "number": response,
            "reward": reward.or_else(|| Some(given?[response])),
            "length": length,
            "text": text,
            "solution": self.batch.solution(response),
            "ends": text.and_then(|text| self.ends(text, length)),
            "advantages": self.advantages(response),
        })
    }

    /// The ends of the tokens in a text, in UTF-16 units, as a browser counts: text before a token belongs to it.
    fn ends(&self, text: &str, length: usize) -> Option<Vec<usize>> {
        let tokenizer = self.tokenizer.as_ref().map(|one| one as &dyn Tokenize);
        let (mut at, mut count) = (0, 0);
        let ends = spans(text, length, tokenizer)?.into_iter().map(|span| {
            count += text.get(at..span.end)?.encode_utf16().count();
            at = span.end;
            Some(count)
        });
        ends.collect()
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

    fn sizes(&self, response: usize) -> Vec<f64> {
        let advantages = self.advantages(response).into_iter();
        advantages.map(f64::abs).collect()
    }

    /// The objective of the recipe, as a figure.
    pub(super) fn objective(&self) -> Result<Value, Diagnostics> {
        let size = largest_group(&self.batch);
        let objective = Objective::of(&self.recipe, Some(&self.batch), size)?;
        let all = std::slice::from_ref(&objective);
        let svg = objectives::figure(all, Some(objectives::CORRELATION)).svg();
        Ok(json!({ "svg": svg, "notes": objective.notes }))
    }
}
