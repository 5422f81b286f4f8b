"""Whole runs of TRL's GRPOTrainer, each a process of its own: the same losses as TRL's own GRPO; edits, a kill, a resume, a replay."""

import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")

from scripts import MEAN, lines, python

import advlab

RUN = str(Path(__file__).parent / "trl_run.py")


def run(folder, ranks=1, **settings):
    """The rows of TRL's log, the weights at the end, and how the process ended."""
    folder.mkdir(exist_ok=True)
    settings = json.dumps({"folder": str(folder), "batch": 8 // ranks, "generations": 4 * ranks, **settings})
    launch = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({} if ranks == 1 else {"ACCELERATE_USE_CPU": "true"})}
    done = python(*launch, RUN, settings, env=environment, timeout=900)
    rows = lines(folder / "rows.jsonl")
    weights = folder / "weights.pt"
    return rows, torch.load(weights) if weights.exists() else None, done


@pytest.mark.parametrize("ranks", [1, 2])
def test_trls_own_grpo_the_recipe_and_its_export_train_alike(tmp_path, ranks):
    """With two ranks a group lies on both: each has four of its eight responses."""
    own, weights, done = run(tmp_path / "own", ranks, recipe=None, steps=6)
    assert done.returncode == 0, done.stderr[-3000:]
    ours, found, done = run(tmp_path / "ours", ranks, recipe="grpo", params={"eps": 1e-4}, steps=6)
    assert done.returncode == 0, done.stderr[-3000:]
    file = tmp_path / "grpo_torch.py"
    file.write_text(advlab.load("grpo", eps=1e-4).torch().source)
    exported, of_exported, done = run(tmp_path / "exported", ranks, recipe=None, exported=str(file), steps=6)
    assert done.returncode == 0, done.stderr[-3000:]
    differences = [float(line) for line in (tmp_path / "exported/differences").read_text().split()]
    assert len(differences) >= 3 and max(differences) < 1e-6, differences
    assert sum(abs(row["loss"]) > 1e-3 for row in own) > 2
    for rows, trained in ((ours, found), (exported, of_exported)):
        assert len(own) == len(rows) == 6
        for theirs, row in zip(own, rows):
            assert row.get("reward") == theirs.get("reward")
            for name in ("loss", "grad_norm"):
                assert row[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), (row["step"], name)
        assert all(torch.allclose(trained[name], weights[name], atol=1e-5) for name in weights)


def test_a_run_is_edited_broken_killed_resumed_and_replayed(tmp_path, replayed):
    """Beside it one that nobody kills: both train on the same."""
    recipe = "fn init(p) { #{ n: 0 } }" + MEAN.replace("{\n", '{\n    this.n += 1;\n    metric("n", this.n);\n    BY * ')
    edits = {"2": recipe.replace("BY", "2"), "4": "fn advantage(batch, p) { batch.rewrad }"}

    def at(name):
        (tmp_path / name).mkdir()
        path, kept = tmp_path / name / "mine.rhai", tmp_path / name / "advlab"
        path.write_text(recipe.replace("BY", "1"))
        return {"folder": tmp_path / name, "recipe": str(path), "kept": str(kept), "steps": 10}

    whole = at("whole")
    rows, weights, done = run(edits=edits, **whole)
    assert done.returncode == 0, done.stderr[-3000:]
    killed = at("killed")
    begun, _, done = run(edits=edits, die=7, **killed)
    assert done.returncode == -9 and [row["step"] for row in begun] == [*range(1, 8)]
    # A run does not begin with a broken file: its owner mends it first.
    Path(killed["recipe"]).write_text(edits["2"])
    both, found, done = run(resume=True, **killed)
    assert done.returncode == 0, done.stderr[-3000:]
    again = both[len(begun) :]
    assert [row["step"] for row in again] == [7, 8, 9, 10]
    for part, expected in ((begun, rows[:7]), (again, rows[6:])):
        for row, theirs in zip(part, expected):
            # A generation serves two steps, and the first of them has its figures.
            for name in ("loss", "grad_norm", *(("reward", "advlab/n", "advlab/serial") if row["step"] % 2 else ())):
                assert row[name] == pytest.approx(theirs[name], rel=1e-6), (row["step"], name)
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert [(row["advlab/serial"], row["advlab/n"]) for row in rows[::2]] == [(0, 1), (1, 2), (1, 3), (1, 4), (1, 5)]
    for each in (whole, killed):
        assert "5 recorded steps" in replayed(each["kept"])
