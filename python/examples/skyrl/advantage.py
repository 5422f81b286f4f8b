"""SkyRL's advantage estimator with a recipe, on 2 prompts with 8 responses each; it needs no SkyRL and no GPU. In a training
run, these lines are in the script that calls SkyRL's entry point, before ray starts:

    import advlab.skyrl
    advlab.skyrl.register()

and the command line has `trainer.algorithm.advantage_estimator=advlab`, with ADVLAB_RECIPE in the environment.
"""

import os
from pathlib import Path

import torch

from advlab.skyrl import estimate

os.environ.setdefault("ADVLAB_RECIPE", str(Path(__file__).parents[1] / "verl/mine.rhai"))
os.environ.setdefault("ADVLAB_PARAMS", '{"k": 4}')

rows = torch.arange(16)
mask = (torch.arange(6) < 2 + rows[:, None] % 5).long()
rewards = torch.zeros(16, 6)
rewards[rows, mask.sum(1) - 1] = (rows % 3 == 0).float()
advantages, returns = estimate(rewards, mask, [f"prompt {row // 8}" for row in rows], gamma=1.0, lambd=1.0)
print(advantages)
