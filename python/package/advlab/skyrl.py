"""SkyRL: an advantage estimator of a recipe.

import advlab.skyrl
advlab.skyrl.register()     # before ray starts; then ADVLAB_RECIPE=mine.rhai and trainer.algorithm.advantage_estimator=advlab
"""

from typing import Any

from ._trainers import Trainer, callers, on_cpu, registry, row_sums, setting, warn_of_unknown_loss

SKYRL = Trainer(
    "SkyRL",
    {
        "value": "the critic runs with `trainer.critic.model.path`",
        **dict.fromkeys(("old_logp", "ref_logp"), "SkyRL passes no log-probs to an estimator"),
    },
)

MEANS = ("sequence_mean", "seq_mean_token_sum_norm")
"""The values of `trainer.algorithm.loss_reduction` that weights can follow: means over responses. `token_mean` is over the tokens of
`loss_mask`, which an estimator is not given."""

PROPORTIONAL = (None, "regular", "dual_clip", "gspo", "cispo", "sapo")  # SkyRL's losses that are proportional to the advantage.


def estimate(token_level_rewards: Any, response_mask: Any, index: Any, values: Any = None, **settings: Any) -> tuple[Any, Any]:
    """SkyRL's advantage estimator: advantages and returns, float32 [B, T], 0 where the mask is 0.

    `gamma` and `lambd` are the recipe's `gamma` and `lambda` if it has them and reads rewards per token or values.
    """
    config = settings.get("config")
    if getattr(config, "advantage_batch_normalize", False):
        raise ValueError("SkyRL would normalise the recipe's advantages: leave `trainer.algorithm.advantage_batch_normalize` out")
    reduction, loss = getattr(config, "loss_reduction", None), getattr(config, "policy_loss_type", None)
    why = None
    if reduction not in MEANS:
        why = f"SkyRL cannot follow it with `trainer.algorithm.loss_reduction={reduction}`: {', '.join(MEANS)} can"
    elif loss in ("clip_cov", "kl_cov"):
        why = f"the loss of `trainer.algorithm.policy_loss_type={loss}` is not proportional to the advantage"
    elif any(setting(getattr(at.f_locals.get("self"), "cfg", None), "generator.step_wise_trajectories") for at in callers()):
        why = "with `generator.step_wise_trajectories` SkyRL's mean is over steps, of which the estimator sees the last"
    theirs = {"gamma": settings.get("gamma"), "lambda": settings.get("lambd")}
    live = SKYRL.open_from_environment("responses", why, **theirs)
    rewards = on_cpu(token_level_rewards)
    columns = {"groups": index, "mask": on_cpu(response_mask), "value": on_cpu(values)}
    out = SKYRL.advantage(live, {**columns, "token_reward": rewards, "reward": row_sums(rewards)}, "responses")
    if out.weight is not None and loss not in PROPORTIONAL:
        warn_of_unknown_loss(live, f"trainer.algorithm.policy_loss_type={loss}")
    device = token_level_rewards.device
    return out.advantage.to(device), out.returns.to(device)


def register(name: str = "advlab") -> None:
    """Puts the estimator into SkyRL's registry, under a name for `trainer.algorithm.advantage_estimator`."""
    found = registry("SkyRL", "skyrl_train.utils.ppo_utils", "skyrl.backends.skyrl_train.utils.ppo_utils")
    found.AdvantageEstimatorRegistry.register(name, estimate)
