"""The contracts of slime, SkyRL and rLLM, as their trainers call their hooks."""

import json
import math
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from scripts import MEAN

import advlab
from advlab import _trainers, rllm, skyrl, slime

BY_TOKEN = "fn advantage(batch, p) { batch.token_reward.suffix_sum(1.0) }"


@pytest.fixture
def recipe(script, monkeypatch):
    def use(text, **params):
        # Another name each time: a live recipe of the same path is the same one.
        name = f"recipe{len(_trainers._live)}.rhai"
        monkeypatch.setenv("ADVLAB_RECIPE", text if text in advlab.recipes() else str(script(text, name)))
        monkeypatch.setenv("ADVLAB_PARAMS", json.dumps(params))

    monkeypatch.delenv("ADVLAB_RECIPE", raising=False)
    yield use
    for live in _trainers._live.values():
        live.close()
    _trainers._live.clear()


def samples(rewards=(1.0, 0.0, 0.5, 0.5), groups=(4, 9, 4, 9)):
    made = [SimpleNamespace(group_index=g, response_length=3, loss_mask=[1, 0, 1], reward=r) for r, g in zip(rewards, groups)]
    for sample in made:
        sample.get_reward_value = lambda args, sample=sample: sample.reward
    return made


def args(**settings):
    return SimpleNamespace(**{"advantage_estimator": "grpo", "normalize_advantages": False, **settings})


def test_slimes_rewards_become_advantages(recipe):
    recipe(MEAN)
    assert slime.post_process_rewards(args(), samples()) == ([1.0, 0.0, 0.5, 0.5], [0.25, -0.25, -0.25, 0.25])
    for estimator in ("gspo", "cispo"):
        assert slime.post_process_rewards(args(advantage_estimator=estimator), samples())[1] == [0.25, -0.25, -0.25, 0.25]
    recipe("fn advantage(batch, p) { batch.length }")
    assert slime.post_process_rewards(args(), [samples()[:2], samples()[2:]])[1] == [2.0] * 4


def test_slime_is_not_given_what_it_would_change(recipe):
    recipe(MEAN)
    for settings, option in [
        ({"normalize_advantages": True}, "--normalize-advantages"),
        ({"advantage_estimator": "ppo"}, "set grpo, gspo or cispo"),
        ({"custom_advantage_function_path": "a.b"}, "--custom-advantage-function-path"),
    ]:
        with pytest.raises(ValueError, match=option):
            slime.post_process_rewards(args(**settings), samples())
    with pytest.raises(ValueError, match="a reward"):
        slime.post_process_rewards(args(), samples(rewards=(None, 1.0, 1.0, 1.0)))
    recipe(BY_TOKEN)
    with pytest.raises(ValueError, match="each response"):
        slime.post_process_rewards(args(), samples())


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_trainers_mean_of_the_scaled_advantages_is_the_recipes_weighted_mean(script, kind):
    """Per mean of a trainer: what it makes of tokens' losses, unweighted and weighted."""
    torch = pytest.importorskip("torch") if kind == "torch" else None
    draw = np.random.default_rng(3)
    mask = draw.integers(0, 2, (6, 5))
    mask[4], mask[5] = 0, 1
    counts, factors = mask.sum(1), draw.normal(size=(6, 5))
    per_response = lambda x: (x * mask).sum(1) / np.maximum(counts, 1)
    means = {
        "tokens": lambda x, w: (w * (x * mask).sum(1)).sum() / (w * counts).sum(),
        "responses": lambda x, w: (w * per_response(x)).sum() / (w * (counts > 0)).sum(),
        "sum": lambda x, w: (w * (x * mask).sum(1)).sum(),
    }
    weights = {"mixed": [1, 0, 2.5, 0.5, 3, 1], "empty alone": [1, 1, 1, 1, 7, 1], "ones": [1] * 6, "zeros": [0] * 6}
    recipe = advlab.load(script("fn weight(batch, p) { batch.w } fn advantage(batch, p) { batch.reward }"))
    for name, weight in weights.items():
        w, reward = np.array(weight, float), draw.normal(size=6)
        columns = {"groups": [0, 0, 1, 1, 2, 2], "mask": mask, "w": w, "reward": reward}
        out = recipe.advantage(**{key: torch.tensor(value) for key, value in columns.items()} if torch else columns)
        for mean, of in means.items():
            scaled = np.asarray(_trainers.weighted(out, columns["mask"], mean))
            assert np.array_equal(np.asarray(_trainers.weighted(out, counts, mean)), scaled)
            expected = of(reward[:, None] * factors, w) if any(weight) else 0.0
            assert of(scaled[:, None] * factors, np.ones(6)) == pytest.approx(expected, abs=1e-12), (name, mean)
            # An advantage per token is scaled alike.
            by_token = replace(out, advantage=out.advantage[:, None] * columns["mask"])
            assert np.allclose(_trainers.weighted(by_token, mask, mean), scaled[:, None] * mask)
        assert name != "ones" or (scaled == reward).all()


def test_a_recipe_with_weights_arrives_weighted_or_is_refused_when_it_is_loaded(recipe):
    recipe("fn weight(batch, p) { batch.reward > 0 } " + MEAN)
    # A mean over responses of 2 tokens each: 4/3 for three of four.
    for settings in ({}, {"calculate_per_token_loss": True}):
        found = slime.post_process_rewards(args(**settings), samples())[1]
        assert found == pytest.approx([1 / 3, 0.0, -1 / 3, 1 / 3])
    rewards = [np.array([1.0, 0.0]), np.array([0.5, 2.0])]
    # Trajectories of 2 and 1, 3, 1, and 4 tokens.
    steps = [[[2, 1], [3]], [[1], [4]]]
    groups = [
        SimpleNamespace(
            trajectories=[SimpleNamespace(steps=[SimpleNamespace(response_ids=[0] * n) for n in one]) for one in group]
        )
        for group in steps
    ]
    found, _ = rllm.estimate(rewards, SimpleNamespace(loss_agg_mode="token-mean"), traj_groups=groups)
    assert np.concatenate(found) == pytest.approx(np.array([0.5, 0.0, -0.75, 0.75]) * 11 / 8)
    # Two of three tokens count in each; one that slime removes later counts neither as tokens nor as a response.
    removed = samples(groups=(4, 9, 4, 4))
    removed[2].remove_sample = True
    assert slime.post_process_rewards(args(), removed)[1] == pytest.approx([1 / 2, 0.0, -1 / 4, -1 / 4])
    for sample in removed:
        sample.rollout_id = 0
    with pytest.raises(ValueError, match="several samples have one `rollout_id`"):
        slime.post_process_rewards(args(), removed)
    # All of its weights are 1.
    for config, more in ((None, {}), (SimpleNamespace(loss_agg_mode="seq-mean-token-mean"), {"traj_groups": groups})):
        with pytest.raises(
            advlab.RecipeError, match="the hook `weight`: rLLM can follow it only with `loss_agg_mode=token-mean`"
        ):
            rllm.estimate([np.array([1.0, 2.0])], config, **more)


def test_a_save_with_weights_that_a_trainer_cannot_follow_is_rejected(recipe, script):
    recipe(MEAN)
    rllm.estimate([np.array([1.0, 0.0])])
    script("fn weight(batch, p) { batch.reward > 0 } " + MEAN, "recipe0.rhai")
    (live,) = _trainers._live.values()
    assert not live.refresh()
    assert rllm.estimate([np.array([1.0, 0.0])])[0][0].tolist() == [0.5, -0.5]
    assert "the hook `weight`: rLLM" in str(live.events()[-1].error)


def test_skyrls_mean_is_that_of_the_weights(recipe, caplog):
    torch = pytest.importorskip("torch")
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    call = {"token_level_rewards": rewards, "response_mask": mask, "index": ["a"] * 3}
    recipe("fn weight(batch, p) { batch.reward > 0 } fn advantage(batch, p) { batch.reward }")
    for reduction, share in [("sequence_mean", 3 / 2), ("seq_mean_token_sum_norm", 3 / 2)]:
        found, _ = skyrl.estimate(**call, config=SimpleNamespace(loss_reduction=reduction))
        assert torch.allclose(found, share * torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
    for config, words in [
        (None, "loss_reduction=None"),
        (SimpleNamespace(loss_reduction="token_mean"), "loss_reduction=token_mean"),
        (SimpleNamespace(loss_reduction="prompt_mean"), "loss_reduction=prompt_mean"),
        (SimpleNamespace(loss_reduction="sequence_mean", policy_loss_type="clip_cov"), "policy_loss_type=clip_cov"),
    ]:
        with pytest.raises(advlab.RecipeError, match=words):
            skyrl.estimate(**call, config=config)
    known = SimpleNamespace(loss_reduction="sequence_mean", policy_loss_type="mine")
    for _ in range(2):
        skyrl.estimate(**call, config=known)
    assert caplog.text.count("policy_loss_type=mine` is unknown") == 1
    self = SimpleNamespace(cfg=SimpleNamespace(generator=SimpleNamespace(step_wise_trajectories=True)))
    assert self.cfg
    with pytest.raises(advlab.RecipeError, match="step_wise_trajectories"):
        skyrl.estimate(**call, config=known)
    del self
    with pytest.raises(ValueError, match="advantage_batch_normalize"):
        skyrl.estimate(**call, config=SimpleNamespace(loss_reduction="token_mean", advantage_batch_normalize=True))


def test_a_loss_and_a_column_of_weights_that_a_trainer_cannot_follow_are_refused(recipe, script):
    recipe(MEAN)
    live = _trainers.Trainer("X").open_from_environment({"loss": _trainers.NOT_OVER_TOKENS, "weight": "not here"})
    batch = {"groups": [0, 0], "reward": [1.0, 0.0]}
    script('fn loss(batch, p) { batch.logp.mean("batch") }', "recipe0.rhai")
    assert not live.refresh() and "mean over the M tokens" in str(live.events()[-1].error)
    script(MEAN + ' fn loss(batch, p) { batch.logp.mean("batch") }', "recipe0.rhai")
    assert live.refresh() and live.advantage(**batch).advantage.tolist() == [0.5, -0.5]
    with pytest.raises(ValueError, match="the column `weight`: not here"):
        live.advantage(**batch, weight=[1.0, 0.0])


def test_a_save_that_begins_or_ceases_to_read_what_a_trainers_discount_is_for_is_rejected(recipe, script):
    params = "fn params() { #{ gamma: #{ value: 0.25 } } } "
    plain = params + "fn advantage(batch, p) { p.gamma * batch.reward }"
    of_return = params + "fn advantage(batch, p) { batch.token_reward.suffix_sum(p.gamma) }"
    for before, after, gamma in [(plain, of_return, 0.25), (of_return, plain, 0.5)]:
        recipe(before)
        live = _trainers.Trainer("SkyRL").open_from_environment(gamma=0.5)
        name = live.name.rpartition("/")[2]
        assert live.params["gamma"] == gamma
        script(after, name)
        assert not live.refresh() and "`gamma` is the trainer's where" in str(live.events()[-1].error)
        script(before + " // as before", name)
        assert live.refresh() and live.params["gamma"] == gamma
        # Without the parameter, and with one that the run sets, there is nothing to mistake.
        script(after.replace(params, "").replace("p.gamma", "0.5"), name)
        assert live.refresh()
        recipe(before, gamma=0.75)
        live = _trainers.Trainer("SkyRL").open_from_environment(gamma=0.5)
        script(after, live.name.rpartition("/")[2])
        assert live.refresh() and live.params["gamma"] == 0.75


def test_a_damaged_checkpoint_is_named(recipe, tmp_path):
    recipe(MEAN)
    live = _trainers.Trainer("X").open_from_environment()
    for text in ('{"state"', "{}", "[]", '{"state": {}, "name": 3, "sources": {}}'):
        (tmp_path / _trainers.STATE).write_text(text)
        with pytest.raises(advlab.RecipeError, match=f"{tmp_path}/advlab.json is damaged.*delete it"):
            _trainers.resume(live, tmp_path, 3)


def test_slimes_step_is_that_of_its_rollout(recipe, monkeypatch):
    recipe("fn advantage(batch, p) { batch.reward * batch.step }")
    monkeypatch.setitem(sys.modules, "slime.rollout.sample_hooks", SimpleNamespace(_current_rollout_id=5))
    assert slime.post_process_rewards(args(), samples())[1] == [5.0, 0.0, 2.5, 2.5]


def test_trainers_that_give_no_step_have_theirs_counted(recipe):
    recipe('fn advantage(batch, p) { metric("step", batch.step); batch.reward * batch.step }')
    steps = [rllm.estimate([np.array([1.0, 0.0])])[0][0].tolist() for _ in range(3)]
    assert steps == [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]


def test_prints_are_logged_once_a_step_and_bounded(recipe, caplog):
    recipe("fn advantage(batch, p) { for i in 0..30 { print(`line ${i}`); } batch.reward }")
    for _ in range(2):
        slime.post_process_rewards(args(), samples())
    printed = [record.getMessage() for record in caplog.records if "printed" in record.getMessage()]
    assert len(printed) == 2 and all(text.endswith("line 19\n... and 10 more lines") for text in printed)
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_loss_as_the_advantage_needs_a_mean_over_tokens():
    call = {"groups": [0, 0], "reward": [1.0, 0.0], "mask": np.ones((2, 3)), "old_logp": -np.ones((2, 3))}
    out = advlab.load("pacs").advantage(**call, logp=call["old_logp"])
    assert _trainers.weighted(out, call["mask"], "tokens") is out.advantage
    with pytest.raises(ValueError, match="mean over the M tokens"):
        _trainers.weighted(out, call["mask"], "responses")


def test_a_recipe_has_to_be_named(recipe):
    with pytest.raises(ValueError, match="ADVLAB_RECIPE"):
        slime.post_process_rewards(args(), samples())


def test_parameters_that_are_no_json_are_told(recipe, monkeypatch):
    recipe(MEAN)
    monkeypatch.setenv("ADVLAB_PARAMS", "{k: 4}")
    with pytest.raises(ValueError, match="ADVLAB_PARAMS is {k: 4}: it takes JSON"):
        slime.post_process_rewards(args(), samples())


def test_rllms_groups_come_back_as_they_went(recipe):
    recipe("rloo")
    advantages, returns = rllm.estimate([np.array([1.0, 0.0]), np.array([0.0, 0.0, 3.0])], SimpleNamespace(), traj_groups=[])
    assert [group.tolist() for group in advantages] == [[1.0, -1.0], [-1.5, -1.5, 3.0]] and returns is advantages


def test_skyrls_estimator_gives_advantages_and_returns(recipe):
    torch = pytest.importorskip("torch")
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    call = {"token_level_rewards": rewards, "response_mask": mask, "index": ["a", "a"], "gamma": 0.5, "lambd": 1.0}
    recipe(MEAN)
    advantages, returns = skyrl.estimate(**call, values=None, config=None, grpo_norm_by_std=True)
    assert advantages.tolist() == [[0.5, 0.5, 0.0], [-0.5, 0.0, 0.0]] and torch.equal(returns, advantages)
    recipe("gae", whiten=False)
    values = torch.full((2, 3), 0.25)
    advantages, returns = skyrl.estimate(**call, values=values)
    assert advantages[0].tolist() == [0.25, 0.75, 0.0]
    assert torch.allclose(returns, (advantages + values) * mask)
    with pytest.raises(advlab.RecipeError, match="critic"):
        skyrl.estimate(**call)


def test_a_trainers_discount_is_that_of_a_return_only(recipe, script):
    for text, gamma in [("gae", 0.5), ("reinforce", 0.5), ("kl_advantage", 0.0), ("opd", 0.0)]:
        recipe(text)
        assert _trainers.Trainer("SkyRL").open_from_environment(gamma=0.5).params["gamma"] == gamma
    recipe("gae", gamma=0.25)
    assert _trainers.Trainer("SkyRL").open_from_environment(gamma=0.5).params["gamma"] == 0.25


def test_a_slip_in_the_file_does_not_end_a_run_that_goes(recipe, script):
    recipe(MEAN)
    slime.post_process_rewards(args(), samples())
    script("fn advantage(", "recipe0.rhai")
    assert slime.post_process_rewards(args(), samples())[1] == [0.25, -0.25, -0.25, 0.25]


def test_registering_names_what_is_missing_and_finds_what_is_there(monkeypatch):
    with pytest.raises(ImportError, match="SkyRL is not installed"):
        skyrl.register()
    with pytest.raises(ImportError, match="rLLM is not installed"):
        rllm.register()
    registered = {}
    module = ModuleType("skyrl_train.utils.ppo_utils")
    module.AdvantageEstimatorRegistry = SimpleNamespace(register=registered.__setitem__)
    for name in ("skyrl_train", "skyrl_train.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "skyrl_train.utils.ppo_utils", module)
    skyrl.register()
    assert registered == {"advlab": skyrl.estimate}


def test_columns_of_a_data_set_keep_names_apart():
    columns = {"ref-logp": [0.5], "agent": ["a"], "my score": [1.0], "my-score": [2.0], "messages": [{}]}
    assert _trainers.of_data_set(columns) == {"agent": ["a"]}


def test_numbers_of_numpy_and_none_are_values_of_a_column():
    columns = {
        "acc": list(np.array([np.float32(0.5), np.int64(1), np.bool_(True)], dtype=object)),
        "level": [None, 2, None], "agent": ["a", None, np.str_("b")], "nothing": [None] * 3, "known": [None] * 3,
        "mixed": ["a", 1, None], "rows": [[1.0], None, [2.0]],
    }  # fmt: skip
    kinds = {"known": str, "mixed": float}
    found = _trainers.of_data_set(columns, kinds)
    assert found.pop("level") == pytest.approx([math.nan, 2, math.nan], nan_ok=True)
    assert found == {"acc": [0.5, 1, True], "agent": ["a", "", "b"], "known": ["", "", ""]}
    assert kinds["acc"] is float and kinds["agent"] is str
