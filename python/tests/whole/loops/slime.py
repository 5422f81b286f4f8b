"""slime: `RolloutManager.generate` (data source, rollout function, hook for rewards, training data, its schedule), and on the side of
training `compute_advantages_and_returns` and `loss_function`.

Stood in for: SGLang's engines, Megatron's model and its parallel state, and Ray's actors.
"""

from dataclasses import replace

import ray
import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Settings, bare, on_a_cpu, sgd, trajectory

SIZE, POLICY = GROUP * len(PROMPTS), {}
STATE = {
    "get_context_parallel_world_size": 1, "get_data_parallel_world_size": 1, "get_tensor_model_parallel_group": None,
    "is_pipeline_last_stage": True,
}  # fmt: skip


def rollout(args, rollout_id, source, evaluation=False):
    """slime's `--rollout-function-path`."""
    groups = source.get_samples(args.rollout_batch_size)
    for text, group in zip(PROMPTS, groups):
        for index, sample in enumerate(group):
            taken = list(trajectory(POLICY["model"], rollout_id, text, index, args.turns))
            more = {"rollout_id": sample.index, "status": type(sample).Status.COMPLETED, "reward": sum(one[2] for one in taken)}
            parts = [replace(sample, tokens=prompt + ids, response_length=len(ids), **more) for prompt, ids, _ in taken]
            group[index] = parts if args.turns > 1 else parts[0]
    return groups


def post_process_rewards(args, samples):
    """GRPO over the rollouts of each group, because slime's own is over all samples if rollouts have several."""
    rewards, advantages = {(sample.group_index, sample.rollout_id): sample.reward for sample in samples}, []
    for sample in samples:
        group = torch.tensor([reward for (number, _), reward in rewards.items() if number == sample.group_index])
        advantages.append(float((sample.reward - group.mean()) / (group.std() + 1e-6)))
    return [sample.reward for sample in samples], advantages


def log_probs(logits, tokens, group, with_entropy=False, **_):
    logp = logits.log_softmax(-1)
    return logp.gather(-1, tokens[:, None]), -(logp.exp() * logp).sum(-1) if with_entropy else None


def run(theirs, monkeypatch, folder, own, step, turns=1):
    on_a_cpu(monkeypatch)
    rollouts, losses = theirs("slime.ray.rollout"), theirs("slime.backends.megatron_utils.loss")
    mpu = Settings(**{name: (lambda *_, value=value, **__: value) for name, value in STATE.items()})
    for module in (losses, theirs("slime.backends.megatron_utils.cp_utils")):
        monkeypatch.setattr(module, "mpu", mpu)
    monkeypatch.setattr(losses, "calculate_log_probs_and_entropy", log_probs)
    for name in ("log_rollout_data", "init_tracking"):
        monkeypatch.setattr(rollouts, name, lambda *_, **__: None)
    model = POLICY["model"] = tiny.model()
    move = sgd(model)
    own_hook = "loops.slime.post_process_rewards" if turns > 1 else None
    hook = own_hook if own else "advlab.slime.post_process_rewards"
    args = Settings(
        debug_train_only=True, data_source_path="slime.rollout.data_source.RolloutDataSource",
        rollout_function_path="loops.slime.rollout", eval_function_path="loops.slime.rollout",
        custom_reward_post_process_path=hook, advantage_estimator="grpo", turns=turns,
        rewards_normalization=True, grpo_std_normalization=True, n_samples_per_prompt=GROUP, rollout_batch_size=len(PROMPTS),
        global_batch_size=SIZE, micro_batch_size=SIZE * turns, rollout_top_p=1.0, rollout_data_transport="object-store", kl_coef=0.0,
        loss_type="policy_loss", rollout_temperature=1.0, log_probs_chunk_size=-1, entropy_coef=0.0, eps_clip=0.2, eps_clip_high=0.2,
    )  # fmt: skip
    manager = bare(rollouts.RolloutManager)
    manager.__init__(args, None)
    manager.set_train_parallel_config({"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1})
    for rollout_id in range(STEPS):
        (box,) = manager.generate(rollout_id)
        batch = ray.get(box.inner)
        batch["total_lengths"] = [batch["total_lengths"][place] for place in batch["partition"]]
        batch["unconcat_tokens"] = [torch.as_tensor(tokens).long() for tokens in batch["tokens"]]
        batch["loss_masks"] = [torch.as_tensor(mask) for mask in batch["loss_masks"]]
        logits = lambda: torch.cat([model(tokens[None]).logits for tokens in batch["unconcat_tokens"]], 1).float()
        with torch.no_grad():
            sizes = {name: batch[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
            batch.update(losses.get_log_probs_and_entropy(logits(), args=args, **sizes)[1])
        losses.compute_advantages_and_returns(args, batch)
        loss, _, _ = losses.loss_function(args, batch, 1, SIZE, logits())
        loss.backward()
        move()
        step(loss.item(), model)
