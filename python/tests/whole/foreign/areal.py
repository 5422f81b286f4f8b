"""AReaL: losses and rejection of padded and packed rows, GAE by token, normalised rewards."""

import dataclasses
import math

import torch

from .shared import advantage, gradient, loss, replaced, wrong

AREAL, GAE = "areal.utils.functional.functional", "areal.trainer.ppo.gae"


def padded(mask, cu_seqlens, *columns):
    """The mask and the columns with a row per response; packed tokens without lengths are one row."""
    if mask.dim() == 2:
        return mask.float(), *columns
    lengths = [len(mask)] if cu_seqlens is None else cu_seqlens.diff().tolist()
    return tuple(torch.nn.utils.rnn.pad_sequence(x.split(lengths), batch_first=True) for x in (mask.float(), *columns))


@replaced(f"{AREAL}:ppo_actor_loss_fn")
def actor(own, logprobs, proximal_logprobs, old_logprobs, advantages, eps_clip, loss_mask, eps_clip_higher=None, c_clip=None,
          rejection_sampling=None, importance_sampling_level="token", cu_seqlens=None):  # fmt: skip
    own_loss, stat = own(logprobs, proximal_logprobs, old_logprobs, advantages, eps_clip, loss_mask, eps_clip_higher, c_clip,
                         rejection_sampling, importance_sampling_level, cu_seqlens)  # fmt: skip
    sequence = importance_sampling_level == "sequence"
    if rejection_sampling is not None or (sequence and c_clip):
        return own_loss, stat  # No recipe has both.
    mask, logp, old, a = padded(loss_mask, cu_seqlens, logprobs, proximal_logprobs, advantages)
    given = {"clip_low": eps_clip, "clip_high": eps_clip if eps_clip_higher is None else eps_clip_higher}
    if not sequence:
        given |= {"aggregate": "token"} | ({"dual_clip": c_clip} if c_clip else {})
        return loss("ppo_clip", mask, given=given, logp=logp, old_logp=old, advantage=a).loss, stat
    # The mean over tokens, from the mean over responses of the sums.
    scale = float((mask.sum(-1) > 0).sum()) / max(float(mask.sum()), 1)
    given["aggregate"] = "response_sum"
    return loss("gspo", mask, given=given, logp=logp, old_logp=old, advantage=a).loss * scale, stat


@replaced(f"{AREAL}:sapo_loss_fn")
def sapo(own, logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask, importance_sampling_level="token",
         cu_seqlens=None):  # fmt: skip
    own_loss, stat = own(logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask, importance_sampling_level, cu_seqlens)
    if importance_sampling_level == "sequence":
        return own_loss, stat  # No recipe has a gate per response.
    mask, logp, old, a = padded(loss_mask, cu_seqlens, logprobs, old_logprobs, advantages)
    given = {"tau_pos": tau_pos, "tau_neg": tau_neg, "aggregate": "token"}
    return loss("sapo", mask, given=given, logp=logp, old_logp=old, advantage=a).loss, stat


@replaced(f"{AREAL}:cispo_loss_fn")
def cispo(own, logprobs, proximal_logprobs, advantages, eps_clip, loss_mask, eps_clip_higher=None, old_logprobs=None,
          rejection_sampling=None, cu_seqlens=None):  # fmt: skip
    _, stat = own(logprobs, proximal_logprobs, advantages, eps_clip, loss_mask, eps_clip_higher, old_logprobs,
                  rejection_sampling, cu_seqlens)  # fmt: skip
    mask, logp, old, a = padded(loss_mask, cu_seqlens, logprobs, proximal_logprobs.detach(), advantages)
    if rejection_sampling is not None:
        # The loss is linear in the advantage, so that the weight of another rollout engine can be in it.
        r = rejection_sampling
        gap = old - padded(loss_mask, cu_seqlens, old_logprobs.detach())[1]
        mode = {"clamp": "tis", "mask": "icepop"}[r.action]
        a = a * gradient("tis", gap, mask, mode=mode, level=r.level, low=r.lower or 0.0, high=r.upper)
    given = {"clip_low": eps_clip, "clip_high": eps_clip_higher, "aggregate": "token"}
    return loss("cispo", mask, given=given, logp=logp, old_logp=old, advantage=a).loss, stat


@replaced(f"{AREAL}:apply_rejection_sampling")
def rejection(own, proximal_logprobs, old_logprobs, loss_mask, cu_seqlens, config):
    """The settings are those of the table in the header of `rejection`, and clamped ratios of tokens are those of `tis`."""
    result = own(proximal_logprobs, old_logprobs, loss_mask, cu_seqlens, config)
    ratio, by_token = config.metric == "ratio", config.level == "token"
    if config.metric == "binary_kl" or (config.action == "clamp" and not by_token) or (ratio and config.agg == "max"):
        return result  # No recipe has these.
    mask, new, old = padded(loss_mask, cu_seqlens, proximal_logprobs.detach(), old_logprobs.detach())
    gap, low, high = new - old, config.lower or 0.0, config.upper
    if config.action == "clamp":
        kept, weight = mask, gradient("tis", gap, mask, low=low, high=high)
    else:
        kind = "k1" if ratio else config.metric.removeprefix("kl_")
        if config.metric == "kl_k1":  # The recipe's bounds are those of the ratio.
            low, high = (0.0 if config.lower is None else math.exp(low)), math.exp(high)
        bounds = {"low": low, "high": high} if kind == "k1" else {"high": high}
        d = -gap if kind == "k3" else gap
        over = "token" if by_token else config.agg
        kept = (gradient("rejection", d, mask, over=over, estimator=kind, denominator="all", **bounds) != 0).float()
        pooled = "mean" if ratio and not by_token else "token"
        given = {"low": 0.0, "high": 1e9, "weight": pooled, "weight_high": 1e9}
        weight = gradient("rejection", gap, mask, denominator="all", **given) * kept
    kept, weight = (x if loss_mask.dim() == 2 else unpadded(x, cu_seqlens) for x in (kept, weight))
    return dataclasses.replace(result, loss_mask=wrong(kept).to(loss_mask.dtype), behave_imp_weight=weight)


def unpadded(x, cu_seqlens):
    lengths = [x.shape[1]] if cu_seqlens is None else cu_seqlens.diff().tolist()
    return torch.cat([row[:length] for row, length in zip(x, lengths)])


@replaced(f"{GAE}:_compute_token_level_gae")
def gae(own, rewards, values, loss_mask, seq_no_eos_mask, discount, gae_lambda):
    """The last position is no token; a response that goes on has its value as a reward."""
    mask = loss_mask.clone()
    mask[:, -1] = 0
    last = (mask.cumsum(-1) * mask).argmax(-1, keepdim=True)
    rest = (discount * values[:, -1] * seq_no_eos_mask)[:, None]
    columns = {"token_reward": rewards.scatter_add(-1, last, rest), "value": values}
    rows = torch.as_tensor(gae_lambda, dtype=torch.float32).expand(len(mask)).tolist()
    a = [
        advantage("gae", mask[at : at + 1], None, {"gamma": discount, "lambda": row, "whiten": False},
                  **{key: x[at : at + 1] for key, x in columns.items()})[0]
        for at, row in enumerate(rows)
    ]  # fmt: skip
    return torch.cat(a), torch.cat(a) + values


@replaced("areal.utils.data:Normalization.__call__")
def normalised(own, self, x, loss_mask=None, high_precision=True, reduce_group=None, group_sizes=None):
    result = own(self, x, loss_mask, high_precision, reduce_group, group_sizes)
    if x.dim() != 1 or loss_mask is not None or {self.mean_level, self.std_level} != {"group"} or self.mean_leave1out:
        return result
    groups = [at for at, part in enumerate(self._build_group_slices(len(x), group_sizes)) for _ in x[part]]
    given = {"std": "sample" if self.std_unbiased else "population", "eps": self.eps}
    return advantage("grpo", torch.ones(len(x), 1), groups, given, reward=x)[0][:, 0]
