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


MEANS = {"token_mean": "tokens", "sequence_mean": "responses", "seq_mean_token_sum_norm": "responses"}
"""What SkyRL's `trainer.algorithm.loss_reduction` averages over."""


def estimate(token_level_rewards: Any, response_mask: Any, index: Any, values: Any = None, **settings: Any) -> tuple[Any, Any]:
    """SkyRL's advantage estimator: advantages and returns, float32 [B, T], 0 where the mask is 0.

    `gamma` and `lambd` are the recipe's `gamma` and `lambda` where it has them and reads rewards by token or values.
    """
    config = settings.get("config")
    if getattr(config, "advantage_batch_normalize", False):
        raise ValueError("SkyRL would normalise the recipe's advantages: leave `trainer.algorithm.advantage_batch_normalize` out")
    reduction, loss = getattr(config, "loss_reduction", None), getattr(config, "policy_loss_type", None)
    refuses = {}
    if reduction not in MEANS:
        refuses["weight"] = f"SkyRL cannot follow it with `trainer.algorithm.loss_reduction={reduction}`: {', '.join(MEANS)} can"
    elif loss in ("clip_cov", "kl_cov"):
        refuses["weight"] = f"the loss of `trainer.algorithm.policy_loss_type={loss}` is not proportional to the advantage"
    theirs = {"gamma": settings.get("gamma"), "lambda": settings.get("lambd")}
    live = from_environment("SkyRL", refuses, **theirs)
    rewards, mask = on_cpu(token_level_rewards), on_cpu(response_mask)
    columns = {"token_reward": rewards, "reward": row_sums(rewards)}
    if values is not None:
        columns["value"] = on_cpu(values)
    out, returns = stepped(live, OPTIONS, "SkyRL", groups=index, mask=mask, step=None, columns=columns)
    return weighted(out, mask, MEANS.get(reduction, "tokens")).to(token_level_rewards.device), returns.to(
        token_level_rewards.device
    )


def register(name: str = "advlab") -> None:
    """Puts the estimator into SkyRL's registry, under a name for `trainer.algorithm.advantage_estimator`."""
    found = registry("SkyRL", "skyrl_train.utils.ppo_utils", "skyrl.backends.skyrl_train.utils.ppo_utils")
    found.AdvantageEstimatorRegistry.register(name, estimate)
