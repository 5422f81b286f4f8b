"""What the tests share.

`python -m pytest python/tests` in an environment with the package (`pip install ./python pytest`). Tests of what is not installed
skip themselves: those of tensors need `pip install torch`, those in `clients` also `trl==1.16.0` or `verl==0.9.1`, those of notebooks
`nbclient ipykernel pandas`. Those in `whole` run trainers from end to end, if the variable ADVLAB_WHOLE_RUNS is set.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Trainers fetch nothing here.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def script(tmp_path):
    """Writes a script, and gives its path."""

    def write(text, name="mine.rhai"):
        path = tmp_path / name
        # Beside and renamed, as editors save.
        beside = tmp_path / f".{name}.{os.getpid()}"
        beside.write_text(text)
        beside.rename(path)
        return path

    return write


@pytest.fixture(autouse=True)
def fresh():
    """After each test, what the adapters keep for a process is closed and forgotten."""
    yield
    trainers, loss = (sys.modules.get(f"advlab.{name}") for name in ("_trainers", "verl.loss"))
    for live in trainers._live.values() if trainers else ():
        live.close()
    for kept in (trainers and [trainers._live, trainers._warned, trainers._left_out], loss and [loss._losses, loss._adds_up]):
        [one.clear() for one in kept or ()]


@pytest.fixture(autouse=True)
def promised(monkeypatch):
    """No adapter passes a column of which it says that its trainer never gives it."""
    from advlab._trainers import Trainer

    step = Trainer.advantage

    def advantage(self, recipe, columns, *args, **more):
        there, refused = {name for name, value in columns.items() if value is not None}, self.refused
        if "advantage" not in there:  # A loss takes any columns.
            assert not there & refused["_lacks"].keys()
            others = {name for name in there - {"groups", "mask", "step"} if not name.startswith("reward_")}
            assert not self.gives or others <= {*refused["_gives"]}
        return step(self, recipe, columns, *args, **more)

    monkeypatch.setattr(Trainer, "advantage", advantage)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine takes the time that it takes: a limit of minutes only ends what hangs."""
    import advlab

    monkeypatch.setattr(advlab.LiveRecipe.refresh, "__defaults__", (300.0,))


@pytest.fixture
def recipe(script, monkeypatch):
    """Names the recipe of the environment: a built-in, or a script of this text."""
    import advlab

    count = iter(range(99))

    def use(text, **params):
        # Another name each time: a live recipe of the same path is the same one.
        is_builtin = text in advlab.recipes()
        monkeypatch.setenv("ADVLAB_RECIPE", text if is_builtin else str(script(text, f"recipe{next(count)}.rhai")))
        monkeypatch.setenv("ADVLAB_PARAMS", json.dumps(params))

    monkeypatch.delenv("ADVLAB_RECIPE", raising=False)
    return use


@pytest.fixture
def until():
    """Waits until something holds."""

    def wait(holds, seconds=300.0):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not come to that"
            time.sleep(0.02)

    return wait


@pytest.fixture
def theirs(monkeypatch):
    """Gives a module of a trainer's sources; what is not installed of its imports is stood in for, for one test."""

    def imported(name):
        package = name.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not there: its sources' folder belongs on PYTHONPATH")
        for _ in range(99):
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as missing:
                if missing.name.partition(".")[0] == package:
                    raise
                stand_in = MagicMock(__path__=[], __version__="0", __spec__=importlib.machinery.ModuleSpec(missing.name, None))
                monkeypatch.setitem(sys.modules, missing.name, stand_in)
        raise AssertionError(f"{name} cannot be imported")

    return imported
