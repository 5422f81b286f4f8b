"""A pytest plugin: trainers' own tests of advantages and losses, with recipes in the place of the functions that they test.

PYTHONPATH=.:$ADVLAB/python/tests/whole NUMBERS=recipes python -m pytest -p foreign tests/trainer/ppo

in the folder of verl's sources. With NUMBERS=own, the trainer's functions stay; with NUMBERS=wrong, the recipes' numbers are made
wrong: a test that passes all the same does not judge them. A trainer's metrics stay its own. At the end, the plugin prints the
tests that called a recipe.
"""

import functools
import importlib.machinery
import inspect
import os
import sys
import typing
from unittest.mock import MagicMock

import pytest
import torch
import typing_extensions

from . import areal, miles, nemo_rl, openrlhf, roll, skyrl, slime, trl, verl  # noqa: F401
from .shared import CALLS, NUMBERS, REPLACED, in_place_of

REACHED, OUTCOMES = {}, {}


class OnACpu(torch.overrides.TorchFunctionMode):
    """Tensors for a GPU are made on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        cpu = lambda x: "cpu" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x
        return function(*map(cpu, args), **{key: cpu(value) for key, value in (kwargs or {}).items()})


class StandIns:
    """Makes the packages that the variable STAND_IN names, and all that is in them: no test calls them."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ.get("STAND_IN", "").split():
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MagicMock(__path__=[], __version__="0", __spec__=spec)

    def exec_module(self, module):
        pass


def pytest_configure(config):
    if os.environ.get("ON_A_CPU"):
        torch.cuda.is_available = lambda: True
        OnACpu().__enter__()
    if NUMBERS != "own":  # Processes that a test starts have the replacements only if they are forked.
        torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
    if sys.version_info < (3, 12):
        typing.TypedDict = typing_extensions.TypedDict  # Before Python 3.12 pydantic wants this one.
    sys.meta_path.append(StandIns())


def pytest_collection_finish(session):
    if NUMBERS == "own":
        return
    for target, function in REPLACED.items():
        module, _, path = target.partition(":")
        if module not in sys.modules:
            continue
        *cls, name = path.split(".")
        holder = getattr(sys.modules[module], cls[0]) if cls else sys.modules[module]
        own = inspect.getattr_static(holder, name)
        is_static, own = isinstance(own, staticmethod), getattr(own, "__func__", own)
        ours = in_place_of(own, function)
        if cls:
            setattr(holder, name, staticmethod(ours) if is_static else ours)
            continue
        for one in list(sys.modules.values()):
            for key, value in list(getattr(one, "__dict__", {}).items()):
                if value is own or value is getattr(own, "__wrapped__", own):  # It may be compiled.
                    setattr(one, key, ours)
                elif key.endswith("Registry") and isinstance(getattr(value, "_functions", None), dict):
                    value._functions.update({entry: ours for entry, taken in value._functions.items() if taken is own})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    CALLS.value = 0
    try:
        return (yield)
    finally:
        REACHED[item.nodeid] = CALLS.value


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        OUTCOMES[report.nodeid] = report.outcome


def pytest_terminal_summary(terminalreporter):
    for test, outcome in OUTCOMES.items():
        if REACHED.get(test):
            terminalreporter.write_line(f"{outcome} {REACHED[test]} {test}")
