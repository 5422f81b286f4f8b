"""Tinker 0.38 and its cookbook 0.6.1: their client, their training loop and their own types, with a service on this machine."""

import asyncio
import logging
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tinker = pytest.importorskip("tinker")
pytest.importorskip("tinker_cookbook", reason="`pip install tinker tinker-cookbook`")

import chz
from scripts import MEAN, command, documented, lines
from tinker_cookbook import checkpoint_utils, tokenizer_utils
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.distillation import train_on_policy
from tinker_cookbook.rl import data_processing, train
from tinker_cookbook.rl.types import (
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
    Trajectory,
    TrajectoryGroup,
    Transition,
)
from tinker_service import Service, serving

import advlab
from advlab import _trainers
from advlab import tinker as adapter


def turn(ob, tokens, reward=0.0, stop="stop", **told):
    """A transition of these observed and sampled tokens; the log-probs tell which token each is."""
    action = TokensWithLogprobs(tokens, [-token / 8 for token in tokens], stop)
    metrics = {name: value for name, value in told.items() if not isinstance(value, str)}
    logs = {name: value for name, value in told.items() if isinstance(value, str)}
    return Transition(tinker.ModelInput.from_ints(ob), action, reward, False, metrics, logs)


def group(*trajectories, final=None, metrics=None):
    made = [Trajectory(list(turns), tinker.ModelInput.from_ints([])) for turns in trajectories]
    return TrajectoryGroup(made, final or [0.0] * len(made), metrics or [{} for _ in made])


def agents():
    """Two groups: of two agents of two turns, one that does not grow by appending, and of a single turn twice."""
    return [
        group(
            [turn([1, 2], [3, 4], 0.5, state="door"), turn([1, 2, 3, 4, 5], [2, 1, 3], 1.0, state="hall")],
            [turn([1, 2], [4], 0.0, state="door"), turn([5, 5], [1, 2], 0.25, "length", state="roof", parse_error_masked=1.0)],
            final=[2.0, 0.0],
            metrics=[{"format": 1.0}, {"format": 0.0}],
        ),
        group([turn([5], [3, 3], 1.0, state="door")], [turn([5], [2], 3.0, state="door")]),
    ]


def computed(text, groups=None, **settings):
    return adapter.compute_advantages(agents() if groups is None else groups, advlab.load(source=text), **settings)


def lists(groups):
    return [[one.tolist() for one in group] for group in groups]


def test_a_value_per_trajectory_is_as_the_cookbooks():
    found, own = computed(MEAN), data_processing.compute_advantages(agents())
    assert all(isinstance(one, torch.Tensor) and one.dtype == torch.float32 for one in found)
    assert lists(found) == lists(own) == [[1.625, -1.625], [-1.0, 1.0]]
    data, metadata = adapter.assemble_training_data(agents(), found)
    theirs = data_processing.assemble_training_data(agents(), own)
    assert metadata == theirs[1] and len(data) == 5
    for one, other in zip(data, theirs[0], strict=True):
        assert one.model_input == other.model_input
        for name in other.loss_fn_inputs:
            assert one.loss_fn_inputs[name].tolist() == other.loss_fn_inputs[name].tolist()


TURN_REWARDS = [[[0.5] * 2 + [3.0] * 3, [0.0] * 3], [[1.0] * 2, [3.0]]]


@pytest.mark.parametrize(
    ("column", "by_trajectory", "by_turn"),
    [
        ("reward", [[3.5, 0.25], [1.0, 3.0]], [[[3.5] * 5, [0.25, 0, 0]], [[1.0] * 2, [3.0]]]),
        ("length", [[5.0, 1.0], [2.0, 1.0]], [[[2.0] * 2 + [3.0] * 3, [1.0, 0, 0]], [[2.0] * 2, [1.0]]]),
        ("format", [[1.0, 0.0], [np.nan, np.nan]], None),
        ("truncated", [[0.0, 1.0], [0.0, 0.0]], None),
        ("turn", [[[0.0, 0, 1, 1, 1], [0.0, 0, 0]], [[0.0, 0], [0.0]]], [[[0.0, 0, 1, 1, 1], [0.0, 0, 0]], [[0.0, 0], [0.0]]]),
        ("token_reward", [[[0.0, 0.5, 0, 0, 3], [0.25, 0, 0]], [[0.0, 1], [3.0]]], None),
        ("step_reward", TURN_REWARDS, TURN_REWARDS),
        ("trajectory", None, [[[0.0] * 5, [1.0, 0, 0]], [[2.0] * 2, [3.0]]]),
        ("old_logp", [[[-3 / 8, -4 / 8, -2 / 8, -1 / 8, -3 / 8], [-4 / 8, 0, 0]], [[-3 / 8] * 2, [-2 / 8]]], None),
        ("value", "no critic", "no critic"),
        ("ref_logp", "kl_penalty_coef", "kl_penalty_coef"),
        ("rollout_logp", "`old_logp`", "`old_logp`"),
    ],
)
def test_the_columns_of_a_trajectory_and_of_a_turn(column, by_trajectory, by_turn):
    plain = f"fn advantage(batch, p) {{ batch.{column} }}"
    by_turns = f'fn advantage(batch, p) {{ let total = batch.reward.last("trajectory"); batch.{column} }}'
    for text, expected in ((plain, by_trajectory), (by_turns, by_turn)):
        if isinstance(expected, str):
            with pytest.raises(advlab.RecipeError, match=f"(?s)`{column}`.*In Tinker: .*{expected}"):
                computed(text)
        elif expected is not None:
            found = lists(computed(text.replace("batch.format }", "where(batch.format == batch.format, batch.format, -1.0) }")))
            expected = [[-1.0 if one != one else one for one in group] for group in expected]
            assert found == expected


def test_credit_of_turns_arrives_at_its_tokens():
    """Also of an agent whose second prompt is another one, for whom the cookbook makes two sequences."""
    togo = 'batch.step_reward.suffix_sum(0.5) - batch.step_reward.sum("trajectory").mean("group")'
    found = computed(f"fn advantage(batch, p) {{ {togo} }}")
    first, second = (3.5 + 0.25) / 2, 2.0
    expected = [[[2 - first] * 2 + [3 - first] * 3, [0.125 - first, 0, 0]], [[1 - second] * 2, [3 - second]]]
    assert lists(found) == [[pytest.approx(one) for one in group] for group in expected]
    data, metadata = adapter.assemble_training_data(agents(), found)
    assert [(one["group_idx"], one["traj_idx"]) for one in metadata] == [(0, 0), (0, 1), (0, 1), (1, 0), (1, 1)]
    placed = [[0, *expected[0][0][:2], 0, *expected[0][0][2:]], [0, expected[0][1][0]], [0, 0, 0], expected[1][0], expected[1][1]]
    assert [datum.loss_fn_inputs["advantages"].tolist() for datum in data] == [pytest.approx(one) for one in placed]
    own = data_processing.assemble_training_data(agents(), data_processing.compute_advantages(agents()))[0]
    for one, other in zip(data, own, strict=True):
        assert one.loss_fn_inputs["logprobs"].tolist() == other.loss_fn_inputs["logprobs"].tolist()


def test_recipes_of_agents_run_on_turns():
    half = 0.5**0.5
    grpo = lists(adapter.compute_advantages(agents(), advlab.load("step_grpo")))
    assert grpo[0] == [pytest.approx([half] * 5, abs=1e-5), pytest.approx([-half, 0, 0], abs=1e-5)]
    assert grpo[1] == [pytest.approx([-half] * 2, abs=1e-5), pytest.approx([half], abs=1e-5)]
    # Against the same turns of the group's other trajectory: returns of 3.5 and 0.25, and of 3 and 0.25.
    by_index = lists(adapter.compute_advantages(agents(), advlab.load("turn_grpo", norm="none")))
    assert by_index[0] == [pytest.approx([1.625] * 2 + [1.375] * 3), pytest.approx([-1.625, 0, 0])]
    # Against the group's trajectories, 3.5 and 0.25 in all, and its turns behind a door.
    gigpo = lists(adapter.compute_advantages(agents(), advlab.load("gigpo", gamma=1.0)))
    assert gigpo[0] == [pytest.approx([1.625 * 2] * 2 + [1.625] * 3), pytest.approx([-1.625 * 2, 0, 0])]


TOTALS = {
    "reward": MEAN,
    "turns": 'fn advantage(batch, p) { let r = batch.reward.last("trajectory"); r - r.mean("group") }',
    "step_reward": 'fn advantage(batch, p) { let r = batch.step_reward.sum("trajectory"); r - r.mean("group") }',
    "token_reward": 'fn advantage(batch, p) { let r = batch.token_reward.sum("response"); r - r.mean("group") }',
}
MASKED = {"parse_error_masked": 1.0}


@pytest.mark.parametrize(
    ("groups", "has_tokens"),
    [
        # An episode whose first prompt was too long, or without any turn.
        ([group([turn([1], [2], 1.0)], [turn([], [], 4.0)])], False),
        ([group([turn([1], [2], 1.0)], [], final=[0.0, 4.0])], False),
        # A call in which there are no others, and one without episodes.
        ([group([turn([], [], 1.0)], [turn([], [], 4.0)])], False),
        ([group([], [], final=[1.0, 4.0])], False),
        ([group()], False),
        ([], False),
        # Masked turns: the first, the last, and both.
        ([group([turn([1], [2, 3], 1.0, **MASKED), turn([1, 2, 3], [4], 2.0)], [turn([1], [3], 0.5)])], True),
        ([group([turn([1], [2, 3], 1.0), turn([1, 2, 3], [4], 2.0, **MASKED)], [turn([1], [3], 0.5)], final=[3.0, 0.0])], True),
        ([group([turn([1], [2], 1.0, **MASKED), turn([1, 2], [4], 2.0, **MASKED)], [turn([1], [3], 0.5)])], False),
    ],
)
def test_every_trajectory_counts_with_its_total_whatever_a_row_is(groups, has_tokens):
    own = data_processing.compute_advantages(groups)
    for by, text in TOTALS.items():
        # A trajectory without tokens has no place for a reward of a token.
        if by == "token_reward" and not has_tokens:
            continue
        found = computed(text, groups)
        assert len(found) == len(groups)
        for expected, values, of in zip(own, found, groups, strict=True):
            for advantage, value, trajectory in zip(expected, values, of.trajectories_G, strict=True):
                masks = [[not one.metrics.get("parse_error_masked")] * len(one.ac.tokens) for one in trajectory.transitions]
                mask = torch.tensor([is_in for one in masks for is_in in one])
                assert torch.equal(value, advantage * mask if value.ndim else advantage), by
        assert len(adapter.assemble_training_data(groups, found)[0]) == sum(
            any(one.ac.tokens for one in trajectory.transitions) for of in groups for trajectory in of.trajectories_G
        )


def test_a_save_may_take_other_rows(script):
    """It is tried at the next step, with its own rows; if it fails there, the step is done with those of the version before."""
    by_turns = 'fn advantage(batch, p) { batch.step_reward + 0 * batch.reward.last("trajectory") }'
    counted = "fn init(p) { #{ n: 0 } } " + MEAN.replace("{", '{ this.n += 1; metric("n", this.n);', 1)
    with advlab.watch(script(counted)) as live:
        first = lists(adapter.compute_advantages(agents(), live))
        for text, expected, used in [
            (by_turns, computed(by_turns), True),
            (counted, first, True),
            (by_turns.replace("+ 0", "+ batch.missing + 0"), first, False),
            (by_turns, computed(by_turns), True),
        ]:
            script(text)
            live.refresh()
            found = lists(adapter.compute_advantages(agents(), live))
            assert found == (expected if isinstance(expected[0][0], (float, list)) else lists(expected))
            told = [(event.kind, event.at_step) for event in live.events()]
            assert told == [("published", False), ("warned", False), *([] if used else [("rejected", True)])]
        assert live.state_dict()["state"] == {"n": 3}


def test_weights_multiply_advantages_as_tinkers_losses_are_sums():
    text = "fn weight(batch, p) { 1.0 + (batch.reward > 2.0) } " + MEAN
    assert lists(computed(text)) == [[3.25, -1.625], [-1.0, 2.0]]
    with pytest.raises(ValueError, match="mean over the M tokens"):
        adapter.compute_advantages(agents(), advlab.load("pacs"))


@pytest.fixture
def service():
    made = Service()
    with serving(made) as made.url:
        yield made


@pytest.fixture
def client(service, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    with tinker.ServiceClient(base_url=service.url) as made:
        yield made.create_lora_training_client(base_model="tiny").result()


CLIPPED = 'fn loss(batch, p) { metric("by", BY); let r = exp(batch.logp - batch.old_logp);\n    -BY * (r * batch.advantage).mean("batch") }'


def test_a_loss_reaches_the_service_as_the_recipes_gradient(service, client):
    """What the service is sent is -dloss/dlogp, 0 for tokens that do not count."""
    groups = agents()
    data, metadata = adapter.assemble_training_data(groups, computed(MEAN, groups))
    for recipe in (
        advlab.load("ppo_clip"),
        advlab.load(source=CLIPPED.replace("BY", "1.0")),
        advlab.load(source=CLIPPED.replace("BY", "3.0")),
    ):
        done = client.forward_backward_custom(data, adapter.loss(recipe)).result()
        (_, forward, first), (name, only_forward, sent) = service.requests[-2:]
        assert forward and not only_forward and name == "cross_entropy" and len(sent) == len(data)
        logps = [
            service.logits(one["tokens"]).gather(1, torch.tensor(one["target_tokens"])[:, None])[:, 0].detach() for one in first
        ]
        expected = recipe.loss(
            logp=[one.numpy() for one in logps],
            mask=[datum.loss_fn_inputs["mask"].to_numpy() for datum in data],
            old_logp=[datum.loss_fn_inputs["logprobs"].to_numpy() for datum in data],
            advantage=[datum.loss_fn_inputs["advantages"].to_numpy() for datum in data],
        )
        assert done.metrics["loss:sum"] == pytest.approx(expected.loss, rel=1e-5)
        for one, grad, datum in zip(sent, expected.grad, data, strict=True):
            assert one["weights"] == pytest.approx(-grad, rel=1e-4, abs=1e-7)
            assert (one["weights"][datum.loss_fn_inputs["mask"].to_numpy() == 0] == 0).all()


def test_a_loss_over_groups_needs_them(service, client):
    groups = agents()
    data, metadata = adapter.assemble_training_data(groups, computed(MEAN, groups))
    over_groups = 'fn loss(batch, p) { -(batch.logp.mean("group") * batch.advantage).mean("batch") }'
    recipe = advlab.load(source=over_groups)
    with pytest.raises(advlab.RecipeError, match="the call has none"):
        adapter.loss(recipe)(
            data, [torch.zeros(len(datum.loss_fn_inputs["mask"].tolist()), requires_grad=True) for datum in data]
        )
    client.forward_backward_custom(data, adapter.loss(recipe, groups=[one["group_idx"] for one in metadata])).result()
    with pytest.raises(ValueError, match="no `mask`.*assemble_training_data"):
        adapter.loss(recipe)([train._remove_mask(datum) for datum in data], [])


@pytest.mark.parametrize(
    ("name", "params", "is_told"),
    [
        ("policy_gradient", '#{ aggregate: "token" }', False),
        ("gvpo", "#{ beta: 0.1 }", True),
        ("real", "#{ tau: 0.5 }", True),
        ("dro", '#{ beta: 1.0, aggregate: "token" }', True),
    ],
)
def test_weights_in_advantages_to_which_a_loss_is_not_proportional_are_told(script, caplog, name, params, is_told):
    """The data have the advantages times the weights, and a loss of the recipe's own does not multiply again."""
    data, metadata = adapter.assemble_training_data(agents(), computed(MEAN))
    logps = [torch.zeros(len(datum.loss_fn_inputs["mask"].tolist()), requires_grad=True) for datum in data]
    of = [one["group_idx"] for one in metadata]
    loss = f'import "{name}" as own;\nfn loss(batch, p) {{ own::loss(batch, {params}) }}\n'
    grads = []
    for weight in ("", "fn weight(batch, p) { 1 + batch.reward }\n"):
        recipe = advlab.load(source=loss + weight + MEAN)
        for _ in range(2):
            value, _ = adapter.loss(recipe, groups=of, correct=[1.0, 0.0] * 2 + [1.0], reward=[1.0] * 5)(data, logps)
        grads.append(torch.cat(torch.autograd.grad(value, logps)))
        assert caplog.text.count("its loss is not proportional to the advantages: leave `weight` out") == (is_told and weight != "")
    assert torch.equal(*grads) and grads[0].abs().max() > 0


def test_data_without_a_token_that_counts_have_no_gradient(script):
    """Also by a step of a recipe that is a loss alone, whose advantage is divided by the tokens."""
    groups = [group([turn([1], [2, 3], 1.0, **MASKED)], [turn([1], [3], 0.5, **MASKED)])]
    data, _ = adapter.assemble_training_data(groups, computed(MEAN, groups))
    with advlab.watch(script(CLIPPED.replace("BY", "1.0"))) as live:
        for recipe in (advlab.load("ppo_clip"), advlab.load("gspo"), live):
            logps = [torch.zeros(len(datum.loss_fn_inputs["mask"].tolist()), requires_grad=True) for datum in data]
            value, _ = adapter.loss(recipe)(data, logps)
            value.backward()
            assert value == 0 and all((one.grad == 0).all() for one in logps)


def test_a_loss_alone_follows_its_file_and_is_replayed(service, client, script, tmp_path):
    path = script(CLIPPED.replace("BY", "1.0"))
    data, _ = adapter.assemble_training_data(agents(), computed(MEAN))
    with advlab.watch(path, folder=tmp_path / "run") as live:
        sent = []
        for by in ("1.0", "2.0", None):
            script(CLIPPED.replace("BY", by) if by else "fn loss(batch, p) { batch.logq }")
            assert live.refresh() is (by == "2.0")
            done = client.forward_backward_custom(data, adapter.loss(live)).result()
            assert done.metrics["advlab/by"] == (2.0 if by != "1.0" else 1.0)
            assert done.metrics["advlab/reloaded"] == (by == "2.0")
            sent.append(np.concatenate([one["weights"] for one in service.requests[-1][2]]))
        assert sent[1] == pytest.approx(2 * sent[0], rel=1e-5) and np.array_equal(sent[2], sent[1]) and abs(sent[0]).max() > 0.01
        fixed = advlab.load(source=CLIPPED.replace("BY", "1.0"))
        client.forward_backward_custom(data, adapter.loss(fixed)).result()
        assert sent[0] == pytest.approx(np.concatenate([one["weights"] for one in service.requests[-1][2]]), rel=1e-5)
    assert [row["metrics"]["by"] for row in lines(tmp_path / "run/metrics.jsonl")] == [1, 2, 2]
    replayed = command("replay", tmp_path / "run")
    assert replayed.returncode == 0 and "3 recorded steps" in replayed.stdout, replayed.stdout + replayed.stderr


# The cookbook's own loop.


class Walk(Env):
    """Two turns; a token 2 earns 1, and the more the later."""

    def __init__(self, start):
        self.seen, self.turn = [start], 0

    async def initial_observation(self):
        return tinker.ModelInput.from_ints(self.seen), []

    async def step(self, action, *, extra=None):
        self.turn += 1
        self.seen = [*self.seen, *action, 3]
        reward = float(sum(token == 2 for token in action)) * self.turn
        told = {"metrics": {"twos": reward}, "logs": {"state": str(self.turn)}}
        return StepResult(reward, self.turn == 2, tinker.ModelInput.from_ints(self.seen), [], **told)


class Walks(EnvGroupBuilder):
    def __init__(self, start):
        self.start = start

    async def make_envs(self):
        return [Walk(self.start) for _ in range(6)]


class Mazes(RLDataset):
    def get_batch(self, index):
        return [Walks(1 + (index + place) % 4) for place in range(3)]

    def __len__(self):
        return 4


@chz.chz
class Builder(RLDatasetBuilder):
    async def __call__(self):
        return Mazes(), None


class Words:
    def decode(self, tokens):
        return " ".join(map(str, tokens))


@pytest.fixture
def loop(service, monkeypatch, tmp_path):
    """Runs `train.main` from a folder to a step, with the recipe of the environment or the cookbook's own advantages."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    monkeypatch.setitem(tokenizer_utils._CUSTOM_TOKENIZER_REGISTRY, "tiny", Words)
    monkeypatch.setattr(train, "fetch_model_pricing", lambda _: None)
    # `patch` is of a process: what it replaces is put back.
    for module in (train, data_processing, train_on_policy, checkpoint_utils):
        for name in ("compute_advantages", "assemble_training_data", "get_last_checkpoint", "_loop_state"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))

    def run(folder, steps=3, **settings):
        config = {
            "learning_rate": 0.05, "dataset_builder": Builder(), "model_name": "tiny", "recipe_name": "none", "max_tokens": 4,
            "log_path": str(tmp_path / folder), "eval_every": 0, "save_every": 1, "max_steps": steps, "base_url": service.url,
        }  # fmt: skip
        before = len(service.tables)
        asyncio.run(train.main(train.Config(**{**config, **settings})))
        return service.tables[before:]

    yield run
    logging.getLogger().setLevel(logging.WARNING)


def restart(service):
    """Another service of the same policy, in the place of this one."""
    with torch.no_grad():
        service.table.copy_(Service().table)
    service.step = 0
    service.drawn.clear()


def test_the_cookbooks_loop_and_the_recipe_train_alike(service, loop, recipe, tmp_path):
    own = loop("own")
    restart(service)
    recipe(MEAN)
    adapter.patch()
    adapter.patch()
    found = loop("ours")
    for before, after, same in zip([Service().table, *own[:-1]], own, found, strict=True):
        assert (after - before).abs().max() > 1e-3 and torch.allclose(after, same, atol=1e-6)
    # Once a step: the cookbook also asks for the groups that it prints.
    rows = lines(tmp_path / "ours/metrics.jsonl")
    assert [row["advlab/serial"] for row in rows if "advlab/serial" in row] == [0, 0, 0]
    assert train.compute_advantages == train_on_policy.compute_advantages


COUNTED = """
fn init(p) { #{ calls: 0 } }
fn advantage(batch, p) {
    this.calls += 1;
    metric("calls", this.calls); metric("step", batch.step); metric("by", BY);
    BY * (batch.reward - batch.reward.mean("group"))
}
"""


@pytest.mark.parametrize("turns", [False, True, "after the edit"])
def test_the_cookbooks_loop_is_edited_broken_resumed_and_replayed(service, loop, recipe, script, monkeypatch, tmp_path, turns):
    text = COUNTED.replace("batch.reward.mean(", 'batch.step_reward.sum("trajectory").mean(') if turns else COUNTED
    before = text if turns is True else COUNTED
    recipe(before.replace("BY", "1.0"))
    adapter.patch()
    plain = loop("plain")
    restart(service)
    monkeypatch.setenv("ADVLAB_FOLDER", str(tmp_path / "advlab"))
    recipe(before.replace("BY", "1.0"))
    state, done = train._loop_state, []

    def between(batch, *more):
        """After each step: an edit, and then a broken save."""
        (live,) = (live for live in _trainers._live.values() if "recipe1" in live.name)
        if batch not in done:
            done.append(batch)
            broken = f"fn advantage(batch, p) {{ batch.rewrad{' + batch.step_reward' * bool(turns)} }}"
            script(text.replace("BY", "2.0") if batch == 1 else broken, "recipe1.rhai")
            assert live.refresh() is (batch == 1)
        return state(batch, *more)

    monkeypatch.setattr(train, "_loop_state", between)
    edited = loop("edited", steps=2)
    assert torch.allclose(edited[0], plain[0], atol=1e-6)
    assert torch.allclose(edited[1] - edited[0], 2 * (plain[1] - plain[0]), atol=1e-6)
    # A process that is started again has the state of the checkpoint, and the last version that was good.
    for live in _trainers._live.values():
        live.close()
    _trainers._live.clear()
    monkeypatch.setattr(train, "_loop_state", state)
    script(text.replace("BY", "4.0"), "recipe1.rhai")
    assert len(loop("edited", steps=4)) == 2
    logged = [row for row in lines(tmp_path / "edited/metrics.jsonl") if "advlab/by" in row]
    assert [row["advlab/by"] for row in logged] == [1, 2, 4, 4]
    assert [row["advlab/calls"] for row in logged] == [1, 2, 3, 4]
    assert [row["advlab/step"] for row in logged] == [0, 1, 2, 3]
    replayed = command("replay", tmp_path / "advlab")
    assert replayed.returncode == 0 and "3 recorded steps" in replayed.stdout, replayed.stdout + replayed.stderr


def test_a_checkpoint_without_a_state_is_told(service, loop, recipe, caplog):
    loop("before", steps=1)
    recipe(COUNTED.replace("BY", "1.0"))
    adapter.patch()
    # The cookbook sets the root's handlers.
    logging.getLogger("advlab").addHandler(caplog.handler)
    loop("before", steps=2)
    logging.getLogger("advlab").removeHandler(caplog.handler)
    assert "has no state of the recipe" in caplog.text


def test_what_the_loop_cannot_follow_is_refused(service, loop, recipe, caplog):
    recipe("fn weight(batch, p) { batch.reward > 0 } " + MEAN)
    adapter.patch()
    with pytest.raises(advlab.RecipeError, match="`weight`: .*loss_fn=dro"):
        loop("dro", steps=1, loss_fn="dro")
