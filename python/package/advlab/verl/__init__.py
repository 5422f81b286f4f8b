"""verl: advantage estimators and a policy loss of recipes, for verl 0.9.

Installed beside verl, the package registers itself in every process (entry point `verl.plugins`):

    algorithm.adv_estimator=advlab +algorithm.advlab.recipe=mine.rhai +algorithm.advlab.params.k=4
    algorithm.adv_estimator=advlab/passk

The advantage is computed where verl computes it, in one process: one version for all ranks, followed while the run goes.
"""

from dataclasses import dataclass, field

from .._recipe import log
from .estimator import Estimators, estimate
from .loss import pinned, policy_loss

__all__ = ["estimate", "pinned", "policy_loss"]


def _register() -> None:
    from verl.trainer.ppo import core_algos

    core_algos.ADV_ESTIMATOR_REGISTRY = Estimators(core_algos.ADV_ESTIMATOR_REGISTRY)
    core_algos.ADV_ESTIMATOR_REGISTRY["advlab"] = estimate
    core_algos.POLICY_LOSS_REGISTRY["advlab"] = policy_loss


try:
    _register()
    from omegaconf import OmegaConf
    from verl.workers.config import actor as _actor

    @dataclass
    class PolicyLossConfig(_actor.PolicyLossConfig):
        """verl's, with the recipe of the policy loss: its path, or its text as `${advlab:mine.rhai}` puts it in."""

        advlab: str | None = field(default=None)

    OmegaConf.register_new_resolver("advlab", pinned, replace=True)
except Exception:
    # verl only mentions a plug-in that fails at DEBUG, and goes on.
    log.warning("advlab cannot register itself in verl", exc_info=True)
