"""`%%advantage`: a cell of a notebook that is a recipe."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from . import _native
from ._batch import Batch
from ._outcome import RecipeError
from ._recipe import Recipe, read

USAGE = "%%advantage [NAME] [--batch VARIABLE] [--set PARAMETER=VALUE ...]"


def register(shell: Any) -> None:
    """Adds `%%advantage` to an IPython shell."""
    from IPython.core.error import UsageError
    from IPython.display import display

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{message}\nusage: {USAGE}")

    parser = Parser(prog="%%advantage", add_help=False)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--batch", metavar="VARIABLE")
    parser.add_argument("--set", metavar="PARAMETER=VALUE", action="append", default=[])

    def advantage(line: str, cell: str) -> None:
        try:
            options = parser.parse_args(shlex.split(line))
        except ValueError as error:
            parser.error(str(error))
        name = options.name
        if name is not None and not name.isidentifier():
            parser.error(f"`{name}` is not the name of a variable")
        settings = [tuple(one.split("=", 1)) for one in options.set]
        if unset := [one for one in settings if len(one) != 2]:
            parser.error(f"`{unset[0][0]}` is not of the form PARAMETER=VALUE, such as k=8")
        batch = shell.user_ns.get(options.batch) if options.batch else read()
        if not isinstance(batch, Batch):
            found = f"of the type {type(batch).__name__}" if options.batch in shell.user_ns else "not defined"
            parser.error(f"the variable `{options.batch}` is {found}: a batch must come from `advlab.read`")
        try:
            # Without "(cell)", a cell with the name of a built-in would be taken for the built-in.
            title = "cell" if name is None else f"{name} (cell)" if name in _native.recipes() else name
            recipe = Recipe(title, settings, {title: cell})
            run, check = recipe.run(batch), recipe.check(batch)
            if name is not None:
                # After an error, the variable keeps the last recipe that ran.
                shell.user_ns[name] = recipe
            if options.batch is None:
                print("the recipe runs on a small built-in batch; `--batch VARIABLE` uses yours")
            display(run)
            if check.about["fails"] or check.about["warnings"]:
                display(check)
            else:
                more = f"`{name}.check()` lists them" if name else f"to keep the recipe, name it: {USAGE}"
                print(f"checks: {check.about['holds']} hold, {check.about['notes']} noted; {more}")
        except RecipeError as error:
            # The message shows the line of the cell with a caret; Python's own traceback would say nothing about the cell.
            error._render_traceback_ = str(error).splitlines  # type: ignore[attr-defined]
            raise

    advantage.__doc__ = f"""A cell that is a recipe: {USAGE}

    The recipe is compiled and checked, and its first step on the batch, or on a small built-in batch, is shown. If it runs, the
    variable NAME has the recipe.
    """
    shell.register_magic_function(advantage, magic_kind="cell", magic_name="advantage")
