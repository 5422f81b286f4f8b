"""SkyRL: `RayPPOTrainer.train` with its data set, dispatch, policy worker, model wrapper and losses.

Stood in for: the generator (vLLM), FSDP, and Ray's actors, whose methods are called in this process.
"""

import asyncio
import json
import os
from types import SimpleNamespace

import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Local, Step, on_a_cpu, respond, sgd


def run(theirs, monkeypatch, folder, own, between):
    on_a_cpu(monkeypatch)
    trainers, config = theirs("skyrl.train.trainer"), theirs("skyrl.train.config")
    workers, wrapper = theirs("skyrl.backends.skyrl_train.workers.worker"), theirs("skyrl.backends.skyrl_train.workers.model_wrapper")
    dispatch, utils = theirs("skyrl.backends.skyrl_train.distributed.dispatch"), trainers.ppo_utils
    theirs("skyrl.backends.skyrl_train.inference_servers.utils")
    # SkyRL takes a name once in a process.
    if not own and "advlab" not in utils.AdvantageEstimatorRegistry.list_available():
        theirs("advlab.skyrl").register()
    size = len(PROMPTS)
    algorithm = config.AlgorithmConfig(
        advantage_estimator="grpo" if own else "advlab", loss_reduction="sequence_mean", use_kl_loss=False
    )
    trainer = config.TrainerConfig(
        train_batch_size=size, policy_mini_batch_size=size, micro_train_batch_size_per_gpu=8, micro_forward_batch_size_per_gpu=8,
        epochs=1, eval_interval=-1, ckpt_interval=-1, hf_save_interval=-1, resume_mode="none", remove_microbatch_padding=False,
        export_path=str(folder), ckpt_path=str(folder), algorithm=algorithm,
    )  # fmt: skip
    trainer.placement.colocate_all = trainer.placement.colocate_policy_ref = False
    cfg = config.SkyRLTrainConfig(trainer=trainer, generator=config.GeneratorConfig(n_samples_per_prompt=GROUP))
    cfg.data.dataloader.num_workers, cfg.data.dataloader.persistent_workers = 0, False
    tiny.model().save_pretrained(folder / "model")
    rows = [{"prompt": [{"role": "user", "content": text}], "env_class": "none"} for text in PROMPTS * STEPS]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = trainers.PromptDataset(str(folder / "prompts.jsonl"), tiny.tokenizer(), 64, num_workers=1)
    model = wrapper.HFModelWrapper(str(folder / "model"), bf16=False)
    steps, last = [], {}

    class Strategy:
        def backward(self, loss, model, optimizer):
            loss.backward()

        def optimizer_step(self, optimizer, model, scheduler, name):
            optimizer.step()
            optimizer.zero_grad()

        def all_reduce(self, values, op, group):
            return dict(values)

    class Generator:
        async def generate(self, batch):
            made = {"prompt_token_ids": [], "response_ids": [], "rewards": [], "loss_masks": [], "stop_reasons": []}
            for row, messages in enumerate(batch["prompts"]):
                prompt = tiny.tokenizer()(messages[0]["content"])["input_ids"]
                ids, _, reward = respond(model.model, batch["batch_metadata"].global_step, prompt, row % GROUP)
                for name, value in zip(made, (prompt, ids, reward, [1] * len(ids), "stop")):
                    made[name].append(value)
            return {**made, "rollout_metrics": None, "rollout_logprobs": None}

    worker = workers.PolicyWorkerBase.__new__(workers.PolicyWorkerBase)
    rank = dispatch.MeshRank(dp=0, sp=0, tp=0, pp=0, world_size=1, dp_size=1, pp_size=1)
    worker.cfg, worker.model, worker.strategy, worker.mesh_rank = cfg.trainer, model, Strategy(), rank
    worker.optimizer, worker.scheduler = sgd(model)
    worker.policy_loss_fn = utils.PolicyLossRegistry.get(algorithm.policy_loss_type)
    worker.device_mesh = SimpleNamespace(get_group=lambda name: None)
    worker.save_memory_snapshot = worker.finalize_pending_saves = worker.empty_cache = lambda *_, **__: None
    group = workers.PPORayActorGroup.__new__(workers.PPORayActorGroup)
    group._actor_handlers = [Local(worker)]
    group.actor_infos = [dispatch.ActorInfo(handle=group._actor_handlers[0], rank=rank)]

    class Dispatch(trainers.WorkerDispatch):
        def init_weight_sync_state(self, client):
            pass

        async def save_weights_for_sampler(self, *_, **__):
            pass

    tracker = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    made = trainers.RayPPOTrainer(cfg, tracker, tiny.tokenizer(), data, None, Generator())
    made.policy_model, made.dispatch = group, Dispatch(cfg, group)
    compute, train = made.compute_advantages_and_returns, made.train_critic_and_policy

    def compute_advantages_and_returns(batch):
        uids, reward = batch.metadata["uids"], batch["rewards"].sum(1)
        batch = compute(batch)
        mask = batch["response_mask"]
        last.update(
            reward=reward,
            group=torch.tensor([sorted(set(uids)).index(uid) for uid in uids]),
            advantage=(batch["advantages"] * mask).sum(1) / mask.sum(1),
        )
        return batch

    def train_critic_and_policy(batch):
        status = train(batch)
        steps.append(Step(status["policy_loss"], **last, policy=model))
        between(len(steps))
        return status

    made.compute_advantages_and_returns, made.train_critic_and_policy = compute_advantages_and_returns, train_critic_and_policy
    os.chdir(folder)
    asyncio.run(made.train())
    return steps
