#!/usr/bin/env python3
"""Prints the cases of `sdpo` in estimators.json, from random policies over a vocabulary, and checks the formula itself: the mean over the
policy's tokens of (teacher_logp - logp) grad logp is the descent of KL(policy || teacher), by central differences. NumPy 2.4."""
import json

import numpy as np

rng = np.random.default_rng(2601)
VOCABULARY, GROUPS = 7, ["a", "b", "a", "b", "a", "c"]
MASK = [[1, 1, 1], [1, 0, 1, 1], [1], [0, 1, 1], [1, 1], [1, 1]]
REWARDS = np.array([1.0, 0.0, 0.0, 0.25, 0.5, 1.0])


def log_softmax(x):
    return x - np.log(np.exp(x).sum())


def kl(logits, teacher):
    logp = log_softmax(logits)
    return (np.exp(logp) * (logp - teacher)).sum()


old, taught = [], []
for row in MASK:
    pairs = []
    for _ in row:
        logits, teacher = rng.normal(size=VOCABULARY), log_softmax(rng.normal(size=VOCABULARY))
        logp, step = log_softmax(logits), 1e-5 * np.eye(VOCABULARY)
        descent = [-(kl(logits + e, teacher) - kl(logits - e, teacher)) / 2e-5 for e in step]
        # grad logp[token] with respect to the logits is the token less the probabilities.
        by_token = np.exp(logp) * (teacher - logp)
        assert np.allclose(by_token - by_token.sum() * np.exp(logp), descent, atol=1e-9)
        token = rng.choice(VOCABULARY, p=np.exp(logp))
        pairs.append((round(logp[token], 4), round(teacher[token], 4)))
    old.append([own for own, _ in pairs])
    taught.append([theirs for _, theirs in pairs])

for share, level in ((0.0, "token"), (0.9, "token"), (0.9, "response")):
    expected = []
    for i, row in enumerate(MASK):
        counts, gain = np.array(row) == 1, np.subtract(taught[i], old[i])
        centred = REWARDS[i] - REWARDS[[group == GROUPS[i] for group in GROUPS]].mean()
        if level == "token":
            expected.append(np.where(counts, share * centred + (1 - share) * gain, 0.0).tolist())
        else:
            expected.append(share * centred + (1 - share) * gain[counts].mean())
    inputs = {"mask": MASK, "logp_old": old, "logp_teacher": taught}
    if share > 0:
        inputs = {"rewards": REWARDS.tolist(), "groups": GROUPS, **inputs}
    case = {"name": f"sdpo_{level}_{share}", "method": "sdpo", "params": {"lambda": share, "level": level}, "inputs": inputs}
    print("  " + json.dumps({**case, "expected": {"advantages": expected}, "note": "made by make_sdpo.py"}) + ",")
