from typing import Any

__version__: str

class RecipeError(ValueError):
    """What is wrong with a recipe, its parameters, or a batch; `str` shows the script's line with a caret."""

    message: str
    path: str | None
    line: int | None
    column: int | None
    help: str | None

def verify(solution: str, completion: str) -> str: ...
def answer(completion: str) -> str | None: ...

# What is the package's own: `_recipe.py` says what it takes and gives.
def __getattr__(name: str) -> Any: ...
