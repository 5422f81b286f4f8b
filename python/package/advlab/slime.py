"""slime: the advantage of a recipe, through slime's hook for rewards.

    ADVLAB_RECIPE=mine.rhai ... --advantage-estimator grpo --custom-reward-post-process-path advlab.slime.post_process_rewards

With the estimators `grpo`, `gspo` and `cispo`, and without `--normalize-advantages`, these rewards are slime's advantages.
slime's own hook for advantages, `--custom-advantage-function-path`, sees the samples of one rank, whose groups are split.
"""

import sys
from typing import Any

import numpy as np

from ._trainers import OF_LOGP, Trainer, kinds_of, of_rows, pick, sees_turns, with_its_rows

SLIME = Trainer(
    "slime",
    lacks={
        **dict.fromkeys((*OF_LOGP, "entropy", "value"), "slime computes this column only after its hook for rewards, which runs the recipe"),
        "rollout_logp": "advlab reads no log-probs from slime's samples",
    },
    one_per=("response", "slime takes one value for each response"),
)


@with_its_rows
def post_process_rewards(args: Any, samples: list[Any], **_: Any) -> tuple[list[float], list[float]]:
    """Returns the unchanged rewards, and the advantages that slime uses in place of rewards, one for each sample.

    Columns are `reward`, `length` (tokens that count), `reward_<name>` for each number in rewards that are dictionaries, and the
    numbers and texts of `metadata`; `group_index` says which samples answer one prompt. If several samples have one `rollout_id`,
    only one of them is a row, the last with tokens that count or, if there is none, the last; all of them get its advantage. If
    the recipe names `trajectory` or `step_reward`, each sample is a row.
    """
    if getattr(args, "normalize_advantages", False):
        raise ValueError("slime would normalise the recipe's advantages: leave `--normalize-advantages` out")
    if getattr(args, "custom_advantage_function_path", None):
        raise ValueError("`--custom-advantage-function-path` would replace the recipe's advantages: leave it out")
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in ("grpo", "gspo", "cispo"):
        raise ValueError(
            f"with `--advantage-estimator {estimator}` slime changes the recipe's advantages: set grpo, gspo or cispo"
        )
    flat = [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]
    rewards, groups = [sample.get_reward_value(args) for sample in flat], [sample.group_index for sample in flat]
    missing = [name for name, values in (("a reward", rewards), ("a group_index", groups)) if None in values]
    if missing:
        raise ValueError(f"some samples lack {' and '.join(missing)}, so the advantages of their groups would be wrong")
    mean = "tokens" if getattr(args, "calculate_per_token_loss", False) else "responses"
    live = SLIME.open_from_environment(mean)
    lengths = np.array(
        [sum(one.loss_mask) if getattr(one, "loss_mask", None) is not None else one.response_length for one in flat]
    )
    ids = [getattr(sample, "rollout_id", None) for sample in flat]
    # A sample without an id is a rollout of its own, as in slime.
    keys = [(id is None, at if id is None else id) for at, id in enumerate(ids)]
    # slime empties the loss mask of removed samples only after this hook, so their tokens are not counted here.
    counts = np.array([0 if getattr(one, "remove_sample", False) else length for one, length in zip(flat, lengths, strict=True)])
    last = {key: at for at, key in enumerate(keys) if not counts[at]}
    last.update({key: at for at, key in enumerate(keys) if counts[at]})
    ends = sorted(last.values())
    place = np.searchsorted(ends, [last[key] for key in keys])  # The index of each sample's rollout.
    turns = sees_turns(live)
    rows = list(range(len(flat))) if turns else ends
    parts = [one.reward if isinstance(one.reward, dict) else {} for one in flat]
    more = [dict(getattr(one, "metadata", None) or {}) for one in flat]
    for own, part in zip(more, parts, strict=True):
        own.update({f"reward_{name}": value for name, value in part.items()})
    columns = of_rows(more, kinds_of(live))
    columns.update(groups=groups, reward=[float(reward) for reward in rewards], length=lengths.tolist())
    if turns:
        scores = [reward if last[key] == at else 0.0 for at, (key, reward) in enumerate(zip(keys, rewards, strict=True))]
        columns = {"step_reward": scores, **columns, "trajectory": place.tolist()}
    if not turns:
        counts = np.bincount(place, counts)
    step = getattr(sys.modules.get("slime.rollout.sample_hooks"), "_current_rollout_id", None)
    values = SLIME.per_response(live, {**pick(columns, rows), "step": step}, counts, mean, turns, place if turns else None)
    return rewards, (values if turns else values[place]).tolist()
