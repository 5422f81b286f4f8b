"""verl's own `compute_advantage` with a recipe, on a batch of 2 prompts with 8 responses each."""

from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

ROWS, TOKENS = 16, 6


def main():
    recipe = str(Path(__file__).with_name("mine.rhai"))
    config = OmegaConf.create({"advlab": {"recipe": recipe, "params": {"k": 4}}})
    lengths = torch.randint(2, TOKENS + 1, (ROWS,), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(TOKENS) < lengths[:, None]).long()
    rewards = torch.zeros(ROWS, TOKENS)
    rewards[torch.arange(ROWS), lengths - 1] = (torch.arange(ROWS) % 3 == 0).float()
    uid = np.array([f"prompt {row // 8}" for row in range(ROWS)], dtype=object)
    data = DataProto.from_dict(tensors={"token_level_rewards": rewards, "response_mask": mask}, non_tensors={"uid": uid})
    data = compute_advantage(data, "advlab", config=config)
    print(data.batch["advantages"].round(decimals=3))


if __name__ == "__main__":
    main()
