"""NeMo-RL: `grpo_train` with its rollout loop, message logs, batches and `ClippedPGLossFn`.

Stood in for: the policy and its generation (vLLM, DTensor or Megatron), the environment, logger and checkpointer.
"""

import ray
import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Local, Step, on_a_cpu, respond, sgd


class Quiet:
    """Does nothing, whatever is asked of it."""

    def __getattr__(self, name):
        return lambda *_, **__: None


def run(theirs, monkeypatch, folder, own, between):
    on_a_cpu(monkeypatch)
    grpo, batches = theirs("nemo_rl.algorithms.grpo"), theirs("nemo_rl.distributed.batched_data_dict")
    losses = theirs("nemo_rl.algorithms.loss")
    monkeypatch.setattr(grpo, "_create_advantage_estimator", grpo._create_advantage_estimator)
    if not own:
        theirs("advlab.nemo_rl").patch()
    for name, stand_in in (("print_performance_metrics", lambda *_, **__: {}), ("MemoryTracker", Quiet)):
        monkeypatch.setattr(grpo, name, stand_in)
    model, tokenizer = tiny.model(), tiny.tokenizer()
    optimizer, _ = sgd(model)
    steps = []

    class Policy(Quiet):
        def logprobs(self, data):
            logits = model(data["input_ids"]).logits.float().log_softmax(-1)
            return logits[:, :-1].gather(2, data["input_ids"][:, 1:, None])[:, :, 0]

        @torch.no_grad()
        def get_logprobs(self, data, **_):
            return {"logprobs": torch.nn.functional.pad(self.logprobs(data), (1, 0))}

        def train(self, data, loss_fn, **_):
            tokens = (data["token_mask"] * data["sample_mask"][:, None])[:, 1:].sum()
            loss, metrics = loss_fn(self.logprobs(data), data, global_valid_seqs=data["sample_mask"].sum(), global_valid_toks=tokens)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            optimizer.step()
            optimizer.zero_grad()
            mask = data["token_mask"]
            advantage = (data["advantages"] * mask).sum(1) / mask.sum(1)
            steps.append(Step(loss.item(), torch.tensor(rewards), torch.arange(len(mask)) // GROUP, advantage, model))
            between(len(steps))
            all_metrics = {name: [value] for name, value in metrics.items()} | {"global_valid_toks": [float(tokens)]}
            return {"loss": loss.detach(), "grad_norm": norm, "all_mb_metrics": all_metrics}

    rewards = []

    class Generation(Quiet):
        weight_synchronizer, requires_kv_scale_sync = None, False
        get_logger_metrics = get_step_metrics = lambda self: {}

        def generate(self, data, greedy):
            made = []
            rewards.clear()
            for row, (ids, length) in enumerate(zip(data["input_ids"].tolist(), data["input_lengths"].tolist())):
                response, logp, reward = respond(model, len(steps), ids[:length], row % GROUP)
                made.append((ids[:length] + response, [0.0] * length + logp, len(response)))
                rewards.append(reward)
            width = max(len(ids) for ids, _, _ in made)
            pad = lambda part: torch.tensor([row[part] + [0] * (width - len(row[part])) for row in made])
            lengths = torch.tensor([count for _, _, count in made])
            return batches.BatchedDataDict(
                output_ids=pad(0), logprobs=pad(1), generation_lengths=lengths,
                unpadded_sequence_lengths=torch.tensor([len(ids) for ids, _, _ in made]),
            )  # fmt: skip

    class Environment:
        def step(self, logs, info):
            count = len(logs)
            said = [{"role": "environment", "content": ""}] * count
            return said, [{}] * count, None, torch.tensor(rewards), torch.ones(count, dtype=torch.bool), None

    def batch():
        row = lambda number, text: [{"role": "user", "content": text, "token_ids": torch.tensor(tokenizer(text)["input_ids"])}]
        count = len(PROMPTS)
        return batches.BatchedDataDict(
            message_log=[row(number, text) for number, text in enumerate(PROMPTS)], task_name=["sums"] * count,
            extra_env_info=[{}] * count, loss_multiplier=torch.ones(count), idx=torch.arange(count), length=torch.full((count,), 2),
        )  # fmt: skip

    policy = Policy()
    loss = losses.ClippedPGLossConfig(reference_policy_kl_penalty=0.0)
    config = grpo.MasterConfig.model_construct(
        grpo=grpo.GRPOConfig.model_construct(
            num_prompts_per_step=len(PROMPTS), num_generations_per_prompt=GROUP, max_num_steps=STEPS, max_num_epochs=1,
            max_rollout_turns=1, val_period=0, val_at_start=False, val_at_end=False, val_start_at=-1,
            use_leave_one_out_baseline=False, normalize_rewards=True, skip_reference_policy_logprobs_calculation=True,
            advantage_clip_low=None, advantage_clip_high=None, use_dynamic_sampling=False,
            adv_estimator=grpo.AdvEstimatorConfig.model_construct(
                name="grpo", use_leave_one_out_baseline=False, normalize_rewards=True
            ),
        ),
        policy={
            "max_total_sequence_length": 64, "make_sequence_length_divisible_by": 1, "precision": "float32",
            "generation": {"backend": "vllm", "colocated": {"enabled": False}, "vllm_cfg": {"async_engine": False}},
        },
        loss_fn=loss,
        checkpointing={"enabled": False, "checkpoint_must_save_by": None, "save_period": 99, "metric_name": None},
        cluster={"num_nodes": 1, "gpus_per_node": 1}, data={"use_multiple_dataloader": False}, env={}, logger={},
    )  # fmt: skip
    monkeypatch.setattr(grpo, "refit_policy_generation", lambda *_, **__: {})
    grpo.grpo_train(
        policy, Generation(), [batch() for _ in range(STEPS)], None, tokenizer, losses.ClippedPGLossFn(loss),
        {"sums": Local(Environment())}, None, Quiet(), Quiet(), grpo._initial_grpo_save_state(), config,
    )  # fmt: skip
    return steps
