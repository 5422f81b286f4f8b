"""Recipes, as a user of the package sees them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn
from weakref import WeakValueDictionary

from . import _native, _state
from ._batch import Batch, Call, whole
from ._lab import Lab
from ._outcome import Advantage, Finding, LiveEvent, Loss, RecipeError

log = logging.getLogger("advlab")


class _Params(dict[str, Any]):
    """The values of the parameters, by name; they cannot be changed."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the parameters of a recipe cannot be changed: `advlab.load(recipe, k=8)` returns a changed copy")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _Hooks(Lab):
    """The calls that recipes and live recipes have in common."""

    _groupless: frozenset[str] = frozenset()  # The versions whose loss was found not to depend on groups.

    @property
    def params(self) -> dict[str, Any]:
        """The parameters with their values."""
        return _Params(super().params)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"a recipe cannot be changed: to set a parameter, use `advlab.load(recipe, {name}=...)`")
        super().__setattr__(name, value)

    def advantage(
        self,
        batch: Batch | None = None,
        *more: Any,
        groups: Any = None,
        mask: Any = None,
        step: int | None = None,
        **columns: Any,
    ) -> Advantage:
        """Computes the advantage of a batch that `advlab.read` returned, or of columns that are passed as keywords.

        `groups` says which responses answer the same prompt: [B] integers of any width or strings, in any order, or the prompts'
        tokens. `mask` is [B, T], 1 (or true) for a token that counts; without a mask, all tokens of the token columns count. The
        mask may also be called `response_mask`, `completion_mask`, `action_mask` or `loss_mask`. Columns are [B] or [B, T]:
        `reward`, `correct`, `length`, `token_reward`, `old_logp`, `ref_logp`, `logp`, `value`, `entropy`, `weight`, and any
        columns of your own. They may be NumPy arrays, torch tensors on the CPU, other objects with `__dlpack__`, or lists, of any
        strides and number type. A column of strings, [B], is a key: `batch.key("agent")`. A column that is None counts as
        missing. No argument is changed, or kept after the call. Scripts see `step` as `batch.step`; by default, it is 0 or, for a
        live recipe, one more than at the last step.

        Raises `RecipeError` if the recipe or the batch is at fault, and TypeError for a value that is not an array of numbers.
        """
        columns.update(groups=groups, mask=mask, step=step)
        return self._advantage(Call.of(more or batch, columns, ("reward", "token_reward")), padded=False)

    def _advantage(
        self, call: Call, padded: bool, turns: bool | None = None, one_per: tuple[str, str] | None = None
    ) -> Advantage:
        answer = self._compute_advantage(call.batch, call.f64, padded, turns, one_per)
        arrays = {name: call.back(values) for name, values in answer.pop("arrays").items()}
        return Advantage(**arrays, **answer)

    def loss(
        self,
        batch: Batch | None = None,
        *more: Any,
        logp: Any = None,
        groups: Any = None,
        mask: Any = None,
        step: int | None = None,
        **columns: Any,
    ) -> Loss:
        """Computes the recipe's loss and its gradient with respect to `logp` [B, T]; other columns are passed as to `advantage`.

        With torch, `loss` is a scalar whose `backward` propagates the recipe's gradient. `advantage` is a column, [B] or
        [B, T]. Without `groups`, a loss that depends on groups is an error.

        Raises the errors that `advantage` raises, and `RecipeError` if the recipe has no loss.
        """
        columns.update(logp=logp, groups=groups, mask=mask, step=step)
        call = Call.of(more or batch, columns, ("logp",), needs_groups=False)
        if "loss" not in self.hooks:
            raise RecipeError(
                f"{self.name} has no `loss`, only an `advantage`: `ppo_clip`, for example, is a loss on an advantage"
            )
        if batch is None and groups is None:
            self._refuse_without_groups(call.dimensions)
        answer = self._compute_loss(call.batch, call.f64)
        grad = call.back(answer.pop("grad"))
        if call.is_torch and hasattr(logp, "requires_grad"):
            from ._torch import scalar

            answer["loss"], grad = scalar(logp, answer["loss"], grad)
        return Loss(grad=grad, **answer)

    def _refuse_without_groups(self, dimensions: dict[str, int]) -> None:
        """Raises an error if the loss depends on groups, because the loss would be wrong if each response were a group of its
        own. The loss depends on groups if its gradient on four small responses with these columns differs between two
        groupings."""
        import numpy as np

        version = self._in_use()
        if version in self._groupless:
            return
        special = {"correct": np.arange(4) % 2, "reward": np.arange(4) % 2, "length": np.full(4, 3)}
        columns = {}
        for index, name in enumerate(sorted(dimensions)):
            # The numbers of any other column lie between 0 and 1 (log-probs between -1 and 0), and are all different.
            noise = (np.arange(13 * index, 13 * index + 12).reshape(4, 3) * 37 + 11) % 101 / 101 - ("logp" in name)
            columns[name] = special.get(name, noise[:, 0] if dimensions[name] == 1 else noise)

        def gradient(groups: list[int]) -> Any:
            with contextlib.suppress(RecipeError):
                return self._frozen().loss(groups=groups, mask=np.ones((4, 3)), **columns).grad

        alone, together = gradient([0, 1, 2, 3]), gradient([0, 0, 1, 1])
        # If the loss fails with both groupings, the call itself reports the error.
        if alone is None and together is None:
            return
        if not np.array_equal(alone, together):
            raise RecipeError(
                f"the loss of {self.name} depends on groups, but the call has none: pass `groups=`, and whole groups in each "
                "call; if a trainer splits groups, use a recipe with an advantage"
            )
        self._groupless |= {version}

    def plan(self, batch: Batch | None = None, *, expand: bool = False, **columns: Any) -> str:
        """Returns the formula that the hooks compute, a line for each operation; `expand` expands functions such as `whiten`.

        If a batch, or columns as `advantage` takes them, are given, the formula uses these columns; if not, it uses all usual
        columns that the recipe reads.
        """
        return self._plan(_given(batch, columns), "text", expand)

    def terms(self, batch: Batch | None = None, **columns: Any) -> dict[str, dict[str, tuple[float, float]]]:
        """Returns two numbers for each summand of the advantage and of the recipe's reward, by hook and by name: the standard
        deviation, and the share of the sum of absolute values. A hook whose result is not a sum is skipped.
        """
        found: dict[str, dict[str, tuple[float, float]]] = {}
        for hook, name, std, share in self._terms(Call.of(batch, columns).batch):
            found.setdefault(hook, {})[name] = (std, share)
        return found

    def torch(
        self, batch: Batch | None = None, *, hook: str | None = None, per_response: bool = False, **columns: Any
    ) -> Callable[..., Any]:
        """Returns the advantage, or the loss of a recipe without an advantage, as a function of tensors that needs only torch.

        `recipe.torch()(group=.., reward=..)` works on any device and in any dtype, and a loss is differentiable; the function's
        attribute `source` is the text of its file. `batch` or columns have the same effect as in `plan`; `hook` is `reward`,
        `advantage`, `loss`, `returns` or `weight`. With `per_response` the function computes one response's part of the loss,
        `loss(logprobs, ..)`, and `torch.fx` can trace it.

        Raises `RecipeError`, with the script's line, if a part of the recipe cannot be written as such a function.
        """
        from ._torch import exported

        kind = "per_response" if per_response else "torch"
        name = hook or ("loss" if per_response or "advantage" not in self.hooks else "advantage")
        return exported(self.name, self._plan(_given(batch, columns), kind, False), name)

    def _frozen(self) -> Recipe:
        """Returns the version of the last step with a copy of its state, for a computation that must not change the recipe or its
        state."""
        return _restored(*self._parts())

    def _parts(self) -> tuple[Any, ...]:
        left = self._left()
        return tuple(left[name] for name in ("name", "sources", "params", "version", "state"))

    def __repr__(self) -> str:
        with contextlib.suppress(RuntimeError, ValueError):
            params = "".join(f" {name}={value}" for name, value in self.params.items())
            return f"{type(self).__name__}({self.name} {self.version[:6]}{params})"
        return f"{type(self).__name__}({self.name}, closed)"


def _given(batch: Batch | None, columns: dict[str, Any]) -> _native.Batch | None:
    """Returns the batch of a call, if the call has a batch."""
    return Call.of(batch, columns, needs_groups=False).batch if batch is not None or columns else None


class Recipe(_Hooks):
    """A recipe with its parameters and its state, which lasts from call to call. `load` returns a recipe.

    Calls from several threads run one after the other. A pickled recipe is restored as the same version, with its state.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the recipe's state (`this` in scripts) as values for JSON, such as numbers, lists and dictionaries."""
        return _state.of_json(self._left()["state"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the state to a result of `state_dict`."""
        self._set_state(_state.to_json(state))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, self._parts()


def _restored(name: str, sources: dict[str, str], params: dict[str, Any], version: str, state: str | None = None) -> Recipe:
    """Makes a version from its sources, with the state in `state`, which is JSON, or with the initial state."""
    recipe = Recipe(name, _state.settings(params), sources)
    if recipe.version != version:
        raise RecipeError(f"{name} has version {recipe.version[:6]} here, but was pickled with {version[:6]}")
    if state is not None:
        recipe._set_state(state)
    return recipe


class LiveRecipe(_Hooks):
    """A recipe that follows its file, as `watch` returns it.

    A step is a call of `advantage`, with the newest version that passed its checks or, if that version fails, with an earlier
    version; `loss` uses the version of the last step. A save that fails its checks is reported once. Steps log new events with
    the logger `advlab` of `logging`, and store them for `events`. The first groups of the last batch are copied, because new
    versions are tried on them.
    """

    def __init__(self, *_: Any) -> None:
        # If a run never asks for its events, the oldest events are dropped.
        self._kept_events: deque[LiveEvent] = deque(maxlen=1024)
        # The newest version at the last refresh. The file's thread may publish a save before `refresh` is called.
        self._seen = self.serial

    def _advantage(self, *call: Any, **more: Any) -> Advantage:
        try:
            return super()._advantage(*call, **more)
        finally:
            self._hear()

    def _hear(self) -> None:
        for told in self._events():
            event = LiveEvent(*told)
            self._kept_events.append(event)
            # Events are logged as warnings, because many trainers show no lower level, and a new version must be visible.
            log.warning("%s: %s", self.name, event.line if event.error is None else f"{event.line}\n{event.error}")

    def events(self) -> list[LiveEvent]:
        """Returns the events since the last call of `events`, in order."""
        self._hear()
        events, self._kept_events = self._kept_events, deque(maxlen=1024)
        return list(events)

    def refresh(self, timeout: float = 10.0) -> bool:
        """Reads the file now, waits until its content has been checked, and returns whether there is a newer version than after
        the last `refresh`, or than at the start.

        Without this call, a save is found within a few tenths of a second, or within a second if the system gives no file events.
        Raises TimeoutError if the check takes longer than `timeout` seconds.
        """
        if not self._refresh(timeout):
            raise TimeoutError(f"{self.name} has not been checked within {timeout} s")
        before, self._seen = self._seen, self.serial
        # If a version failed at a step, the newest version is an earlier version again.
        return self._seen > before

    def state_dict(self) -> dict[str, Any]:
        """Returns the data for a checkpoint, which JSON can hold: the version of the last step with its text, its parameters and
        its state, and the number of the next step for calls without `step`."""
        left = self._left()
        return {**left, "state": _state.of_json(left["state"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from the result of `state_dict`; the content of the file is then checked like any new version.

        The parameters are those that `watch` was given; if the checkpoint had other parameters, a warning says so.
        """
        counts = state.get("serial", 0), state.get("next_step", 0)
        self._resume(state["name"], state["sources"], _state.to_json(state["state"]), *counts)
        self._seen = self.serial
        params, before = self._left()["params"], state.get("params", {})
        changed = [name for name in params if name in before and before[name] != params[name]]
        if changed:
            told = ", ".join(f"{name}={params[name]} (the checkpoint had {before[name]})" for name in changed)
            log.warning("%s continues with %s", self.name, told)

    def close(self) -> None:
        """Stops following the file; no call works afterwards."""
        with contextlib.suppress(ValueError, RuntimeError):
            self._hear()
        self._close()
        for place in [place for place, live in _writers.items() if live is self]:
            del _writers[place]

    def __enter__(self) -> LiveRecipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"the live recipe of {self.name} follows a file of this process and cannot be pickled: "
            "call `advlab.watch` where the recipe is used, or send its `state_dict()`"
        )


_writers: WeakValueDictionary[str, LiveRecipe] = WeakValueDictionary()  # The live recipes, by the folders to which they write.


def load(recipe: str | os.PathLike[str] | None = None, *, source: str | None = None, **params: Any) -> Recipe:
    """Loads a recipe: a built-in by its name, or a script by its path or by its text, `source`; keywords set parameters.

    Raises `RecipeError` if there is no such recipe, if the recipe does not compile, or if it refuses a parameter.
    """
    if (recipe is None) == (source is None) or "fn " in str(recipe):
        raise TypeError("`load(recipe)` takes a built-in's name or a script's path; `load(source=text)` takes a script's text")
    settings = _state.settings(params)
    return Recipe(os.fspath(recipe), settings) if recipe is not None else Recipe("source", settings, {"source": source})


def watch(
    recipe: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    keep_batches: int = 3,
    kept_tokens: int = 1 << 18,
    _refuses: Mapping[str, str] | None = None,
    _lacks: Mapping[str, str] | None = None,
    _gives: Sequence[str] = (),
    _of_returns: Sequence[str] = (),
    **params: Any,
) -> LiveRecipe:
    """Opens a recipe that follows its file during a run: a script by its path, or a built-in, which never changes.

    `folder` stores each version, the history of reloads, a row of metrics for each step, and the last `keep_batches` batches,
    each complete and with the recipe's state before it: `advlab repl FOLDER` opens these batches, and `advlab replay FOLDER`
    repeats their steps. A run that is already in the folder is continued, from the trainer's `step`; rows of steps that are
    repeated are moved to `cut.jsonl`. If something cannot be written, an event and the log say so, and the run continues. Each
    step waits until its batch is written; with `keep_batches=0` no batch is written. If a live recipe of this process already
    writes to the folder, that live recipe is closed, provided that it follows the same recipe.

    `kept_tokens` bounds the copy of the last batch that new versions are tried on; the first two groups of the batch are kept
    however long they are. Raises the errors that `load` raises, and an error if the folder belongs to another run.
    """
    path, settings = os.fspath(recipe), _state.settings(params)
    follow: _native._Follow = {
        "kept_tokens": whole("kept_tokens", kept_tokens),
        "folder": None,
        "keep_batches": whole("keep_batches", keep_batches),
        "refuses": dict(_refuses or {}),
        "lacks": dict(_lacks or {}),
        "gives": list(_gives),
        "of_returns": list(_of_returns),
    }
    if folder is None:
        return LiveRecipe(path, settings, None, follow)
    place = os.path.realpath(folder)
    if place in _writers and _writers[place].name == path:
        # This happens, for example, if a cell of a notebook runs again. The recipe is first opened without the folder, so that
        # nothing is closed if the recipe cannot be opened.
        LiveRecipe(path, settings, None, follow).close()
        log.warning("%s is opened again: the live recipe that wrote it until now is closed", folder)
        _writers[place].close()
    live = _writers[place] = LiveRecipe(path, settings, None, {**follow, "folder": os.fspath(folder)})
    return live


def read(
    path: str | os.PathLike[str] | None = None,
    *,
    map: Mapping[str, str] | None = None,
    dtype: str | None = None,
    step: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    unscored: Literal["error", "zero", "leave-out"] = "error",
) -> Batch:
    """Reads rollouts as the commands do; without a path, returns the small built-in batch of the prompt.

    `path` is a .jsonl (.gz, .zst), .parquet or .safetensors file, which advlab wrote or a trainer dumped; a folder of JSONL and
    Parquet files; or a run's folder, from which the batch of `step`, or the last batch, is read. `map` gives the file's field for
    names that advlab uses: `{"reward": "score"}`, or `{"reward": "rewards.correct"}` for a field of an object. `dtype` is
    `float32` or `float64` for token columns; by default, it is the file's type. `tokenizer` is a model's tokenizer.json, which
    counts the tokens of completions if nothing else says how long they are; without a tokenizer, words are counted. `unscored` is
    the treatment of responses whose `reward` or `correct` is None or NaN: `error`, `zero`, or `leave-out`.

    Raises `RecipeError` with the file, the line and the field.
    """
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype is 'float32' or 'float64', not {dtype!r}")
    if path is None and (map, dtype, step, tokenizer, unscored) != (None, None, None, None, "error"):
        raise TypeError("map, dtype, step, tokenizer and unscored apply only to a file: read(path, ...)")
    wide, at = None if dtype is None else dtype == "float64", None if step is None else whole("step", step)
    places = [None if place is None else os.fspath(place) for place in (path, tokenizer)]
    return Batch(places[0], list((map or {}).items()), wide, at, places[1], unscored)


def check(recipe: str | os.PathLike[str] | Recipe, batch: Batch | None = None, **params: Any) -> list[Finding]:
    """Tests properties of a recipe on ordinary and degenerate batches, made from the first groups of `batch` if it is given.

    Raises the errors that `load` raises; a property that does not hold is a finding with the result `fails`.
    """
    loaded = recipe if isinstance(recipe, _native.Recipe) else load(recipe, **params)
    return [Finding(*finding) for finding in _native.check_recipe(loaded, batch)]
