"""Recipes that several tests use."""

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


def documented(language, words, page="mixing"):
    """The block of a page in docs/ that has these words."""
    blocks = (Path(__file__).parents[2] / f"docs/{page}.md").read_text().split("\n```")[1::2]
    (found,) = (text for name, _, text in (block.partition("\n") for block in blocks) if name == language and words in text)
    return found
