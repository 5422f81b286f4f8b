"""Whole runs of verl's `main_ppo` on the CPU: what verl trains on is what the recipe says. Each takes minutes."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl", reason="verl is not installed: pip install verl==0.9.1")

from scripts import documented
from tiny import mixed_by_hand

import advlab

RUN = Path(__file__).parent / "verl_run/run.sh"

FILTERS = """import "difficulty_filter" as difficulty;
fn params() { difficulty::params() + #{ low: #{ value: 0.2 }, high: #{ value: 0.5 } } }
fn weight(batch, p) { difficulty::weight(batch, p) }
fn advantage(batch, p) { difficulty::advantage(batch, p) }
"""
DAPO = """import "zero_variance_filter" as dynamic;
import "dapo_overlong" as overlong;
fn params() {
    dynamic::params() + overlong::params() + #{ max_length: #{ value: 8 }, buffer: #{ value: 4 }, min_std: #{ value: 0.2 } }
}
fn reward(batch, p) { overlong::reward(batch, p) }
fn weight(batch, p) { dynamic::weight(batch, p) }
fn advantage(batch, p) { dynamic::advantage(batch, p) }
"""
STATEFUL = """fn init(p) { #{ n: 0 } }
fn advantage(batch, p) { this.n += 1; metric("n", this.n); BY * (batch.reward - batch.reward.mean("group")) }
fn loss(batch, p) { (-batch.advantage * exp(batch.logp - batch.old_logp)).mean("batch") }
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs verl, and gives the steps and what the losses of actor and critic were given, in order."""
    capture = tmp_path / "capture"
    capture.mkdir()
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OWN_MODULES", ",verl_capture")
    monkeypatch.setenv("VERL_CAPTURE", str(capture))
    monkeypatch.setenv("LIMIT", "1500")

    def verl(*overrides, steps=3):
        with (tmp_path / "log").open("ab") as log:
            done = subprocess.run(
                ["bash", str(RUN), str(tmp_path / "v"), f"trainer.total_training_steps={steps}", *overrides],
                stdout=log,
                stderr=log,
            )
        text = (tmp_path / "log").read_text(errors="replace")
        assert done.returncode == 0, text[-4000:]
        of = lambda kind: [torch.load(file, weights_only=False) for file in sorted(capture.glob(f"{kind}-*.pt"))]
        return of("step"), of("actor"), of("critic"), text

    verl.capture = capture
    return verl


def columns(step):
    """A step's columns as a recipe's call by hand has them; without rows of padding."""
    rows = [at for at, uid in enumerate(step["uid"]) if not uid.startswith("pad")]
    of = {ours: step[theirs][rows] for theirs, ours in {"values": "value", "old_log_probs": "old_logp"}.items() if theirs in step}
    rewards = step["token_level_rewards"][rows]
    of |= {"token_reward": rewards, "reward": rewards.double().sum(1), "mask": step["response_mask"][rows]}
    return {"groups": [step["uid"][row] for row in rows], **of}, step["advantages"][rows], step["returns"][rows]


def part_of(given, at, steps):
    """Of what a loss was given in some steps, that of one: verl cuts each step into as many micro-batches."""
    each = len(given) // steps
    return given[at * each : (at + 1) * each]


def by_tokens(parts, name):
    """Of what a loss was given, each row's values by its old log-probs or values, whatever it was padded to: several rows of one
    token may have the same, in bfloat16."""
    key = "old_log_prob" if "old_log_prob" in parts[0] else "values"
    found = {}
    for part in parts:
        for old, values, counts in zip(part[key], part[name], part["response_mask"].bool()):
            found.setdefault(tuple(old[counts].tolist()), []).append(values[counts])
    return found


def is_among(rows, values):
    return any(torch.equal(row, values) for row in rows)


def weighted_by_hand(out, mask):
    counts = mask.sum(1)
    weight = torch.ones(len(mask)) if out.weight is None else out.weight.float()
    total = (weight * counts).sum()
    scaled = out.advantage * weight.to(out.advantage) * (counts.sum() / total if total else 0.0)
    return scaled[:, None] * mask if scaled.dim() == 1 else scaled


@pytest.mark.parametrize(
    ("text", "more"), [(FILTERS, ()), (DAPO, ("actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",))]
)
def test_weights_reach_the_loss(run, script, text, more):
    path = script(text)
    steps, actor, _, log = run("algorithm.adv_estimator=advlab", f"+algorithm.advlab.recipe={path}", *more)
    assert len(steps) == 3 and "advlab/serial" in log
    recipe, filtered = advlab.load(path), 0
    for at, step in enumerate(steps):
        given, found, _ = columns(step)
        out, mask = recipe.advantage(**given, step=at + 1), given["mask"]
        filtered += int((out.weight != out.weight[0]).any())
        if more:
            expected = out.advantage[:, None] * (out.weight * len(mask) / out.weight.sum())[:, None] * mask
        else:
            expected = weighted_by_hand(out, mask)
        assert torch.allclose(found, expected.float(), atol=1e-6)
        parts = part_of(actor, at, len(steps))
        trained_on, logp = by_tokens(parts, "advantages"), by_tokens(parts, "log_prob")
        now = torch.zeros(mask.shape)
        for row, counts in enumerate(mask.bool()):
            key = tuple(given["old_logp"][row][counts].tolist())
            assert is_among(trained_on[key], found[row][counts])
            now[row][counts] = logp[key].pop()
        # verl's own loss of the batch, from its micro-batches, is the recipe's weighted one.
        ppo = advlab.load("ppo_clip", dual_clip=3, aggregate="response" if more else "token")
        ours = ppo.loss(
            logp=now, old_logp=given["old_logp"], mask=mask, groups=given["groups"], weight=out.weight, advantage=out.advantage
        )
        assert sum(part["loss"] for part in parts).item() == pytest.approx(ours.loss.item(), abs=1e-6)
    assert filtered, "no group was filtered in these steps"


THEIR_TEACHER = [
    "distillation.enabled=True", "distillation.n_gpus_per_node=1", "distillation.nnodes=1", "ray_kwargs.ray_init.num_gpus=2",
    "distillation.teacher_models.teacher_model.inference.tensor_model_parallel_size=1",
    "distillation.distillation_loss.loss_mode=k3", "distillation.distillation_loss.distillation_loss_coef=0",
]  # fmt: skip


@pytest.mark.parametrize("is_own", [True, False])
def test_a_teacher_a_mixed_recipe_and_a_reload(run, script, tmp_path, monkeypatch, is_own):
    """docs/mixing.md, with its module or verl's own teachers. The teacher is the policy of the first step."""
    text = documented("rhai", "opd::advantage")
    path, folder, policy = script(text), tmp_path / "advlab", tmp_path / "v/model"
    overrides = [f"distillation.teacher_models.teacher_model.model_path={policy}", *THEIR_TEACHER]
    if is_own:
        (tmp_path / "my_teacher.py").write_text(documented("python", "PPOTrainer"))
        monkeypatch.setenv("OWN_MODULES", ",verl_capture,my_teacher")
        monkeypatch.setenv("TEACHER", str(policy))
        overrides = []

    def edit():
        while not list(run.capture.glob("step-*.pt")):
            time.sleep(0.02)
        script(text.replace("value: 0.3", "value: 0.6"))

    threading.Thread(target=edit, daemon=True).start()
    settings = [f"+algorithm.advlab.recipe={path}", f"+algorithm.advlab.folder={folder}", "+algorithm.advlab.keep_batches=9"]
    steps, actor, _, log = run("algorithm.adv_estimator=advlab", *settings, *overrides, steps=4)
    assert len(steps) == 4 and "advlab/std_teacher" in log
    shares = []
    for at, step in enumerate(steps):
        given, found, _ = columns(step)
        kept = advlab.read(folder / f"batches/step-{at + 1:06}.safetensors")
        gain = torch.tensor(kept["teacher_logp"])[:, : found.shape[1]] - given["old_logp"]
        # The policy leaves its teacher with the first update; verl computes with bfloat16.
        size = (gain * given["mask"]).abs().max()
        assert size < 0.05 if at == 0 else size > 0.1, (at, size)
        by_hand = lambda share: mixed_by_hand(share, given["reward"], np.array(given["groups"]), given["mask"], gain)
        shares += [share for share in (0.3, 0.6) if torch.allclose(found, by_hand(share).float(), atol=1e-4)]
        trained_on = by_tokens(part_of(actor, at, 4), "advantages")
        for row, counts in enumerate(given["mask"].bool()):
            assert is_among(trained_on[tuple(given["old_logp"][row][counts].tolist())], found[row][counts])
    assert shares[-1] == 0.6 and shares == sorted(shares) and 0.3 in shares, shares


def test_a_critic_learns_the_returns_of_gae(run):
    settings = {
        "enable": True, "strategy": "fsdp2", "fsdp.dtype": "float32", "fsdp.use_torch_compile": False, "ppo_micro_batch_size_per_gpu": 8,
        "model.path": run.capture.parent / "v/model", "model.use_remove_padding": False, "model.enable_gradient_checkpointing": False,
    }  # fmt: skip
    critic = [f"critic.{name}={value}" for name, value in settings.items()]
    steps, actor, critic, _ = run("algorithm.adv_estimator=advlab/gae", "algorithm.gamma=0.9", "algorithm.lam=0.8", *critic)
    recipe = advlab.load("gae", gamma=0.9, **{"lambda": 0.8})
    assert len(steps) == 3
    for at, step in enumerate(steps):
        given, found, returns = columns(step)
        out = recipe.advantage(**given)
        assert torch.allclose(found, out.advantage.float(), atol=1e-6) and torch.allclose(returns, out.returns.float(), atol=1e-6)
        trained_on = by_tokens(part_of(actor, at, 3), "advantages")
        targets = by_tokens(part_of(critic, at, 3), "returns")
        for row, counts in enumerate(given["mask"].bool()):
            assert is_among(trained_on[tuple(given["old_logp"][row][counts].tolist())], found[row][counts])
            assert is_among(targets[tuple(given["value"][row][counts].tolist())], returns[row][counts])


EXPORTED = """import grpo_torch
import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est


@register_adv_est("exported")
def exported(token_level_rewards, response_mask, index, **_):
    group = torch.tensor(np.unique(index, return_inverse=True)[1])
    advantage = grpo_torch.advantage(group=group, reward=token_level_rewards.sum(1))[:, None] * response_mask
    return advantage, advantage
"""


def test_verls_own_grpo_the_recipe_and_its_export_train_alike(run, tmp_path, monkeypatch):
    """The same prompts, responses and losses, step by step: each step's come from the weights of those before."""
    (tmp_path / "grpo_torch.py").write_text(advlab.load("grpo").torch().source)
    (tmp_path / "exported.py").write_text(EXPORTED)
    monkeypatch.setenv("OWN_MODULES", ",verl_capture,exported")
    found = []
    for estimator in ("grpo", "advlab/grpo", "exported"):
        steps, actor, _, _ = run(f"algorithm.adv_estimator={estimator}", steps=4)
        assert len(steps) == 4
        parts = [part_of(actor, at, 4) for at in range(4)]
        losses = [sum(part["loss"] for part in of_step).item() for of_step in parts]
        given = [torch.cat([part["advantages"][part["response_mask"].bool()] for part in of_step]) for of_step in parts]
        scores = [sorted(step["token_level_rewards"].sum(1).tolist()) for step in steps]
        found.append((losses, [values.sort()[0] for values in given], scores))
        for file in run.capture.iterdir():
            file.unlink()
    own, expected, own_scores = found[0]
    assert len(set(own)) == 4 and any(abs(loss) > 1e-3 for loss in own)
    for ours, advantages, scores in found[1:]:
        assert scores == own_scores and ours == pytest.approx(own, rel=1e-5, abs=1e-6)
        assert all(torch.allclose(values, other, atol=1e-6) for values, other in zip(advantages, expected))


def test_a_loss_a_reload_a_rejected_save_and_a_resume(run, script, tmp_path, replayed):
    path = script(STATEFUL.replace("BY", "1"))
    folder = tmp_path / "advlab"
    overrides = [
        "algorithm.adv_estimator=advlab", f"+algorithm.advlab.recipe={path}", f"+algorithm.advlab.folder={folder}",
        "actor_rollout_ref.actor.policy_loss.loss_mode=advlab",
        "actor_rollout_ref.actor.policy_loss._target_=advlab.verl.PolicyLossConfig",
        f"+actor_rollout_ref.actor.policy_loss.advlab='${{advlab:{path}}}'", "trainer.save_freq=2",
    ]  # fmt: skip

    def edit():
        edited = STATEFUL.replace("BY", "2")
        for count, text in ((1, edited), (2, edited.replace("batch.reward -", "batch.rewrad -"))):
            while len(list(run.capture.glob("step-*.pt"))) < count:
                time.sleep(0.02)
            script(text)

    threading.Thread(target=edit, daemon=True).start()
    _, _, _, log = run(*overrides, steps=4)
    assert "did you mean `reward`" in log
    script(STATEFUL.replace("BY", "2"))
    state = lambda step: json.loads((tmp_path / f"v/checkpoints/global_step_{step}/advlab.json").read_text())
    assert [state(step)["state"]["n"] for step in (2, 4)] == [2, 4]
    steps, actor, _, log = run(*overrides, steps=6)
    assert len(steps) == 6 and state(6)["state"]["n"] == 6 and state(6)["version"] == advlab.load(path).version
    by = []
    for at, step in enumerate(steps):
        given, found, _ = columns(step)
        mask = given["mask"]
        for factor in (1, 2):
            recipe = advlab.load(script(STATEFUL.replace("BY", str(factor)), "by.rhai"))
            if torch.allclose(found, recipe.advantage(**given).advantage[:, None].float() * mask, atol=1e-6):
                by.append(factor)
        parts = part_of(actor, at, len(steps))
        ratio = [torch.exp(part["log_prob"] - part["old_log_prob"]) for part in parts]
        by_hand = sum((-part["advantages"] * r * part["response_mask"]).sum() for part, r in zip(parts, ratio)) / mask.sum()
        assert sum(part["loss"] for part in parts).item() == pytest.approx(by_hand.item(), abs=1e-6)
    assert by[0] == 1 and by[3:] == [2, 2, 2] and by == sorted(by), by
    assert "agrees" in replayed(folder)


TURNS = """
import "gigpo" as gigpo;
import "step_grpo" as step_grpo;

fn params() { gigpo::params() + step_grpo::params() }

fn advantage(batch, p) {
    if batch.step % 2 == 1 { gigpo::advantage(batch, p) } else { step_grpo::advantage(batch, p) }
}
"""


def test_turns_of_an_agent_loop_are_credited(run, script, tmp_path):
    """Sessions of one row with a hole and of two rows; what the loop adds to its rows reaches the recipe."""
    folder, agent = tmp_path / "advlab", "actor_rollout_ref.rollout.agent"
    steps, _, _, log = run(
        "algorithm.adv_estimator=advlab",
        f"+algorithm.advlab.recipe={script(TURNS)}",
        f"+algorithm.advlab.folder={folder}",
        "+algorithm.advlab.columns=[state,step_reward]",
        f"{agent}.agent_loop_config_path={RUN.parent / 'two_turns.yaml'}",
        f"{agent}.default_agent_loop=two_turns",
        "data.max_prompt_length=16",
    )
    assert len(steps) == 3 and "names `trajectory` or `step_reward`: each turn is a row" in log
    mean = lambda values: sum(values) / len(values)
    for at, step in enumerate(steps):
        kept = advlab.read(folder / f"batches/step-{at + 1:06}.safetensors")
        mask, turns = step["response_mask"].bool(), np.asarray(kept["turn"])
        holes = int(((mask[:, 1:] & ~mask[:, :-1]).sum(1) > 0).sum())
        # 32 sessions of two turns.
        assert turns.tolist().count(0) == turns.tolist().count(1) == 32 and 0 < holes < 32 and mask.any(1).sum() == 64 - holes
        key, scores = list(zip(kept["trajectory"], turns, strict=True)), kept["step_reward"]
        other = {(trajectory, 1 - turn): row for row, (trajectory, turn) in enumerate(key)}
        other = [other[place] for place in key]
        last = [row for row in range(64) if turns[row] == 1]
        if at % 2 == 0:
            togo = [scores[row] + (0.95 * scores[other[row]] if turns[row] == 0 else 0.0) for row in range(64)]
            total = [scores[row] + scores[other[row]] for row in range(64)]
            place = list(zip(kept.groups, kept["state"], strict=True))
            expected = [
                total[row] - mean([total[one] for one in last if kept.groups[one] == kept.groups[row]])
                + togo[row] - mean([togo[one] for one in range(64) if place[one] == place[row]])
                for row in range(64)
            ]  # fmt: skip
        else:
            of_group = lambda row: [kept["reward"][one] for one in last if kept.groups[one] == kept.groups[row]]
            reward = [kept["reward"][row if turns[row] == 1 else other[row]] for row in range(64)]
            expected = [(reward[row] - np.mean(of_group(row))) / (np.std(of_group(row), ddof=1) + 1e-6) for row in range(64)]
        by_tokens = np.repeat(expected, (np.asarray(kept["old_logp"]) != 0).sum(1))
        assert np.allclose(np.sort(step["advantages"][mask].numpy()), np.sort(by_tokens), atol=1e-5)
