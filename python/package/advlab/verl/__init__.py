"""verl: advantage estimators and a policy loss of recipes, for verl 0.9.

If the package is installed together with verl, it registers itself in every process (entry point `verl.plugins`):

    algorithm.adv_estimator=advlab +algorithm.advlab.recipe=mine.rhai +algorithm.advlab.params.k=4
    algorithm.adv_estimator=advlab/passk

The advantage is computed in the process in which verl computes it, so all ranks have the same version. The recipe's file is
followed during the run.
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
        """verl's configuration of a policy loss, with the recipe of the loss: its path, or its text, which `${advlab:mine.rhai}`
        inserts."""

        advlab: str | None = field(default=None)

    OmegaConf.register_new_resolver("advlab", pinned, replace=True)
except Exception:
    # verl logs the failure of a plug-in only at the level DEBUG, and continues.
    log.warning("advlab cannot register itself in verl", exc_info=True)
