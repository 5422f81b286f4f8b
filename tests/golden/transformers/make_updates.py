#!/usr/bin/env python3
"""What PyTorch makes of the models beside this file in 20 updates along PPO's clipped loss, and of AdamW alone.

    pip install torch==2.11.0 transformers==5.10.4 && python tests/golden/transformers/make_updates.py

Writes `MODEL/updates.safetensors` and `adamw.safetensors`. One thread; all numbers are seeded."""
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
STEPS, LR, DECAY, CLIP, KL, MAX_NORM = 20, 1e-3, 0.1, 0.2, 0.05, 0.5
# Above the rounding of gradients that are 0 but for it, such as those of some keys: at PyTorch's 1e-8 it becomes whole steps.
EPS = 1e-6
KEPT = ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight", "model.norm.weight"]


def rows(model):
    """Each prompt with its response, without padding, and the prompt's length."""
    given = load_file(HERE / model / "expected.safetensors")
    tokens, mask = given["input_ids"], given["attention_mask"] == 1
    prompts = given["prompt_mask"].sum(1).tolist()
    return [(row[kept], prompt) for row, kept, prompt in zip(tokens, mask, prompts)]


def logp(network, tokens, prompt):
    logits = network(tokens[None, :-1]).logits[0, prompt - 1:]
    return logits.log_softmax(-1).gather(1, tokens[prompt:, None])[:, 0]


def updates(model):
    network = AutoModelForCausalLM.from_pretrained(HERE / model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, eps=EPS, weight_decay=DECAY)
    given = rows(model)
    with torch.no_grad():
        old = torch.cat([logp(network, *row) for row in given])
    generator = torch.Generator().manual_seed(1)
    advantage = torch.randn(old.shape, generator=generator)
    # The policy that the KL is to, some way off.
    ref = old + 0.2 * torch.randn(old.shape, generator=generator)
    losses, norms, logps = [], [], []
    for _ in range(STEPS):
        new = torch.cat([logp(network, *row) for row in given])
        logps.append(new.detach())
        ratio, gap = (new - old).exp(), ref - new
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        loss = -torch.minimum(ratio * advantage, clipped * advantage) + KL * (gap.exp() - 1 - gap)
        loss = loss.mean()
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_NORM))
        losses.append(loss.detach())
        optimizer.step()
    with torch.no_grad():
        logps.append(torch.cat([logp(network, *row) for row in given]))
    print(model, "norms", [f"{norm:.2f}" for norm in norms], "loss", losses[0].item(), losses[-1].item())
    weights = {name: weight.detach().clone() for name, weight in network.state_dict().items() if name in KEPT}
    kept = {"advantage": advantage, "ref_logp": ref, "loss": torch.stack(losses), "grad_norm": torch.stack(norms)}
    save_file({**kept, "logp": torch.stack(logps), **weights}, HERE / model / "updates.safetensors")


def adamw():
    """Gradients of all sizes, some longer than the bound; the parameters after each update."""
    generator = torch.Generator().manual_seed(2)
    parameters = [torch.randn(shape, generator=generator) for shape in ((8, 5), (7,))]
    begin = [parameter.clone() for parameter in parameters]
    sizes = 10.0 ** torch.linspace(-4, 1, STEPS)
    gradients = [torch.randn(STEPS, *p.shape, generator=generator) * sizes.view(-1, *[1] * p.dim()) for p in parameters]
    optimizer = torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.3)
    after = [[], []]
    for step in range(STEPS):
        for parameter, own in zip(parameters, gradients):
            parameter.grad = own[step].clone()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        for kept, parameter in zip(after, parameters):
            kept.append(parameter.detach().clone())
    kept = {}
    for name, first, own, all in zip(("matrix", "vector"), begin, gradients, after):
        kept.update({f"{name}.begin": first, f"{name}.gradient": own, f"{name}.after": torch.stack(all)})
    save_file(kept, HERE / "adamw.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    adamw()
    for name in ("qwen2", "qwen3", "llama"):
        updates(name)
