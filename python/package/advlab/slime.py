"""slime: the advantage of a recipe by its hook for rewards.

    ADVLAB_RECIPE=mine.rhai ... --advantage-estimator grpo --custom-reward-post-process-path advlab.slime.post_process_rewards

With the estimators `grpo`, `gspo` and `cispo`, and without `--normalize-advantages`, these rewards are slime's advantages.
slime's own hook for advantages, `--custom-advantage-function-path`, sees the samples of one rank, whose groups are split.
"""

from __future__ import annotations

import sys
from typing import Any

from ._trainers import NOT_OVER_TOKENS, from_environment, per_response


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
    raw = [sample.get_reward_value(args) for sample in flat]
    missing = [name for name, values in (("a reward", raw), ("a group_index", [s.group_index for s in flat])) if None in values]
    if missing:
        raise ValueError(f"some samples have not {' and '.join(missing)}: the recipe would be wrong for their groups")
    lengths = [sum(s.loss_mask) if getattr(s, "loss_mask", None) is not None else s.response_length for s in flat]
    mean = "tokens" if getattr(args, "calculate_per_token_loss", False) else "responses"
    live = from_environment("slime", {} if mean == "tokens" else {"loss": NOT_OVER_TOKENS})
    out = live.advantage(
        groups=[sample.group_index for sample in flat],
        step=getattr(sys.modules.get("slime.rollout.sample_hooks"), "_current_rollout_id", None),
        reward=[float(reward) for reward in raw],
        length=lengths,
    )
    rollouts = [one for sample in flat if (one := getattr(sample, "rollout_id", None)) is not None]
    if out.weight is not None and len(set(rollouts)) < len(rollouts):
        raise ValueError("several samples have one `rollout_id`, and slime averages them as one: leave the recipe's weights out")
    # slime empties the loss mask of those after this hook.
    counts = [0 if getattr(sample, "remove_sample", False) else length for sample, length in zip(flat, lengths, strict=True)]
    return raw, per_response(live, out, "slime", counts, mean).tolist()
