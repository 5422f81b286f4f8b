//! The layout of a decoder's weights: their names and shapes in transformers' files, in the order in which the decoder uses
//! them. Matrices that read the same input are one parameter, their rows one after the other.

use tch::{Device, Tensor};

use super::config::{Architecture, ModelConfig};
use crate::torch::{TorchError, TorchResult, floats};
use advlab::diagnostic::Diagnostics;

/// The tensors of files that are one parameter, with their shapes.
pub(super) type ParameterTensors = Vec<(String, Vec<usize>)>;

/// All parameters of a model: the embedding, the layers, the last norm, and the output layer unless it is the embedding.
pub(super) fn layout(config: &ModelConfig) -> Vec<ParameterTensors> {
    let [vocabulary, hidden, inner, head] = [
        config.vocab_size,
        config.hidden_size,
        config.intermediate_size,
        config.head_dim,
    ]
    .map(|size| size as usize);
    let queries = head * config.num_attention_heads as usize;
    let keys = head * config.num_key_value_heads as usize;
    let mut all: Vec<ParameterTensors> = Vec::new();
    let mut add = |prefix: &str, parts: &[(&str, &[usize])]| {
        let named = parts.iter();
        let named = named.map(|(name, shape)| (format!("{prefix}{name}"), shape.to_vec()));
        all.push(named.collect());
    };
    add("model.", &[("embed_tokens.weight", &[vocabulary, hidden])]);
    for index in 0..config.num_hidden_layers {
        let prefix = format!("model.layers.{index}.");
        let mut layer = |parts: &[(&str, &[usize])]| add(&prefix, parts);
        layer(&[("input_layernorm.weight", &[hidden])]);
        layer(&[
            ("self_attn.q_proj.weight", &[queries, hidden]),
            ("self_attn.k_proj.weight", &[keys, hidden]),
            ("self_attn.v_proj.weight", &[keys, hidden]),
        ]);
        match config.architectures {
            [Architecture::Qwen2] => layer(&[
                ("self_attn.q_proj.bias", &[queries]),
                ("self_attn.k_proj.bias", &[keys]),
                ("self_attn.v_proj.bias", &[keys]),
            ]),
            [Architecture::Qwen3] => {
                layer(&[("self_attn.q_norm.weight", &[head])]);
                layer(&[("self_attn.k_norm.weight", &[head])]);
            }
            [Architecture::Llama] => {}
        }
        layer(&[("self_attn.o_proj.weight", &[hidden, queries])]);
        layer(&[("post_attention_layernorm.weight", &[hidden])]);
        layer(&[
            ("mlp.gate_proj.weight", &[inner, hidden]),
            ("mlp.up_proj.weight", &[inner, hidden]),
        ]);
        layer(&[("mlp.down_proj.weight", &[hidden, inner])]);
    }
    add("model.", &[("norm.weight", &[hidden])]);
    if !config.tie_word_embeddings {
        add("", &[("lm_head.weight", &[vocabulary, hidden])]);
    }
    all
}

/// Parameters `[rows, columns]`; `read` gives the values of their tensors, by name and shape.
pub(super) fn load(
    layout: &[ParameterTensors],
    device: Device,
    mut read: impl FnMut(&str, &[usize]) -> Result<Vec<f32>, Diagnostics>,
) -> Result<Vec<Tensor>, Diagnostics> {
    let parameter = |parts: &ParameterTensors| {
        let mut values = Vec::new();
        for (name, shape) in parts {
            values.extend(read(name, shape)?);
        }
        let columns = parts[0].1[1..].iter().map(|&size| size as i64);
        let shape: Vec<i64> = [-1].into_iter().chain(columns).collect();
        let tensor = floats(&values, device)?.f_view(&shape[..]);
        Ok(tensor.map_err(TorchError::from)?)
    };
    layout.iter().map(parameter).collect()
}

/// Views of parameters, or of other tensors of their shapes, as the tensors of the layout.
pub(super) fn views(
    layout: &[ParameterTensors],
    tensors: &[Tensor],
) -> TorchResult<Vec<(String, Vec<usize>, Tensor)>> {
    let mut views = Vec::new();
    for (parts, tensor) in layout.iter().zip(tensors) {
        let rows: Vec<i64> = parts.iter().map(|(_, shape)| shape[0] as i64).collect();
        let own = tensor.f_detach()?.f_split_with_sizes(rows, 0)?;
        let named = parts.iter().cloned().zip(own);
        views.extend(named.map(|((name, shape), view)| (name, shape, view)));
    }
    Ok(views)
}
