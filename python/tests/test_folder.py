"""A live recipe's folder: what it keeps, and what the command line makes of it."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from scripts import MEAN, SCALED, command, lines, python

import advlab

MASK = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]])
# Drawn by the step, and from what the calls before left.
STATEFUL = """fn params() { #{ by: #{ value: 2.0, min: 0.0 } } }
fn init(p) { #{ mean: 0.5 } }
fn advantage(batch, p) {
    this.mean = 0.9 * this.mean + 0.1 * batch.reward.mean("batch").value();
    metric("mean", this.mean);
    (batch.reward - this.mean) * p.by * batch.old_logp.exp() + batch.random("response") * batch.step
}
"""


def columns(seed):
    draws = np.random.default_rng(seed)
    return {
        "groups": [f"prompt {row // 2}" for row in range(4)],
        "mask": MASK,
        "reward": draws.integers(0, 2, 4).astype("f4"),
        "old_logp": -draws.random((4, 3), "f4"),
    }


def test_a_folder_is_a_runs_and_replays(script, tmp_path):
    path, folder = script(STATEFUL), tmp_path / "runs/x/advlab"
    with advlab.watch(path, folder=folder, keep_batches=4, by=3) as live:
        first = live.version
        for step in range(1, 4):
            live.advantage(step=step, **columns(step))
        script(STATEFUL.replace("0.9 * this.mean", "0.8 * this.mean"))
        assert live.refresh()
        for step in range(4, 7):
            live.advantage(step=step, **columns(step))
        script("fn advantage(batch, p) {")
        live.refresh()
        second = live.version
    rows = lines(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["version"] for row in rows] == [first] * 3 + [second] * 3
    assert rows[0]["metrics"]["mean"] == pytest.approx(0.45 + 0.1 * columns(1)["reward"].mean())
    reloads = [(line["event"], line["step"]) for line in lines(folder / "reloads.jsonl")]
    assert reloads == [("start", 0), ("use", 4), ("rejected", 7)]
    assert not [line for line in lines(folder / "reloads.jsonl") if "loss_script" in line]
    # No keys of a run that advlab would have done itself.
    config = (folder / "config.toml").read_text().splitlines()[1:]
    assert [line.partition(" =")[0] for line in config if line] == ["recipe", "task", "[params]", "by"]
    assert {kept.name for kept in (folder / "scripts").iterdir()} >= {first, second}
    kept = sorted(kept.name for kept in (folder / "batches").glob("*.safetensors"))
    assert kept == [f"step-00000{step}.safetensors" for step in (3, 4, 5, 6)]
    done = command("replay", folder)
    assert (done.returncode, done.stdout) == (0, f"{folder}: the replay agrees with 4 recorded steps, bit for bit\n")
    asked = ":recipe\n:batch 3\nadvantage()\n:watch " + str(script(STATEFUL, "other.rhai")) + "\n"
    prompt = command("repl", folder, "--stdin", input=asked, cwd=tmp_path)
    assert prompt.returncode == 0 and "by=3" in prompt.stdout and second[:6] in prompt.stdout, prompt.stdout + prompt.stderr
    resumed = command("train", "--resume", folder)
    assert resumed.returncode == 1 and "a trainer ran these steps" in resumed.stderr


def test_a_replay_tells_what_differs(script, tmp_path):
    folder = tmp_path / "x"
    with advlab.watch(script(STATEFUL), folder=folder) as live:
        live.advantage(step=7, **columns(1))
    rows = folder / "metrics.jsonl"
    whole = rows.read_text()
    for field in ("advantage_mean", "crc32c"):
        row = json.loads(whole)
        rows.write_text(json.dumps({**row, field: row[field] + 1}) + "\n")
        done = command("replay", folder)
        assert done.returncode == 1 and "step 7 is the first that differs" in done.stdout and field in done.stdout
    rows.write_text(whole)
    state = folder / "batches/step-000007.json"
    state.write_text(state.read_text().replace("0.5", "0.25"))
    assert "metrics/mean" in command("replay", folder).stdout or command("replay", folder).returncode == 1


def test_calls_without_a_step_are_numbered_and_two_of_a_step_too(script, tmp_path):
    folder = tmp_path / "x"
    with advlab.watch(script(STATEFUL), folder=folder, keep_batches=9) as live:
        for step in (None, None, 5, 5, 6):
            live.advantage(step=step, **columns(0))
    rows = lines(folder / "metrics.jsonl")
    assert [(row["step"], row["batch_step"]) for row in rows] == [(0, 0), (1, 1), (5, 5), (6, 5), (7, 6)]
    assert command("replay", folder).returncode == 0


def test_a_trainer_that_goes_back_has_its_steps_once(script, tmp_path):
    folder, path = tmp_path / "x", script(SCALED)
    with advlab.watch(path, folder=folder, keep_batches=3) as live:
        for step in range(9):
            live.advantage(step=step, **columns(step))
            if step == 1:
                saved = live.state_dict()
    script(SCALED.replace("* p.by", "* p.by * 2"))
    with advlab.watch(path, folder=folder, keep_batches=3) as live:
        live.load_state_dict(saved)
        live.refresh()
        for step in (2, 3):
            live.advantage(step=step, **columns(step + 10))
    rows = lines(folder / "metrics.jsonl")
    assert [(row["step"], row["metrics"]["calls"]) for row in rows] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert len({row["version"] for row in rows}) == 2
    assert [(line["event"], line["step"]) for line in lines(folder / "reloads.jsonl")] == [("start", 0), ("use", 2)]
    done = command("replay", folder)
    assert "2 recorded steps" in done.stdout and done.returncode == 0
    # Without a step it goes on.
    with advlab.watch(path, folder=folder) as live:
        live.advantage(**columns(0))
    assert [row["step"] for row in lines(folder / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    # Another run from the start would be in their place.
    with advlab.watch(path, folder=folder) as live:
        with pytest.raises(advlab.RecipeError, match="rows of an earlier run"):
            live.advantage(step=0, **columns(0))
        assert len(lines(folder / "metrics.jsonl")) == 5
        live.load_state_dict(saved)
        live.advantage(step=0, **columns(0))
    assert len(lines(folder / "metrics.jsonl")) == 1


def test_a_folder_that_is_opened_again_closes_the_writer_before(script, tmp_path, caplog):
    folder, path = tmp_path / "x", script(MEAN)
    before = advlab.watch(path, folder=folder)
    before.advantage(step=0, **columns(0))
    with pytest.raises(advlab.RecipeError):
        advlab.watch("grppo", folder=folder)
    with pytest.raises(advlab.RecipeError, match="not here"):
        advlab.watch(path, folder=folder, _refuses={"advantage": "not here"})
    other = script(MEAN, "other.rhai")
    with pytest.raises(advlab.RecipeError, match="another process is writing to"):
        advlab.watch(other, folder=folder)
    before.advantage(step=1, **columns(0))
    with advlab.watch(path, folder=f"{folder}/") as live:
        assert "opened again" in caplog.text
        with pytest.raises(ValueError, match="closed"):
            before.advantage(step=2, **columns(0))
        live.advantage(step=2, **columns(0))
    assert [row["step"] for row in lines(folder / "metrics.jsonl")] == [0, 1, 2]
    caplog.clear()
    advlab.watch(path, folder=folder).close()
    assert "opened again" not in caplog.text
    for wrong in ({"keep_batches": -1}, {"kept_tokens": -1}):
        with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` is -1"):
            advlab.watch(path, **wrong)


def test_a_version_that_fails_at_a_step_is_kept_with_its_batch(script, tmp_path):
    folder = tmp_path / "x"
    with advlab.watch(script(MEAN), folder=folder, keep_batches=0) as live:
        live.advantage(step=0, **columns(0))
        script('fn advantage(batch, p) { if batch.step > 1 { throw "no" } batch.reward }')
        assert live.refresh()
        live.advantage(step=2, **columns(0))
    reloads = lines(folder / "reloads.jsonl")
    assert [line["event"] for line in reloads] == ["start", "failed"]
    assert (folder / reloads[1]["batch"]).exists() and reloads[1]["back_to"] == reloads[0]["version"]
    assert not list((folder / "batches").glob("step-*"))
    done = command("replay", folder)
    assert done.returncode == 1 and "without batches" in done.stderr


def test_another_runs_folder_is_refused(script, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(advlab.RecipeError, match="not empty") as caught:
        advlab.watch(script(MEAN), folder=tmp_path / "full")
    assert "--out" not in str(caught.value)
    run = tmp_path / "run"
    assert command("train", "--steps", "1", "--out", run).returncode == 0
    with pytest.raises(advlab.RecipeError, match="a run of"):
        advlab.watch(script(MEAN), folder=run)
    with advlab.watch(script(MEAN), folder=tmp_path / "x"):
        code = "import sys, advlab; advlab.watch(*sys.argv[1:2], folder=sys.argv[2])"
        other = python("-c", code, script(MEAN), tmp_path / "x")
    assert "another process is writing to" in other.stderr


FULL = """
import resource, signal, sys
import numpy as np
import advlab
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
live = advlab.watch(sys.argv[1], folder=sys.argv[2])
call = lambda step: live.advantage(groups=[0, 0], reward=[1.0, 0.0], old_logp=np.zeros((2, 64)), step=step).advantage.tolist()
assert call(0) == [0.5, -0.5]
# As a disk that is full: no file grows.
resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
assert call(1) == [0.5, -0.5] and call(2) == [0.5, -0.5]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert call(3) == [0.5, -0.5]
events = live.events()
assert [event.kind for event in events] == ["folder"], events
assert "File too large" in str(events[0]) and events[0].error
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="there are no limits of files here")
def test_a_full_disk_is_told_and_the_run_goes_on(script, tmp_path):
    folder = tmp_path / "x"
    done = python("-c", FULL, script(MEAN), folder)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stderr
    assert [row["step"] for row in lines(folder / "metrics.jsonl")] == [0, 3]
    assert command("replay", folder).returncode == 0


KILLED = """
import sys
import numpy as np
import advlab
live = advlab.watch(sys.argv[1], folder=sys.argv[2])
logp = np.zeros((64, 4096), "f4")
for step in range(int(sys.argv[3]), 100_000):
    live.advantage(groups=np.arange(64) // 8, reward=np.arange(64.0) % 3, old_logp=logp, step=step)
    print(step, flush=True)
"""


def test_a_killed_process_leaves_nothing_half_written(script, tmp_path):
    folder = tmp_path / "x"
    for kill in range(3):
        words = [sys.executable, "-c", KILLED, script(MEAN), folder, str(kill)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
            assert int(run.stdout.readline()) >= 0
            for _ in range(5 + kill):
                run.stdout.readline()
            run.kill()
        done = command("replay", folder)
        assert done.returncode == 0 and "recorded steps" in done.stdout, done.stdout + done.stderr
        assert command("repl", folder, "--stdin", input=":run\n").returncode == 0
