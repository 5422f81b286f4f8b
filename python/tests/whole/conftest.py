"""Whole runs of trainers: seconds to minutes each, so only if the variable ADVLAB_WHOLE_RUNS is set.

ADVLAB_WHOLE_RUNS=1 python -m pytest python/tests/whole
"""

import os

import pytest
from scripts import command


@pytest.fixture(autouse=True)
def asked_for():
    if "ADVLAB_WHOLE_RUNS" not in os.environ:
        pytest.skip("whole runs of trainers take minutes: ADVLAB_WHOLE_RUNS=1 asks for them")


@pytest.fixture
def replayed():
    """Replays a run's folder with the program, and gives what it prints."""

    def replay(folder):
        done = command("replay", folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return replay
