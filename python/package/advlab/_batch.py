"""Batches: those of files, and those that a call's columns make."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _arrays, _native


class Batch(Mapping[str, Any]):
    """The rollouts of a file: columns by their names, as read-only NumPy arrays over the batch's own memory.

    A column is [B], [B, T], or has one number for each token that counts (of JSONL); one of texts is a list. `len` is the number
    of columns, `batch.responses` that of responses.
    """

    def __init__(self, native: _native.Batch) -> None:
        self._native = native
        self._names = native.columns()

    def __getitem__(self, name: str) -> Any:
        return self._native.column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def responses(self) -> int:
        """B."""
        return len(self._native)

    @property
    def groups(self) -> list[int | str]:
        """The id of each response's group."""
        return self._native.groups()

    @property
    def lengths(self) -> Any:
        """How many tokens of each response count: int64, [B]."""
        return self._native.lengths()

    @property
    def step(self) -> int:
        """The training step that the batch comes from; 0 if nothing says it."""
        return self._native.step

    @property
    def notes(self) -> list[str]:
        """What the reader decided, in words."""
        return self._native.notes

    def __repr__(self) -> str:
        return f"Batch({self.responses} responses, columns {', '.join(self._names)})"


MASKS = ("response_mask", "completion_mask", "action_mask", "loss_mask")
"""Names of the mask in trainers."""


def mask_of(mask: Any, columns: dict[str, Any]) -> Any:
    """The mask, taken out of a call's columns if it has a trainer's name; raises TypeError for two of them."""
    given = {name: value for name in MASKS if (value := columns.pop(name, None)) is not None}
    if mask is not None:
        given["mask"] = mask
    if len(given) > 1:
        raise TypeError(f"{' and '.join(f'`{name}`' for name in given)} are the same argument: pass one of them")
    if columns.get("attention_mask") is not None:
        raise TypeError(
            "`attention_mask` is of prompts and responses in trainers: pass the responses' part, `mask=attention_mask[:, -T:]`"
        )
    return next(iter(given.values()), None)


@dataclass
class Call:
    """The input of one call, and the kind of its output."""

    batch: _native.Batch
    f64: bool
    is_torch: bool
    levels: dict[str, int] | None = None
    """The dimensions of each column of numbers, if nobody said which responses belong together."""

    @classmethod
    def of(cls, batch: Batch | None, groups: Any, mask: Any, step: Any, columns: Mapping[str, Any], f64: Sequence[str]) -> Call:
        """The output is float64 if one of the columns `f64` is, and torch's if any column is."""
        if batch is not None:
            if not isinstance(batch, Batch):
                raise TypeError(f"a batch is what `advlab.read` gives, not {type(batch).__name__}: columns are keywords")
            if groups is not None or mask is not None or columns:
                raise TypeError("a batch has its columns already: pass either a batch or columns")
            # JSONL has no types: its numbers are f64 as NumPy's are.
            return cls(batch._native, True, False)
        columns = {name: value for name, value in columns.items() if value is not None}
        texts = {name: found for name, value in columns.items() if (found := _arrays.texts(name, value)) is not None}
        numbers = {name: _arrays.column(name, value) for name, value in columns.items() if name not in texts}
        native = _native.Batch(
            None if groups is None else _arrays.groups(groups),
            None if mask is None else _arrays.column("mask", mask).given,
            [(name, column.given) for name, column in numbers.items()],
            [(name, _arrays.labels(values)) for name, values in texts.items()],
            None if step is None else _arrays.whole("step", step),
        )
        is_f64 = any(name in numbers and numbers[name].is_f64 for name in f64)
        is_torch = any(_arrays.is_tensor(value) for value in (groups, mask, *columns.values()))
        levels = {name: column.ndim for name, column in numbers.items()} if groups is None else None
        return cls(native, is_f64, is_torch, levels)

    def back(self, values: Any) -> Any:
        """Values of the kind that the input was."""
        if values is None or not self.is_torch:
            return values
        from_numpy = sys.modules["torch"].from_numpy
        return [from_numpy(row) for row in values] if isinstance(values, list) else from_numpy(values)
