"""OpenRLHF 0.11.2 and NeMo-RL (7ea279ab) have no hook: the patches in the place of their own functions, which `whole/test_loops.py`
runs in the trainers' loops.

Run with their sources on PYTHONPATH, such as a checkout or the `purelib` of an unpacked wheel; what they import of a GPU's is stood
in for.
"""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

torch = pytest.importorskip("torch")

from scripts import MEAN

import advlab
from advlab import nemo_rl, openrlhf


@pytest.fixture
def maker(theirs):
    module = theirs("openrlhf.trainer.ppo_utils.experience_maker")
    own = module.RemoteExperienceMaker.compute_advantages_and_returns
    yield module.RemoteExperienceMaker
    module.RemoteExperienceMaker.compute_advantages_and_returns = own


def experiences(with_kl=False):
    """Six responses of two prompts, in two parts of different widths and in another order."""
    made = []
    for index, width in (([3, 0, 5, 1], 4), ([2, 4], 6)):
        mask = torch.ones(len(index), width, dtype=torch.long)
        mask[0, 2:] = 0
        logp = -torch.rand(len(index), width)
        made.append(
            SimpleNamespace(
                index=index, rewards=torch.tensor([float(place % 3) for place in index]), action_mask=mask, action_log_probs=logp,
                base_action_log_probs=None, rollout_log_probs=None, values=None, info={}, returns=None, advantages=None,
                response_length=mask.sum(1), kl=torch.full(mask.shape, 0.1 if with_kl else 0.0),
            )
        )  # fmt: skip
    return made


def test_openrlhfs_kl_in_the_reward_is_not_lost_in_silence(maker, recipe):
    recipe(MEAN)
    openrlhf.patch()
    own = maker.__new__(maker)
    own.kl_ctl = SimpleNamespace(value=0.01)
    with pytest.raises(ValueError, match="--algo.kl.use_loss"):
        own.compute_advantages_and_returns(experiences(with_kl=True))


def test_rows_that_nemo_rl_leaves_out_are_no_responses(recipe):
    recipe(MEAN)
    prompts, rewards = torch.tensor([[5], [5], [5]]), torch.tensor([1.0, 0.0, 9.0])
    found = nemo_rl.AdvantageEstimator().compute_advantage(
        prompts, rewards, torch.ones(3, 2), valid_mask=torch.tensor([1.0, 1.0, 0.0]), logprobs_policy=torch.zeros(3, 2)
    )
    assert found.tolist() == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]]


WEIGHTED = "fn weight(batch, p) { batch.reward > 0 } fn advantage(batch, p) { batch.reward }"


def test_nemo_rls_mean_is_that_of_the_weights(recipe):
    recipe(WEIGHTED)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    call = {"prompt_ids": torch.tensor([[5], [5], [5]]), "rewards": torch.tensor([1.0, 0.0, 2.0]), "mask": mask}
    for token_level_loss, share in [(True, 6 / 5), (False, 3 / 2)]:
        found = nemo_rl.AdvantageEstimator(token_level_loss).compute_advantage(**call)
        assert torch.allclose(found, share * call["rewards"][:, None] * mask)
    with pytest.raises(advlab.RecipeError, match="`weight`: `loss_fn.token_level_loss` was not found"):
        nemo_rl.AdvantageEstimator().compute_advantage(**call)
    with pytest.raises(advlab.RecipeError, match="advantage_clip_low"):
        nemo_rl.AdvantageEstimator(True, clips=True).compute_advantage(**call)


def test_openrlhfs_mean_is_that_of_the_weights(recipe):
    recipe(WEIGHTED)
    for mean in ("tokens", "responses"):
        made = experiences()
        openrlhf.replace(made, 3, mean)
        rewards = torch.cat([one.rewards for one in made])
        tokens = torch.cat([one.action_mask.sum(1) for one in made]) if mean == "tokens" else torch.ones(6)
        share = tokens.sum() / tokens[rewards > 0].sum()
        found = torch.cat([one.advantages[:, 0] for one in made])
        assert torch.allclose(found, share * rewards)


def test_the_patch_says_where_nemo_rl_is_another(monkeypatch):
    module = MagicMock(spec=[])
    monkeypatch.setitem(sys.modules, "nemo_rl", module)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms", module)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms.grpo", module)
    with pytest.raises(ImportError, match="_create_advantage_estimator"):
        nemo_rl.patch()
    module._create_advantage_estimator = None
    sync = SimpleNamespace(_create_advantage_estimator=None)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms.grpo_sync", sync)
    nemo_rl.patch()
    for config, mean in [(None, "tokens"), ({"loss_fn": {"token_level_loss": False}}, "responses")]:
        for of in (module, sync):
            made = of._create_advantage_estimator(config)
            assert isinstance(made, nemo_rl.AdvantageEstimator)
            assert (made.mean, made.no_weights is None) == (mean, config is not None)
