"""verl's functions of the names in stdlib/trainers.toml beside ours, on random ragged batches in float64.

Run with verl's Python: python examples/peers/verl_names.py target/release/advlab [--write]
Prints, for each name, the largest difference; --write puts it into stdlib/trainers.toml as `measured`.
"""

import json, re, subprocess, sys, tempfile, tomllib
from pathlib import Path

import numpy as np
import torch
from verl.trainer.ppo import core_algos

ROOT = Path(__file__).resolve().parents[2]
BATCHES = 8
TOKENS = ("old_logp", "logp", "ref_logp", "value", "rollout_logp", "entropy", "sum_pi_squared")


class Config(dict):
    """What verl reads of its configurations, as attributes and by `get`."""

    def __getattr__(self, name):
        return self.get(name)


def config(**more):
    defaults = dict(
        clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2, clip_ratio_c=3.0, gamma=1.0, tau_pos=1.0,
        tau_neg=1.05, norm_adv_by_std_in_grpo=True, global_batch_info={"dp_size": 1},
        policy_loss=Config(clip_cov_ratio=2e-4, clip_cov_lb=1.0, clip_cov_ub=5.0, kl_cov_ratio=2e-4, ppo_kl_coef=0.1,
                           dro_beta=0.5),
    )
    return Config(defaults | more)


def batch(seed):
    """Groups of 2 to 5, responses of 1 to 9 tokens; rewards right or wrong, or any numbers."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, size=rng.integers(3, 7))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    n = len(groups)
    lengths = rng.integers(1, 10, size=n)
    mask = np.arange(lengths.max())[None] < lengths[:, None]
    reward = rng.integers(0, 2, n).astype(float) if seed % 2 else rng.normal(size=n)
    columns = {"old_logp": -np.abs(rng.normal(1, 0.5, mask.shape)), "value": rng.normal(size=mask.shape),
               "entropy": np.abs(rng.normal(size=mask.shape)), "sum_pi_squared": rng.uniform(0, 1, mask.shape)}
    for name in ("logp", "ref_logp", "rollout_logp"):
        columns[name] = np.minimum(columns["old_logp"] + rng.normal(0, 0.3, mask.shape), -1e-3)
    per_response = {"reward_baseline": rng.normal(size=n), "advantage": rng.normal(size=n)}
    # verl's Pass@k takes the best of binary rewards, too; equal rewards in all of a batch leave nothing to compare.
    return groups, lengths, mask, reward, columns, per_response


def ours(binary, alias, data):
    groups, lengths, mask, reward, columns, per_response = data
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        with source.open("w") as file:
            for i, length in enumerate(lengths):
                row = {"group": int(groups[i]), "reward": reward[i], "length": int(length)}
                row |= {name: float(values[i]) for name, values in per_response.items()}
                row |= {name: values[i, :length].tolist() for name, values in columns.items()}
                file.write(json.dumps(row) + "\n")
        command = [binary, "apply", alias["ours"], str(source), "-o", str(out), "--json", "--dtype", "f64"]
        for setting in alias.get("set", "").split():
            command += ["--set", setting]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(ran.stderr)
        found = np.zeros(mask.shape)
        for i, line in enumerate(out.open()):
            value = json.loads(line)["advantage"]
            found[i, : lengths[i]] = value[: lengths[i]] if isinstance(value, list) else value
        return found, json.loads(ran.stdout)["loss"]


def theirs(name, alias, data):
    groups, lengths, mask, reward, columns, per_response = data
    tensor = {k: torch.tensor(v, dtype=torch.float64) for k, v in columns.items()}
    m = torch.tensor(mask, dtype=torch.float64)
    rewards = torch.zeros_like(m)
    rewards[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = torch.tensor(reward)
    index = groups.astype(str).astype(object)
    kind, _, rest = name.partition("=")
    value, *options = re.split(r"[ ,]+", rest)
    if kind == "adv_estimator":
        norm = "norm_adv_by_std_in_grpo=False" not in options
        call = core_algos.ADV_ESTIMATOR_REGISTRY[value]
        if value == "gae":
            return call(rewards, tensor["value"], m, 1.0, 0.95)[0].numpy() * mask, None
        arguments = dict(token_level_rewards=rewards, response_mask=m, index=index,
                         reward_baselines=torch.tensor(per_response["reward_baseline"]),
                         norm_adv_by_std_in_grpo=norm, old_log_probs=tensor["old_logp"],
                         sum_pi_squared=tensor["sum_pi_squared"], config=config())
        takes = call.__code__.co_varnames[: call.__code__.co_argcount]
        advantage = call(**{k: v for k, v in arguments.items() if k in takes})[0]
        return advantage.numpy() * mask, None
    modes = {"loss_mode": {}, "loss_agg_mode": {"loss_agg_mode": value}}
    if kind not in modes:
        return None
    loss_mode = value if kind == "loss_mode" else "vanilla"
    correction = {"loss_type": options[0]} if loss_mode == "bypass_mode" else None
    if "rollout_is=token" in options:
        correction["rollout_is"] = "token"
    settings = config()
    settings["policy_loss"]["rollout_correction"] = correction
    if loss_mode.startswith("dppo"):
        settings["clip_ratio_c"] = 20.0
    logp = tensor["logp"].clone().requires_grad_()
    advantage = torch.tensor(per_response["advantage"])[:, None].expand_as(m).clone()
    aggregate = modes[kind].get("loss_agg_mode") or AGGREGATE.get(loss_mode, "token-mean")
    loss, _ = core_algos.POLICY_LOSS_REGISTRY[loss_mode](
        tensor["old_logp"], logp, advantage, m, loss_agg_mode=aggregate, config=settings)
    loss.backward()
    return -mask.sum() * logp.grad.numpy() * mask, loss.item()


# Where ours is a mean over responses by default.
AGGREGATE = {"geo_mean": "token-mean", "gspo": "seq-mean-token-mean", "sapo": "seq-mean-token-mean"}


def measured(binary, alias):
    largest = [0.0, 0.0]
    for seed in range(BATCHES):
        data = batch(seed)
        they = theirs(alias["theirs"], alias, data)
        if they is None:
            return None
        we = ours(binary, alias, data)
        largest[0] = max(largest[0], float(np.abs(they[0] - we[0]).max()))
        if they[1] is not None:
            largest[1] = max(largest[1], abs(they[1] - we[1]))
    return largest


def main():
    binary, write = sys.argv[1], "--write" in sys.argv
    path = ROOT / "stdlib/trainers.toml"
    text = path.read_text()
    for alias in tomllib.loads(text)["verl"]["names"]:
        try:
            largest = measured(binary, alias)
        except Exception as error:  # A name that cannot be run is told, and left as it is.
            print(f"{alias['theirs']:<60} {type(error).__name__}: {str(error)[:200]}")
            continue
        if largest is None:
            continue
        shown = f"{max(largest):.0e}"
        print(f"{alias['theirs']:<60} {alias['ours']} {alias.get('set', '')}: advantage or gradient {largest[0]:.1e}, loss {largest[1]:.1e}")
        if write:
            line = next(line for line in text.splitlines() if f'theirs = "{alias["theirs"]}",' in line)
            bare = re.sub(r', measured = "[^"]*"', "", line)
            text = text.replace(line, bare.replace(" },", f', measured = "{shown}" }},'))
    if write:
        path.write_text(text)


if __name__ == "__main__":
    main()
