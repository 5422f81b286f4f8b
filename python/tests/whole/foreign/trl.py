"""TRL: the mask of off-policy responses."""

from .shared import loss, replaced, wrong


@replaced("trl.trainer.grpo_trainer:GRPOTrainer.get_off_policy_mask")
def mask_of(own, advantages, per_token_logps, sampling_per_token_logps, mask, off_policy_threshold):
    columns = {"logp": per_token_logps, "old_logp": per_token_logps, "rollout_logp": sampling_per_token_logps}
    given = {"delta": off_policy_threshold, "aggregate": "token_sum"}
    out = loss("opsm", mask, given=given, advantage=advantages.expand(mask.shape), **columns)
    return wrong((out.grad != 0).any(-1, keepdim=True).float())
