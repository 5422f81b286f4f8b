"""Recipes, as a user of the package sees them."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from . import _arrays, _native, _state
from ._batch import Batch, _Call, mask_of
from ._native import Live as _NativeLive
from ._native import Recipe as _NativeRecipe
from ._native import RecipeError
from ._outcome import Advantage, Finding, LiveEvent, Loss

log = logging.getLogger("advlab")

KEPT_TOKENS = 1 << 18
"""Tokens of the last batch that a live recipe keeps to try new versions on, unless told otherwise."""


class _Hooks(ABC):
    """The calls that a recipe and a live one have in common."""

    _native: _NativeRecipe | _NativeLive
    _groupless: set[str]
    """Versions whose loss was found not to look at groups."""
    name: str

    @property
    @abstractmethod
    def version(self) -> str:
        """The name of the exact content, with all that it imports: a SHA-256 in hexadecimal digits."""

    @abstractmethod
    def _frozen(self) -> Recipe:
        """The version of the last step with a copy of its state, for a computation that leaves both alone."""

    def advantage(
        self,
        batch: Batch | None = None,
        *,
        groups: Any = None,
        mask: Any = None,
        step: int | None = None,
        **columns: Any,
    ) -> Advantage:
        """The advantage of a batch: what `advlab.read` gave, or columns as keywords.

        `groups` says which responses answer one prompt: [B] integers of any width, strings or other objects, in any
        order. `mask` is [B, T], 1 (or true) for a token that counts; without it, all tokens of the token columns do. It may be named
        `response_mask`, `completion_mask`, `action_mask` or `loss_mask` too.
        Columns are [B] or [B, T]: `reward`, `correct`, `length`, `token_reward`, `old_logp`, `ref_logp`, `logp`, `value`,
        `entropy`, `weight`, and any of your own; NumPy arrays, torch tensors on the CPU, whatever has `__dlpack__`, or lists, of
        any strides and number type. One of strings, [B], is a key: `batch.key("agent")`. None is no column. Nothing is written to,
        or kept after the call. `step` is `batch.step` of scripts, 0 unless given.

        Raises `RecipeError` where the recipe or the batch is at fault, TypeError for what is no array of numbers.
        """
        call = _Call.of(batch, groups, mask_of(mask, columns), step, columns, ("reward", "token_reward"))
        if call.levels is not None:
            raise TypeError(
                "`groups` is missing, [B]: it says which responses answer one prompt; `range(B)` where each is by itself"
            )
        return self._advantage(call, padded=False)

    def _advantage(self, call: _Call, padded: bool) -> Advantage:
        answer = self._native.advantage(call.batch, call.f64, padded)
        for name in ("advantage", "reward", "weight", "returns"):
            answer[name] = call.back(answer[name])
        return Advantage(**answer)

    def loss(
        self,
        batch: Batch | None = None,
        *,
        logp: Any = None,
        groups: Any = None,
        mask: Any = None,
        step: int | None = None,
        **columns: Any,
    ) -> Loss:
        """The recipe's loss and its gradient by `logp` [B, T]; the other columns as those of `advantage`.

        With torch, `loss` is a scalar whose `backward` follows the recipe's gradient. `advantage` is a column, [B] or
        [B, T]. Without `groups`, a loss that looks at groups is an error.

        Raises as `advantage` does; also where the recipe has no loss.
        """
        call = _Call.of(batch, groups, mask_of(mask, columns), step, {"logp": logp, **columns}, ("logp",))
        if "loss" not in self.hooks:
            raise RecipeError(f"{self.name} has no `loss`: `advantage` is what it has; `ppo_clip` and others are losses on one")
        if call.levels is not None:
            self._refuse_without_groups(call.levels)
        answer = self._native.loss(call.batch, call.f64)
        answer["grad"] = call.back(answer["grad"])
        if call.is_torch and _arrays.is_tensor(logp):
            from ._torch import scalar

            answer["loss"], answer["grad"] = scalar(logp, answer["loss"], answer["grad"])
        return Loss(**answer)

    def _refuse_without_groups(self, levels: dict[str, int]) -> None:
        """An error where the loss looks at groups: of responses each by itself its numbers would be wrong."""
        version = self._native.in_use
        if version in self._groupless:
            return
        is_alike = _is_alike_by_any_groups(self, levels)
        if is_alike is False:
            raise RecipeError(
                f"the loss of {self.name} looks at groups, and the call gives none: pass `groups=`, and whole groups in each call; "
                "where a trainer splits them, give it an advantage"
            )
        if is_alike:
            self._groupless.add(version)

    @property
    def hooks(self) -> list[str]:
        """The functions that the script defines for advlab to call."""
        return self._native.hooks

    @property
    def params(self) -> dict[str, Any]:
        """The parameters with their values."""
        return self._native.params

    def __repr__(self) -> str:
        params = "".join(f" {name}={value}" for name, value in self.params.items())
        return f"{type(self).__name__}({self.name} {self.version[:6]}{params})"


def _is_alike_by_any_groups(recipe: _Hooks, levels: dict[str, int]) -> bool | None:
    """Whether the gradient on four small responses with these columns is the same whatever the groups; None where the loss fails
    there however they are: the call itself says why."""
    import numpy as np

    shape = (4, 3)
    columns: dict[str, Any] = {"correct": np.arange(4) % 2, "reward": np.arange(4) % 2, "length": np.full(4, 3)}
    columns = {name: columns[name] for name in levels.keys() & columns.keys()}
    for index, name in enumerate(sorted(levels.keys() - columns.keys())):
        # Between 0 and 1, and all different.
        noise = (np.arange(13 * index, 13 * index + 12).reshape(shape) * 37 + 11) % 101 / 101 - ("logp" in name)
        columns[name] = noise[:, 0] if levels[name] == 1 else noise

    def gradient(groups: list[int]) -> Any:
        with contextlib.suppress(RecipeError):
            return recipe._frozen().loss(groups=groups, mask=np.ones(shape), **columns).grad

    alone, together = gradient([0, 1, 2, 3]), gradient([0, 0, 1, 1])
    if alone is None and together is None:
        return None
    return np.array_equal(alone, together)


class Recipe(_Hooks):
    """A recipe with its parameters and its state, which lasts from call to call. `load` gives one.

    Calls from several threads come one after the other. Pickled, it is the same version elsewhere, with its state.
    """

    _native: _NativeRecipe

    def __init__(self, native: _NativeRecipe) -> None:
        self._native = native
        self._groupless = set()
        self.name: str = native.name
        """A built-in's name, or the script's path."""

    @property
    def version(self) -> str:
        return self._native.version

    def _frozen(self) -> Recipe:
        return copy.copy(self)

    @property
    def text(self) -> str:
        """The script's source, without its imports."""
        return self._native.text

    def state_dict(self) -> dict[str, Any]:
        """The recipe's state, `this` in scripts, as numbers, strings, lists and dictionaries that JSON can hold."""
        return _state.of_json(self._native.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the state to what `state_dict` gave."""
        self._native.state = _state.to_json(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.name, self._native.sources, self.params, self.state_dict(), self.version)


def _restored(name: str, sources: dict[str, str], params: dict[str, Any], state: dict[str, Any] | None, version: str) -> Recipe:
    """A version from its sources, with a state, or with its first one for None."""
    recipe = Recipe(_native.Recipe.restore(name, sources, _state.settings(params)))
    if recipe.version != version:
        raise RecipeError(f"{name} is {recipe.version[:6]} here and was {version[:6]} where it was pickled")
    if state is not None:
        recipe.load_state_dict(state)
    return recipe


class LiveRecipe(_Hooks):
    """A recipe that follows its file: each call uses the newest version that passed its checks. `watch` gives one.

    A save that fails its checks is told once, and the last good version stays. Events are logged by `logging`'s logger
    `advlab` as calls find them, and kept for `events`. The first groups of the last batch are copied, to try new versions on.
    """

    _native: _NativeLive

    def __init__(self, native: _NativeLive, name: str) -> None:
        self._native = native
        self._groupless = set()
        self._refuses: Mapping[str, str] = {}
        self._events: list[LiveEvent] = []
        self.name = name
        """What it was opened by: a path, or a built-in's name."""

    @property
    def version(self) -> str:
        """The newest version that passed its checks: the next advantage is computed by it."""
        return self._native.newest()[0]

    @property
    def serial(self) -> int:
        """The newest version's number in the order of publication, from 0."""
        return self._native.newest()[1]

    def _frozen(self) -> Recipe:
        left = self.state_dict()
        return _restored(**{name: left[name] for name in ("name", "sources", "params", "state", "version")})

    def _advantage(self, call: _Call, padded: bool) -> Advantage:
        try:
            out = super()._advantage(call, padded)
            if out.weight is not None and "weight" in self._refuses:
                raise ValueError(f"the batch has the column `weight`: {self._refuses['weight']}")
            return out
        finally:
            self._hear()

    def _hear(self) -> None:
        for told in self._native.events():
            event = LiveEvent(*told)
            self._events.append(event)
            text = f"{event.line}\n{event.error}" if event.error is not None else event.line
            # Trainers show warnings, and not what is less: a new version is to be seen in their consoles.
            log.warning("%s: %s", self.name, text)
        # For a run that never asks; the oldest are lost first.
        del self._events[:-1024]

    def events(self) -> list[LiveEvent]:
        """Events since the last call of this, in order."""
        self._hear()
        events, self._events = self._events, []
        return events

    def refresh(self, timeout: float = 10.0) -> bool:
        """Looks at the file now, and returns when what it holds has been judged; says whether there is a newer version.

        Without it a save is found by itself, within some tenths of a second. Raises TimeoutError.
        """
        before = self.serial
        if not self._native.refresh(timeout):
            raise TimeoutError(f"{self.name} has not been judged within {timeout} s")
        return self.serial != before

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, JSON-able: the version of the last step with its text, its parameters and its state, and the
        number of the next step for calls without `step`."""
        left = self._native.left()
        return {**left, "state": _state.of_json(left["state"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave; what the file holds now is checked as any new version is.

        The parameters are those that `watch` was given; if the checkpoint had others, a warning says so.
        """
        this, counts = _state.to_json(state["state"]), (state.get("serial", 0), state.get("next_step", 0))
        self._native.resume(state["name"], state["sources"], this, *counts)
        params, before = self._native.left()["params"], state.get("params", {})
        changed = [name for name in params if name in before and before[name] != params[name]]
        if changed:
            told = ", ".join(f"{name}={params[name]} (the checkpoint had {before[name]})" for name in changed)
            log.warning("%s goes on with %s", self.name, told)

    def close(self) -> None:
        """Stops following the file; no call works afterwards."""
        with contextlib.suppress(ValueError, RuntimeError):
            self._hear()
        self._native.close()
        for place in [place for place, live in _writers.items() if live is self]:
            del _writers[place]

    def __enter__(self) -> LiveRecipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return super().__repr__()
        except (RuntimeError, ValueError):
            return f"LiveRecipe({self.name}, closed)"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"the live recipe of {self.name} follows a file of this process and cannot be pickled: "
            "call `advlab.watch` where it is used, or send its `state_dict()`"
        )


_writers: WeakValueDictionary[str, LiveRecipe] = WeakValueDictionary()
"""Live recipes by the folders that they write."""


def load(recipe: str | os.PathLike[str], **params: Any) -> Recipe:
    """Loads a recipe: a built-in by its name, or a script by its path; keywords set its parameters.

    Raises `RecipeError` where there is no such recipe, where it does not compile, or does not take a parameter.
    """
    return Recipe(_native.Recipe.load(os.fspath(recipe), _state.settings(params)))


def watch(
    recipe: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    keep_batches: int = 3,
    kept_tokens: int = KEPT_TOKENS,
    _refuses: Mapping[str, str] | None = None,
    _of_returns: Sequence[str] = (),
    **params: Any,
) -> LiveRecipe:
    """Opens a recipe that follows its file while a run goes: a script by its path, or a built-in, which stays as it is.

    `folder` keeps each version, the history of reloads, a row of metrics for each call, and the last `keep_batches` batches,
    whole, with the state that the recipe had: `advlab repl FOLDER` opens them, and `advlab replay FOLDER` computes them again.
    One that is there already is gone on with, from the trainer's `step`; rows of steps that are done again are set aside in
    `cut.jsonl`. What cannot be written is told by an event and the log, and the run goes on. Writing a batch takes as long as the
    disk does; 0 keeps none. A live recipe of this process that has the folder already is closed if it is of the same recipe.

    `kept_tokens` bounds the copy of the last batch that new versions are tried on; its first two groups are kept however long
    they are. Raises as `load` does, and where the folder is another run's.
    """
    path, place = os.fspath(recipe), None if folder is None else os.path.realpath(folder)
    kept = _arrays.whole("kept_tokens", kept_tokens), folder and os.fspath(folder), _arrays.whole("keep_batches", keep_batches)
    more = dict(_refuses or {}), list(_of_returns)
    if place in _writers and _writers[place].name == path:
        # As a cell of a notebook that runs again. Nothing is closed for a recipe that cannot be opened.
        _NativeLive.watch(path, _state.settings(params), kept[0], None, kept[2], *more).close()
        log.warning("%s is opened again: the live recipe that wrote it until now is closed", folder)
        _writers[place].close()
    live = LiveRecipe(_native.Live.watch(path, _state.settings(params), *kept, *more), path)
    live._refuses = more[0]
    if place is not None:
        _writers[place] = live
    return live


def read(path: str | os.PathLike[str], *, map: Mapping[str, str] | None = None, dtype: str | None = None) -> Batch:
    """Reads rollouts from a .jsonl (.gz, .zst), .parquet, .safetensors or .npz file.

    `map` names fields that the file calls otherwise: `{"reward": "score"}`. `dtype` is `float32` or `float64` for token
    columns; that of the file unless given. Raises `RecipeError` with the file, the line and the field.
    """
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype is 'float32' or 'float64', not {dtype!r}")
    wide = None if dtype is None else dtype == "float64"
    return Batch(_native.Batch.read(os.fspath(path), list((map or {}).items()), wide))


def recipes() -> dict[str, str]:
    """The built-in recipes by name, each with one line on it."""
    return dict(_native.recipes())


def doc(name: str | None = None) -> str:
    """A recipe or a function explained with an example; without a name, all names.

    Raises `RecipeError` where there is nothing of that name.
    """
    return _native.explain(name)


def check(recipe: str | os.PathLike[str] | Recipe, batch: Batch | None = None, **params: Any) -> list[Finding]:
    """Tests what must hold of a recipe on degenerate batches, made in the likeness of a batch where there is one.

    Raises as `load` does; what does not hold is a finding with the result `fails`.
    """
    loaded = recipe if isinstance(recipe, Recipe) else load(recipe, **params)
    native = None if batch is None else batch._native
    return [Finding(*finding) for finding in _native.check_recipe(loaded._native, native)]
