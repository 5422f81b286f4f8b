"""miles: GAE over the tokens of all ranks, returns, distillation, losses, KL, correction of the rollout engine."""

import inspect

import torch

from .shared import KL, advantage, clipped, gae, gradient, kl, named, replaced, wrong

HUB = "miles.backends.training_utils.loss_hub"
MATHS = f"{HUB}.math_utils"
replaced(f"{MATHS}:compute_policy_loss")(clipped)
replaced(f"{MATHS}:chunked_gae")(gae)
replaced(f"{MATHS}:vanilla_gae")(gae)


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)


@replaced(f"{MATHS}:get_advantages_and_returns_batch")
def gae_of_batch(own, *args, **kwargs):
    x = inspect.signature(own).bind(*args, **kwargs).arguments
    lengths, limits = x["response_lengths"], x["max_seq_lens"] or [None] * len(x["response_lengths"])
    of_ranks = inspect.getmodule(inspect.unwrap(own))  # It has the functions that gather and slice.
    layout = [(total, length, x["qkv_format"], limit) for total, length, limit in zip(x["total_lengths"], lengths, limits)]
    several = of_ranks.get_parallel_state().cp.size > 1
    gathered = [
        [of_ranks.all_gather_with_cp(row, *at) for row, at in zip(x[name], layout)] if several else x[name]
        for name in ("rewards_list", "values_list")
    ]
    rewards, values, mask = map(padded, (*gathered, x["loss_masks"]))
    last = (mask.cumsum(-1) * mask).argmax(-1, keepdim=True)
    rewards = rewards.scatter_add(-1, last, torch.tensor(x["terminal_rewards"], dtype=rewards.dtype)[:, None])
    given = {"gamma": x["gamma"], "lambda": x["lambd"], "whiten": False}
    a, out = advantage("gae", mask.to(values.dtype), None, given, token_reward=rewards, value=values)
    result = [[row[:length] for row, length in zip(rows, lengths)] for rows in (a, wrong(out.returns) * mask)]
    slices = of_ranks.slice_log_prob_with_cp
    return tuple([slices(row, *at) for row, at in zip(rows, layout)] if several else rows for rows in result)


@replaced(f"{MATHS}:get_grpo_returns")
@named
def grpo_returns(x):
    a, _ = advantage("reinforce", padded(map(torch.ones_like, x.kl)), reward=x.rewards)
    return [row[: len(one)].to(one.dtype) for row, one in zip(a, x.kl)]


@replaced(f"{MATHS}:compute_approx_kl")
@named
def approx_kl(x):
    if x.importance_ratio is not None:
        return NotImplemented
    value = kl(KL[x.kl_loss_type], x.log_probs, x.log_probs_base)
    return value.clamp(-10, 10) if x.kl_loss_type == "low_var_kl" else value  # No recipe limits the KL of its loss.


@replaced(f"{HUB}.opd:apply_opd_kl_to_advantages")
def opd(own, args, rollout_data, advantages, student_log_probs):
    before, is_given = list(advantages), rollout_data.get("opd_reverse_kl") is not None
    own(args, rollout_data, advantages, student_log_probs)
    if student_log_probs is None or is_given:
        return
    for at, (student, teacher) in enumerate(zip(student_log_probs, rollout_data["teacher_log_probs"])):
        columns = {"teacher_logp": teacher[None], "old_logp": student.detach()[None]}
        a, _ = advantage("opd", torch.ones_like(columns["old_logp"]), None, {"coef": args.opd_kl_coef}, **columns)
        advantages[at] = before[at] + a[0]


def correction(mode):
    def call(own, args, *, pg_loss, train_log_probs, rollout_log_probs, loss_masks, **kwargs):
        _, masks, metrics = own(args, pg_loss=pg_loss, train_log_probs=train_log_probs, rollout_log_probs=rollout_log_probs,
                                loss_masks=loss_masks, **kwargs)  # fmt: skip
        gap = (torch.cat(train_log_probs) - torch.cat(rollout_log_probs)).detach()[None]
        bounds = {"low": args.tis_clip_low, "high": args.tis_clip}
        return pg_loss * gradient("tis", gap, torch.ones_like(gap), mode=mode, **bounds)[0], masks, metrics

    return call


replaced(f"{HUB}.corrections:vanilla_tis_function")(correction("tis"))
replaced(f"{HUB}.corrections:icepop_function")(correction("icepop"))
