"""rLLM: `UnifiedTrainer.fit` with its workflow engine, `SimpleWorkflow`, grouping, filters and estimators.

Stood in for: the backend (verl or Tinker), which samples and updates; its class is the abstract one of rLLM.
"""

from pathlib import Path
from types import SimpleNamespace

import tiny
import torch
from omegaconf import OmegaConf

from . import GROUP, OBSERVED, PROMPTS, STEPS, respond, sgd


def run(theirs, monkeypatch, folder, own, step, turns=1):
    trainers, protocol = theirs("rllm.trainer.unified_trainer"), theirs("rllm.trainer.backend_protocol")
    workflows, rollout, data = (theirs(f"rllm.{name}") for name in ("workflows.simple_workflow", "engine.rollout", "data"))
    if not own:
        theirs("advlab.rllm").register()
    monkeypatch.chdir(folder)
    model, tokenizer = tiny.model(), tiny.tokenizer()
    move, number = sgd(model), 0

    class Engine(rollout.RolloutEngine):
        async def get_model_response(self, messages, application_id=None, **_):
            prompt = tokenizer(" ".join(message["content"] for message in messages))["input_ids"]
            ids, logp, _ = respond(model, number, prompt, int(application_id.rpartition(":")[2]), len(messages) // 2)
            text = tokenizer.decode(ids)
            given = {"prompt_ids": prompt, "completion_ids": ids, "logprobs": logp, "reasoning": "", "finish_reason": "stop"}
            return rollout.ModelOutput(text=text, content=text, **given)

    class SeveralTurns(workflows.SimpleWorkflow):
        async def run(self, task, uid, **_):
            self.reset(task, uid)
            messages = [{"role": "user", "content": task["question"]}]
            for _ in range(1 + int(uid.rpartition(":")[2]) % turns):
                output = await self.rollout_engine.get_model_response(messages, application_id=uid)
                said = [{"role": "assistant", "content": output.content}]
                reward = self.reward_function(task, workflows.Action(action=output.content)).reward
                step = workflows.Step(chat_completions=messages + said, model_output=output, reward=reward)
                self.agent.trajectory.steps.append(step)
                messages = messages + said + [{"role": "user", "content": OBSERVED}]
            self.commit(agent=self.agent, reset=True)
            raise workflows.TerminationEvent(workflows.TerminationReason.ENV_DONE)

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
            return [one for group in state.trajectory_groups for trajectory in group.trajectories for one in trajectory.steps]

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
    score = lambda task, action: SimpleNamespace(
        reward=tiny.many_a([action.action.replace("<pad>", "")])[0], is_correct=True, metadata={}
    )
    questions = data.Dataset([{"question": text} for text in PROMPTS])
    workflow = SeveralTurns if turns > 1 else workflows.SimpleWorkflow
    trainer = trainers.UnifiedTrainer(Backend, config, workflow, questions, workflow_args={"reward_function": score})
    trainer.fit()
    trainer.shutdown()
