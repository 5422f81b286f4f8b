"""The loops of slime, SkyRL, rLLM, NeMo-RL and OpenRLHF, as far as they run on a CPU: the same steps as with their own GRPO; edits.

Their sources' folders belong on PYTHONPATH (`tests/whole/loops` says what of them runs), beside what `pip` installs for TRL and verl:

ADVLAB_WHOLE_RUNS=1 PYTHONPATH=slime:SkyRL:rllm:RL:OpenRLHF python -m pytest python/tests/whole/test_loops.py
"""

import importlib

import pytest

torch = pytest.importorskip("torch")
for needed in ("ray", "transformers"):
    pytest.importorskip(needed)

from scripts import lines

from advlab import _trainers

NAMES = ["slime", "skyrl", "rllm", "nemo_rl", "openrlhf"]
# What the recipe needs to be the trainer's own GRPO.
PARAMS = {"rllm": {"std": "population"}, "openrlhf": {"eps": 1e-9}}
BY = 'fn advantage(batch, p) { metric("by", BY); BY * (batch.reward - batch.reward.mean("group")) }'


@pytest.fixture
def loop(theirs, monkeypatch, tmp_path, request):
    """Runs a loop of three steps, and gives their losses and the weights before the first and after each."""
    theirs(request.param)
    module = importlib.import_module(f"loops.{request.param}")

    def run(own, between=lambda step: None):
        losses, weights = [], [torch.nn.utils.parameters_to_vector(importlib.import_module("tiny").model().parameters())]
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir()

        def step(loss, policy):
            losses.append(loss)
            weights.append(torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone())
            between(len(losses))

        module.run(theirs, monkeypatch, folder, own, step)
        assert len(losses) == 3
        return losses, weights

    run.name = request.param
    return run


@pytest.mark.parametrize("loop", NAMES, indirect=True)
def test_a_trainers_own_grpo_and_the_recipe_train_alike(loop, recipe):
    """The weights say it: on its first update the loss of an advantage without a mean is 0."""
    own, expected = loop(own=True)
    recipe("grpo", **PARAMS.get(loop.name, {}))
    losses, weights = loop(own=False)
    assert losses == pytest.approx(own, rel=1e-5, abs=1e-6)
    for before, after, found in zip(expected, expected[1:], weights[1:]):
        assert (after - before).abs().max() > 1e-3 and torch.allclose(found, after, atol=1e-5)


@pytest.mark.parametrize("loop", NAMES, indirect=True)
def test_a_loop_is_edited_broken_and_replayed(loop, recipe, script, monkeypatch, tmp_path, replayed):
    recipe(BY.replace("BY", "1"))
    _, plain = loop(own=False)
    monkeypatch.setenv("ADVLAB_FOLDER", str(tmp_path / "advlab"))
    recipe(BY.replace("BY", "1"))

    def between(step):
        (live,) = (live for live in _trainers._live.values() if "recipe1" in live.name)
        script(BY.replace("BY", "2") if step == 1 else "fn advantage(batch, p) { batch.rewrad }", "recipe1.rhai")
        assert live.refresh() is (step == 1)

    _, edited = loop(own=False, between=between)
    # SGD's step is proportional to the advantage: after the edit, twice as long.
    assert torch.allclose(edited[1], plain[1], atol=1e-6)
    assert torch.allclose(edited[2] - edited[1], 2 * (plain[2] - plain[1]), atol=1e-6)
    rows = lines(tmp_path / "advlab/metrics.jsonl")
    assert [row["metrics"]["by"] for row in rows] == [1, 2, 2] and "3 steps agrees" in replayed(tmp_path / "advlab")
