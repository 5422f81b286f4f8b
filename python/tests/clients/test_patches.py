"""OpenRLHF 0.11.2 and NeMo-RL (7ea279ab) have no hook: the patches beside their own functions.

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


def owner(maker, estimator, coef=0.01):
    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=3, max_new_tokens=8),
        algo=SimpleNamespace(advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)),
        reward=MagicMock(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None),
    )
    self = maker.__new__(maker)
    self.strategy, self.args, self.advantage_estimator = SimpleNamespace(args=args), args, estimator
    self.kl_ctl = SimpleNamespace(value=coef)
    return self


@pytest.mark.parametrize("estimator", ["dr_grpo", "rloo"])
def test_openrlhfs_own_advantage_and_the_recipes_are_the_same(maker, recipe, estimator, monkeypatch):
    monkeypatch.setattr(sys.modules[maker.__module__], "apply_length_penalties", lambda *_: None)
    own = owner(maker, estimator)
    torch.manual_seed(0)
    expected = own.compute_advantages_and_returns(experiences())
    recipe(estimator)
    openrlhf.patch()
    openrlhf.patch()
    torch.manual_seed(0)
    found = own.compute_advantages_and_returns(experiences())
    for theirs, ours in zip(expected, found):
        assert torch.allclose(ours.advantages, theirs.advantages * theirs.action_mask, atol=1e-6)
        assert ours.info["advlab/serial"].tolist() == [0.0] * len(ours.index)


def test_openrlhfs_kl_in_the_reward_is_not_lost_in_silence(maker, recipe):
    recipe(MEAN)
    openrlhf.patch()
    with pytest.raises(ValueError, match="--algo.kl.use_loss"):
        owner(maker, "dr_grpo").compute_advantages_and_returns(experiences(with_kl=True))


def test_nemo_rls_own_advantage_and_the_recipes_are_the_same(recipe, theirs):
    module = theirs("nemo_rl.algorithms.advantage_estimator")
    generator = torch.Generator().manual_seed(0)
    prompts = torch.tensor([[5, 6], [7, 8], [5, 6], [5, 6], [7, 8], [7, 8]])
    rewards, mask = torch.rand(6, generator=generator), torch.ones(6, 4)
    mask[1, 2:] = 0
    settings = SimpleNamespace(use_leave_one_out_baseline=True, normalize_rewards=False)
    expected = module.GRPOAdvantageEstimator(settings, None).compute_advantage(prompts, rewards, mask)
    recipe("rloo")
    found = nemo_rl.AdvantageEstimator().compute_advantage(prompts, rewards, mask, repeated_batch={"reward/right": rewards})
    assert torch.allclose(found, expected * mask, atol=1e-6)


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
            assert (made.mean, "weight" in made.refuses) == (mean, config is None)
