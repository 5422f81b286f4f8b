//! The weights of a decoder, under the names that transformers gives them. Matrices that read the same input are one
//! matrix, their rows one behind the other.

use std::collections::BTreeMap;

use tch::Tensor;

use super::Compute;
use super::config::{Architecture, ModelConfig};
use crate::torch::{Result, TorchError};
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// Where weights come from.
pub(super) trait Source {
    /// The tensor of that name and shape.
    fn read(&self, name: &str, shape: &[i64]) -> std::result::Result<Tensor, Diagnostics>;
}

/// Those of another model of these sizes; what is made of them has memory of its own.
impl Source for BTreeMap<String, Tensor> {
    fn read(&self, name: &str, _shape: &[i64]) -> std::result::Result<Tensor, Diagnostics> {
        let tensor = self.get(name).map(Tensor::shallow_clone);
        tensor.ok_or_else(|| Diagnostic::error(format!("there is no tensor `{name}`")).into())
    }
}

/// A tensor that is trained.
pub(super) struct Parameter {
    /// On the model's device, float32.
    pub tensor: Tensor,
    /// The tensors that it is made of: their names in files, and how many of its rows they are.
    pub parts: Vec<(String, i64)>,
}

impl Parameter {
    /// Its parts by name, or those of a tensor of its shape: views, outside of the tensor's graph.
    pub(super) fn split(&self, tensor: &Tensor) -> Result<Vec<(String, Tensor)>> {
        let rows: Vec<i64> = self.parts.iter().map(|(_, rows)| *rows).collect();
        let parts = tensor.f_detach()?.f_split_with_sizes(rows, 0)?;
        let names = self.parts.iter().map(|(name, _)| name.clone());
        Ok(names.zip(parts).collect())
    }
}

/// One layer.
pub(super) struct Layer {
    pub input_norm: Parameter,
    /// Queries, keys and values: `[(heads + 2 * kv_heads) * head_dim, hidden]`.
    pub qkv: Parameter,
    pub qkv_bias: Option<Parameter>,
    /// Of queries and of keys, `[head_dim]`.
    pub head_norms: Option<(Parameter, Parameter)>,
    pub output: Parameter,
    pub mlp_norm: Parameter,
    /// Gate and up: `[2 * intermediate, hidden]`.
    pub gate_up: Parameter,
    pub down: Parameter,
}

/// All of a decoder.
pub(super) struct Weights {
    /// `[vocabulary, hidden]`.
    pub embedding: Parameter,
    pub layers: Vec<Layer>,
    pub norm: Parameter,
    /// `[vocabulary, hidden]`, if it is not the embedding.
    head: Option<Parameter>,
}

impl Weights {
    pub(super) fn load(
        config: &ModelConfig,
        source: &dyn Source,
        compute: Compute,
    ) -> std::result::Result<Self, Diagnostics> {
        let &ModelConfig {
            vocabulary, hidden, ..
        } = config;
        let loader = Loader { source, compute };
        let embedding = "model.embed_tokens.weight";
        Ok(Weights {
            embedding: loader.matrix([(embedding, vocabulary)], hidden)?,
            layers: (0..config.layers)
                .map(|index| Layer::load(config, &loader, index))
                .collect::<std::result::Result<_, _>>()?,
            norm: loader.vector([("model.norm.weight", hidden)])?,
            head: match config.is_tied {
                true => None,
                false => Some(loader.matrix([("lm_head.weight", vocabulary)], hidden)?),
            },
        })
    }

    /// The matrix that gives the logits.
    pub(super) fn head(&self) -> &Parameter {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// All tensors under the names that files give them; views of the parameters, outside of their graphs.
    pub(super) fn split(&self) -> Result<Vec<(String, Tensor)>> {
        let mut all = Vec::new();
        for parameter in self.parameters() {
            all.extend(parameter.split(&parameter.tensor)?);
        }
        Ok(all)
    }

    /// All parameters, each once; [`Weights::head_index`] says which of them the head is.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        let layers = self.layers.iter().flat_map(Layer::parameters);
        let ends = [&self.norm].into_iter().chain(&self.head);
        [&self.embedding].into_iter().chain(layers).chain(ends)
    }

    /// Where the head is among [`Weights::parameters`].
    pub(super) fn head_index(&self) -> usize {
        match self.head {
            Some(_) => self.parameters().count() - 1,
            None => 0,
        }
    }
}

impl Layer {
    fn load(
        config: &ModelConfig,
        loader: &Loader<'_>,
        index: usize,
    ) -> std::result::Result<Self, Diagnostics> {
        let &ModelConfig {
            hidden,
            intermediate,
            head_dim,
            ..
        } = config;
        let name = |rest: &str| format!("model.layers.{index}.{rest}");
        let queries = config.heads * head_dim;
        let keys = config.kv_heads * head_dim;
        let qkv = |kind: &str| {
            let name = |of: &str| name(&format!("self_attn.{of}_proj.{kind}"));
            [(name("q"), queries), (name("k"), keys), (name("v"), keys)]
        };
        let matrix = |of: &str, rows, columns| {
            loader.matrix([(name(&format!("{of}_proj.weight")), rows)], columns)
        };
        let norm = |of: &str, size| loader.vector([(name(&format!("{of}norm.weight")), size)]);
        let mlp = |of: &str| (name(&format!("mlp.{of}_proj.weight")), intermediate);
        let (has_bias, has_head_norms) = match config.architecture {
            Architecture::Qwen2 => (true, false),
            Architecture::Qwen3 => (false, true),
            Architecture::Llama => (false, false),
        };
        let head_norms = || {
            let queries = norm("self_attn.q_", head_dim)?;
            Ok::<_, Diagnostics>((queries, norm("self_attn.k_", head_dim)?))
        };
        Ok(Layer {
            input_norm: norm("input_layer", hidden)?,
            qkv: loader.matrix(qkv("weight"), hidden)?,
            qkv_bias: has_bias.then(|| loader.vector(qkv("bias"))).transpose()?,
            head_norms: has_head_norms.then(head_norms).transpose()?,
            output: matrix("self_attn.o", hidden, queries)?,
            mlp_norm: norm("post_attention_layer", hidden)?,
            gate_up: loader.matrix([mlp("gate"), mlp("up")], hidden)?,
            down: matrix("mlp.down", hidden, intermediate)?,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        let head_norms = self.head_norms.iter().flat_map(|(q, k)| [q, k]);
        [&self.input_norm, &self.qkv]
            .into_iter()
            .chain(&self.qkv_bias)
            .chain(head_norms)
            .chain([&self.output, &self.mlp_norm, &self.gate_up, &self.down])
    }
}

/// Reads parameters, part by part.
struct Loader<'a> {
    source: &'a dyn Source,
    compute: Compute,
}

impl Loader<'_> {
    fn matrix<const N: usize>(
        &self,
        parts: [(impl Into<String>, i64); N],
        columns: i64,
    ) -> std::result::Result<Parameter, Diagnostics> {
        self.load(parts.map(|(name, rows)| (name.into(), rows)), &[columns])
    }

    fn vector<const N: usize>(
        &self,
        parts: [(impl Into<String>, i64); N],
    ) -> std::result::Result<Parameter, Diagnostics> {
        self.load(parts.map(|(name, rows)| (name.into(), rows)), &[])
    }

    /// The parts one behind the other, each of its rows and of `columns`.
    fn load<const N: usize>(
        &self,
        parts: [(String, i64); N],
        columns: &[i64],
    ) -> std::result::Result<Parameter, Diagnostics> {
        let tensors = parts.iter().map(|(name, rows)| {
            let shape = [&[*rows], columns].concat();
            self.source.read(name, &shape)
        });
        let tensors: Vec<Tensor> = tensors.collect::<std::result::Result<_, _>>()?;
        Ok(Parameter {
            tensor: self.trained(&tensors).map_err(Diagnostics::from)?,
            parts: parts.into(),
        })
    }

    fn trained(&self, tensors: &[Tensor]) -> Result<Tensor> {
        let tensor = Tensor::f_cat(tensors, 0)?.f_to_device(self.compute.device)?;
        tensor.f_set_requires_grad(true).map_err(TorchError::from)
    }
}
