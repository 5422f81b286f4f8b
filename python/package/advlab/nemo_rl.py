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
        "old_logp": "some versions of NeMo-RL pass no log-probs to an estimator; others pass the sampler's or the policy's",
        "ref_logp": "`loss_fn.reference_policy_kl_penalty` above 0 adds the reference policy, which gives this column",
        "value": "only NeMo-RL's PPO has a critic",
    },
    {
        "logprobs_policy": "old_logp",
        "logprobs_reference": "ref_logp",
        # These are the names in PPO.
        "logprobs": "old_logp",
        "reference_logprobs": "ref_logp",
        "values": "value",
    },
    gives=("reward", "reward_"),
)

LATER = ("advantage_clip_low", "advantage_clip_high", "invalid_tool_call_advantage", "malformed_thinking_advantage")
"""The settings of `grpo` that change the advantages after the estimator."""


class AdvantageEstimator:
    """An estimator with the interface of NeMo-RL's own estimators, which runs the recipe. Rows with equal `prompt_ids` are a
    group."""

    def __init__(self, config: Any = None) -> None:
        """`config` is NeMo-RL's configuration. A recipe with weights is refused if the configuration lacks
        `loss_fn.token_level_loss`, or if a setting changes the weighted advantages later."""
        token_level_loss = setting(config, "loss_fn.token_level_loss")
        self.mean = "responses" if token_level_loss is False else "tokens"
        self.no_weights = "weights need `loss_fn.token_level_loss`, which was not found" if token_level_loss is None else None
        of_critic = setting(config, "ppo.adv_estimator")
        self.discounts = {name: setting(of_critic, f"gae_{name}") for name in ("gamma", "lambda")}
        later = ", ".join(f"`grpo.{name}`" for name in LATER if setting(config, f"grpo.{name}") is not None)
        if later:
            self.no_weights = f"{later} would change the weighted advantages"
            warn_once(f"NeMo-RL changes the recipe's advantages afterwards, by {later}")

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
        columns.update({ours: others[theirs] for theirs, ours in NEMO_RL.columns.items() if theirs in others})
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
