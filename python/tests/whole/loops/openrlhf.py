"""OpenRLHF: `PPOTrainer.fit` with its samples generator, experience maker, replay buffer, `ActorPPOTrainer` and losses.

Stood in for: vLLM's engines, DeepSpeed, and Ray's actors, whose methods are called in this process.
"""

import json
import sys
from types import SimpleNamespace

import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Local, Step, on_a_cpu, respond, sgd, spaces


def arguments(folder):
    off = {"load_enable": False, "dynamic_batch_enable": False, "enable_sleep": False}
    return spaces(
        {
            "actor": {
                "num_nodes": 1, "num_gpus_per_node": 1, "eps_clip_low_high": (0.2, 0.2), "dual_clip": None, "policy_loss_type": "ppo",
                "aux_loss_coef": 0.0, "entropy_coef": None,
            },
            "critic": {"freezing_steps": -1},
            "algo": {
                "kl": {"target": None, "init_coef": 0.0, "use_loss": False, "estimator": "k1"},
                "advantage": {
                    "estimator": "group_norm", "gamma": 1.0, "lambd": 1.0, "is_correction_enable": False,
                    "is_correction_threshold": None, "is_correction_type": "tis", "no_std_norm": False,
                },
                "dynamic_filtering_enable": False,
            },
            "rollout": {
                "batch_size": len(PROMPTS), "n_samples_per_prompt": GROUP, "micro_batch_size": 4, "vllm_generate_batch_size": None,
                "max_new_tokens": 6,
            },
            "train": {
                **off, "batch_size": GROUP * len(PROMPTS), "num_episodes": 1, "max_epochs": 1, "seed": 1, "colocate_all": False,
                "colocate_actor_ref": False, "colocate_critic_reward": False, "async_enable": False,
            },
            "reward": {"clip_range": (-99, 99), "overlong_buffer_len": None, "stop_properly_penalty_coef": None},
            "ds": {**off, "param_dtype": "fp32", "packing_samples": False, "ring_attn_size": 1, "tensor_parallel_size": 1},
            "data": {
                "prompt_dataset": str(folder / "prompts.jsonl"), "prompt_probs": None, "prompt_split": "train", "max_samples": 999,
                "input_key": "input", "input_template": None, "dataloader_num_workers": 0, "disable_fast_tokenizer": False,
                "max_len": 64,
            },
            "logger": {"wandb": {"key": None}, "tensorboard_dir": None, "logging_steps": 1},
            "eval": {"dataset": None, "steps": -1}, "vllm": {**off}, "ckpt": {**off, "path": str(folder), "save_steps": -1},
        }
    )  # fmt: skip


def run(theirs, monkeypatch, folder, own, between):
    on_a_cpu(monkeypatch)
    vllm = SimpleNamespace(SamplingParams=lambda **given: SimpleNamespace(**given), __version__="1", __spec__=None)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    trainers, actors = theirs("openrlhf.trainer.ppo_trainer"), theirs("openrlhf.trainer.ray.ppo_actor")
    maker, deepspeed = trainers.RemoteExperienceMaker, theirs("openrlhf.utils.deepspeed")
    monkeypatch.setattr(maker, "compute_advantages_and_returns", maker.compute_advantages_and_returns)
    if not own:
        theirs("advlab.openrlhf").patch()
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"input": text}) + "\n" for text in PROMPTS * STEPS))
    steps, last, number = [], {}, 0

    class Strategy(deepspeed.DeepspeedStrategy):
        world_size, accumulated_gradient, ring_attn_group = 1, 1, None
        ds_device_mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("dp", "sp", "tp"))

        def backward(self, loss, model, optimizer, **_):
            loss.backward()

        def optimizer_step(self, optimizer, model, scheduler, **_):
            optimizer.step()
            optimizer.zero_grad()

    args = arguments(folder)
    strategy = Strategy(args=args, train_batch_size=args.train.batch_size)
    actor = actors.Actor(tiny.model())
    actor.packing_samples = actor.is_vlm = False
    optimizer, scheduler = sgd(actor.model)
    worker = actors.PolicyModelActor.__ray_metadata__.modified_class.__new__(actors.PolicyModelActor.__ray_metadata__.modified_class)
    worker.strategy, worker.actor = strategy, actor
    size = args.train.batch_size
    with monkeypatch.context() as patched:
        # The replay buffer makes a device's name of a number.
        patched.setattr(torch.cuda, "current_device", lambda: 0)
        worker.trainer = actors.ActorPPOTrainer(
            strategy, actor, None, optimizer, scheduler, micro_train_batch_size=size, dataloader_pin_memory=False
        )
    worker.trainer.replay_buffer.target_device = torch.device("cpu")
    worker.broadcast_to_vllm = lambda: None  # The engine samples with the actor's own weights.

    class Engine:
        def get_num_unfinished_requests(self):
            return 0

        def generate_responses(self, prompt, label, sampling_params, max_length, hf_tokenizer, num_samples, images):
            ids, made = hf_tokenizer(prompt)["input_ids"], []
            for index in range(num_samples):
                response, _, reward = respond(actor.model, number, ids, index)
                tokens = {"observation_tokens": ids + response, "action_ranges": [(len(ids), len(ids + response))]}
                made.append({"prompt": prompt, "label": label, "reward": reward, "scores": reward, "rollout_log_probs": None, **tokens})
            return made

    group = trainers.RayActorGroup.__new__(trainers.RayActorGroup)
    group._actor_handlers, group.duplicate_actors = [Local(worker)], 1
    cls = trainers.PPOTrainer.__ray_metadata__.modified_class
    trainer = cls(str(folder / "model"), strategy, group, None, None, None, [Local(Engine())], max_len=64, max_new_tokens=6)
    make, train = trainer.experience_maker.make_experience_batch, trainer.train_step

    def make_experience_batch(samples):
        made = make(samples)
        last.update(
            reward=torch.cat([one.rewards for one in made]).float(),
            group=torch.tensor([place // GROUP for one in made for place in one.index]),
            advantage=torch.cat([(one.advantages * one.action_mask).sum(1) / one.action_mask.sum(1) for one in made]),
        )
        return made

    def train_step(samples, global_step):
        nonlocal number
        status, after = train(samples, global_step)
        steps.append(Step(status["policy_loss"], **last, policy=actor))
        number += 1
        between(number)
        return status, after

    trainer.experience_maker.make_experience_batch, trainer.train_step = make_experience_batch, train_step
    trainer.fit()
    return steps
