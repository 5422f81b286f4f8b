"""slime: `RolloutManager.generate` (data source, rollout function, hook for rewards, training data, its schedule), and on the side of
training the data iterator, `compute_advantages_and_returns` and `loss_function`.

Stood in for: SGLang's engines, Megatron's model and its parallel state, and Ray's actors.
"""

from types import SimpleNamespace
from unittest.mock import MagicMock

import ray
import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Step, on_a_cpu, respond, sgd

POLICY = {}


def rollout(args, rollout_id, source, evaluation=False):
    """slime's `--rollout-function-path`."""
    groups = source.get_samples(args.rollout_batch_size)
    for number, group in enumerate(groups):
        prompt = tiny.tokenizer()(PROMPTS[number])["input_ids"]
        for index, sample in enumerate(group):
            ids, _, sample.reward = respond(POLICY["model"], rollout_id, prompt, index)
            sample.tokens, sample.response_length, sample.response = prompt + ids, len(ids), " "
            sample.rollout_id, sample.status = sample.index, type(sample).Status.COMPLETED
    return groups


def run(theirs, monkeypatch, folder, own, between):
    on_a_cpu(monkeypatch)
    rollouts, losses = theirs("slime.ray.rollout"), theirs("slime.backends.megatron_utils.loss")
    data, cp = theirs("slime.backends.megatron_utils.data"), theirs("slime.backends.megatron_utils.cp_utils")
    one = {name: 1 for name in ("get_context_parallel_world_size", "get_data_parallel_world_size", "get_tensor_model_parallel_world_size")}
    none = {name: 0 for name in ("get_context_parallel_rank", "get_tensor_model_parallel_rank")}
    state = {**one, **none, "is_pipeline_last_stage": True, "get_virtual_pipeline_model_parallel_world_size": None}
    mpu = SimpleNamespace(**{name: (lambda *_, value=value, **__: value) for name, value in state.items()})
    mpu.get_tensor_model_parallel_group = lambda: None
    for module in (losses, data, cp):
        monkeypatch.setattr(module, "mpu", mpu)

    def log_probs(logits, tokens, group, with_entropy=False, **_):
        logp = logits.log_softmax(-1)
        return logp.gather(-1, tokens[:, None]), -(logp.exp() * logp).sum(-1) if with_entropy else None

    monkeypatch.setattr(losses, "calculate_log_probs_and_entropy", log_probs)
    model = POLICY["model"] = tiny.model()
    optimizer, _ = sgd(model)
    size = GROUP * len(PROMPTS)
    args = MagicMock(
        debug_train_only=True, debug_rollout_only=False, load_debug_rollout_data=None, save_debug_rollout_data=None, ci_test=False,
        use_fault_tolerance=False, use_wandb=False, use_tensorboard=False, rollout_global_dataset=False, prompt_data=None,
        data_source_path="slime.rollout.data_source.RolloutDataSource", rollout_function_path="loops.slime.rollout",
        eval_function_path="loops.slime.rollout", custom_convert_samples_to_train_data_path=None,
        custom_reward_post_process_path=None if own else "advlab.slime.post_process_rewards",
        advantage_estimator="grpo", normalize_advantages=False, custom_advantage_function_path=None, rewards_normalization=True,
        grpo_std_normalization=True, calculate_per_token_loss=False, reward_key=None, n_samples_per_prompt=GROUP,
        rollout_batch_size=len(PROMPTS), global_batch_size=size, micro_batch_size=size, use_dynamic_batch_size=False,
        balance_data=False, balance_by_flops=False, rollout_top_p=1.0, rollout_data_transport="object-store", kl_coef=0.0,
        use_rollout_logprobs=False, use_opd=False, loss_type="policy_loss", recompute_loss_function=False, allgather_cp=False,
        rollout_temperature=1.0, log_probs_chunk_size=-1, entropy_coef=0.0, use_opsm=False, eps_clip=0.2, eps_clip_high=0.2,
        eps_clip_c=None, get_mismatch_metrics=False, use_tis=False, custom_pg_loss_reducer_function_path=None, use_kl_loss=False,
        use_critic=False, rollout_num_gpus=0,
    )  # fmt: skip
    monkeypatch.setattr(rollouts, "log_rollout_data", lambda *_: None)
    monkeypatch.setattr(rollouts, "init_tracking", lambda *_, **__: None)
    manager = rollouts.RolloutManager.__ray_metadata__.modified_class(args, None)
    manager.set_train_parallel_config({"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1})
    steps = []
    for rollout_id in range(STEPS):
        (box,) = manager.generate(rollout_id)
        batch = ray.get(box.inner)
        batch["total_lengths"] = [batch["total_lengths"][place] for place in batch["partition"]]
        batch["tokens"] = [torch.as_tensor(tokens) for tokens in batch["tokens"]]
        batch["loss_masks"] = [torch.as_tensor(mask) for mask in batch["loss_masks"]]
        logits = lambda part: torch.cat([model(tokens[None].long()).logits for tokens in part["unconcat_tokens"]], 1).float()
        part = {**batch, "unconcat_tokens": batch["tokens"]}
        with torch.no_grad():
            sizes = {name: part[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
            _, found = losses.get_log_probs_and_entropy(logits(part), args=args, **sizes)
        batch.update(found)
        losses.compute_advantages_and_returns(args, batch)
        part.update(batch)
        loss, _, _ = losses.loss_function(args, part, 1, size, logits(part))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        advantage = torch.stack([tokens.mean() for tokens in batch["advantages"]])
        reward = torch.tensor([batch["raw_reward"][place] for place in batch["partition"]])
        steps.append(Step(loss.item(), reward, torch.tensor(batch["sample_indices"]) // GROUP, advantage, model))
        between(len(steps))
    return steps
