"""A pytest plugin: trainers' own tests of advantages and losses, with recipes in the place of the functions that they test.

PYTHONPATH=.:$ADVLAB/python/tests/whole NUMBERS=recipes python -m pytest -p foreign_suites tests/trainer/ppo

in the folder of verl's sources. With NUMBERS=own, the trainer's functions stay; with NUMBERS=wrong, the recipes' numbers are made
wrong: a test that passes all the same does not judge them. A trainer's metrics stay its own. At the end, the plugin prints the
tests that called a recipe.
"""

import collections
import functools
import importlib.machinery
import inspect
import os
import sys
import typing
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
import typing_extensions

import advlab

NUMBERS = os.environ.get("NUMBERS", "recipes")
CALLS, OUTCOMES, REPLACED = collections.Counter(), {}, {}
CURRENT, WITHIN = "", False


def wrong(x):
    return x * 1.5 + 0.25 if NUMBERS == "wrong" else x


def advantage(name, mask, groups=None, given=None, **columns):
    CALLS[CURRENT] += 1
    groups = list(range(len(mask))) if groups is None else groups
    out = advlab.load(name, **(given or {})).advantage(groups=groups, mask=mask, **columns)
    a = out.advantage if out.advantage.dim() == 2 else out.advantage[:, None] * mask
    return wrong(a.to(torch.float32) if a.dtype != mask.dtype and mask.dtype.is_floating_point else a), out


def loss(name, mask=None, groups=None, given=None, **columns):
    CALLS[CURRENT] += 1
    rows = len(columns["logp"])
    mask = torch.ones_like(columns["logp"]) if mask is None else mask
    out = advlab.load(name, **(given or {})).loss(mask=mask, groups=list(range(rows)) if groups is None else groups, **columns)
    return SimpleNamespace(loss=wrong(out.loss), grad=out.grad)


def each(name, given, **columns):
    """The loss of each token, as the loss of a batch of this token alone."""
    shape = columns["logp"].shape
    flat = [
        {key: value.expand(shape).reshape(-1)[at].reshape(1, 1) for key, value in columns.items()} for at in range(shape.numel())
    ]
    return torch.stack([loss(name, given=given, **one).loss for one in flat]).reshape(shape)


def replaced(target):
    """A function of a trainer, `module:name` or `module:Class.method`, whose place the function takes that is decorated."""

    def take(function):
        REPLACED[target] = function
        return function

    return take


def named(function):
    """Calls it with the arguments of the trainer's function by name, with their defaults."""

    def call(own, *args, **kwargs):
        bound = inspect.signature(own).bind(*args, **kwargs)
        bound.apply_defaults()
        result = function(collections.namedtuple("Arguments", bound.arguments)(**bound.arguments))
        return own(*args, **kwargs) if result is NotImplemented else result

    return call


def in_place_of(own, function):
    """The function instead of a trainer's own, except within another that was replaced: what that one computes is not used."""

    @functools.wraps(own)
    def unseen(*args, **kwargs):
        global WITHIN
        before, WITHIN = WITHIN, True
        try:
            return own(*args, **kwargs)
        finally:
            WITHIN = before

    @functools.wraps(own)
    def ours(*args, **kwargs):
        return own(*args, **kwargs) if WITHIN else function(unseen, *args, **kwargs)

    return ours


# What several trainers have.


def estimator(name, **given):
    """An estimator of verl's and SkyRL's form: the sum of the token rewards is the reward."""

    @named
    def call(x):
        extra = {}
        if hasattr(x, "norm_adv_by_std_in_grpo") or hasattr(x, "grpo_norm_by_std"):
            std = getattr(x, "norm_adv_by_std_in_grpo", getattr(x, "grpo_norm_by_std", True))
            a, _ = advantage(
                "grpo" if std else "dr_grpo", x.response_mask, list(x.index), extra, reward=x.token_level_rewards.sum(-1)
            )
        else:
            a, _ = advantage(name, x.response_mask, list(x.index), given, reward=x.token_level_rewards.sum(-1))
        return a, a

    return call


@named
def gae(x):
    lam = getattr(x, "lam", getattr(x, "lambd", None))
    given = {"gamma": x.gamma, "lambda": lam}
    a, out = advantage("gae", x.response_mask, None, given, token_reward=x.token_level_rewards, value=x.values)
    return a, wrong(out.returns)


@named
def reinforce_pp(x):
    gamma = x.config.gamma if hasattr(x, "config") else x.gamma
    rewards = {"token_reward": x.token_level_rewards}
    a, _ = advantage("reinforce_pp", x.response_mask, None, {"kl_beta": 0.0, "gamma": gamma}, **rewards)
    return a, advantage("reinforce", x.response_mask, None, {"gamma": gamma}, **rewards)[0]


KL = {"kl": "k1", "k1": "k1", "abs": "abs", "k2": "k2", "mse": "k2", "k3": "k3", "low_var_kl": "k3"}


def kl(kind, logp, ref_logp):
    zero = torch.zeros_like(logp)
    given = {"kl": kind, "kl_beta": 1.0}
    return each("ppo_clip", given, logp=logp, old_logp=logp.detach(), ref_logp=ref_logp, advantage=zero)


VERL, HELPER = "verl.trainer.ppo.core_algos", "verl.trainer.ppo.rollout_corr_helper"
# Its vectorised forms stay verl's, and so judge these.
for of_verl, ours in {"grpo": "grpo", "rloo": "rloo"}.items():
    replaced(f"{VERL}:compute_{of_verl}_outcome_advantage")(estimator(ours))
replaced(f"{VERL}:compute_gae_advantage_return")(gae)
replaced(f"{VERL}:compute_reinforce_plus_plus_outcome_advantage")(reinforce_pp)


@replaced(f"{VERL}:kl_penalty")
@named
def verl_kl(x):
    kind = KL.get(x.kl_penalty.rstrip("+"))
    return NotImplemented if kind == "abs" or "+" not in x.kl_penalty else kl(kind + "+", x.logprob, x.ref_logprob)


@replaced(f"{VERL}:agg_loss")
@named
def agg_loss(x):
    mode = {
        "token-mean": "token",
        "token-sum": "token_sum",
        "seq-mean-token-mean": "response",
        "seq-mean-token-sum": "response_sum",
    }
    norm = x.loss_agg_mode == "seq-mean-token-sum-norm"
    given = {"aggregate": "response_sum_norm", "horizon": x.loss_scale_factor or x.loss_mask.shape[-1]} if norm else {
        "aggregate": mode[x.loss_agg_mode]}  # fmt: skip
    scale = x.dp_size
    if x.loss_agg_mode == "token-mean" and x.batch_num_tokens is not None:
        scale = scale * float(x.loss_mask.sum()) / x.batch_num_tokens
    if x.loss_agg_mode.startswith("seq") and x.global_batch_size is not None:
        scale = scale * float((x.loss_mask.sum(-1) > 0).sum()) / x.global_batch_size
    return loss("policy_gradient", x.loss_mask, given=given, logp=x.loss_mat, advantage=-torch.ones_like(x.loss_mat)).loss * scale


@replaced(f"{VERL}:compute_policy_loss_vanilla")
@named
def vanilla(x):
    c = x.config
    high, low = (c.clip_ratio if v is None else v for v in (c.clip_ratio_high, c.clip_ratio_low))
    given = {"clip_low": low, "clip_high": high, "dual_clip": c.clip_ratio_c, "aggregate": "token"}
    columns = {"logp": x.log_prob, "old_logp": x.old_log_prob, "advantage": x.advantages}
    if x.rollout_is_weights is None:
        return loss("ppo_clip", x.response_mask, given=given, **columns).loss, {}
    # A weight of 0 is one that is too small to be seen.
    columns["rollout_logp"] = x.old_log_prob - x.rollout_is_weights.clamp(min=1e-30).log()
    return loss("tis", x.response_mask, given={**given, "high": 1e9}, **columns).loss, {}


@replaced(f"{VERL}:compute_policy_loss_dro")
@named
def dro(x):
    beta = x.config.policy_loss.dro_beta
    columns = {"logp": x.log_prob, "old_logp": x.old_log_prob, "advantage": x.advantages}
    return NotImplemented if not beta else (loss("dro", x.response_mask, given={"beta": beta}, **columns).loss, {})


def gradient(name, gap, mask, **given):
    """The gradient of the loss of advantages of -1 at ratio 1, whose policies differ by `gap`: the weight of each token."""
    zero = torch.zeros_like(gap)
    columns = {"logp": zero, "old_logp": zero, "rollout_logp": -gap, "advantage": zero - 1}
    return wrong(loss(name, mask, given={**given, "aggregate": "token_sum"}, **columns).grad)


@replaced(f"{HELPER}:compute_rollout_correction_weights")
def verl_weights(own, log_ratio, response_mask, rollout_is="token", rollout_is_threshold=2.0, rollout_is_batch_normalize=False):
    _, metrics = own(log_ratio, response_mask, rollout_is, rollout_is_threshold, rollout_is_batch_normalize)
    low, _, high = str(rollout_is_threshold).rpartition("_")
    given = {"mode": "icepop" if low else "tis", "level": rollout_is, "low": float(low or 0), "high": float(high)}
    return gradient("tis", log_ratio, response_mask, normalize=rollout_is_batch_normalize, **given), metrics


@replaced(f"{HELPER}:compute_rollout_rejection_mask")
def verl_mask(own, log_ratio, response_mask, rollout_rs="token_k1", rollout_rs_threshold=None):
    _, metrics = own(log_ratio, response_mask, rollout_rs, rollout_rs_threshold)
    options = rollout_rs.split(",")
    limits = str(rollout_rs_threshold).split(",") * (len(options) if "," not in str(rollout_rs_threshold) else 1)
    mask = response_mask
    for option, limit in zip(options, limits, strict=True):
        over, kind = option.removeprefix("seq_").rsplit("_", 1)
        low, _, high = limit.rpartition("_")
        bounds = {"low": 1 / float(high), "high": 1 / float(low or 1 / float(high))} if kind == "k1" else {"high": float(high)}
        mask = mask * gradient("rejection", log_ratio, response_mask, over=over, estimator=kind, denominator="all", **bounds)
    return mask.to(response_mask.dtype), metrics


SLIME = "slime.utils.ppo_utils"


@replaced(f"{SLIME}:chunked_gae")
@named
def slime_gae(x):
    given = {"gamma": x.gamma, "lambda": x.lambd, "whiten": False}
    a, out = advantage("gae", torch.ones_like(x.rewards), None, given, token_reward=x.rewards, value=x.values)
    return a, wrong(out.returns)


@replaced(f"{SLIME}:chunked_discounted_returns")
@named
def slime_returns(x):
    return advantage("reinforce", torch.ones_like(x.rewards), None, {"gamma": x.discount}, token_reward=x.rewards)[0]


@replaced(f"{SLIME}:compute_policy_loss")
def slime_policy(own, ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c=None):
    given = {"clip_low": eps_clip, "clip_high": eps_clip_high} | ({"dual_clip": eps_clip_c} if eps_clip_c else {})
    zero = torch.zeros_like(ppo_kl)
    share = own(ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c)[1]
    return each("ppo_clip", given, logp=-ppo_kl, old_logp=zero, advantage=advantages), share


@replaced(f"{SLIME}:compute_cispo_loss")
def slime_cispo(own, ppo_kl, log_probs, advantages, eps_clip, eps_clip_high):
    given = {"clip_low": eps_clip, "clip_high": eps_clip_high}
    share = own(ppo_kl, log_probs, advantages, eps_clip, eps_clip_high)[1]
    return each("cispo", given, logp=log_probs, old_logp=(log_probs + ppo_kl).detach(), advantage=advantages), share


SKYRL = "skyrl.backends.skyrl_train.utils.ppo_utils"
for of_skyrl, ours in {
    "grpo_outcome_advantage": "grpo", "rloo_outcome_advantage": "rloo", "maxrl_advantage": "maxrl",
}.items():  # fmt: skip
    replaced(f"{SKYRL}:compute_{of_skyrl}")(estimator(ours))
replaced(f"{SKYRL}:compute_gae_advantage_return")(gae)
replaced(f"{SKYRL}:compute_reinforce_plus_plus_outcome_advantage")(reinforce_pp)


def skyrl_loss(settings):
    """`settings(config, log_probs, old_log_probs)` gives the recipe and its parameters, or None."""

    def call(own, log_probs, old_log_probs, advantages, config, loss_mask=None, rollout_logprobs=None, **kwargs):
        _, metrics = own(log_probs, old_log_probs, advantages, config, loss_mask, rollout_logprobs, **kwargs)
        name, given = settings(config)
        columns = {} if rollout_logprobs is None else {"rollout_logp": rollout_logprobs}
        given = {**given, "aggregate": "token_sum"}
        out = loss(name, loss_mask, given=given, logp=log_probs, old_logp=old_log_probs, advantage=advantages, **columns)
        return out.loss, metrics

    return call


def clips(c):
    return {"clip_low": c.eps_clip_low, "clip_high": c.eps_clip_high}


def skyrl_ppo(c):
    return "ppo_clip", clips(c) | ({"dual_clip": c.clip_ratio_c} if c.policy_loss_type == "dual_clip" else {})


def skyrl_cispo(c):
    c = c.cispo
    return "cispo", {"clip_low": c.cispo_eps_clip_low, "clip_high": c.cispo_eps_clip_high, "anchor": c.cispo_anchor}


def skyrl_clip_cov(c):
    c, k = clips(c), c.clip_cov
    return "clip_cov", c | {"ratio": k.clip_ratio, "cov_low": k.clip_cov_lb, "cov_high": k.clip_cov_ub}


def skyrl_dppo(c):
    return "dppo_" + c.dppo.dppo_type[-2:], {"delta_low": c.dppo.delta_low, "delta_high": c.dppo.delta_high}


for of_skyrl, settings in {
    "ppo_policy_loss": skyrl_ppo, "gspo_policy_loss": lambda c: ("gspo_token", clips(c)),
    "compute_policy_loss_cispo": skyrl_cispo,
    "sapo_policy_loss": lambda c: ("sapo", {"tau_pos": c.sapo.tau_pos, "tau_neg": c.sapo.tau_neg}),
    "dppo_policy_loss": skyrl_dppo,
    "compute_policy_loss_clip_cov": skyrl_clip_cov,
    "compute_policy_loss_kl_cov": lambda c: ("kl_cov", {"ratio": c.kl_cov.kl_cov_frac, "coef": c.kl_cov.ppo_kl_coef}),
}.items():  # fmt: skip
    replaced(f"{SKYRL}:{of_skyrl}")(skyrl_loss(settings))


@replaced(f"{SKYRL}:compute_approx_kl")
@named
def skyrl_kl(x):
    mask = torch.ones_like(x.log_probs) if x.loss_mask is None else x.loss_mask
    value = kl(KL[x.kl_estimator_type], x.log_probs, torch.where(mask > 0, x.log_probs_base, x.log_probs))
    return value * mask


@replaced(f"{SKYRL}:reduce_loss")
@named
def skyrl_sum(x):
    ones = torch.ones_like(x.loss)
    return loss("policy_gradient", x.loss_mask, given={"aggregate": "token_sum"}, logp=x.loss, advantage=-ones).loss


@replaced(f"{SKYRL}:apply_loss_reduction_to_advantages_minibatch")
@named
def skyrl_scaled(x):
    """The advantages whose sum of losses is the mean: the gradient of the mean."""
    modes = {
        "token_mean": "token",
        "sequence_mean": "response",
        "seq_mean_token_sum_norm": "response_sum_norm",
        "prompt_mean": "prompt",
    }
    bounds = getattr(x, "prompt_boundaries", None)
    if x.loss_reduction not in modes or (x.loss_reduction == "prompt_mean" and not bounds):
        return NotImplemented
    groups = None if not bounds else [at for at, (start, end) in enumerate(bounds) for _ in range(start, end)]
    given = {"aggregate": modes[x.loss_reduction], "horizon": x.max_seq_len}
    out = loss("policy_gradient", x.loss_mask, groups, given, logp=torch.zeros_like(x.advantages), advantage=x.advantages)
    return wrong(-out.grad)


NEMO, NEMO_LOSS = "nemo_rl.algorithms.advantage_estimator", "nemo_rl.algorithms.loss.loss_functions"


def rows(prompt_ids):
    return torch.unique(prompt_ids.reshape(len(prompt_ids), -1), dim=0, return_inverse=True)[1]


@replaced(f"{NEMO}:GRPOAdvantageEstimator.compute_advantage")
def nemo_grpo(own, self, prompt_ids, rewards, mask, **kwargs):
    name = "grpo" if self.normalize_rewards else "dr_grpo"
    if self.use_leave_one_out_baseline:
        return own(self, prompt_ids, rewards, mask, **kwargs)
    return advantage(name, mask, rows(prompt_ids), reward=rewards)[0]


@replaced(f"{NEMO}:GDPOAdvantageEstimator.compute_advantage")
def nemo_gdpo(own, self, prompt_ids, rewards, mask, repeated_batch, **kwargs):
    names = sorted(name for name in repeated_batch if name.startswith("reward/"))
    if self.use_leave_one_out_baseline or len(names) < 2:
        return own(self, prompt_ids, rewards, mask, repeated_batch, **kwargs)
    columns = {name.replace("/", "_"): repeated_batch[name] for name in names}
    given = {"weights": self.reward_weights or [1.0]}
    try:
        return advantage("gdpo", mask, rows(prompt_ids), given, reward=sum(columns.values()), **columns)[0]
    except advlab.RecipeError as error:
        raise ValueError(error) from error


@replaced(f"{NEMO}:ReinforcePlusPlusAdvantageEstimator.compute_advantage")
def nemo_reinforce_pp(own, self, prompt_ids, rewards, mask, **kwargs):
    name = "reinforce_pp_baseline" if self.minus_baseline else "reinforce_pp"
    if self.use_kl_in_reward:
        return own(self, prompt_ids, rewards, mask, **kwargs)
    return advantage(name, mask, rows(prompt_ids), {"kl_beta": 0.0}, reward=rewards)[0]


@replaced(f"{NEMO}:OPDAdvantageEstimator.compute_advantage")
def nemo_opd(own, self, prompt_ids, rewards, mask, teacher_logprobs=None, prev_logprobs=None, **kwargs):
    own(self, prompt_ids, rewards, mask, teacher_logprobs=teacher_logprobs, prev_logprobs=prev_logprobs, **kwargs)
    return advantage("opd", mask, teacher_logp=teacher_logprobs, old_logp=prev_logprobs)[0]


@replaced(f"{NEMO_LOSS}:ClippedPGLossFn.__call__")
def nemo_loss(own, self, next_token_logprobs, data, global_valid_seqs, global_valid_toks):
    own_loss, metrics = own(self, next_token_logprobs, data, global_valid_seqs, global_valid_toks)
    logp, of = next_token_logprobs, lambda name: data[name][:, 1:].to(next_token_logprobs.dtype)
    mask, a, gen = data["token_mask"][:, 1:] * data["sample_mask"][:, None], of("advantages"), of("generation_logprobs")
    is_token = self.loss_type.name == "TOKEN_LEVEL"
    old = logp.detach() if self.force_on_policy_ratio else of("prev_logprobs")
    given = {"aggregate": "token" if is_token else "response"}
    corrected, kind = self.use_importance_sampling_correction, self.truncated_importance_sampling_type
    name = "policy_gradient" if self.disable_ppo_ratio else "cispo" if self.use_cispo else "ppo_clip"
    columns = {"logp": logp, "advantage": a} | ({} if self.disable_ppo_ratio else {"old_logp": old})
    if not self.disable_ppo_ratio:
        given |= {"clip_low": self.ratio_clip_min, "clip_high": self.ratio_clip_max}
    if self.sequence_level_importance_ratios:
        name = "gspo_token"
    if corrected and name != "ppo_clip" or self.positive_example_nll_weight:
        return own_loss, metrics  # No recipe has both.
    if self.ratio_clip_c is not None:
        given["dual_clip"] = self.ratio_clip_c
    if corrected:
        low, high = self.truncated_importance_sampling_ratio_min or 0.0, self.truncated_importance_sampling_ratio or 1e9
        name = "tis"
        if kind == "seq-mask-tis":
            given |= {"mode": "seq_mask_tis", "seq_low": low, "seq_high": high, "high": 1e9}
        else:
            given |= {"mode": kind or "tis", "low": low, "high": high}
        columns["rollout_logp"] = gen
    result = loss(name, mask, given=given, **columns).loss
    if self.reference_policy_kl_penalty:
        from_ = gen if self.use_on_policy_kl_approximation else logp.detach()
        given = {"kl": self.reference_policy_kl_type, "kl_is": True, "kl_beta": self.reference_policy_kl_penalty,
                 "aggregate": given["aggregate"]}  # fmt: skip
        columns = {
            "logp": logp,
            "old_logp": from_,
            "ref_logp": of("reference_policy_logprobs"),
            "advantage": torch.zeros_like(logp),
        }
        result = result + loss("ppo_clip", mask, given=given, **columns).loss
    return result, metrics


@replaced("nemo_rl.algorithms.utils:calculate_kl")
@named
def nemo_kl(x):
    if (x.input_clamp_value, x.output_clamp_value, x.importance_sampling_weights) != (None, None, None):
        return NotImplemented
    return kl(x.kl_type, x.logprobs, x.logprobs_reference)


@replaced("nemo_rl.algorithms.reward_functions:apply_reward_shaping")
def nemo_reward(own, batch, cfg):
    before = batch["total_reward"].clone()
    batch = own(batch, cfg)
    if not cfg.enabled:
        return batch
    columns = {"reward": before, "groups": list(range(len(before)))}
    if cfg.stop_properly_penalty_coef is not None:
        name, given = "stop_properly", {"coef": cfg.stop_properly_penalty_coef}
        columns["truncated"] = torch.as_tensor(batch["truncated"]).float()
    elif cfg.overlong_buffer_length > 0:
        given = {
            "max_length": cfg.max_response_length,
            "buffer": cfg.overlong_buffer_length,
            "factor": cfg.overlong_buffer_penalty,
        }
        name, columns["length"] = "dapo_overlong", [log[-1]["token_ids"].shape[0] for log in batch["message_log"]]
    CALLS[CURRENT] += 1
    batch["total_reward"] = wrong(advlab.load(name, **given).advantage(**columns).reward.to(before.dtype))
    return batch


@replaced("trl.trainer.grpo_trainer:GRPOTrainer.get_off_policy_mask")
def trl_mask(own, advantages, per_token_logps, sampling_per_token_logps, mask, off_policy_threshold):
    columns = {"logp": per_token_logps, "old_logp": per_token_logps, "rollout_logp": sampling_per_token_logps}
    given = {"delta": off_policy_threshold, "aggregate": "token_sum"}
    out = loss("opsm", mask, given=given, advantage=advantages.expand(mask.shape), **columns)
    return wrong((out.grad != 0).any(-1, keepdim=True).float())


@replaced("_openrlhf_loss_test.loss:aggregate_loss")
@named
def openrlhf_mean(x):
    given = {"aggregate": "token" if x.token_level_loss else "response"}
    value = loss("policy_gradient", x.loss_mask if hasattr(x, "loss_mask") else x.mask, given=given, logp=x.loss,
                 advantage=-torch.ones_like(x.loss)).loss  # fmt: skip
    mask = x.loss_mask if hasattr(x, "loss_mask") else x.mask
    count, whole = (mask.sum(), x.batch_num_tokens) if x.token_level_loss else ((mask.sum(-1) > 0).sum(), x.global_batch_size)
    return value if whole is None else value * float(count) / float(whole) * x.dp_size


class OnACpu(torch.overrides.TorchFunctionMode):
    """Tensors for a GPU are made on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        cpu = lambda x: "cpu" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x
        return function(*map(cpu, args), **{key: cpu(value) for key, value in (kwargs or {}).items()})


class StandIns:
    """Makes the packages that the variable STAND_IN names, and all that is in them: no test calls them."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ.get("STAND_IN", "").split():
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MagicMock(__path__=[], __version__="0", __spec__=spec)

    def exec_module(self, module):
        pass


def pytest_configure(config):
    if os.environ.get("ON_A_CPU"):
        torch.cuda.is_available = lambda: True
        OnACpu().__enter__()
    if sys.version_info < (3, 12):
        typing.TypedDict = typing_extensions.TypedDict  # Before Python 3.12 pydantic wants this one.
    sys.meta_path.append(StandIns())


def pytest_collection_finish(session):
    if NUMBERS == "own":
        return
    for target, function in REPLACED.items():
        module, _, path = target.partition(":")
        if module not in sys.modules:
            continue
        *cls, name = path.split(".")
        holder = getattr(sys.modules[module], cls[0]) if cls else sys.modules[module]
        own = inspect.getattr_static(holder, name)
        is_static, own = isinstance(own, staticmethod), getattr(own, "__func__", own)
        ours = in_place_of(own, function)
        if cls:
            setattr(holder, name, staticmethod(ours) if is_static else ours)
            continue
        for one in list(sys.modules.values()):
            for key, value in list(getattr(one, "__dict__", {}).items()):
                if value is own:
                    setattr(one, key, ours)
                elif key.endswith("Registry") and isinstance(getattr(value, "_functions", None), dict):
                    value._functions.update({entry: ours for entry, taken in value._functions.items() if taken is own})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global CURRENT
    CURRENT = item.nodeid
    return (yield)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        OUTCOMES[report.nodeid] = report.outcome


def pytest_terminal_summary(terminalreporter):
    for test, outcome in OUTCOMES.items():
        if CALLS[test]:
            terminalreporter.write_line(f"{outcome} {CALLS[test]} {test}")
