#!/usr/bin/env python3
"""Times advlab beside verl's own CPU functions on the same padded batch, and compares the numbers.

    python -m venv .peers && .peers/bin/pip install torch==2.11.0 verl==0.9.1 ./python
    cargo build --release
    .peers/bin/python examples/peers/compare.py --write docs/performance.md

verl's functions are called as its trainer calls them; for `ppo_clip` the peer is eager torch, forward and backward. Times
are medians. `script` and `native` are times of the program, without reading the file and building its layout. `Python` is the
time of a call in verl's process, with the layout; the call takes padded tensors and returns a new array ([B], or [B, T] with
values per token). `of floor` is the least time in which the machine can move the necessary bytes once, as a share of advlab's
time; these are the bytes of the columns that are read, for the tokens that count, and of the padded result.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import advlab
import numpy as np
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from verl.trainer.ppo import core_algos as verl

BEGIN, END = "<!-- figures of compare.py -->\n", "<!-- end of figures -->\n"
CONFIG = OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": True})
# The number of token columns that a recipe reads with the settings below.
COLUMNS = {"reinforce_pp": 2, "gae": 1, "ppo_clip": 4}
# These columns, as keyword arguments of a call in Python.
READS = {"reinforce_pp": {"old_logp": "old_log_probs", "ref_logp": "ref_log_prob"}, "gae": {"value": "values"}}


def make_batch(groups, size, tokens, seed):
    """A right-padded batch as verl holds it: lengths from tokens/8 to tokens, a reward of 0 or 1 on the last token."""
    generator = torch.Generator().manual_seed(seed)
    rows = groups * size
    length = torch.randint(max(1, tokens // 8), tokens + 1, (rows,), generator=generator)
    mask = (torch.arange(tokens)[None] < length[:, None]).to(torch.int64)
    rate = torch.rand(groups, generator=generator).repeat_interleave(size)
    reward = (torch.rand(rows, generator=generator) < rate).float()
    token_rewards = torch.zeros(rows, tokens)
    token_rewards[torch.arange(rows), length - 1] = reward
    old = -torch.rand(rows, tokens, generator=generator)
    ref = old + 0.1 * torch.randn(rows, tokens, generator=generator)
    values = torch.rand(rows, tokens, generator=generator)
    new = old + 0.05 * torch.randn(rows, tokens, generator=generator)
    advantages = torch.randn(rows, tokens, generator=generator) * mask
    return {
        "token_level_rewards": token_rewards,
        "response_mask": mask,
        "old_log_probs": old,
        "ref_log_prob": ref,
        "log_probs": new,
        "values": values,
        "advantages": advantages,
        "index": torch.arange(groups).repeat_interleave(size),
    }


def peers(batch):
    """For each recipe: its settings, and the peer's function, or None if verl has no such estimator."""
    rewards, mask = batch["token_level_rewards"], batch["response_mask"]
    old, ref = batch["old_log_probs"], batch["ref_log_prob"]
    ids = np.array([f"uid-{i}" for i in batch["index"].tolist()], dtype=object)

    def reinforce_pp():
        kl = verl.kl_penalty_forward(old, ref, "k1")
        shaped = rewards - 0.001 * kl * mask
        return verl.compute_reinforce_plus_plus_outcome_advantage(shaped, mask, config=CONFIG)[0]

    def baseline():
        function = verl.compute_reinforce_plus_plus_baseline_outcome_advantage
        return function(rewards, mask, ids, config=CONFIG)[0]

    def gae():
        return verl.compute_gae_advantage_return(rewards, batch["values"], mask, 1.0, 0.95)[0] * mask

    return {
        "grpo": ([], lambda: verl.compute_grpo_vectorized_outcome_advantage(rewards, mask, ids)[0]),
        "rloo": ([], lambda: verl.compute_rloo_vectorized_outcome_advantage(rewards, mask, ids)[0]),
        "reinforce_pp": (["kl_beta=0.001"], reinforce_pp),
        "reinforce_pp_baseline": ([], baseline),
        "gae": (["gamma=1.0", "lambda=0.95"], gae),
        "passk": (["k=4"], None),
        "grpo_lambda": ([], None),
        "ppo_clip": (["kl_beta=0.001"], lambda: ppo_clip(batch)),
    }


def ppo_clip(batch):
    """The gradient of PPO's clipped loss with k3 with respect to the log-probs, in eager torch: forward and backward."""
    logp = batch["log_probs"].detach().requires_grad_(True)
    mask, advantages = batch["response_mask"], batch["advantages"]
    ratio = torch.exp(logp - batch["old_log_probs"])
    gap = batch["ref_log_prob"] - logp
    clipped = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    loss = ((-clipped + 0.001 * (torch.exp(gap) - 1 - gap)) * mask).sum() / mask.sum()
    loss.backward()
    return logp.grad


def bandwidth(threads, values=1 << 26):
    """Bytes per second of adding one large array to another, two reads and a write: the best of five runs."""
    torch.set_num_threads(threads)
    a, b = torch.ones(values), torch.ones(values)
    return 3 * 4 * values / min(timed(lambda: a.add_(b)) for _ in range(5))


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def row(recipe, settings, peer, batch, path, options, threads, rate):
    """The median times of advlab and of the peer, and how far their advantages are apart."""
    sets = [word for setting in settings for word in ("--set", setting)]
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    profile = [options.advlab, "profile", recipe, path, "--runs", str(options.runs), "--json", *sets]
    ours = json.loads(subprocess.check_output(profile, env=environment))

    def median(kind):
        seconds = (ours.get(kind) or {}).get("seconds")
        return statistics.median(seconds) if seconds else None

    mask = batch["response_mask"]
    least = 4 * COLUMNS.get(recipe, 0) * int(mask.sum()) + 4 * mask.numel()
    kinds = {kind: median(kind) for kind in ("script", "native")}
    fastest = min(seconds for seconds in kinds.values() if seconds)
    # The best time, because the bandwidth is also the best of several runs.
    best = min(min(ours[kind]["seconds"]) for kind in ("script", "native") if ours.get(kind))
    result = {"recipe": recipe, "threads": threads, **kinds, "of_floor": least / rate / best}
    # The package has as many threads as the machine has cores.
    if recipe != "ppo_clip" and threads == os.cpu_count():
        loaded, seconds = advlab.load(recipe), []
        columns = {ours: batch[theirs] for ours, theirs in READS.get(recipe, {}).items()}
        columns |= {"mask": mask, "groups": batch["index"], "token_reward": batch["token_level_rewards"]}
        for _ in range(options.runs + 2):
            start = time.perf_counter()
            # As in a trainer, a result is still held while the next one is computed.
            held = loaded.advantage(**columns)
            seconds.append(time.perf_counter() - start)
        result["python_first"], result["python"] = seconds[0], statistics.median(seconds[2:])
    if peer is None:
        return result
    torch.set_num_threads(threads)
    wanted = peer()
    result["verl"] = statistics.median(timed(peer) for _ in range(max(1, options.runs // 2)))
    result["ratio"] = result["verl"] / result.get("python", fastest)
    if recipe != "ppo_clip":
        out = path.parent / "out.safetensors"
        apply = [options.advlab, "apply", recipe, path, "-o", out, "--force", *sets]
        subprocess.check_call(apply, stdout=subprocess.DEVNULL, env=environment)
        apart = (load_file(out)["advantages"] - wanted) * mask
        result["max_diff"] = float(apart.abs().max())
    return result


def markdown(rows, options, bandwidths):
    """The table, after a line that names the machine, the batch and the version."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    shape = f"{options.groups} groups of {options.size}, responses of up to {options.tokens} tokens"
    moved = ", ".join(f"{rate / 1e9:.1f} GB/s with {threads} thread{'s' * (threads > 1)}" for threads, rate in bandwidths.items())
    lines = [
        f"{date}, commit {commit.stdout.strip()}, {platform.machine()} with {os.cpu_count()} cores, {shape}; "
        f"the machine moves {moved}. Milliseconds, medians of {options.runs} runs.",
        "",
        "| recipe | threads | script | native | Python, first call | Python | verl | faster | of floor | largest difference |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]

    def shown(value, scale, form, unit=""):
        return "-" if value is None else format(scale * value, form) + unit

    for one in rows:
        cells = [one["recipe"], str(one["threads"])]
        cells += [shown(one[kind], 1e3, ".1f") for kind in ("script", "native")]
        cells += [shown(one.get(kind), 1e3, ".0f") for kind in ("python_first", "python", "verl")]
        cells += [shown(one.get("ratio"), 1, ".1f", " x")]
        cells += [shown(one["of_floor"], 100, ".0f", " %"), shown(one.get("max_diff"), 1, ".1e")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advlab", default="target/release/advlab")
    parser.add_argument("--groups", type=int, default=512)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, nargs="*", default=[os.cpu_count()])
    parser.add_argument("--recipes", nargs="*")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--write", type=Path, help="replace the table in this document")
    options = parser.parse_args()
    batch = make_batch(options.groups, options.size, options.tokens, options.seed)
    rows, bandwidths = [], {threads: bandwidth(threads) for threads in options.threads}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batch.safetensors"
        save_file({name: values.contiguous() for name, values in batch.items()}, path)
        for recipe, (settings, peer) in peers(batch).items():
            if options.recipes and recipe not in options.recipes:
                continue
            for threads in options.threads:
                rate = bandwidths[threads]
                rows.append(row(recipe, settings, peer, batch, path, options, threads, rate))
                print(json.dumps(rows[-1]), flush=True)
    table = markdown(rows, options, bandwidths)
    print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.write:
        text = options.write.read_text()
        before, rest = text.split(BEGIN)
        options.write.write_text(before + BEGIN + table + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
