"""SkyRL: an advantage estimator that runs a recipe.

import advlab.skyrl
advlab.skyrl.register()     # before ray starts; then ADVLAB_RECIPE=mine.rhai and trainer.algorithm.advantage_estimator=advlab
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ._trainers import (
    Trainer, callers, held, on_cpu, registry, row_sums, sees_turns, setting, warn_of_unknown_loss, with_its_rows,
)  # fmt: skip

STEP_WISE = "with `generator.step_wise_trajectories`, only a recipe that names `trajectory` or `step_reward` gets this column"

SKYRL = Trainer(
    "SkyRL",
    {
        "value": "`trainer.critic.model.path` adds a critic, which gives this column",
        "old_logp": f"SkyRL computes no log-probs if `trainer.algorithm.policy_loss_type` needs only the sampler's; {STEP_WISE}",
        "ref_logp": f"`use_kl_loss` or `use_kl_in_reward` of `trainer.algorithm` adds the reference policy; {STEP_WISE}",
        "rollout_logp": f"`generator.sampling_params.logprobs=1` keeps the sampler's log-probs; {STEP_WISE}",
    },
    {"action_log_probs": "old_logp", "base_action_log_probs": "ref_logp", "rollout_logprobs": "rollout_logp", "values": "value"},
    gives=("reward", "token_reward"),
)

MEANS = ("sequence_mean", "seq_mean_token_sum_norm")
"""The values of `trainer.algorithm.loss_reduction` that allow weights, because they are means over responses. `token_mean` is a
mean over the tokens of `loss_mask`, which SkyRL does not pass to an estimator."""

PROPORTIONAL = (None, "regular", "dual_clip", "gspo", "cispo", "sapo", "rollout_is", "dppo", "importance_sampling")
"""SkyRL's losses that are proportional to the advantage."""


@with_its_rows
def estimate(token_level_rewards: Any, response_mask: Any, index: Any, values: Any = None, **settings: Any) -> tuple[Any, Any]:
    """Computes advantages and returns as SkyRL's advantage estimators do: float32 [B, T], 0 where the mask is 0.

    `gamma` and `lambd` set the recipe's `gamma` and `lambda`, if the recipe has these parameters and reads rewards per token or
    values. Only tokens of `loss_mask` count, so rows whose `loss_mask` is empty, such as padding and failed rollouts, are not
    responses. With `generator.step_wise_trajectories`, SkyRL passes only the last step of each trajectory, and a mask of ones; a
    recipe that names `trajectory` gets all steps. Log-probs and `loss_mask` come from SkyRL's batch, which a caller holds.
    """
    config = settings.get("config")
    if getattr(config, "advantage_batch_normalize", False):
        raise ValueError("SkyRL would normalise the recipe's advantages: leave `trainer.algorithm.advantage_batch_normalize` out")
    found = [(at.f_locals.get("self"), at.f_locals.get("data")) for at in callers()]
    data = next((data for _, data in found if hasattr(data, "metadata") and held(data, "loss_mask") is not None), None)
    is_step_wise = any(setting(getattr(own, "cfg", None), "generator.step_wise_trajectories") for own, _ in found)
    reduction, loss = getattr(config, "loss_reduction", None), getattr(config, "policy_loss_type", None)
    why = None
    if reduction not in MEANS:
        why = f"SkyRL cannot apply the recipe's weights with `trainer.algorithm.loss_reduction={reduction}`: set it to {' or '.join(MEANS)}"
    elif loss in ("clip_cov", "kl_cov"):
        why = f"the loss of `trainer.algorithm.policy_loss_type={loss}` is not proportional to the advantage, which the weights multiply"
    elif is_step_wise:
        why = "with `generator.step_wise_trajectories` SkyRL's mean is over steps, of which the estimator sees only the last"
    theirs = {"gamma": settings.get("gamma"), "lambda": settings.get("lambd")}
    live = SKYRL.open_from_environment("responses", why, **theirs)
    rewards, mask, turns = on_cpu(token_level_rewards), on_cpu(response_mask), sees_turns(live)
    columns = {"groups": list(index), "value": on_cpu(values)}
    if data is not None:
        trained = on_cpu(data["loss_mask"]) != 0
        # This finds the trajectory of each row; the rows of one trajectory are consecutive.
        ends = np.array(data.metadata["is_last_step"], bool) if is_step_wise else np.ones(len(trained), bool)
        place = np.cumsum(ends) - ends
        if turns:
            # The holes of the loss mask are the tokens that the environment wrote.
            mask, rewards = mask.new_ones(trained.shape) * trained, on_cpu(data["rewards"])
            score = row_sums(rewards)
            columns = {"groups": list(data.metadata["uids"]), "trajectory": place, "reward": score[np.flatnonzero(ends)[place]]}
        elif is_step_wise:
            is_member = np.bincount(place, np.asarray(trained.any(1))) > 0
            mask = mask * torch.from_numpy(is_member)[:, None]
        else:
            # A reward of a masked token, such as an end token that SkyRL adds, goes to the last unmasked token before it or, if
            # there is none, to the first unmasked token.
            at = torch.where(trained, torch.arange(trained.shape[1]), -1).cummax(1).values
            at = torch.where(at < 0, trained.int().argmax(1)[:, None], at)
            mask, rewards = mask * trained, torch.zeros_like(rewards).scatter_add(1, at, rewards)
        if turns or not is_step_wise:
            # If only the last steps are rows, their mask does not fit the tokens of these columns.
            columns.update({ours: on_cpu(held(data, theirs)) for theirs, ours in SKYRL.columns.items()})
    elif turns:
        why = "but no caller of the estimator has SkyRL's batch, which such a recipe needs"
        raise ValueError(f"{live.name} names `trajectory` or `step_reward`, {why}")
    columns = {"reward": row_sums(rewards), **columns, "mask": mask, "token_reward": rewards}
    # If SkyRL's batch was not found, no version can take turns, so each new version is tried on the last batch.
    adapter = replace(SKYRL, rows_follow=data is not None)
    out = adapter.advantage(live, columns, "responses", by_turns=turns)
    if out.weight is not None and loss not in PROPORTIONAL:
        warn_of_unknown_loss(live, f"trainer.algorithm.policy_loss_type={loss}")
    device = token_level_rewards.device
    if not is_step_wise or not turns:
        return out.advantage.to(device), out.returns.to(device)
    return _of_trajectories(out.advantage.to(device), int(ends.sum())), _of_trajectories(out.returns.to(device), int(ends.sum()))


def _of_trajectories(of_steps: Any, size: int) -> Any:
    """Returns the values of all steps, [B, T], in the form in which SkyRL takes the values of trajectories: SkyRL looks up the
    trajectory of each step, and each lookup gives the values of the steps themselves."""

    class OfTrajectories(torch.Tensor):
        def __getitem__(self, index: Any) -> Any:
            return of_steps

    return of_steps.new_zeros((size, of_steps.shape[1])).as_subclass(OfTrajectories)


def register(name: str = "advlab") -> None:
    """Puts the estimator into SkyRL's registry, under a name that `trainer.algorithm.advantage_estimator` takes."""
    found = registry("SkyRL", "skyrl_train.utils.ppo_utils", "skyrl.backends.skyrl_train.utils.ppo_utils")
    found.AdvantageEstimatorRegistry.register(name, estimate)
