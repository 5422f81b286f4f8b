"""The reports of the command line and its prompt, for notebooks: text, figures and numbers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import _native
from ._batch import Batch, Call, whole

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas

INKS = {"1": "font-weight:bold", "2": "opacity:.65"} | {
    # Readable on white and on black.
    code: f"color:{ink}"
    for code, ink in zip(("31", "32", "33", "34", "35", "36"), "#d9413d #2e8b57 #b8860b #3b82d6 #b05fc0 #2a9aa5".split())
}
CODE = r"\x1b\[([\d;]*)m"  # The code with which a terminal changes the colour or the weight of its text.
FONT = "var(--jp-code-font-family,ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace)"
PRE = (
    f"margin:.4em 0;padding:0;white-space:pre;overflow-x:auto;line-height:1.25;text-align:left;font-family:{FONT};font-size:12px"
)
# The figures are drawn for white, so that a dark page needs a white background behind them.
FIGURE = "max-width:100%;height:auto;background:#fff;border-radius:4px;margin:.4em 0"


class Report:
    """What a command shows: a text, a figure if it has one, and its numbers.

    `str` is what the command prints, without colours; a notebook shows the figure as SVG and the rest in colours.
    """

    def __init__(
        self,
        kind: _native.Kind,
        recipes: list[_native.Recipe],
        batch: _native.Batch | None = None,
        n: int | None = None,
        noise: float | None = None,
        folders: list[str] | None = None,
    ) -> None:
        self._native = _native.report(kind, recipes, batch, n, noise, folders or [])

    @cached_property
    def numbers(self) -> dict[str, npt.NDArray[Any]]:
        """The table: for each column a NumPy array with a value per row, NaN for one that is missing."""
        import numpy as np

        rows = json.loads(self._native.numbers()[0])
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return {name: np.array([np.nan if one is None else one for one in values]) for name, values in columns.items()}

    @cached_property
    def about(self) -> dict[str, Any]:
        """All numbers that are no column of the table, by their names."""
        return dict(json.loads(self._native.numbers()[1]))

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame. Raises ImportError if pandas is not installed; `numbers` has the same columns."""
        try:
            import pandas
        except ImportError:
            message = "a DataFrame needs pandas, which is not here: `pip install pandas`; `report.numbers` has the same columns as arrays"
            raise ImportError(message) from None
        return pandas.DataFrame(self.numbers)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes what the command writes; the ending of the name says in which format.

        `path` ends in `.svg`, `.csv` (the points of the figure) or `.json` for a report with a figure; in `.csv` (the table)
        for one without; in `.txt` for any. A comparison is written as `.html`, `.svg`, `.csv` (a line per run), or as a
        folder with all of them.

        Raises `RecipeError` if the report is not written as such a file, or the file cannot be written.
        """
        self._native.save(os.fspath(path), str(self))

    def __str__(self) -> str:
        return re.sub(CODE, "", self._native.whole())

    __repr__ = __str__

    def _repr_svg_(self) -> str | None:
        return self._native.svg

    def _repr_html_(self) -> str:
        figure = (self._native.svg or "").replace("<svg ", f'<svg style="{FIGURE}" ', 1)
        text = self._native.text.strip("\n")
        return f"<div>{figure}{html_of(text) if text else ''}</div>"


def html_of(text: str) -> str:
    """A terminal's text with its colours as HTML."""
    import html

    def span(match: re.Match[str]) -> str:
        styles = [INKS[code] for code in match[1].split(";") if code in INKS]
        return f'<span style="{";".join(styles)}">' if styles else "</span>"

    return f'<pre style="{PRE}">{re.sub(CODE, span, html.escape(text))}</pre>'


class Lab(_native.Recipe):
    """The reports on a recipe. All begin with the state that its `init` makes, and do not change the state of the recipe."""

    def check(self, batch: Batch | None = None, **columns: Any) -> Report:
        """What `advlab check` shows: what must hold of the recipe, tried on degenerate batches, and what is worth knowing.

        The batches that are tried have the columns and the group sizes of `batch`, or of the columns given as keywords; without
        either, usual columns and sizes.

        `numbers` of the report: `check`, `result` (`holds`, `fails` or `note`), `detail`, `error`; `about`: how many of each
        result.
        """
        return Report("check", [self], _batch(batch, columns))

    def run(self, batch: Batch | None = None, **columns: Any) -> Report:
        """What `:run` shows: the recipe's first step on a batch, with its signal, its loss and its metrics.

        `batch` is what `advlab.read` gives; or pass columns as keywords, as `advantage` takes them.

        `numbers` of the report, a row per response: `response`, `group`, `length` in tokens, `correct` (0 or 1), `weight`, and
        `advantage`, the mean over its tokens; `about`: `summary`, `loss`, `metrics`, `notes`.
        """
        return Report("run", [self], _batch(batch, columns, "run"))

    def curve(self, *others: Any, n: int | None = None, batch: Batch | None = None) -> Report:
        """What `:curve` shows: the advantage of right and of wrong responses by the number of right ones in the group.

        `others` are recipes, or their names, to draw in the same figure; `n` is the number of responses of a group: 16, or those
        of the batch's largest group, unless given. If the groups of a batch influence each other, the shares of groups of each
        accuracy are those of `batch`, or of the prompt's built-in batch.

        `numbers` of the report, a row per number of right responses, from 0 to n: `recipe`, `right`, `a_right` and `a_wrong`
        (mean advantages, NaN where there is no such response), `total` (the sum of |A| over the group).
        """
        return Report("curve", [self, *map(_recipe, others)], _batch(batch, {}), _size(n))

    def objective(self, *others: Any, n: int | None = None, batch: Batch | None = None, noise: bool | float = False) -> Report:
        """What `advlab objective` shows: F(p), what the recipe optimises, and F'(p), the weight of prompts by their chance p of
        a right response.

        `others` and `n` are as for `curve`; F is estimated on the groups of `batch` if the advantage depends on more than how
        many responses are right. `noise` says whether to show, too, how noisy the updates are; a number between 0 and 1 is the
        correlation of a response's score with being right, in place of 0.1.

        `numbers` of the report, a row per percent of p: `recipe`, `p`, `slope` (F', not scaled), `slope_error` (its standard
        error, NaN if it is exact), `value` (F); with `noise` also, for a group's update, the `mean`, the `variance`, their
        `ratio` (mean by standard deviation), `ratio_to_best`, the `groups` for a ratio of 1, and the share with `no_signal`.
        `about["designs"]`: for each recipe its `nearest` known objectives with distances.
        """
        correlation = 0.1 if noise is True else float(noise) or None
        if correlation is not None and not 0 < correlation < 1:
            raise ValueError(f"`noise` is {noise}: it takes True, or a correlation between 0 and 1")
        return Report("objective", [self, *map(_recipe, others)], _batch(batch, {}), _size(n), correlation)

    def mass(self, *given: Any, batch: Batch | None = None, **columns: Any) -> Report:
        """What `advlab mass` shows: who gets the gradient, as shares of the sum of |A| and of |dloss/dlogp|.

        `given` are the batch, if it is no keyword, and recipes, or their names, to show beside this one: `mass(batch, "maxrl")`.
        Columns may be keywords, as `advantage` takes them.

        `numbers` of the report, a row per part: `by` (`accuracy` of the group, `response`, `length`, `position`), `part`, and
        shares from 0 to 1: `tokens`, `advantage`, `gradient` (NaN without log-probs); `about`: `loss`, `summary`. For several
        recipes, the rows also have `recipe`, and `about` has `designs`, each with `loss` and `summary`, and `pairs`, each with
        the `correlation` of the advantages and the shares of tokens whose two advantages have the `opposite_sign`, and of those
        where `one_is_zero`.
        """
        recipes = (str, os.PathLike, _native.Recipe)
        others = [_recipe(one) for one in given if isinstance(one, recipes)]
        batches = [one for one in (*given, batch) if one is not None and not isinstance(one, recipes)]
        if len(batches) > 1:
            raise TypeError("`mass` takes one batch")
        return Report("mass", [self, *others], _batch(batches[0] if batches else None, columns, "mass"))

    def surface(self) -> Report:
        """What `:surface` shows: -dloss/dlogp of one token over its ratio, exp(logp - old_logp), and its advantage.

        Raises `RecipeError` if the recipe has no loss.
        """
        return Report("surface", [self])


def diff(a: Any, b: Any, batch: Batch | None = None, **columns: Any) -> Report:
    """What `:diff` shows: where and how much two recipes, or those of two names, differ on a batch.

    `batch` is what `advlab.read` gives; or pass columns as keywords, as `recipe.advantage` takes them.

    `numbers` of the report, a row per accuracy of the group: `accuracy`, `groups`, and of either recipe the mean advantage of
    right and of wrong responses and the mean sum of |A| of a group: `right_a`, `right_b`, `wrong_a`, ..., `total_b`. `about`:
    the shares of values that `differ` and that have the `same_sign`, the `mean` difference, the `correlation`, and as `most`
    the two values that differ most.
    """
    return Report("diff", [_recipe(a), _recipe(b)], _batch(batch, columns, "diff"))


def compare(folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Report:
    """What `advlab compare RUN...` shows: designs over their seeds, with intervals and learning curves.

    `folders` are folders of runs, or contain such folders. Runs that differ only in their seed are one design.

    `numbers` of the report, a row per run: `design`, `seed`, `folder`, its numbers (`pass@1`, `entropy`, `length` in tokens,
    ...), and `seconds`; `about`: `claims`, statements about each design compared with the first.

    Raises `RecipeError` if a folder is no run and contains no run.
    """
    given = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    if not given:
        raise ValueError(
            "no folder was given: `advlab.compare` takes those of runs, as `advlab train` and `advlab.watch` write them"
        )
    return Report("compare", [], folders=[os.fspath(folder) for folder in given])


def _recipe(given: Any) -> _native.Recipe:
    if isinstance(given, _native.Recipe):
        return given
    if isinstance(given, (str, os.PathLike)):
        from ._recipe import load

        return load(given)
    keyword = "batch" if isinstance(given, Batch) else "n" if isinstance(given, int) else None
    help = f"`{keyword}=` is a keyword here" if keyword else "`advlab.load` gives one"
    raise TypeError(f"a recipe or its name is needed, not {type(given).__name__}: {help}")


def _size(n: Any) -> int | None:
    if n is None:
        return None
    if not 1 <= whole("n", n) <= 1024:
        raise ValueError(f"`n` is {n}: a group has 1 to 1024 responses")
    return int(n)


def _batch(batch: Batch | None, columns: dict[str, Any], needed_by: str | None = None) -> _native.Batch | None:
    """The batch of a call, or a batch made of its columns; None if there is neither, or an error if `needed_by` needs a
    batch."""
    if batch is not None or columns:
        return Call.of(batch, columns).batch
    if needed_by:
        help = "`advlab.read(path)` gives one, `advlab.read()` a small example; or pass columns, as to `recipe.advantage`"
        raise TypeError(f"`{needed_by}` needs a batch: {help}")
    return None
