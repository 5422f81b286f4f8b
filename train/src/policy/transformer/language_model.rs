//! A transformer as the policy of a run.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use tch::Device;

use super::{Architecture, Compute, Decoding, ModelConfig, Rope, Snapshot, Transformer};
use crate::config::{Config, TransformerConfig};
use crate::policy::{AdamWConfig, NonFinite, Platform, Policy, Responses, Samples, Scores};
use crate::task::{Prompt, Task, TaskShape};
use crate::torch::{self, Worker};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::random::StreamKey;

/// Its files of a checkpoint: the weights with the optimizer, and the reference's weights.
const POLICY: &str = "policy.safetensors";
const REFERENCE: &str = "reference.safetensors";

/// A transformer in a run: how it draws and learns, what it is compared with, and the thread on which libtorch computes.
pub struct LanguageModel {
    models: Models,
    decoding: Decoding,
    adamw: AdamWConfig,
    /// The folder that it came from, where it did.
    origin: Option<PathBuf>,
    device: Device,
    threads: NonZeroUsize,
    worker: Worker,
}

/// What lives on the thread of libtorch.
struct Models {
    policy: Transformer,
    /// `None` if nothing reads its log-probs.
    reference: Option<Transformer>,
    savepoint: Option<Snapshot>,
}

impl LanguageModel {
    /// The model that a configuration says, for a task: from a folder, or with random weights drawn from the run's seed.
    ///
    /// # Errors
    /// [`Diagnostics`] if the device is not there, the folder cannot be read, the sizes do not fit each other, or memory
    /// does not suffice.
    pub(crate) fn new(
        run: &Config,
        task: &dyn Task,
        adamw: AdamWConfig,
    ) -> Result<Self, Diagnostics> {
        let (config, seed) = (&run.transformer, run.seed);
        let (shape, text) = (task.shape(), task.text());
        let threads = NonZeroUsize::new(rayon::current_num_threads()).unwrap_or(NonZeroUsize::MIN);
        let origin = (!config.model.is_empty()).then(|| PathBuf::from(&config.model));
        let worker = Worker::start()?;
        let (device, models) = worker.run(|| {
            // Settings of libtorch's are those of the thread that makes them.
            let device = torch::start(&config.device, threads)?;
            let policy = transformer(config, &shape, device, seed)?;
            let reference = run.reference.then(|| policy.frozen()).transpose()?;
            let savepoint = None;
            let models = Models {
                policy,
                reference,
                savepoint,
            };
            Ok::<_, Diagnostics>((device, models))
        })??;
        Ok(LanguageModel {
            models,
            decoding: Decoding {
                temperature: config.temperature,
                top_k: config.top_k,
                top_p: config.top_p,
                stops: match &text {
                    Some(text) => text.generation().ends.clone(),
                    None => vec![shape.stop],
                },
                text,
                max_tokens: config.max_new_tokens.min(shape.max_response_tokens),
                rows_per_batch: config.rows_per_batch,
            },
            adamw,
            origin,
            device,
            threads,
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

/// The model of a configuration.
fn transformer(
    config: &TransformerConfig,
    task: &TaskShape,
    device: Device,
    seed: u64,
) -> Result<Transformer, Diagnostics> {
    let compute = Compute {
        device,
        tokens_per_forward: config.tokens_per_forward,
    };
    if !config.model.is_empty() {
        return Transformer::load(Path::new(&config.model), compute);
    }
    Transformer::new(random(config, task)?, seed, compute)
}

/// The widest vectors of the CPU, by which libtorch chooses its kernels.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            return "avx512";
        }
        if std::is_x86_feature_detected!("avx2") {
            return "avx2";
        }
    }
    std::env::consts::ARCH
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
            // The old one goes before the new one comes.
            if models.reference.take().is_some() {
                models.reference = Some(models.policy.frozen()?);
            }
            Ok(())
        })
    }

    fn reference_logp(
        &mut self,
        prompts: &[Prompt],
        responses: &Responses,
    ) -> Result<Vec<f32>, Diagnostics> {
        self.on_worker(|models| match &models.reference {
            Some(reference) => Ok(reference.score(prompts, responses)?.logp),
            None => Err(Diagnostic::error("the policy has no reference").into()),
        })
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
            if let Some(reference) = &models.reference {
                reference.save(&folder.join(REFERENCE))?;
            }
            models.policy.save(&folder.join(POLICY))
        })
    }

    fn load(&mut self, folder: &Path) -> Result<(), Diagnostics> {
        self.on_worker(|models| {
            if let Some(reference) = &mut models.reference {
                reference.restore(&folder.join(REFERENCE))?;
            }
            models.policy.restore(&folder.join(POLICY))
        })
    }

    fn export(&mut self, folder: &Path) -> Result<(), Diagnostics> {
        let origin = self.origin.clone();
        self.on_worker(|models| models.policy.export(folder, origin.as_deref()))
    }

    fn platform(&self) -> Platform {
        let entries = match self.device {
            Device::Cpu => vec![
                ("threads", self.threads.to_string()),
                ("cpu", instructions().to_string()),
            ],
            other => vec![("gpu", format!("{other:?}"))],
        };
        let all = entries
            .into_iter()
            .chain([("torch", torch::VERSION.to_string())]);
        all.map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn device_memory(&mut self) -> Option<u64> {
        let device = self.device;
        self.worker.run(|| torch::peak_memory(device)).ok()?
    }
}
