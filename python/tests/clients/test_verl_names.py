"""Every name of verl's in `cli/src/doc/trainers.toml`: verl's own function on random ragged batches, or by how much
the recipe differs, as its row states."""

import copy
import tomllib
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl", reason="verl is not installed: pip install verl==0.9.1")

from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import SUPPORTED_ROLLOUT_RS_OPTIONS, compute_rollout_rejection_mask
from verl.workers.config import ActorConfig

import advlab

ROOT = Path(__file__).resolve().parents[3]
ROWS = {row["theirs"]: row for row in tomllib.loads((ROOT / "cli/src/doc/trainers.toml").read_text())["verl"]["names"]}
GROUPS, SIZE, WIDTH = 7, 5, 13

NOT_IN_THE_WHEEL = {"recipe/prime": "verl's recipes are a repository of their own"}


def settings(row):
    pairs = (pair.split("=", 1) for pair in row.get("set", "").split())
    return {name: value for name, value in pairs}


class Batch:
    """Ragged responses of ragged groups in any order, with holes where `holes`."""

    def __init__(self, seed, holes=False):
        draw = np.random.default_rng(seed)
        sizes = draw.integers(2, SIZE + 1, GROUPS)
        uid = np.repeat(np.arange(GROUPS), sizes)
        draw.shuffle(uid)
        rows = len(uid)
        lengths = draw.integers(1, WIDTH + 1, rows)
        mask = np.arange(WIDTH) < lengths[:, None]
        if holes:
            mask[:, 1] &= draw.random(rows) < 0.5
            mask[:, 0] = True
        self.uid = np.array([f"uid-{id}" for id in uid], dtype=object)
        self.mask = torch.from_numpy(mask.astype(np.int64))
        score = torch.from_numpy(draw.random(rows))
        self.rewards = torch.zeros(rows, WIDTH, dtype=torch.float64)
        last = torch.tensor([row.nonzero()[0].max() for row in mask])
        self.rewards[torch.arange(rows), last] = score
        noise = lambda low, high: torch.from_numpy(draw.uniform(low, high, (rows, WIDTH)))
        self.old, self.ref, self.value = noise(-2, -0.05), noise(-2, -0.05), noise(-1, 1)
        # Within what nobody clamps, and beyond every clip.
        self.logp = (self.old + noise(-0.8, 0.8)).clamp(max=-0.01).requires_grad_()
        self.rollout = self.old + noise(-0.8, 0.8)
        self.squares, self.baseline = noise(0.1, 0.9), torch.from_numpy(draw.random(rows))
        self.advantage = torch.from_numpy(draw.normal(size=rows))[:, None] * self.mask

    def given(self):
        return {"groups": self.uid, "mask": self.mask, "token_reward": self.rewards, "reward": self.rewards.sum(-1)}


def estimated(batch, row, verls, columns):
    """verl's advantages and ours, [B, T]."""
    call = {"token_level_rewards": batch.rewards.clone(), "response_mask": batch.mask, "index": batch.uid}
    name = row["theirs"].split()[0].partition("=")[2]
    theirs = core_algos.ADV_ESTIMATOR_REGISTRY[name](**call, **verls(batch))[0]
    ours = advlab.load(row["ours"], **settings(row)).advantage(**batch.given(), **columns(batch)).advantage
    return theirs * batch.mask, ours[:, None] * batch.mask if ours.dim() == 1 else ours


def whitened(batch, theirs):
    """verl whitens by the sample's standard deviation, recipes by the population's."""
    tokens = batch.mask.sum()
    return theirs * (tokens / (tokens - 1)).sqrt()


def gpg(batch, theirs):
    """verl's alpha counts the rewards that are not 0: here all, as the recipe's counts the groups whose rewards differ."""
    assert (batch.rewards.sum(-1) != 0).all()
    return theirs


def over_responses(batch, theirs):
    """verl whitens over tokens: the same values, normalised over responses."""
    of_response = theirs[torch.arange(len(theirs)), batch.mask.argmax(1)]
    return (((of_response - of_response.mean()) / of_response.std())[:, None]) * batch.mask


BY_STD = OmegaConf.create({"norm_adv_by_std_in_grpo": True})
UNDISCOUNTED = OmegaConf.create({"gamma": 1.0})

NOTHING = lambda b: {}
SQUARES = (
    lambda b: {"old_log_probs": b.old, "sum_pi_squared": b.squares},
    lambda b: {"old_logp": b.old, "sum_pi_squared": b.squares},
    None,
)
# Of verl, what its function takes beside the rewards; the columns of ours; what the difference that the row states makes.
ESTIMATORS = {
    "grpo": (NOTHING, NOTHING, None),
    "grpo norm_adv_by_std_in_grpo=False": (lambda b: {"norm_adv_by_std_in_grpo": False}, NOTHING, None),
    "grpo_vectorized": (NOTHING, NOTHING, None),
    "rloo": (NOTHING, NOTHING, None),
    "rloo_vectorized": (NOTHING, NOTHING, None),
    "gdpo": (NOTHING, NOTHING, over_responses),
    "opo": (NOTHING, NOTHING, None),
    "gpg": (NOTHING, NOTHING, gpg),
    "grpo_passk": (lambda b: {"config": BY_STD}, NOTHING, None),
    "remax": (lambda b: {"reward_baselines": b.baseline}, lambda b: {"reward_baseline": b.baseline}, None),
    "reinforce_plus_plus": (lambda b: {"config": UNDISCOUNTED}, NOTHING, whitened),
    "reinforce_plus_plus_baseline": (NOTHING, NOTHING, whitened),
    "gae": (None, None, whitened),
    "tir_optimal_token_baseline": SQUARES,
    "optimal_token_baseline": SQUARES,
}
ESTIMATORS = {f"adv_estimator={name}": row for name, row in ESTIMATORS.items()}
WITHOUT_HOLES = {"adv_estimator=optimal_token_baseline"}


def largest(values):
    """The largest of some differences, as `measured` says it: by its first digit."""
    return float(f"{float(values.abs().max()):.0e}")


def same_numbers(name, found):
    """A row of the table in docs/recipes.md says what was measured; rounding may be another on another processor."""
    stated, found = ROWS[name]["measured"], max(found)
    assert found <= max(3 * stated, 1e-12) and (stated < 1e-5 or stated <= 1.5 * found), f"{name}: measured = {found}"


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("adv_estimator=")])
def test_an_estimator_gives_verls_numbers(name):
    if name not in ESTIMATORS:
        pytest.fail(f"{name} has a recipe, and no call here")
    same_numbers(name, [estimator_differs(name, seed) for seed in range(4)])


def estimator_differs(name, seed):
    verls, columns, difference = ESTIMATORS[name]
    batch = Batch(seed, holes=seed % 2 == 1 and name not in WITHOUT_HOLES)
    if name == "adv_estimator=gae":
        theirs = core_algos.compute_gae_advantage_return(batch.rewards, batch.value, batch.mask, 0.9, 0.8)[0] * batch.mask
        ours = advlab.load("gae", gamma=0.9, **{"lambda": 0.8}).advantage(**batch.given(), value=batch.value).advantage
    else:
        theirs, ours = estimated(batch, ROWS[name], verls, columns)
    expected = difference(batch, theirs) if difference else theirs
    assert ours.shape == theirs.shape and torch.allclose(ours, expected.to(ours.dtype), atol=2e-6), (ours - expected).abs().max()
    return largest(ours - theirs)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.get("differs", "").startswith("a group of one keeps")])
def test_a_group_of_one_is_where_they_differ(name):
    batch = Batch(0)
    batch.uid = np.array([f"uid-{row}" for row in range(len(batch.uid))], dtype=object)
    verls, columns, _ = ESTIMATORS[name]
    theirs, ours = estimated(batch, ROWS[name], verls, columns)
    assert (ours == 0).all()
    assert torch.allclose(theirs, batch.rewards.sum(-1, keepdim=True) * batch.mask, atol=1e-5)


def actor(**more):
    policy_loss = more.pop("policy_loss", {})
    made = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **more)
    for name, value in policy_loss.items():
        object.__setattr__(made.policy_loss, name, value)
    return made


def verls_loss(batch, mode="vanilla", aggregate="token-mean", weights=None, **config):
    loss = core_algos.get_policy_loss_fn(mode)
    return loss(
        old_log_prob=batch.old, log_prob=batch.logp, advantages=batch.advantage, response_mask=batch.mask,
        loss_agg_mode=aggregate, config=actor(**config), rollout_is_weights=weights,
    )[0]  # fmt: skip


def kl(batch, kind):
    penalty = core_algos.kl_penalty(batch.logp, batch.ref, kind)
    return verls_loss(batch) + 0.3 * core_algos.agg_loss(penalty, batch.mask, "token-mean")


def bypassed(batch, **correction):
    """What a bypass of the trainer's own old log-probs makes of those of the rollout, here `old`."""
    return verls_loss(batch, "bypass_mode", policy_loss={"rollout_correction": correction})


def truncated(batch, level):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    weights, _ = compute_rollout_correction_weights(batch.old - batch.rollout, batch.mask, level, 2.0)
    return verls_loss(batch, weights=weights)


def rejected(batch, options, thresholds):
    """verl's loss over the tokens that its rejection leaves."""
    rest = copy.copy(batch)
    rest.mask, _ = compute_rollout_rejection_mask(batch.old - batch.rollout, batch.mask, options, thresholds)
    return verls_loss(rest)


HORIZON = {"horizon": WIDTH}
REINFORCE = {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_threshold": 2.0}
LOSSES = {
    "loss_mode=vanilla": (verls_loss, {}),
    "loss_mode=bypass_mode, ppo_clip": (lambda b: bypassed(b, loss_type="ppo_clip"), {}),
    "loss_mode=bypass_mode, reinforce, rollout_is=token": (lambda b: bypassed(b, **REINFORCE), {}),
    "loss_mode=gpg": (lambda b: verls_loss(b, "gpg"), {}),
    "loss_mode=gspo": (lambda b: verls_loss(b, "gspo", "seq-mean-token-mean"), {}),
    "loss_mode=cispo": (lambda b: verls_loss(b, "cispo"), {}),
    "loss_mode=sapo": (lambda b: verls_loss(b, "sapo"), {}),
    "loss_mode=geo_mean": (lambda b: verls_loss(b, "geo_mean"), {}),
    "loss_mode=dppo_tv": (lambda b: verls_loss(b, "dppo_tv", clip_ratio_c=20.0), {}),
    "loss_mode=dppo_kl": (lambda b: verls_loss(b, "dppo_kl", clip_ratio_c=20.0), {}),
    "loss_mode=kl_cov": (lambda b: verls_loss(b, "kl_cov"), {}),
    "loss_mode=dro": (lambda b: verls_loss(b, "dro", policy_loss={"dro_beta": 0.7}), {"beta": 0.7}),
    "rollout_is=token": (lambda b: truncated(b, "token"), {}),
    "rollout_is=sequence": (lambda b: truncated(b, "sequence"), {}),
    "rollout_rs=seq_mean_k1": (lambda b: rejected(b, "seq_mean_k1", "0.8_1.25"), {}),
    "kl_loss_type=low_var_kl": (lambda b: kl(b, "low_var_kl"), {"kl_beta": 0.3}),
    "kl_loss_type=low_var_kl+": (lambda b: kl(b, "low_var_kl+"), {"kl_beta": 0.3}),
    "loss_agg_mode=token-mean": (verls_loss, {}),
    "loss_agg_mode=seq-mean-token-mean": (lambda b: verls_loss(b, aggregate="seq-mean-token-mean"), {}),
    "loss_agg_mode=seq-mean-token-sum": (lambda b: verls_loss(b, aggregate="seq-mean-token-sum"), {}),
    "loss_agg_mode=seq-mean-token-sum-norm": (lambda b: verls_loss(b, aggregate="seq-mean-token-sum-norm"), HORIZON),
    "loss_agg_mode=token-sum": (lambda b: verls_loss(b, aggregate="token-sum"), {}),
}
GRADIENT_ALONE = {"loss_mode=dppo_tv", "loss_mode=dppo_kl"}
OTHERS = {"loss_mode=clip_cov", "DAPORewardManager", "algorithm.filter_groups", *NOT_IN_THE_WHEEL}


@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("adv_estimator=") and name not in OTHERS])
def test_a_loss_has_verls_value_and_gradient(name):
    if name not in LOSSES:
        pytest.fail(f"{name} has a recipe, and no call here")
    same_numbers(name, [loss_differs(name, seed) for seed in range(4)])


def loss_differs(name, seed):
    theirs, params = LOSSES[name]
    batch = Batch(seed, holes=seed % 2 == 1)
    value = theirs(batch)
    (gradient,) = torch.autograd.grad(value, batch.logp)
    ours = advlab.load(ROWS[name]["ours"], **settings(ROWS[name]), **params).loss(
        logp=batch.logp, old_logp=batch.old, ref_logp=batch.ref, mask=batch.mask, advantage=batch.advantage, groups=batch.uid,
        **({"rollout_logp": batch.rollout} if name.startswith("rollout_") else {}),
    )  # fmt: skip
    assert torch.allclose(ours.grad, gradient * batch.mask, atol=1e-6), (ours.grad - gradient).abs().max()
    if name not in GRADIENT_ALONE:
        assert ours.loss.item() == pytest.approx(value.item(), abs=1e-6)
    differences = torch.cat([(ours.loss - value)[None], ((ours.grad - gradient) * batch.mask).flatten() * batch.mask.sum()])
    return largest(differences)


THRESHOLDS = {"token_k1": "0.6_1.5", "seq_sum_k1": "0.3_2", "seq_mean_k1": "0.8_1.2"}


@pytest.mark.parametrize("option", sorted(SUPPORTED_ROLLOUT_RS_OPTIONS))
def test_each_option_of_rollout_rs_is_a_setting_of_rejection(option):
    """The names are those of the recipe's header: a threshold a_b of k1 is the bounds 1/b and 1/a here."""
    over, estimator = option.rsplit("_", 1)
    limits = {"over": over.removeprefix("seq_"), "estimator": estimator, "dual_clip": 3.0}
    seen = set()
    for seed in range(4):
        batch = Batch(seed, holes=seed % 2 == 1)
        threshold = THRESHOLDS.get(option, "0.1" if "sum" not in option else "0.5")
        low, _, high = threshold.rpartition("_")
        limits |= {"low": 1 / float(high), "high": 1 / float(low)} if low else {"high": float(high)}
        value = rejected(batch, option, threshold)
        (gradient,) = torch.autograd.grad(value, batch.logp)
        ours = advlab.load("rejection", **limits).loss(
            logp=batch.logp, old_logp=batch.old, rollout_logp=batch.rollout, mask=batch.mask, advantage=batch.advantage,
            groups=batch.uid,
        )  # fmt: skip
        assert ours.loss.item() == pytest.approx(value.item(), abs=1e-9)
        assert torch.allclose(ours.grad, gradient * batch.mask, atol=1e-9)
        seen |= set((gradient[batch.mask > 0] == 0).tolist())
    assert seen == {True, False}, "some tokens are rejected, and some are not"


def test_a_kl_beyond_10_is_where_low_var_kl_differs():
    far, zero = torch.full((1, 1), 3.0, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    assert core_algos.kl_penalty(zero, far, "low_var_kl").item() == 10
    columns = {"logp": zero, "old_logp": zero, "ref_logp": far, "advantage": zero, "groups": [0]}
    assert advlab.load("ppo_clip", kl_beta=1.0).loss(**columns).loss.item() == pytest.approx(np.exp(3) - 4)


def test_clip_cov_draws_other_tokens_and_is_ppos_loss_without_any():
    batch = Batch(3)
    theirs = verls_loss(batch, "clip_cov", policy_loss={"clip_cov_lb": 90.0, "clip_cov_ub": 99.0})
    columns = {"logp": batch.logp, "old_logp": batch.old, "mask": batch.mask, "advantage": batch.advantage}
    ours = advlab.load("clip_cov", cov_low=90.0, cov_high=99.0).loss(groups=batch.uid, **columns)
    assert ours.loss.item() == pytest.approx(theirs.item(), abs=1e-6)


def test_dapos_penalty_has_no_floor_with_verl():
    """Of verl's reward manager the formula, as its `__call__` wants a tokenizer: min(-exceed / buffer * factor, 0)."""
    import inspect

    from verl.workers.reward_manager.dapo import DAPORewardManager

    source = inspect.getsource(DAPORewardManager.__call__)
    assert "min(-exceed_len / overlong_buffer_len * overlong_penalty_factor, 0)" in source
    recipe = advlab.load("dapo_overlong", max_length=12, buffer=4, factor=0.5)
    length = np.array([3, 8, 10, 12, 14])
    out = recipe.advantage(groups=[0] * 5, reward=np.ones(5), length=length)
    verls = 1 + np.minimum(-(length - (12 - 4)) / 4 * 0.5, 0)
    assert out.reward[:4].tolist() == verls[:4].tolist() and (out.reward[4], verls[4]) == (0.5, 0.25)
