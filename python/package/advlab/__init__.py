"""The advantage lab in Python: the advantage of RLVR training as short scripts, with hot reload.

    >>> import advlab
    >>> recipe = advlab.load("grpo")
    >>> out = recipe.advantage(groups=["a", "a"], mask=[[1, 1], [1, 0]], reward=[1.0, 0.0])
    >>> out.advantage.round(3).tolist()
    [0.707, -0.707]

`load` gives a recipe, `watch` a recipe that follows its file, and `read` the rollouts of a file. Columns are lists, NumPy arrays
or torch tensors on the CPU; results are tensors if a column is a tensor, else arrays. In a notebook, `recipe.curve()`,
`recipe.mass(batch)` and similar methods show what the command line shows, and after `%load_ext advlab` a cell that begins with
`%%advantage` is a recipe.
"""

from importlib import import_module as _import_module

# This stands for `typing.TYPE_CHECKING`, without the time that importing typing takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._batch import Batch
    from ._lab import compare, diff
    from ._native import __version__, answer, doc, recipes, verify
    from ._outcome import Advantage, Finding, LiveEvent, Loss, RecipeError
    from ._recipe import LiveRecipe, Recipe, check, load, read, watch
    from ._report import Report
else:

    def __getattr__(name: str) -> object:
        """Imports a module when one of its names is first used, because the command line starts in half the time without these
        imports."""
        if name in __all__:
            for part in ("_recipe", "_lab", "_native"):
                module = _import_module(f"{__name__}.{part}")
                if hasattr(module, name):
                    return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> "list[str]":
        return sorted([*__all__, "load_ipython_extension"])


__all__ = [
    "Advantage", "Batch", "Finding", "LiveEvent", "LiveRecipe", "Loss", "Recipe", "RecipeError", "Report", "__version__",
    "answer", "check", "compare", "diff", "doc", "load", "read", "recipes", "verify", "watch",
]  # fmt: skip


def load_ipython_extension(shell: "Any") -> None:
    """Adds `%%advantage`; `%load_ext advlab` calls this function."""
    from ._magic import register

    register(shell)
