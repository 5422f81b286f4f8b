"""verl: estimators, KL, aggregation, losses, correction of the rollout engine."""


from .shared import KL, estimator, gae, gradient, kl, loss, mean, named, reinforce_pp, replaced

VERL, HELPER = "verl.trainer.ppo.core_algos", "verl.trainer.ppo.rollout_corr_helper"
# Its vectorised forms stay verl's, and so judge these.
for of_verl, ours in {"grpo": "grpo", "rloo": "rloo"}.items():
    replaced(f"{VERL}:compute_{of_verl}_outcome_advantage")(estimator(ours))
replaced(f"{VERL}:compute_gae_advantage_return")(gae)
replaced(f"{VERL}:compute_reinforce_plus_plus_outcome_advantage")(reinforce_pp)


@replaced(f"{VERL}:kl_penalty")
@named
def penalty(x):
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
    return mean(x.loss_mat, x.loss_mask, **given) * scale


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


@replaced(f"{HELPER}:compute_rollout_correction_weights")
def weights(own, log_ratio, response_mask, rollout_is="token", rollout_is_threshold=2.0, rollout_is_batch_normalize=False):
    _, metrics = own(log_ratio, response_mask, rollout_is, rollout_is_threshold, rollout_is_batch_normalize)
    low, _, high = str(rollout_is_threshold).rpartition("_")
    given = {"mode": "icepop" if low else "tis", "level": rollout_is, "low": float(low or 0), "high": float(high)}
    return gradient("tis", log_ratio, response_mask, normalize=rollout_is_batch_normalize, **given), metrics


@replaced(f"{HELPER}:compute_rollout_rejection_mask")
def rejection(own, log_ratio, response_mask, rollout_rs="token_k1", rollout_rs_threshold=None):
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
