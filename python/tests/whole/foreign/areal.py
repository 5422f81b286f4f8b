"""AReaL: losses of padded rows, and of packed ones."""

import torch

from .shared import gradient, loss, replaced

AREAL = "areal.utils.functional.functional"


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
def sapo(own, logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask, importance_sampling_level="token", cu_seqlens=None):
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
