"""rLLM: an advantage estimator of a recipe, one value per trajectory.

import advlab.rllm
advlab.rllm.register()      # then ADVLAB_RECIPE=mine.rhai, and the estimator `other`
"""

from typing import Any

import numpy as np

from ._trainers import Trainer, registry

RLLM = Trainer("rLLM")


def estimate(rewards: list[np.ndarray], algorithm_config: Any = None, **others: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """rLLM's advantage estimator: the rewards of each group's trajectories in, advantages and returns of the same shapes out."""
    sizes = [len(group) for group in rewards]
    if not sum(sizes):
        return list(rewards), list(rewards)
    mode, groups = getattr(algorithm_config, "loss_agg_mode", None), others.get("traj_groups") or ()
    is_known = mode == "token-mean" and len(groups) > 0
    why = None if is_known else f"rLLM can follow it only with `loss_agg_mode=token-mean`, and not with {mode}"
    live = RLLM.open_from_environment("tokens", why)
    of_all = [one for group in groups for one in group.trajectories] if is_known else []
    counts = [sum(len(step.response_ids) for step in one.steps) for one in of_all] or [1] * sum(sizes)
    flat = np.concatenate([np.asarray(group, dtype=np.float64) for group in rewards])
    columns = {"groups": np.repeat(np.arange(len(sizes)), sizes), "reward": flat}
    by_group = np.split(RLLM.per_response(live, columns, counts, "tokens"), np.cumsum(sizes)[:-1])
    return by_group, by_group


def register(name: str = "other") -> None:
    """Puts the estimator into rLLM's registry."""
    places = ("experimental.common", "trainer.common", "trainer.algorithms")
    registry("rLLM", *(f"rllm.{place}.advantage" for place in places)).register_rllm_adv_estimator(name)(estimate)
