"""rLLM: an advantage estimator of a recipe, one value a trajectory.

import advlab.rllm
advlab.rllm.register()      # then ADVLAB_RECIPE=mine.rhai, and the estimator `other`
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._trainers import from_environment, per_response, refuse_weights, registry


def estimate(rewards: list[np.ndarray], algorithm_config: Any = None, **_: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """rLLM's advantage estimator: the rewards of each group's trajectories in, advantages and returns of the same shapes out."""
    sizes = [len(group) for group in rewards]
    if not sum(sizes):
        return list(rewards), list(rewards)
    live = from_environment("rLLM")
    refuse_weights(live, "rLLM does not say how it averages over responses")
    flat = np.concatenate([np.asarray(group, dtype=np.float64) for group in rewards])
    out = live.advantage(groups=np.repeat(np.arange(len(sizes)), sizes), reward=flat)
    by_group = np.split(per_response(live, out, "rLLM"), np.cumsum(sizes)[:-1])
    return by_group, by_group


def register(name: str = "other") -> None:
    """Puts the estimator into rLLM's registry."""
    places = ("experimental.common", "trainer.common", "trainer.algorithms")
    registry("rLLM", *(f"rllm.{place}.advantage" for place in places)).register_rllm_adv_estimator(name)(estimate)
