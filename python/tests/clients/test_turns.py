"""Turns: in the data structures of verl 0.9.1, TRL 1.16, SkyRL 0.4.0, slime (624b824a) and rLLM (9beb6e0f).

SkyRL, which needs Python 3.12, from PyPI (`pip install --no-deps skyrl==0.4.0 skyrl-gym`); slime and rLLM with their sources on
PYTHONPATH, as those of `test_patches.py`.
"""

import functools
import sys
import typing
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
typing_extensions = pytest.importorskip("typing_extensions")

from scripts import MEAN

import advlab
from advlab import _trainers, rllm, skyrl, slime

MASK = torch.tensor(
    [[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
)
REWARD = torch.tensor([1.0, 0.0, 2.0, 5.0, 9.0])
TOKEN_REWARD = torch.zeros(5, 6).index_put((torch.arange(5), torch.tensor([5, 5, 5, 2, 5])), REWARD)
TOKEN_REWARD[0, 2] = 0.25  # What the environment gave behind the first turn.
TRAINER = _trainers.Trainer("a trainer")

# 1 for the first turn of a trajectory, 2 for the second, and the number of turns before the point.
PLACES = 'fn advantage(batch, p) { 1 + batch.turn + 10 * batch.reward.count("trajectory") + 100 * batch.step_reward }'
PER_TRAJECTORY = 'fn advantage(batch, p) { batch.reward.last("trajectory") - batch.reward.last("trajectory").mean("group") }'


def step(recipe, padded=True, keep=None, **more):
    given = {"groups": [0] * 5, "mask": MASK, "reward": TOKEN_REWARD.sum(1), "token_reward": TOKEN_REWARD}
    return TRAINER.advantage(recipe, {**given, **more}, padded=padded, keep_rejected=keep)


@pytest.fixture
def load(script):
    count = iter(range(99))
    return lambda text, **params: advlab.load(script(text, f"turns{next(count)}.rhai"), **params)


def test_what_stands_between_two_holes_is_a_turn_of_a_recipe_that_names_trajectories(load):
    out = step(load(PLACES))
    assert out.advantage.tolist() == [
        [56, 56, 0, 32, 0, 133], [0, 11, 11, 11, 11, 11], [21, 0, 0, 222, 222, 0], [511, 511, 511, 0, 0, 0], [0] * 6
    ]  # fmt: skip
    # Without rewards per token the last turn has the response's.
    bare = step(load(PLACES), token_reward=None, reward=REWARD)
    assert bare.advantage[0].tolist() == [31, 31, 0, 32, 0, 133] and bare.advantage[2, 3] == 222
    # The mean is over trajectories, each of which has its reward once; the rejected one is none of them.
    out = step(load(PER_TRAJECTORY), padded=False, token_reward=None, reward=REWARD)
    assert out.level == "response" and out.advantage.tolist() == [-1, -2, 0, 3, 0]
    out = step(load(PLACES), padded=False)
    assert out.level == "token" and out.advantage.shape == MASK.shape


def test_a_response_is_whole_for_other_recipes_and_its_tokens_know_their_turn(load, caplog):
    out = step(load("fn advantage(batch, p) { batch.turn + 1 }"))
    assert out.advantage.tolist() == [[1, 1, 0, 2, 0, 3], [0, 1, 1, 1, 1, 1], [1, 0, 0, 2, 2, 0], [1, 1, 1, 0, 0, 0], [0] * 6]
    lists = _trainers.of_data_set(
        {"score": [[0.5, 1.5, 2.5], [1], [3, 4], None, [7]], "state": [["a"], ["b"], ["c"], ["d"], None]}
    )
    out = step(load("fn advantage(batch, p) { where(batch.score == batch.score, batch.score, -1) }"), **lists)
    assert out.advantage[:4].tolist() == [
        [0.5, 0.5, 0, 1.5, 0, 2.5], [0, 1, 1, 1, 1, 1], [3, 0, 0, 4, 4, 0], [-1, -1, -1, 0, 0, 0]
    ]  # fmt: skip
    with pytest.raises(advlab.RecipeError, match="In a trainer: left out: `state` .*names the level `trajectory`"):
        step(load('fn advantage(batch, p) { batch.regroup(batch.key("state")).reward.mean("group") }'), **lists)
    assert "`score`: the lists" not in caplog.text
    for trajectory in ("", " + 0 * batch.reward.last(\"trajectory\")"):
        _trainers._warned.clear()
        step(load(f"fn advantage(batch, p) {{ batch.score{trajectory} }}"), score=_trainers.OfTurns([[1.0] * 3, [1.0] * 2, [1.0] * 3, [1.0], []]))
        assert caplog.text.count("`score`: the lists of 2 responses have more values than turns") == 1 + bool(trajectory)
    each = 'fn advantage(batch, p) { batch.score + 10 * (batch.key("state") == "c") + 0 * batch.reward.last("trajectory") }'
    lists["score"] = _trainers.OfTurns([[0.5, 1.5, 2.5], [1], [3, 4], [5], [7]])
    assert step(load(each), **lists).advantage[2].tolist() == [13, 0, 0, 4, 4, 0]


def test_a_save_may_take_other_rows(script, load):
    """As `test_tinker.py` has it, where the rows are chosen by the trainer's name alone."""
    by_turns = PLACES + " // as before"
    with advlab.watch(script(MEAN)) as live:
        first = step(live).advantage
        for text, expected in [
            (by_turns, step(load(PLACES)).advantage),
            (MEAN, first),
            (PLACES.replace("1 +", "batch.missing +"), first),
        ]:
            script(text)
            live.refresh()
            assert torch.equal(step(live).advantage, expected)
        assert live.events()[-1].at_step
        # The mistake has been seen on rows of turns, so it is found at the next save.
        script(PLACES.replace("1 +", "2 + batch.missing +"))
        assert not live.refresh()
        assert not live.events()[-1].at_step
        # A trainer without the data of turns keeps the rows of the last batch.
        strict = _trainers.Trainer("a trainer", rows_follow=False)
        strict.advantage(live, {"groups": [0] * 5, "mask": MASK, "reward": REWARD})
        script(by_turns)
        live.refresh()
        assert live.events()[-1].error.missing_column == "step_reward"


def test_rejected_responses_are_no_members_of_their_groups(load, monkeypatch):
    mean = load(MEAN)
    for padded in (True, False):
        out = step(mean, padded, token_reward=None, reward=REWARD, value=MASK * 0.5)
        expected = torch.tensor([-1.0, -2, 0, 3, 0])
        assert torch.equal(out.advantage, expected[:, None] * MASK if padded else expected)
        assert (out.returns[4] == 0).all()
    for padded, given in [(True, MASK * 0), (False, MASK * 0), (True, MASK[:, :0])]:
        out = step(mean, padded, token_reward=None, reward=REWARD, mask=given)
        assert torch.equal(out.advantage, torch.zeros(given.shape if padded else 5)) and out.returns is out.advantage
    kept = torch.tensor([-2.4, -3.4, -1.4, 1.6, 5.6])
    assert torch.allclose(step(mean, False, keep=True, token_reward=None, reward=REWARD).advantage, kept)
    monkeypatch.setenv("ADVLAB_KEEP_REJECTED", "1")
    assert torch.allclose(step(mean, False, token_reward=None, reward=REWARD).advantage, kept)


def test_a_rejected_last_turn_leaves_its_score_to_the_turn_before(load):
    """Also with weights and an advantage for each token, whose rows have their own lengths."""
    text = 'fn advantage(batch, p) { batch.step_reward.sum("trajectory").expand("token") }'
    mask = torch.tensor([[1, 1], [0, 0], [1, 0], [1, 0]])
    given = {"groups": [0] * 4, "trajectory": [7, 7, 8, 8], "turn": [0, 1, 0, 1], "mask": mask}
    scores = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    for weight in ("", "fn weight(batch, p) { 1 + 0 * batch.step_reward } "):
        for own in ({"token_reward": scores}, {"step_reward": scores.sum(1)}):
            out = TRAINER.advantage(load(weight + text), {**given, **own}, "tokens", keep_rejected=False)
            assert out.advantage.tolist() == mask.tolist()
    columns = {"groups": given["groups"], "trajectory": [7, 7, 8, 8], "step_reward": [0.0, 1.0, 0.0, 1.0]}
    recipe = load('fn advantage(batch, p) { batch.step_reward.sum("trajectory") }')
    assert TRAINER.per_response(recipe, columns, [2, 0, 1, 1], "tokens").tolist() == [1, 0, 1, 1]


def test_weights_of_turns_are_those_of_the_trainers_mean(load, caplog):
    """The sum of A over tokens or responses, divided by the trainer's count, is the weighted mean."""
    weighted = load(
        'fn weight(batch, p) { 1.0 / batch.reward.count("trajectory") } fn advantage(batch, p) { batch.reward + batch.turn }'
    )
    columns = {"groups": [0] * 5, "mask": MASK, "reward": REWARD}
    plain = load('fn advantage(batch, p) { batch.reward + batch.turn + 0 * batch.reward.last("trajectory") }')
    a, counts = TRAINER.advantage(plain, columns).advantage, MASK.sum(1)
    share = torch.tensor([1 / 3, 1, 1 / 2, 1, 0])
    tokens = TRAINER.advantage(weighted, columns, "tokens").advantage
    assert "counts each trajectory once" not in caplog.text
    assert torch.allclose(tokens, a * share[:, None] * counts.sum() / (share * counts).sum())
    responses = TRAINER.advantage(weighted, columns, "responses").advantage
    assert torch.allclose(responses, a * share[:, None] * 4 / share.sum())
    assert "counts each trajectory once" in caplog.text


# slime


def samples(theirs, parts):
    """Samples (group, rollout, reward, tokens that count, metadata) of slime."""
    sample = theirs("slime.utils.types").Sample
    return [
        sample(
            group_index=group, index=at, rollout_id=rollout, reward=reward, response_length=6, metadata=metadata,
            loss_mask=[1] * tokens + [0] * (6 - tokens),
        )
        for at, (group, rollout, reward, tokens, metadata) in enumerate(parts)
    ]  # fmt: skip


PARTS = [
    (0, 7, 1.0, 2, {"state": "a"}),
    (0, 7, 1.0, 3, {"state": "b"}),
    (0, 8, 0.0, 4, {}),
    (1, 9, 3.0, 1, {}),
    (1, 9, 3.0, 1, {}),
]


def test_a_rollout_of_slime_counts_once(theirs, recipe):
    args = SimpleNamespace(reward_key=None, advantage_estimator="grpo")
    recipe(MEAN)
    assert slime.post_process_rewards(args, samples(theirs, PARTS))[1] == [0.5, 0.5, -0.5, 0, 0]
    # A weight is that of a rollout, over which slime takes its mean.
    recipe("fn weight(batch, p) { 1 + batch.reward } fn advantage(batch, p) { batch.reward + 1 }")
    weight = np.array([2, 2, 1, 4, 4])
    expected = weight * [2, 2, 1, 4, 4] * 3 / (2 + 1 + 4)
    assert slime.post_process_rewards(args, samples(theirs, PARTS))[1] == pytest.approx(expected)
    recipe(PLACES)
    assert slime.post_process_rewards(args, samples(theirs, PARTS))[1] == [21, 122, 11, 21, 322]
    recipe('fn advantage(batch, p) { (batch.key("state") == "a") + 0 * batch.reward.last("trajectory") }')
    assert slime.post_process_rewards(args, samples(theirs, PARTS))[1] == [1, 0, 0, 0, 0]
    recipe("fn weight(batch, p) { batch.reward } " + PER_TRAJECTORY)
    # slime's mean is over three rollouts, and the weights of their samples' shares add up to 4.
    expected = np.array([0.5, 0.5, -0.5, 0, 0]) * [1, 1, 0, 3, 3] * 3 / 4
    assert slime.post_process_rewards(args, samples(theirs, PARTS))[1] == pytest.approx(expected)
    # Those that slime removes are no members, and rewards may have names.
    recipe(MEAN.replace("batch.reward", "batch.reward_right"))
    removed = samples(theirs, [(0, None, {"right": reward, "sum": 9.0}, 2, {}) for reward in (1.0, 0.0, 8.0)])
    removed[2].remove_sample = True
    args.reward_key = "sum"
    assert slime.post_process_rewards(args, removed)[1] == [0.5, -0.5, 0]


# SkyRL


@pytest.fixture
def steps(theirs, monkeypatch):
    """Makes SkyRL's trainer, with a batch for its own `compute_advantages_and_returns`."""
    # Before Python 3.12 pydantic wants this one.
    monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)
    return functools.partial(trainer_of, theirs)


def trainer_of(theirs, is_step_wise, last, uids, rows, **more):
    trainers = theirs("skyrl.train.trainer")
    batches = theirs("skyrl.backends.skyrl_train.training_batch")
    utils = trainers.ppo_utils
    if "advlab" not in utils.AdvantageEstimatorRegistry.list_available():
        skyrl.register()
    trainer = trainers.RayPPOTrainer.__new__(trainers.RayPPOTrainer)
    algorithm = theirs("skyrl.train.config").AlgorithmConfig(advantage_estimator="advlab", loss_reduction="sequence_mean")
    generator = SimpleNamespace(step_wise_trajectories=is_step_wise)
    trainer.cfg, trainer.all_metrics = SimpleNamespace(trainer=SimpleNamespace(algorithm=algorithm), generator=generator), {}
    loss_mask, rewards = rows
    names = ("sequences", "attention_mask", "response_mask", "loss_mask", "rewards")
    ones = torch.ones(loss_mask.shape, dtype=torch.long)
    made = dict(zip(names, (ones, ones, ones, loss_mask, rewards), strict=True))
    batch = batches.TrainingInputBatch({**made, "values": None, **more})
    batch.metadata = {"uids": uids, "avg_response_length": 1.0, **({"is_last_step": last} if is_step_wise else {})}
    return trainer, batches.pad_training_input_batch(batch, 1)


def test_steps_of_skyrl_are_turns(steps, recipe):
    loss_mask = torch.ones(5, 3)
    rewards = torch.zeros(5, 3)
    rewards[:, 2] = torch.tensor([0.5, 1.0, 4.0, 0.0, 2.0])
    last, uids = [False, True, True, False, True], ["a", "a", "a", "b", "b"]
    recipe(MEAN)
    trainer, batch = steps(True, last, uids, (loss_mask, rewards))
    found = trainer.compute_advantages_and_returns(batch)["advantages"]
    assert found[:, 0].tolist() == [-1.5, -1.5, 1.5, 0, 0, 0]
    recipe(PLACES)
    trainer, batch = steps(True, last, uids, (loss_mask, rewards))
    data = trainer.compute_advantages_and_returns(batch)
    # The last row is padding, a copy of the first.
    assert data["advantages"].tolist() == [[value] * 3 for value in (71, 122, 411, 21, 222, 0)]
    assert type(data["advantages"]) is torch.Tensor and torch.equal(data["returns"], data["advantages"])
    recipe(PER_TRAJECTORY)
    trainer, batch = steps(True, last, uids, (loss_mask, rewards))
    found = trainer.compute_advantages_and_returns(batch)["advantages"]
    assert found[:, 0].tolist() == [-1.5, -1.5, 1.5, 0, 0, 0]


def test_holes_and_failures_of_skyrls_loss_mask_count(steps, recipe):
    loss_mask = torch.tensor([[1.0, 0, 1], [1, 1, 1], [0, 0, 0]])
    rewards = torch.tensor([[0.5, 0, 1.0], [0, 0, 2.0], [0, 0, 8.0]])
    recipe(PLACES)
    trainer, batch = steps(False, None, ["a"] * 3, (loss_mask, rewards))
    found = trainer.compute_advantages_and_returns(batch)["advantages"]
    assert found[:3].tolist() == [[71, 0, 122], [211, 211, 211], [0, 0, 0]]
    # The failed one is no member of its group, and neither is the padding row.
    recipe(MEAN)
    trainer, batch = steps(False, None, ["a"] * 3, (loss_mask, rewards))
    found = trainer.compute_advantages_and_returns(batch)["advantages"]
    assert found[:3].tolist() == [[-0.25, 0, -0.25], [0.25] * 3, [0] * 3]
    # A reward of a token that does not count belongs to a token that does.
    for counts, at in [([1.0, 1, 0], 1), ([0.0, 1, 1], 1)]:
        recipe("fn advantage(batch, p) { batch.token_reward + 10 * batch.length }")
        reward = torch.tensor([[0, 0, 2.0]] if counts[0] else [[2.0, 0, 0]])
        trainer, batch = steps(False, None, ["a"], (torch.tensor([counts]), reward))
        found = trainer.compute_advantages_and_returns(batch)["advantages"]
        assert found[0].tolist() == [(20 + 2 * (place == at)) * count for place, count in enumerate(counts)]
    # Without a token that counts, there is no step.
    for text in (PLACES, MEAN):
        for is_step_wise in (False, True):
            recipe(text)
            trainer, batch = steps(is_step_wise, [True] * 3, ["a"] * 3, (loss_mask * 0, rewards))
            assert (trainer.compute_advantages_and_returns(batch)["advantages"] == 0).all()


LOGPS = "fn advantage(batch, p) { batch.old_logp + 10 * batch.ref_logp + 100 * batch.rollout_logp BY }"


def test_log_probs_of_skyrls_batch_are_columns(steps, recipe):
    """If SkyRL has computed them, and with steps for a recipe of turns."""
    loss_mask, rewards = torch.tensor([[1.0, 0, 1], [1, 1, 1]]), torch.ones(2, 3)
    logps = {
        name: size * torch.arange(1.0, 7).view(2, 3)
        for name, size in [("action_log_probs", 1), ("base_action_log_probs", 2), ("rollout_logprobs", 3)]
    }
    for is_step_wise, by in [(False, ""), (False, "+ 0 * batch.step_reward"), (True, "+ 0 * batch.step_reward")]:
        recipe(LOGPS.replace("BY", by))
        trainer, batch = steps(is_step_wise, [False, True], ["a"] * 2, (loss_mask, rewards), **logps)
        found = trainer.compute_advantages_and_returns(batch)["advantages"]
        assert torch.allclose(found[:2], 321 * logps["action_log_probs"] * loss_mask)
    for is_step_wise, given, words in [
        (False, {**logps, "action_log_probs": None}, "no column `old_logp`(.|\n)*policy_loss_type"),
        (False, {"action_log_probs": logps["action_log_probs"]}, "no column `ref_logp`(.|\n)*use_kl_loss"),
        (True, logps, "no column `old_logp`(.|\n)*only a recipe that names `trajectory`"),
    ]:
        recipe(LOGPS.replace("BY", ""))
        trainer, batch = steps(is_step_wise, [False, True], ["a"] * 2, (loss_mask, rewards), **given)
        with pytest.raises(advlab.RecipeError, match=words):
            trainer.compute_advantages_and_returns(batch)


# rLLM


def groups(theirs, signals=()):
    types = theirs("rllm.types")
    made = lambda reward, *steps: types.Trajectory(
        reward=reward, signals=dict(signals),
        steps=[types.Step(reward=own, response_ids=[1] * length, metadata={"state": state}) for own, length, state in steps],
    )  # fmt: skip
    first = [made(2.0, (0.5, 1, "s"), (1.5, 2, "t")), made(1.0, (1.0, 3, "s"))]
    return [
        types.TrajectoryGroup(trajectories=first, group_id="a"),
        types.TrajectoryGroup(trajectories=[made(4.0, (4.0, 1, "u"))], group_id="b"),
    ]


def collected(theirs, groups):
    """By rLLM's own function."""
    algorithms = theirs("rllm.trainer.algorithms")
    rllm.register()
    config = algorithms.AlgorithmConfig(estimator="other")
    theirs("rllm.trainer.algorithms.advantage").collect_reward_and_advantage_from_trajectory_groups(groups, config)
    return [step.advantage for group in groups for one in group.trajectories for step in one.steps]


def test_steps_of_rllm_are_turns(theirs, recipe):
    recipe("step_grpo", eps=0.0)
    (scale,) = {0.5 / np.std([1, 2], ddof=1)}
    assert collected(theirs, groups(theirs)) == pytest.approx([scale, scale, -scale, 0])
    text = """
fn advantage(batch, p) {
    let right = batch.step_reward * (batch.key("state") == "s");
    right.sum("trajectory") + 100 * batch.reward.count("trajectory") + batch.length.sum("trajectory") * 1000
}
"""
    recipe(text)
    assert collected(theirs, groups(theirs)) == [3200.5, 3200.5, 3101, 1100]
    recipe("fn advantage(batch, p) { batch.reward_extra }")
    assert collected(theirs, groups(theirs, {"extra": 7.0})) == [7, 7, 7, 7]
    recipe(PLACES)
    with pytest.raises(ValueError, match="rLLM takes one value for all steps of a trajectory"):
        collected(theirs, groups(theirs))
    with pytest.raises(ValueError, match="no `traj_groups`"):
        rllm.estimate([np.array([1.0, 2.0])])


def test_the_newer_name_of_rllms_decorator_is_taken(monkeypatch):
    for name, found in [("register_rllm_adv_estimator", {}), ("register_adv_estimator", {})]:
        take = lambda kind, found=found: lambda function: found.setdefault(kind, function)
        module = SimpleNamespace(**{name: take, "register_rllm_adv_estimator": take})
        monkeypatch.setitem(sys.modules, "rllm", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "rllm.trainer", SimpleNamespace())
        monkeypatch.setattr(rllm, "registry", lambda *_, module=module: module)
        rllm.register("mine")
        assert found == {"mine": rllm.estimate}
