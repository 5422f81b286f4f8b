"""NeMo-RL: a patch that inserts the advantage of a recipe, because NeMo-RL has a fixed list of estimators and no hook.

In a copy of `examples/run_grpo.py`, before `grpo_train`, with the variable ADVLAB_RECIPE:

    import advlab.nemo_rl
    advlab.nemo_rl.patch()
"""

import contextlib
import importlib
import sys
from typing import Any

from ._trainers import Trainer, column_name, metrics, on_cpu, put_in_place, setting, warn_once

NEMO_RL = Trainer(
    "NeMo-RL",
    {
        "old_logp": "NeMo-RL computes no log-probs with `loss_fn.force_on_policy_ratio`, unless `grpo.seq_logprob_error_threshold` is set",
        "ref_logp": "`loss_fn.reference_policy_kl_penalty` above 0 adds the reference policy, which gives this column; NeMo-RL then "
        "requires `skip_reference_policy_logprobs_calculation=false` (under `grpo` or `ppo`)",
        "rollout_logp": "only NeMo-RL's asynchronous GRPO passes the sampler's log-probs to an estimator",
        "teacher_logp": "NeMo-RL's teachers run with `on_policy_distillation.enabled`, in asynchronous GRPO and with SingleController",
        "value": "only NeMo-RL's PPO has a critic",
    },
    {
        "prev_logprobs": "old_logp",
        "logprobs_policy": "old_logp",
        "logprobs_reference": "ref_logp",
        # These are the names in PPO.
        "logprobs": "old_logp",
        "reference_logprobs": "ref_logp",
        "generation_logprobs": "rollout_logp",
        "teacher_logprobs": "teacher_logp",
        "values": "value",
    },
    gives=("reward", "reward_"),
)

LATER = ("advantage_clip_low", "advantage_clip_high", "invalid_tool_call_advantage", "malformed_thinking_advantage")
"""The settings of `grpo`, or of `ppo` with SingleController, that change the advantages after the estimator."""

PART = "async_rl.min_groups_for_streaming_train"
"""SingleController's setting for the smallest number of prompts in a call; below `num_prompts_per_step`, a step has several calls."""


class AdvantageEstimator:
    """An estimator with the interface of NeMo-RL's own estimators, which runs the recipe. Rows with equal `prompt_ids` are a
    group."""

    def __init__(self, config: Any = None) -> None:
        """`config` is NeMo-RL's configuration. A recipe with weights is refused if the configuration lacks
        `loss_fn.token_level_loss`, if a setting changes the weighted advantages later, or if a call has only a part of a step."""
        token_level_loss = setting(config, "loss_fn.token_level_loss")
        self.mean = "responses" if token_level_loss is False else "tokens"
        self.no_weights = "weights need `loss_fn.token_level_loss`, which was not found" if token_level_loss is None else None
        of_critic = setting(config, "ppo.adv_estimator")
        self.discounts = {name: setting(of_critic, f"gae_{name}") for name in ("gamma", "lambda")}
        names = [f"{algorithm}.{name}" for algorithm in ("grpo", "ppo") for name in LATER]
        later = ", ".join(f"`{name}`" for name in names if setting(config, name) is not None)
        if later:
            self.no_weights = f"{later} would change the weighted advantages"
            warn_once(f"NeMo-RL changes the recipe's advantages afterwards, because of {later}")
        prompts = setting(config, "ppo.num_prompts_per_step") or setting(config, "grpo.num_prompts_per_step") or 0
        if (setting(config, PART) or prompts) < prompts:
            part = f"SingleController calls the recipe for parts of a step: set `{PART}` to {prompts}, the value of `num_prompts_per_step`"
            self.mean, self.no_weights = "a part of a step", f"{part}, so that one call has all rows of the mean"
            warn_once(f"{part}, unless each call may be a step of the recipe, with some of the prompts")

    def compute_advantage(
        self, prompt_ids: Any, rewards: Any, mask: Any, repeated_batch: Any = None, valid_mask: Any = None, **others: Any
    ) -> Any:
        """Computes the advantages, float32 [B, T], 0 where the mask is 0, and the returns if there are `values`. Rows that
        `valid_mask` excludes are not members of their groups, and get 0. The result has the type that the installed NeMo-RL
        takes."""
        import torch

        live = NEMO_RL.open_from_environment(self.mean, self.no_weights, **self.discounts)
        rows = torch.ones(len(rewards), dtype=torch.bool) if valid_mask is None else on_cpu(valid_mask) != 0
        columns = {"groups": prompt_ids, "mask": mask, "reward": rewards}
        for theirs, ours in NEMO_RL.columns.items():
            # NeMo-RL passes zeros in the place of log-probs that its settings skip.
            if others.get(theirs) is not None and (ours == "value" or others[theirs].any()):
                columns[ours] = others[theirs]
        # These are the parts of a reward that has several parts.
        parts = [name for name in repeated_batch or () if name.startswith("reward/")]
        columns.update({column_name(name): repeated_batch[name] for name in parts})
        columns = {name: on_cpu(values)[rows] for name, values in columns.items() if values is not None}
        out = NEMO_RL.advantage(live, columns, self.mean)
        found = torch.zeros(2, *mask.shape)
        found[0, rows], found[1, rows] = out.advantage.float(), out.returns.float()
        advantages, returns = found.to(rewards.device)
        result = getattr(sys.modules.get("nemo_rl.algorithms.advantage_estimator"), "AdvantageResult", None)
        if result:
            return result(advantages=advantages, returns=returns if "value" in columns else None, metrics=metrics(out))
        return (advantages, returns) if "value" in columns else advantages


def patch() -> None:
    """Replaces the estimator that `grpo.adv_estimator` names, in this process, which must be the driver."""

    grpo = importlib.import_module("nemo_rl.algorithms.grpo")
    if not hasattr(grpo, "_create_advantage_estimator"):
        raise ImportError("nemo_rl.algorithms.grpo has no `_create_advantage_estimator`: this version of NeMo-RL makes its estimator elsewhere")
    with contextlib.suppress(ImportError):
        # NeMo-RL's PPO has its own `_create_advantage_estimator`.
        importlib.import_module("nemo_rl.algorithms.ppo")
    for module in (grpo, sys.modules.get("nemo_rl.algorithms.ppo")):
        theirs = getattr(module, "_create_advantage_estimator", None)
        if theirs not in (None, AdvantageEstimator):
            put_in_place("nemo_rl", theirs, AdvantageEstimator)
