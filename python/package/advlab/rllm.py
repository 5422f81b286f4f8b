"""rLLM: an advantage estimator that runs a recipe, with one value per trajectory.

import advlab.rllm
advlab.rllm.register()      # then ADVLAB_RECIPE=mine.rhai, and the estimator `other`
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ._trainers import OF_LOGP, Trainer, kinds_of, of_rows, registry, sees_turns, with_its_rows

RLLM = Trainer(
    "rLLM",
    lacks=dict.fromkeys((*OF_LOGP, "entropy", "value"), "rLLM passes only rewards and trajectories to an estimator"),
    turns="each step is a row, and all steps of a trajectory get one advantage",
    one_per=("trajectory", "rLLM takes one value for all steps of a trajectory"),
)


@with_its_rows
def estimate(rewards: list[np.ndarray], algorithm_config: Any = None, **others: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """rLLM's advantage estimator. It takes the rewards of each group's trajectories, and returns advantages and returns of the
    same shapes.

    Columns are `reward`, and `reward_<name>` for each signal of a trajectory. A recipe that names `trajectory` or `step_reward`
    sees each step, with its reward, `length`, and the numbers and texts of its `metadata`; all steps get one advantage.
    """
    sizes = [len(group) for group in rewards]
    if not sum(sizes):
        return list(rewards), list(rewards)
    mode, groups = getattr(algorithm_config, "loss_agg_mode", None), others.get("traj_groups") or ()
    is_known = mode == "token-mean" and len(groups) > 0
    why = None if is_known else f"rLLM can apply the recipe's weights only with `traj_groups` and `loss_agg_mode=token-mean`; here, the mode is {mode}"
    live = RLLM.open_from_environment("tokens", why)
    trajectories = [one for group in groups for one in group.trajectories]
    # `sees_turns` is called only once, because a new version may be published at any time.
    turns = sees_turns(live)
    if not trajectories and turns:
        raise ValueError(
            f"{live.name} names `trajectory` or `step_reward`, but this version of rLLM passes no `traj_groups`, which hold the steps"
        )
    rows = [(place, step) for place, one in enumerate(trajectories) for step in one.steps or [None]]
    lengths = np.array([len(step.response_ids) if step else 0 for _, step in rows])
    places = np.array([place for place, _ in rows], dtype=int)
    flat = np.concatenate([np.asarray(group, dtype=np.float64) for group in rewards])
    columns: dict[str, Any] = {"groups": np.repeat(np.arange(len(sizes)), sizes), "reward": flat}
    signals = [getattr(one, "signals", None) or {} for one in trajectories]
    columns.update(of_rows([{f"reward_{name}": value for name, value in own.items()} for own in signals], kinds_of(live)))
    counts: Any = np.bincount(places, lengths, len(trajectories)) if trajectories else [1] * sum(sizes)
    if turns:
        columns = {name: np.asarray(values)[places] for name, values in columns.items()}
        more = of_rows([(step.metadata if step else None) or {} for _, step in rows], kinds_of(live))
        own: dict[str, Any] = {
            "step_reward": [getattr(step, "reward", None) or 0.0 for _, step in rows],
            "length": lengths,
            "trajectory": places,
        }
        columns, counts = {**more, **columns, **own}, lengths
    # If rLLM passes no steps, no version can take turns, so each new version is tried on the last batch.
    adapter = replace(RLLM, rows_follow=len(trajectories) > 0)
    values = adapter.per_response(live, columns, counts, "tokens", turns)
    if turns:
        of_steps, values = values, np.zeros(len(trajectories))
        values[places[lengths > 0]] = of_steps[lengths > 0]
    by_group = np.split(values, np.cumsum(sizes)[:-1])
    return by_group, by_group


def register(name: str = "other") -> None:
    """Puts the estimator into rLLM's registry."""
    places = ("experimental.common", "trainer.common", "trainer.algorithms")
    found = registry("rLLM", *(f"rllm.{place}.advantage" for place in places))
    # The decorator was renamed in August 2026; some later versions keep the old name as an alias.
    decorator = getattr(found, "register_adv_estimator", None) or found.register_rllm_adv_estimator
    decorator(name)(estimate)
