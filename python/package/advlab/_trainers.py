"""What the adapters of trainers have in common."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _arrays, _native
from ._batch import _Call
from ._native import RecipeError
from ._outcome import Advantage, Loss
from ._recipe import LiveRecipe, Recipe, load, watch

log = logging.getLogger("advlab")

OURS = _arrays.NUMBERS | {"batch", "completion", "groups", "mask", "prompt", "rollout_logp", "step", "uid"}
"""Names that a data set's columns cannot have in a recipe."""

LOSS_ALONE = "the recipe is a loss on an advantage that is there: what is needed here is a recipe that gives the advantage"
NOT_OVER_TOKENS = (
    "a recipe with a `loss` and no `advantage` gives -M dloss/dlogp, which needs a loss that is a mean over the M tokens of the "
    "batch; the trainer's own has another mean"
)
RETURNS = ["token_reward", "value"]
"""Columns of a recipe whose `gamma` and `lambda` are those of the return; any other reward for tokens, such as a KL, has nothing to
do with the trainer's."""


def padded(recipe: Recipe | LiveRecipe, *, groups: Any, mask: Any, step: int | None, columns: Mapping[str, Any]) -> Advantage:
    """As `recipe.advantage`, with [B, T] also where the recipe has one value a response."""
    call = _Call.of(None, groups, mask, step, dict(columns), ())
    return recipe._advantage(call, padded=True)


def stepped(live: LiveRecipe, options: Mapping[str, str], trainer: str, **batch: Any) -> tuple[Advantage, Any]:
    """The advantage and what a critic learns, [B, T], of a batch as `padded` takes it; `options` as of `explain`."""
    try:
        out = padded(live, **batch)
    except RecipeError as error:
        raise explain(error, options, trainer) from None
    report(live, out)
    return out, targets(live, out, **batch)


PRINTED = 20
"""Lines of a step that are logged; the rest is counted."""

_noted: set[tuple[str, str]] = set()


def tell_once(name: str, text: str) -> None:
    """Logs a warning about a recipe, once per process."""
    if (name, text) not in _noted:
        _noted.add((name, text))
        log.warning("%s: %s", name, text)


def report(recipe: Recipe | LiveRecipe, out: Advantage | Loss) -> None:
    """Logs the lines that a recipe printed at a step, and each note once. As warnings: trainers show nothing less."""
    if out.prints:
        lines = [line[:500] for line in out.prints[:PRINTED]]
        more = len(out.prints) - len(lines)
        log.warning("%s printed:\n%s", recipe.name, "\n".join([*lines, *([f"... and {more} more lines"] if more else [])]))
    for note in out.notes:
        tell_once(recipe.name, note)


def registry(trainer: str, *modules: str) -> Any:
    """The first of the modules that this version of a trainer has."""
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(module)
    raise ImportError(f"{trainer} is not installed: there is none of {', '.join(modules)}")


def weighted(out: Advantage, mask: Any, mean: str) -> Any:
    """The advantage times the recipe's weights, scaled so that the trainer's own mean over `mean` equals the recipe's weighted
    mean: w A (sum of T / sum of w T) for "tokens", where T counts a response's tokens, and w A (B / sum of w) for "responses",
    where B counts the responses with tokens; with "sum" the trainer adds tokens up, and w A is all. If all weights are 0, so is
    the advantage.

    `mask` is [B, T], or T itself, [B]. Exact if the trainer's loss is proportional to the advantage, as PPO's clipped loss is.
    """
    if out.loss is not None:
        if mean != "tokens":
            raise ValueError(f"{NOT_OVER_TOKENS} ({mean})")
        # The loss has applied the weights itself.
        return out.advantage
    if out.weight is None:
        return out.advantage
    weight, counts = np.asarray(out.weight, dtype=np.float64), np.asarray(mask)
    if counts.ndim == 2:
        counts = (counts != 0).sum(1)
    share = {"tokens": counts, "responses": counts > 0}.get(mean)
    total = 1.0 if share is None else (weight * share).sum()
    scale = weight * (1.0 if share is None else share.sum() / total if total else 0.0)
    if (scale == 1).all():
        return out.advantage
    advantage = np.asarray(out.advantage)
    scaled = (advantage.T * scale.astype(advantage.dtype)).T
    return sys.modules["torch"].from_numpy(scaled) if _arrays.is_tensor(out.advantage) else scaled


def targets(live: LiveRecipe, out: Advantage, *, groups: Any, mask: Any, step: int | None, columns: Mapping[str, Any]) -> Any:
    """What a critic learns, [B, T], where `out` is of the last step: what the recipe's hook `returns` gives, or else the
    discounted reward to go; without a critic the advantage."""
    if "value" not in columns:
        return out.advantage
    if out.returns is not None:
        return out.returns
    gamma = live.params.get("gamma", 1.0) if live._native.reads(RETURNS) else 1.0
    # The reward to go is the GAE of a critic that knows nothing.
    to_go = load("gae", gamma=gamma, **{"lambda": 1.0}, whiten=False)
    columns = {**columns, "value": columns["value"].float() * 0}
    return padded(to_go, groups=groups, mask=mask, step=step, columns=columns).advantage


_live: dict[str, LiveRecipe] = {}


def opened(recipe: str, params: dict[str, Any], theirs: Mapping[str, Any], trainer: str, **kept: Any) -> LiveRecipe:
    """The live recipe of these settings, one for a process; `theirs` are the trainer's own, for a recipe's parameters of these
    names that `params` does not set and that mean the same; `kept` is what `watch` takes of a folder, and hooks that it refuses."""
    key = json.dumps([recipe, params, theirs, kept], sort_keys=True, default=str)
    if key not in _live:
        try:
            first = load(recipe, **params)
        except RecipeError as error:
            if recipe.endswith(".rhai") and not Path(recipe).exists() and not Path(recipe).is_absolute():
                raise RecipeError(f"{error}\nThe path is relative, and {trainer} runs in {Path.cwd()}: write all of it") from None
            raise
        own = first.params.keys() - params.keys() if first._native.reads(RETURNS) else ()
        set_by_trainer = {name: value for name, value in theirs.items() if name in own and value is not None}
        followed = [name for name, value in theirs.items() if value is not None and name not in params]
        live = _live[key] = watch(recipe, **kept, _of_returns=followed, **{**set_by_trainer, **params})
        told = [f"{k}={v}{f' (set by {trainer})' if k in set_by_trainer else ''}" for k, v in live.params.items()]
        # A trainer's log shows no more than warnings.
        log.warning("%s %s %s", recipe, live.version[:6], " ".join(told))
    return _live[key]


STATE = "advlab.json"
"""The file of a trainer's checkpoint that has the version of its step, and its state."""


def save(live: LiveRecipe, folder: Path) -> None:
    """Puts the version of the last step and its state into a checkpoint's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{STATE}"
    beside.write_text(json.dumps(live.state_dict()))
    beside.rename(folder / STATE)


def resume(live: LiveRecipe, folder: Path, step: int | None) -> None:
    """Goes on from what `save` put into a checkpoint's folder; a warning where there is nothing."""
    kept = folder / STATE
    if not kept.exists():
        log.warning("%s has no state of %s: it begins at step %s with that of `init`", folder, live.name, step)
        return
    try:
        live.load_state_dict(json.loads(kept.read_text()))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        told = f"{kept} is damaged ({type(error).__name__}: {error})"
        raise RecipeError(f"{told}: restore it, or delete it to begin with the state of `init`") from None


def from_environment(trainer: str, refuses: Mapping[str, str] | None = None, **theirs: Any) -> LiveRecipe:
    """The live recipe that the variables ADVLAB_RECIPE and ADVLAB_PARAMS (JSON) name, which keeps the folder ADVLAB_FOLDER;
    `theirs` as of `opened`. `refuses` names hooks that neither it nor a later version may have, each with the reason."""
    recipe = os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError(
            f"{trainer} takes no settings of advlab's: set the variable ADVLAB_RECIPE to a built-in's name or a script's path"
        )
    text = os.environ.get("ADVLAB_PARAMS") or "{}"
    try:
        params = dict(json.loads(text))
    except (TypeError, ValueError):
        raise ValueError(f'the variable ADVLAB_PARAMS is {text}: it takes JSON, as {{"k": 4}}') from None
    return opened(recipe, params, theirs, trainer, folder=os.environ.get("ADVLAB_FOLDER") or None, _refuses=refuses)


def per_response(live: LiveRecipe, out: Advantage, trainer: str, counts: Any, mean: str) -> Any:
    """The advantage per response, with its weights by `weighted`; an error if the recipe gives one per token."""
    if out.level != "response":
        raise ValueError(f"{live.name} gives an advantage for each token, and {trainer} takes one for each response here")
    report(live, out)
    log.info("%s %s", live.name, {**out.metrics, "serial": out.serial})
    return weighted(out, counts, mean)


def explain(error: RecipeError, options: Mapping[str, str], trainer: str) -> RecipeError:
    """The error, with the trainer's option where it is a column that is missing for the lack of it."""
    option = {"advantage": LOSS_ALONE, **options}.get(error.missing_column or "")
    if option is None:
        return error
    told = RecipeError(f"{error}\nIn {trainer}: {option}")
    for name in ("path", "line", "column", "message", "missing_column"):
        setattr(told, name, getattr(error, name))
    told.help = option
    return told


def column_name(name: str) -> str:
    """A name that scripts can write: `batch.reward_format`."""
    return re.sub(r"\W", "_", name)


KINDS: dict[type, Any] = {str: str, float: (int, float)}
"""What a column may hold, and the values that are it."""


def of_data_set(columns: Mapping[str, list[Any]], kinds: dict[str, type] | None = None) -> dict[str, list[Any]]:
    """Of a data set's columns those of strings, or of numbers, one per response; but for names that mean something else here.

    None is NaN among numbers and the empty string among strings. `kinds` has what columns hold, `str` or `float`, for those of which
    a batch has nothing but None; it is added to.
    """
    kinds = {} if kinds is None else kinds
    names = Counter(map(column_name, columns))
    # Of two that scripts would call alike none is the column.
    is_free = {name for name, count in names.items() if count == 1} - OURS
    kept = {}
    for name, values in columns.items():
        values = [plain(value) for value in values]
        there = [value for value in values if value is not None]
        of_all = (kind for kind, likes in KINDS.items() if all(isinstance(value, likes) for value in there))
        kind = next(of_all, None) if there else kinds.get(name)
        if kind is not None and column_name(name) in is_free:
            kinds[name] = kind
            kept[column_name(name)] = [(math.nan if kind is float else "") if value is None else value for value in values]
    return kept


def plain(value: Any) -> Any:
    """A number of NumPy's or torch's as Python's; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def row_sums(rewards: Any) -> Any:
    """The reward of each response, float64 [B]: the sum of its rewards by token, those included that do not count, as trainers
    put a score on any token. By our threads: torch's go on spinning for a while, and take the cores from those of the call."""
    return _native.row_sums(_arrays.given("token_reward", rewards))


def on_cpu(tensor: Any) -> Any:
    """A tensor where it can be read."""
    return tensor.detach().cpu() if _arrays.is_tensor(tensor) else tensor
