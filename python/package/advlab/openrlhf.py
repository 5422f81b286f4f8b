"""OpenRLHF 0.11: a patch that inserts a recipe's advantage, because OpenRLHF has no hook for advantages.

    ray job submit --runtime-env-json '{"worker_process_setup_hook": "advlab.openrlhf.patch",
        "env_vars": {"ADVLAB_RECIPE": "/path/of/mine.rhai"}}' -- python3 -m openrlhf.cli.train_ppo_ray \\
        --algo.advantage.estimator dr_grpo ...

OpenRLHF first computes its own advantage, with its penalties on the rewards; then the recipe's advantage replaces it.
`--reward.clip_range` acts only on OpenRLHF's own advantage: a recipe clips rewards by `batch.reward.clamp(low, high)`.
"""

import functools
from typing import Any

from ._trainers import Trainer, metrics, on_cpu, setting

OPENRLHF = Trainer(
    "OpenRLHF",
    {
        "value": "`--algo.advantage.estimator gae` adds a critic, which gives this column",
        "ref_logp": "`--algo.kl.use_loss` keeps the reference's log-probs",
        "rollout_logp": "OpenRLHF keeps the sampler's log-probs only if `--algo.advantage.is_correction_level` is not off",
    },
    {
        "action_log_probs": "old_logp",
        "base_action_log_probs": "ref_logp",
        "values": "value",
        "rollout_log_probs": "rollout_logp",
    },
    gives=("reward",),
)


def replace(experiences: list[Any], size: int, mean: str = "tokens") -> None:
    """Replaces the advantages in OpenRLHF's experiences by the recipe's advantages. Each group has `size` responses with
    consecutive values of `index`; OpenRLHF's loss is a mean over `mean`."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    live = OPENRLHF.open_from_environment(mean)

    def rows(name: str) -> Any:
        parts = [getattr(experience, name) for experience in experiences]
        if any(part is None for part in parts):
            return None
        # Each experience is padded to its own longest response.
        return pad_sequence([row for part in parts for row in on_cpu(part)], batch_first=True)

    columns = {ours: rows(theirs) for theirs, ours in {**OPENRLHF.columns, "action_mask": "mask"}.items()}
    columns["reward"] = torch.cat([on_cpu(experience.rewards) for experience in experiences]).float()
    columns["groups"] = [place // size for experience in experiences for place in experience.index]
    out = OPENRLHF.advantage(live, columns, mean)
    start = 0
    for experience in experiences:
        count, (_, width) = len(experience.index), experience.action_mask.shape
        for name, values in (("advantages", out.advantage), ("returns", out.returns)):
            setattr(experience, name, values[start : start + count, :width].to(experience.action_mask.device))
        # Each number is repeated for every response, because OpenRLHF logs the mean.
        experience.info.update({name: torch.full((count,), value) for name, value in metrics(out).items()})
        start += count


def patch() -> None:
    """Patches OpenRLHF in this process, so that the recipe's advantage replaces OpenRLHF's own; a second call changes nothing."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker as maker

    theirs: Any = maker.compute_advantages_and_returns
    if getattr(theirs, "is_of_advlab", False):
        return

    @functools.wraps(theirs)
    def compute_advantages_and_returns(self: Any, experiences: list[Any]) -> list[Any]:
        if any(experience.kl is not None and self.kl_ctl.value and bool(experience.kl.any()) for experience in experiences):
            raise ValueError(
                "OpenRLHF's KL acts only on its own advantage, which the recipe's advantage replaces, so the KL would be lost: set "
                "`--algo.kl.use_loss`, or `--algo.kl.init_coef 0`"
            )
        experiences = theirs(self, experiences)
        args = self.strategy.args
        # Versions of OpenRLHF without this setting take the mean over tokens.
        is_over_tokens = setting(args, "actor.loss_agg_mode") in (None, "token-mean")
        mean = "tokens" if is_over_tokens and setting(args, "actor.policy_loss_type") != "gspo" else "responses"
        replace(experiences, args.rollout.n_samples_per_prompt, mean)
        return experiences

    compute_advantages_and_returns.is_of_advlab = True  # type: ignore[attr-defined]
    maker.compute_advantages_and_returns = compute_advantages_and_returns
