#!/usr/bin/env python3
"""Writes methods.json: cases of the methods below, computed in plain loops from the formulas of the papers and the trainers' code that
each function names. Gradients are those of complex steps, which are exact: f(x + ih) = f(x) + ih f'(x). NumPy 2.4."""
import json
import math
from pathlib import Path

import numpy as np

rng = np.random.default_rng(4511)
CASES = []


def case(name, method, params, inputs, expected, note):
    CASES.append({"name": name, "method": method, "params": params, "inputs": inputs, "expected": expected, "note": note})


def real(x):
    return x.real if isinstance(x, complex) else x


def clip(x, low, high):
    return x if low <= real(x) <= high else (low if real(x) < low else high)


def least(a, b):
    return a if real(a) <= real(b) else b


def std(xs, ddof=1):
    mean = sum(xs) / len(xs)
    return math.sqrt(sum((x - mean) ** 2 for x in xs) / (len(xs) - ddof)) if len(xs) > ddof else 0.0


def grpo(rewards, groups, eps=1e-6):
    out = []
    for r, group in zip(rewards, groups):
        own = [x for x, g in zip(rewards, groups) if g == group]
        out.append(0.0 if max(own) == min(own) else (r - sum(own) / len(own)) / (std(own) + eps))
    return out


def members(groups, group):
    return [i for i, g in enumerate(groups) if g == group]


def batch(sizes, longest=6, by_token=True):
    """Interleaved groups, holes in the mask, a response without tokens at the end."""
    groups = [g for g, n in sizes.items() for _ in range(n)]
    order = rng.permutation(len(groups))
    groups = [groups[i] for i in order]
    mask, old, logp, advantage = [], [], [], []
    for i in range(len(groups)):
        n = int(rng.integers(1, longest + 1))
        row = [int(x) for x in rng.random(n) < 0.8]
        row[0] = 1
        mask.append(row if i + 1 < len(groups) else [0] * n)
        old.append([round(float(x), 4) for x in -rng.exponential(0.8, n) - 0.05])
        logp.append([round(float(x), 4) for x in np.minimum(old[-1] + rng.normal(0, 0.25, n), -0.01)])
        advantage.append([round(float(x), 4) for x in rng.normal(0, 1, n)])
    one = [round(float(x), 3) for x in rng.normal(0, 1, len(groups))]
    return {"groups": groups, "mask": mask, "logp_old": old, "logp": logp, "advantages": advantage if by_token else one}


def tokens(inputs, i):
    return [t for t, m in enumerate(inputs["mask"][i]) if m]


def advantage_of(inputs, i, t):
    a = inputs["advantages"][i]
    return a[t] if isinstance(a, list) else a


def mean_advantage(inputs, i):
    own = tokens(inputs, i)
    return sum(advantage_of(inputs, i, t) for t in own) / len(own)


def loss_case(name, method, params, inputs, f, note):
    """f takes the log-probs as rows of complex numbers and gives the loss."""
    rows, step = [[complex(x) for x in row] for row in inputs["logp"]], 1e-30
    grad = [[0.0] * len(row) for row in rows]
    for i, row in enumerate(rows):
        for t in range(len(row)):
            row[t] += 1j * step
            value = f(rows)
            grad[i][t] = value.imag / step if isinstance(value, complex) else 0.0
            row[t] -= 1j * step
    case(name, method, params, inputs, {"loss": float(real(f(rows))), "grad_logp": grad}, note)


def mean_of(values, keep, inputs, how):
    """The loss of the kept tokens: verl's agg_loss with the mask that is left, SkyRL's prompt_mean."""
    flat = [(i, t) for i in range(len(values)) for t in tokens(inputs, i) if keep[i][t]]
    of = lambda those: sum(values[i][t] for i, t in those)
    if how == "token":
        return of(flat) / len(flat)
    if how == "token_sum":
        return of(flat)
    cells = inputs["groups"] if how == "prompt" else range(len(values))
    sums = []
    for cell in sorted(set(cells)):
        own = [(i, t) for i, t in flat if cells[i] == cell]
        if own:
            sums.append(of(own) / (1 if how == "response_sum" else len(own)))
    return sum(sums) / len(sums)


def ppo(inputs, logp, i, t, low=0.2, high=0.2, dual=None):
    a, ratio = advantage_of(inputs, i, t), np.exp(logp[i][t] - inputs["logp_old"][i][t])
    loss = -least(ratio * a, clip(ratio, 1 - low, 1 + high) * a)
    return least(loss, -dual * a) if dual is not None and a < 0 else loss


def everywhere(inputs, f):
    return [[f(i, t) if m else 0.0 for t, m in enumerate(row)] for i, row in enumerate(inputs["mask"])]


# --- rejection: verl's rollout_corr_helper, in its own words: k1 = rollout - old between the logs of the bounds, k2 = d^2/2 and
# k3 = e^d - 1 - d with d = old - rollout at most the bound; its outlier mask and AReaL's weights.
def verl_keep(inputs, option, bounds):
    keep = [[True] * len(row) for row in inputs["mask"]]
    over, kind = option.rsplit("_", 1)
    for i in range(len(keep)):
        d = {t: inputs["logp_old"][i][t] - inputs["logp_rollout"][i][t] for t in tokens(inputs, i)}
        far = {t: {"k1": -x, "k2": 0.5 * x * x, "k3": math.exp(x) - 1 - x}[kind] for t, x in d.items()}
        if not far:
            continue
        near = lambda x: math.log(bounds[0]) <= x <= math.log(bounds[1]) if kind == "k1" else x <= bounds[1]
        xs = list(far.values())
        if over == "token":
            for t, x in far.items():
                keep[i][t] = near(x)
        elif over == "seq_max" and kind == "k1":
            keep[i] = [all(near(x) for x in xs)] * len(keep[i])
        else:
            pooled = {"seq_sum": sum(xs), "seq_mean": sum(xs) / len(xs), "seq_max": max(xs)}[over]
            keep[i] = [near(pooled)] * len(keep[i])
    return keep


BOUNDS = {
    "token_k1": (0.8, 1.2), "token_k2": (0, 0.02), "token_k3": (0, 0.02), "seq_sum_k1": (0.75, 1.4), "seq_sum_k2": (0, 0.05),
    "seq_sum_k3": (0, 0.05), "seq_mean_k1": (0.9, 1.1), "seq_mean_k2": (0, 0.02), "seq_mean_k3": (0, 0.02),
    "seq_max_k1": (0.7, 1.4), "seq_max_k2": (0, 0.06), "seq_max_k3": (0, 0.06),
}  # fmt: skip
OURS = {"token": "token", "seq_sum": "sum", "seq_mean": "mean", "seq_max": "max"}
AGGREGATES = ["token", "response", "response_sum", "prompt"]
for at, (option, bounds) in enumerate(BOUNDS.items()):
    inputs = batch({"a": 3, "b": 3, "c": 2})
    near = lambda x: round(float(x + rng.normal(0, 0.2)), 4)
    inputs["logp_rollout"] = [[near(x) for x in row] for row in inputs["logp_old"]]
    keep, over, kind = verl_keep(inputs, option, bounds), *option.rsplit("_", 1)
    flat = [keep[i][t] for i in range(8) for t in tokens(inputs, i)]
    assert 0 < sum(flat) < len(flat), option
    params = {"over": OURS[over], "estimator": kind, "high": bounds[1], "aggregate": AGGREGATES[at % 4]}
    if kind == "k1":
        params |= {"low": 1 / bounds[1], "high": 1 / bounds[0]}
    d = lambda i, t: inputs["logp_old"][i][t] - inputs["logp_rollout"][i][t]
    f = lambda logp: mean_of(everywhere(inputs, lambda i, t: ppo(inputs, logp, i, t)), keep, inputs, params["aggregate"])
    loss_case(f"rejection_{option}", "rejection", params, inputs, f, "verl, rollout_rs")
    if option in ("token_k1", "seq_mean_k1"):
        # AReaL: what is masked stays in the mean; the ratio, uncapped, is that of the token or the geometric mean.
        own = lambda i: [d(i, t) for t in tokens(inputs, i)]
        weight = lambda i, t: math.exp(d(i, t) if over == "token" else sum(own(i)) / len(own(i)))
        kept = lambda logp: everywhere(inputs, lambda i, t: ppo(inputs, logp, i, t) * weight(i, t) * keep[i][t])
        all_of = [[True] * len(row) for row in inputs["mask"]]
        g = lambda logp: mean_of(kept(logp), all_of, inputs, "token")
        theirs = {**params, "aggregate": "token", "denominator": "all", "weight": OURS[over], "weight_high": 1e9}
        loss_case(f"rejection_areal_{option}", "rejection", theirs, inputs, g, "AReaL, metric=ratio action=mask")


# --- tis, mode=kpop: AReaL's compute_binary_kl_divergence, the larger of both directions at most the bound; the ratio is not cut.
def coin(p, q):
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


for bound in (0.02, 2.0):
    inputs = batch({"a": 3, "b": 3})
    inputs["logp_rollout"] = [[min(-0.01, round(float(x + rng.normal(0, 0.4)), 4)) for x in row] for row in inputs["logp_old"]]

    def weight(i, t):
        p, q = math.exp(inputs["logp_old"][i][t]), math.exp(inputs["logp_rollout"][i][t])
        return p / q if max(coin(p, q), coin(q, p)) <= bound else 0.0

    all_of = [[True] * len(row) for row in inputs["mask"]]
    f = lambda logp: mean_of(everywhere(inputs, lambda i, t: weight(i, t) * ppo(inputs, logp, i, t)), all_of, inputs, "token")
    loss_case(f"tis_kpop_{bound}", "tis", {"mode": "kpop", "high": bound}, inputs, f, "AReaL, metric=binary_kl")

# --- fipo: ms-swift's _compute_fipo_influence, with distances over the tokens that count.
for params in ({"half_life": 2.0}, {"half_life": 32.0, "weight_low": 0.2, "dual_clip": 1.5, "safety": 1.2, "aggregate": "response"}):
    inputs = batch({"a": 3, "b": 4}, 8)
    gamma, dual, low = 2 ** (-1 / params["half_life"]), params.get("dual_clip"), params.get("weight_low", 0.0)

    def influence(logp, i, t):
        moved = [real(logp[i][k]) - inputs["logp_old"][i][k] for k in tokens(inputs, i) if k >= t]
        moved = [0.0 if dual is not None and math.exp(x) > dual else x for x in moved]
        f = clip(math.exp(sum(gamma**k * x for k, x in enumerate(moved))), 1 - low, 1.2)
        above = math.exp(real(logp[i][t]) - inputs["logp_old"][i][t]) > params.get("safety", 4.0)
        return clip(f, 0.8, 1.0) if above and advantage_of(inputs, i, t) < 0 else f

    all_of = [[True] * len(row) for row in inputs["mask"]]
    token = lambda logp: lambda i, t: influence(logp, i, t) * ppo(inputs, logp, i, t, dual=dual)
    f = lambda logp: mean_of(everywhere(inputs, token(logp)), all_of, inputs, params.get("aggregate", "token"))
    loss_case(f"fipo_{params['half_life']}", "fipo", params, inputs, f, "arXiv 2603.19835")


# --- real: ms-swift's loss_type=real; groups of one class add 0 and count.
def real_loss(inputs, logp, tau):
    losses = []
    for group in sorted(set(inputs["groups"])):
        classes = {0: [], 1: []}
        for i in members(inputs["groups"], group):
            own = tokens(inputs, i)
            if own:
                score = sum(logp[i][t] - inputs["logp_old"][i][t] for t in own) / len(own)
                classes[inputs["labels"][i]].append(score / tau)
        if not classes[0] or not classes[1]:
            losses.append(0.0)
            continue
        losses.append(np.log(1 + sum(np.exp(s) for s in classes[0])) + np.log(1 + sum(np.exp(-s) for s in classes[1])))
    return sum(losses) / len(losses)


for tau, labels in ((0.5, [1, 0, 1, 0, 0, 1, 0, 1, 1, 0]), (0.1, [1, 1, 1, 1, 0, 1, 1, 1, 1, 1])):
    inputs = batch({"a": 4, "b": 3, "c": 3})
    inputs["labels"] = labels
    inputs.pop("advantages")
    loss_case(f"real_{tau}", "real", {"tau": tau}, inputs, lambda logp: real_loss(inputs, logp, tau), "arXiv 2602.05630")

# --- a_star_po: TRL's A2POTrainer.compute_loss on the advantage r - V*. A response without tokens is in no mean.
for beta in (1e-3, 0.5):
    inputs = batch({"a": 3, "b": 3}, by_token=False)
    inputs["logp_ref"] = [[round(float(x + rng.normal(0, 0.3)), 4) for x in row] for row in inputs["logp_old"]]
    live = [i for i in range(6) if tokens(inputs, i)]
    log_ratio = lambda logp, i: sum(logp[i][t] - inputs["logp_ref"][i][t] for t in tokens(inputs, i))
    f = lambda logp: sum((beta * log_ratio(logp, i) - inputs["advantages"][i]) ** 2 for i in live) / len(live)
    loss_case(f"a_star_po_{beta}", "a_star_po", {"beta": beta}, inputs, f, "arXiv 2505.20686")


# --- gvpo: verl-recipe's compute_policy_loss_gvpo, with the mean over groups. Its mean R is a constant (the second case), which has
# the same gradient because the misses of a group sum to 0.
def gvpo(inputs, logp, beta, is_constant):
    losses = []
    for group in sorted(set(inputs["groups"])):
        own = [i for i in members(inputs["groups"], group) if tokens(inputs, i)]
        score = {i: beta * sum(logp[i][t] - inputs["logp_old"][i][t] for t in tokens(inputs, i)) for i in own}
        centre = sum(real(x) if is_constant else x for x in score.values()) / max(len(own), 1)
        level = sum(inputs["advantages"][i] for i in own) / max(len(own), 1)
        miss = sum((score[i] - centre - (inputs["advantages"][i] - level)) ** 2 for i in own)
        losses += [0.5 * miss / (len(own) - 1) if len(own) > 1 else 0.0] if own else []
    return sum(losses) / len(losses)


for beta, is_constant in ((0.1, False), (1.0, True)):
    inputs = batch({"a": 4, "b": 3, "c": 1}, by_token=False)
    name = f"gvpo_{beta}"
    loss_case(name, "gvpo", {"beta": beta}, inputs, lambda logp: gvpo(inputs, logp, beta, is_constant), "arXiv 2504.19599")


# --- gapo: arXiv 2609.00444, eq. 11: the upper clip by the number of right responses, on GSPO's ratio or on PPO's.
for kind, low, high in (("response", 0.03, 0.3), ("token", 0.2, 0.6)):
    inputs = batch({"a": 4, "b": 4, "c": 2}, by_token=False)
    inputs["labels"] = [int(x) for x in rng.integers(0, 2, 10)]

    def bound(i):
        own = [inputs["labels"][j] for j in members(inputs["groups"], inputs["groups"][i])]
        return low + (high - low) * (len(own) - sum(own)) / (len(own) - 1)

    def of_response(logp, i):
        own = tokens(inputs, i)
        s = np.exp(sum(logp[i][t] - inputs["logp_old"][i][t] for t in own) / len(own))
        a = inputs["advantages"][i]
        return -least(s * a, clip(s, 1 - low, 1 + bound(i)) * a)

    live = [i for i in range(10) if tokens(inputs, i)]
    all_of = [[True] * len(row) for row in inputs["mask"]]
    of_token = lambda logp: lambda i, t: ppo(inputs, logp, i, t, low, bound(i))
    by_response = lambda logp: sum(of_response(logp, i) for i in live) / len(live)
    by_token = lambda logp: mean_of(everywhere(inputs, of_token(logp)), all_of, inputs, "token")
    params = {"ratio": kind, "clip_low": low, "clip_high": high, "aggregate": kind}
    f = by_response if kind == "response" else by_token
    loss_case(f"gapo_{kind}", "gapo", params, inputs, f, "arXiv 2609.00444, eq. 11")

# --- mgpo: arXiv 2511.06221: GRPO times exp(-lambda D_KL of the group's accuracy from the target).
for strength, target in ((1.0, 0.5), (3.0, 0.7)):
    rewards, groups = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0], list("abacbabcacc")
    out = []
    for a, group in zip(grpo(rewards, groups), groups):
        own = [rewards[i] for i in members(groups, group)]
        p = sum(own) / len(own)
        distance = sum(x * math.log(x / q) for x, q in ((p, target), (1 - p, 1 - target)) if x > 0)
        out.append(math.exp(-strength * distance) * a)
    inputs = {"rewards": rewards, "groups": groups}
    case(f"mgpo_{strength}", "mgpo", {"lambda": strength, "target": target}, inputs, {"advantages": out}, "arXiv 2511.06221")

# --- wapo: the authors' trainer: r - mean, what is not above 0 masked.
rewards, groups = [0.2, 1.0, 0.7, 0.7, 0.0, 0.7, 0.3], list("aabbabc")
means = [sum(rewards[i] for i in members(groups, g)) / len(members(groups, g)) for g in groups]
winners = [r - m if r - m > 1e-12 else 0.0 for r, m in zip(rewards, means)]
case("wapo", "wapo", {}, {"rewards": rewards, "groups": groups}, {"advantages": winners}, "arXiv 2606.16154")

# --- rlsd: ms-swift's apply_rlsd_reweight on GRPO's advantage.
for share, reach, negative in ((0.5, 0.2, False), (1.0, 0.5, True)):
    inputs = batch({"a": 4, "b": 3})
    inputs = {"groups": inputs["groups"], "mask": inputs["mask"], "logp_old": inputs["logp_old"], "logp_teacher": inputs["logp"]}
    inputs["rewards"] = [1.0, 0.0, 0.25, 1.0, 0.0, 1.0, 0.5]
    out = everywhere(inputs, lambda i, t: 0.0)
    for i, a in enumerate(grpo(inputs["rewards"], inputs["groups"])):
        for t in tokens(inputs, i):
            gap = inputs["logp_teacher"][i][t] - inputs["logp_old"][i][t]
            spread = (1 - share) + share * clip(math.exp((a > 0) * gap - (a < 0) * gap), 1 - reach, 1 + reach)
            out[i][t] = a if negative and a >= 0 else a * spread
    params = {"lambda": share, "clip": reach, "negative_only": negative}
    case(f"rlsd_{share}", "rlsd", params, inputs, {"advantages": out}, "arXiv 2604.03128")

# --- gtpo: arXiv 2508.04349, eq. 3, 5 and 6. Places are those among the tokens that count.
for alpha, apart in ((0.1, False), (0.6, True)):
    inputs = batch({"a": 4, "b": 4})
    inputs = {"groups": inputs["groups"], "mask": inputs["mask"], "labels": [1, 0, 1, 1, 0, 0, 1, 0]}
    inputs["entropy"] = [[round(float(x), 3) for x in rng.random(len(row)) + 0.05] for row in inputs["mask"]]
    inputs["entropy"][1][0] = 0.0
    out = everywhere(inputs, lambda i, t: 0.0)
    for group in sorted(set(inputs["groups"])):
        x = {}
        for label in (0, 1):
            own = [i for i in members(inputs["groups"], group) if inputs["labels"][i] == label]
            rows = {i: [max(inputs["entropy"][i][t], 1e-8) for t in tokens(inputs, i)] for i in own}
            for i in own:
                for place, t in enumerate(tokens(inputs, i)):
                    at_place = [row[place] ** (1 if label else -1) for row in rows.values() if len(row) > place]
                    share = rows[i][place] ** (1 if label else -1) / sum(at_place)
                    x[i, t] = (1 if label else -1) * ((1 - alpha) + alpha * len(at_place) * share)
        for key in x:
            like = [x[k] for k in x if not apart or inputs["labels"][k[0]] == inputs["labels"][key[0]]]
            deviation = std(like, 0)
            out[key[0]][key[1]] = 0.0 if deviation == 0 else (x[key] - sum(like) / len(like)) / (deviation + 1e-6)
    case(f"gtpo_{alpha}", "gtpo", {"alpha": alpha, "apart": apart}, inputs, {"advantages": out}, "arXiv 2508.04349, eq. 3, 5, 6")

# --- gae_decoupled, retained: AReaL's relative_position_gae_lambda in its GAE.
for retained, gamma in ((0.3, 1.0), (0.9, 0.95)):
    mask = [[1, 0, 1, 1], [1], [1, 1, 0, 1, 1], [0, 1, 1]]
    inputs = {"mask": mask, "rewards": [1.0, 0.5, 0.0, 1.0]}
    inputs["values"] = [[round(float(x), 3) for x in rng.random(len(row))] for row in mask]
    out = everywhere(inputs, lambda i, t: 0.0)
    for i in range(4):
        own, carried, following = tokens(inputs, i), 0.0, 0.0
        rate = retained ** (1 / (len(own) - 1)) if len(own) > 1 else 1.0
        for t in reversed(own):
            delta = (inputs["rewards"][i] if t == own[-1] else 0.0) + gamma * following - inputs["values"][i][t]
            carried, following = delta + gamma * rate * carried, inputs["values"][i][t]
            out[i][t] = carried
    params = {"retained": retained, "gamma": gamma, "whiten": False}
    case(f"gae_retained_{retained}", "gae_decoupled", params, inputs, {"advantages": out}, "AReaL 2.0, lambda_fn.py")

# --- turn_grpo: RLinf's grpo_dynamic by turn; by turn index; rewards normalised before the sum.
TURNS = {
    "groups": list("aaaaaabbbbb"), "run": ["x", "y", "x", "z", "x", "y", "u", "v", "u", "v", "w"],
    "step": [0, 0, 1, 0, 2, 1, 0, 0, 1, 1, 0], "step_reward": [0.5, 0.1, 0.0, 0.9, 1.0, 0.4, 0.2, 0.2, 1.0, 0.3, 0.2],
}  # fmt: skip


def along(xs, gamma):
    """The discounted sum over a trajectory's later turns."""
    out, key = [0.0] * len(xs), list(zip(TURNS["groups"], TURNS["run"]))
    for i in range(len(xs)):
        later = [j for j in range(len(xs)) if key[j] == key[i] and TURNS["step"][j] >= TURNS["step"][i]]
        out[i] = sum(gamma ** (TURNS["step"][j] - TURNS["step"][i]) * xs[j] for j in later)
    return out


def among(xs, by_index, norm):
    cells = list(zip(TURNS["groups"], TURNS["step"])) if by_index else TURNS["groups"]
    if norm == "std":
        return grpo(xs, cells)
    return [x - sum(xs[j] for j in members(cells, c)) / len(members(cells, c)) for x, c in zip(xs, cells)]


for index, baseline, gamma, norm in (
    ("group", "return", 0.0, "std"), ("index", "return", 1.0, "std"), ("index", "reward", 1.0, "none"), ("group", "reward", 0.9, "std"),
):  # fmt: skip
    first, second = (lambda x: along(x, gamma)), (lambda x: among(x, index == "index", norm))
    x = second(first(TURNS["step_reward"])) if baseline == "return" else first(second(TURNS["step_reward"]))
    params = {"among": index, "baseline": baseline, "gamma": gamma, "norm": norm}
    case(f"turn_grpo_{index}_{baseline}", "turn_grpo", params, TURNS, {"advantages": x}, "RLinf, MT-GRPO")

# --- turn_credit: prime-rl's deltas, smear and _token_advantages, turn by turn; turns without a score in the second case.
for gamma, beta, unscored, lengths in ((0.8, 1.0, (), [1, 2, 3, 1, 2, 4, 1, 1, 2, 3, 1]), (1.0, 0.5, (2, 5, 6), [2, 1, 1, 0, 1, 1, 3, 2, 2, 1, 1])):
    scores = [0.2, 0.4, 0.1, 0.3, 0.9, 0.4, 0.0, 0.6, 0.5, 0.1, 0.7]
    scores = [None if i in unscored else x for i, x in enumerate(scores)]
    rewards = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.0]
    returns, credits = {}, [0.0] * 11
    for run in sorted(set(TURNS["run"])):
        rows = sorted(members(TURNS["run"], run), key=lambda i: TURNS["step"][i])
        progress, last = [], None
        for i in rows:
            progress.append(0.0 if None in (scores[i], last) else scores[i] - last)
            last = last if scores[i] is None else scores[i]
        shared = [0.0] * len(rows)
        for t, gain in enumerate(progress):
            weights = [gamma**d for d in range(t + 1)]
            for d, w in enumerate(weights):
                shared[t - d] += gain * w / sum(weights)
        size = sum(lengths[i] for i in rows)
        centre = sum(c * lengths[i] for c, i in zip(shared, rows)) / size if size else 0.0
        for c, i in zip(shared, rows):
            credits[i] = c - centre
        returns[run] = rewards[rows[-1]] + sum(progress)
    out = []
    for i in range(11):
        runs = {TURNS["run"][j] for j in members(TURNS["groups"], TURNS["groups"][i])}
        level = returns[TURNS["run"][i]] - sum(returns[run] for run in runs) / len(runs)
        out.append(level + beta * credits[i])
    inputs = {**{k: v for k, v in TURNS.items() if k != "step_reward"}, "state_score": scores, "rewards": rewards, "lengths": lengths}
    case(f"turn_credit_{gamma}", "turn_credit", {"gamma": gamma, "beta": beta}, inputs, {"advantages": out}, "prime-rl, pull request 3282")


# --- nemotron_length: NeMo-RL's length_penalty.py, one channel.
def nemotron(rewards, lengths, p):
    n, right = len(rewards), [i for i, r in enumerate(rewards) if r > 0]
    if any(r not in (0.0, 1.0) for r in rewards):
        return rewards
    change = [0.0] * n
    if len(right) > 1:
        own = [lengths[i] for i in right]
        span = max(own) - min(own)
        weights = [1 - (x - min(own)) / span if span else 0.0 for x in own]
        some = [i for i in right if lengths[i] > 0]
        if some:
            change[min(some, key=lambda i: lengths[i])] += p.get("bonus", 0.0)
        if len(some) > 1:
            change[max(some, key=lambda i: lengths[i])] -= p.get("longest_penalty", 0.0)
        middle = float(np.median(own))
        mad = float(np.median([abs(x - middle) for x in own]))
        for i, w in zip(right, weights):
            change[i] += p["coef"] * (w - sum(weights) / len(weights))
            if mad > 0 and mad / max(middle, 1e-9) >= 0.015 and 0.6745 * (lengths[i] - middle) / mad > p.get("outlier_z", 3.5):
                change[i] -= p.get("outlier_penalty", 0.0)
    out = []
    for i, r in enumerate(rewards):
        x = r + change[i]
        if i in right and max(lengths[j] for j in right) > 0:
            x -= p.get("pass_rate", 0.0) * len(right) / n * lengths[i] / max(lengths[j] for j in right)
        x = max(x, 0.0)
        if i in right and p.get("band_start") is not None:
            along_band = (lengths[i] - p["band_start"]) / (p["band_end"] - p["band_start"])
            x *= 1 - clip(along_band, 0.0, 1.0) * (1 - p["band_floor"])
        out.append(x)
    return out


for of, p in (
    ("all", {"coef": 0.1}), ("all", {"coef": 0.3, "bonus": 0.2, "longest_penalty": 0.25, "pass_rate": 0.4}),
    ("answer", {"coef": 0.0, "outlier_z": 2.0, "outlier_penalty": 0.3, "band_start": 4.0, "band_end": 20.0, "band_floor": 0.5}),
    ("reasoning", {"coef": 2.5, "bonus": 0.1}),
):  # fmt: skip
    groups = list("aababbacabbcda")
    rewards = [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    lengths = [12, 40, 9, 11, 9, 31, 13, 5, 90, 3, 7, 8, 6, 12]
    reasoning = [4, 30, 5, 4, 3, 20, 6, 1, 10, 0, 2, 3, 5, 4]
    counted = {"all": lengths, "reasoning": reasoning, "answer": [a - b for a, b in zip(lengths, reasoning)]}[of]
    shaped = list(rewards)
    for group in "abcd":
        own = members(groups, group)
        for i, x in zip(own, nemotron([rewards[i] for i in own], [counted[i] for i in own], p)):
            shaped[i] = x
    inputs = {"rewards": rewards, "groups": groups, "lengths": lengths, "reasoning_length": reasoning}
    expected = {"rewards": shaped, "advantages": grpo(shaped, groups)}
    case(f"nemotron_length_{of}_{p['coef']}", "nemotron_length", {"of": of, **p}, inputs, expected, "NeMo-RL")

# --- cosine_length: TRL's _CosineScaledReward; the paper's values with its penalty from the maximum on.
for p, exceeded in (({"max_length": 40}, None), ({"right_short": 2.0, "right_long": 1.0, "wrong_short": -10.0, "wrong_long": 0.0}, -10.0)):
    groups, labels = list("abaabbab"), [1, 0, 0, 1, 1, 0, 1, 1]
    lengths = [0, 7, 40, 20, 39, 13, 60, 1]
    most = p.get("max_length", 30)
    shaped = []
    for label, length in zip(labels, lengths):
        high, low = [
            (p.get("wrong_short", -1.0), p.get("wrong_long", -0.5)), (p.get("right_short", 1.0), p.get("right_long", 0.5)),
        ][label]  # fmt: skip
        r = low + 0.5 * (high - low) * (1.0 + math.cos(min(length / most, 1.0) * math.pi))
        shaped.append(exceeded if exceeded is not None and length >= most else r)
    params = {"max_length": most, **p} | ({} if exceeded is None else {"exceeded": exceeded})
    inputs = {"rewards": [float(x) for x in labels], "labels": labels, "groups": groups, "lengths": lengths}
    expected = {"rewards": shaped, "advantages": grpo(shaped, groups)}
    case(f"cosine_length_{most}", "cosine_length", params, inputs, expected, "TRL; arXiv 2502.03373, C.1")

# --- fapo: verl-recipe's compute_score_fapo: 1 or -1, and a flawed positive loses the penalty.
for penalty in (1.0, 0.4):
    rewards, groups = [1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0], list("aabbaba")
    flawed = [1, 0, 1, 0, 0, 1, 0]
    shaped = [r - penalty if r > 0 and bad else r for r, bad in zip(rewards, flawed)]
    inputs = {"rewards": rewards, "groups": groups, "flawed": flawed}
    expected = {"rewards": shaped, "advantages": grpo(shaped, groups)}
    case(f"fapo_{penalty}", "fapo", {"penalty": penalty}, inputs, expected, "verl-recipe, fapo")

text = ",\n".join("  " + json.dumps(one) for one in CASES)
Path(__file__).with_name("methods.json").write_text('{"cases": [\n' + text + "\n]}\n")
