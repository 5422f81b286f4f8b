"""SkyRL: estimators, losses, KL, reduction."""

import torch

from .shared import KL, estimator, gae, kl, loss, mean, named, reinforce_pp, replaced, wrong

SKYRL = "skyrl.backends.skyrl_train.utils.ppo_utils"
for of_skyrl, ours in {
    "grpo_outcome_advantage": "grpo", "rloo_outcome_advantage": "rloo", "maxrl_advantage": "maxrl",
}.items():  # fmt: skip
    replaced(f"{SKYRL}:compute_{of_skyrl}")(estimator(ours))
replaced(f"{SKYRL}:compute_gae_advantage_return")(gae)
replaced(f"{SKYRL}:compute_reinforce_plus_plus_outcome_advantage")(reinforce_pp)


def policy_loss(settings):
    """`settings(config)` gives the recipe and its parameters."""

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


def ppo(c):
    return "ppo_clip", clips(c) | ({"dual_clip": c.clip_ratio_c} if c.policy_loss_type == "dual_clip" else {})


def cispo(c):
    c = c.cispo
    return "cispo", {"clip_low": c.cispo_eps_clip_low, "clip_high": c.cispo_eps_clip_high, "anchor": c.cispo_anchor}


def clip_cov(c):
    c, k = clips(c), c.clip_cov
    return "clip_cov", c | {"ratio": k.clip_ratio, "cov_low": k.clip_cov_lb, "cov_high": k.clip_cov_ub}


def dppo(c):
    return "dppo_" + c.dppo.dppo_type[-2:], {"delta_low": c.dppo.delta_low, "delta_high": c.dppo.delta_high}


for of_skyrl, settings in {
    "ppo_policy_loss": ppo, "gspo_policy_loss": lambda c: ("gspo_token", clips(c)),
    "compute_policy_loss_cispo": cispo,
    "sapo_policy_loss": lambda c: ("sapo", {"tau_pos": c.sapo.tau_pos, "tau_neg": c.sapo.tau_neg}),
    "dppo_policy_loss": dppo,
    "compute_policy_loss_clip_cov": clip_cov,
    "compute_policy_loss_kl_cov": lambda c: ("kl_cov", {"ratio": c.kl_cov.kl_cov_frac, "coef": c.kl_cov.ppo_kl_coef}),
}.items():  # fmt: skip
    replaced(f"{SKYRL}:{of_skyrl}")(policy_loss(settings))


@replaced(f"{SKYRL}:compute_approx_kl")
@named
def approx_kl(x):
    mask = torch.ones_like(x.log_probs) if x.loss_mask is None else x.loss_mask
    value = kl(KL[x.kl_estimator_type], x.log_probs, torch.where(mask > 0, x.log_probs_base, x.log_probs))
    return value * mask


@replaced(f"{SKYRL}:reduce_loss")
@named
def total(x):
    return mean(x.loss, x.loss_mask, aggregate="token_sum")


@replaced(f"{SKYRL}:apply_loss_reduction_to_advantages_minibatch")
@named
def scaled(x):
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
