"""The results of calls: advantages, losses, events, findings and errors."""

from dataclasses import dataclass
from typing import Any


class RecipeError(ValueError):
    """An error in a recipe, its parameters, or a batch.

    For an error in a script, `str(e)` shows the line with a caret. `path`, `line`, `column` and `help` belong to the first
    problem, and are None if this problem has no such value; `missing_column` is the name of the column that the batch lacks, if a
    missing column is the problem.
    """

    message: str | None = None
    path: str | None = None
    line: int | None = None
    column: int | None = None
    help: str | None = None
    missing_column: str | None = None

    def __init__(self, text: str, *parts: Any) -> None:
        super().__init__(text)
        for name, part in zip(("message", "path", "line", "column", "help", "missing_column"), parts):
            setattr(self, name, part)


RecipeError.__module__ = "advlab"

_COMMON = """
    metrics: the numbers that the recipe reported by `metric`.
    prints: the lines that the recipe printed.
    notes: messages about columns that were read in place of missing columns.
    seconds: the time that the recipe's hooks took.
    is_native: whether native kernels computed the result instead of a built-in's script, with the same bits.
    version: the version of the recipe that computed the result.
    serial: the version's number in the order of publication, for a live recipe.
    is_reloaded: whether this step used another version than the step before it.
    """


# Outcomes are compared and hashed by identity, because arrays have no single truth value.
@dataclass(frozen=True, kw_only=True, eq=False)
class _Outcome:
    metrics: dict[str, float]
    prints: list[str]
    notes: list[str]
    seconds: float
    is_native: bool
    version: str
    serial: int
    is_reloaded: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Advantage(_Outcome):
    __doc__ = f"""An advantage, with what the recipe reported.

    Attributes:

    advantage: [B], or [B, T] with 0 where the mask is 0, as the recipe gives it; rows of different lengths if the input was
        ragged. Tensors if a column was a tensor, else arrays; float64 if `reward` or `token_reward` was float64 or the batch
        comes from `advlab.read`, and float32 otherwise.
    level: `response` or `token`: the level at which the recipe gives its values.
    reward: the reward, if the recipe has a hook that replaced it.
    weight: [B], the weight of each response in a loss, if the recipe has a hook `weight` or the batch has a column `weight`.
    returns: the targets of a critic, [B] or [B, T] as the recipe gives them, if the recipe has the hook `returns`.
    loss: the loss, if the recipe has only a loss, so that its advantage is -M dloss/dlogp.{_COMMON}"""

    advantage: Any
    level: str
    reward: Any
    weight: Any
    returns: Any
    loss: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Loss(_Outcome):
    __doc__ = f"""A loss with its gradient, and what the recipe reported.

    Attributes:

    loss: a float; for torch a scalar tensor, whose `backward` propagates the recipe's gradient if `logp` requires a gradient.
    grad: dloss/dlogp, [B, T] as `logp`, 0 where the mask is 0.{_COMMON}"""

    loss: Any
    grad: Any


@dataclass(frozen=True)
class LiveEvent:
    """Something that happened to a live recipe; `str` returns `line`.

    Attributes:

    kind: `published`, `rejected`, `missing`, `reverted`, `warned`, `polling_only`, or `folder` (the folder cannot be written, or
        had rows of steps that the trainer repeats).
    line: a line about the event.
    version: the version that the event is about, if any.
    error: the error for which a version was rejected, with its place in the script, or the error of writing the folder.
    at_step: whether the version failed at a step, after it had passed its checks.
    """

    kind: str
    line: str
    version: str | None
    error: RecipeError | None
    at_step: bool

    def __str__(self) -> str:
        return self.line


@dataclass(frozen=True)
class Finding:
    """One check of a recipe and its result.

    Attributes:

    check: the check in a few words.
    result: `holds`, `fails`, or `note` if the property need not hold.
    detail: one line, or nothing.
    error: the error that the recipe raised in this check, if any.
    """

    check: str
    result: str
    detail: str
    error: RecipeError | None
