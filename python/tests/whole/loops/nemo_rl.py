"""NeMo-RL: `grpo_train`, or `ppo_train` with a critic, with its rollout loop, message logs, batches, `ClippedPGLossFn` and
`MseValueLossFn`.

Stood in for: the policy and its generation (vLLM, DTensor or Megatron), the critic's model, the environment, logger and
checkpointer.
"""

import tiny
import torch

from . import GROUP, OBSERVED, PROMPTS, STEPS, Local, Quiet, on_a_cpu, respond, sgd


def run(theirs, monkeypatch, folder, own, step, critic=False, turns=1):
    on_a_cpu(monkeypatch)
    grpo, losses, ppo = (theirs(f"nemo_rl.algorithms.{name}") for name in ("grpo", "loss", "ppo"))
    nothing = lambda *_, **__: {}
    for module in (grpo, ppo):
        for name, stand_in in (
            ("_create_advantage_estimator", module._create_advantage_estimator),
            ("print_performance_metrics", nothing), ("refit_policy_generation", nothing), ("MemoryTracker", Quiet),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, stand_in)
    if not own:
        theirs("advlab.nemo_rl").patch()
    model, tokenizer = tiny.model(), tiny.tokenizer()
    move, rewards, number, of_critic = sgd(model), [], 0, torch.tensor(0.0)

    def counts(data):
        """The samples and the tokens that a loss is divided by."""
        return data["sample_mask"].sum(), (data["token_mask"] * data["sample_mask"][:, None])[:, 1:].sum()

    def results(loss, metrics, tokens):
        all_metrics = {name: [value] for name, value in metrics.items()} | {"global_valid_toks": [float(tokens)]}
        return {"loss": loss.detach(), "grad_norm": torch.tensor(0.0), "all_mb_metrics": all_metrics}

    class Critic(Quiet):
        def __init__(self):
            torch.manual_seed(1)
            self.of_token = torch.nn.Embedding(len(tiny.WORDS), 1)
            self.move = sgd(self.of_token)

        def get_values(self, data):
            return {"values": self.of_token(data["input_ids"]).detach()}

        def train(self, data, loss_fn, **_):
            nonlocal of_critic
            of_critic, metrics = loss_fn(self.of_token(data["input_ids"]), data, *counts(data))
            of_critic.backward()
            self.move()
            return results(of_critic, metrics, counts(data)[1])

    class Policy(Quiet):
        def logprobs(self, data):
            logits = model(data["input_ids"]).logits.float().log_softmax(-1)
            return logits[:, :-1].gather(2, data["input_ids"][:, 1:, None])[:, :, 0]

        @torch.no_grad()
        def get_logprobs(self, data, **_):
            return {"logprobs": torch.nn.functional.pad(self.logprobs(data), (1, 0))}

        def train(self, data, loss_fn, **_):
            nonlocal number
            loss, metrics = loss_fn(self.logprobs(data), data, *counts(data))
            loss.backward()
            move()
            number += 1
            step((loss + of_critic).item(), model)
            return results(loss, metrics, counts(data)[1])

    class Generation(Quiet):
        weight_synchronizer, requires_kv_scale_sync = None, False
        get_logger_metrics = get_step_metrics = lambda self: {}

        def generate(self, data, greedy):
            made = []
            rewards.clear()
            places = [place or (row % GROUP, 0) for row, place in enumerate(data["stop_strings"])]
            for place, ids, length in zip(places, data["input_ids"].tolist(), data["input_lengths"].tolist()):
                response, logp, reward = respond(model, number, ids[:length], *place)
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
            said = {"role": "environment", "content": OBSERVED if turns > 1 else ""}
            taken = [sum(message["role"] == "assistant" for message in log) for log in logs]
            index = [known.get("index", row % GROUP) for row, known in enumerate(info)]
            done = torch.tensor([count > at % turns for count, at in zip(taken, index)])
            # What the policy is given of a sample, besides its tokens.
            stops = list(zip(index, taken))
            return [said] * len(logs), [{"index": at} for at in index], stops, torch.tensor(rewards), done, None

    def batch():
        count = len(PROMPTS)
        row = lambda text: [{"role": "user", "content": text, "token_ids": torch.tensor(tokenizer(text)["input_ids"])}]
        return grpo.BatchedDataDict(
            message_log=[row(text) for text in PROMPTS], task_name=["letters"] * count, extra_env_info=[{}] * count,
            stop_strings=[None] * count,
            loss_multiplier=torch.ones(count), idx=torch.arange(count), length=torch.full((count,), 2),
        )  # fmt: skip

    loss, plain = losses.ClippedPGLossConfig(reference_policy_kl_penalty=0.0), {"use_leave_one_out_baseline": False}
    # In 0.7.0, these types are dictionaries.
    made = lambda kind, **values: kind.model_construct(**values) if hasattr(kind, "model_construct") else values
    both = {
        "num_prompts_per_step": len(PROMPTS), "num_generations_per_prompt": GROUP, "max_num_steps": STEPS, "max_num_epochs": 1,
        "max_rollout_turns": turns, "val_period": 0, "val_at_start": False, "val_at_end": False, "overlong_filtering": False,
        "skip_reference_policy_logprobs_calculation": True, "use_dynamic_sampling": False, "seq_logprob_error_threshold": None,
        "reward_scaling": made(grpo.RewardScalingConfig, enabled=False), "batch_multiplier": 1, "val_batch_size": 1,
        "reward_shaping": made(grpo.RewardShapingConfig, enabled=False),
    }  # fmt: skip
    settings = made(
        grpo.GRPOConfig, **both, val_start_at=-1, **plain, normalize_rewards=True, advantage_clip_low=None, advantage_clip_high=None,
        adv_estimator=made(grpo.AdvEstimatorConfig, name="grpo", **plain, normalize_rewards=True),
    )  # fmt: skip
    gae = {
        "name": "gae", "gae_lambda": 0.8, "gae_gamma": 0.9, "normalize_advantages": False, "gae_lambda_value": None,
        "gae_lambda_policy": None, "length_adaptive_alpha": 0.0,
    }  # fmt: skip
    config = {
        "loss_fn": loss, "cluster": {"num_nodes": 1, "gpus_per_node": 1}, "data": {"use_multiple_dataloader": False},
        "policy": {
            "max_total_sequence_length": 64, "make_sequence_length_divisible_by": 1, "precision": "float32",
            "generation": {"backend": "vllm", "colocated": {"enabled": False}, "vllm_cfg": {"async_engine": False}},
        },
        "checkpointing": {"enabled": False, "checkpoint_must_save_by": None, "save_period": 99}, "env": {}, "logger": {},
    }  # fmt: skip
    data, tasks = [batch() for _ in range(STEPS)], {"letters": Local(Environment())}
    of_policy = losses.ClippedPGLossFn(loss)
    if critic:
        of_ppo = ppo.PPOConfig(**both, ppo_epochs=1, policy_training_start_step=0, adv_estimator=gae)
        config = ppo.MasterConfig.model_construct(ppo=of_ppo, **config)
        of_values = ppo.MseValueLossFn(ppo.MseValueLossConfig())
        ppo.ppo_train(
            Policy(), Generation(), Critic(), data, None, tokenizer, of_policy, of_values, tasks, None, Quiet(), Quiet(),
            ppo._default_ppo_save_state(), config,
        )  # fmt: skip
        return
    save_state = getattr(grpo, "_initial_grpo_save_state", None) or grpo._default_grpo_save_state
    grpo.grpo_train(
        Policy(), Generation(), data, None, tokenizer, of_policy, tasks, None, Quiet(), Quiet(), save_state(),
        grpo.MasterConfig.model_construct(grpo=settings, **config),
    )  # fmt: skip
