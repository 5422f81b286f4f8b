"""NeMo-RL: the advantage of a recipe by a patch, as NeMo-RL has a list of estimators and no hook.

In a copy of `examples/run_grpo.py`, before `grpo_train`, with the variable ADVLAB_RECIPE:

    import advlab.nemo_rl
    advlab.nemo_rl.patch()
"""

import importlib
import sys
from typing import Any

from ._trainers import Trainer, column_name, on_cpu, setting

NEMO_RL = Trainer(
    "NeMo-RL",
    {
        "old_logp": "NeMo-RL passes log-probs to the advantage with the sampler's or the policy's own, as its version does",
        "ref_logp": "the reference policy runs with `loss_fn.reference_policy_kl_penalty` above 0",
        "value": "a critic is of NeMo-RL's PPO, which is not patched",
    },
    {"logprobs_policy": "old_logp", "logprobs_reference": "ref_logp"},
)

MODULES = ("algorithms.grpo", "algorithms.grpo_sync", "algorithms.single_controller_utils.setup")
"""Modules of NeMo-RL that make the estimator; the latter two import the function of the first by its name."""


class AdvantageEstimator:
    """An estimator as NeMo-RL's own, by the recipe; groups are the rows of `prompt_ids` that are alike."""

    def __init__(self, token_level_loss: bool | None = None, clips: bool = False) -> None:
        """`token_level_loss` is NeMo-RL's `loss_fn.token_level_loss`; without it a recipe with weights is refused, and if NeMo-RL
        `clips` advantages."""
        self.mean = "responses" if token_level_loss is False else "tokens"
        self.no_weights = "`loss_fn.token_level_loss` was not found" if token_level_loss is None else None
        if clips:
            self.no_weights = "`grpo.advantage_clip_low` and `advantage_clip_high` would clip the weighted advantages"

    def compute_advantage(
        self, prompt_ids: Any, rewards: Any, mask: Any, repeated_batch: Any = None, valid_mask: Any = None, **others: Any
    ) -> Any:
        """float32 [B, T], 0 where the mask is 0; rows that `valid_mask` leaves out are no responses of their groups, and have 0."""
        import torch

        live = NEMO_RL.open_from_environment(self.mean, self.no_weights)
        rows = torch.ones(len(rewards), dtype=torch.bool) if valid_mask is None else on_cpu(valid_mask) != 0
        columns = {"groups": prompt_ids, "mask": mask, "reward": rewards}
        columns.update({ours: others.get(theirs) for theirs, ours in NEMO_RL.columns.items()})
        # The parts of a reward that has several.
        parts = [name for name in repeated_batch or () if name.startswith("reward/")]
        columns.update({column_name(name): repeated_batch[name] for name in parts})
        columns = {name: on_cpu(values)[rows] for name, values in columns.items() if values is not None}
        whole = torch.zeros(mask.shape, dtype=torch.float32)
        whole[rows] = NEMO_RL.advantage(live, columns, self.mean).advantage.float()
        return whole.to(rewards.device)


def patch() -> None:
    """Puts the estimator in the place of whatever `grpo.adv_estimator` names, in this process: the driver's."""

    def create(master_config: Any = None, *_: Any, **__: Any) -> AdvantageEstimator:
        clips = any(setting(master_config, f"grpo.advantage_clip_{end}") is not None for end in ("low", "high"))
        return AdvantageEstimator(setting(master_config, "loss_fn.token_level_loss"), clips)

    grpo = importlib.import_module("nemo_rl.algorithms.grpo")
    if not hasattr(grpo, "_create_advantage_estimator"):
        raise ImportError("nemo_rl.algorithms.grpo has no `_create_advantage_estimator`: this NeMo-RL makes it elsewhere")
    for name in MODULES:
        # One that is imported later finds the new function in the first.
        module: Any = sys.modules.get(f"nemo_rl.{name}")
        if hasattr(module, "_create_advantage_estimator"):
            module._create_advantage_estimator = create
