"""SkyRL: `RayPPOTrainer.train` with its data set, dispatch, policy worker, model wrapper and losses.

Stood in for: the generator (vLLM), FSDP, and Ray's actors, whose methods are called in this process.
"""

import asyncio
import json
from types import SimpleNamespace

import tiny

from . import GROUP, PROMPTS, STEPS, Local, Quiet, bare, on_a_cpu, sgd, trajectory


def run(theirs, monkeypatch, folder, own, step, turns=1):
    on_a_cpu(monkeypatch)
    trainers, config = theirs("skyrl.train.trainer"), theirs("skyrl.train.config")
    names = ("workers.worker", "workers.model_wrapper", "distributed.dispatch", "inference_servers.utils")
    workers, wrapper, dispatch, _ = (theirs(f"skyrl.backends.skyrl_train.{name}") for name in names)
    utils = trainers.ppo_utils
    # SkyRL takes a name once in a process.
    if not own and "advlab" not in utils.AdvantageEstimatorRegistry.list_available():
        theirs("advlab.skyrl").register()
    size = len(PROMPTS)
    algorithm = config.AlgorithmConfig(
        advantage_estimator="grpo" if own else "advlab", loss_reduction="sequence_mean", use_kl_loss=False
    )
    trainer = config.TrainerConfig(
        train_batch_size=size, policy_mini_batch_size=size, micro_train_batch_size_per_gpu=4, micro_forward_batch_size_per_gpu=4,
        epochs=STEPS, eval_interval=-1, ckpt_interval=-1, hf_save_interval=-1, resume_mode="none", remove_microbatch_padding=False,
        export_path=str(folder), ckpt_path=str(folder), algorithm=algorithm,
    )  # fmt: skip
    trainer.placement.colocate_all = trainer.placement.colocate_policy_ref = False
    cfg = config.SkyRLTrainConfig(trainer=trainer, generator=config.GeneratorConfig(n_samples_per_prompt=GROUP))
    cfg.generator.step_wise_trajectories = turns > 1
    cfg.data.dataloader.num_workers, cfg.data.dataloader.persistent_workers = 0, False
    cfg.generator.inference_engine.enable_ray_prometheus_stats = False
    tiny.model().save_pretrained(folder / "model")
    rows = [{"prompt": [{"role": "user", "content": text}], "env_class": "none"} for text in PROMPTS]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = trainers.PromptDataset(str(folder / "prompts.jsonl"), tiny.tokenizer(), 64, num_workers=1)
    model = wrapper.HFModelWrapper(str(folder / "model"), bf16=False)

    class Strategy:
        optimizer_step = staticmethod(sgd(model))

        def backward(self, loss, model, optimizer):
            loss.backward()

        def all_reduce(self, values, op, group):
            return dict(values)

    class Generator:
        async def generate(self, batch):
            names = "prompt_token_ids", "response_ids", "rewards", "loss_masks", "stop_reasons", "trajectory_ids", "is_last_step"
            made = {name: [] for name in names}
            for row, (messages, key) in enumerate(zip(batch["prompts"], batch["trajectory_ids"])):
                number = batch["batch_metadata"].global_step - 1
                taken = list(trajectory(model.model, number, messages[0]["content"], row % GROUP, turns))
                for turn, (prompt, ids, reward) in enumerate(taken, 1):
                    for name, value in zip(names, (prompt, ids, reward, [1] * len(ids), "stop", key, turn == len(taken))):
                        made[name].append(value)
            return {**made, "rollout_metrics": None, "rollout_logprobs": None}

    async def later(*_, **__):
        pass

    nothing = lambda *_, **__: None
    rank = dispatch.MeshRank(dp=0, sp=0, tp=0, pp=0, world_size=1, dp_size=1, pp_size=1)
    worker = bare(
        workers.PolicyWorkerBase, cfg=trainer, model=model, strategy=Strategy(), mesh_rank=rank, optimizer=None,
        scheduler=SimpleNamespace(get_last_lr=lambda: [0.5]), device_mesh=Quiet(), save_memory_snapshot=nothing,
        finalize_pending_saves=nothing, policy_loss_fn=utils.PolicyLossRegistry.get(algorithm.policy_loss_type),
    )  # fmt: skip
    infos = [dispatch.ActorInfo(handle=Local(worker), rank=rank)]
    made = trainers.RayPPOTrainer(cfg, Quiet(), tiny.tokenizer(), data, None, Generator())
    made.policy_model = bare(workers.PPORayActorGroup, _actor_handlers=[infos[0].handle], actor_infos=infos)
    made.dispatch, train = trainers.WorkerDispatch(cfg, made.policy_model), made.train_critic_and_policy
    made.dispatch.init_weight_sync_state, made.dispatch.save_weights_for_sampler = nothing, later

    def train_critic_and_policy(batch):
        status = train(batch)
        step(status["policy_loss"], model)
        return status

    made.train_critic_and_policy = train_critic_and_policy
    monkeypatch.chdir(folder)
    asyncio.run(made.train())
