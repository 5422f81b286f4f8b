"""verl's policy loss, computed by the `loss` of a recipe, which the configuration carries to the workers."""

import functools
import json
import os
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from .._outcome import RecipeError
from .._recipe import Recipe, _restored, load, log
from .._trainers import Trainer, is_proportional, on_cpu, report, tried

NO_REWARDS = "verl passes advantages to a policy loss, but no rewards: use a recipe that reads rewards as the estimator"
VERL = Trainer("verl", dict.fromkeys(("reward", "correct", "token_reward"), NO_REWARDS))

REPORTED = 20  # The number of a version's calls whose prints are logged; a worker cannot count steps.

_reported: Counter[str] = Counter()
_losses: dict[str, Recipe] = {}
_adds_up: dict[str, bool] = {}  # Whether a version's loss on a batch is the token-weighted mean of the losses on its parts.


def pinned(recipe: str, **params: Any) -> str:
    """Returns a recipe's version as text for configurations, so that workers use the driver's version even if the file changes. A
    configuration inserts this text with `${advlab:mine.rhai}`."""
    left = load(recipe, **params)._left()
    return json.dumps({name: left[name] for name in ("name", "sources", "params", "version")})


def loss_recipe(settings: Any) -> Recipe:
    """Loads the recipe of a policy loss once per process; it does not follow the file. `settings` is `policy_loss.advlab`."""
    if settings is not None and not isinstance(settings, str):
        raise ValueError(
            f"`actor.policy_loss.advlab` is {settings}: it takes the recipe itself, "
            "`+actor.policy_loss.advlab='${advlab:mine.rhai}'` (`recipe` and `params` are settings of `algorithm.advlab`)"
        )
    recipe = settings or os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError(
            "the policy loss `advlab` needs a recipe: `actor.policy_loss._target_=advlab.verl.PolicyLossConfig` with "
            "`+actor.policy_loss.advlab='${advlab:mine.rhai}'`, or the variable ADVLAB_RECIPE in all workers"
        )
    if recipe not in _losses:
        loaded = _restored(**json.loads(recipe)) if recipe.startswith("{") else load(recipe)
        if "weight" in loaded.hooks:
            raise ValueError(
                f"{loaded.name} has the hook `weight`, but verl gives a policy loss no weights, because the estimator applies them: put the "
                "loss in a script without `weight`"
            )
        log.warning("policy loss %s %s", loaded.name, loaded.version[:6])
        _losses[recipe] = loaded
    return _losses[recipe]


@functools.cache
def follows_advantage(settings: str | None) -> bool:
    """Returns whether the gradient of a policy loss, given as for `loss_recipe`, is proportional to the advantage; also true if
    the loss cannot be tried here, because the worker then says why."""
    try:
        return is_proportional(loss_recipe(settings))
    except ValueError:
        return True


def _refuse_another_mean(recipe: Recipe, with_weights: bool) -> None:
    """Refuses a loss that verl would change: verl computes a batch's loss in parts, and weights each part by its number of
    tokens, so a mean over responses would become another loss."""
    if recipe.version not in _adds_up:
        try:
            more = {"rollout_is_weights": np.ones((2, 3))} if with_weights else {}
            long, short, both = (tried(recipe, rows=rows, **more) for rows in ((0,), (1,), (0, 1)))
        except RecipeError:
            # The error is ignored, because the loss of the batch itself reports it.
            return
        parts = np.concatenate([long[:-1], short[:-1], long[-1:] + short[-1:]])
        _adds_up[recipe.version] = np.allclose(both, parts, rtol=1e-6, atol=1e-12)
    if not _adds_up[recipe.version]:
        here = recipe.params.get("aggregate")
        raise ValueError(
            f"the loss of {recipe.name}{f' (aggregate {here})' if here else ''} is not a mean over independent tokens, but verl "
            "weights micro-batches by their numbers of tokens: use verl's own loss if there is one (`loss_mode=gspo`, "
            '`geo_mean`, `sapo`, `kl_cov`), or a script that averages by `mean("batch")` over tokens, as with `aggregate` "token"'
        )


def policy_loss(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Any = None,
) -> tuple[Any, dict[str, float]]:
    """Computes verl's policy loss on a micro-batch with the recipe's `loss`, which must be a mean over tokens and must not depend
    on groups."""
    recipe = loss_recipe(getattr(getattr(config, "policy_loss", None), "advlab", None))
    if loss_agg_mode != "token-mean":
        raise ValueError(
            f"`loss_agg_mode={loss_agg_mode}` has no effect on a recipe's loss, which averages over tokens itself: set `token-mean`"
        )
    if rollout_is_weights is not None and "rollout_is_weights" not in recipe.text:
        raise ValueError(
            f"verl corrects by `rollout_is_weights`, which {recipe.name} does not read: use `batch.rollout_is_weights` in the loss"
        )
    _refuse_another_mean(recipe, rollout_is_weights is not None)
    columns = {"old_logp": old_log_prob, "advantage": advantages, "rollout_is_weights": rollout_is_weights, "mask": response_mask}
    try:
        out = recipe.loss(logp=log_prob.cpu(), **{name: on_cpu(value) for name, value in columns.items()})
    except RecipeError as error:
        raise VERL.explain(error) from None
    _reported[recipe.version] += bool(out.prints)
    report(recipe, out if _reported[recipe.version] <= REPORTED else replace(out, prints=[]))
    # verl adds up the gradients of the micro-batches, and averages gradients over the ranks.
    batch = getattr(config, "global_batch_info", None) or {}
    share = 1.0
    if batch.get("batch_num_tokens") is not None:
        share = float(response_mask.sum()) / float(batch["batch_num_tokens"]) * float(batch.get("dp_size") or 1)
    metrics = {f"actor/advlab/{name}": float(value) for name, value in out.metrics.items()}
    return out.loss.to(log_prob.device) * share, metrics
