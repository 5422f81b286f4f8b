"""Recipes that several tests use."""

MEAN = 'fn advantage(batch, p) {\n    batch.reward - batch.reward.mean("group")\n}\n'
SCALED = """fn params() { #{ by: #{ value: 2.0, min: 0.0 } } }
fn init(p) { #{ calls: 0, seen: [], mean: 0.5 } }
fn advantage(batch, p) {
    this.calls += 1;
    metric("calls", this.calls);
    (batch.reward - batch.reward.mean("group")) * p.by
}
"""
