"""The loops of trainers that want GPUs, as far as they run on a CPU: their own loop, conversion of rollouts, advantage and loss.

Each module's `run(theirs, monkeypatch, folder, own, step)` trains three steps, with the trainer's `own` estimator of GRPO or a
recipe's, and calls `step(loss, policy)` after each. `theirs(name)` imports a trainer's module. What samples and what moves the
weights is a tiny policy of transformers. With `turns=3`, a trajectory has one to three turns.
"""

import typing
from types import SimpleNamespace

import ray
import torch
import typing_extensions
from tiny import WORDS, logps, many_a, model, sample, tokenizer

# With a few thousand weights, threads only wait for each other.
torch.set_num_threads(1)

STEPS, PROMPTS, GROUP = 3, ["a b", "c d", "e f", "g h"], 4
OBSERVED = "o p"  # What the environment answers to a turn.


def respond(policy, step, prompt, index, turn=0):
    """The response number `index` to a prompt's tokens at a step, its log-probs, and its reward; <pad> and <eos> are no words."""
    ids, logp = sample(policy, prompt, seed=1000 * step + 100 * prompt[0] + 10 * turn + index)
    return ids, logp, many_a([" ".join(WORDS[id] for id in ids if id > 1)])[0]


def trajectory(policy, step, text, index, turns):
    """The trajectory number `index` of a prompt: for each of its turns the tokens before it, its own, and its reward."""
    prompt = tokenizer()(text)["input_ids"]
    for turn in range(1 + index % turns):
        ids, _, reward = respond(policy, step, prompt, index, turn)
        yield prompt, ids, reward
        prompt = prompt + ids + tokenizer()(OBSERVED)["input_ids"]


def by_hand(turns, credit, mean, factors):
    """The weights before the first step and after each, if a turn's advantage is that of `credit`, times the step's factor, and
    the loss is a mean over `mean`. `credit` takes a list of a trajectory's rewards for each trajectory of a group."""
    policy = model()
    move, weights = sgd(policy), [torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()]
    for step, factor in enumerate(factors):
        terms = []  # For each trajectory a tensor for each turn.
        for text in PROMPTS:
            group = [list(trajectory(policy, step, text, index, turns)) for index in range(GROUP)]
            for taken, credits in zip(group, credit([[reward for *_, reward in taken] for taken in group]), strict=True):
                logp = [logps(policy, torch.tensor(before), torch.tensor(ids)) for before, ids, _ in taken]
                terms.append([factor * value * of_turn for value, of_turn in zip(credits, logp, strict=True)])
        parts = {
            "tokens": [one for taken in terms for turn in taken for one in turn],
            "turns": [turn.mean() for taken in terms for turn in taken],
            "trajectories": [torch.cat(taken).mean() for taken in terms],
        }
        (-torch.stack(parts[mean]).mean()).backward()
        move()
        weights.append(torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone())
    return weights


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
