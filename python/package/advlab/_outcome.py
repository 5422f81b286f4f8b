"""What calls give: advantages, losses, events and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._native import RecipeError


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    metrics: dict[str, float]
    """The numbers that the recipe reported by `metric`."""
    prints: list[str]
    """The lines that the recipe printed."""
    notes: list[str]
    """Columns that were read otherwise than their names say, in words."""
    seconds: float
    """How long the recipe's hooks took."""
    is_native: bool
    """Whether kernels answered in place of a built-in's script, with the same bits."""
    version: str
    """The version of the recipe that computed it."""
    serial: int
    """The version's number in the order of publication, for a live recipe."""


@dataclass(frozen=True, kw_only=True)
class Advantage(_Outcome):
    """An advantage, with what came up on the way."""

    advantage: Any
    """[B], or [B, T] with 0 where the mask is 0, as the recipe gives it; rows of their own lengths where the input was
    ragged. An array or a tensor as the input was; float64 where the reward was, and float32 otherwise."""
    level: str
    """`response` or `token`: where the recipe gives its values."""
    reward: Any
    """The reward, where the recipe has a hook that replaced it."""
    weight: Any
    """[B]: how much each response counts in a loss, where the recipe has a hook for it, or the batch a column `weight`."""
    returns: Any
    """What a critic is to learn, [B] or [B, T] as the advantage, where the recipe has the hook `returns`."""
    loss: float | None
    """The loss, where the recipe has no other advantage than -M dloss/dlogp."""


@dataclass(frozen=True, kw_only=True)
class Loss(_Outcome):
    """A loss with its gradient, and what came up on the way."""

    loss: Any
    """A float; for torch a scalar tensor, whose `backward` follows the recipe's gradient where `logp` asks for one."""
    grad: Any
    """dloss/dlogp, [B, T] as `logp`, 0 where the mask is 0."""


@dataclass(frozen=True)
class LiveEvent:
    """Something that happened to a live recipe; `str` is its line."""

    kind: str
    """`published`, `rejected`, `missing`, `reverted`, `warned`, `polling_only`, `folder` (which cannot be written, or can again, or
    had rows of steps that the trainer does again), or `other`."""
    line: str
    """What happened, and what goes on being used."""
    version: str | None
    """The version that it is about."""
    error: RecipeError | None
    """Why a version was rejected, with the place in the script, or why the folder cannot be written."""
    at_step: bool
    """Whether the version had passed its checks, and failed at a step."""

    def __str__(self) -> str:
        return self.line


@dataclass(frozen=True)
class Finding:
    """One check of a recipe and how it came out."""

    check: str
    """The check in a few words."""
    result: str
    """`holds`, `fails`, or `note` where it need not hold."""
    detail: str
    """One line, or nothing."""
    error: RecipeError | None
    """The recipe's own error, where it had one."""
