"""What the adapters of trainers have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from . import _arrays
from ._native import RecipeError
from ._recipe import Advantage, LiveRecipe, Recipe, _Call, _restored

MISSING = re.compile(r"no column `(\w+)`")


def padded(recipe: Recipe | LiveRecipe, *, groups: Any, mask: Any, step: int, columns: Mapping[str, Any]) -> Advantage:
    """As `recipe.advantage`, with [B, T] also where the recipe has one value a response."""
    call = _Call.of(None, groups, mask, step, dict(columns), ())
    return recipe._advantage(call, padded=True)


def frozen(live: LiveRecipe, **params: Any) -> Recipe:
    """The version of a live recipe's last step with a copy of its state, for a computation that leaves both alone."""
    left = live.state_dict()
    return _restored(left["name"], left["sources"], {**live.params, **params}, left["state"], left["version"])


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
