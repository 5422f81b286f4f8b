"""Recipes that several tests use, processes of their own, and files of lines."""

import json
import subprocess
import sys
from pathlib import Path

MEAN = 'fn advantage(batch, p) {\n    batch.reward - batch.reward.mean("group")\n}\n'
SCALED = """fn params() { #{ by: #{ value: 2.0, min: 0.0 } } }
fn init(p) { #{ calls: 0, seen: [], mean: 0.5 } }
fn advantage(batch, p) {
    this.calls += 1;
    metric("calls", this.calls);
    (batch.reward - batch.reward.mean("group")) * p.by
}
"""


def python(*words, **more):
    """Runs this Python in a process of its own."""
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, **more)


def command(*words, **more):
    """Runs the program."""
    return python("-m", "advlab", *words, **more)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def documented(language, words, page="mixing"):
    """The block of a page in docs/ that has these words."""
    blocks = (Path(__file__).parents[2] / f"docs/{page}.md").read_text().split("\n```")[1::2]
    (found,) = (text for name, _, text in (block.partition("\n") for block in blocks) if name == language and words in text)
    return found
