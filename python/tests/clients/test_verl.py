"""verl 0.9.1: its own calls with the estimators of recipes, and its own numbers where it has the same method."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("verl", reason="verl is not installed: pip install verl==0.9.1")

from scripts import MEAN, command, documented, lines
from tiny import mixed_by_hand
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.config import ActorConfig

import advlab
import advlab.verl as adapter
from advlab import _trainers
from advlab.verl import loss


def compute_advantage_for_multi_trajectories(*args, **kwargs):
    """This import fails on verl's branch `neo`, whose default trainer is the one without a queue."""
    utils = pytest.importorskip("verl.trainer.ppo.v1.utils", exc_type=ImportError)
    return utils.compute_advantage_for_multi_trajectories(*args, **kwargs)


def config(recipe=None, **algorithm):
    own = {} if recipe is None else {"advlab": {"recipe": str(recipe)}}
    made = OmegaConf.create({"gamma": 1.0, "lam": 1.0, "use_kl_in_reward": False, **own, **algorithm})
    # As hydra's are.
    OmegaConf.set_struct(made, True)
    return made


def batch(seed=0, groups=6, size=4, width=11, **columns):
    """Ragged responses with holes, a score on the last token that counts."""
    generator = torch.Generator().manual_seed(seed)
    rows = groups * size
    lengths = torch.randint(2, width + 1, (rows,), generator=generator)
    mask = (torch.arange(width) < lengths[:, None]).long()
    mask[:, 1] *= torch.randint(0, 2, (rows,), generator=generator)
    scores = torch.randint(0, 2, (rows,), generator=generator).float()
    rewards = torch.zeros(rows, width)
    rewards[torch.arange(rows), lengths - 1] = scores
    tensors = {"token_level_rewards": rewards, "response_mask": mask, **columns}
    uid = np.array([f"uid-{row // size}" for row in range(rows)], dtype=object)
    order = np.random.default_rng(seed).permutation(rows)
    tensors = {name: value[torch.from_numpy(order)] for name, value in tensors.items()}
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid[order]})


def noise(seed, rows=24, width=11):
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(seed))


def advantages(data, estimator, **algorithm):
    settings = config(**algorithm)
    out = compute_advantage(data, estimator, gamma=settings.gamma, lam=settings.lam, config=settings)
    return out.batch["advantages"], out.batch["returns"]


@pytest.mark.parametrize("name", ["grpo", "rloo", "gae"])
def test_verls_own_call_gives_verls_numbers(name):
    columns, algorithm = ({"values": noise(0)}, {"gamma": 0.97, "lam": 0.9}) if name == "gae" else ({}, {})
    data = batch(**columns)
    expected = advantages(batch(**columns), name, **algorithm)
    found = advantages(data, f"advlab/{name}", **algorithm)
    mask = data.batch["response_mask"]
    assert found[0].dtype == torch.float32 and (found[0][mask == 0] == 0).all()
    # verl whitens by the sample's standard deviation, recipes by the population's.
    ratio = (mask.sum() / (mask.sum() - 1)).sqrt() if name == "gae" else 1.0
    assert torch.allclose(found[0], expected[0] * mask * ratio, atol=2e-5)
    assert torch.allclose(found[1] * mask, expected[1] * mask, atol=2e-5)


def test_a_recipe_of_ones_own_is_followed_and_told(script, until):
    path = script('fn advantage(batch, p) { metric("m", 3.0); batch.reward }')

    class Trainer:
        global_steps = 7

        def step(self):
            metrics = {}
            out = compute_advantage(batch(), "advlab", config=config(path))
            return out.batch["advantages"], metrics

    first, metrics = Trainer().step()
    assert metrics == {"advlab/m": 3.0, "advlab/serial": 0.0, "advlab/reloaded": 0.0}
    assert torch.equal(first, batch().batch["token_level_rewards"].sum(1)[:, None] * batch().batch["response_mask"])
    script("fn advantage(batch, p) { batch.reward * batch.step }")
    (live,) = _trainers._live.values()
    assert live.refresh()
    second, metrics = Trainer().step()
    assert torch.equal(second, 7 * first) and metrics["advlab/reloaded"] == 1.0


def test_a_folder_keeps_the_run(tmp_path):
    folder = tmp_path / "advlab"
    advlab_settings = {"recipe": "dr_grpo", "folder": str(folder), "keep_batches": 2}
    for step in (4, 5, 6):
        self = type("Trainer", (), {"global_steps": step})()  # noqa: F841 what the adapter looks for
        compute_advantage(batch(step), "advlab", config=config(advlab=advlab_settings))
    rows = lines(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [4, 5, 6]
    done = command("replay", folder)
    assert "2 recorded steps" in done.stdout, done.stderr
    kept = advlab.read(folder / "batches/step-000006.safetensors")
    made = batch(6)
    rewards = made.batch["token_level_rewards"] * made.batch["response_mask"]
    assert (kept["token_reward"] == rewards.numpy()).all() and kept.groups == list(made.non_tensor_batch["uid"])


def test_rows_of_padding_do_not_count():
    data, more = batch(), 5
    plain, _ = advantages(batch(), "advlab/reinforce_pp", advlab={"params": {"kl_beta": 0.0}})
    rows = {name: torch.cat([value, torch.zeros(more, value.shape[1], dtype=value.dtype)]) for name, value in data.batch.items()}
    uid = np.concatenate([data.non_tensor_batch["uid"], np.array(["pad_0"] * more, dtype=object)])
    filled = DataProto.from_dict(tensors=rows, non_tensors={"uid": uid})
    found, _ = advantages(filled, "advlab/reinforce_pp", advlab={"params": {"kl_beta": 0.0}})
    assert torch.equal(found[: len(plain)], plain) and (found[len(plain) :] == 0).all()


def test_the_last_trajectory_of_a_session_counts_as_with_verls_grpo(script):
    data = batch()
    uid = data.non_tensor_batch["uid"]
    # Two sessions of two trajectories for each prompt.
    before = [(uid[:row] == uid[row]).sum() for row in range(len(uid))]
    keys = [f"{uid[row]}_{count // 2}_{count % 2}" for row, count in enumerate(before)]
    found = compute_advantage_for_multi_trajectories(data, keys, "advlab/grpo", config=config())
    theirs = compute_advantage_for_multi_trajectories(batch(), keys, "grpo", config=config())
    assert torch.allclose(found.batch["advantages"], theirs.batch["advantages"], atol=1e-5)
    found = compute_advantage_for_multi_trajectories(batch(), keys, "advlab/step_grpo", config=config()).batch
    assert torch.allclose(found["advantages"], theirs.batch["advantages"], atol=1e-5)
    # In a mean over tokens each trajectory counts, with the weight of its session.
    path = script("fn weight(batch, p) { 1 + batch.reward } " + MEAN)
    found = compute_advantage_for_multi_trajectories(batch(), keys, "advlab", config=config(path)).batch
    plain = compute_advantage_for_multi_trajectories(batch(), keys, "advlab/dr_grpo", config=config()).batch
    mask = found["response_mask"]
    last = {key.rpartition("_")[0]: row for row, key in enumerate(keys) if key.endswith("_1")}
    rows = [last[key.rpartition("_")[0]] for key in keys]
    weight, counts = 1 + data.batch["token_level_rewards"].sum(1)[rows], mask.sum(1)
    scale = weight * counts.sum() / (weight * counts).sum()
    assert torch.allclose(found["advantages"], plain["advantages"] * scale[:, None], atol=1e-6)
    settings = config(advlab={"params": {"kl_beta": 0.0}})
    with pytest.raises(ValueError, match="all rows of a session share the advantage of the session's last row"):
        compute_advantage_for_multi_trajectories(batch(), keys, "advlab/reinforce_pp", config=settings)


def test_rows_of_a_session_are_turns_and_so_are_the_parts_between_holes(script):
    data = batch(groups=2, size=3, width=4)
    data.batch["response_mask"] = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]])
    scores = torch.tensor([2.0, 2, 1, 5, 3, 3])
    data.batch["token_level_rewards"] = torch.zeros(6, 4).index_put((torch.arange(6), torch.tensor([1, 3, 3, 0, 3, 3])), scores)
    data.non_tensor_batch["uid"] = np.array(["u", "u", "u", "u", "v", "v"], dtype=object)
    # The session u_0 has two rows, of which the second has two turns; u_2 was rejected, and counts for nothing.
    keys = ["u_0_1", "u_0_0", "u_1_0", "u_2_0", "v_0_0", "v_1_0"]
    path = script('fn advantage(batch, p) { 1 + batch.turn + 10 * batch.reward.count("trajectory") + 100 * batch.step_reward }')
    found = compute_advantage_for_multi_trajectories(data, keys, "advlab", config=config(path)).batch["advantages"]
    assert found.tolist() == [[233, 233, 0, 0], [31, 0, 32, 32], [111] * 4, [0] * 4, [21, 0, 322, 0], [311] * 4]


def test_a_save_may_take_other_rows(script):
    """Of sessions of two rows, of which each is a turn or the last counts."""
    uid = batch().non_tensor_batch["uid"]
    before = [(uid[:row] == uid[row]).sum() for row in range(len(uid))]
    keys = [f"{uid[row]}_{count // 2}_{count % 2}" for row, count in enumerate(before)]
    by_turns = 'fn advantage(batch, p) { batch.turn + batch.step_reward + 0 * batch.reward.last("trajectory") }'
    step = lambda path: compute_advantage_for_multi_trajectories(batch(), keys, "advlab", config=config(path)).batch["advantages"]
    path, expected = script(MEAN), {by_turns: step(script(by_turns, "turns.rhai")), MEAN: step(script(MEAN, "mean.rhai"))}
    assert torch.equal(step(path), expected[MEAN]) and not torch.equal(*expected.values())
    (live,) = (live for live in _trainers._live.values() if "mine.rhai" in live.name)
    broken = by_turns.replace("+ 0", "+ batch.missing + 0")
    for text, used in [(by_turns, by_turns), (MEAN, MEAN), (broken, MEAN), (by_turns, by_turns)]:
        script(text)
        live.refresh()
        assert torch.equal(step(path), expected[used])
        assert live.events()[-1].at_step == (text == broken)


def test_rejected_rows_are_no_members_unless_asked_for():
    for kept in (None, True):
        data = batch()
        rejected = data.batch["token_level_rewards"].sum(1).argmax()
        data.batch["response_mask"][rejected] = 0
        found, _ = advantages(data, "advlab/grpo", advlab={"keep_rejected": kept})
        theirs, _ = advantages(data, "grpo")
        if kept:
            assert torch.allclose(found, theirs, atol=1e-5)
            continue
        rest = [row for row in range(24) if row != rejected]
        expected, _ = advantages(data.select_idxs(rest), "grpo")
        assert torch.allclose(found[rest], expected, atol=1e-5) and (found[rejected] == 0).all()
        assert not torch.allclose(found, theirs, atol=1e-2)


def test_a_batch_of_rejected_rows_is_no_step(script):
    """Also with rows of padding, which are no members if rejected rows are some."""
    counted = 'fn init(p) { #{ calls: 0 } } fn advantage(batch, p) { this.calls += 1; metric("n", batch.reward.count("batch")); 1 + batch.reward }'
    for name, text in [("a", counted), ("b", counted.replace("1 + batch.reward ", 'batch.reward.last("trajectory") '))]:
        path = script(text, f"{name}.rhai")
        data = batch()
        data.batch["response_mask"].zero_()
        for more in ({}, {"keep_rejected": True}):
            found, returns = advantages(data, "advlab", advlab={"recipe": str(path), **more})
            assert (found == 0).all() and (returns == 0).all()
            (live,) = (live for live in _trainers._live.values() if f"{name}.rhai" in live.name)
            assert live.state_dict()["state"] == {"calls": int("keep_rejected" in more)}


def test_any_field_is_a_column_by_a_setting(script):
    data = batch(turn_id=torch.randint(0, 3, (24, 11)))
    data.non_tensor_batch["scores"] = np.array([[1.0, 2.0, 3.0]] * 24 + [None], dtype=object)[:24]
    path = script("fn advantage(batch, p) { batch.turn_id + 10 * batch.scores }")
    found, _ = advantages(data, "advlab", advlab={"recipe": str(path), "columns": ["turn_id"]})
    mask = data.batch["response_mask"]
    begins = mask.clone()
    begins[:, 1:] *= 1 - mask[:, :-1]
    number = begins.cumsum(1).clamp(min=1)
    assert torch.equal(found, (data.batch["turn_id"] + 10 * number) * mask)
    with pytest.raises(advlab.RecipeError, match=r"left out: `turn_id` .*columns=\[turn_id\]"):
        advantages(data, "advlab", advlab={"recipe": str(path)})
    with pytest.raises(ValueError, match="no such field; verl has .*response_mask, .*turn_id"):
        advantages(data, "advlab", advlab={"recipe": str(path), "columns": ["turn_ids"]})
    data.batch["by_turn"] = torch.arange(72).view(24, 3)
    path = script("fn advantage(batch, p) { batch.by_turn }", "by_turn.rhai")
    found, _ = advantages(data, "advlab", advlab={"recipe": str(path), "columns": ["by_turn"]})
    assert torch.equal(found, (data.batch["by_turn"].gather(1, number - 1)) * mask)


class View:
    """Columns that are fetched when they are looked up, without the other methods of a Mapping."""

    def __init__(self, columns, fetched):
        self.columns, self.fetched = columns, fetched

    def keys(self):
        return self.columns.keys()

    def __getitem__(self, name):
        self.fetched.append(name)
        return self.columns[name]

    def __setitem__(self, name, value):
        self.columns[name] = value

    def __contains__(self, name):
        return name in self.columns


@pytest.fixture(params=["a stand-in", "verl's own"])
def lazy(request, monkeypatch):
    """Converts a batch to a batch whose columns are fetched when they are looked up, and gives the names of those that were: a
    stand-in, or the `DataProto` of verl's branch `neo` (b0d344b0), if its sources are on PYTHONPATH in the place of verl 0.9.1."""
    fetched = []
    if request.param == "a stand-in":
        return lambda tensors, others: SimpleNamespace(batch=View(tensors, fetched), non_tensor_batch=View(others, fetched)), fetched
    neo = pytest.importorskip("verl.experimental.neoproto", reason="the branch `neo` of verl belongs on PYTHONPATH")
    theirs = neo.DataProto.materialize
    monkeypatch.setattr(
        neo.DataProto, "materialize", lambda self, keys, **more: fetched.extend(keys) or theirs(self, keys, **more)
    )
    engine = neo.InMemoryStorageEngine()
    return lambda tensors, others: neo.DataProto.from_dict(tensors, others, storage=engine), fetched


def test_of_columns_elsewhere_only_those_are_fetched_that_the_recipe_reads(script, lazy):
    """In verl's own call, with the entropies that the trainer took out of its batch."""
    made, fetched = lazy
    path = script("fn advantage(batch, p) { batch.old_logp + batch.entropy + 10 * batch.reward_format + batch.level + batch.asked }")
    columns = {"old_log_probs": -noise(1), "ref_log_prob": -noise(2), "asked": torch.arange(24), "prompts": torch.zeros(24, 3)}
    whole = batch(**columns)
    others = {"format": np.arange(24.0), "level": np.ones(24), "images": np.array(["x"] * 24, dtype=object)}
    data = made(dict(whole.batch.items()), {**whole.non_tensor_batch, **others})

    class Trainer:
        global_steps = 1

        def fit(self):
            entropys, reward_extra_infos_dict, metrics = noise(3), {"format": []}, {}  # noqa: F841 what the adapter looks for
            settings = {"recipe": str(path), "columns": ["asked"]}
            return compute_advantage(data, "advlab", config=config(advlab=settings)).batch["advantages"], metrics

    found, metrics = Trainer().fit()
    rows = 10 * torch.arange(24.0)[:, None] + 1 + whole.batch["asked"][:, None]
    expected = whole.batch["old_log_probs"] + noise(3) + rows
    assert torch.allclose(found, expected * whole.batch["response_mask"], atol=1e-5) and "advlab/serial" in metrics
    assert {*fetched} - {"advantages"} == {"token_level_rewards", "response_mask", "uid", "old_log_probs", "asked", "format", "level"}


def test_the_halves_of_a_batch_are_taken_as_arguments_too(script):
    """As verl's pull request 7473 passes them."""
    data = batch(old_log_probs=-noise(1))
    path = script("fn advantage(batch, p) { batch.old_logp + batch.level }")
    others = {"uid": data.non_tensor_batch["uid"], "level": np.ones(24)}
    tensors = [data.batch[name] for name in ("token_level_rewards", "response_mask")]
    found, _ = adapter.estimate(*tensors, config(path), others["uid"], non_tensor_batch=others, batch=data.batch)
    assert torch.allclose(found, (data.batch["old_log_probs"] + 1) * tensors[1], atol=1e-5)


LOGPS = {"old_log_probs": -noise(1), "ref_log_prob": -noise(2)}


@pytest.mark.parametrize(
    ("estimator", "columns", "algorithm", "words"),
    [
        ("advlab/gae", {"old_log_probs": -noise(1)}, {}, "critic.enable=True"),
        ("advlab/reinforce_pp", {"old_log_probs": -noise(1)}, {}, "use_kl_loss=True"),
        ("advlab/reinforce_pp", LOGPS, {"use_kl_in_reward": True}, "kl_beta"),
        ("advlab/kl_advantage", LOGPS, {"use_kl_in_reward": True}, "kl_advantage.*params.coef=0"),
        ("advlab/grpo", {}, {"norm_adv_by_std_in_grpo": False}, "advlab/dr_grpo"),
        ("advlab", {}, {}, "algorithm.advlab.recipe"),
        ("advlab", {}, {"advlab": {"reciep": "grpo"}}, "reciep"),
        ("advlab", {}, {"advlab": "grpo"}, "advlab.recipe="),
        ("advlab", {}, {"advlab": {"recipe": "passk", "params": 4}}, "params.k=4"),
        ("advlab", {}, {"advlab": {"recipe": "elsewhere/mine.rhai"}}, "relative, and verl runs in /"),
        ("advlab/grop", {}, {}, "`grpo`"),
        ("grop", {}, {}, "Unknown advantage estimator"),
    ],
)
def test_what_verl_lacks_or_would_ignore_is_an_error_with_its_option(estimator, columns, algorithm, words):
    with pytest.raises(ValueError, match=words):
        advantages(batch(**columns), estimator, **algorithm)


@pytest.mark.parametrize("name", sorted(advlab.recipes()))
def test_estimators_are_the_recipes_that_give_an_advantage(name):
    is_on_one = "advantage" not in advlab.load(name).hooks and name not in ("pacs", "real")
    if not is_on_one:
        assert f"advlab/{name}" in core_algos.ADV_ESTIMATOR_REGISTRY
        assert core_algos.get_adv_estimator_fn(f"advlab/{name}").__name__ == f"advlab_{name}"
        return
    with pytest.raises(ValueError, match="a recipe that gives the advantage"):
        advantages(batch(), f"advlab/{name}")


def test_a_critic_gets_targets():
    data = batch(values=noise(4))
    _, returns = advantages(data, "advlab/grpo", gamma=1.0)
    rewards, mask = data.batch["token_level_rewards"], data.batch["response_mask"]
    to_go = (rewards * mask).flip(1).cumsum(1).flip(1) * mask
    assert torch.allclose(returns, to_go, atol=1e-6)


def test_a_loss_over_groups_becomes_an_advantage_on_the_driver():
    old = -noise(3)
    data = batch(old_log_probs=old)
    found, _ = advantages(data, "advlab/pacs")
    logp = data.batch["old_log_probs"].clone().requires_grad_()
    rewards, mask = data.batch["token_level_rewards"].sum(1), data.batch["response_mask"]
    columns = {"logp": logp, "old_logp": logp.detach(), "mask": mask, "reward": rewards}
    advlab.load("pacs").loss(groups=data.non_tensor_batch["uid"], **columns).loss.backward()
    assert torch.allclose(found, -logp.grad * mask.sum(), atol=1e-5) and found.abs().sum() > 0


def test_hydra_takes_the_settings_and_real_config_validates(script):
    from hydra import compose, initialize_config_module

    path = script(MEAN)
    with initialize_config_module("verl.trainer.config", version_base=None):
        made = compose(
            "ppo_trainer",
            overrides=[
                "algorithm.adv_estimator=advlab",
                f"+algorithm.advlab.recipe={path}",
                "actor_rollout_ref.actor.policy_loss._target_=advlab.verl.PolicyLossConfig",
                f"+actor_rollout_ref.actor.policy_loss.advlab='${{advlab:{path}}}'",
            ],
        )
    OmegaConf.resolve(made)
    data = compute_advantage(batch(), made.algorithm.adv_estimator, config=made.algorithm)
    columns = {"groups": data.non_tensor_batch["uid"], "reward": data.batch["token_level_rewards"].sum(1)}
    expected = advlab.load("dr_grpo").advantage(**columns).advantage
    assert torch.allclose(data.batch["advantages"].sum(1), expected * data.batch["response_mask"].sum(1))
    # The workers have the driver's text.
    from verl.utils.config import omega_conf_to_dataclass

    loss = omega_conf_to_dataclass(made.actor_rollout_ref.actor.policy_loss)
    assert advlab.load(path).version in loss.advlab


class Actor:
    def __init__(self, recipe, **global_batch_info):
        self.policy_loss = type("PolicyLoss", (), {"advlab": recipe})()
        self.global_batch_info = global_batch_info


def test_micro_batches_of_the_policy_loss_add_up():
    data, old = batch(), -noise(5)
    logp = (old + 0.3 * (noise(6) - 0.5)).requires_grad_()
    mask, advantage = data.batch["response_mask"].bool(), noise(7) - 0.5
    tokens = int(mask.sum())
    whole, _ = adapter.policy_loss(old, logp, advantage, mask, config=Actor("ppo_clip"))
    loss_fn = core_algos.get_policy_loss_fn("advlab")
    parts = []
    for rows in (slice(0, 5), slice(5, 24)):
        actor = Actor("ppo_clip", batch_num_tokens=tokens, dp_size=1)
        loss, metrics = loss_fn(
            old_log_prob=old[rows], log_prob=logp[rows], advantages=advantage[rows], response_mask=mask[rows], config=actor,
            loss_agg_mode="token-mean", rollout_is_weights=None,
        )  # fmt: skip
        parts.append(loss)
    assert sum(parts).item() == pytest.approx(whole.item(), abs=1e-6)
    assert metrics["actor/advlab/clip_share"] >= 0
    (by_parts,) = torch.autograd.grad(sum(parts), logp)
    ratio = (logp - old).exp()
    theirs = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))[mask].mean()
    (expected,) = torch.autograd.grad(theirs, logp)
    assert torch.allclose(by_parts, expected, atol=1e-7)


MASK, OLD = torch.ones(4, 3, dtype=torch.bool), -torch.ones(4, 3)
BOTH = 'fn weight(batch, p) { batch.reward > 0 } fn loss(batch, p) { batch.logp.mean("batch") }'


def loss_of(recipe, weights=None, mean="token-mean", old=OLD):
    return adapter.policy_loss(old, OLD, OLD, MASK, mean, Actor(recipe), weights)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda script: loss_of(OmegaConf.create({"recipe": "a"})), "takes the recipe itself, `.actor.policy_loss.advlab="),
        (lambda script: loss_of("ppo_clip", mean="seq-mean-token-sum"), "token-mean"),
        (lambda script: loss_of("ppo_clip", OLD), "rollout_is_weights"),
        (lambda script: loss_of("pacs"), "use a recipe that reads rewards as the estimator"),
        (lambda script: loss_of(str(script(BOTH))), "the estimator applies them"),
        *(
            (lambda script, name=name: loss_of(name), "not a mean over independent tokens")
            for name in ("gspo", "gspo_token", "gmpo", "sapo", "topr", "opmd_loss", "kl_cov")
        ),
    ],
)
def test_a_policy_loss_refuses_what_it_cannot_do(script, call, words):
    with pytest.raises(ValueError, match=words):
        call(script)


def test_prints_of_a_policy_loss_are_logged_and_bounded(script, caplog):
    path = script('fn loss(batch, p) { print("here"); (-batch.advantage * batch.logp).mean("batch") }')
    for _ in range(loss.REPORTED + 3):
        loss_of(str(path))
    assert caplog.text.count("printed:\nhere") == loss.REPORTED


def test_a_mean_over_tokens_of_such_a_loss_is_taken(script):
    text = """
import "sapo" as sapo;
fn params() { sapo::params() + #{ aggregate: #{ value: "token" } } }
fn init(p) { #{ calls: 0 } }
fn loss(batch, p) { this.calls += 1; metric("calls", this.calls); sapo::loss(batch, p) }
"""
    for recipe in (str(script(text)), "ppo_clip", "cispo", "policy_gradient", "vespo", "dppo_tv"):
        loss, metrics = loss_of(recipe)
        assert loss.isfinite()
        # What is found out beforehand leaves the state alone.
        assert metrics.get("actor/advlab/calls", 1.0) == 1.0


def test_a_pinned_loss_is_restored_with_its_parameters(script):
    path = script(
        'fn params() { #{ by: #{ value: 1.0 } } } fn loss(batch, p) { (-batch.advantage * batch.logp * p.by).mean("batch") }'
    )
    pin = adapter.pinned(str(path), by=3.0)
    path.unlink()
    assert loss_of(pin)[0] == -3.0
    other = json.dumps({**json.loads(pin), "version": "0" * 64})
    with pytest.raises(advlab.RecipeError, match="was pickled with 000000"):
        loss_of(other)


CLIPS = {"clip_low": 0.2, "clip_high": 0.2}
MEANS = [
    ("token-mean", "vanilla", "ppo_clip", {"dual_clip": 3}),
    ("token-sum", "vanilla", "ppo_clip", {"dual_clip": 3, "aggregate": "token_sum"}),
    ("seq-mean-token-mean", "vanilla", "ppo_clip", {"dual_clip": 3, "aggregate": "response"}),
    ("seq-mean-token-sum", "vanilla", "ppo_clip", {"dual_clip": 3, "aggregate": "response_sum"}),
    ("seq-mean-token-sum-norm", "vanilla", "ppo_clip", {"dual_clip": 3, "aggregate": "response_sum_norm", "horizon": 11}),
    ("token-mean", "geo_mean", "gmpo", CLIPS),
    ("token-mean", "sapo", "sapo", {}),
    ("token-mean", "advlab", "ppo_clip", {}),
]


@pytest.mark.parametrize(("mode", "loss_mode", "ours", "params"), MEANS)
def test_verls_loss_of_the_advantages_is_the_weighted_mean(script, mode, loss_mode, ours, params):
    """verl's own gradient with the scaled advantages, and that of the same loss with the weights in its means."""
    path = script('fn weight(batch, p) { 0.5 + 2.0 * (batch.reward.mean("group") < 0.5) } ' + MEAN)
    old = -noise(5) - 0.1
    trainer = Run("")
    actor = {"loss_agg_mode": mode, "policy_loss": {"loss_mode": loss_mode, "advlab": "ppo_clip"}}
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"actor": actor}})
    data = trainer.compute(batch(old_log_probs=old), path)
    mask, uid = data.batch["response_mask"], data.non_tensor_batch["uid"]
    logp = (old + 0.6 * (noise(6) - 0.5)).requires_grad_()
    actor = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    object.__setattr__(actor, "policy_loss", adapter.PolicyLossConfig(loss_mode=loss_mode, advlab="ppo_clip"))
    value, _ = core_algos.get_policy_loss_fn(loss_mode)(
        old_log_prob=old, log_prob=logp, advantages=data.batch["advantages"], response_mask=mask.bool(),
        loss_agg_mode=mode, config=actor, rollout_is_weights=None,
    )  # fmt: skip
    (found,) = torch.autograd.grad(value, logp)
    out = advlab.load(path).advantage(groups=uid, mask=mask, reward=data.batch["token_level_rewards"].sum(1))
    assert (out.weight != out.weight[0]).any()
    expected = advlab.load(ours, **params).loss(
        logp=logp, old_logp=old, mask=mask, advantage=out.advantage[:, None] * mask, groups=uid, weight=out.weight
    )
    assert torch.allclose(found, expected.grad, atol=1e-6) and found.abs().max() > 1e-3


def test_weights_that_verls_loss_would_not_follow_are_refused(script, caplog):
    path = script("fn weight(batch, p) { batch.reward >= 0 } " + MEAN)
    squared = script('fn loss(batch, p) { (-(batch.advantage ** 2) * batch.logp).mean("batch") }', "squared.rhai")

    def run(recipe, **actor):
        trainer = Run("")
        trainer.config = OmegaConf.create({"actor_rollout_ref": {"actor": actor}})
        return trainer.compute(batch(old_log_probs=-noise(1)), recipe)

    # All weights are 1 here: it is refused for having the hook.
    for mode, own in [("kl_cov", None), ("clip_cov", None), ("dro", None), ("advlab", str(squared))]:
        with pytest.raises(ValueError, match=f"loss_mode={mode}. is not proportional"):
            run(path, loss_agg_mode="token-mean", policy_loss={"loss_mode": mode, "advlab": own})
    with pytest.raises(ValueError, match="mean over the M tokens"):
        run("pacs", loss_agg_mode="seq-mean-token-mean")
    clipped = script('fn loss(batch, p) { (-batch.advantage.clamp(-8.0, 8.0) * batch.logp).mean("batch") }', "clipped.rhai")
    with pytest.raises(ValueError, match="loss_mode=advlab. is not proportional"):
        run(path, loss_agg_mode="token-mean", policy_loss={"loss_mode": "advlab", "advlab": str(clipped)})
    for mode, is_told in [("gspo", False), ("dppo_tv", False), ("my_own", True)]:
        run(path, loss_agg_mode="token-mean", policy_loss={"loss_mode": mode})
        assert (f"loss_mode={mode}` is a loss that advlab does not know" in caplog.text) is is_told


def test_a_teachers_term_is_mixed_in(script):
    path = script(documented("rhai", "opd::advantage"))
    data = batch(old_log_probs=-noise(1), teacher_log_probs=-noise(2))
    found, _ = advantages(data, "advlab", advlab={"recipe": str(path), "params": {"teacher": 0.4}})
    gain = data.batch["teacher_log_probs"] - data.batch["old_log_probs"]
    reward, uid, mask = data.batch["token_level_rewards"].sum(1), data.non_tensor_batch["uid"], data.batch["response_mask"]
    assert torch.allclose(found, mixed_by_hand(0.4, reward, uid, mask, gain), atol=1e-5)
    with pytest.raises(ValueError, match="distillation.enabled=True"):
        advantages(batch(old_log_probs=-noise(1)), "advlab", advlab={"recipe": str(path)})


def test_verls_own_teachers_are_the_column(script):
    """In verl's queue: [S, 1] over prompt and response, the log-prob of the next token at each place."""
    from tensordict import TensorDict

    from advlab.verl.caller import Caller

    lengths = [(2, 3), (4, 1)]
    nested = lambda rows: torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    scores = [torch.arange(1.0, sum(pair) + 1) for pair in lengths]
    stored = {
        "prompts": nested([torch.ones(prompt) for prompt, _ in lengths]),
        "responses": nested([torch.ones(response) for _, response in lengths]),
        "teacher_logprobs": nested([row[:, None] for row in scores]),
    }
    queue = type("Queue", (), {"kv_batch_get": lambda _, select_fields, **__: TensorDict({n: stored[n] for n in select_fields}, 2)})
    rows = type("Rows", (), {"keys": ["a", "b"], "partition_id": "train", "fields": list(stored)})
    found = Caller(queue=(queue(), rows)).tensors()
    assert found["teacher_log_probs"].tolist() == [[2, 3, 4], [4, 0, 0]]
    stored["teacher_logprobs"] = nested([row[:, None].expand(-1, 8) for row in scores])
    assert Caller(queue=(queue(), rows)).tensors() == {}


def test_what_is_not_found_among_the_callers_is_told_once(script, caplog):
    path = script("fn weight(batch, p) { batch.reward > 0 } " + MEAN)
    for _ in range(2):
        compute_advantage(batch(), "advlab", config=config(path))
    told = [record.message for record in caplog.records if "not found" in record.message]
    assert len(told) == 2 and "verl's trainer was not found" in told[0] and "loss_agg_mode` was not found" in told[1]


def test_tensors_of_verls_batch_are_columns(script):
    path = script(
        "fn advantage(batch, p) { batch.entropy + 10 * batch.process + 100 * batch.reward_baseline + 1000 * batch.num_turns }"
    )
    rows = torch.arange(24)
    found = batch(
        entropys=noise(1), process=noise(2), reward_baselines=rows / 2, num_turns=rows, responses=torch.ones(24, 11).long()
    )
    expected = found.batch["entropys"] + 10 * found.batch["process"]
    expected += (100 * found.batch["reward_baselines"] + 1000 * found.batch["num_turns"])[:, None]
    mask = found.batch["response_mask"]
    out, _ = advantages(found, "advlab", advlab={"recipe": str(path)})
    assert torch.allclose(out, expected * mask)
    with pytest.raises(advlab.RecipeError, match=r"In verl: .*`\+algorithm.advlab.columns=\[state\]` makes it a column"):
        advantages(batch(), "advlab", advlab={"recipe": str(script("fn advantage(batch, p) { batch.state }", "other.rhai"))})
    remax = batch(reward_baselines=rows / 2)
    theirs, _ = advantages(batch(reward_baselines=rows / 2), "remax")
    assert torch.allclose(advantages(remax, "advlab/remax")[0], theirs * mask)
    assert advantages(batch(old_log_probs=-noise(1), sum_pi_squared=noise(2)), "advlab/otb")[0].isfinite().all()


def test_what_verl_sets_is_told_once_with_its_values(script, caplog):
    """`.value()` and comments are no column `value`."""
    text = "fn params() { #{ lambda: #{ value: 0.1 }, gamma: #{ value: 0.5 } } } // no batch.value here\n"
    calls = text + 'fn advantage(batch, p) { metric("m", batch.reward.mean("batch").value()); p.lambda * batch.reward }'
    reads = text + "fn advantage(batch, p) { p.lambda * batch.token_reward }"
    for source, factor, told in [(calls, 0.1, "lambda=0.1"), (reads, 0.9, "lambda=0.9 (set by verl)")]:
        path = script(source, f"{factor}.rhai")
        for _ in range(2):
            data = batch()
            found, _ = advantages(data, "advlab", advlab={"recipe": str(path)}, lam=0.9)
        assert torch.equal(found.max(), torch.tensor(factor))
        lines = [record.message for record in caplog.records if str(path) in record.message]
        assert len(lines) == 1 and told in lines[0] and caplog.records[-1].levelname == "WARNING"


def test_a_critics_targets_are_of_the_recipe_with_the_state_that_the_step_had(script):
    path = script(
        "fn init(p) { #{ n: 0.0 } }"
        "fn advantage(batch, p) { this.n += 1.0; batch.reward }"
        "fn returns(batch, p) { this.n += 1.0; this.n * batch.value }"
    )
    for step in (1, 2):
        data = batch(values=noise(4))
        _, returns = advantages(data, "advlab", advlab={"recipe": str(path)})
        assert torch.allclose(returns, step * data.batch["values"] * data.batch["response_mask"])


def test_texts_and_numbers_of_the_data_set_are_columns(script):
    path = script(
        'fn advantage(batch, p) { let agents = batch.regroup(batch.key("agent")); '
        'batch.reward - agents.reward.mean("group") + batch.level * where(batch.known == batch.known, 1, 0) }'
    )
    data = batch()
    agent = ["ab"[row % 2] for row in range(24)]
    others = {"agent": agent, "level": [np.float32(3)] * 24, "known": [None, np.int64(7)] * 12}
    others |= {"extra_info": [{}] * 24, "length": ["?"] * 24}
    data.non_tensor_batch.update({name: np.array(values, dtype=object) for name, values in others.items()})
    found, _ = advantages(data, "advlab", advlab={"recipe": str(path)})
    reward, uid = data.batch["token_level_rewards"].sum(1), data.non_tensor_batch["uid"]
    for row in range(24):
        peers = [other for other in range(24) if (uid[other], agent[other]) == (uid[row], agent[row])]
        expected = reward[row] - reward[peers].mean() + 3 * (row % 2)
        assert torch.allclose(found[row], expected * data.batch["response_mask"][row], atol=1e-6)


class Run:
    """What a trainer of verl's has when it calls an estimator."""

    def __init__(self, folder, **settings):
        more = {"default_local_dir": str(folder), "resume_mode": "auto", **settings}
        self.config, self.seen = OmegaConf.create({"trainer": more}), []

    def compute(self, data, path, **settings):
        self.global_steps = getattr(self, "global_steps", 1)
        return compute_advantage(data, "advlab", config=config(advlab={"recipe": str(path), **settings}))

    def run(self, path, steps, **settings):
        for self.global_steps in steps:
            metrics = {}
            compute_advantage(batch(), "advlab", config=config(advlab={"recipe": str(path), **settings}))
            self.seen.append(metrics["advlab/n"])
            self.reloaded = metrics["advlab/reloaded"]
            if self.global_steps in (2, 4, 5):
                self._save_checkpoint()
        return self.seen

    def _save_checkpoint(self):
        self.latest = self.global_steps


class FullyAsync(Run):
    """Its checkpoints are numbered by the version of its parameters, which has two steps each here."""

    @property
    def current_param_version(self):
        return (self.global_steps - 1) // 2


def test_state_is_in_verls_checkpoints(script, tmp_path, caplog):
    path = script('fn init(p) { #{ n: 0 } } fn advantage(batch, p) { this.n += 1; metric("n", this.n); batch.reward }')

    def relaunch():
        for live in _trainers._live.values():
            live.close()
        _trainers._live.clear()

    folder = tmp_path / "checkpoints"
    kept = {"folder": str(tmp_path / "advlab")}
    assert Run(folder).run(path, (1, 2, 3, 4, 5), **kept) == [1, 2, 3, 4, 5]
    saved = sorted(file.parent.name for file in folder.glob("*/advlab.json"))
    assert saved == ["global_step_2", "global_step_4", "global_step_5"]
    relaunch()
    assert Run(folder).run(path, (3, 4), **kept) == [3, 4]
    relaunch()
    # A file that changed meanwhile is a reload at the first step.
    path.write_text(path.read_text() + " // changed")
    run = Run(folder)
    assert run.run(path, [5]) == [5] and run.reloaded == 1.0
    relaunch()
    path.write_text(path.read_text().removesuffix(" // changed"))
    run = Run(folder)
    assert run.run(path, [5]) == [5] and run.reloaded == 0.0
    relaunch()
    named = {"resume_mode": "resume_path", "resume_from_path": str(folder / "global_step_2")}
    assert Run(tmp_path, **named).run(path, [3]) == [3] and "no state of" not in caplog.text
    relaunch()
    # One that has no state begins with that of `init`, and no row of its folder is lost in silence.
    assert Run(tmp_path / "elsewhere").run(path, [3], **kept) == [1]
    assert "no state of" in caplog.text and "the rows of steps 3 to 4 are in cut.jsonl now" in caplog.text
    cut = lines(tmp_path / "advlab/cut.jsonl")
    assert [(row["step"], row["metrics"]["n"]) for row in cut] == [(3, 3), (4, 4), (5, 5), (3, 3), (4, 4)]
    relaunch()
    # Saved after 4 steps as version 1, and resumed at step 5 - which is not the state of a step 1.
    folder = tmp_path / "fully_async"
    assert FullyAsync(folder).run(path, (1, 2, 3, 4)) == [1, 2, 3, 4]
    assert sorted(file.parent.name for file in folder.glob("*/advlab.json")) == ["global_step_0", "global_step_1"]
    relaunch()
    assert FullyAsync(folder).run(path, [4]) == [5]


def test_a_ray_actor_has_the_estimators():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:

        @ray.remote
        def there(data, settings):
            from verl.trainer.ppo.ray_trainer import compute_advantage

            return compute_advantage(data, "advlab/dr_grpo", config=settings).batch["advantages"]

        found = ray.get(there.remote(batch(), config()))
    finally:
        ray.shutdown()
    assert torch.equal(found, advantages(batch(), "advlab/dr_grpo")[0])


class Workers:
    """verl's workers: a tiny Qwen2 on the CPU, its log-probs and its update by verl's own `ppo_loss`."""

    def __init__(self, store, actor):
        from transformers import Qwen2Config, Qwen2ForCausalLM

        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        self.model = Qwen2ForCausalLM(Qwen2Config(vocab_size=23, num_key_value_heads=1, **sizes))
        self.store, self.actor = store, actor

    def log_probs(self):
        """Nested, as verl's engines give them: at each place the log-prob of the next token."""
        rows = []
        for prompt, response in zip(self.store["prompts"].unbind(), self.store["responses"].unbind()):
            tokens = torch.cat([prompt, response])
            logp = self.model(tokens[None]).logits[0].log_softmax(-1)
            rows.append(torch.cat([logp[:-1].gather(1, tokens[1:, None])[:, 0], logp.new_zeros(1)]))
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    def compute_log_prob(self, batch):
        with torch.no_grad():
            self.store["log_probs"] = self.log_probs()
        self.store["entropy"] = self.store["log_probs"] * 0 + 0.5
        return batch

    def update_actor(self, batch):
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.losses import ppo_loss

        fields = ("prompts", "responses", "response_mask", "old_log_probs", "advantages")
        data = self.store.select(*fields)
        tokens = int(self.store["response_mask"].values().sum())
        tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=tokens, global_batch_size=None)
        loss, metrics = ppo_loss(self.actor, {"log_probs": self.log_probs()}, data)
        loss.backward()
        self.gradient = torch.cat([weight.grad.flatten() for weight in self.model.parameters()])
        return {"metrics": {"mfu": [0.0], "pg_loss": [loss.item()]}}


@pytest.mark.parametrize("loss_mode", ["vanilla", "advlab"])
def test_a_whole_step_of_the_default_trainer_follows_the_recipe(monkeypatch, script, loss_mode):
    """v1's `_step_once`, with a tiny model in the place of the workers and a dictionary in that of the queue."""
    from types import MethodType, SimpleNamespace

    from tensordict import NonTensorStack, TensorDict
    from verl.trainer.ppo.v1 import trainer_base
    from verl.workers.config import ActorConfig

    draw, rows = torch.Generator().manual_seed(3), 8
    some = lambda low, high: [torch.randint(0, 23, (int(torch.randint(low, high, (1,), generator=draw)),)) for _ in range(rows)]
    jagged = lambda parts: torch.nested.as_nested_tensor(list(parts), layout=torch.jagged)
    prompts, responses = some(2, 5), some(2, 7)
    scores = torch.tensor([1.0, 0, 0, 1, 1, 0, 1, 1])
    rewards = [torch.cat([torch.zeros(len(row) - 1), score[None]]) for row, score in zip(responses, scores)]
    uid = [f"uid-{row // 4}" for row in range(rows)]
    fields = {"prompts": jagged(prompts), "responses": jagged(responses), "rm_scores": jagged(rewards)}
    fields["response_mask"] = jagged(torch.ones_like(row) for row in responses)
    more = [{"reward_extra_info": {"right": float(row % 2)}, "state": ["x", "y"][row % 2]} for row in range(rows)]
    fields["extra_fields"] = NonTensorStack(*more)
    store = TensorDict({**fields, "uid": NonTensorStack(*uid)}, batch_size=rows)
    queue = SimpleNamespace(
        kv_batch_get=lambda select_fields, **_: store.select(*(name for name in select_fields if name in store.keys())),
        kv_batch_put=lambda keys, partition_id, fields: (store.update(fields), batch)[1],
    )
    monkeypatch.setattr(trainer_base, "tq", queue)

    path = script(
        MEAN.replace("{", '{ metric("step", batch.step); metric("entropy", batch.entropy.mean("batch"));'
            'metric("right", batch.reward_right.mean("batch")); metric("x", (batch.key("state") == "x").mean("batch"));')
        + 'fn loss(batch, p) { (-batch.advantage * exp(batch.logp - batch.old_logp)).mean("batch") }'
    )
    actor = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1, use_kl_loss=False)
    object.__setattr__(actor, "policy_loss", adapter.PolicyLossConfig(loss_mode=loss_mode, advlab=adapter.pinned(str(path))))

    class Batch(list):
        keys, partition_id, extra_info = [f"{uid[row]}_{row}_0" for row in range(rows)], "train", {}
        fields = ["entropy", "extra_fields"]

    batch, workers = Batch(range(rows)), Workers(store, actor)
    own = {
        "algorithm": {"adv_estimator": "advlab", "gamma": 1.0, "lam": 1.0, "use_kl_in_reward": False, "advlab": {"recipe": str(path), "columns": ["state"]}},
        "actor_rollout_ref": {
            "rollout": {"n": 4, "temperature": 1.0, "calculate_log_probs": False},
            "actor": {
                "ppo_mini_batch_size": 2, "calculate_entropy": False, "entropy_coeff": 0.0, "ppo_epochs": 1, "data_loader_seed": 1,
                "shuffle": False, "loss_agg_mode": "token-mean", "loss_scale_factor": None,
            },
        },
        "trainer": {"critic_warmup": 0},
    }  # fmt: skip
    cls = next(c for c in vars(trainer_base).values() if isinstance(c, type) and "_step_once" in vars(c))
    trainer = SimpleNamespace(
        config=OmegaConf.create(own), global_steps=5, use_reference_policy=False, use_critic=False, actor_rollout_wg=workers,
        on_sample_begin=lambda: None, on_sample_end=lambda: None, distillation_config=None,
        replay_buffer=SimpleNamespace(sample=lambda **_: (batch, {})),
        reward_loop_manager=SimpleNamespace(reward_loop_worker_handles=[]), _balance_batch=lambda batch, metrics: batch,
    )  # fmt: skip
    for name in ("_compute_old_log_prob", "_compute_advantage", "_update_actor"):
        setattr(trainer, name, MethodType(getattr(cls, name), trainer))
    metrics = {}
    cls._step_once(trainer, metrics, {}, rows)
    told = {name: value for name, value in metrics.items() if name.startswith("advlab/")}
    assert told == {"advlab/step": 5.0, "advlab/entropy": 0.5, "advlab/right": 0.5, "advlab/x": 0.5, "advlab/serial": 0.0, "advlab/reloaded": 0.0}
    assert "actor/pg_loss" in metrics
    # The gradient of the recipe's advantage at ratio 1, by hand.
    advantage = (scores.view(2, 4) - scores.view(2, 4).mean(1, keepdim=True)).flatten()
    workers.model.zero_grad()
    shifted = [row[len(prompt) - 1 : -1] for row, prompt in zip(workers.log_probs().unbind(), prompts)]
    tokens = sum(map(len, responses))
    (-sum((a * row).sum() for a, row in zip(advantage, shifted)) / tokens).backward()
    expected = torch.cat([weight.grad.flatten() for weight in workers.model.parameters()])
    assert torch.allclose(workers.gradient, expected, atol=1e-6) and expected.abs().max() > 1e-3
