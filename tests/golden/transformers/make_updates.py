#!/usr/bin/env python3
"""What PyTorch makes of the models beside this file in 20 updates along PPO's clipped loss, and of AdamW alone.

    pip install torch==2.11.0 transformers==5.10.4 && python tests/golden/transformers/make_updates.py

Writes `MODEL/updates.safetensors` and `adamw.safetensors`. One thread; all numbers are seeded."""
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
STEPS, LR, DECAY, CLIP, KL, MAX_NORM = 20, 5e-6, 0.1, 0.2, 0.05, 0.5
# Above the rounding of gradients that are 0 but for it, such as those of some keys: at PyTorch's 1e-8 it becomes whole steps.
EPS = 1e-6
# The least distance of a ratio from a bound of the clip.
AWAY = 1e-2
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


class NearKink(Exception):
    """A ratio so near to a bound of the clip that rounding may decide its gradient."""


def run(model, dtype, given, old, advantage, ref):
    """The updates in one precision: of each step the log-probs, the loss and the gradient's norm, and the last weights."""
    network = AutoModelForCausalLM.from_pretrained(HERE / model, dtype=dtype)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, eps=EPS, weight_decay=DECAY)
    losses, norms, logps = [], [], []
    for step in range(STEPS):
        new = torch.cat([logp(network, *row) for row in given])
        logps.append(new.detach())
        ratio, gap = (new - old).exp(), ref - new
        for kink in (1 - CLIP, 1 + CLIP):
            distance, token = (ratio.detach() - kink).abs().min(0)
            if distance < AWAY:
                raise NearKink(f"{model}, {dtype}, step {step}: the ratio of token {token} is {distance:.4f} from {kink}")
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
    weights = {name: weight.detach() for name, weight in network.state_dict().items() if name in KEPT}
    return {"loss": torch.stack(losses), "grad_norm": torch.stack(norms), "logp": torch.stack(logps), **weights}


def updates(model):
    """With the first seed whose ratios all keep away from the kinks."""
    for seed in range(1, 1000):
        try:
            return updates_of(model, seed)
        except NearKink as refused:
            print(f"seed {seed} is refused: {refused}")
    raise SystemExit(f"{model}: each seed has a ratio at a kink; lower LR")


def updates_of(model, seed):
    """Expected values are those of float64; `rounding.NAME` is how far float32 is from them at most."""
    given, generator = rows(model), torch.Generator().manual_seed(seed)
    network = AutoModelForCausalLM.from_pretrained(HERE / model, dtype=torch.float32)
    with torch.no_grad():
        new = torch.cat([logp(network, *row) for row in given])
    normal = lambda: torch.randn(new.shape, generator=generator)
    # A third of the ratios each begins below, between and above the clip's bounds.
    begin = torch.tensor([0.5, 1.0, 1.6])[torch.randint(3, new.shape, generator=generator)]
    old, advantage = new - begin.log(), normal()
    # The policy that the KL is to, some way off.
    ref = new + 0.2 * normal()
    inputs = {"old_logp": old, "advantage": advantage, "ref_logp": ref}
    narrow, wide = (run(model, dtype, given, *(column.to(dtype) for column in inputs.values()))
                    for dtype in (torch.float32, torch.float64))
    rounding = {name: (narrow[name] - wide[name]).abs().max() for name in wide}
    print(model, "seed", seed, "norms", [f"{norm:.2f}" for norm in wide["grad_norm"]], "loss", wide["loss"][0].item(), wide["loss"][-1].item())
    print({name: f"{value.item():.1e}" for name, value in rounding.items()})
    kept = {**inputs, **wide, **{f"rounding.{name}": value[None] for name, value in rounding.items()}}
    kept = {name: value.float().contiguous() for name, value in kept.items()}
    save_file(kept, HERE / model / "updates.safetensors")


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
