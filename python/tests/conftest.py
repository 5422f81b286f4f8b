"""What the tests share."""

import os
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MEAN = 'fn advantage(batch, p) {\n    batch.reward - batch.reward.mean("group")\n}\n'
SCALED = """fn params() { #{ by: #{ value: 2.0, min: 0.0 } } }
fn init(p) { #{ calls: 0, seen: [], mean: 0.5 } }
fn advantage(batch, p) {
    this.calls += 1;
    metric("calls", this.calls);
    (batch.reward - batch.reward.mean("group")) * p.by
}
"""


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
