"""verl's advantage estimators by recipes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .. import _arrays
from .._recipe import LiveRecipe, load
from .._trainers import LOSS_ALONE, NOT_OVER_TOKENS, column_name, of_data_set, on_cpu, opened, row_sums, stepped, weighted
from . import checkpoint
from .caller import Caller, warn_once
from .loss import is_proportional
from .rows import Rows

OPTIONS = {
    "old_logp": "verl has no old log-probs at this place: the estimator is called outside of a trainer, or the trainer does not "
    "compute them before the advantage",
    "ref_logp": "the reference policy runs with `algorithm.use_kl_in_reward=True` or `actor_rollout_ref.actor.use_kl_loss=True`",
    "value": "the critic runs with `critic.enable=True`",
    "rollout_logp": "`actor_rollout_ref.rollout.calculate_log_probs=True` keeps the sampler's log-probs",
    "entropy": "the default trainer has it, unless `algorithm.rollout_correction.bypass_mode=True`",
    "reward_baseline": "verl's trainers sample no baseline for other estimators than their own `remax`",
    "sum_pi_squared": "`+actor_rollout_ref.actor.calculate_sum_pi_squared=True`, with `trainer.use_v1=False`",
}
"""What to set in verl for a column."""

COLUMNS = {
    "old_log_probs": "old_logp",
    "ref_log_prob": "ref_logp",
    "values": "value",
    "rollout_log_probs": "rollout_logp",
    "entropys": "entropy",
    "reward_baselines": "reward_baseline",
    "teacher_log_probs": "teacher_logp",
}
"""verl's tensors whose columns have other names; others reach recipes under their own."""

NO_COLUMNS = {"token_level_rewards", "rm_scores", "response_mask", "advantages", "returns"}
"""Tensors of verl's batch that are there already, or that the estimator computes."""

GROUPED = {"gamma": "gamma", "lam": "lambda"}
"""Parameters of recipes that verl's own settings are for, by their names in `algorithm`."""

ACTOR = "actor_rollout_ref.actor"

MEANS = {
    "token-mean": "tokens",
    "token-sum": "sum",
    "seq-mean-token-mean": "responses",
    "seq-mean-token-sum": "responses",
    "seq-mean-token-sum-norm": "responses",
}
"""What verl's `loss_agg_mode` averages over, as `weighted` takes it: of the three `seq-mean` modes each divides the sum of a
response by a number that no weight changes, and then averages over responses."""

OVER_RESPONSES = ("sapo", "geo_mean")
"""Losses that ignore `loss_agg_mode`, and average over responses."""

PROPORTIONAL = (None, "vanilla", "gspo", "sapo", "gpg", "geo_mean", "cispo", "bypass_mode", "advlab")
"""verl's losses, beside `dppo_...`, that are proportional to the advantage; `advlab` if its recipe is."""

NOT_PROPORTIONAL = ("clip_cov", "kl_cov", "dro")
"""Losses that are not proportional to the advantage: they choose tokens by it, or have a term without it."""

_serials: WeakKeyDictionary[LiveRecipe, int] = WeakKeyDictionary()
"""The version of the last step of each."""

_kinds: WeakKeyDictionary[LiveRecipe, dict[str, type]] = WeakKeyDictionary()
"""What the columns of `non_tensor_batch` hold, as of `of_data_set`."""


def estimate(
    token_level_rewards: Any,
    response_mask: Any,
    config: Any = None,
    index: Any = None,
    *,
    recipe: str | None = None,
    **others: Any,
) -> tuple[Any, Any]:
    """verl's advantage estimator: advantages and returns, float32 [B, T], 0 where the mask is 0.

    The advantages have the recipe's weights in them (`weighted`). With a critic the returns are its targets: what the recipe's
    hook `returns` gives, and the discounted reward to go for a recipe without one. Without a critic they are the recipe's
    advantages.
    """
    caller = Caller.of(token_level_rewards)
    live = _open(recipe, config, caller)
    _refuse_what_would_be_wrong(live, config)
    rewards, mask = on_cpu(token_level_rewards), on_cpu(response_mask)
    if index is None:
        raise ValueError("verl passes no `uid` of the prompts: advlab needs to know which responses belong together")
    index = np.asarray(index, dtype=object).tolist()
    rows = Rows.of(index, mask, rewards, caller.keys)
    columns = _columns({**caller.tensors(), **others}, rewards, rows)
    named = {name: np.asarray(values)[rows.chosen].tolist() for name, values in caller.others.items()}
    columns = {**of_data_set(named, _kinds.setdefault(live, {})), **columns}
    checkpoint.follow(live, caller, is_first=live not in _serials)
    groups = index if rows.is_whole else [index[row] for row in rows.chosen]
    batch = {"groups": groups, "mask": rows.select(mask), "step": caller.step, "columns": columns}
    # After a resume that of the checkpoint.
    before = _serials[live] if live in _serials else live._native.left()["serial"]
    out, returns = stepped(live, OPTIONS, "verl", **batch)
    if rows.is_shared and out.level == "token":
        raise ValueError(
            f"{live.name} gives an advantage for each token, and sessions of this batch have several trajectories, of which only "
            "the last is computed on: write a recipe that gives one for each response"
        )
    _tell(live, out, caller, before)
    # The means of a loss are over all rows, also those that share an advantage.
    weight = None if out.weight is None else rows.spread_responses(out.weight)
    out = replace(out, advantage=rows.spread(out.advantage, mask), weight=weight)
    is_plain = out.weight is None and out.loss is None
    return out.advantage if is_plain else weighted(out, mask, _mean(live, caller)), rows.spread(returns, mask)


def _columns(tensors: Mapping[str, Any], rewards: Any, rows: Rows) -> dict[str, Any]:
    """The columns that verl's tensors of one number per response or token are, of the chosen rows."""
    token_reward = rows.select(rewards)
    columns = {"token_reward": token_reward, "reward": row_sums(token_reward)}
    for name, value in tensors.items():
        is_numbers = _arrays.is_tensor(value) and not value.is_nested
        if not is_numbers or name in NO_COLUMNS or value.data_ptr() == rewards.data_ptr():
            continue
        # Integers [B, T] are tokens.
        if value.shape == rewards.shape[:1] or (value.shape == rewards.shape and value.is_floating_point()):
            columns.setdefault(COLUMNS.get(name) or column_name(name), rows.select(on_cpu(value)))
    return columns


def _get(config: Any, name: str) -> Any:
    """A setting of `algorithm`; None if there is none."""
    return config.get(name, None) if hasattr(config, "get") else None


def _settings(config: Any) -> dict[str, Any]:
    """`algorithm.advlab` as plain dictionaries."""
    settings = _get(config, "advlab")
    if settings is None:
        return {}
    from omegaconf import DictConfig, OmegaConf

    if isinstance(settings, DictConfig):
        settings = OmegaConf.to_container(settings, resolve=True)
    if not isinstance(settings, dict) or not isinstance(settings.get("params") or {}, dict):
        raise ValueError(
            f"`algorithm.advlab` is {settings!r}: write `+algorithm.advlab.recipe=mine.rhai +algorithm.advlab.params.k=4`"
        )
    return settings


def _open(name: str | None, config: Any, caller: Caller) -> LiveRecipe:
    """The live recipe of a configuration, one for a process."""
    settings = _settings(config)
    kept: dict[str, Any] = {name: settings[name] for name in ("folder", "keep_batches") if name in settings}
    unknown = settings.keys() - {"recipe", "params"} - kept.keys()
    if unknown:
        raise ValueError(f"`algorithm.advlab` has {sorted(unknown)}: it takes `recipe`, `params`, `folder` and `keep_batches`")
    recipe = name or settings.get("recipe") or os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError("the estimator `advlab` needs a recipe: `+algorithm.advlab.recipe=mine.rhai`")
    theirs = {ours: _get(config, name) for name, ours in GROUPED.items()}
    loss, refuses = caller.setting(f"{ACTOR}.policy_loss.loss_mode"), {}
    if loss in NOT_PROPORTIONAL or loss == "advlab" and not is_proportional(caller.setting(f"{ACTOR}.policy_loss.advlab")):
        why = f"`{ACTOR}.policy_loss.loss_mode={loss}` is not proportional to the advantages, in which the weights reach it"
        refuses["weight"] = why
    if loss in OVER_RESPONSES or caller.setting(f"{ACTOR}.loss_agg_mode") not in (None, "token-mean"):
        refuses["loss"] = NOT_OVER_TOKENS
    kept["_refuses"] = refuses
    return opened(recipe, settings.get("params") or {}, theirs, "verl", **kept)


def _refuse_what_would_be_wrong(live: LiveRecipe, config: Any) -> None:
    weight = "coef" if live.name == "kl_advantage" else "kl_beta"
    if _get(config, "use_kl_in_reward") and live.params.get(weight):
        raise ValueError(
            f"{live.name} takes a KL off itself ({weight} {live.params[weight]}), and `algorithm.use_kl_in_reward` has taken it "
            f"off the reward already: set `+algorithm.advlab.params.{weight}=0`, or `algorithm.use_kl_in_reward=False`"
        )
    if live.name == "grpo" and _get(config, "norm_adv_by_std_in_grpo") is False:
        raise ValueError(
            "`algorithm.norm_adv_by_std_in_grpo=False` is the recipe dr_grpo: `algorithm.adv_estimator=advlab/dr_grpo`"
        )


def _mean(live: LiveRecipe, caller: Caller) -> str:
    """What verl's loss averages over."""
    mode, loss = caller.setting(f"{ACTOR}.loss_agg_mode"), caller.setting(f"{ACTOR}.policy_loss.loss_mode")
    if loss not in PROPORTIONAL and not str(loss).startswith("dppo_"):
        told = f"`{ACTOR}.policy_loss.loss_mode={loss}` is unknown here: the weights of {live.name}"
        warn_once(f"{told} are exact only if it is proportional to the advantage")
    if mode is None:
        told = f"{live.name} has weights or a loss, and the trainer's `{ACTOR}.loss_agg_mode` was not found"
        warn_once(f"{told}: it is taken for `token-mean`")
        return "tokens"
    if loss in OVER_RESPONSES:
        return "responses"
    if mode not in MEANS:
        raise ValueError(f"`{ACTOR}.loss_agg_mode={mode}` is none of those by which weights are scaled: {', '.join(MEANS)}")
    return MEANS[mode]


def _tell(live: LiveRecipe, out: Any, caller: Caller, before: int) -> None:
    _serials[live] = out.serial
    if caller.metrics is not None:
        caller.metrics.update({f"advlab/{name}": float(value) for name, value in out.metrics.items()})
        caller.metrics["advlab/serial"] = float(out.serial)
        # A reload stands out in a plot.
        caller.metrics["advlab/reloaded"] = float(before != out.serial)


def named(name: str) -> Any:
    """The estimator `advlab/<name>` of a built-in.

    Raises `RecipeError` for a name that is none, with the nearest, and ValueError for a loss on an advantage.
    """
    recipe = load(name)
    if "advantage" not in recipe.hooks and recipe._native.reads(["advantage"]):
        raise ValueError(f"`advlab/{name}` is no advantage estimator: {LOSS_ALONE}")

    def estimator(token_level_rewards: Any, response_mask: Any, config: Any = None, index: Any = None, **others: Any) -> Any:
        return estimate(token_level_rewards, response_mask, config, index, recipe=name, **others)

    estimator.__name__ = estimator.__qualname__ = f"advlab_{name}"
    return estimator


class Estimators(dict[str, Any]):
    """verl's registry of estimators, with each built-in as `advlab/<name>`: looked up when asked for."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and name.startswith("advlab/"))

    def __missing__(self, name: str) -> Any:
        if not name.startswith("advlab/"):
            raise KeyError(name)
        return self.setdefault(name, named(name.removeprefix("advlab/")))
