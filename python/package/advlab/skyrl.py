"""SkyRL: an advantage estimator of a recipe.

import advlab.skyrl
advlab.skyrl.register()     # before ray starts; then ADVLAB_RECIPE=mine.rhai and trainer.algorithm.advantage_estimator=advlab
"""

from __future__ import annotations

from typing import Any

from ._trainers import from_environment, on_cpu, registry, row_sums, stepped, weighted

OPTIONS = {
    "value": "the critic runs with `trainer.critic.model.path`",
    "old_logp": "SkyRL passes no log-probs to an estimator",
    "ref_logp": "SkyRL passes no log-probs to an estimator",
}
"""What to set in SkyRL for a column."""


def estimate(token_level_rewards: Any, response_mask: Any, index: Any, values: Any = None, **settings: Any) -> tuple[Any, Any]:
    """SkyRL's advantage estimator: advantages and returns, float32 [B, T], 0 where the mask is 0.

    `gamma` and `lambd` are the recipe's `gamma` and `lambda` where it has them and reads rewards by token or values.
    """
    theirs = {"gamma": settings.get("gamma"), "lambda": settings.get("lambd")}
    live = from_environment("SkyRL", **theirs)
    rewards, mask = on_cpu(token_level_rewards), on_cpu(response_mask)
    columns = {"token_reward": rewards, "reward": row_sums(rewards)}
    if values is not None:
        columns["value"] = on_cpu(values)
    out, returns = stepped(live, OPTIONS, "SkyRL", groups=index, mask=mask, step=None, columns=columns)
    return weighted(out, mask, "tokens").to(token_level_rewards.device), returns.to(token_level_rewards.device)


def register(name: str = "advlab") -> None:
    """Puts the estimator into SkyRL's registry, under a name for `trainer.algorithm.advantage_estimator`."""
    found = registry("SkyRL", "skyrl_train.utils.ppo_utils", "skyrl.backends.skyrl_train.utils.ppo_utils")
    found.AdvantageEstimatorRegistry.register(name, estimate)
