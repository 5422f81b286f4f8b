"""What the adapters share: recipes in the place of trainers' functions.

An adapter calls a recipe with the arguments of the function that it replaces, and returns what that function returns.
"""

import collections
import functools
import inspect
import multiprocessing
import os
from types import SimpleNamespace

import advlab
import torch

NUMBERS = os.environ.get("NUMBERS", "recipes")
REPLACED = {}
CALLS = multiprocessing.Value("i")  # Calls of recipes in this test, also by the processes that the test starts.
WITHIN = False


def wrong(x):
    return x * 1.5 + 0.25 if NUMBERS == "wrong" else x


def count():
    with CALLS.get_lock():
        CALLS.value += 1


def advantage(name, mask, groups=None, given=None, **columns):
    count()
    groups = list(range(len(mask))) if groups is None else groups
    out = advlab.load(name, **(given or {})).advantage(groups=groups, mask=mask, **columns)
    a = out.advantage if out.advantage.dim() == 2 else out.advantage[:, None] * mask
    return wrong(a.to(torch.float32) if a.dtype != mask.dtype and mask.dtype.is_floating_point else a), out


def loss(name, mask=None, groups=None, given=None, **columns):
    count()
    rows = len(columns["logp"])
    mask = torch.ones_like(columns["logp"]) if mask is None else mask
    out = advlab.load(name, **(given or {})).loss(mask=mask, groups=list(range(rows)) if groups is None else groups, **columns)
    return SimpleNamespace(loss=wrong(out.loss), grad=out.grad)


def each(name, given, **columns):
    """The loss of each token, as the loss of a batch of this token alone."""
    shape = columns["logp"].shape
    flat = [
        {key: value.expand(shape).reshape(-1)[at].reshape(1, 1) for key, value in columns.items()} for at in range(shape.numel())
    ]
    return torch.stack([loss(name, given=given, **one).loss for one in flat]).reshape(shape)


def replaced(target):
    """A function of a trainer, `module:name` or `module:Class.method`, whose place the function takes that is decorated."""

    def take(function):
        REPLACED[target] = function
        return function

    return take


def named(function):
    """Calls it with the arguments of the trainer's function by name, with their defaults."""

    def call(own, *args, **kwargs):
        bound = inspect.signature(own).bind(*args, **kwargs)
        bound.apply_defaults()
        result = function(collections.namedtuple("Arguments", bound.arguments)(**bound.arguments))
        return own(*args, **kwargs) if result is NotImplemented else result

    return call


def in_place_of(own, function):
    """The function instead of a trainer's own, except within another that was replaced: what that one computes is not used."""

    @functools.wraps(own)
    def unseen(*args, **kwargs):
        global WITHIN
        before, WITHIN = WITHIN, True
        try:
            return own(*args, **kwargs)
        finally:
            WITHIN = before

    @functools.wraps(own)
    def ours(*args, **kwargs):
        return own(*args, **kwargs) if WITHIN else function(unseen, *args, **kwargs)

    return ours


def estimator(name, **given):
    """An estimator of verl's and SkyRL's form: the sum of the token rewards is the reward."""

    @named
    def call(x):
        extra = {}
        if hasattr(x, "norm_adv_by_std_in_grpo") or hasattr(x, "grpo_norm_by_std"):
            std = getattr(x, "norm_adv_by_std_in_grpo", getattr(x, "grpo_norm_by_std", True))
            a, _ = advantage(
                "grpo" if std else "dr_grpo", x.response_mask, list(x.index), extra, reward=x.token_level_rewards.sum(-1)
            )
        else:
            a, _ = advantage(name, x.response_mask, list(x.index), given, reward=x.token_level_rewards.sum(-1))
        return a, a

    return call


@named
def gae(x):
    """Whitened if the function has a mask: a function without one leaves that to its caller."""
    rewards = getattr(x, "token_level_rewards", getattr(x, "rewards", None))
    mask = getattr(x, "response_mask", torch.ones_like(rewards))
    given = {"gamma": x.gamma, "lambda": getattr(x, "lam", getattr(x, "lambd", None)), "whiten": hasattr(x, "response_mask")}
    a, out = advantage("gae", mask, None, given, token_reward=rewards, value=x.values)
    return a, wrong(out.returns)


def returns_of(x):
    rewards = getattr(x, "token_level_rewards", getattr(x, "rewards", None))
    gamma = x.discount if hasattr(x, "discount") else x.gamma
    return advantage("reinforce", torch.ones_like(rewards), None, {"gamma": gamma}, token_reward=rewards)[0]


returns = named(returns_of)


@named
def reinforce_pp(x):
    gamma = x.config.gamma if hasattr(x, "config") else x.gamma
    rewards = {"token_reward": x.token_level_rewards}
    a, _ = advantage("reinforce_pp", x.response_mask, None, {"kl_beta": 0.0, "gamma": gamma}, **rewards)
    return a, advantage("reinforce", x.response_mask, None, {"gamma": gamma}, **rewards)[0]


KL = {"kl": "k1", "k1": "k1", "abs": "abs", "k2": "k2", "mse": "k2", "k3": "k3", "low_var_kl": "k3"}


def kl(kind, logp, ref_logp):
    zero = torch.zeros_like(logp)
    given = {"kl": kind, "kl_beta": 1.0}
    return each("ppo_clip", given, logp=logp, old_logp=logp.detach(), ref_logp=ref_logp, advantage=zero)


def clipped(own, ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c=None):
    """PPO's loss of each token, in slime's and miles' form."""
    given = {"clip_low": eps_clip, "clip_high": eps_clip_high} | ({"dual_clip": eps_clip_c} if eps_clip_c else {})
    share = own(ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c)[1]
    return each("ppo_clip", given, logp=-ppo_kl, old_logp=torch.zeros_like(ppo_kl), advantage=advantages), share


def mean(x, mask, **given):
    """A mean of token losses, which is the policy gradient of advantages of -1 with the losses as log-probs."""
    return loss("policy_gradient", mask, given=given, logp=x, advantage=-torch.ones_like(x)).loss


def gradient(name, gap, mask, **given):
    """The gradient of the loss of advantages of -1 at ratio 1, whose policies differ by `gap`: the weight of each token."""
    zero = torch.zeros_like(gap)
    columns = {"logp": zero, "old_logp": zero, "rollout_logp": -gap, "advantage": zero - 1}
    return wrong(loss(name, mask, given={**given, "aggregate": "token_sum"}, **columns).grad)
