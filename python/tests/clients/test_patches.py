"""OpenRLHF 0.11.2 and NeMo-RL (0.7.0, 7ea279ab, and 4454bce8, which has `AdvantageResult`) have no hook: the patches in the place of
their own functions, which `whole/test_loops.py` runs in the trainers' loops.

Run with their sources on PYTHONPATH, such as a checkout or the `purelib` of an unpacked wheel; what they import of a GPU's is stood
in for.
"""

import asyncio
import collections
import contextlib
import pickle
import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest

torch = pytest.importorskip("torch")

from scripts import MEAN

import advlab
from advlab import _trainers, nemo_rl, openrlhf


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


COUNTED = 'fn init(p) { #{ calls: 0 } } fn advantage(batch, p) { this.calls += 1; 1 + batch.reward - batch.reward.mean("group") }'


@pytest.mark.parametrize("valid", [None, torch.zeros(3)])
def test_a_batch_of_rejected_rows_of_nemo_rl_is_no_step(recipe, valid):
    """NeMo-RL's own baselines of a prompt without valid rows are the rewards, and so its advantages are 0."""
    for text in (COUNTED, COUNTED.replace('mean("group")', 'last("trajectory")'), "gae"):
        recipe(text)
        mask = torch.zeros(3, 2) if valid is None else torch.ones(3, 2)
        more = {"values": torch.ones(3, 2)} if text == "gae" else {}
        found = nemo_rl.AdvantageEstimator().compute_advantage(
            torch.tensor([[5]] * 3), torch.tensor([1.0, 0.0, 9.0]), mask, valid_mask=valid, **more
        )
        assert all(torch.equal(one, torch.zeros(3, 2)) for one in (found if more else [found]))
    states = [live.state_dict()["state"] for live in _trainers._live.values()]
    assert states[:2] == [{"calls": 0}] * 2


def test_a_batch_of_rejected_responses_of_openrlhf_is_no_step(recipe):
    recipe(COUNTED)
    made = experiences()
    for one in made:
        one.action_mask.zero_()
    openrlhf.replace(made, 3)
    assert all(torch.equal(one.advantages, torch.zeros(one.action_mask.shape)) for one in made)
    assert [live.state_dict()["state"] for live in _trainers._live.values()] == [{"calls": 0}]


WEIGHTED = "fn weight(batch, p) { batch.reward > 0 } fn advantage(batch, p) { batch.reward }"


def of_nemo_rl(token_level_loss, **settings):
    return nemo_rl.AdvantageEstimator({"loss_fn": {"token_level_loss": token_level_loss}, "grpo": settings})


NEMO_CALL = {
    "prompt_ids": torch.tensor([[5], [5], [5]]), "rewards": torch.tensor([1.0, 0.0, 2.0]),
    "mask": torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]),
}  # fmt: skip


def test_nemo_rls_mean_is_that_of_the_weights(recipe):
    recipe(WEIGHTED)
    for token_level_loss, share in [(True, 6 / 5), (False, 3 / 2)]:
        found = of_nemo_rl(token_level_loss).compute_advantage(**NEMO_CALL)
        assert torch.allclose(found, share * NEMO_CALL["rewards"][:, None] * NEMO_CALL["mask"])
    with pytest.raises(advlab.RecipeError, match="`weight`: weights need `loss_fn.token_level_loss`, which was not found"):
        nemo_rl.AdvantageEstimator().compute_advantage(**NEMO_CALL)


@pytest.mark.parametrize("setting", ["advantage_clip_low", "invalid_tool_call_advantage", "malformed_thinking_advantage"])
def test_what_nemo_rl_does_to_the_advantages_later_is_told(recipe, caplog, setting):
    recipe(MEAN)
    assert of_nemo_rl(True, **{setting: -1.0}).compute_advantage(**NEMO_CALL)[0].tolist() == [0.0] * 3
    assert f"changes the recipe's advantages afterwards, because of `grpo.{setting}`" in caplog.text
    recipe(WEIGHTED)
    with pytest.raises(advlab.RecipeError, match=f"`weight`: `grpo.{setting}` would change"):
        of_nemo_rl(True, **{setting: -1.0}).compute_advantage(**NEMO_CALL)


def test_nemo_rl_gets_the_type_that_it_takes(recipe, monkeypatch):
    """A tensor, with a critic's values a pair, and in a version that has it an `AdvantageResult`."""
    recipe("gae", whiten=False)
    critic = {"ppo": {"adv_estimator": {"name": "gae", "gae_gamma": 0.5, "gae_lambda": 1.0}}}
    call = {**NEMO_CALL, "logprobs": torch.zeros(3, 3), "reference_logprobs": None, "values": torch.full((3, 3), 0.25)}
    advantages, returns = nemo_rl.AdvantageEstimator(critic).compute_advantage(**call)
    expected = torch.tensor([[0.5, 1.0, 0.0], [0.0, 0.0, 0.0], [0.5, 1.0, 2.0]])
    assert torch.allclose(returns, expected) and torch.allclose(advantages, (expected - 0.25) * call["mask"])
    module = SimpleNamespace(AdvantageResult=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms.advantage_estimator", module)
    found = nemo_rl.AdvantageEstimator(critic).compute_advantage(**call)
    assert torch.equal(found.advantages, advantages) and torch.equal(found.returns, returns)
    recipe('fn advantage(batch, p) { metric("seen", 2); batch.reward }')
    found = nemo_rl.AdvantageEstimator().compute_advantage(**NEMO_CALL)
    assert found.advantages[:, 0].tolist() == [1.0, 0.0, 2.0] and found.returns is None and found.metrics["advlab/seen"] == 2.0


def test_log_probs_of_nemo_rl_are_columns_unless_it_skips_them(recipe):
    """Asynchronous GRPO also passes the sampler's, and with its teachers theirs; what is skipped is zeros."""
    recipe("fn advantage(batch, p) { batch.old_logp + 10 * batch.ref_logp + 100 * batch.rollout_logp + 1000 * batch.teacher_logp }")
    names = ("logprobs_policy", "logprobs_reference", "generation_logprobs", "teacher_logprobs")
    logps = {name: -torch.rand(3, 3) for name in names}
    more = {"prev_logprobs": logps["logprobs_policy"], "sample_mask": torch.ones(3)}
    found = nemo_rl.AdvantageEstimator().compute_advantage(**NEMO_CALL, **logps, **more)
    expected = sum(10**place * logp for place, logp in enumerate(logps.values()))
    assert torch.allclose(found, expected * NEMO_CALL["mask"], rtol=1e-5)
    for name, words in [
        ("logprobs_policy", "`old_logp`(.|\n)*force_on_policy_ratio"), ("teacher_logprobs", "`teacher_logp`(.|\n)*on_policy_distillation"),
        ("logprobs_reference", "`ref_logp`(.|\n)*skip_reference_policy_logprobs"), ("generation_logprobs", "`rollout_logp`(.|\n)*asynchronous"),
    ]:  # fmt: skip
        with pytest.raises(advlab.RecipeError, match=f"no column {words}"):
            nemo_rl.AdvantageEstimator().compute_advantage(**NEMO_CALL, **{**logps, name: torch.zeros(3, 3)})


@pytest.mark.parametrize("is_ppo", [False, True])
def test_calls_for_parts_of_a_step_are_told_and_have_no_weights(recipe, caplog, is_ppo):
    """SingleController's, unless a call has all prompts of a step."""
    recipe(WEIGHTED)

    def made(groups):
        prompts = {"num_prompts_per_step": 64}
        algorithms = {"grpo": {"num_prompts_per_step": 32}, "ppo": prompts} if is_ppo else {"grpo": prompts}
        return nemo_rl.AdvantageEstimator(
            {"loss_fn": {"token_level_loss": True}, "async_rl": {"min_groups_for_streaming_train": groups}, **algorithms}
        )

    assert made(64).compute_advantage(**NEMO_CALL)[2].tolist() == pytest.approx([12 / 5] * 3) and "parts of" not in caplog.text
    with pytest.raises(advlab.RecipeError, match="`weight`: SingleController calls the recipe for parts of a step: set .* to 64"):
        made(32).compute_advantage(**NEMO_CALL)
    assert "each call may be a step of the recipe" in caplog.text
    recipe("ppo_clip")
    with pytest.raises(advlab.RecipeError, match="`loss`"):
        made(32).compute_advantage(**NEMO_CALL, logprobs_policy=-torch.ones(3, 3))


def test_nemo_rls_single_controller_gets_the_advantages_of_the_recipe(theirs, recipe, monkeypatch):
    """In its own stage, whose estimator has been sent to Ray's actor."""
    grpo, setup = theirs("nemo_rl.algorithms.grpo"), None
    with contextlib.suppress(ModuleNotFoundError):
        setup = theirs("nemo_rl.algorithms.single_controller_utils.setup")
    if setup is None:
        pytest.skip("this version of NeMo-RL has no SingleController")
    controllers, config = (theirs(f"nemo_rl.algorithms.single_controller{name}") for name in ("", "_utils.config"))
    for module in (grpo, setup):
        monkeypatch.setattr(module, "_create_advantage_estimator", module._create_advantage_estimator)
    nemo_rl.patch()
    recipe('fn advantage(batch, p) { batch.reward - batch.reward.mean("group") + batch.old_logp }')
    table = {
        "prompt_ids_for_adv": torch.tensor([[5, 6], [7, 0], [5, 6], [7, 0], [7, 0]]), "total_reward": torch.tensor([[1.0], [2], [0], [4], [99]]),
        "token_mask": torch.tensor([[0, 1, 1]] * 5), "sample_mask": torch.tensor([1.0, 1, 1, 1, 0]),
        "prev_logprobs": -torch.rand(5, 3), "generation_logprobs": -torch.rand(5, 3),
    }  # fmt: skip
    written = {}
    actor = controllers.SingleControllerActor.__ray_metadata__.modified_class
    own = object.__new__(actor)
    own._advantage_estimator = pickle.loads(pickle.dumps(setup._create_advantage_estimator({"loss_fn": {"token_level_loss": True}})))
    own._advantage_cfg, own._step_log_dict = config.AdvantageConfig(), collections.defaultdict(list)
    own._policy_logprobs_required, own._reference_logprobs_required = True, False
    own._master_config = SimpleNamespace(grpo=SimpleNamespace(seq_logprob_error_threshold=None))
    own._dp_client = SimpleNamespace(
        get_samples=lambda select_fields, **_: {name: table[name] for name in select_fields},
        put_samples=lambda fields, **_: written.update(fields),
    )
    rows = SimpleNamespace(sample_ids=list(range(5)), partition_id="x", sequence_lengths=None, size=5, with_fields=lambda names: names)
    asyncio.run(own._advantage_stage(rows))
    expected = torch.tensor([0.5, -1, -0.5, 1, 0])[:, None] + table["prev_logprobs"]
    assert torch.allclose(written["advantages"], expected * table["token_mask"] * table["sample_mask"][:, None], atol=1e-6)


def test_nemo_rls_two_estimators_are_the_recipes(theirs, monkeypatch):
    """GRPO's, which two modules import, and PPO's own."""
    grpo, ppo = (theirs(f"nemo_rl.algorithms.{name}") for name in ("grpo", "ppo"))
    importer = ModuleType("nemo_rl.importer")
    importer.create, importer.of_critic = grpo._create_advantage_estimator, ppo._create_advantage_estimator
    monkeypatch.setitem(sys.modules, "nemo_rl.importer", importer)
    for module in (grpo, ppo):
        monkeypatch.setattr(module, "_create_advantage_estimator", module._create_advantage_estimator)
    for _ in range(2):
        nemo_rl.patch()
        for found in (grpo._create_advantage_estimator, ppo._create_advantage_estimator, importer.create, importer.of_critic):
            assert found is nemo_rl.AdvantageEstimator


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


@pytest.mark.parametrize(
    ("actor", "mean"),
    [
        ({"policy_loss_type": "ppo"}, "tokens"),
        ({"policy_loss_type": "ppo", "loss_agg_mode": "token-mean"}, "tokens"),
        ({"policy_loss_type": "ppo", "loss_agg_mode": "seq-mean-token-mean"}, "responses"),
        ({"policy_loss_type": "gspo", "loss_agg_mode": "token-mean"}, "responses"),
    ],
)
def test_openrlhfs_settings_say_its_mean(maker, recipe, monkeypatch, actor, mean):
    recipe(WEIGHTED)
    monkeypatch.setattr(maker, "compute_advantages_and_returns", lambda self, experiences: experiences)
    openrlhf.patch()
    own = maker.__new__(maker)
    settings = SimpleNamespace(actor=SimpleNamespace(**actor), rollout=SimpleNamespace(n_samples_per_prompt=3))
    own.kl_ctl, own.strategy = SimpleNamespace(value=0.0), SimpleNamespace(args=settings)
    found, expected = own.compute_advantages_and_returns(experiences()), experiences()
    openrlhf.replace(expected, 3, mean)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.advantages, other.advantages)
    other = experiences()
    openrlhf.replace(other, 3, "tokens" if mean == "responses" else "responses")
    assert not torch.equal(found[0].advantages, other[0].advantages)


def test_the_patch_says_where_nemo_rl_is_another(monkeypatch):
    module = MagicMock(spec=[])
    monkeypatch.setitem(sys.modules, "nemo_rl", module)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms", module)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms.grpo", module)
    with pytest.raises(ImportError, match="_create_advantage_estimator"):
        nemo_rl.patch()
    module._create_advantage_estimator = lambda config: None
    sync = SimpleNamespace(_create_advantage_estimator=module._create_advantage_estimator)
    monkeypatch.setitem(sys.modules, "nemo_rl.algorithms.grpo_sync", sync)
    nemo_rl.patch()
    for config, mean in [(None, "tokens"), ({"loss_fn": {"token_level_loss": False}}, "responses")]:
        for of in (module, sync):
            made = of._create_advantage_estimator(config)
            assert isinstance(made, nemo_rl.AdvantageEstimator)
            assert (made.mean, made.no_weights is None) == (mean, config is not None)
