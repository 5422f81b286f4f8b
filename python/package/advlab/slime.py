"""slime: the advantage of a recipe by its hook for rewards.

    ADVLAB_RECIPE=mine.rhai ... --advantage-estimator grpo --custom-reward-post-process-path advlab.slime.post_process_rewards

With the estimators `grpo`, `gspo` and `cispo`, and without `--normalize-advantages`, these rewards are slime's advantages.
slime's own hook for advantages, `--custom-advantage-function-path`, sees the samples of one rank, whose groups are split.
"""

import sys
from typing import Any

from ._trainers import Trainer

SLIME = Trainer("slime")


def post_process_rewards(args: Any, samples: list[Any], **_: Any) -> tuple[list[float], list[float]]:
    """The rewards as they were, and the advantages in their place: one for each sample.

    Columns are `reward` and `length` (tokens that count); `group_index` says which samples answer one prompt.
    """
    if getattr(args, "normalize_advantages", False):
        raise ValueError("slime would normalise the recipe's advantages: leave `--normalize-advantages` out")
    if getattr(args, "custom_advantage_function_path", None):
        raise ValueError("`--custom-advantage-function-path` would replace the recipe's advantages: leave it out")
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in ("grpo", "gspo", "cispo"):
        raise ValueError(
            f"with `--advantage-estimator {estimator}` slime makes something else of the recipe's advantages: set grpo, gspo or cispo"
        )
    flat = [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]
    rewards, groups = [sample.get_reward_value(args) for sample in flat], [sample.group_index for sample in flat]
    missing = [name for name, values in (("a reward", rewards), ("a group_index", groups)) if None in values]
    if missing:
        raise ValueError(f"some samples have not {' and '.join(missing)}: the recipe would be wrong for their groups")
    mean = "tokens" if getattr(args, "calculate_per_token_loss", False) else "responses"
    live = SLIME.open_from_environment(mean)
    rollouts = [one for sample in flat if (one := getattr(sample, "rollout_id", None)) is not None]
    if "weight" in live.hooks and len(set(rollouts)) < len(rollouts):
        raise ValueError("several samples have one `rollout_id`, and slime averages them as one: leave the recipe's weights out")
    lengths = [sum(one.loss_mask) if getattr(one, "loss_mask", None) is not None else one.response_length for one in flat]
    # slime empties the loss mask of those after this hook.
    counts = [0 if getattr(sample, "remove_sample", False) else length for sample, length in zip(flat, lengths, strict=True)]
    step = getattr(sys.modules.get("slime.rollout.sample_hooks"), "_current_rollout_id", None)
    columns = {"groups": groups, "step": step, "reward": [float(reward) for reward in rewards], "length": lengths}
    return rewards, SLIME.per_response(live, columns, counts, mean).tolist()
