"""Live recipes: reloads between calls, broken saves, events, checkpoints, threads, forks."""

import json
import logging
import os
import pickle
import threading

import numpy as np
import pytest
from scripts import MEAN, SCALED, python

import advlab

DOUBLE = MEAN.replace("batch.reward - ", "2 * batch.reward - ")
COLUMNS = {"groups": [0, 0], "reward": [1.0, 0.0]}


@pytest.fixture
def live(script):
    with advlab.watch(script(MEAN)) as live:
        yield live


def test_a_save_is_used_at_the_next_call(live, script, until):
    first = live.advantage(**COLUMNS)
    assert (first.advantage.tolist(), first.serial, live.serial) == ([0.5, -0.5], 0, 0) and not live.refresh()
    script(DOUBLE)
    until(lambda: live.serial == 1)
    second, third = live.advantage(**COLUMNS), live.advantage(**COLUMNS)
    assert (second.advantage.tolist(), second.serial) == ([1.5, -0.5], 1)
    assert [out.is_reloaded for out in (first, second, third)] == [False, True, False]
    assert second.version == live.version != first.version
    (event,) = live.events()
    assert event.kind == "published" and event.version == live.version and "(+1 -1 lines" in str(event)
    assert live.events() == []
    script(MEAN)
    assert live.refresh() and live.serial == 2


def test_a_broken_save_keeps_the_last_good_version(live, script, caplog):
    live.advantage(**COLUMNS)
    script("fn advantage(batch, p) {\n    batch.rewrad\n}\n")
    live.refresh()
    with caplog.at_level(logging.WARNING, "advlab"):
        assert live.advantage(**COLUMNS).advantage.tolist() == [0.5, -0.5]
    (event,) = live.events()
    assert event.kind == "rejected" and event.error.line == 2 and not event.at_step
    assert "did you mean `reward`?" in caplog.text and caplog.records[0].name == "advlab"


def test_a_version_that_fails_at_a_step_gives_way(live, script):
    live.advantage(**COLUMNS)
    script('fn advantage(batch, p) { if batch.step > 5 { throw "no" } batch.reward }')
    assert live.refresh()
    assert live.advantage(step=1, **COLUMNS).advantage.tolist() == [1, 0]
    assert live.advantage(step=9, **COLUMNS).advantage.tolist() == [0.5, -0.5]
    assert [event.at_step for event in live.events()] == [False, True]


def test_parameters_and_state_outlive_a_reload(script):
    with advlab.watch(script(SCALED), by=3) as live:
        assert live.params == {"by": 3.0} and live.hooks == ["advantage", "params", "init"]
        live.advantage(**COLUMNS)
        script(SCALED.replace("* p.by", "* p.by * 10"))
        assert live.refresh()
        out = live.advantage(**COLUMNS)
        assert (out.advantage.tolist(), out.metrics) == ([15, -15], {"calls": 2})
    with pytest.raises(advlab.RecipeError, match="by"):
        advlab.watch(script(SCALED), by=-1)


def test_a_checkpoint_goes_on_with_its_version_state_serial_and_step(script, caplog):
    text = SCALED.replace("calls);", 'calls); metric("step", batch.step);')
    path = script(text)
    with advlab.watch(path, by=3) as live:
        for by in ("1", "2"):
            script(text.replace("* p.by", f"* p.by * {by}0"))
            assert live.refresh()
            assert live.advantage(**COLUMNS).serial == int(by)
        saved, version = json.loads(json.dumps(live.state_dict())), live.version
    assert saved["version"] == version and saved["state"]["calls"] == 2
    with advlab.watch(path, by=5) as live:
        live.load_state_dict(saved)
        out = live.advantage(**COLUMNS)
        assert (live.version, live.serial, out.serial, out.metrics) == (version, 2, 2, {"calls": 3.0, "step": 2.0})
        script(text)
        assert live.refresh() and live.advantage(**COLUMNS).serial == 3
    assert "continues with by=5.0 (the checkpoint had 3.0)" in caplog.text
    assert "(+1 -1 lines" in caplog.text and {record.levelname for record in caplog.records} == {"WARNING"}
    # The file holds a mistake by now: the checkpoint's version goes on, and the mistake is told.
    with advlab.watch(path) as live:
        script("fn advantage(batch, p) {")
        live.load_state_dict(saved)
        assert live.version == version and [event.kind for event in live.events()] == ["rejected"]


def test_a_frozen_version_has_its_own_parameters(script):
    """Whatever was saved since: a parameter more, or one less."""
    for saved in (SCALED.replace("by: #{", "more: #{ value: 1 }, by: #{"), MEAN):
        with advlab.watch(script(SCALED), by=3) as live:
            first = live.advantage(**COLUMNS)
            script(saved)
            assert live.refresh() and live.params != {"by": 3.0}
            frozen = live._frozen()
            assert frozen.version == first.version and frozen.params == {"by": 3.0}
            out = frozen.advantage(**COLUMNS)
            assert (out.advantage.tolist(), out.metrics) == ([1.5, -1.5], {"calls": 2})
            assert live.state_dict()["state"]["calls"] == 1


def test_the_trainers_memory_is_not_kept(live, script):
    reward = np.array([1.0, 0.0])
    old = np.full((2, 4), -0.5, "f4")
    live.advantage(groups=[0, 0], reward=reward, old_logp=old)
    old[:] = np.nan
    script('fn advantage(batch, p) { batch.reward + batch.old_logp.mean("response") }')
    assert live.refresh(), live.events()


def test_a_live_recipe_is_not_pickled_and_not_used_once_closed(live):
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(live)
    live.close()
    live.close()
    assert repr(live).endswith("closed)")
    with pytest.raises(ValueError, match="closed"):
        live.advantage(**COLUMNS)
    with advlab.watch("passk", k=2) as live:
        assert not live.refresh() and live.advantage(**COLUMNS).serial == 0


GROWTH = """
import numpy as np, advlab
pages = lambda: int(open("/proc/self/statm").read().split()[1])
columns = {"groups": np.arange(64) // 8, "mask": np.ones((64, 512), int), "reward": np.arange(64.0) % 3,
           "old_logp": np.full((64, 512), -0.5, "f4")}
recipes = advlab.load("reinforce_pp_baseline"), advlab.watch("grpo")
def calls(count):
    for _ in range(count):
        for recipe in recipes:
            recipe.advantage(**columns)
    return pages()
before = calls(200)
grown = (calls(1000) - before) * 4096
# An output alone is 131 kB: one that stayed in a hundred calls would show.
assert grown < 8 << 20, grown
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc here")
def test_memory_does_not_grow_with_calls():
    done = python("-c", GROWTH)
    assert done.returncode == 0, done.stderr


def test_every_call_uses_a_version_that_was_accepted(script):
    """200 saves, each fifth of them broken, during 2,000 calls of four threads."""
    saves, calls, used = 200, 500, set()
    with advlab.watch(script(MEAN)) as live:
        accepted = {live.version: 1.0}
        for save in range(saves):
            if save % 5:
                accepted[advlab.load(script(MEAN.replace("batch.reward - ", f"{save} * batch.reward - "))).version] = save
        script(MEAN)

        def call():
            for _ in range(calls):
                out = live.advantage(**COLUMNS)
                used.add((out.version, out.advantage[0] + 0.5))

        threads = [threading.Thread(target=call) for _ in range(4)]
        [thread.start() for thread in threads]
        for save in range(saves):
            script(MEAN.replace("batch.reward - ", f"{save} * batch.reward - ") if save % 5 else "fn advantage(batch")
            live.refresh() if save % 20 == 1 else None
        [thread.join() for thread in threads]
    assert len(used) > 1 and all(accepted[version] == by for version, by in used)


LEAVING = """
import sys, threading, numpy as np, advlab
columns = {"groups": np.arange(512) // 8, "reward": np.arange(512.0) % 3, "mask": np.ones((512, 2048), np.int8),
           "old_logp": np.zeros((512, 2048), "f4"), "ref_logp": np.zeros((512, 2048), "f4")}
live = advlab.watch(sys.argv[1])
under_way = threading.Event()
def calls():
    while True:
        live.advantage(**columns)
        under_way.set()
threading.Thread(target=calls, daemon=True).start()
under_way.wait()
"""


def test_a_process_may_end_in_the_middle_of_a_call(script):
    path = script('fn advantage(batch, p) { (batch.reward + batch.old_logp - batch.ref_logp).whiten("batch") }')
    done = python("-c", LEAVING, path, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_fork_computes_or_says_why_not(live):
    recipe = advlab.load("dr_grpo")
    recipe.advantage(**COLUMNS)
    live.advantage(**COLUMNS)
    child = os.fork()
    if child == 0:
        # As `multiprocessing` does: nothing of pytest's runs in the child.
        status = 1
        try:
            assert recipe.advantage(**COLUMNS).advantage.tolist() == [0.5, -0.5]
            try:
                live.advantage(**COLUMNS)
            except RuntimeError as error:
                status = 0 if "after a fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert live.advantage(**COLUMNS).serial == 0
