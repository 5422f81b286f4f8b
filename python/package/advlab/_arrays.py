"""Arrays of any kind as NumPy's, without a copy where their memory can be read in place."""

from __future__ import annotations

import operator
import sys
from typing import Any, NamedTuple

NUMBERS = {
    "advantage",
    "correct",
    "entropy",
    "length",
    "logp",
    "old_logp",
    "ref_logp",
    "reward",
    "token_reward",
    "value",
    "weight",
}
"""Columns that are never texts."""


class Given(NamedTuple):
    """A column or a mask as the native half takes it."""

    array: Any
    is_bf16: bool = False
    """Whether each two bytes are a bf16, for which NumPy has no type."""
    lengths: list[int] | None = None
    """The lengths of rows that lie one after another, where they are ragged."""


def is_tensor(value: Any) -> bool:
    """Whether a value is torch's. Where torch was not imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def given(name: str, value: Any) -> Given:
    """A column or a mask: [B], [B, T], or rows of their own lengths.

    Raises TypeError for what holds no numbers, and for a tensor that is not on the CPU.
    """
    if isinstance(value, (list, tuple)):
        return _of_rows(name, value)
    array, is_bf16 = _array(name, value)
    if array.dtype == object and array.ndim:
        return _of_rows(name, list(array))
    return Given(_readable(array), is_bf16)


def texts(name: str, value: Any) -> list[str] | None:
    """The texts of a column of texts, one a response; None for a column of numbers."""
    if name in NUMBERS:
        return None
    if getattr(getattr(value, "dtype", None), "kind", "") in ("O", "T", "U"):
        value = value.tolist()
    is_column = isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(one, str) for one in value)
    return list(value) if is_column else None


def groups(value: Any) -> Any:
    """Group ids: an array of whole numbers, or objects one after another."""
    import numpy as np

    if is_tensor(value) or isinstance(value, np.ndarray):
        value = _array("groups", value)[0]
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        if value.ndim == 2:
            # Token rows of the prompts: a group is an id for each different one.
            value = np.unique(value, axis=0, return_inverse=True)[1].reshape(-1)
        return _readable(value)
    if isinstance(value, np.ndarray) and value.ndim:
        return value.tolist()
    return value


def whole(name: str, value: Any) -> int:
    """A number of steps, batches or tokens; raises TypeError or ValueError for what is none."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is {value!r}: an integer is needed") from None
    if number < 0:
        raise ValueError(f"`{name}` is {number}: an integer of at least 0 is needed")
    return number


def _array(name: str, value: Any) -> tuple[Any, bool]:
    import numpy as np

    if is_tensor(value):
        torch = sys.modules["torch"]
        if value.device.type != "cpu":
            raise TypeError(f"`{name}` is a tensor on {value.device}, and advlab computes on the CPU: pass `{name}={name}.cpu()`")
        if value.is_nested or value.layout != torch.strided:
            raise TypeError(f"`{name}` is a nested or sparse tensor: pass a padded one [B, T] with a mask, or a list of rows")
        value = value.detach().resolve_conj().resolve_neg()
        if value.dtype == torch.bfloat16:
            return value.view(torch.int16).numpy(), True
        try:
            return value.numpy(), False
        except TypeError:
            raise TypeError(f"`{name}` holds {value.dtype}, which NumPy has not: pass `{name}.float()`") from None
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError(f"`{name}` is a masked array: leave these responses out, or fill them, `{name}.filled(...)`")
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        array = np.from_dlpack(value)
    else:
        array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16), True
    return array, False


def _readable(array: Any) -> Any:
    """The array itself where its numbers can be read in place; else a copy."""
    import numpy as np

    steps = array.strides
    fits = array.flags.aligned and array.dtype.isnative
    if fits and all(step >= 0 and step % array.itemsize == 0 for step in steps):
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def _of_rows(name: str, rows: Any) -> Given:
    import numpy as np

    if not any(_is_row(row) for row in rows):
        numbers = np.asarray(rows)
        if numbers.dtype.kind not in "biuf":
            is_text = all(isinstance(row, str) for row in rows)
            found = "strings, and is a column of numbers" if is_text else "neither only numbers nor only strings"
            raise TypeError(f"`{name}` holds {found} ({numbers.dtype}): {list(rows[:4])!r}")
        return Given(_readable(numbers))
    parts = [_array(name, row) for row in rows]
    arrays = [_widened(part, is_bf16) for part, is_bf16 in parts]
    if any(array.ndim != 1 for array in arrays):
        raise TypeError(f"`{name}` is a list of arrays that are not all rows of one dimension")
    lengths = [len(array) for array in arrays]
    flat = np.concatenate([array for array in arrays if len(array)] or [np.zeros(0)])
    if flat.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` holds {flat.dtype}, not numbers")
    if len(set(lengths)) == 1:
        return Given(flat.reshape(len(lengths), lengths[0]))
    return Given(flat, False, lengths)


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _widened(array: Any, is_bf16: bool) -> Any:
    import numpy as np

    if is_bf16:
        return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array
