"""The functions that docs/trainers.md has for trainers with a registry, called as each trainer does, with its sources on PYTHONPATH."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scripts import MEAN, documented

from advlab import slime

REWARDS = [1.0, 0.0, 3.0, 5.0]


@pytest.fixture
def example(script, monkeypatch, tmp_path):
    """Runs a block of the page, and gives its names."""

    def run(words):
        script(MEAN)
        monkeypatch.chdir(tmp_path)
        names = {"__name__": "example"}
        exec(documented("python", words, page="trainers"), names)
        return SimpleNamespace(**names)

    return run


@pytest.fixture
def bare(monkeypatch):
    """Packages without what their first files import."""

    def stand_in(*names):
        found = importlib.util.find_spec(names[0].partition(".")[0])
        if found is None:
            pytest.skip(f"{names[0]} is not there: its sources' folder belongs on PYTHONPATH")
        (root,) = found.submodule_search_locations
        for name in names:
            module = ModuleType(name)
            module.__path__ = ["/".join([root, *name.split(".")[1:]])]
            monkeypatch.setitem(sys.modules, name, module)

    return stand_in


def test_labs_molt(theirs, example, monkeypatch):
    theirs("molt")
    own = theirs("molt.trainer.algorithm.advantage")
    monkeypatch.setattr(own, "ADVANTAGE_ESTIMATORS", dict(own.ADVANTAGE_ESTIMATORS))
    masks = [torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), torch.ones(2, 2)]
    context = own.AdvantageContext(torch.arange(4), [2, 2], masks, 0.0, 1.0, 1.0, [])
    call = torch.tensor(REWARDS), [[0, 3], [1, 2]], context
    expected = own.get_advantage_estimator("dr_grpo")(*call)
    made = example("labs-molt")
    assert own.get_advantage_estimator("dr_grpo") is made.estimate
    for one, other in zip(made.estimate(*call)[0], expected[0], strict=True):
        assert torch.equal(one, other)
    made.recipe.close()


def test_rlinf(theirs, example):
    theirs("rlinf.algorithms.advantages")
    own = theirs("rlinf.algorithms.registry")
    made = example("# RLinf")
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1]])
    call = {"task_type": "reasoning", "adv_type": "raw", "rewards": torch.tensor(REWARDS), "loss_mask": mask, "group_size": 2}
    found, _ = own.calculate_adv_and_returns(**call, logprob=torch.zeros(4, 3), ref_logprob=None)
    assert torch.equal(found, torch.tensor([0.5, -0.5, -1.0, 1.0])[:, None] * mask)
    made.recipe.close()


def test_tunix(bare, example):
    bare("tunix", "tunix.rl")
    made = example("# tunix")
    estimate = importlib.import_module("tunix.rl.function_registry").get_advantage_estimator("grpo")
    assert estimate(rewards=np.array(REWARDS), num_generations=2).tolist() == [0.5, -0.5, -1.0, 1.0]
    made.recipe.close()


def test_xtuner(theirs, example):
    theirs("xtuner.v1.rl.advantage.config")
    made = example("# xtuner")
    assert made.Config().build().compute(torch.tensor(REWARDS[:2]), [None] * 2).tolist() == [0.5, -0.5]
    made.recipe.close()


def test_miles(theirs, recipe):
    conversion, sample = theirs("miles.ray.rollout.train_data_conversion"), theirs("miles.utils.types").Sample
    recipe(MEAN)
    samples = [sample(group_index=at // 2, reward=one, response_length=2, loss_mask=[1, 1]) for at, one in enumerate(REWARDS)]
    args = SimpleNamespace(advantage_estimator="grpo", rewards_normalization=True, reward_key=None)
    found = conversion._post_process_rewards(args, samples, slime.post_process_rewards)
    assert found == (REWARDS, [0.5, -0.5, -1.0, 1.0])
