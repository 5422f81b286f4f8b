"""The contracts of slime, SkyRL and rLLM, as their trainers call their hooks, and what all adapters have in common."""

import math
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from scripts import MEAN

import advlab
from advlab import _trainers, rllm, slime

WEIGHTED = "fn weight(batch, p) { batch.reward > 0 } "
BY_TOKEN = "fn advantage(batch, p) { batch.token_reward.suffix_sum(1.0) }"
COUNTED = 'fn init(p) { #{ calls: 0 } } fn advantage(batch, p) { this.calls += 1; 1 + batch.reward - batch.reward.mean("group") }'
COUNTED_BY_TURNS = COUNTED.replace('mean("group")', 'last("trajectory")')
TWO = [np.array([1.0, 0.0])]


def opened(mean="tokens", no_weights=None, **theirs):
    return _trainers.Trainer("SkyRL").open_from_environment(mean, no_weights, **theirs)


def samples(rewards=(1.0, 0.0, 0.5, 0.5), groups=(4, 9, 4, 9)):
    made = [SimpleNamespace(group_index=g, response_length=3, loss_mask=[1, 0, 1], reward=r) for r, g in zip(rewards, groups)]
    for sample in made:
        sample.get_reward_value = lambda args, sample=sample: sample.reward
    return made


def slimes(given=None, **settings):
    args = SimpleNamespace(**{"advantage_estimator": "grpo", "normalize_advantages": False, **settings})
    return slime.post_process_rewards(args, samples() if given is None else given)


def skyrl():
    """The adapter, which imports torch."""
    pytest.importorskip("torch")
    import advlab.skyrl

    return advlab.skyrl


def skyrls(mask=((1, 1, 0), (1, 0, 0), (1, 1, 1)), config=None, **more):
    torch = pytest.importorskip("torch")
    mask = torch.tensor(mask)
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])[: len(mask)]
    settings = config and SimpleNamespace(**config)
    call = {"token_level_rewards": rewards, "response_mask": mask, "index": ["a"] * len(mask), "config": settings}
    return skyrl().estimate(**call, **more)


def rllms(config=None, **more):
    return rllm.estimate(TWO, config and SimpleNamespace(**config), **more)


@pytest.mark.parametrize(
    ("adapter", "body", "why"),
    [
        ("slime.SLIME", "batch.old_logp", "slime computes this column only after its hook"),
        ("slime.SLIME", "batch.rollout_logp", "advlab reads no log-probs from slime's samples"),
        ("slime.SLIME", "batch.difficulty * batch.entropy", "slime computes this column only after its hook"),
        ("slime.SLIME", "batch.difficulty + batch.length + batch.turns + batch.token_reward", None),
        ("slime.SLIME", 'if batch.has("old_logp") { batch.old_logp } else { batch.reward }', None),
        ("rllm.RLLM", "batch.value", "rLLM passes only rewards and trajectories"),
        ("rllm.RLLM", 'batch.reward_format * batch.step_reward.sum("trajectory")', None),
        ("skyrl.SKYRL", "batch.entropy", "SkyRL gives a recipe only `reward`, `token_reward`"),
        ("skyrl.SKYRL", "batch.difficulty", "`value`, `trajectory`, `turn`, `step_reward`, and the columns that follow from these"),
        ("skyrl.SKYRL", "batch.rewrad", "did you mean `reward`?"),
        ("skyrl.SKYRL", "batch.value + batch.token_reward + batch.turn", None),
        ("openrlhf.OPENRLHF", "batch.reward_format", "OpenRLHF gives a recipe only `reward`, `old_logp`"),
        ("openrlhf.OPENRLHF", "batch.logp + batch.value + batch.rollout_logp", None),
        ("nemo_rl.NEMO_RL", "batch.entropy", "NeMo-RL gives a recipe only `reward`, `reward_<name>`"),
        ("nemo_rl.NEMO_RL", "batch.reward_format + batch.logp", None),
        ("tinker.TINKER", "batch.ref_logp", "the cookbook adds its KL"),
        ("tinker.TINKER", "batch.old_logp + batch.state_score", None),
        ("trl.TRL", "batch.entropy", "TRL does not compute entropies"),
        ("trl.TRL", "batch.ref_logp + batch.teacher_logp + batch.difficulty", None),
        ("trl.TRL_RLOO", "batch.old_logp", "RLOOTrainer has no log-probs"),
        ("verl.estimator.VERL", "batch.advantage", "the recipe is only a loss"),
        ("verl.estimator.VERL", "batch.value + batch.entropy + batch.turn_id", None),
    ],
)
def test_a_column_that_a_trainer_never_gives_is_named_at_load_and_at_each_save(script, adapter, body, why):
    module, _, name = adapter.rpartition(".")
    pytest.importorskip("torch" if module not in ("slime", "rllm") else "numpy")
    refused = getattr(pytest.importorskip(f"advlab.{module}"), name).refused
    path, text = script(MEAN), f"fn advantage(batch, p) {{ {body} }}"
    with advlab.watch(path, **refused) as live:
        script(text)
        assert live.refresh() == (why is None)
        (saved,) = (event.error for event in live.events())
    if why is None:
        return advlab.watch(path, **refused).close()
    with pytest.raises(advlab.RecipeError, match="no batch of this run has the column") as loaded:
        advlab.watch(path, **refused)
    assert why in loaded.value.help
    assert (saved.message, saved.help, saved.line) == (loaded.value.message, loaded.value.help, loaded.value.line)


@pytest.mark.parametrize("estimator", ["grpo", "gspo", "cispo"])
def test_slimes_rewards_become_advantages(recipe, estimator):
    recipe(MEAN)
    assert slimes(advantage_estimator=estimator) == ([1.0, 0.0, 0.5, 0.5], [0.25, -0.25, -0.25, 0.25])
    recipe("fn advantage(batch, p) { batch.length }")
    assert slimes([samples()[:2], samples()[2:]])[1] == [2.0] * 4


def test_rllms_groups_come_back_as_they_went(recipe):
    recipe("rloo")
    advantages, returns = rllm.estimate([np.array([1.0, 0.0]), np.array([0.0, 0.0, 3.0])], SimpleNamespace(), traj_groups=[])
    assert [group.tolist() for group in advantages] == [[1.0, -1.0], [-1.5, -1.5, 3.0]] and returns is advantages


def test_skyrls_estimator_gives_advantages_and_returns(recipe):
    torch = pytest.importorskip("torch")
    mask = ((1, 1, 0), (1, 0, 0))
    recipe(MEAN)
    advantages, returns = skyrls(mask, gamma=0.5, lambd=1.0, values=None, grpo_norm_by_std=True)
    assert advantages.tolist() == [[0.5, 0.5, 0.0], [-0.5, 0.0, 0.0]] and torch.equal(returns, advantages)
    recipe("gae", whiten=False)
    values = torch.full((2, 3), 0.25)
    advantages, returns = skyrls(mask, gamma=0.5, lambd=1.0, values=values)
    assert advantages[0].tolist() == [0.25, 0.75, 0.0]
    assert torch.allclose(returns, (advantages + values) * torch.tensor(mask))


def removed_by_slime():
    for sample in (made := samples()):
        sample.remove_sample = True
    return slimes(made)[1]


def without_tokens_in_rllm(turns=True):
    step = SimpleNamespace(response_ids=[], reward=1.0, metadata={})
    steps = [[step], []] if turns else [[], []]
    return rllms(traj_groups=[SimpleNamespace(trajectories=[SimpleNamespace(steps=one) for one in steps])])[0][0].tolist()


@pytest.mark.parametrize(
    ("call", "expected", "text"),
    [
        (removed_by_slime, [0.0] * 4, COUNTED),
        (removed_by_slime, [0.0] * 4, COUNTED_BY_TURNS),
        (without_tokens_in_rllm, [0.0] * 2, COUNTED),
        (without_tokens_in_rllm, [0.0] * 2, COUNTED_BY_TURNS),
        (lambda: without_tokens_in_rllm(False), [0.0] * 2, COUNTED_BY_TURNS),
        # With rows per trajectory: SkyRL's batch is in the frame of its trainer, as in `clients`.
        (lambda: [one.tolist() for one in skyrls(((0, 0, 0),) * 3)], [[[0.0] * 3] * 3] * 2, COUNTED),
    ],
)
def test_a_batch_of_rejected_responses_is_no_step_and_ends_no_run(recipe, caplog, call, expected, text):
    recipe(text)
    assert call() == expected
    assert "runs no step, because no token of the batch counts" in caplog.text
    # The state is as before.
    assert [live.state_dict()["state"] for live in _trainers._live.values()] == [{"calls": 0}]


SEQUENCE = {"loss_reduction": "sequence_mean"}
BY_STEPS = SimpleNamespace(cfg=SimpleNamespace(generator=SimpleNamespace(step_wise_trajectories=True)))


@pytest.mark.parametrize(
    ("text", "call", "words"),
    [
        (MEAN, lambda: slimes(normalize_advantages=True), "--normalize-advantages"),
        (MEAN, lambda: slimes(advantage_estimator="ppo"), "set grpo, gspo or cispo"),
        (MEAN, lambda: slimes(custom_advantage_function_path="a.b"), "--custom-advantage-function-path"),
        (MEAN, lambda: slimes(samples(rewards=(None, 1.0, 1.0, 1.0))), "a reward"),
        (BY_TOKEN, slimes, "each response"),
        (WEIGHTED + MEAN, lambda: rllms(), "the hook `weight`: .*`loss_agg_mode=token-mean`"),
        (WEIGHTED + MEAN, lambda: rllms({"loss_agg_mode": "seq-mean-token-mean"}, traj_groups=[1]), "the mode is seq-mean"),
        (WEIGHTED + MEAN, lambda: skyrls(), "loss_reduction=None"),
        (WEIGHTED + MEAN, lambda: skyrls(config={"loss_reduction": "token_mean"}), "loss_reduction=token_mean"),
        (WEIGHTED + MEAN, lambda: skyrls(config={"loss_reduction": "prompt_mean"}), "loss_reduction=prompt_mean"),
        (WEIGHTED + MEAN, lambda: skyrls(config={**SEQUENCE, "policy_loss_type": "clip_cov"}), "policy_loss_type=clip_cov"),
        (WEIGHTED + MEAN, lambda self=BY_STEPS: skyrls(config=SEQUENCE), "step_wise_trajectories"),
        (MEAN, lambda: skyrls(config={"advantage_batch_normalize": True}), "advantage_batch_normalize"),
        ("gae", lambda: skyrls(gamma=1.0, lambd=1.0), "critic"),
        ("pacs", lambda: skyrls(), "mean over the M tokens"),
        (None, slimes, "ADVLAB_RECIPE"),
    ],
)
def test_what_a_trainer_cannot_follow_is_refused(recipe, text, call, words):
    if text is not None:
        recipe(text)
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("ADVLAB_PARAMS", "{k: 4}", "it must be JSON"), ("ADVLAB_KEEP_BATCHES", "-1", "it must be a number of batches")],
)
def test_wrong_variables_are_told(recipe, monkeypatch, name, value, words):
    recipe(MEAN)
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} is {value}: {words}"):
        slimes()


def test_as_many_batches_stay_in_the_folder_as_the_variable_says(recipe, monkeypatch, tmp_path):
    recipe(MEAN)
    monkeypatch.setenv("ADVLAB_FOLDER", str(tmp_path / "kept"))
    monkeypatch.setenv("ADVLAB_KEEP_BATCHES", "2")
    for _ in range(4):
        slimes()
    assert len([*(tmp_path / "kept/batches").glob("*.safetensors")]) == 2


@pytest.mark.parametrize("by_token", [False, True])
def test_a_loss_of_zero_is_explained_once(caplog, monkeypatch, script, by_token):
    """The advantages cancel over responses, and over tokens only if all responses have as many; the gradient mass is of the same mean."""
    recipe = advlab.load(script("fn advantage(batch, p) { batch.reward" + " + 0 * batch.old_logp" * by_token + " }"))
    for rewards, lengths, mean, mass in [
        ([1, -1], [2, 2], "tokens", "1"), ([1, -1], [2, 2], "sum", "1"), ([1, -1], [2, 1], "tokens", None),
        ([1, -1], [2, 1], "responses", "1"), ([1, -1], [0, 0], "tokens", None), ([1, 1, -2], [1, 1, 2], "responses", "1.33"),
        ([2, -1], [1, 2], "tokens", "1.33"),
    ]:  # fmt: skip
        monkeypatch.setattr(_trainers, "_warned", set())
        caplog.clear()
        mask = np.array([[place < length for place in range(2)] for length in lengths])
        for size in (1.0, 0.5):
            reward = size * np.array(rewards)
            out = recipe.advantage(reward=reward, groups=[0] * len(reward), mask=mask, old_logp=np.zeros(mask.shape))
            _trainers.explain_zero(out.advantage, mask, mean)
        assert caplog.text.count("is 0 while logp = old_logp") == (mass is not None), (lengths, mean)
        assert mass is None or f"the sum of abs(dloss/dlogp), is {mass} (" in caplog.text, (lengths, mean)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_trainers_mean_of_the_scaled_advantages_is_the_recipes_weighted_mean(script, kind):
    """Per mean of a trainer: what it makes of tokens' losses, unweighted and weighted."""
    torch = pytest.importorskip("torch") if kind == "torch" else None
    draw = np.random.default_rng(3)
    mask = draw.integers(0, 2, (6, 5))
    mask[4], mask[5] = 0, 1
    counts, factors = mask.sum(1), draw.normal(size=(6, 5))
    per_response = lambda x: (x * mask).sum(1) / np.maximum(counts, 1)
    means = {
        "tokens": lambda x, w: (w * (x * mask).sum(1)).sum() / (w * counts).sum(),
        "responses": lambda x, w: (w * per_response(x)).sum() / (w * (counts > 0)).sum(),
        "sum": lambda x, w: (w * (x * mask).sum(1)).sum(),
    }
    weights = {"mixed": [1, 0, 2.5, 0.5, 3, 1], "empty alone": [1, 1, 1, 1, 7, 1], "ones": [1] * 6, "zeros": [0] * 6}
    recipe = advlab.load(script("fn weight(batch, p) { batch.w } fn advantage(batch, p) { batch.reward }"))
    for name, weight in weights.items():
        w, reward = np.array(weight, float), draw.normal(size=6)
        columns = {"groups": [0, 0, 1, 1, 2, 2], "mask": mask, "w": w, "reward": reward}
        out = recipe.advantage(**{key: torch.tensor(value) for key, value in columns.items()} if torch else columns)
        for mean, of in means.items():
            scaled = np.asarray(_trainers.weighted(out, columns["mask"], mean))
            assert np.array_equal(np.asarray(_trainers.weighted(out, counts, mean)), scaled)
            expected = of(reward[:, None] * factors, w) if any(weight) else 0.0
            assert of(scaled[:, None] * factors, np.ones(6)) == pytest.approx(expected, abs=1e-12), (name, mean)
            # An advantage per token is scaled alike.
            by_token = replace(out, advantage=out.advantage[:, None] * columns["mask"])
            assert np.allclose(_trainers.weighted(by_token, mask, mean), scaled[:, None] * mask)
        assert name != "ones" or (scaled == reward).all()


def test_weights_arrive_in_the_mean_of_each_trainer(recipe, caplog):
    recipe(WEIGHTED + MEAN)
    # A mean over responses of 2 tokens each: 4/3 for three of four.
    for settings in ({}, {"calculate_per_token_loss": True}):
        assert slimes(**settings)[1] == pytest.approx([1 / 3, 0.0, -1 / 3, 1 / 3])
    # Trajectories of 2 and 1, 3, 1, and 4 tokens.
    step = lambda tokens: SimpleNamespace(response_ids=[0] * tokens)
    steps = [[[2, 1], [3]], [[1], [4]]]
    groups = [SimpleNamespace(trajectories=[SimpleNamespace(steps=[*map(step, one)]) for one in group]) for group in steps]
    mean = SimpleNamespace(loss_agg_mode="token-mean")
    found, _ = rllm.estimate([np.array([1.0, 0.0]), np.array([0.5, 2.0])], mean, traj_groups=groups)
    assert np.concatenate(found) == pytest.approx(np.array([0.5, 0.0, -0.75, 0.75]) * 11 / 8)
    # Two of three tokens count in each; a sample that slime removes later is no member of its group.
    removed = samples(groups=(4, 9, 4, 4))
    removed[2].remove_sample = True
    assert slimes(removed)[1] == pytest.approx([3 / 8, 0.0, 0.0, -3 / 8])
    for sample in removed:
        sample.rollout_id = 0
    # slime averages them as one rollout, of which each sample that is not removed has a third.
    recipe(WEIGHTED + 'fn advantage(batch, p) { batch.reward + 0 * batch.reward.last("trajectory") }')
    assert slimes(removed)[1] == pytest.approx([3 / 2, 0.0, 0.0, 3 / 4])
    torch = pytest.importorskip("torch")
    recipe(WEIGHTED + "fn advantage(batch, p) { batch.reward }")
    for reduction in ("sequence_mean", "seq_mean_token_sum_norm"):
        found, _ = skyrls(config={"loss_reduction": reduction})
        assert torch.allclose(found, 3 / 2 * torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
    for _ in range(2):
        skyrls(config={**SEQUENCE, "policy_loss_type": "mine"})
    assert caplog.text.count("policy_loss_type=mine` is a loss that advlab does not know") == 1


def test_a_save_that_a_trainer_cannot_follow_is_rejected(recipe, script):
    recipe(MEAN)
    live = opened("responses", "not here")
    batch = {"groups": [0, 0], "reward": [1.0, 0.0]}
    script(MEAN + ' fn loss(batch, p) { batch.logp.mean("batch") }', "recipe0.rhai")
    assert live.refresh() and live.advantage(**batch).advantage.tolist() == [0.5, -0.5]
    for text, words in [
        ("fn advantage(", "missing"),
        (WEIGHTED + MEAN, "the hook `weight`: not here"),
        ('fn loss(batch, p) { batch.logp.mean("batch") }', "mean over the M tokens"),
    ]:
        script(text, "recipe0.rhai")
        assert not live.refresh() and words in str(live.events()[-1].error)
        assert live.advantage(**batch).advantage.tolist() == [0.5, -0.5]
    with pytest.raises(ValueError, match="the column `weight`: not here"):
        live.advantage(**batch, weight=[1.0, 0.0])


def two_steps():
    steps = [SimpleNamespace(response_ids=[0], reward=reward, metadata={}) for reward in (0.0, 1.0)]
    return [SimpleNamespace(trajectories=[SimpleNamespace(steps=steps), SimpleNamespace(steps=steps[:1])])]


@pytest.mark.parametrize(
    ("text", "step", "words"),
    [
        (BY_TOKEN, slimes, "a value for each token, but slime takes one value for each response"),
        (
            'fn advantage(batch, p) { batch.step_reward + 0 * batch.reward.last("trajectory") }',
            lambda: [values.tolist() for values in rllms(traj_groups=two_steps())[0]],
            "different values for the turns of a trajectory, but rLLM takes one value for all steps of a trajectory",
        ),
    ],
)
def test_a_save_with_a_finer_advantage_than_a_trainer_takes_ends_no_run(recipe, script, text, step, words):
    recipe(MEAN)
    first = step()
    (live,) = _trainers._live.values()
    for _ in range(2):
        script(text, "recipe0.rhai")
        live.refresh()
        assert step() == first
    errors = [str(event.error) for event in live.events() if event.kind == "rejected"]
    assert errors and all(words in error for error in errors)


def test_a_save_that_begins_or_ceases_to_read_what_a_trainers_discount_is_for_is_rejected(recipe, script):
    params = "fn params() { #{ gamma: #{ value: 0.25 } } } "
    plain = params + "fn advantage(batch, p) { p.gamma * batch.reward }"
    of_return = params + "fn advantage(batch, p) { batch.token_reward.suffix_sum(p.gamma) }"
    for before, after, gamma in [(plain, of_return, 0.25), (of_return, plain, 0.5)]:
        recipe(before)
        live = opened(gamma=0.5)
        name = live.name.rpartition("/")[2]
        assert live.params["gamma"] == gamma
        script(after, name)
        assert not live.refresh() and "`gamma` is set by the trainer if" in str(live.events()[-1].error)
        script(before + " // as before", name)
        assert live.refresh() and live.params["gamma"] == gamma
        # Without the parameter, and with one that the run sets, there is nothing to mistake.
        script(after.replace(params, "").replace("p.gamma", "0.5"), name)
        assert live.refresh()
        recipe(before, gamma=0.75)
        live = opened(gamma=0.5)
        script(after, live.name.rpartition("/")[2])
        assert live.refresh() and live.params["gamma"] == 0.75


def test_a_trainers_discount_is_that_of_a_return_only(recipe):
    for text, gamma in [("gae", 0.5), ("reinforce", 0.5), ("kl_advantage", 0.0), ("opd", 0.0)]:
        recipe(text)
        assert opened(gamma=0.5).params["gamma"] == gamma
    recipe("gae", gamma=0.25)
    assert opened(gamma=0.5).params["gamma"] == 0.25


def test_a_damaged_checkpoint_is_named(recipe, tmp_path):
    recipe(MEAN)
    live = opened()
    for text in ('{"state"', "{}", "[]", '{"state": {}, "name": 3, "sources": {}}'):
        (tmp_path / _trainers.STATE).write_text(text)
        with pytest.raises(advlab.RecipeError, match=f"{tmp_path}/advlab.json is damaged.*delete it"):
            _trainers.resume(live, tmp_path, 3)


def test_steps_are_the_trainers_or_counted(recipe, monkeypatch):
    recipe('fn advantage(batch, p) { metric("step", batch.step); batch.reward * batch.step }')
    assert [rllms()[0][0].tolist() for _ in range(3)] == [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    monkeypatch.setitem(sys.modules, "slime.rollout.sample_hooks", SimpleNamespace(_current_rollout_id=5))
    assert slimes()[1] == [5.0, 0.0, 2.5, 2.5]


def test_prints_are_logged_once_a_step_and_bounded(recipe, caplog):
    recipe("fn advantage(batch, p) { for i in 0..30 { print(`line ${i}`); } batch.reward }")
    for _ in range(2):
        slimes()
    printed = [record.getMessage() for record in caplog.records if "printed" in record.getMessage()]
    assert len(printed) == 2 and all(text.endswith("line 19\n... and 10 more lines") for text in printed)
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_loss_as_the_advantage_needs_a_mean_over_tokens():
    call = {"groups": [0, 0], "reward": [1.0, 0.0], "mask": np.ones((2, 3)), "old_logp": -np.ones((2, 3))}
    out = advlab.load("pacs").advantage(**call, logp=call["old_logp"])
    assert _trainers.weighted(out, call["mask"], "tokens") is out.advantage
    with pytest.raises(ValueError, match="mean over the M tokens"):
        _trainers.weighted(out, call["mask"], "responses")


def test_registering_names_what_is_missing_and_finds_what_is_there(monkeypatch):
    for adapter, name in ((skyrl(), "SkyRL"), (rllm, "rLLM")):
        with pytest.raises(ImportError, match=f"{name} is not installed"):
            adapter.register()
    registered = {}
    module = ModuleType("skyrl_train.utils.ppo_utils")
    module.AdvantageEstimatorRegistry = SimpleNamespace(register=registered.__setitem__)
    for name in ("skyrl_train", "skyrl_train.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "skyrl_train.utils.ppo_utils", module)
    skyrl().register()
    assert registered == {"advlab": skyrl().estimate}


def test_columns_of_a_data_set_keep_names_apart_and_may_lack_values():
    columns = {
        "acc": list(np.array([np.float32(0.5), np.int64(1), np.bool_(True)], dtype=object)),
        "level": [None, 2, None], "agent": ["a", None, np.str_("b")], "nothing": [None] * 3, "known": [None] * 3,
        "mixed": ["a", 1, None], "rows": [[1.0], None, [2.0]], "ref-logp": [0.5] * 3, "my score": [1.0] * 3, "my-score": [2.0] * 3,
        "texts": [["a"], [], None],
    }  # fmt: skip
    kinds = {"known": "strings", "mixed": "numbers"}
    found = _trainers.of_data_set(columns, kinds)
    assert found.pop("level") == pytest.approx([math.nan, 2, math.nan], nan_ok=True)
    # A list has a value for each turn.
    assert found.pop("rows") == [[1.0], (), [2.0]] and found["texts"].at(0, 1) == found["texts"].at(2, 0) == ""
    assert found == {"acc": [0.5, 1, True], "agent": ["a", "", "b"], "known": ["", "", ""], "texts": [["a"], (), ()]}
    kept = {"acc": "numbers", "agent": "strings", "rows": "lists of numbers", "texts": "lists of strings"}
    assert kept.items() <= kinds.items()
    # A step without a value leaves each column of its kind.
    for nothing in ([None] * 3, [[], None, ()]):
        found = _trainers.of_data_set({"texts": nothing, "rows": nothing, "new": [[], None, []]}, kinds)
        assert {name: values.kind for name, values in found.items() if name != "new"} == {name: kept[name] for name in ("texts", "rows")}
        assert found["new"].kind == "lists of numbers" and _trainers.pick(found, [1, 2])["texts"].at(0, 0) == ""


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([{"a": 1}, None], "values of the type dict"),
        (["a", 1], "numbers and strings"),
        ([[1.0], 2.0], "lists of numbers and numbers"),
        ([[1.0], ["a"]], "lists of numbers and lists of strings"),
        ([[1.0, "a"], []], "lists of numbers and strings"),
        ([[[1.0]], [[2.0]]], "lists of lists of numbers"),
        ([[{"role": "user"}], None], "lists of values of the type dict"),
        ([np.ones((2, 2))] * 2, "values of the type ndarray"),
        ([[], 1.0], "lists and numbers"),
        ([_trainers.Unfit("lists of lists of strings")] * 2, "lists of lists of strings"),
    ],
)
def test_what_a_column_that_is_left_out_has_is_told_in_the_log_and_in_the_error(recipe, caplog, values, why):
    told = f"left out: `tools` ({why}): a column has only numbers or only strings"
    columns = _trainers.of_data_set({"tools": values, "reward": [9.0, 9.0], "score": [1.0, 2.0]})
    assert columns == {"score": [1.0, 2.0]} and told in caplog.text
    with pytest.raises(advlab.RecipeError) as error:
        slime.SLIME.per_response(advlab.load(source="fn advantage(batch, p) { batch.tools }"), {**columns, "groups": [0, 0]}, [1, 1], "sum")
    assert told in str(error.value) and error.value.missing_column == "tools"


def test_lists_without_the_tokens_of_their_turns_and_names_that_are_two_columns_are_told(recipe, caplog):
    made = samples()
    for sample in made:
        sample.metadata = {"scores": [1.0, 2.0], "my score": 1.0, "my-score": 2.0}
    for name, why in [
        ("scores", r"a list with one value for each turn\): without tokens, a column has one value for each response"),
        ("my_score", r"several columns would have this name\)"),
    ]:
        recipe(f"fn advantage(batch, p) {{ batch.{name} }}")
        with pytest.raises(advlab.RecipeError, match=rf"left out: `{name}` \({why}"):
            slimes(made)
        assert f"`{name}` (" in caplog.text


def test_columns_that_are_left_out_are_named(recipe, caplog, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("tensordict")
    from advlab.verl import estimator

    monkeypatch.setattr(_trainers, "_warned", set())
    rewards = torch.ones(2, 3)
    tensors = {"turn_id": torch.ones(2, 3).long(), "responses": torch.ones(2, 3).long(), "process": rewards + 1}
    rows = estimator.Rows(["a", "a"], rewards, rewards, None, False, False)
    columns = estimator._columns(tensors, rewards, rows, [])
    assert sorted(columns) == ["process", "reward", "token_reward"]
    columns.update(_trainers.of_data_set({"tools": [{"a": 1}, {}], "level": [1, 2], "nothing": [None, None]}))
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert [line.split(":")[1] for line in told] == [" `turn_id` (integers [B, T])", " `tools` (values of the type dict)"]
    for name in ("turn_id", "tools"):
        text = f"fn advantage(batch, p) {{ batch.{name} * batch.reward }}"
        call = {**columns, "groups": ["a", "a"], "mask": torch.ones(2, 3)}
        with pytest.raises(advlab.RecipeError, match=f"no column `{name}`(.|\n)*left out: `{name}`") as error:
            estimator.VERL.advantage(advlab.load(source=text), call)
        assert error.value.missing_column == name
