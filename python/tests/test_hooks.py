"""The contracts of slime, SkyRL and rLLM, as their trainers call their hooks."""

import json
import sys
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
    recipe("fn advantage(batch, p) { batch.length }")
    assert slime.post_process_rewards(args(), [samples()[:2], samples()[2:]])[1] == [2.0] * 4


def test_slime_is_not_given_what_it_would_change(recipe):
    recipe(MEAN)
    for settings, option in [
        ({"normalize_advantages": True}, "--normalize-advantages"),
        ({"advantage_estimator": "ppo"}, "set grpo"),
    ]:
        with pytest.raises(ValueError, match=option):
            slime.post_process_rewards(args(**settings), samples())
    with pytest.raises(ValueError, match="a reward"):
        slime.post_process_rewards(args(), samples(rewards=(None, 1.0, 1.0, 1.0)))
    recipe(BY_TOKEN)
    with pytest.raises(ValueError, match="each response"):
        slime.post_process_rewards(args(), samples())


def test_weights_that_a_trainer_would_not_take_are_refused(recipe):
    recipe("fn weight(batch, p) { batch.reward > 0 } " + MEAN)
    with pytest.raises(ValueError, match="gives weights of responses"):
        slime.post_process_rewards(args(), samples())
    assert slime.post_process_rewards(args(), samples(rewards=(1.0, 0.5, 0.5, 1.0)))[1] == [0.25, -0.25, -0.25, 0.25]


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
        assert _trainers.from_environment("SkyRL", gamma=0.5).params["gamma"] == gamma
    recipe("gae", gamma=0.25)
    assert _trainers.from_environment("SkyRL", gamma=0.5).params["gamma"] == 0.25


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
