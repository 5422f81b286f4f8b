//! A transformer as the policy of a run.

use std::num::NonZeroUsize;
use std::path::Path;

use super::{Architecture, Compute, Decoding, ModelConfig, Rope, Snapshot, Transformer};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::torch::{self, Worker};
use crate::train::config::TransformerConfig;
use crate::train::policy::{AdamWConfig, NonFinite, Policy, Responses, Samples, Scores};
use crate::train::random::StreamKey;
use crate::train::task::{Prompt, TaskShape};

/// Its files of a checkpoint: the weights with the optimizer, and the reference's weights.
const POLICY: &str = "policy.safetensors";
const REFERENCE: &str = "reference.safetensors";

/// A transformer in a run: how it draws and learns, what it is compared with, and the thread on which libtorch computes.
pub struct LanguageModel {
    models: Models,
    decoding: Decoding,
    adamw: AdamWConfig,
    worker: Worker,
}

/// What lives on the thread of libtorch.
struct Models {
    policy: Transformer,
    reference: Transformer,
    savepoint: Option<Snapshot>,
}

impl LanguageModel {
    /// The model that a configuration says, for a task: from a folder, or with random weights drawn from `seed`.
    ///
    /// # Errors
    /// [`Diagnostics`] where the device is not there, the folder cannot be read, the sizes do not fit each other, or memory
    /// does not suffice.
    pub(in crate::train) fn new(
        config: &TransformerConfig,
        task: &TaskShape,
        adamw: AdamWConfig,
        seed: u64,
    ) -> Result<Self, Diagnostics> {
        let worker = Worker::start()?;
        let models = worker.run(|| {
            let policy = transformer(config, task, seed)?;
            Ok::<_, Diagnostics>(Models {
                reference: policy.frozen()?,
                policy,
                savepoint: None,
            })
        })??;
        Ok(LanguageModel {
            models,
            decoding: Decoding {
                temperature: config.temperature,
                top_k: config.top_k,
                top_p: config.top_p,
                stops: vec![task.stop],
                max_tokens: config.max_new_tokens.min(task.max_response_tokens),
                rows_per_batch: config.rows_per_batch,
            },
            adamw,
            worker,
        })
    }

    fn on_worker<R: Send>(
        &mut self,
        call: impl FnOnce(&mut Models) -> Result<R, Diagnostics> + Send,
    ) -> Result<R, Diagnostics> {
        let models = &mut self.models;
        self.worker.run(|| call(models))?
    }
}

/// The model of a configuration; called on libtorch's thread, whose settings it makes.
fn transformer(
    config: &TransformerConfig,
    task: &TaskShape,
    seed: u64,
) -> Result<Transformer, Diagnostics> {
    let threads = NonZeroUsize::new(rayon::current_num_threads()).unwrap_or(NonZeroUsize::MIN);
    let device = torch::start(&config.device, threads)?;
    let compute = Compute {
        device,
        dtype: torch::dtype(&config.dtype, device)?,
        tokens_per_forward: config.tokens_per_forward,
        gradient_checkpointing: config.gradient_checkpointing,
    };
    if !config.model.is_empty() {
        return Transformer::load(Path::new(&config.model), compute);
    }
    Transformer::new(random(config, task)?, seed, compute)
}

/// The sizes of a model of random weights for a task's alphabet.
fn random(config: &TransformerConfig, task: &TaskShape) -> Result<ModelConfig, Diagnostics> {
    let (hidden, heads) = (config.hidden_size as i64, config.num_attention_heads as i64);
    if hidden % heads != 0 {
        let message = format!("a hidden_size of {hidden} cannot be shared by {heads} heads");
        let help = "`transformer.hidden_size` is a multiple of `transformer.num_attention_heads`";
        return Err(Diagnostic::error(message).with_help(help).into());
    }
    Ok(ModelConfig {
        architecture: Architecture::Qwen3,
        vocabulary: task.alphabet as i64,
        hidden,
        intermediate: config.intermediate_size as i64,
        layers: config.num_hidden_layers,
        heads,
        kv_heads: config.num_key_value_heads as i64,
        head_dim: hidden / heads,
        norm_eps: 1e-6,
        rope: Rope {
            theta: 10_000.0,
            scaling: None,
        },
        is_tied: false,
    })
}

impl Policy for LanguageModel {
    fn sample(
        &mut self,
        prompts: &[Prompt],
        group_size: usize,
        key: StreamKey,
    ) -> Result<Samples, Diagnostics> {
        let decoding = self.decoding.clone();
        self.on_worker(|models| models.policy.sample(prompts, group_size, &decoding, key))
    }

    fn score(&mut self, prompts: &[Prompt], responses: &Responses) -> Result<Scores, Diagnostics> {
        self.on_worker(|models| models.policy.score(prompts, responses))
    }

    fn accumulate(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
        dloss_dlogp: &[f64],
    ) -> Result<(), Diagnostics> {
        self.on_worker(|models| models.policy.accumulate(prompts, responses, dloss_dlogp))
    }

    fn update(
        &mut self,
        max_grad_norm: Option<f64>,
    ) -> Result<Result<f64, NonFinite>, Diagnostics> {
        let adamw = self.adamw;
        self.on_worker(|models| models.policy.update(&adamw, max_grad_norm))
    }

    fn set_lr(&mut self, lr: f64) {
        self.adamw.lr = lr;
    }

    fn freeze(&mut self) -> Result<(), Diagnostics> {
        self.on_worker(|models| {
            models.reference = models.policy.frozen()?;
            Ok(())
        })
    }

    fn reference_logp(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
    ) -> Result<Vec<f32>, Diagnostics> {
        let scores = self.on_worker(|models| models.reference.score(prompts, responses));
        Ok(scores?.logp)
    }

    fn savepoint(&mut self) -> Result<(), Diagnostics> {
        self.on_worker(|models| {
            // The old one goes before the new one comes.
            models.savepoint = None;
            models.savepoint = Some(models.policy.snapshot()?);
            Ok(())
        })
    }

    fn rollback(&mut self) -> Result<(), Diagnostics> {
        self.on_worker(|models| match models.savepoint.take() {
            Some(savepoint) => models.policy.go_back(savepoint),
            None => Ok(()),
        })
    }

    fn save(&mut self, folder: &Path) -> Result<(), Diagnostics> {
        self.on_worker(|models| {
            models.reference.save(&folder.join(REFERENCE))?;
            models.policy.save(&folder.join(POLICY))
        })
    }

    fn load(&mut self, folder: &Path) -> Result<(), Diagnostics> {
        self.on_worker(|models| {
            models.reference.restore(&folder.join(REFERENCE))?;
            models.policy.restore(&folder.join(POLICY))
        })
    }
}
