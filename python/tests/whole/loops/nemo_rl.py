"""NeMo-RL: `grpo_train` with its rollout loop, message logs, batches and `ClippedPGLossFn`.

Stood in for: the policy and its generation (vLLM, DTensor or Megatron), the environment, logger and checkpointer.
"""

import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Local, Quiet, on_a_cpu, respond, sgd


def run(theirs, monkeypatch, folder, own, step):
    on_a_cpu(monkeypatch)
    grpo, losses = theirs("nemo_rl.algorithms.grpo"), theirs("nemo_rl.algorithms.loss")
    nothing = lambda *_, **__: {}
    for name, stand_in in (
        ("_create_advantage_estimator", grpo._create_advantage_estimator),
        ("print_performance_metrics", nothing), ("refit_policy_generation", nothing), ("MemoryTracker", Quiet),
    ):  # fmt: skip
        monkeypatch.setattr(grpo, name, stand_in)
    if not own:
        theirs("advlab.nemo_rl").patch()
    model, tokenizer = tiny.model(), tiny.tokenizer()
    move, rewards, number = sgd(model), [], 0

    class Policy(Quiet):
        def logprobs(self, data):
            logits = model(data["input_ids"]).logits.float().log_softmax(-1)
            return logits[:, :-1].gather(2, data["input_ids"][:, 1:, None])[:, :, 0]

        @torch.no_grad()
        def get_logprobs(self, data, **_):
            return {"logprobs": torch.nn.functional.pad(self.logprobs(data), (1, 0))}

        def train(self, data, loss_fn, **_):
            nonlocal number
            tokens = (data["token_mask"] * data["sample_mask"][:, None])[:, 1:].sum()
            loss, metrics = loss_fn(self.logprobs(data), data, data["sample_mask"].sum(), tokens)
            loss.backward()
            move()
            number += 1
            step(loss.item(), model)
            all_metrics = {name: [value] for name, value in metrics.items()} | {"global_valid_toks": [float(tokens)]}
            return {"loss": loss.detach(), "grad_norm": torch.tensor(0.0), "all_mb_metrics": all_metrics}

    class Generation(Quiet):
        weight_synchronizer, requires_kv_scale_sync = None, False
        get_logger_metrics = get_step_metrics = lambda self: {}

        def generate(self, data, greedy):
            made = []
            rewards.clear()
            for row, (ids, length) in enumerate(zip(data["input_ids"].tolist(), data["input_lengths"].tolist())):
                response, logp, reward = respond(model, number, ids[:length], row % GROUP)
                made.append((ids[:length] + response, [0.0] * length + logp, len(response)))
                rewards.append(reward)
            width = max(len(ids) for ids, _, _ in made)
            pad = lambda part: torch.tensor([row[part] + [0] * (width - len(row[part])) for row in made])
            lengths, whole = (torch.tensor(counts) for counts in ([row[2] for row in made], [len(row[0]) for row in made]))
            return grpo.BatchedDataDict(
                output_ids=pad(0), logprobs=pad(1), generation_lengths=lengths, unpadded_sequence_lengths=whole
            )

    class Environment:
        def step(self, logs, info):
            count = len(logs)
            said = [{"role": "environment", "content": ""}] * count
            return said, [{}] * count, None, torch.tensor(rewards), torch.ones(count, dtype=torch.bool), None

    def batch():
        count = len(PROMPTS)
        row = lambda text: [{"role": "user", "content": text, "token_ids": torch.tensor(tokenizer(text)["input_ids"])}]
        return grpo.BatchedDataDict(
            message_log=[row(text) for text in PROMPTS], task_name=["letters"] * count, extra_env_info=[{}] * count,
            loss_multiplier=torch.ones(count), idx=torch.arange(count), length=torch.full((count,), 2),
        )  # fmt: skip

    loss, plain = losses.ClippedPGLossConfig(reference_policy_kl_penalty=0.0), {"use_leave_one_out_baseline": False}
    settings = grpo.GRPOConfig.model_construct(
        num_prompts_per_step=len(PROMPTS), num_generations_per_prompt=GROUP, max_num_steps=STEPS, max_num_epochs=1,
        max_rollout_turns=1, val_period=0, val_at_start=False, val_start_at=-1, **plain, normalize_rewards=True,
        skip_reference_policy_logprobs_calculation=True, advantage_clip_low=None, advantage_clip_high=None,
        adv_estimator=grpo.AdvEstimatorConfig.model_construct(name="grpo", **plain, normalize_rewards=True),
    )  # fmt: skip
    config = grpo.MasterConfig.model_construct(
        grpo=settings, loss_fn=loss, cluster={"num_nodes": 1, "gpus_per_node": 1}, data={"use_multiple_dataloader": False},
        policy={
            "max_total_sequence_length": 64, "make_sequence_length_divisible_by": 1, "precision": "float32",
            "generation": {"backend": "vllm", "colocated": {"enabled": False}, "vllm_cfg": {"async_engine": False}},
        },
        checkpointing={"enabled": False, "checkpoint_must_save_by": None, "save_period": 99}, env={}, logger={},
    )  # fmt: skip
    grpo.grpo_train(
        Policy(), Generation(), [batch() for _ in range(STEPS)], None, tokenizer, losses.ClippedPGLossFn(loss),
        {"letters": Local(Environment())}, None, Quiet(), Quiet(), grpo._initial_grpo_save_state(), config,
    )  # fmt: skip
