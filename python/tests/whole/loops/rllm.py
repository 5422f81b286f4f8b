"""rLLM: `UnifiedTrainer.fit` with its workflow engine, `SimpleWorkflow`, grouping, filters and estimators.

Stood in for: the backend (verl or Tinker), which samples and updates; its class is the abstract one of rLLM.
"""

from pathlib import Path
from types import SimpleNamespace

import tiny
import torch
from omegaconf import OmegaConf

from . import GROUP, PROMPTS, STEPS, respond, sgd


def run(theirs, monkeypatch, folder, own, step):
    trainers, protocol = theirs("rllm.trainer.unified_trainer"), theirs("rllm.trainer.backend_protocol")
    workflows, rollout, data = (theirs(f"rllm.{name}") for name in ("workflows.simple_workflow", "engine.rollout", "data"))
    if not own:
        theirs("advlab.rllm").register()
    monkeypatch.chdir(folder)
    model, tokenizer = tiny.model(), tiny.tokenizer()
    move, number = sgd(model), 0

    class Engine(rollout.RolloutEngine):
        async def get_model_response(self, messages, application_id=None, **_):
            prompt = tokenizer(messages[0]["content"])["input_ids"]
            ids, logp, _ = respond(model, number, prompt, int(application_id.rpartition(":")[2]))
            text = tokenizer.decode(ids, skip_special_tokens=True)
            given = {"prompt_ids": prompt, "completion_ids": ids, "logprobs": logp, "reasoning": "", "finish_reason": "stop"}
            return rollout.ModelOutput(text=text, content=text, **given)

    class Backend(protocol.BackendProtocol):
        def init_rollout_engine(self, **_):
            return Engine()

        def validate_config(self):
            pass

        shutdown = validate_config

        async def generate_episodes(self, batch, agent_workflow_engine, **_):
            tasks = [task for task in batch for _ in range(GROUP)]
            return await agent_workflow_engine.execute_tasks(tasks, [task["question"] for task in tasks])

        def transform_to_backend_batch(self, state, **_):
            return [trajectory.steps[0] for group in state.trajectory_groups for trajectory in group.trajectories]

        async def process_backend_batch(self, state, **_):
            pass

        async def compute_advantages(self, state, algorithm_config, **_):
            await super().compute_advantages(state, algorithm_config)

        async def update_policy(self, state, **_):
            nonlocal number
            logp = lambda row: tiny.logps(model, torch.tensor(row.prompt_ids), torch.tensor(row.response_ids))
            loss = -torch.cat([row.advantage * logp(row) for row in state.backend_batch]).mean()
            loss.backward()
            move()
            number += 1
            step(loss.item(), model)

    config = OmegaConf.create({"rllm": OmegaConf.load(Path(trainers.__file__).parent / "config/rllm/base.yaml")})
    config.rllm.data.train_batch_size, config.rllm.rollout.n, config.rllm.workflow.n_parallel_tasks = len(PROMPTS), GROUP, 2
    config.rllm.trainer.total_epochs, config.rllm.trainer.test_freq, config.rllm.workflow.retry_limit = STEPS, -1, 1
    config.rllm.algorithm.adv_estimator, config.rllm.algorithm.loss_agg_mode = "grpo" if own else "other", "token-mean"
    score = lambda task, action: SimpleNamespace(reward=tiny.many_a([action.action])[0], is_correct=True, metadata={})
    questions = data.Dataset([{"question": text} for text in PROMPTS])
    trainer = trainers.UnifiedTrainer(
        Backend, config, workflows.SimpleWorkflow, questions, workflow_args={"reward_function": score}
    )
    trainer.fit()
    trainer.shutdown()
