"""What a recipe costs inside verl: everything but the kernel, against one read of the mask, and verl's own functions beside it.

python python/benches/beside_verl.py      # a release build of advlab, verl 0.9
"""

import sys
import time

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos

import advlab.verl  # noqa: F401
from advlab import _trainers


def best(call, times=7):
    """The shortest of some calls, in milliseconds."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return min(took) * 1e3


def case(rows, width, names):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 4, width + 1, (rows,), generator=generator)
    mask = (torch.arange(width) < lengths[:, None]).long()
    rewards = torch.zeros(rows, width)
    rewards[torch.arange(rows), lengths - 1] = torch.randint(0, 2, (rows,), generator=generator).float()
    uid = np.array([f"{row // 8:08x}-uid" for row in range(rows)], dtype=object)
    config = OmegaConf.create({})
    read = best(lambda: mask.sum())
    print(f"| {rows} x {width}: one read of the mask, its sum | {read:.1f} | | | |")
    print(f"| the sums of the rewards' rows, as verl takes them too | {best(lambda: rewards.sum(-1)):.1f} | | | |")
    for ours, theirs in names:
        estimator = core_algos.ADV_ESTIMATOR_REGISTRY[f"advlab/{ours}"]
        batch = {"token_level_rewards": rewards, "response_mask": mask, "index": uid}
        whole = best(lambda: estimator(**batch, config=config))
        (live,) = [live for live in _trainers._live.values() if live.name == ours]
        columns = {"reward": rewards.sum(-1), "token_reward": rewards}
        seconds = min(live.advantage(groups=uid, mask=mask, **columns).seconds for _ in range(5)) * 1e3
        verls = core_algos.ADV_ESTIMATOR_REGISTRY[theirs]
        own = best(lambda: verls(**batch), 2)
        around = whole - seconds
        print(f"| {ours} | {whole:.1f} | {seconds:.1f} | {around:.1f} ({around / read:.2f} reads) | {own:.1f} |")


def main():
    print("| | whole call, ms | hooks, ms | around them, ms | verl's own, ms |")
    print("|---|---|---|---|---|")
    sizes = [(8192, 4096), (1024, 8192)] if len(sys.argv) < 3 else [(int(sys.argv[1]), int(sys.argv[2]))]
    for rows, width in sizes:
        case(rows, width, [("grpo", "grpo"), ("rloo", "rloo")])


if __name__ == "__main__":
    main()
