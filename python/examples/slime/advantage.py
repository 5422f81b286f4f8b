"""slime's hook for rewards with a recipe, on 2 prompts with 8 samples each; it needs no slime and no GPU. In a training run:

    ADVLAB_RECIPE=$PWD/python/examples/verl/mine.rhai ADVLAB_PARAMS='{"k": 4}' python train.py --advantage-estimator grpo \\
        --custom-reward-post-process-path advlab.slime.post_process_rewards ...
"""

import os
from pathlib import Path
from types import SimpleNamespace

from advlab.slime import post_process_rewards

os.environ.setdefault("ADVLAB_RECIPE", str(Path(__file__).parents[1] / "verl/mine.rhai"))
os.environ.setdefault("ADVLAB_PARAMS", '{"k": 4}')


class Sample(SimpleNamespace):
    """The part of slime's sample that the hook reads."""

    def get_reward_value(self, args):
        return self.reward


args = SimpleNamespace(advantage_estimator="grpo", normalize_advantages=False, rollout_id=0)
samples = [
    Sample(group_index=row // 8, response_length=6, loss_mask=None, reward=float(row % 3 == 0), index=row) for row in range(16)
]
raw, advantages = post_process_rewards(args, samples)
for sample, reward, advantage in zip(samples, raw, advantages):
    print(f"prompt {sample.group_index}  reward {reward:.0f}  advantage {advantage:6.3f}")
