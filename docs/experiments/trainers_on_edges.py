"""What the GRPO of each trainer gives on batches at the edges, as the rows of a table in docs/trainers.md.

PYTHONPATH=slime:SkyRL:RL:OpenRLHF:rllm:prime-rl/src:miles:AReaL:ROLL python docs/experiments/trainers_on_edges.py

TRL, verl, tinker-cookbook, torch and advlab belong in the environment, checkouts of the other trainers on PYTHONPATH (OpenRLHF: or
the folder `purelib` of its unpacked wheel). The functions are the trainers'
own. Imports of theirs that are not installed (vLLM, DeepSpeed, ...) are replaced by empty ones, which no function here calls.
"""

import asyncio
import importlib
import importlib.machinery
import itertools
import os
import subprocess
import sys
import tempfile
import typing
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ROLL_LOG_DIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "tests"))

import numpy as np
import torch
import typing_extensions

NAN = float("nan")
# Modules of a trainer's own that give nothing but the types of its settings.
TYPES_ALONE = [f"prime_rl.configs{name}" for name in ("", ".algorithm", ".shared", ".orchestrator")]
# The rewards of each case, group by group.
CASES = {
    ".35, .95 x 7": [[0.35] + [0.95] * 7],
    "1, .15 x 7": [[1.0] + [0.15] * 7],
    ".1 x 8": [[0.1] * 8],
    "NaN": [[1.0, 0.0, 1.0, NAN], [1.0, 0.0, 0.0, 0.0]],
    "one response": [[1.0]],
    "3 and 2 responses": [[1.0, 0.0, 0.0], [1.0, 0.0]],
}


def stand_in(name):
    sys.modules[name] = MagicMock(__path__=[], __version__="0", __spec__=importlib.machinery.ModuleSpec(name, None))


def theirs(name):
    """A module of a trainer's sources."""
    package = name.partition(".")[0]
    for _ in range(99):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name.partition(".")[0] == package and missing.name not in TYPES_ALONE:
                raise
            stand_in(missing.name)
    raise ImportError(name)


# torch asks for TensorBoard with an error of another kind.
if importlib.util.find_spec("tensorboard") is None:
    stand_in("torch.utils.tensorboard")


def bare(cls, **attributes):
    """An object that is not initialised."""
    cls = getattr(getattr(cls, "__ray_metadata__", None), "modified_class", cls)
    made = cls.__new__(cls)
    made.__dict__.update(attributes)
    return made


class Settings(SimpleNamespace):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def flat(groups):
    """The rewards in float32, and the group of each."""
    rewards = torch.tensor([reward for group in groups for reward in group], dtype=torch.float32)
    return rewards, [number for number, group in enumerate(groups) for _ in group]


def ours(groups):
    import advlab

    rewards, names = flat(groups)
    return advlab.load("grpo").advantage(reward=rewards, groups=names).advantage


def by_token(estimator, groups):
    rewards, names = flat(groups)
    advantages, _ = estimator(rewards[:, None], torch.ones(len(rewards), 1), np.array(names))
    return advantages[:, 0]


def verl(groups):
    return by_token(theirs("verl.trainer.ppo.core_algos").compute_grpo_outcome_advantage, groups)


def skyrl(groups):
    return by_token(theirs("skyrl.backends.skyrl_train.utils.ppo_utils").compute_grpo_outcome_advantage, groups)


def trl(groups):
    import tiny
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rewards, _ = flat(groups)
    with tempfile.TemporaryDirectory() as folder:
        settings = dict(per_device_train_batch_size=len(rewards), num_generations=len(groups[0]), max_completion_length=2)
        config = GRPOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none", **settings)
        score = lambda completions, **_: rewards.tolist()
        data = Dataset.from_dict({"prompt": ["a"]})
        trainer = GRPOTrainer(tiny.model(), score, config, data, processing_class=tiny.tokenizer())
        prompts = [{"prompt": "ab"[number]} for number, group in enumerate(groups) for _ in group]
        return trainer._generate_and_score_completions(prompts)["advantages"]


def slime(groups):
    rewards, _ = flat(groups)
    args = Settings(
        advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True,
        n_samples_per_prompt=len(groups[0]), rollout_batch_size=len(groups),
    )  # fmt: skip
    manager = bare(theirs("slime.ray.rollout").RolloutManager, args=args, custom_reward_post_process_func=None)
    samples = [SimpleNamespace(get_reward_value=lambda _, reward=reward: reward) for reward in rewards.tolist()]
    return manager._post_process_rewards(samples)[1]


def miles(groups):
    module, args = theirs("miles.ray.rollout.train_data_conversion"), Settings(
        advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True, n_samples_per_prompt=len(groups[0])
    )  # fmt: skip
    rewards, names = flat(groups)
    samples = [
        SimpleNamespace(index=at, group_index=name, rollout_id=None, get_reward_value=lambda _, reward=reward: reward)
        for at, (reward, name) in enumerate(zip(rewards.tolist(), names, strict=True))
    ]
    return module._post_process_rewards(args, samples, None)[1]


def areal(groups):
    """The normalisation of rewards (`reward_norm`) of AReaL's example of GRPO."""
    theirs("areal")  # The modules below import each other in a circle, which works only from here.
    settings = theirs("areal.api.cli_args").NormConfig(mean_level="group", std_level="group", group_size=len(groups[0]))
    return theirs("areal.utils.data").Normalization(settings)(flat(groups)[0], group_sizes=[len(group) for group in groups])


def roll(groups):
    count = SimpleNamespace(generating_args=SimpleNamespace(num_return_sequences=len(groups[0])))
    settings = SimpleNamespace(adv_estimator="grpo", actor_infer=count, reward_clip=None)
    data = SimpleNamespace(batch={"response_level_rewards": flat(groups)[0]})
    data, _ = theirs("roll.utils.functionals").reward_postprocess(data, settings, {})
    return data.batch["response_level_rewards"]


def tinker(groups):
    types = theirs("tinker_cookbook.rl.types")
    given = [
        types.TrajectoryGroup([types.Trajectory([], None) for _ in group], list(group), [{} for _ in group]) for group in groups
    ]
    return torch.cat(theirs("tinker_cookbook.rl.data_processing").compute_advantages(given))


def nemo_rl(groups):
    rewards, names = flat(groups)
    settings = SimpleNamespace(use_leave_one_out_baseline=True, normalize_rewards=True)
    estimator = theirs("nemo_rl.algorithms.advantage_estimator").GRPOAdvantageEstimator(settings, None)
    return estimator.compute_advantage(torch.tensor(names)[:, None], rewards, torch.ones(len(rewards), 1))[:, 0]


def openrlhf(groups):
    module = theirs("openrlhf.trainer.ppo_utils.experience_maker")
    rewards, _ = flat(groups)
    count = len(rewards)
    args = Settings(
        rollout=Settings(n_samples_per_prompt=len(groups[0])), reward=Settings(clip_range=(-99, 99)),
        algo=Settings(advantage=Settings(estimator="group_norm", gamma=1.0, lambd=1.0)),
    )  # fmt: skip
    maker = bare(
        module.RemoteExperienceMaker, strategy=Settings(args=args), args=args, advantage_estimator="group_norm",
        kl_ctl=SimpleNamespace(value=0.0),
    )  # fmt: skip
    one = torch.ones(count, 1)
    experience = SimpleNamespace(
        index=list(range(count)), rewards=rewards, kl=torch.zeros(count, 1), action_mask=one, info={}, values=None
    )
    return maker.compute_advantages_and_returns([experience])[0].advantages[:, 0]


def rllm(groups):
    estimate = theirs("rllm.trainer.algorithms.rl_algo").calculate_grpo_advantages_per_group
    return np.concatenate([estimate(np.array(group, dtype=np.float32))[0] for group in groups])


def prime_rl(groups):
    # Stood in for even if it is there: only types come from it, and their base is a package that no registry has.
    stand_in("prime_rl.configs.algorithm")
    algorithm = bare(theirs("prime_rl.orchestrator.algo.grpo").GRPOAlgorithm, length_penalty=None)
    agent, given = SimpleNamespace(trainable=True), []
    for group in groups:
        nodes = [SimpleNamespace(mask=[1], token_ids=[1]) for _ in group]
        traces = [
            SimpleNamespace(nodes=[node], reward=reward, agent=agent, has_error=False) for node, reward in zip(nodes, group)
        ]
        asyncio.run(algorithm.score_group([SimpleNamespace(traces=traces)]))
        given += [node.advantages[0] for node in nodes]
    return given


def shown(groups, call):
    """The first advantages of each group, or the error."""
    try:
        values = np.asarray(call(groups), dtype=np.float64)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:90]}"
    parts = []
    for group in groups:
        own, values = values[: len(group)], values[len(group) :]
        numbers = [f"{value:.3g}" for value in own]
        runs = [(number, len(list(same))) for number, same in itertools.groupby(numbers)]
        parts.append(", ".join(number if count == 1 else f"{number} x {count}" for number, count in runs))
    return "; ".join(parts)


def commit(package):
    folder = next(iter(importlib.util.find_spec(package).submodule_search_locations))
    done = subprocess.run(["git", "-C", folder, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "?"


TRAINERS = [
    ("advlab", ours, "advlab"), ("verl", verl, "verl"), ("TRL", trl, "trl"), ("SkyRL", skyrl, "skyrl"), ("slime", slime, "slime"),
    ("NeMo-RL", nemo_rl, "nemo_rl"), ("OpenRLHF", openrlhf, "openrlhf"), ("rLLM", rllm, "rllm"), ("prime-rl", prime_rl, "prime_rl"),
    ("Tinker's cookbook", tinker, "tinker_cookbook"), ("miles", miles, "miles"), ("AReaL", areal, "areal"), ("ROLL", roll, "roll"),
]  # fmt: skip


def spikes():
    """How many groups of 8 and 16 with one reward a and the others b get an advantage above 10 from NeMo-RL."""
    steps = [step / 20 for step in range(21)]
    groups = [[a] + [b] * (count - 1) for count in (8, 16) for a in steps for b in steps if a != b]
    large = [group for group in groups if nemo_rl([group]).abs().max() > 10]
    print(f"\nNeMo-RL: |A| above 10 in {len(large)} of {len(groups)} groups with one reward a and the others b")


def main():
    typing.TypedDict = typing_extensions.TypedDict  # Before Python 3.12 pydantic wants this one.
    print("| trainer |", " | ".join(CASES), "|")
    print("|---" * (len(CASES) + 1) + "|")
    for name, call, package in TRAINERS:
        if importlib.util.find_spec(package) is None:
            print(f"| {name} | not there: its sources belong on PYTHONPATH |")
            continue
        try:
            found = version(package)
        except importlib.metadata.PackageNotFoundError:
            found = commit(package)
        print(f"| {name} {found} |", " | ".join(shown(groups, call) for groups in CASES.values()), "|", flush=True)
    if importlib.util.find_spec("nemo_rl"):
        spikes()


if __name__ == "__main__":
    main()
