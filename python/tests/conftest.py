"""What the tests share.

`python -m pytest python/tests` in an environment with the package (`pip install ./python pytest`). Tests of what is not installed
skip themselves: those of tensors need `pip install torch`, those in `clients` also `trl==1.16.0` or `verl==0.9.1`.
"""

import os
import time
from pathlib import Path

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


@pytest.fixture
def until():
    """Waits until something holds."""

    def wait(holds, seconds=20.0):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it did not come to that"
            time.sleep(0.02)

    return wait
