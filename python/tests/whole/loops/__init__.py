"""The loops of trainers that want GPUs, as far as they run on a CPU: their own loop, conversion of rollouts, advantage and loss.

Each module's `run(theirs, monkeypatch, folder, own, step)` trains three steps, with the trainer's `own` estimator of GRPO or a
recipe's, and calls `step(loss, policy)` after each. `theirs(name)` imports a trainer's module. What samples and what moves the
weights is a tiny policy of transformers.
"""

import typing
from types import SimpleNamespace

import ray
import torch
import typing_extensions
from tiny import WORDS, many_a, sample

STEPS, PROMPTS, GROUP = 3, ["a b", "c d", "e f", "g h"], 4


def respond(policy, step, prompt, index):
    """The response number `index` to a prompt's tokens at a step, its log-probs, and its reward."""
    ids, logp = sample(policy, prompt, seed=1000 * step + 100 * prompt[0] + index)
    return ids, logp, many_a([" ".join(WORDS[id] for id in ids)])[0]


def sgd(policy):
    """The function that moves a policy's weights by its gradient."""
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)

    def move(*_, **__):
        optimizer.step()
        optimizer.zero_grad()

    return move


class Settings(SimpleNamespace):
    """Settings of a trainer, None unless given."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Quiet:
    """Does nothing, whatever is asked of it."""

    def __getattr__(self, name):
        return lambda *_, **__: None


class Local:
    """An object whose methods are called as those of a Ray actor, in this process."""

    def __init__(self, actor):
        self._actor = actor

    def __getattr__(self, name):
        value = lambda given: ray.get(given) if isinstance(given, ray.ObjectRef) else given

        def remote(*args, **named):
            named = {key: value(given) for key, given in named.items()}
            return ray.put(getattr(self._actor, name)(*map(value, args), **named))

        return SimpleNamespace(remote=remote)


def bare(cls, **attributes):
    """An object of a class, or of a Ray actor's, that is not initialised."""
    cls = getattr(getattr(cls, "__ray_metadata__", None), "modified_class", cls)
    made = cls.__new__(cls)
    made.__dict__.update(attributes)
    return made


def on_a_cpu(monkeypatch):
    """torch.cuda's functions that a loop calls, no compiler, and a process group of one."""
    # Before Python 3.12 pydantic wants this one.
    monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    torch.compiler.set_stance("force_eager")
    if not ray.is_initialized():
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
