"""Batches that are read from files, and batches that are made from the columns of a call."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._report import Report


class Batch(_native.Batch, Mapping[str, Any]):
    """The rollouts of a file: columns by their names, as read-only NumPy arrays.

    A column of numbers is [B] or [B, T] or, if it is not padded, as in JSONL, has one number for each token that counts. A column
    of texts is a list. `len` is the number of columns, and `batch.responses` the number of responses.
    """

    def __getitem__(self, name: str) -> Any:
        return self._column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns())

    def __len__(self) -> int:
        return len(self._columns())

    def summary(self) -> Report:
        """Returns the report that the prompt shows for `batch`: a line per column of numbers.

        `numbers` of the report has a row per column of numbers, with `column`, `level` (`response`, `token`, ...), `dtype`,
        `is_derived` (whether it is computed from other columns), and `mean`, `std` (ddof 1), `min`, `max` over the column's
        finite values. `about` has the counts of `responses`, `groups` and `tokens`, and the `step`.
        """
        return Report("summary", [], self)

    def __copy__(self) -> Batch:
        return self

    def __repr__(self) -> str:
        return f"Batch({self.responses} responses, columns {', '.join(self)})"


def whole(name: str, value: Any) -> int:
    """Checks a number of steps, batches or tokens, and returns it; raises TypeError or ValueError for any other value."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is {value!r}: an integer is needed") from None
    if number < 0:
        raise ValueError(f"`{name}` is {number}: an integer of at least 0 is needed")
    return number


MASKS = ("response_mask", "completion_mask", "action_mask", "loss_mask")  # The names that trainers give to the mask.


def _with_one_mask(columns: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns, with the mask under the name `mask`; raises TypeError for two masks or an `attention_mask`."""
    masks = {name: columns[name] for name in (*MASKS, "mask") if columns.get(name) is not None}
    if len(masks) > 1:
        raise TypeError(f"{' and '.join(f'`{name}`' for name in masks)} are the same argument: pass only one of them")
    if columns.get("attention_mask") is not None:
        raise TypeError(
            "a trainer's `attention_mask` covers prompts and responses: pass the responses' part, `mask=attention_mask[:, -T:]`"
        )
    others = {name: value for name, value in columns.items() if name not in MASKS}
    return {**others, "mask": next(iter(masks.values()), None)}


@dataclass
class Call:
    """The input of one call, and the kind of its output."""

    batch: _native.Batch
    f64: bool
    is_torch: bool
    dimensions: dict[str, int]
    """The number of dimensions of each column of numbers."""

    @classmethod
    def of(cls, batch: Any, columns: dict[str, Any], f64: Sequence[str] = (), needs_groups: bool = True) -> Call:
        """Makes a call from a user's batch, or from columns as `of_columns` takes them; a column that is None is missing."""
        if batch is None:
            if needs_groups and columns.get("groups") is None:
                told = "`groups` is missing: pass the prompt's id for each response, [B]; if no two responses share a prompt, pass `range(B)`"
                theirs = [f"; `{name}` is called `groups` here" for name in ("index", "uid", "group") if name in columns]
                raise TypeError("".join([told, *theirs]))
            return cls.of_columns(_with_one_mask(columns), f64)
        if not isinstance(batch, Batch):
            help = "columns are keyword arguments, as in `groups=[0, 0], reward=[1.0, 0.0]`"
            if isinstance(batch, str):
                help = f"`advlab.read({batch!r})` reads a file"
            elif hasattr(batch, "keys"):
                help = "pass its columns as keyword arguments, `**columns`; one of them is `groups`"
            raise TypeError(f"a batch must come from `advlab.read`, but this is of the type {type(batch).__name__}: {help}")
        if any(value is not None for name, value in columns.items() if name != "step"):
            raise TypeError("a batch has its columns already: pass either a batch or columns")
        # The output is f64, NumPy's default, because a file such as JSONL has no number types.
        return cls(batch, True, False, {})

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any], f64: Sequence[str] = ()) -> Call:
        """Makes a call from columns, among them `groups`, `mask` and `step`. The output is float64 if one of the columns named in
        `f64` is float64, and consists of torch tensors if any column is a torch tensor."""
        from . import _arrays

        given = {name: value for name, value in columns.items() if value is not None}
        step = given.pop("step", None)
        is_torch = any(map(_arrays.is_tensor, given.values()))
        groups = given.pop("groups", None)
        texts = {name: found for name, value in given.items() if (found := _arrays.texts(name, value)) is not None}
        numbers = {name: _arrays.column(name, value) for name, value in given.items() if name not in texts}
        rows = max([0, *(column.rows for column in numbers.values()), *(len(values) for values in texts.values())])
        masked = numbers.pop("mask", None)
        native = _native.Batch.of_columns(
            _arrays.groups(range(rows) if groups is None else groups),
            masked and masked.given,
            [(name, column.given) for name, column in numbers.items()],
            [(name, _arrays.labels(values)) for name, values in texts.items()],
            None if step is None else whole("step", step),
        )
        is_f64 = any(name in numbers and numbers[name].is_f64 for name in f64)
        return cls(native, is_f64, is_torch, {name: getattr(column.given, "ndim", 2) for name, column in numbers.items()})

    def back(self, values: Any) -> Any:
        """Returns the values, as torch tensors if the input had torch tensors."""
        if values is None or not self.is_torch:
            return values
        from_numpy = sys.modules["torch"].from_numpy
        return [from_numpy(row) for row in values] if isinstance(values, list) else from_numpy(values)
