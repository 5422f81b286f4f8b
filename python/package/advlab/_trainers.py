"""What the adapters of trainers have in common."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from . import _arrays
from ._native import RecipeError
from ._recipe import Advantage, LiveRecipe, Recipe, _Call, _restored, load, watch

log = logging.getLogger("advlab")

MISSING = re.compile(r"no column `(\w+)`")
RETURNS = re.compile(r"\.(token_reward|value)\b")


def padded(recipe: Recipe | LiveRecipe, *, groups: Any, mask: Any, step: int | None, columns: Mapping[str, Any]) -> Advantage:
    """As `recipe.advantage`, with [B, T] also where the recipe has one value a response."""
    call = _Call.of(None, groups, mask, step, dict(columns), ())
    return counted_alike(recipe, recipe._advantage(call, padded=True))


def counted_alike(recipe: Recipe | LiveRecipe, out: Advantage) -> Advantage:
    """The advantage, unless responses are to count differently in a loss: those of trainers know of no weights."""
    if out.weight is not None and (out.weight != 1).any():
        raise ValueError(
            f"{recipe.name} gives weights of responses, and a trainer's loss takes none: let `advantage` return its value times "
            "the weight"
        )
    return out


def frozen(live: LiveRecipe) -> Recipe:
    """The version of a live recipe's last step with a copy of its state, for a computation that leaves both alone."""
    name, version, sources, params, state = live._native.left(False)
    return _restored(name, sources, params, state, version)


def targets(live: LiveRecipe, out: Advantage, *, groups: Any, mask: Any, step: int | None, columns: Mapping[str, Any]) -> Any:
    """What a critic learns, [B, T], where `out` is of the last step: advantage + value, unwhitened, for a recipe that has the
    parameter `whiten`; for others the discounted reward to go."""
    batch = {"groups": groups, "mask": mask, "step": step}
    value = columns["value"].float()
    # The step once more, by the version and the state that it had.
    name, version, sources, params, state = live._native.left(True)
    if "whiten" in params and out.level == "token":
        if params["whiten"]:
            unwhitened = _restored(name, sources, {**params, "whiten": False}, state, version)
            out = padded(unwhitened, **batch, columns=columns)
        return out.advantage + value * mask
    gamma = params.get("gamma", 1.0) if discounts_returns(sources) else 1.0
    # The reward to go is the GAE of a critic that knows nothing.
    to_go = load("gae", gamma=gamma, **{"lambda": 1.0}, whiten=False)
    return padded(to_go, **batch, columns={**columns, "value": value * 0}).advantage


def discounts_returns(sources: Mapping[str, str]) -> bool:
    """Whether a recipe's `gamma` and `lambda` are those of the return: it reads rewards by token, or values. That of another
    reward for tokens, as a KL, has nothing to do with the trainer's."""
    return any(RETURNS.search(text) for text in sources.values())


_live: dict[str, LiveRecipe] = {}


def opened(recipe: str, params: dict[str, Any], theirs: Mapping[str, Any], **kept: Any) -> LiveRecipe:
    """The live recipe of these settings, one for a process; `theirs` are the trainer's own, for a recipe's parameters of these
    names that `params` does not set and that mean the same; `kept` is what `watch` takes of a folder."""
    key = json.dumps([recipe, params, theirs, kept], sort_keys=True, default=str)
    if key not in _live:
        first = load(recipe, **params)
        if discounts_returns(first._native.sources):
            ours = first.params.keys() - params.keys()
            params = {**{name: value for name, value in theirs.items() if name in ours and value is not None}, **params}
        live = _live[key] = watch(recipe, **kept, **params)
        log.info("%s %s%s", recipe, live.version[:6], "".join(f" {k}={v}" for k, v in live.params.items()))
    return _live[key]


def from_environment(trainer: str, **theirs: Any) -> LiveRecipe:
    """The live recipe that the variables ADVLAB_RECIPE and ADVLAB_PARAMS (JSON) name, which keeps the folder ADVLAB_FOLDER;
    `theirs` as of `opened`."""
    recipe = os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError(
            f"{trainer} takes no settings of advlab's: set the variable ADVLAB_RECIPE to a built-in's name or a script's path"
        )
    params = json.loads(os.environ.get("ADVLAB_PARAMS") or "{}")
    return opened(recipe, params, theirs, folder=os.environ.get("ADVLAB_FOLDER") or None)


def per_response(live: LiveRecipe, out: Advantage, trainer: str) -> Any:
    """The advantage, where it is one for each response, as the trainer wants it."""
    if out.level != "response":
        raise ValueError(f"{live.name} gives an advantage for each token, and {trainer} takes one for each response here")
    log.info("%s %s", live.name, {**out.metrics, "serial": out.serial})
    return counted_alike(live, out).advantage


def explain(error: RecipeError, options: Mapping[str, str], trainer: str) -> RecipeError:
    """The error, with the trainer's option where it is a column that is missing for the lack of it."""
    missing = MISSING.search(getattr(error, "message", str(error)))
    option = options.get(missing[1]) if missing else None
    if option is None:
        return error
    told = RecipeError(f"{error}\nIn {trainer}: {option}")
    for name in ("path", "line", "column", "message"):
        setattr(told, name, getattr(error, name, None))
    told.help = option
    return told


def column_name(name: str) -> str:
    """A name that scripts can write: `batch.reward_format`."""
    return re.sub(r"\W", "_", name)


def on_cpu(tensor: Any) -> Any:
    """A tensor where it can be read."""
    return tensor.detach().cpu() if _arrays.is_tensor(tensor) else tensor
