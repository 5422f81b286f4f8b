"""NeMo-RL: estimators, `ClippedPGLossFn`, KL, reward shaping."""

import advlab
import torch

from .shared import advantage, count, kl, loss, named, replaced, wrong

NEMO, NEMO_LOSS = "nemo_rl.algorithms.advantage_estimator", "nemo_rl.algorithms.loss.loss_functions"


def rows(prompt_ids):
    return torch.unique(prompt_ids.reshape(len(prompt_ids), -1), dim=0, return_inverse=True)[1]


@replaced(f"{NEMO}:GRPOAdvantageEstimator.compute_advantage")
def grpo(own, self, prompt_ids, rewards, mask, **kwargs):
    name = "grpo" if self.normalize_rewards else "dr_grpo"
    if self.use_leave_one_out_baseline:
        return own(self, prompt_ids, rewards, mask, **kwargs)
    return advantage(name, mask, rows(prompt_ids), reward=rewards)[0]


@replaced(f"{NEMO}:GDPOAdvantageEstimator.compute_advantage")
def gdpo(own, self, prompt_ids, rewards, mask, repeated_batch, **kwargs):
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
def reinforce_pp(own, self, prompt_ids, rewards, mask, **kwargs):
    name = "reinforce_pp_baseline" if self.minus_baseline else "reinforce_pp"
    if self.use_kl_in_reward:
        return own(self, prompt_ids, rewards, mask, **kwargs)
    return advantage(name, mask, rows(prompt_ids), {"kl_beta": 0.0}, reward=rewards)[0]


@replaced(f"{NEMO}:OPDAdvantageEstimator.compute_advantage")
def opd(own, self, prompt_ids, rewards, mask, teacher_logprobs=None, prev_logprobs=None, **kwargs):
    own(self, prompt_ids, rewards, mask, teacher_logprobs=teacher_logprobs, prev_logprobs=prev_logprobs, **kwargs)
    return advantage("opd", mask, teacher_logp=teacher_logprobs, old_logp=prev_logprobs)[0]


@replaced(f"{NEMO_LOSS}:ClippedPGLossFn.__call__")
def clipped_pg(own, self, next_token_logprobs, data, global_valid_seqs, global_valid_toks):
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
def calculate_kl(x):
    if (x.input_clamp_value, x.output_clamp_value, x.importance_sampling_weights) != (None, None, None):
        return NotImplemented
    return kl(x.kl_type, x.logprobs, x.logprobs_reference)


@replaced("nemo_rl.algorithms.reward_functions:apply_reward_shaping")
def shaped(own, batch, cfg):
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
    count()
    batch["total_reward"] = wrong(advlab.load(name, **given).advantage(**columns).reward.to(before.dtype))
    return batch
