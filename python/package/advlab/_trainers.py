"""The code that the adapters of all trainers share: it converts a trainer's tensors to columns, runs a step of the recipe, and
returns the advantage in the trainer's form."""

import contextlib
import functools
import importlib
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from . import _arrays, _native
from ._batch import Call
from ._outcome import Advantage, Loss, RecipeError
from ._recipe import LiveRecipe, Recipe, load, log, watch

RESERVED = _arrays.NUMBERS | {"batch", "completion", "groups", "prompt", "rollout_logp", "step", "uid"}
"""The names that columns of a data set cannot have in a recipe."""

ONLY_A_LOSS = "the recipe is only a loss, which needs an advantage: choose a recipe that gives the advantage"
NOT_OVER_TOKENS = (
    "a recipe with a `loss` and no `advantage` gives the advantage -M dloss/dlogp, which needs a loss that is a mean over the M tokens of the "
    "batch; this trainer averages its loss differently"
)
OF_TURNS = ("trajectory", "turn", "step_reward")  # The columns that `Turns` adds.
OF_LOGP = ("old_logp", "logp", "ref_logp", "rollout_logp")  # The columns of log-probs.
RETURNS = ["token_reward", "value"]
"""If a recipe reads one of these columns, its parameters `gamma` and `lambda` are those of a return, and get the trainer's
values; otherwise, as for a KL per token, they keep their own values."""


@dataclass(frozen=True)
class Trainer:
    """A trainer's name, options and columns, for messages and for reading its data."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)  # For a column, by its name: how to make the trainer give it.
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column for each of the trainer's tensors, by the tensor's name, if the two names differ."""
    other: str = ""  # The same for any other column; `{}` stands for its name.
    lacks: Mapping[str, str] = field(default_factory=dict)
    """The columns that no setting and no data of this trainer can give, each with the reason. A recipe that cannot run a step
    without such a column is refused when it is loaded, and such a save is rejected."""
    gives: Sequence[str] = ()
    """If no data set adds columns: the columns that a recipe can have in addition to `options`, `columns` and the columns of
    turns. A name that ends in `_` stands for all names that begin with it."""
    turns: str = "each turn is a row"  # The meaning of rows for a recipe that names `trajectory`.
    rows_follow: bool = True  # Whether a new version may begin or stop taking turns.
    one_per: tuple[str, str] | None = None
    """If the trainer takes only one advantage for each response or trajectory: this level, and the reason as the second half of a
    sentence. A version with a finer advantage is rejected, or fails at its step."""

    def explain(self, error: RecipeError) -> RecipeError:
        """Returns the error and, if a column is missing, adds the option to set."""
        name, lacks = error.missing_column, self.refused["_lacks"]
        option = {**_left_out, **lacks, **self.options}.get(name, self.other.format(name) or lacks.get(""))
        if not name or not option:
            return error
        place = error.message, error.path, error.line, error.column
        return RecipeError(f"{error}\nIn {self.name}: {option}", *place, option, error.missing_column)

    @property
    def refused(self) -> dict[str, Any]:
        """The columns for which `watch` refuses a version, as arguments of `watch`."""
        gives = [*dict.fromkeys([*self.gives, *self.columns.values(), *self.options, *OF_TURNS])] if self.gives else []
        names = ", ".join(f"`{name}<name>`" if name.endswith("_") else f"`{name}`" for name in gives)
        only = {"": f"{self.name} gives a recipe only {names}, and the columns that follow from these"} if gives else {}
        return {"_lacks": {"advantage": ONLY_A_LOSS, **only, **self.lacks}, "_gives": gives}

    def open(self, recipe: str, params: dict[str, Any], theirs: Mapping[str, Any], **kept: Any) -> LiveRecipe:
        """Opens the live recipe of these settings, once per process. `theirs` has the trainer's values for parameters that
        `params` does not set; it is used if the recipe computes returns. `kept` is passed on to `watch`: the folder, and the
        hooks to refuse."""
        key = json.dumps([recipe, params, theirs, kept], sort_keys=True, default=str)
        if key not in _live:
            try:
                first = load(recipe, **params)
            except RecipeError as error:
                if recipe.endswith(".rhai") and not Path(recipe).exists() and not Path(recipe).is_absolute():
                    told = f"{error}\nThe path is relative, and {self.name} runs in {Path.cwd()}: give the absolute path"
                    raise RecipeError(told) from None
                raise
            followed = {name: value for name, value in theirs.items() if value is not None and name not in params}
            is_set = first._reads(RETURNS)
            set_by_trainer = {name: value for name, value in followed.items() if is_set and name in first.params}
            live = _live[key] = watch(recipe, **kept, **self.refused, _of_returns=list(followed), **{**set_by_trainer, **params})
            announce(live, dict.fromkeys(set_by_trainer, f" (set by {self.name})"), self.turns)
        return _live[key]

    def open_from_environment(self, mean: str, no_weights: str | None = None, **theirs: Any) -> LiveRecipe:
        """Opens the live recipe that ADVLAB_RECIPE and ADVLAB_PARAMS (JSON) name, with the folder ADVLAB_FOLDER, which keeps the
        last ADVLAB_KEEP_BATCHES batches; `theirs` is passed on to `open`; `mean` and `no_weights` are passed on to `refusals`."""
        recipe = os.environ.get("ADVLAB_RECIPE")
        if not recipe:
            told = f"{self.name} has no settings for advlab"
            raise ValueError(f"{told}: set the environment variable ADVLAB_RECIPE to a built-in's name or a script's path")
        text = os.environ.get("ADVLAB_PARAMS") or "{}"
        try:
            params = dict(json.loads(text))
        except (TypeError, ValueError):
            raise ValueError(f'the environment variable ADVLAB_PARAMS is {text}: it must be JSON, such as {{"k": 4}}') from None
        batches = os.environ.get("ADVLAB_KEEP_BATCHES") or "3"
        if not batches.isdecimal():
            raise ValueError(f"the environment variable ADVLAB_KEEP_BATCHES is {batches}: it must be a number of batches, such as 3")
        kept = {"folder": os.environ.get("ADVLAB_FOLDER") or None, "keep_batches": int(batches)}
        return self.open(recipe, params, theirs, **kept, _refuses=refusals(mean, no_weights))

    def advantage(
        self,
        recipe: Recipe | LiveRecipe,
        columns: Mapping[str, Any],
        mean: str | Callable[[], str] = "",
        padded: bool = True,
        keep_rejected: bool | None = None,
        by_turns: bool | None = None,
    ) -> Advantage:
        """Runs a step of the recipe on columns as `Call.of_columns` takes them, and logs the lines that the recipe prints. In the
        result, `returns` is the target of a critic, and the advantage is `weighted` for the trainer's mean over `mean`, if `mean`
        is given. If `padded` is true, values per response are expanded to [B, T].

        Rejected responses, whose mask has no token that counts, are not members of their groups, and their advantage is 0, unless
        `keeps_rejected` says otherwise; if all responses are rejected, the recipe runs no step. A recipe that takes turns
        (`sees_turns`) sees each turn as a response (`Turns`). If the caller has chosen rows by `sees_turns`, `by_turns` is the
        result of that call, and `OtherRows` is raised if the step must be repeated with other rows."""
        sees, all_columns = sees_turns(recipe) if by_turns is None else by_turns, columns
        columns = {name: value for name, value in columns.items() if value is not None}
        mask = on_cpu(columns["mask"]) if "mask" in columns else None
        if mask is not None:
            rows = np.flatnonzero(np.asarray(mask != 0).any(1))
            if len(rows) == 0 and not (keeps_rejected(keep_rejected) and len(mask)):
                return _no_step(recipe, np.zeros(mask.shape if padded else len(mask), np.float32), _arrays.is_tensor(mask))
            if not keeps_rejected(keep_rejected) and len(rows) < len(mask):
                columns = _with_scores_of_rejected(columns, rows, mask)
                out = self.advantage(recipe, pick(columns, rows), mean, padded, True, by_turns)
                return self._spread(out, rows, len(mask))
        turns = Turns(columns) if mask is not None and sees else None
        given = turns.columns if turns else _of_tokens(columns, mask)
        if mask is None and "trajectory" in columns:
            given.update(_places(columns["trajectory"], np.arange(len(columns["trajectory"]))))
        try:
            call = Call.of_columns(given, () if padded else ("reward", "token_reward"))
            out = recipe._advantage(call, padded and not turns, sees if self.rows_follow else None, self.one_per)
        except RecipeError as error:
            if recipe._is_repeated():
                # The newest version failed, or was published during this call, and the version that is in use now takes other
                # rows.
                if by_turns is not None:
                    raise OtherRows from None
                return self.advantage(recipe, all_columns, mean, padded, keep_rejected)
            raise self.explain(error) from None
        report(recipe, out)
        if mean and (out.weight is not None or out.loss is not None):
            over = mean if isinstance(mean, str) else mean()
            out = replace(out, advantage=weighted(out, turns or columns["mask"], over))
        if turns:
            out = turns.whole(out, padded)
        if mask is not None and mean and isinstance(mean, str):
            explain_zero(out.advantage, mask, mean)
        return replace(out, returns=_targets(recipe, out, columns))

    @staticmethod
    def _spread(out: Advantage, rows: Any, size: int) -> Advantage:
        """Expands an outcome of some rows to `size` rows; all other rows have 0."""

        def spread(values: Any) -> Any:
            if values is None:
                return None
            whole = (
                values.new_zeros((size, *values.shape[1:])) if _arrays.is_tensor(values) else np.zeros((size, *values.shape[1:]))
            )
            whole[rows] = values
            return whole

        advantage = spread(out.advantage)
        returns = advantage if out.returns is out.advantage else spread(out.returns)
        return replace(out, advantage=advantage, returns=returns, weight=spread(out.weight), reward=None)

    def per_response(
        self, live: LiveRecipe, columns: Mapping[str, Any], counts: Any, mean: str, by_turns: bool | None = None, of: Any = None
    ) -> Any:
        """Computes the weighted advantage per response, for responses of `counts` tokens. Responses without tokens, and
        `by_turns`, are treated as by `advantage`; `of` is passed on to `weighted`. The trainer must have `one_per`."""
        counts = np.asarray(counts)
        rows = np.flatnonzero(counts)
        if not keeps_rejected() and len(rows) == 0:
            return _no_step(live, np.zeros(len(counts)), False).advantage
        if not keeps_rejected() and len(rows) < len(counts):
            whole, columns = np.zeros(len(counts)), _with_scores_of_rejected(columns, rows)
            of = None if of is None else of[rows]
            whole[rows] = self.per_response(live, pick(columns, rows), counts[rows], mean, by_turns, of)
            return whole
        out = self.advantage(live, columns, padded=False, by_turns=by_turns)
        log.info("%s %s", live.name, {**out.metrics, "serial": out.serial})
        values = weighted(out, counts, mean, of)
        explain_zero(values, counts, mean)
        return values


_live: dict[str, LiveRecipe] = {}
_warned: set[str] = set()  # The warnings that this process has given.


class OtherRows(Exception):
    """Raised if the version that is now in use needs other rows than the step has chosen."""


def with_its_rows(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a step so that it starts again, and chooses its rows again, if the version in use needs other rows (one per turn
    instead of one per trajectory, or the reverse)."""

    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        while True:
            with contextlib.suppress(OtherRows):
                return step(*args, **kwargs)

    return run


def refusals(mean: str, no_weights: str | None = None) -> dict[str, str]:
    """Returns the hooks that no version of a recipe may have, each with the reason, if the trainer's loss is a mean over `mean`;
    `no_weights` says why the loss cannot apply weights."""
    loss = None if mean == "tokens" else NOT_OVER_TOKENS
    return {hook: why for hook, why in (("weight", no_weights), ("loss", loss)) if why}


def metrics(out: Advantage, counts: bool = True) -> dict[str, float]:
    """Returns the numbers that a trainer logs for a step. With `counts`, they show which version ran the step, so that a plot
    shows a reload."""
    found = {**out.metrics, **({"serial": out.serial, "reloaded": out.is_reloaded} if counts else {})}
    return {f"advlab/{name}": float(value) for name, value in found.items()}


def _targets(recipe: Recipe | LiveRecipe, out: Advantage, columns: Mapping[str, Any]) -> Any:
    """Returns the targets of a critic, [B, T]: the result of the recipe's hook `returns` or, if there is no such hook, the
    discounted reward-to-go. Without a critic, the targets are the advantage."""
    if columns.get("value") is None:
        return out.advantage
    if out.returns is not None:
        return out.returns
    gamma = recipe.params.get("gamma", 1.0) if recipe._reads(RETURNS) else 1.0
    # The reward-to-go is the GAE with lambda 1 of a critic whose values are all 0.
    to_go = load("gae", gamma=gamma, **{"lambda": 1.0}, whiten=False)
    return to_go._advantage(Call.of_columns({**columns, "value": columns["value"].float() * 0}), padded=True).advantage


def weighted(out: Advantage, mask: Any, mean: str, of: Any = None) -> Any:
    """Returns the advantage times the recipe's weights, scaled so that the trainer's own mean over `mean` equals the recipe's
    weighted mean: w A (sum of T / sum of w T) for "tokens", where T counts a response's tokens, and w A (B / sum of w) for
    "responses", where B counts the responses with tokens; and w A for "sum", if the trainer adds up the losses of tokens. If all
    weights are 0, the advantage is 0.

    `mask` is [B, T], or T itself, [B], or the `Turns` that are the responses here. If the trainer's mean counts several responses
    as one, `of` has equal numbers for these responses. The result is exact if the trainer's loss is proportional to the
    advantage, as PPO's clipped loss is.
    """
    if out.loss is not None and mean != "tokens":
        raise ValueError(f"{NOT_OVER_TOKENS} ({mean})")
    # An advantage that is derived from a loss already contains the weights.
    if out.loss is not None or out.weight is None:
        return out.advantage
    weight = np.asarray(out.weight, dtype=np.float64)
    counts = mask.lengths if isinstance(mask, Turns) else np.asarray(mask)
    if counts.ndim == 2:
        counts = (counts != 0).sum(1)
    of = mask.row if isinstance(mask, Turns) else of
    # Each turn counts as its share of the tokens of its trajectory.
    responses = counts > 0 if of is None else counts / np.bincount(of, counts)[of].clip(1)
    share = {"tokens": counts, "responses": responses}.get(mean)
    if of is not None and mean == "responses" and (weight != 1).any() and np.allclose(np.bincount(of, weight)[of], 1):
        warn_once("the weights of a trajectory's turns add up to 1, but the trainer's mean over responses already counts each trajectory once: leave `weight` out")
    total = 1.0 if share is None else (weight * share).sum()
    scale = weight * (1.0 if share is None else share.sum() / total if total else 0.0)
    if (scale == 1).all():
        return out.advantage
    if isinstance(out.advantage, list):
        # The rows have different lengths.
        return [row * float(factor) for row, factor in zip(out.advantage, scale, strict=True)]
    advantage = np.asarray(out.advantage)
    scaled = (advantage.T * scale.astype(advantage.dtype)).T
    return sys.modules["torch"].from_numpy(scaled) if _arrays.is_tensor(out.advantage) else scaled


def tried(recipe: Recipe | LiveRecipe, scale: float = 1.0, rows: Sequence[int] = (0, 1), **more: Any) -> Any:
    """Returns the gradient of a recipe's loss and, as the last number, the loss, both as sums over tokens. The batch is one or
    both (`rows`) of two responses, which have 3 tokens and 1 token."""
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    advantage = np.array([[0.5], [-0.75]]) * mask
    # `logp` is moved a little against the advantage, so that no clip removes the gradient.
    old = -0.5 - 0.125 * np.arange(6).reshape(2, 3)
    logp = {"logp": old - 0.01 * np.sign(advantage), "old_logp": old, "ref_logp": old}
    columns = {"mask": mask, **logp, "advantage": scale * advantage, **more}
    out = recipe._frozen().loss(**{name: np.asarray(values)[list(rows)] for name, values in columns.items()})
    return np.append(out.grad, out.loss) * mask[list(rows)].sum()


def is_proportional(recipe: Recipe | LiveRecipe, **more: Any) -> bool:
    """Returns whether the gradient of a recipe's loss is proportional to the advantage on two small responses. Small and large
    advantages are tried, because a loss may clip them."""
    once, *others = [tried(recipe, scale, **more)[:-1] / scale for scale in (1.0, 2.0, 64.0)]
    return all(np.allclose(other, once, rtol=1e-6, atol=1e-12) for other in others)


def keeps_rejected(asked: bool | None = None) -> bool:
    """Returns whether responses without a token that counts are in their groups: `asked` or else ADVLAB_KEEP_REJECTED."""
    return bool(os.environ.get("ADVLAB_KEEP_REJECTED")) if asked is None else asked


def _no_step(recipe: Recipe | LiveRecipe, zeros: Any, is_tensor: bool) -> Advantage:
    """Returns the outcome for a batch that is not computed, because no response has a token that counts."""
    log.warning("%s runs no step, because no token of the batch counts; all advantages are 0", recipe.name)
    values = sys.modules["torch"].from_numpy(zeros) if is_tensor else zeros
    nothing = dict.fromkeys(("reward", "weight", "loss"))
    counts = {"seconds": 0.0, "serial": recipe.serial, "version": recipe._in_use(), "is_native": False, "is_reloaded": False}
    return Advantage(advantage=values, returns=values, level="response", metrics={}, prints=[], notes=[], **nothing, **counts)


def _with_scores_of_rejected(columns: Mapping[str, Any], kept: Any, mask: Any = None) -> Mapping[str, Any]:
    """Returns the columns with the scores of a trajectory's rejected rows added to its last kept row, because the score of a
    whole trajectory is often in its last row."""
    name = "step_reward" if "step_reward" in columns else "token_reward"
    if "trajectory" not in columns or name not in columns or isinstance(columns[name], OfTurns):
        return columns
    scores = np.asarray(on_cpu(columns[name])).astype(np.float64)
    keys, order = list(columns["trajectory"]), columns.get("turn", np.arange(len(scores)))
    last = {keys[row]: row for row in sorted(kept, key=lambda row: order[row])}
    for row in set(range(len(scores))) - set(kept):
        target = last.get(keys[row])
        if target is not None and scores.ndim == 1:
            scores[target] += scores[row]
        elif target is not None:
            scores[target, np.flatnonzero(np.asarray(mask[target]))[-1]] += scores[row].sum()
    is_tensor = _arrays.is_tensor(columns[name])
    return {**columns, name: sys.modules["torch"].from_numpy(scores) if is_tensor else scores}


def kinds_of(recipe: Recipe | LiveRecipe) -> dict[str, str]:
    """Returns the kinds of the data set's columns that this recipe has read so far, in the form that `of_data_set` takes."""
    return _kinds.setdefault(recipe, {})


_kinds: WeakKeyDictionary[Recipe | LiveRecipe, dict[str, str]] = WeakKeyDictionary()


def sees_turns(recipe: Recipe | LiveRecipe) -> bool:
    """Returns whether a recipe names `trajectory`, as a column or a level, or `step_reward`. If it does, each turn is a separate
    response, in every trainer."""
    return recipe._takes_turns()


class OfTurns(list[Any]):
    """A column with a list for each response; the list has a number or a text for each turn of the response."""

    def __init__(self, values: Iterable[Any], kind: str = "lists of numbers") -> None:
        super().__init__(value or () for value in values)
        self.kind = kind

    def at(self, row: int, turn: int) -> Any:
        value = self[row][turn] if turn < len(self[row]) else None
        return value if value is not None else "" if self.kind == "lists of strings" else math.nan

    def warn_if_longer(self, name: str, turns: Any) -> None:
        """Warns if lists have more values than their responses have turns; `turns` has the numbers of turns."""
        longer = sum(len(values) > count for values, count in zip(self, turns, strict=True))
        if longer:
            warn_once(f"`{name}`: the lists of {longer} responses have more values than turns; the extra values are not used")


def _of_tokens(columns: Mapping[str, Any], mask: Any) -> dict[str, Any]:
    """Returns the columns for whole responses: a turn's number becomes the number of each token of the turn. Lists of strings,
    and all lists if there is no mask, are left out."""
    lists = {name: values for name, values in columns.items() if isinstance(values, OfTurns)}
    numbers = {name: values for name, values in lists.items() if values.kind == "lists of numbers" and mask is not None}
    why = "a list with one value for each turn" if mask is None else "one string for each turn"
    rule = "without tokens, a column has one value for each response" if mask is None else "only a recipe that names the level `trajectory` gets such columns"
    leave_out({name: why for name in lists if name not in numbers}, rule)
    found = {name: value for name, value in columns.items() if name not in lists}
    if numbers:
        turn = _turn_of(mask)
        for name, values in numbers.items():
            values.warn_if_longer(name, turn.max(1, initial=0) + 1)
            table = [[values.at(row, at) for at in range(max(0, turn.max(initial=-1)) + 1)] for row in range(len(values))]
            found[name] = np.take_along_axis(np.array(table, float), turn.clip(0), 1)
    return found


def _turn_of(mask: Any) -> Any:
    """Returns the turn to which each position of a mask belongs, [B, T]; -1 before the first turn. A turn begins after each hole
    of the mask."""
    counts = np.asarray(mask != 0)
    begins = counts.copy()
    begins[:, 1:] &= ~counts[:, :-1]
    return begins.cumsum(1) - 1


def _places(keys: Any, *order: Any) -> dict[str, Any]:
    """Returns the columns `trajectory` and `turn` of rows: the number of the key's trajectory, and the row's index in the
    trajectory, whose rows are sorted by `order`; the first array of `order` is the primary sort key."""
    session = np.array(_arrays.labels(np.asarray(keys).tolist())[0], dtype=int)
    by = np.lexsort((*reversed(order), session))
    turn = np.empty(len(session))
    turn[by] = np.arange(len(session)) - np.searchsorted(session[by], session[by])
    return {"trajectory": session.astype(float), "turn": turn}


class Turns:
    """The turns of a batch's responses, each as a separate response: a turn is a run of tokens between two holes of the mask.

    `trajectory` and `turn` give the turn's position. A number for each response, such as `reward`, is repeated for each of its
    turns; `step_reward` differs by turn: it is the sum of the rewards of the turn's tokens and of the hole after the turn, or the
    response's reward at its last turn. If the columns contain `trajectory` and `turn`, these columns say which responses belong
    together, and `step_reward` is the score of each response.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.mask = on_cpu(columns["mask"]) != 0
        number = _turn_of(self.mask)
        counts = np.maximum(number.max(1, initial=-1) + 1, 1)
        self.first = counts.cumsum() - counts  # The first turn of each response.
        self.row = np.repeat(np.arange(len(counts)), counts)  # The response of each turn.
        run = np.arange(len(self.row)) - self.first[self.row]
        place = self.first[:, None] + number.clip(0)
        self.lengths = np.bincount(place[np.asarray(self.mask)], minlength=len(run))
        scores = columns.get("step_reward", columns.get("token_reward", columns.get("reward")))
        self.columns = {name: self._column(name, value, run) for name, value in columns.items()}
        if scores is not None and not isinstance(scores, OfTurns):
            scores = np.asarray(on_cpu(scores), dtype=np.float64)
            last = np.append(self.first[1:], len(run)) - 1
            at = (last, scores) if scores.ndim == 1 else (place.reshape(-1), scores.reshape(-1))
            self.columns["step_reward"] = np.bincount(at[0], at[1], len(run))
        keys = np.asarray(columns.get("trajectory", np.arange(len(counts))))[self.row]
        order = np.asarray(columns.get("turn", np.zeros(len(counts))))[self.row]
        self.columns.update(_places(keys, order, run))

    def _column(self, name: str, value: Any, run: Any) -> Any:
        if name == "step":
            return value
        if name == "mask":
            return [np.ones(length, bool) for length in self.lengths]
        if isinstance(value, OfTurns):
            value.warn_if_longer(name, np.bincount(self.row))
            return [value.at(int(row), int(turn)) for row, turn in zip(self.row, run, strict=True)]
        if getattr(value, "ndim", 1) == 2 and name != "groups":
            return list(on_cpu(value)[self.mask].split(self.lengths.tolist()))
        return pick({name: value}, self.row)[name]

    def whole(self, out: Advantage, padded: bool) -> Advantage:
        """Converts an outcome for turns to an outcome for responses: [B] if all turns of each response have the same value and
        `padded` is false, and [B, T] otherwise."""
        torch = sys.modules["torch"]

        def of(values: Any) -> Any:
            rows = isinstance(values, list) or values.ndim == 2
            numbers = np.concatenate([np.asarray(row) for row in values]) if rows and len(values) else np.asarray(values)
            if not rows and not padded and (numbers == numbers[self.first][self.row]).all():
                return torch.from_numpy(numbers[self.first])
            whole = torch.zeros(self.mask.shape, dtype=torch.from_numpy(numbers).dtype)
            whole[self.mask] = torch.from_numpy(numbers if rows else np.repeat(numbers, self.lengths))
            return whole

        advantage = of(out.advantage)
        returns = None if out.returns is None else of(out.returns)
        level = "response" if advantage.ndim == 1 else "token"
        return replace(out, advantage=advantage, returns=returns, level=level, weight=None, reward=None)


def pick(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Returns the rows of columns at the indices `rows`."""

    def of(value: Any) -> Any:
        if isinstance(value, OfTurns):
            return OfTurns((value[row] for row in rows), value.kind)
        return [value[row] for row in rows] if isinstance(value, list) else value[rows]

    return {name: value if name == "step" or value is None else of(value) for name, value in columns.items()}


_left_out: dict[str, str] = {}  # The trainer's columns that recipes do not get, each with the reason.


def leave_out(columns: Mapping[str, str], rule: str) -> None:
    """Remembers columns that recipes do not get, each with its content, and logs their names once; `rule` says which columns
    recipes can get."""
    _left_out.update({name: f"left out: `{name}` ({why}): {rule}" for name, why in columns.items()})
    if columns:
        warn_once(f"left out: {', '.join(f'`{name}` ({why})' for name, why in columns.items())}: {rule}")


def warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        log.warning("%s", text)


def explain_zero(advantage: Any, mask: Any, mean: str) -> None:
    """Logs that a loss of 0 is not an error, if the trainer's mean of the advantage is 0 but the advantage is not. Only the first
    step with a signal is tested, because the test reads all tokens."""
    if "loss 0" in _warned:
        return
    counts = np.asarray(mask)
    counts = (counts != 0).sum(1) if counts.ndim == 2 else counts
    # If the rows have different lengths, they are a list.
    rows = [np.asarray(row, dtype=np.float64) for row in advantage]
    sums, sizes = (
        np.array([of(row).sum() if row.ndim else of(row) * n for row, n in zip(rows, counts)]) for of in (np.array, np.abs)
    )
    over, each = ("responses", np.maximum(counts, 1)) if mean == "responses" else ("tokens", 1)
    if sizes.sum() == 0:
        return
    _warned.add("loss 0")
    if abs((sums / each).sum()) <= 1e-6 * abs(sums / each).sum():
        # While logp = old_logp, |dloss/dlogp| of a token is the token's share of the mean, times |A|.
        mass = (sizes / each).sum() / (counts > 0).sum() if over == "responses" else sizes.sum() / counts.sum()
        told = f"the advantages cancel over {over}, so a loss averaged over {over} is 0 while logp = old_logp, but its gradient is not 0"
        log.warning("%s: its gradient mass, the sum of abs(dloss/dlogp), is %.3g (see docs/loss_zero.md)", told, mass)


def warn_of_unknown_loss(live: LiveRecipe, setting: str) -> None:
    warn_once(
        f"`{setting}` is a loss that advlab does not know: the weights of {live.name} are exact only if the loss is "
        "proportional to the advantage"
    )


def announce(live: LiveRecipe, notes: Mapping[str, str], turns: str = Trainer.turns) -> None:
    """Logs a recipe with its parameters and the hooks that run in a trainer, as a warning, because many trainers log only
    warnings."""
    params = " ".join(f"{name}={value}{notes.get(name, '')}" for name, value in live.params.items())
    hooks = [hook for hook in live.hooks if hook in ("reward", "weight", "advantage", "returns")]
    runs = f"{', '.join(hooks)}{', but not loss,' * ('loss' in live.hooks)}" if "advantage" in hooks else "loss"
    log.warning("advlab runs %s of %s %s %s", runs, live.name, live.version[:6], params)
    if sees_turns(live):
        log.warning("%s names `trajectory` or `step_reward`: %s", live.name, turns)


PRINTED = 20  # The maximum number of lines that are logged for a step; further lines are only counted.


def report(recipe: Recipe | LiveRecipe, out: Advantage | Loss) -> None:
    """Logs up to `PRINTED` lines that a recipe printed at a step, and each note once. The level is warning, because trainers may
    show only warnings."""
    if out.prints:
        more = len(out.prints) - PRINTED
        lines = [line[:500] for line in out.prints[:PRINTED]] + [f"... and {more} more lines"] * (more > 0)
        log.warning("%s printed:\n%s", recipe.name, "\n".join(lines))
    for note in out.notes:
        warn_once(f"{recipe.name}: {note}")


STATE = "advlab.json"  # The file, in a trainer's checkpoint, with the version of the last step and its state.


def save(live: LiveRecipe, folder: Path) -> None:
    """Writes the version of the last step and its state to a checkpoint's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{STATE}"
    beside.write_text(json.dumps(live.state_dict()))
    beside.rename(folder / STATE)


def resume(live: LiveRecipe, folder: Path, step: int | None) -> None:
    """Continues from the file that `save` wrote to a checkpoint's folder; logs a warning if there is no such file."""
    kept = folder / STATE
    if not kept.exists():
        log.warning("%s has no state of %s: the recipe begins at step %s with the state of `init`", folder, live.name, step)
        return
    try:
        live.load_state_dict(json.loads(kept.read_text()))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        told = f"{kept} is damaged ({type(error).__name__}: {error})"
        raise RecipeError(f"{told}: restore it, or delete it to begin with the state of `init`") from None


def column_name(name: str) -> str:
    """Returns the name under which scripts can read a column, as in `batch.reward_format`."""
    return re.sub(r"\W", "_", name)


FITS = ("numbers", "strings", "lists of numbers", "lists of strings")  # The kinds of a column, as `kind_of` names them.
RULE = "a column has only numbers or only strings, one for each response or a list with one for each turn"


class Unfit(str):
    """The kind of a value that fits into no column; it replaces the value."""


def kind_of(value: Any) -> str:
    """Returns the kind of a data set's value, in the plural: `numbers`, `lists of strings`, ..., or `lists` for an empty list."""
    if isinstance(value, Unfit):
        return value
    if isinstance(value, (list, tuple)):
        items = sorted({kind_of(plain(one)) for one in value if one is not None})
        return f"lists of {' and '.join(items)}" if items else "lists"
    kinds = {str: "strings", (int, float): "numbers"}
    return next((kind for types, kind in kinds.items() if isinstance(value, types)), f"values of the type {type(value).__name__}")


def of_data_set(columns: Mapping[str, list[Any]], kinds: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """Returns the columns of a data set that have a string or a number for each response, or a list with one for each turn,
    except columns whose names mean something else here.

    None becomes NaN among numbers and the empty string among strings. `kinds` has the kinds of columns, as `FITS` names them, for
    columns that have only None or empty lists in this batch; this call adds to it.
    """
    kinds, names, kept, others = {} if kinds is None else kinds, Counter(map(column_name, columns)), {}, {}
    for name, values in columns.items():
        ours, values, known = column_name(name), [plain(value) for value in values], kinds.get(name, "")
        if ours in RESERVED:
            continue
        there = {kind_of(value) for value in values if value is not None}
        if "lists" in there and all(kind.startswith("lists") for kind in there):
            # An empty list has the kind of the column's other lists, in this batch or in earlier batches.
            there = there - {"lists"} or {known if known.startswith("lists") else "lists of numbers"}
        kind = " and ".join(sorted(there)) or known
        if kind and names[ours] > 1:
            # If two columns would have the same name in scripts, recipes get neither.
            others[ours] = "several columns would have this name"
        elif kind in FITS:
            kinds[name], nothing = kind, math.nan if kind == "numbers" else ""
            is_list = kind.startswith("lists")
            kept[ours] = OfTurns(values, kind) if is_list else [nothing if value is None else value for value in values]
        elif kind:
            others[ours] = kind
    leave_out(others, RULE)
    return kept


def of_rows(rows: Sequence[Mapping[str, Any]], kinds: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """Does the same as `of_data_set`, for rows that may lack some of the columns."""
    return of_data_set(
        {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}, kinds
    )


def plain(value: Any) -> Any:
    """Converts a NumPy or torch scalar to a Python number, and a one-dimensional array to a list; keeps other values."""
    dimensions = getattr(value, "ndim", None)
    return value.item() if dimensions == 0 else value.tolist() if dimensions == 1 else value


def row_sums(rewards: Any) -> Any:
    """Returns the reward of each response, float64 [B]: the sum over its tokens, including masked tokens, because a trainer may
    put a score on any token. advlab's threads compute it, because torch's threads spin for a while afterwards and would take the
    cores from the call."""
    return _native.row_sums(_arrays.column("token_reward", rewards).given)


def on_cpu(tensor: Any) -> Any:
    return tensor.detach().cpu() if _arrays.is_tensor(tensor) else tensor


def setting(config: Any, path: str) -> Any:
    """Returns a setting, such as `trainer.save_freq`, of a configuration of mappings and objects, or None."""
    for name in path.split("."):
        config = config.get(name, None) if isinstance(config, Mapping) else getattr(config, name, None)
    return config


def held(columns: Any, name: str) -> Any:
    """Returns a column of a trainer's batch, which may be any object with `keys`; None if it has no such column, or no `keys`."""
    return columns[name] if hasattr(columns, "keys") and name in columns.keys() else None


def callers() -> Iterator[FrameType]:
    """Yields the frames of the callers, innermost first, in which adapters find values that a trainer does not pass."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def registry(trainer: str, *modules: str) -> Any:
    """Returns the first of these modules that the installed version of a trainer has."""
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(module)
    raise ImportError(f"{trainer} is not installed: there is no module {' or '.join(modules)}")


def put_in_place(package: str, theirs: Any, ours: Any) -> None:
    """Replaces a function by another function in all modules of a package, because each module that imports the function has its
    own reference to it."""
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == package]:
        for name in [name for name, value in vars(module).items() if value is theirs]:
            setattr(module, name, ours)
