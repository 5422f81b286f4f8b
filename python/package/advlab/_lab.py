"""Functions for the reports on recipes, batches and runs that the command line and its prompt show."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import _native
from ._batch import Batch, Call, whole
from ._report import Report


class Lab(_native.Recipe):
    """The reports on a recipe. All reports begin with the state that `init` makes, and do not change the recipe's state."""

    def check(self, batch: Batch | None = None, **columns: Any) -> Report:
        """Returns the report of `advlab check`: properties that must hold, tested on ordinary and degenerate batches, and notes.

        These batches are made from the first groups of `batch`, or of the columns given as keywords. If neither is given, they
        have the usual columns and sizes.

        `numbers` of the report has the columns `check`, `result` (`holds`, `fails` or `note`), `detail` and `error`; `about` has,
        among other entries, the number of checks with each result.
        """
        return Report("check", [self], _batch(batch, columns))

    def run(self, batch: Batch | None = None, **columns: Any) -> Report:
        """Returns the report of `:run`: the recipe's first step on a batch, with its signal, its loss and its metrics.

        `batch` is a result of `advlab.read`; columns may be passed as keywords instead, as `advantage` takes them.

        `numbers` of the report has a row per response, with `response`, `group`, `length` in tokens, `correct` (0 or 1),
        `weight`, and `advantage`, the mean over the response's tokens; `about` has `summary`, `loss`, `metrics` and `notes`.
        """
        return Report("run", [self], _batch(batch, columns, "run"))

    def curve(self, *others: Any, n: int | None = None, batch: Batch | None = None) -> Report:
        """Returns the report of `:curve`: the advantage of right and of wrong responses by the group's number of right responses.

        `others` are recipes, or their names, to draw in the same figure; `n` is the number of responses of a group; by default,
        it is 16 or, with a batch, the size of the batch's largest group. If groups of a batch influence each other, their
        accuracies are distributed as in `batch` or, by default, in the prompt's built-in batch.

        `numbers` of the report has a row per number of right responses, from 0 to n, with `recipe`, `right`, `a_right` and
        `a_wrong` (mean advantages, NaN if there is no such response), and `total` (the sum of |A| over the group).
        """
        return Report("curve", [self, *map(_recipe, others)], _batch(batch, {}), _size(n))

    def objective(self, *others: Any, n: int | None = None, batch: Batch | None = None, noise: bool | float = False) -> Report:
        """Returns the report of `advlab objective`: F(p), the objective that the recipe optimises, and F'(p), the weight of
        prompts by their chance p of a right response.

        `others` and `n` are as for `curve`; F is estimated on the groups of `batch` if the advantage depends on more than the
        number of right responses. `noise=True` also shows how noisy the updates are; a number between 0 and 1 sets the
        correlation of a response's score with its being right, which is 0.1 by default.

        `numbers` of the report has a row per percent of p, with `recipe`, `p`, `slope` (F', not scaled), `slope_error` (the
        standard error of the slope, NaN if the slope is exact), `value` (F); with `noise` also, for a group's update, the `mean`,
        the `variance`, the `ratio` (mean / standard deviation), `ratio_to_best`, the number of `groups` for a ratio of 1, and the
        share with `no_signal`. `about["designs"]` has, for each recipe, the `nearest` known objectives with their distances.
        """
        correlation = 0.1 if noise is True else float(noise) or None
        if correlation is not None and not 0 < correlation < 1:
            raise ValueError(f"`noise` is {noise}: it must be True, False, or a correlation above 0 and below 1")
        return Report("objective", [self, *map(_recipe, others)], _batch(batch, {}), _size(n), correlation)

    def mass(self, *given: Any, batch: Batch | None = None, **columns: Any) -> Report:
        """Returns the report of `advlab mass`: how the gradient is divided among the responses, as shares of the sums of |A| and
        |dloss/dlogp|.

        `given` are the batch, if it is not passed as a keyword, and recipes, or their names, to show beside this one:
        `mass(batch, "maxrl")`. Columns may be passed as keywords, as `advantage` takes them.

        `numbers` of the report has a row per part, with `by` (`accuracy` of the group, `response`, `length`, `position`, or
        `trajectory`, if there are any), `part`, and shares from 0 to 1: `tokens`, `advantage`, `gradient` (NaN without
        log-probs); `about` has `loss` and `summary`. For several recipes, the rows also have `recipe`, and `about` has
        `designs`, each with `loss` and `summary`, and `pairs`, each with the `correlation` of the advantages, the share of
        tokens whose two advantages have the `opposite_sign`, and the share of tokens for which `one_is_zero`.
        """
        recipes = (str, os.PathLike, _native.Recipe)
        others = [_recipe(one) for one in given if isinstance(one, recipes)]
        batches = [one for one in (*given, batch) if one is not None and not isinstance(one, recipes)]
        if len(batches) > 1:
            raise TypeError("`mass` takes only one batch")
        return Report("mass", [self, *others], _batch(batches[0] if batches else None, columns, "mass"))

    def surface(self) -> Report:
        """Returns the report of `:surface`: -dloss/dlogp of one token over its ratio, exp(logp - old_logp), and its advantage.

        Raises `RecipeError` if the recipe has no loss.
        """
        return Report("surface", [self])


def diff(a: Any, b: Any, batch: Batch | None = None, **columns: Any) -> Report:
    """Returns the report of `:diff`: where and how much two recipes, given directly or by name, differ on a batch.

    `batch` is a result of `advlab.read`; columns may be passed as keywords instead, as `recipe.advantage` takes them.

    `numbers` of the report has a row per accuracy (or range of accuracies) of the group, with `accuracy`, `groups`, and, for each
    of the two recipes, the mean advantage of right and of wrong responses and the mean sum of |A| of a group: `right_a`,
    `right_b`, `wrong_a`, ..., `total_b`. `about` has the shares of values that `differ` and that have the `same_sign`, the `mean`
    difference and, if any values differ, the `correlation`, and, as `most`, the two values with the largest difference.
    """
    return Report("diff", [_recipe(a), _recipe(b)], _batch(batch, columns, "diff"))


def compare(folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Report:
    """Returns the report of `advlab compare RUN...`: designs over their seeds, with intervals and learning curves.

    `folders` are folders of runs, or contain such folders. Runs that differ only in seed, steps and folder are one design.

    `numbers` of the report has a row per run, with `design`, `seed`, `folder`, its numbers (`pass@1`, `entropy`, `length` in
    tokens, ...), and `seconds`; `about` has `claims`, statements that compare each design with the first design.

    Raises `RecipeError` if a folder is not a run and contains no run.
    """
    given = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    if not given:
        raise ValueError(
            "no folder was given: `advlab.compare` takes folders of runs, as `advlab train` and `advlab.watch` write them"
        )
    return Report("compare", [], folders=[os.fspath(folder) for folder in given])


def _recipe(given: Any) -> _native.Recipe:
    if isinstance(given, _native.Recipe):
        return given
    if isinstance(given, (str, os.PathLike)):
        return _native.Recipe(os.fspath(given), [])
    keyword = "batch" if isinstance(given, Batch) else "n" if isinstance(given, int) else None
    help = f"pass this argument by keyword, `{keyword}=...`" if keyword else "`advlab.load` returns a recipe"
    raise TypeError(f"a recipe or its name is needed, not {type(given).__name__}: {help}")


def _size(n: Any) -> int | None:
    if n is None:
        return None
    if not 1 <= whole("n", n) <= 1024:
        raise ValueError(f"`n` is {n}: a group has 1 to 1024 responses")
    return int(n)


def _batch(batch: Batch | None, columns: dict[str, Any], needed_by: str | None = None) -> _native.Batch | None:
    """Returns the batch of a call, or a batch made of the call's columns. If there is neither, returns None, or raises an error
    if `needed_by` needs a batch."""
    if batch is not None or columns:
        return Call.of(batch, columns).batch
    if needed_by:
        help = "`advlab.read(path)` returns one, and `advlab.read()` a small example; or pass columns, as `recipe.advantage` takes them"
        raise TypeError(f"`{needed_by}` needs a batch: {help}")
    return None
