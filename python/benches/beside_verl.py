"""Measures the time of a recipe inside verl, the part of this time outside the hooks, and the time of verl's own function.

python python/benches/beside_verl.py      # a release build of advlab, verl 0.9

The calls alternate, so that other load on the machine affects all of them alike. Before each call, other memory is read, so that
nothing of the batch is in the caches, as after a training step. The shortest time of each call is printed.
"""

import sys
import time

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos

import advlab.verl  # noqa: F401
from advlab import _trainers


def best(calls, times=11):
    """Returns the shortest of the times of each call, in milliseconds."""
    others = torch.zeros(1 << 28)
    took = {name: [] for name in calls}
    for _ in range(times):
        for name, call in calls.items():
            others.sum()
            # Torch's threads keep spinning for a while after a computation.
            time.sleep(0.01)
            start = time.perf_counter()
            call()
            took[name].append(time.perf_counter() - start)
    return {name: min(times) * 1e3 for name, times in took.items()}


def case(rows, width, names):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 4, width + 1, (rows,), generator=generator)
    mask = (torch.arange(width) < lengths[:, None]).long()
    rewards = torch.zeros(rows, width)
    rewards[torch.arange(rows), lengths - 1] = torch.randint(0, 2, (rows,), generator=generator).float()
    uid = np.array([f"{row // 8:08x}-uid" for row in range(rows)], dtype=object)
    batch = {"token_level_rewards": rewards, "response_mask": mask, "index": uid}
    config = OmegaConf.create({})
    registry = core_algos.ADV_ESTIMATOR_REGISTRY
    calls = {"mask": lambda: mask.sum(), "rewards": lambda: rewards.sum(-1)}
    for ours, _ in names:
        calls[ours] = lambda ours=ours: registry[f"advlab/{ours}"](**batch, config=config)
    took = best(calls)
    read = took["mask"]
    print(f"| {rows} x {width}: one read of the mask, its sum | {read:.1f} | | | | |")
    print(f"| the sums of the rewards' rows | {took['rewards']:.1f} | | | | |")
    for ours, theirs in names:
        (live,) = [live for live in _trainers._live.values() if live.name == ours]
        columns = {"reward": rewards.sum(-1), "token_reward": rewards}
        hooks = min(live.advantage(groups=uid, mask=mask, **columns).seconds for _ in range(5)) * 1e3
        own = best({"verl": lambda: registry[theirs](**batch)}, 2)["verl"]
        around = took[ours] - hooks
        less = around - took["rewards"]
        reads = f"{around:.1f} ({around / read:.2f} reads) | {less:.1f} ({less / read:.2f} reads)"
        print(f"| {ours} | {took[ours]:.1f} | {hooks:.1f} | {reads} | {own:.1f} |")


def main():
    print("| | whole call, ms | hooks, ms | around them, ms | without the sums of rewards, which verl's function also computes | verl's own, ms |")
    print("|---|---|---|---|---|---|")
    sizes = [(8192, 4096), (1024, 8192)] if len(sys.argv) < 3 else [(int(sys.argv[1]), int(sys.argv[2]))]
    for rows, width in sizes:
        case(rows, width, [("grpo", "grpo"), ("rloo", "rloo")])


if __name__ == "__main__":
    main()
