"""Recipes on arrays: kinds, types and shapes in and out, groups, state, pickling, errors."""

import json
import math
import pickle
import sys
import threading

import numpy as np
import pytest
from scripts import MEAN, SCALED, python

import advlab
from advlab import _trainers
from advlab._batch import Call

GROUPS = [7, 3, 7, 3]
REWARD = np.array([1.0, 0.0, 0.0, 1.0])
MASK = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]])
VALUE = np.linspace(0.1, 1.2, 12, dtype=np.float32).reshape(4, 3)
LOGP = np.full((4, 3), -0.5)
TWO = {"groups": [0, 0], "reward": [1.0, 0.0]}

WEIGHTED = (
    'fn weight(batch, p) { batch.reward } fn loss(batch, p) { -(batch.advantage * batch.logp).mean("batch", batch.weight) }'
)


def dr_grpo(**columns):
    return advlab.load("dr_grpo").advantage(groups=GROUPS, **{"reward": REWARD, **columns})


def gae(**columns):
    return advlab.load("gae").advantage(**{"groups": GROUPS, "reward": REWARD, "mask": MASK, "value": VALUE, **columns})


@pytest.mark.parametrize(
    "code",
    [
        # How long importing takes depends on what else the machine does: what it imports does not.
        "import sys, advlab; heavy = 'numpy torch pandas html html.parser IPython argparse advlab._magic'\n"
        "assert not {*heavy.split()} & {*sys.modules}",
        # Names are imported at their first use; completion and `help` must know them before.
        "import advlab; assert not {*advlab.__all__} - {*dir(advlab)}",
        "import sys; sys.modules['IPython'] = None; import advlab; assert 'A+ right' in str(advlab.load('grpo').curve(n=4))",
    ],
    ids=["imports", "names", "without IPython"],
)
def test_a_fresh_package(code):
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_the_advantage_is_one_number_per_response_or_token():
    out = dr_grpo(mask=MASK)
    assert out.advantage.tolist() == [0.5, -0.5, -0.5, 0.5]
    assert isinstance(out.advantage, np.ndarray) and out.reward is None and out.prints == []
    assert out.metrics == {} and 0 < out.seconds < 60 and out.version == advlab.load("dr_grpo").version
    out = gae().advantage
    assert (out.dtype, out.shape) == (np.float64, (4, 3))
    assert (out[MASK == 0] == 0).all() and (out[MASK == 1] != 0).all()
    assert gae(reward=REWARD.astype("f4")).advantage.dtype == np.float32


def layouts(array):
    """The same numbers in other memory."""
    unaligned = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    fields = np.zeros(array.shape, [("a", "i1"), ("b", array.dtype)])
    fields["b"] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    fortran, every_other = np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2]
    backwards, other_order = array[::-1, ::-1].copy()[::-1, ::-1], array.astype(array.dtype.newbyteorder())
    return unaligned, fields["b"], frozen, fortran, every_other, backwards, other_order


@pytest.mark.parametrize(
    ("columns", "like"),
    [
        *(({"mask": MASK.astype(kind)}, {}) for kind in "? i1 u1 i4 i8 u8 f4 f8 >i4".split()),
        *(({"value": value, "mask": mask}, {}) for value, mask in zip(layouts(VALUE), layouts(MASK))),
        ({"value": VALUE.astype("f2")}, {"value": VALUE.astype("f2").astype("f4")}),
        ({"value": np.broadcast_to(np.float32(0.25), (4, 3))}, {"value": np.full((4, 3), 0.25, "f4")}),
        *(({"mask": None, name: MASK}, {}) for name in ("response_mask", "completion_mask", "action_mask", "loss_mask")),
        *(
            ({"reward": REWARD.astype(kind)}, {"reward": REWARD.astype("f4")})
            for kind in ("float32", "float16", "int8", "uint16", "int64", "bool", ">f4")
        ),
        ({"reward": REWARD.tolist()}, {}),
    ],
)
def test_numbers_of_any_type_in_any_memory_are_read(columns, like):
    """float64 rewards give float64, all others float32."""
    found, expected = gae(**columns).advantage, gae(**like).advantage
    assert found.dtype == expected.dtype and (found == expected).all()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int64"])
def test_rewards_by_token_are_added_up_few_or_many(kind):
    rewards = np.random.default_rng(0).integers(-8, 9, (5, 83)).astype(kind)
    rewards[1] = 0
    rewards[2, :80] = 0
    for view in (rewards, rewards[:, ::2], np.asfortranarray(rewards), rewards[:, :0]):
        assert _trainers.row_sums(view).tolist() == view.astype("float64").sum(-1).tolist()


def test_large_whole_numbers_of_tokens_stay_exact(script):
    recipe = advlab.load(script('fn advantage(batch, p) { batch.ids - batch.ids.min("batch") }'))
    ids = np.array([[2**24 + 1, 2**24], [2**24, 2**24]])
    assert recipe.advantage(ids=ids, **TWO).advantage.tolist() == [[1, 0], [0, 0]]


def test_inputs_are_never_written_to_nor_kept():
    before = [array.copy() for array in (REWARD, MASK, VALUE)]
    counts = [sys.getrefcount(array) for array in (REWARD, MASK, VALUE)]
    gae()
    assert all((a == b).all() for a, b in zip((REWARD, MASK, VALUE), before))
    assert [sys.getrefcount(array) for array in (REWARD, MASK, VALUE)] == counts


def test_ragged_rows_come_back_ragged():
    values = [[0.1, 0.2, 0.3], [0.4], [0.5, 0.6]]
    call, recipe = {"groups": [0, 0, 0], "reward": [1.0, 0.0, 1.0]}, advlab.load("gae")
    ragged = recipe.advantage(**call, value=values).advantage
    mask, table = [[1, 1, 1], [1, 0, 0], [1, 1, 0]], np.array([[0.1, 0.2, 0.3], [0.4, 9, 9], [0.5, 0.6, 9]])
    padded = recipe.advantage(**call, mask=mask, value=table).advantage
    assert [row.tolist() for row in ragged] == [padded[0].tolist(), padded[1, :1].tolist(), padded[2, :2].tolist()]
    holes = recipe.advantage(**call, value=values, mask=[[True, False, True], [1], [0, 1]]).advantage
    assert [row.shape for row in holes] == [(3,), (1,), (2,)] and holes[0][1] == 0


@pytest.mark.parametrize(
    "ids",
    [
        np.array(GROUPS, dtype="int8"),
        np.array(GROUPS, dtype="uint64") + np.uint64(2**63),
        np.array([str(id) for id in GROUPS]),
        np.array([f"id {id}" for id in GROUPS], dtype=object),
        [2**70 + id for id in GROUPS],
        [np.int32(id) for id in GROUPS],
        np.array([[id, 5, id] for id in GROUPS]),
        (str(id) for id in GROUPS),
    ],
)
def test_group_ids_may_be_integers_strings_and_rows_of_tokens(ids):
    out = advlab.load("dr_grpo").advantage(groups=ids, reward=[3.0, 0.0, 1.0, 1.0]).advantage
    assert out.tolist() == [1.0, -0.5, -1.0, 0.5]


def test_an_integer_and_its_digits_are_two_groups():
    assert advlab.load("dr_grpo").advantage(groups=[1, "1"], reward=[1.0, 2.0]).advantage.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"reward": [1.0, 0.0, 1.0]}, advlab.RecipeError, "`reward` has 3 responses, but the batch has 4"),
        ({"reward": ["a", "b", "c", "d"]}, TypeError, "`reward` holds"),
        ({"role": ["a", None, "c", "d"]}, TypeError, "`role` holds neither only numbers nor only strings"),
        ({"role": ["a", 1, "c", "d"]}, TypeError, "`role` holds neither only numbers nor only strings"),
        ({"role": ["a", "\ud800", "c", "d"]}, ValueError, r"`role` has the string '\\ud800'"),
        ({"groups": ["a", "\ud800", "c", "d"]}, ValueError, r"`groups` has the string '\\ud800'"),
        ({"groups": [1, None, 1, 1]}, TypeError, "response 1.* None"),
        ({"groups": [1, math.nan, 1, 1]}, TypeError, "response 1.* nan"),
        ({"groups": [1, [], 1, 1]}, TypeError, "response 1"),
        ({"reward": np.ma.masked_less(REWARD, 0.5)}, TypeError, "`reward` is a masked array"),
        ({"reward": [1.0, math.nan, 0.0, 1.0]}, advlab.RecipeError, "a finite number"),
        ({"mask": MASK * 2}, advlab.RecipeError, "the mask is 2 at response 0, token 0"),
        ({"mask": [[1], [2, 1], [1], [1]], "value": [[0.5]] * 4}, TypeError, "the mask contains 2"),
        ({"value": np.zeros((4, 2))}, advlab.RecipeError, "`value` has 2 tokens, but `mask` has 3"),
        ({"value": np.zeros((4, 3, 1))}, TypeError, "`value` has 3 dimensions"),
        ({"value": np.zeros((4, 3), complex)}, TypeError, "`value` holds complex128"),
        ({"reward": np.zeros(4, "datetime64[s]")}, TypeError, "`reward` holds datetime64"),
        ({"reward": np.zeros(4, np.longdouble)}, TypeError, "`reward` holds float128|longdouble"),
        ({"reward": np.float32(1)}, TypeError, "`reward` has 0 dimensions"),
        ({"token_reward": np.zeros(4)}, TypeError, "`token_reward` has 1 dimension: it must be \\[B, T\\]"),
        ({"mask": np.array(1)}, TypeError, "`mask` has 0 dimensions"),
        ({"mask": [1] * 6}, TypeError, "`mask` has 1 dimension: it must be \\[B, T\\]"),
        ({"groups": np.array(3.5)}, TypeError, "`groups` has 0 dimensions"),
        ({"groups": np.zeros((4, 3, 2), int)}, TypeError, "`groups` has 3 dimensions"),
        ({"groups": 4}, TypeError, "`groups` is 4"),
        ({"groups": None}, TypeError, "`groups` is missing"),
        ({"response_mask": MASK}, TypeError, "`response_mask` and `mask` are the same"),
        ({"mask": None, "loss_mask": MASK, "completion_mask": MASK}, TypeError, "`completion_mask` and `loss_mask`"),
        ({"mask": None, "attention_mask": MASK}, TypeError, "a trainer's `attention_mask` covers prompts and responses"),
        ({"step": "no"}, TypeError, "`step` is 'no'"),
        ({"step": 3.7}, TypeError, "`step` is 3.7"),
        ({"step": -1}, ValueError, "`step` is -1"),
        ({"value": None, "values": VALUE}, advlab.RecipeError, "the batch calls it `values`: pass it as `value`"),
    ],
)
def test_bad_input_is_told_by_name(columns, error, words):
    with pytest.raises(error, match=words):
        gae(**columns)


def test_fields_are_documented_and_outcomes_can_be_keys():
    for kind in (advlab.Advantage, advlab.Loss, advlab.LiveEvent, advlab.Finding):
        assert all(f"\n    {name}: " in kind.__doc__ for name in kind.__dataclass_fields__), kind
    out = dr_grpo()
    assert {out: 1}[out] == 1 and out != dr_grpo()


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda texts: np.array(texts, dtype=object)])
def test_texts_are_keys(kind):
    role = kind(["a", "b", "b", "a"])
    recipe = advlab.load("rae", decay=0.5)
    assert recipe.advantage(groups=GROUPS, reward=REWARD, role=role).advantage.tolist() == [1.0, 0.0, 0.0, 0.5]
    assert recipe.state_dict()["(by key)"]["baseline"] == [["b", 0.0], ["a", 0.75]]


def test_gigpo_reads_trajectories_and_states_from_texts():
    columns = {"trajectory": ["x", "x", "y", "y"], "state": ["s", "t", "s", "t"], "turn": [0, 1, 0, 1]}
    out = advlab.load("gigpo", gamma=1.0).advantage(groups=[1] * 4, step_reward=[0, 1, 0, 0], **columns)
    assert out.advantage.tolist() == [1.0, 1.0, -1.0, -1.0]


def test_a_critic_gets_what_the_recipe_says(script):
    call = {"groups": GROUPS, "reward": REWARD.astype("f4"), "mask": MASK, "value": VALUE}
    returns, unwhitened = gae(**call).returns, advlab.load("gae", whiten=False).advantage(**call).advantage
    assert np.allclose(returns, (unwhitened + VALUE) * MASK, atol=1e-6) and returns.dtype == np.float32
    assert dr_grpo().returns is None
    path = script("fn advantage(batch, p) { batch.reward } fn returns(batch, p) { 2 * batch.reward }")
    assert advlab.load(path).advantage(groups=GROUPS, reward=REWARD).returns.tolist() == [2.0, 0.0, 0.0, 2.0]


def test_weights_come_with_the_advantage_and_count_in_a_loss(script):
    columns = {"mask": MASK, "logp": -VALUE, "advantage": REWARD}
    loss = advlab.load("policy_gradient").loss(weight=[1.0, 1.0, 0.0, 1.0], **columns)
    assert (loss.grad[2] == 0).all() and (loss.grad[0, :2] != 0).all()
    assert dr_grpo(weight=[1.0, 0.0, 2.0, 1.0]).weight.tolist() == [1.0, 0.0, 2.0, 1.0]
    out = advlab.load(script("fn weight(batch, p) { batch.reward } " + MEAN)).advantage(**TWO)
    assert (out.weight.tolist(), dr_grpo().weight) == ([1.0, 0.0], None)
    columns = {"mask": [[1], [1]], "logp": [[-1.0], [-1.0]], "advantage": out.advantage}
    weighted = advlab.load(script(WEIGHTED))
    with pytest.raises(advlab.RecipeError, match="weight=out.weight"):
        weighted.loss(**columns)
    assert weighted.loss(weight=out.weight, **columns).grad.tolist() == [[-0.5], [0.0]]


def test_memory_of_large_arrays_is_used_again_once_nobody_has_them():
    mask = np.ones((2048, 4096), np.int8)
    recipe, reward = advlab.load("dr_grpo"), np.arange(2048.0, dtype=np.float32)
    call = Call.of_columns({"groups": np.arange(2048) // 2, "mask": mask, "reward": reward})
    first = recipe._advantage(call, padded=True).advantage
    place, second = first.ctypes.data, recipe._advantage(call, padded=True).advantage
    assert second.ctypes.data != place and (first == second).all()
    row = first[5]
    del first
    assert recipe._advantage(call, padded=True).advantage.ctypes.data != place, "a view of it is alive"
    row[:] = 7.0
    del row
    mask[:, 1] = 0
    call = Call.of_columns({"groups": np.arange(2048) // 2, "mask": mask, "reward": reward})
    third = recipe._advantage(call, padded=True).advantage
    assert (third[:, 1] == 0).all() and (third[:, 2] == second[:, 2]).all()


def test_answers_are_compared_and_taken_out():
    assert advlab.verify("\\frac{1}{2}", "so it is \\boxed{0.5}") == "right"
    assert advlab.verify("42", "it is \\boxed{41}") == "wrong"
    assert advlab.verify("42", "I do not know") == "no answer"
    assert advlab.answer("first \\boxed{1}, then \\boxed{x^2}") == "x^2"
    assert advlab.answer("nothing") is None


@pytest.mark.parametrize(
    ("line", "read", "words"),
    [
        ('{"score": 1.0, "group": 1}', {}, 'map={"reward": "score"}'),
        ('{"reward": 1.0, "group": 1}', {"map": {"value": "v"}}, 'map={"value": "v"}'),
    ],
)
def test_errors_speak_python(tmp_path, line, read, words):
    path = tmp_path / "rollouts.jsonl"
    path.write_text(f"{line}\n" * 2)
    with pytest.raises(advlab.RecipeError) as caught:
        advlab.read(path, **read)
    assert words in str(caught.value) and "--" not in str(caught.value)


def test_what_a_call_lacks_is_told():
    with pytest.raises(advlab.RecipeError) as caught:
        advlab.load("grpo").advantage(groups=GROUPS, mask=MASK)
    assert caught.value.missing_column == "reward" and caught.value.help == "it has `length`, `turn`"
    with pytest.raises(advlab.RecipeError, match=r"`loss\(advantage=out.advantage") as caught:
        advlab.load("ppo_clip").loss(groups=GROUPS, logp=-VALUE, old_logp=-VALUE, mask=MASK)
    assert "advlab apply" not in str(caught.value) and "prompt" not in str(caught.value)
    with pytest.raises(advlab.RecipeError, match="grpo has no `loss`"):
        advlab.load("grpo").loss(groups=GROUPS, logp=-VALUE, mask=MASK)


def test_an_error_has_its_place_in_the_script(script):
    path = script("fn advantage(batch, p) {\n    batch.rewrad\n}\n")
    with pytest.raises(advlab.RecipeError) as caught:
        advlab.load(path).advantage(**TWO)
    error = caught.value
    assert (error.path, error.line, error.column, error.help) == (str(path), 2, 11, "did you mean `reward`?")
    assert " 2 |     batch.rewrad\n" in str(error) and "^^^^^^" in str(error)
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line) == (str(error), 2)


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("grppo", {}, "did you mean `grpo`"),
        ("nowhere/mine.rhai", {}, "nowhere/mine.rhai"),
        ("grpo", {"epz": 1}, "did you mean `eps`"),
        ("passk", {"k": 0}, "at least 1"),
        ("passk", {"k": "many"}, "an integer"),
        ("passk", {"k": [1, 2]}, r'`k` .*"\[1, 2\]"'),
    ],
)
def test_what_cannot_be_loaded_is_told(name, params, words):
    with pytest.raises(advlab.RecipeError, match=words):
        advlab.load(name, **params)


@pytest.mark.parametrize("k", [2, np.int64(2), np.array(2), "2"])
def test_parameters_may_be_numpy_scalars_and_text(k):
    assert advlab.load("passk", k=k).params["k"] == 2


def test_state_lasts_from_call_to_call_and_travels_as_json(script):
    recipe = advlab.load(script(SCALED), by=np.float32(0.5))
    for calls in (1, 2, 3):
        out = recipe.advantage(**TWO)
        assert (out.metrics, out.advantage.tolist()) == ({"calls": calls}, [0.25, -0.25])
    with pytest.raises(advlab.RecipeError):
        recipe.advantage(groups=[0, 0], old_logp=[[0.0], [0.0]])
    state = json.loads(json.dumps(recipe.state_dict()))
    assert state == {"calls": 3, "seen": [], "mean": 0.5}
    other = advlab.load(recipe.name)
    other.load_state_dict(state)
    assert other.advantage(**TWO).metrics == {"calls": 4}


def test_what_is_remembered_by_key_travels_as_json(script):
    path = script('fn advantage(batch, p) { batch.reward - running("mean", batch.key("group"), 0.0, 0.5, 0.5 * batch.reward) }')
    recipe, other = advlab.load(path), advlab.load(path)
    batch = {"groups": ["b", "a", "b"], "reward": [1.0, 2.0, 1.0]}
    assert recipe.advantage(**batch).advantage.tolist() == [1.0, 2.0, 0.5]
    state = json.loads(json.dumps(recipe.state_dict()))
    assert state == {"(by key)": {"mean": [["a", 1.0], ["b", 0.75]]}}
    other.load_state_dict(state)
    assert other.advantage(**batch).advantage.tolist() == [0.25, 1.0, 0.125]


def test_a_pickled_recipe_is_the_same_version_wherever_it_wakes(script, tmp_path):
    script("fn half(x) { x / 2 }", "helpful.rhai")
    path = script(
        'import "helpful" as helpful;\nimport "grpo" as grpo;\nfn init(p) { #{ calls: 0 } }\n'
        "fn advantage(batch, p) { this.calls += 1; helpful::half(batch.reward) }\n"
    )
    recipe = advlab.load(path)
    recipe.advantage(groups=[0], reward=[1.0])
    pickled = pickle.dumps(recipe)
    script("fn half(x) { x / 100 }", "helpful.rhai")
    script(MEAN, "grpo.rhai")
    path.unlink()
    again = pickle.loads(pickled)
    assert again.version == recipe.version and again.state_dict() == {"calls": 1}
    assert again.advantage(groups=[0], reward=[1.0]).advantage.tolist() == [0.5]
    assert pickle.loads(pickle.dumps(advlab.load("passk", k=3))).params["k"] == 3
    listed = script('fn params() { #{ names: #{ value: ["x"], doc: "" } } }\n' + MEAN)
    recipe = advlab.load(listed, names=("a,b", 'c"d'))
    assert pickle.loads(pickle.dumps(recipe)).params["names"] == recipe.params["names"] == ["a,b", 'c"d']


def test_the_step_a_reward_hook_and_prints(script):
    recipe = advlab.load(script("fn advantage(batch, p) { batch.reward * batch.step }"))
    assert recipe.advantage(groups=[0], reward=[2.0], step=12).advantage.tolist() == [24]
    text = 'fn reward(batch, p) { print("hello"); batch.reward * 2 }\n' + MEAN
    out = advlab.load(script(text)).advantage(**TWO)
    assert (out.reward.tolist(), out.prints) == ([2.0, 0.0], ["hello"])


def test_a_loss_has_a_value_and_a_gradient():
    advantage = dr_grpo().advantage
    columns = {"logp": LOGP, "old_logp": LOGP}
    out = advlab.load("ppo_clip").loss(mask=MASK, advantage=advantage, **columns)
    tokens = MASK.sum()
    assert isinstance(out.loss, float) and out.loss == pytest.approx(-(advantage @ MASK.sum(1)) / tokens)
    assert out.grad == pytest.approx(-advantage[:, None] * MASK / tokens) and out.grad.dtype == np.float64
    assert out.metrics["clip_share"] == 0
    by_token = np.repeat(advantage[:, None], 3, axis=1)
    again = advlab.load("ppo_clip").loss(completion_mask=MASK, advantage=by_token, **columns)
    assert (again.grad == out.grad).all()


def save(path, **arrays):
    """Writes arrays as safetensors, without the package of that name."""
    names = {"float32": "F32", "float64": "F64", "int64": "I64", "bool": "BOOL"}
    arrays, header, data = {name: np.asarray(array) for name, array in arrays.items()}, {}, b""
    for name, array in arrays.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": names[str(array.dtype)], "shape": array.shape, "data_offsets": [len(data), end]}
        data += array.tobytes()
    header = json.dumps(header).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def test_a_loss_takes_a_batch_of_a_file(tmp_path):
    path = tmp_path / "batch.safetensors"
    save(path, mask=MASK, index=GROUPS, rewards=REWARD, logp=LOGP, advantages=REWARD)
    found = advlab.load("policy_gradient").loss(advlab.read(path))
    assert found.loss == advlab.load("policy_gradient").loss(logp=LOGP, mask=MASK, advantage=REWARD).loss


def test_a_loss_over_groups_needs_them():
    columns = {"logp": LOGP, "old_logp": LOGP - 0.1, "mask": MASK, "correct": [1, 0, 0, 1]}
    recipe = advlab.load("pacs")
    with pytest.raises(advlab.RecipeError, match="no column"):
        recipe.loss(logp=LOGP, mask=MASK)
    with pytest.raises(advlab.RecipeError, match="depends on groups") as caught:
        recipe.loss(**columns)
    assert caught.value.path is None
    assert recipe.loss(groups=GROUPS, **columns).loss > 0
    columns = {"logp": LOGP, "mask": MASK, "advantage": [1.0, -1.0, 0.0, 1.0]}
    recipe = advlab.load("ppo_clip")
    for _ in range(2):
        with pytest.raises(advlab.RecipeError, match="no column `old_logp`"):
            recipe.loss(**columns)
    assert recipe.loss(old_logp=LOGP, **columns).metrics["clip_share"] == 0


def test_calls_of_several_threads_come_one_after_the_other(script):
    recipe = advlab.load(script(SCALED))
    threads = [threading.Thread(target=lambda: [recipe.advantage(**TWO) for _ in range(100)]) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert recipe.state_dict()["calls"] == 400


def test_builtins_are_listed_and_explained():
    recipes = advlab.recipes()
    assert "grpo" in recipes and recipes["passk"].startswith("Pass@k")
    assert "Pass@k" in advlab.doc("passk") and "mean" in advlab.doc()
    with pytest.raises(advlab.RecipeError, match="passk"):
        advlab.doc("pask")
    with pytest.raises(advlab.RecipeError, match=r"advlab.doc\(\)"):
        advlab.doc("pask nothing")


def test_check_finds_what_does_not_hold(script, root):
    assert {finding.result for finding in advlab.check("dr_grpo")} <= {"holds", "note"}
    broken = advlab.check(script("fn advantage(batch, p) { 1 / batch.reward }"))
    failed = [finding for finding in broken if finding.result == "fails"]
    assert failed and failed[0].error.line == 1
    batch = advlab.read(root / "examples/rollouts.jsonl")
    assert advlab.check("passk", batch, k=2)[0].check


def test_a_file_is_read_without_a_copy(root):
    batch = advlab.read(root / "examples/rollouts.jsonl")
    assert (batch.responses, sorted(batch)) == (256, ["completion", "entropy", "old_logp", "ref_logp", "reward"])
    assert len(batch["completion"]) == 256 and isinstance(batch["completion"][0], str)
    reward = batch["reward"]
    assert not reward.flags.owndata and not reward.flags.writeable and batch["reward"].base is not None
    assert reward.__array_interface__["data"] == batch["reward"].__array_interface__["data"]
    assert batch.lengths.sum() == len(batch["old_logp"]) == 2836
    by_batch = advlab.load("passk", k=2).advantage(batch).advantage
    by_column = advlab.load("passk", k=2).advantage(groups=batch.groups, reward=reward).advantage
    assert (by_batch == by_column).all()
    with pytest.raises(KeyError):
        batch["rewrad"]
    del batch
    assert reward.sum() > 0


def test_padded_columns_of_a_file_are_arrays_and_a_wrong_line_is_told(tmp_path):
    path = tmp_path / "batch.safetensors"
    save(path, response_mask=MASK, rewards=REWARD, index=GROUPS, values=VALUE)
    batch = advlab.read(path)
    assert (batch["value"] == VALUE).all() and batch["value"].dtype == np.float32
    assert advlab.read(path, dtype="float64")["value"].dtype == np.float64
    assert (advlab.load("gae").advantage(batch).advantage == gae().advantage).all()
    path = tmp_path / "bad.jsonl"
    path.write_text('{"group": 1, "reward": 1.0}\n{"group": 1, "reward": "x"}\n')
    with pytest.raises(advlab.RecipeError) as caught:
        advlab.read(path)
    assert (caught.value.path, caught.value.line) == (str(path), 2)


@pytest.mark.parametrize("command", [["-m", "advlab"], ["-c", "from advlab.__main__ import main; main()"]])
def test_the_command_line_comes_along(command, root):
    run = lambda *words: python(*command, *words, cwd=root)
    assert run("--version").stdout.strip() == f"advlab {advlab.__version__}"
    done = run("apply", "passk", "examples/rollouts.jsonl", "--set", "k=2")
    assert done.returncode == 0 and "256 responses in 32 groups" in done.stdout
    assert run("apply", "nothing", "examples/rollouts.jsonl").returncode == 1
    assert run("apply").returncode == 2


def test_a_recipe_is_loaded_from_its_text():
    text = 'import "grpo" as grpo; fn params() { grpo::params() } fn advantage(batch, p) { p.eps * grpo::advantage(batch, p) }'
    recipe = advlab.load(source=text, eps=0.5)
    assert recipe.text == text and recipe.params["eps"] == 0.5
    again = pickle.loads(pickle.dumps(recipe))
    assert again.advantage(**TWO).advantage.tolist() == recipe.advantage(**TWO).advantage.tolist() != [0, 0]
    # The parameters are a copy that JSON and others take.
    assert pickle.loads(pickle.dumps(recipe.params)) == json.loads(json.dumps(recipe.params)) == {**recipe.params}


def test_responses_without_a_reward_and_fields_of_objects_are_read_as_told(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    rows = [{"uid": "a", "rewards": {"correct": reward}} for reward in (1, None, 0)]
    path.write_text("\n".join(map(json.dumps, rows)))
    names = {"reward": "rewards.correct"}
    with pytest.raises(advlab.RecipeError, match='1 of 3 responses.*\n.*`unscored="leave-out"`'):
        advlab.read(path, map=names)
    assert advlab.read(path, map=names, unscored="zero")["reward"].tolist() == [1, 0, 0]
    left = advlab.read(path, map=names, unscored="leave-out")
    assert left["reward"].tolist() == [1, 0] and left.groups == ["a", "a"]
    assert left.notes == ["`group` is read from `uid`", "left out: 1 response without a reward"]
