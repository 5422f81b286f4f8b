"""The native half of the package."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

__version__: str

# An array [B]; an array [B, T], in which two bytes without a type are a bf16; or concatenated rows with their lengths.
_Given: TypeAlias = npt.NDArray[Any] | tuple[npt.NDArray[Any], list[int]]
# A column of labels: the index of each response's value, and the list of distinct values.
_Labels: TypeAlias = tuple[list[int], list[Any]]

class Batch:
    def __new__(
        cls,
        path: str | None,
        map: list[tuple[str, str]],
        f64: bool | None,
        step: int | None,
        tokenizer: str | None,
        unscored: str,
    ) -> Self: ...
    @staticmethod
    def of_columns(
        groups: _Labels,
        mask: _Given | None,
        columns: Sequence[tuple[str, _Given]],
        texts: Sequence[tuple[str, _Labels]],
        step: int | None,
    ) -> Batch: ...
    @property
    def responses(self) -> int:
        """The number of responses, B."""
    @property
    def step(self) -> int:
        """The training step that the batch comes from; 0 if the step is unknown."""
    @property
    def notes(self) -> list[str]:
        """Notes on how the file was interpreted."""
    @property
    def groups(self) -> list[int | str]:
        """The id of each response's group."""
    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of each response's tokens that count: int64, [B]."""
    def _columns(self) -> list[str]: ...
    def _column(self, name: str) -> Any: ...

class _Follow(TypedDict):
    kept_tokens: int
    folder: str | None
    keep_batches: int
    refuses: dict[str, str]
    lacks: dict[str, str]
    gives: list[str]
    of_returns: list[str]

class Recipe:
    def __new__(
        cls,
        name: str,
        settings: list[tuple[str, str]],
        sources: dict[str, str] | None = None,
        follow: _Follow | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """A built-in's name, the script's path, or `source` for a script that was given as text."""
    @property
    def version(self) -> str:
        """The SHA-256, in hexadecimal digits, of the exact content of the script and its imports."""
    @property
    def serial(self) -> int:
        """The version's number in the order of publication, counted from 0."""
    @property
    def text(self) -> str:
        """The script's source, without its imports."""
    @property
    def hooks(self) -> list[str]:
        """The functions that the script defines for advlab to call."""
    @property
    def params(self) -> dict[str, Any]:
        """The parameters with their values."""
    def _in_use(self) -> str: ...
    def _reads(self, columns: list[str]) -> bool: ...
    def _columns(self) -> tuple[list[str], bool]: ...
    def _takes_turns(self) -> bool: ...
    def _is_repeated(self) -> bool: ...
    def _compute_advantage(
        self, batch: Batch, f64: bool, padded: bool, turns: bool | None, one_per: tuple[str, str] | None
    ) -> dict[str, Any]: ...
    def _compute_loss(self, batch: Batch, f64: bool) -> dict[str, Any]: ...
    def _plan(self, batch: Batch | None, kind: str, expand: bool) -> str: ...
    def _terms(self, batch: Batch) -> list[tuple[str, str, float, float]]: ...
    def _left(self) -> dict[str, Any]: ...
    def _set_state(self, json: str) -> None: ...
    def _resume(self, name: str, sources: dict[str, str], json: str, serial: int, next_step: int) -> None: ...
    def _events(self) -> list[tuple[Any, ...]]: ...
    def _refresh(self, seconds: float) -> bool: ...
    def _close(self) -> None: ...

Kind: TypeAlias = Literal["check", "compare", "curve", "diff", "mass", "objective", "run", "summary", "surface"]

class Report:
    @property
    def text(self) -> str:
        """The text below the figure, with a terminal's colours."""
    @property
    def svg(self) -> str | None: ...
    def whole(self) -> str:
        """Returns the figure as text, and the text below it."""
    def numbers(self) -> tuple[str, str]:
        """Returns the rows of the table and all other numbers, as JSON."""
    def save(self, path: str, plain: str) -> None: ...

def report(
    kind: Kind,
    recipes: list[Recipe],
    batch: Batch | None = None,
    n: int | None = None,
    noise: float | None = None,
    folders: list[str] = ...,
) -> Report: ...
def row_sums(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]: ...
def command_line(words: list[str]) -> int: ...
def recipes() -> dict[str, str]:
    """Returns the built-in recipes by name, each with a line that describes it."""

def doc(name: str | None = None) -> str:
    """Explains a recipe or a function with an example; other words are searched for. Without a name, lists all names.

    Raises `RecipeError` if nothing has that name and the search finds nothing.
    """

def check_recipe(recipe: Recipe, batch: Batch | None) -> list[tuple[Any, ...]]: ...
def verify(solution: str, completion: str) -> Literal["right", "wrong", "no answer", "not decided"]:
    """Compares the answer in a completion with the answer in a reference."""

def answer(completion: str) -> str | None:
    """Returns the answer in a completion; None if it has no answer."""
