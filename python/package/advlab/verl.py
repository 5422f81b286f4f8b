"""verl: advantage estimators and a policy loss of recipes, for verl 0.9.

Installed beside verl, the package registers itself in every process (entry point `verl.plugins`):

    algorithm.adv_estimator=advlab +algorithm.advlab.recipe=mine.rhai +algorithm.advlab.params.k=4
    algorithm.adv_estimator=advlab/passk

The advantage is computed where verl computes it, in one process: one version for all ranks, followed while the run goes.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ._native import RecipeError
from ._recipe import LiveRecipe, Recipe, _restored, load, recipes
from ._trainers import column_name, explain, of_data_set, on_cpu, opened, resume, row_sums, save, stepped

log = logging.getLogger("advlab.verl")

OPTIONS = {
    "old_logp": "verl has no old log-probs at this place: the estimator is called outside of a trainer, or the trainer does not "
    "compute them before the advantage",
    "ref_logp": "the reference policy runs with `algorithm.use_kl_in_reward=True` or `actor_rollout_ref.actor.use_kl_loss=True`",
    "value": "the critic runs with `critic.enable=True`",
    "rollout_logp": "`actor_rollout_ref.rollout.calculate_log_probs=True` keeps the sampler's log-probs",
    "entropy": "verl's trainers do not pass entropies to the advantage",
}
"""What to set in verl for a column."""

COLUMNS = {"old_log_probs": "old_logp", "ref_log_prob": "ref_logp", "values": "value", "rollout_log_probs": "rollout_logp"}
"""verl's tensors [B, T], and the columns that they are."""

LOSS_OPTIONS = dict.fromkeys(
    ("reward", "correct", "token_reward"),
    "a policy loss is given advantages and no rewards: use a recipe that reads them as the estimator",
)
"""What to do in verl for a column that a policy loss has not."""

GROUPED = {"gamma": "gamma", "lam": "lambda"}
"""Parameters of recipes that verl's own settings are for, by their names in `algorithm`."""

_serials: WeakKeyDictionary[LiveRecipe, int] = WeakKeyDictionary()
"""The version of the last step of each."""


@dataclass
class _Caller:
    """What verl does not pass to an estimator, but has in the frames that call it."""

    batch: Any = None
    others: dict[str, Any] = field(default_factory=dict)
    keys: list[str] | None = None
    step: Any = None
    """The trainer's step, an integer, where there is a trainer."""
    metrics: dict[str, Any] | None = None
    trainer: Any = None
    """`config.trainer`, where it says where checkpoints are."""
    last: int | None = None
    """The last step of the run."""

    @classmethod
    def of(cls, rewards: Any) -> _Caller:
        found = cls()
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            here = frame.f_locals
            data: Any = here.get("data")
            if found.batch is None and getattr(data, "batch", None) is not None and _has(data.batch, rewards):
                found.batch, found.others = data.batch, dict(getattr(data, "non_tensor_batch", {}))
            if found.keys is None and isinstance(here.get("batch_keys"), (list, tuple)):
                found.keys = list(here["batch_keys"])
            step = getattr(here.get("self"), "global_steps", None)
            if isinstance(step, int):
                found.step = step
                metrics = here.get("metrics")
                found.metrics = metrics if isinstance(metrics, dict) else None
                trainer = getattr(getattr(here["self"], "config", None), "trainer", None)
                found.trainer = trainer if trainer and trainer.get("default_local_dir") else None
                found.last = getattr(here["self"], "total_training_steps", None)
                break
            frame = frame.f_back
        if found.keys is not None and len(found.keys) != len(rewards):
            found.keys = None
        return found


def _has(batch: Any, rewards: Any) -> bool:
    try:
        own = batch["token_level_rewards"]
    except (KeyError, TypeError):
        return False
    return bool(own.shape == rewards.shape and own.data_ptr() == rewards.data_ptr())


def _get(config: Any, name: str) -> Any:
    """A setting of `algorithm`, where there is such a configuration."""
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


def _open(name: str | None, config: Any) -> LiveRecipe:
    """The live recipe of a configuration, one for a process."""
    settings = _settings(config)
    kept = {name: settings[name] for name in ("folder", "keep_batches") if name in settings}
    unknown = settings.keys() - {"recipe", "params"} - kept.keys()
    if unknown:
        raise ValueError(f"`algorithm.advlab` has {sorted(unknown)}: it takes `recipe`, `params`, `folder` and `keep_batches`")
    recipe = name or settings.get("recipe") or os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError("the estimator `advlab` needs a recipe: `+algorithm.advlab.recipe=mine.rhai`")
    theirs = {ours: _get(config, name) for name, ours in GROUPED.items()}
    return opened(recipe, settings.get("params") or {}, theirs, **kept)


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


def _rows(index: list[Any], mask: Any, rewards: Any, keys: list[str] | None) -> tuple[Any, Any, bool]:
    """The rows to compute on, the place among them that each row gets its advantage from (-1 for none), and whether
    some row gets that of another."""
    count = len(mask)
    is_row = np.ones(count, bool)
    fillers = [uid for uid in set(index) if str(uid).startswith("pad")]
    if fillers:
        # v1 fills batches up with rows without a token: they are no responses.
        is_row = ~(np.isin(index, fillers) & (mask.sum(-1) == 0).numpy() & (rewards == 0).all(-1).numpy())
    rows = np.flatnonzero(is_row)
    source = np.full(count, -1)
    source[rows] = np.arange(len(rows))
    if keys is None:
        return rows, source, False
    # `{uid}_{session}_{turn}`: of a session's trajectories the last one counts.
    sessions, turns = zip(*(key.rpartition("_")[::2] for key in keys))
    if len(set(sessions)) == count or not all(turn.isdigit() for turn in turns):
        return rows, source, False
    last: dict[str, Any] = {}
    for row in rows:
        other = last.setdefault(sessions[row], row)
        if int(turns[row]) > int(turns[other]):
            last[sessions[row]] = row
    chosen = np.array(sorted(last.values()))
    place = {row: at for at, row in enumerate(chosen)}
    source[rows] = [place[last[sessions[row]]] for row in rows]
    return chosen, source, len(chosen) < len(rows)


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

    With a critic the returns are its targets: what the recipe's hook `returns` gives, and the discounted reward to go for a recipe
    without one. Without a critic they are the advantages.
    """
    import torch

    live, caller = _open(recipe, config), _Caller.of(token_level_rewards)
    _refuse_what_would_be_wrong(live, config)
    rewards, mask = on_cpu(token_level_rewards), on_cpu(response_mask)
    if index is None:
        raise ValueError("verl passes no `uid` of the prompts: advlab needs to know which responses belong together")
    index = np.asarray(index, dtype=object).tolist()
    chosen, source, is_shared = _rows(index, mask, rewards, caller.keys)
    is_whole = len(chosen) == len(mask)

    def rows(tensor: Any) -> Any:
        return on_cpu(tensor) if is_whole else on_cpu(tensor)[torch.from_numpy(chosen)]

    token_reward = rows(rewards)
    columns = {"token_reward": token_reward, "reward": row_sums(token_reward)}
    for theirs, ours in COLUMNS.items():
        if caller.batch is not None and theirs in caller.batch.keys():
            columns[ours] = rows(caller.batch[theirs])
    for name, value in others.items():
        if hasattr(value, "shape") and len(value.shape) in (1, 2) and len(value) == len(mask):
            columns.setdefault(column_name(name), rows(value))
    others = {name: np.asarray(values)[chosen].tolist() for name, values in caller.others.items()}
    columns = {**of_data_set(others), **columns}
    if live not in _serials:
        _resume(live, caller)
    groups = index if is_whole else [index[row] for row in chosen]
    batch = {"groups": groups, "mask": rows(mask), "step": caller.step, "columns": columns}
    out, returns = stepped(live, OPTIONS, "verl", **batch)
    _tell(live, out, caller)
    if is_shared and out.level == "token":
        raise ValueError(
            f"{live.name} gives an advantage for each token, and sessions of this batch have several trajectories, of which only "
            "the last is computed on: write a recipe that gives one for each response"
        )
    return tuple(_spread(values, mask, chosen, source, is_whole) for values in (out.advantage, returns))


def _spread(values: Any, mask: Any, chosen: Any, source: Any, is_whole: bool) -> Any:
    """The values of all rows: those that were left out have 0, other trajectories of a session that of its last."""
    import torch

    if is_whole:
        return values
    counts = mask[torch.from_numpy(chosen)] != 0
    # The value of a row's first token that counts, for the rows that share it.
    first = values[torch.arange(len(values)), counts.int().argmax(1)]
    whole = torch.zeros(mask.shape, dtype=values.dtype)
    whole[torch.from_numpy(chosen)] = values
    is_own = np.zeros(len(mask), bool)
    is_own[chosen] = True
    shared = torch.from_numpy(np.flatnonzero(~is_own & (source >= 0)))
    if len(shared):
        whole[shared] = first[torch.from_numpy(source)[shared]].unsqueeze(-1) * mask[shared].to(values.dtype)
    return whole


def _tell(live: LiveRecipe, out: Any, caller: _Caller) -> None:
    before, _serials[live] = _serials.get(live, 0), out.serial
    if caller.metrics is not None:
        caller.metrics.update({f"advlab/{name}": float(value) for name, value in out.metrics.items()})
        caller.metrics["advlab/serial"] = float(out.serial)
        # A reload stands out in a plot.
        caller.metrics["advlab/reloaded"] = float(before != out.serial)
    every = caller.trainer.get("save_freq", 0) if caller.trainer else 0
    if every > 0 and (caller.step % every == 0 or caller.step == caller.last):
        # verl puts the checkpoint of this step there once the step is done.
        try:
            save(live, _checkpoint(caller, caller.step))
        except OSError as error:
            log.error(
                "the checkpoint of step %d has no state of %s, and a run resumed there begins anew: %s",
                caller.step,
                live.name,
                error,
            )


def _checkpoint(caller: _Caller, step: int) -> Path:
    return Path(caller.trainer.default_local_dir) / f"global_step_{step}"


def _resume(live: LiveRecipe, caller: _Caller) -> None:
    """Goes on from the state in the checkpoint that verl has resumed from, where this is the first step of a process."""
    if caller.trainer is None or caller.step == 1:
        return
    is_named = caller.trainer.get("resume_mode") == "resume_path"
    folder = Path(caller.trainer.resume_from_path) if is_named else _checkpoint(caller, caller.step - 1)
    if not resume(live, folder):
        log.warning("%s has no state of %s: it begins at step %s with that of `init`", folder, live.name, caller.step)


def pinned(recipe: str, **params: Any) -> str:
    """A recipe's version as a text for configurations: workers that read it have the driver's version, whatever happens to the
    file. In a configuration: `${advlab:mine.rhai}`."""
    loaded = load(recipe, **params)
    return json.dumps(
        {"name": loaded.name, "sources": loaded._native.sources, "params": loaded.params, "version": loaded.version}
    )


_losses: dict[str, Recipe] = {}
_adds_up: dict[str, bool] = {}
"""Whether the loss of a version is that of its parts, each weighed by its tokens."""


def _loss_recipe(config: Any) -> Recipe:
    """The recipe of a worker's policy loss, loaded once: it does not follow its file."""
    settings = getattr(getattr(config, "policy_loss", None), "advlab", None)
    recipe = settings or os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError(
            "the policy loss `advlab` needs a recipe: `actor.policy_loss._target_=advlab.verl.PolicyLossConfig` with "
            "`+actor.policy_loss.advlab='${advlab:mine.rhai}'`, or the variable ADVLAB_RECIPE in all workers"
        )
    if recipe not in _losses:
        if recipe.startswith("{"):
            loaded = _restored(**json.loads(recipe), state=None)
        else:
            loaded = load(recipe)
        log.info("policy loss %s %s", loaded.name, loaded.version[:6])
        _losses[recipe] = loaded
    return _losses[recipe]


def _refuse_another_mean(recipe: Recipe, with_weights: bool) -> None:
    """verl computes a batch's loss in parts and weighs each by its tokens: of a mean over responses that makes another loss."""
    if recipe.version not in _adds_up:
        try:
            _adds_up[recipe.version] = _is_mean_over_tokens(recipe, with_weights)
        except RecipeError:
            # The loss of the batch itself says why.
            return
    if not _adds_up[recipe.version]:
        here = recipe.params.get("aggregate")
        raise ValueError(
            f"the loss of {recipe.name}{f' (aggregate {here})' if here else ''} is no mean over tokens, each for itself, and verl "
            "weighs micro-batches by their tokens: use verl's own where it has it (`loss_mode=gspo`, `geo_mean`, `sapo`, "
            '`kl_cov`), or a script that averages by `mean("batch")` over tokens, as with `aggregate` "token"'
        )


def _is_mean_over_tokens(recipe: Recipe, with_weights: bool) -> bool:
    """Found out on two responses of 3 tokens and of 1."""
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    advantage = np.array([[0.5], [-0.75]]) * mask
    # Moved against the advantage, and little: no clip takes the gradient away.
    old = -0.5 - 0.125 * np.arange(6).reshape(2, 3)
    columns = {"logp": old - 0.01 * np.sign(advantage), "old_logp": old, "advantage": advantage}
    if with_weights:
        columns["rollout_is_weights"] = np.ones((2, 3))

    def of(rows: slice) -> Any:
        # A copy, as a loss may change the recipe's state.
        out = copy.copy(recipe).loss(mask=mask[rows], **{name: values[rows] for name, values in columns.items()})
        return np.append(out.grad, out.loss) * mask[rows].sum()

    long, short = of(slice(0, 1)), of(slice(1, 2))
    parts = np.concatenate([long[:-1], short[:-1], long[-1:] + short[-1:]])
    return np.allclose(of(slice(0, 2)), parts, rtol=1e-6, atol=1e-12)


def policy_loss(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Any = None,
) -> tuple[Any, dict[str, float]]:
    """verl's policy loss of a micro-batch by the recipe's `loss`, which is a mean over tokens and looks at no group."""
    recipe = _loss_recipe(config)
    if loss_agg_mode != "token-mean":
        raise ValueError(
            f"`loss_agg_mode={loss_agg_mode}`: a recipe says itself how it averages, over tokens with verl: set `token-mean`"
        )
    if rollout_is_weights is not None and "rollout_is_weights" not in recipe.text:
        raise ValueError(
            f"verl corrects by `rollout_is_weights`, of which {recipe.name} knows nothing: use `batch.rollout_is_weights`"
        )
    _refuse_another_mean(recipe, rollout_is_weights is not None)
    cpu = {"old_logp": old_log_prob, "advantage": advantages, "rollout_is_weights": rollout_is_weights}
    try:
        out = recipe.loss(
            logp=log_prob.cpu(),
            mask=on_cpu(response_mask),
            **{name: None if value is None else on_cpu(value) for name, value in cpu.items()},
        )
    except RecipeError as error:
        raise explain(error, LOSS_OPTIONS, "verl") from None
    # verl adds micro-batches up, and divides gradients by the number of ranks.
    batch = getattr(config, "global_batch_info", None) or {}
    share = 1.0
    if batch.get("batch_num_tokens") is not None:
        share = float(response_mask.sum()) / float(batch["batch_num_tokens"]) * float(batch.get("dp_size") or 1)
    metrics = {f"actor/advlab/{name}": float(value) for name, value in out.metrics.items()}
    return out.loss.to(log_prob.device) * share, metrics


def _estimator(name: str) -> Any:
    def estimator(token_level_rewards: Any, response_mask: Any, config: Any = None, index: Any = None, **others: Any) -> Any:
        return estimate(token_level_rewards, response_mask, config, index, recipe=name, **others)

    estimator.__name__ = estimator.__qualname__ = f"advlab_{name}"
    return estimator


def _register() -> None:
    from verl.trainer.ppo import core_algos

    core_algos.ADV_ESTIMATOR_REGISTRY["advlab"] = estimate
    for name in recipes():
        core_algos.ADV_ESTIMATOR_REGISTRY[f"advlab/{name}"] = _estimator(name)
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
