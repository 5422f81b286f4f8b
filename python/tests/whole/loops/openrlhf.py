"""OpenRLHF: `PPOTrainer.fit` with its samples generator, experience maker, replay buffer, `ActorPPOTrainer` and losses.

Stood in for: vLLM's engines, DeepSpeed, and Ray's actors, whose methods are called in this process.
"""

import json
import sys
from types import SimpleNamespace

import tiny
import torch

from . import GROUP, PROMPTS, STEPS, Local, Settings, bare, on_a_cpu, sgd, trajectory

SIZE = GROUP * len(PROMPTS)
SETTINGS = {
    "actor": {"eps_clip_low_high": (0.2, 0.2), "policy_loss_type": "ppo", "loss_agg_mode": "token-mean", "aux_loss_coef": 0.0},
    "critic": {"freezing_steps": -1},
    "algo": {
        "kl": Settings(init_coef=0.0),
        "advantage": Settings(
            estimator="group_norm", gamma=1.0, lambd=1.0,
            is_correction_level="off", is_correction_mode="mask", is_correction_gating="ratio", is_correction_threshold=[0.5, 5.0],
        ),
    },
    "rollout": {"batch_size": len(PROMPTS), "n_samples_per_prompt": GROUP, "micro_batch_size": 4},
    "train": {"batch_size": SIZE, "num_episodes": STEPS, "max_epochs": 1, "seed": 1},
    "reward": {"clip_range": (-99, 99)},
    "ds": {"ring_attn_size": 1, "tensor_parallel_size": 1},
    "data": {"prompt_split": "train", "max_samples": 999, "input_key": "input", "dataloader_num_workers": 0},
    "logger": {"wandb": Settings(), "logging_steps": 1},
    "eval": {"steps": -1}, "vllm": {}, "ckpt": {"save_steps": -1},
}  # fmt: skip


def run(theirs, monkeypatch, folder, own, step, turns=1):
    on_a_cpu(monkeypatch)
    vllm = SimpleNamespace(SamplingParams=Settings, __version__="1", __spec__=None)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    trainers, actors = theirs("openrlhf.trainer.ppo_trainer"), theirs("openrlhf.trainer.ray.ppo_actor")
    maker, deepspeed = trainers.RemoteExperienceMaker, theirs("openrlhf.utils.deepspeed")
    monkeypatch.setattr(maker, "compute_advantages_and_returns", maker.compute_advantages_and_returns)
    if not own:
        theirs("advlab.openrlhf").patch()
    args = Settings(**{name: Settings(**given) for name, given in SETTINGS.items()})
    args.data.prompt_dataset, args.ckpt.path, model = str(folder / "prompts.jsonl"), str(folder), tiny.model()
    model.save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"input": text}) + "\n" for text in PROMPTS))
    number = 0

    class Strategy(deepspeed.DeepspeedStrategy):
        world_size, accumulated_gradient, ring_attn_group, optimizer_step = 1, 1, None, staticmethod(sgd(model))
        ds_device_mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("dp", "sp", "tp"))

        def backward(self, loss, model, optimizer, **_):
            loss.backward()

    class Engine:
        def get_num_unfinished_requests(self):
            return 0

        def generate_responses(self, prompt, label, hf_tokenizer, num_samples, **_):
            made = []
            for index in range(num_samples):
                taken = list(trajectory(model, number, prompt, index, turns))
                ranges = [(len(before), len(before) + len(ids)) for before, ids, _ in taken]
                tokens = {"observation_tokens": taken[-1][0] + taken[-1][1], "action_ranges": ranges}
                reward = sum(reward for *_, reward in taken)
                made.append({"prompt": prompt, "label": label, "reward": reward, "rollout_log_probs": None, **tokens})
            return made

    strategy, actor = Strategy(args=args, train_batch_size=SIZE), actors.Actor(model)
    actor.packing_samples = actor.is_vlm = False
    schedule = SimpleNamespace(get_last_lr=lambda: [0.5])
    with monkeypatch.context() as patched:
        # The replay buffer makes a device's name of a number.
        patched.setattr(torch.cuda, "current_device", lambda: 0)
        learner = actors.ActorPPOTrainer(
            strategy, actor, None, None, schedule, micro_train_batch_size=SIZE, dataloader_pin_memory=False
        )
    learner.replay_buffer.target_device = torch.device("cpu")
    # The engine samples with the actor's own weights.
    worker = bare(actors.PolicyModelActor, strategy=strategy, actor=actor, trainer=learner, broadcast_to_vllm=lambda: None)
    group = bare(trainers.RayActorGroup, _actor_handlers=[Local(worker)], duplicate_actors=1)
    trainer = bare(trainers.PPOTrainer)
    trainer.__init__(str(folder / "model"), strategy, group, None, None, None, [Local(Engine())], max_len=64, max_new_tokens=6)
    train = trainer.train_step

    def train_step(samples, global_step):
        nonlocal number
        status, after = train(samples, global_step)
        number += 1
        step(status["policy_loss"], model)
        return status, after

    trainer.train_step = train_step
    trainer.fit()
