"""The loops of slime, SkyRL, rLLM, NeMo-RL and OpenRLHF, as far as they run on a CPU, with one turn and with several: the same steps
as with their own GRPO, and NeMo-RL's PPO as with its own GAE; edits.

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

# What the loss is a mean over, and what is special of a loop.
LOOPS = {
    "slime": ("trajectories", {}), "skyrl": ("turns", {}), "rllm": ("tokens", {}), "nemo_rl": ("tokens", {}), "openrlhf": ("tokens", {}),
    "slime-turns": ("trajectories", {"turns": 3}), "skyrl-turns": ("turns", {"turns": 3}), "rllm-turns": ("tokens", {"turns": 3}),
    "nemo_rl-turns": ("tokens", {"turns": 3}), "openrlhf-turns": ("tokens", {"turns": 3}), "nemo_rl-critic": ("tokens", {"critic": True}),
}  # fmt: skip
# For rLLM, because `step_grpo` has no other standard deviation than the sample's.
STEP_GRPO = """fn advantage(batch, p) {
    let r = batch.reward.last("trajectory");
    safe_div(r - r.mean("group"), r.population_std("group") + 1e-6)
}
"""
# What is the trainer's own GRPO, or GAE.
OWN = {
    "rllm": ("grpo", {"std": "population"}), "openrlhf": ("grpo", {"eps": 1e-9}), "rllm-turns": (STEP_GRPO, {}),
    "openrlhf-turns": ("step_grpo", {"eps": 1e-9}), "nemo_rl-critic": ("gae", {"whiten": False}),
}  # fmt: skip
BY = 'fn advantage(batch, p) { metric("by", BY); BY * (batch.reward - batch.reward.mean("group")) }'
TURNS = """fn advantage(batch, p) {
    metric("by", BY);
    let to_go = batch.step_reward.suffix_sum(0.5);
    BY * (to_go - batch.step_reward.sum("trajectory").mean("group"))
}
"""
# The second takes turns as rows.
BROKEN = ["fn advantage(batch, p) { batch.reward / 0.0 }", "fn advantage(batch, p) { batch.step_reward / 0.0 }"]
# rLLM takes one advantage for all turns: that of the first.
OF_FIRST = TURNS.replace("suffix_sum(0.5);", 'suffix_sum(0.5); let to_go = (to_go * (batch.turn == 0)).sum("trajectory");')


def credit(group, trainer):
    """What these recipes give, from a list of rewards for each trajectory."""
    mean = sum(map(sum, group)) / len(group)
    if trainer in ("slime", "nemo_rl", "openrlhf"):
        # A trajectory has one reward.
        group = [[0.0] * (len(rewards) - 1) + [sum(rewards)] for rewards in group]
    found = [[sum(0.5**at * one for at, one in enumerate(of[turn:])) - mean for turn in range(len(of))] for of in group]
    return [of[:1] * len(of) for of in found] if trainer == "rllm" else found


@pytest.fixture
def loop(theirs, monkeypatch, tmp_path, request):
    """Runs a loop of three steps, and gives their losses and the weights before the first and after each."""
    name, (mean, more) = request.param.partition("-")[0], LOOPS[request.param]
    theirs(name)
    module = importlib.import_module(f"loops.{name}")

    def run(own, between=lambda step: None):
        losses, weights = [], [torch.nn.utils.parameters_to_vector(importlib.import_module("tiny").model().parameters())]
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        folder.mkdir()

        def step(loss, policy):
            losses.append(loss)
            weights.append(torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone())
            between(len(losses))

        module.run(theirs, monkeypatch, folder, own, step, **more)
        assert len(losses) == 3
        return losses, weights

    by_hand, turns = importlib.import_module("loops").by_hand, more.get("turns", 1)
    run.name, run.by_hand = request.param, lambda factors: by_hand(turns, lambda group: credit(group, name), mean, factors)
    return run


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_a_trainers_own_grpo_and_the_recipe_train_alike(loop, recipe):
    """The weights say it: on its first update the loss of an advantage without a mean is 0. With turns, each has the advantage of
    its trajectory."""
    own, expected = loop(own=True)
    name, params = OWN.get(loop.name, ("step_grpo" if loop.name.endswith("turns") else "grpo", {}))
    recipe(name, **params)
    losses, weights = loop(own=False)
    assert losses == pytest.approx(own, rel=1e-5, abs=1e-6)
    for before, after, found in zip(expected, expected[1:], weights[1:]):
        assert (after - before).abs().max() > 1e-3 and torch.allclose(found, after, atol=1e-5)


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_a_loop_is_edited_broken_and_replayed(loop, recipe, script, monkeypatch, tmp_path, replayed):
    """The weights are those of a loop by hand, whose advantage is twice as large after the edit. Of the broken saves, the first is
    rejected on the last batch. The second takes other rows, so it fails at the next step, which is repeated with the rows of the
    edit."""
    takes_turns = loop.name.endswith("turns")
    text = OF_FIRST if loop.name == "rllm-turns" else TURNS if takes_turns else BY
    monkeypatch.setenv("ADVLAB_FOLDER", str(tmp_path / "advlab"))
    recipe(text.replace("BY", "1"))
    events = []

    def between(step):
        (live,) = _trainers._live.values()
        saves = {1: [(text.replace("BY", "2"), True)], 2: [(BROKEN[takes_turns], False), (BROKEN[not takes_turns], True)]}
        for saved, passes in saves.get(step, ()):
            # `refresh` knows only what is published during its call, and the save may be found before.
            before = live.serial
            script(saved, "recipe0.rhai")
            live.refresh()
            assert (live.serial != before) is passes
        events.extend(live.events())

    _, weights = loop(own=False, between=between)
    for before, after, found in zip(expected := loop.by_hand([1, 2, 2]), expected[1:], weights[1:]):
        assert (after - before).abs().max() > 1e-3 and torch.allclose(found, after, atol=1e-5)
    rows = lines(tmp_path / "advlab/metrics.jsonl")
    assert [row["metrics"]["by"] for row in rows] == [1, 2, 2] and "3 recorded steps" in replayed(tmp_path / "advlab")
    told = [(event.kind, event.at_step) for event in events if event.kind in ("rejected", "published")]
    assert told == [("published", False), ("rejected", False), ("published", False), ("rejected", True)]
