"""The loops of slime, SkyRL, rLLM, NeMo-RL and OpenRLHF, as far as they run on a CPU: the same losses as with their own GRPO; edits.

Their sources' folders belong on PYTHONPATH (`tests/whole/loops` says what of them runs), beside what `pip` installs for TRL and verl:

ADVLAB_WHOLE_RUNS=1 PYTHONPATH=slime:SkyRL:rllm:RL:OpenRLHF python -m pytest python/tests/whole/test_loops.py
"""

import importlib
import json

import pytest

torch = pytest.importorskip("torch")
for needed in ("ray", "transformers"):
    pytest.importorskip(needed)

from advlab import _trainers

NAMES = ["slime", "skyrl", "rllm", "nemo_rl", "openrlhf"]
# What the recipe needs to be the trainer's own GRPO.
PARAMS = {"rllm": {"std": "population"}, "openrlhf": {"eps": 1e-9}}
BY = 'fn advantage(batch, p) { BY * (batch.reward - batch.reward.mean("group")) }'


@pytest.fixture
def loop(theirs, monkeypatch, tmp_path, request):
    """Runs a loop of three steps."""
    module = importlib.import_module(f"loops.{request.param}")

    def run(own, between=lambda step: None):
        folder = tmp_path / ("own" if own else "ours")
        folder.mkdir()
        steps = module.run(theirs, monkeypatch, folder, own, between)
        assert len(steps) == 3
        return steps

    theirs(request.param)
    run.name = request.param
    return run


@pytest.mark.parametrize("loop", NAMES, indirect=True)
def test_a_trainers_own_grpo_and_the_recipe_train_alike(loop, recipe):
    own = loop(own=True)
    recipe("grpo", **PARAMS.get(loop.name, {}))
    ours = loop(own=False)
    before = 0.0
    for theirs, step in zip(own, ours):
        assert torch.equal(step.reward.sort()[0], theirs.reward.sort()[0])
        assert torch.allclose(step.advantage.sort()[0].float(), theirs.advantage.sort()[0].float(), atol=1e-5)
        assert step.loss == pytest.approx(theirs.loss, rel=1e-5, abs=1e-6)
        # On its first update the loss of an advantage without a mean is 0: the weights say whether its gradient is the same.
        assert torch.allclose(step.weights, theirs.weights, atol=1e-5) and (theirs.weights - before).abs().max() > 1e-3
        before = theirs.weights


@pytest.mark.parametrize("loop", NAMES, indirect=True)
def test_a_loop_is_edited_broken_and_replayed(loop, recipe, script, monkeypatch, tmp_path, replayed):
    monkeypatch.setenv("ADVLAB_FOLDER", str(tmp_path / "advlab"))
    recipe(BY.replace("BY", "1"))

    def between(step):
        (live,) = _trainers._live.values()
        script(BY.replace("BY", "2") if step == 1 else "fn advantage(batch, p) { batch.rewrad }", "recipe0.rhai")
        assert live.refresh() is (step == 1)

    for step, by in zip(loop(own=False, between=between), (1, 2, 2)):
        mean = torch.stack([step.reward[step.group == group].mean() for group in step.group])
        assert step.reward.std() > 0 and torch.allclose(step.advantage.double(), by * (step.reward - mean).double(), atol=1e-5)
    rows = [json.loads(line) for line in (tmp_path / "advlab/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and "3 steps agrees" in replayed(tmp_path / "advlab")
