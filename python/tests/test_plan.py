"""A recipe written as PyTorch gives the recipe's own numbers, and its loss the recipe's own gradient."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import advlab

torch = pytest.importorskip("torch", reason="torch is not installed")

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
# Built-ins that cannot be such a function, with words of the reason.
REFUSED = {
    "rae": "remembers",
    "spo": "remembers",
    "passk_bootstrap": "values of the batch",
    "gigpo": "regroup",
    "hierarchical_grpo": "regroup",
    "turn_grpo": "regroup",
    "turn_credit": "regroup",
    "passk_full_sampling": "regroup",
}
EXPORTED = [name for name in advlab.recipes() if name not in REFUSED]
# What the golden files call a column.
OURS = {
    "rewards": "reward", "labels": "correct", "logp_old": "old_logp", "logp_ref": "ref_logp", "logp_rollout": "rollout_logp",
    "logp_teacher": "teacher_logp", "values": "value", "token_rewards": "token_reward", "advantages": "advantage",
    "lengths": "length", "run": "trajectory", "traj": "trajectory", "step": "turn",
}  # fmt: skip
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def padded(rows, fill):
    """[B, T] of rows, with a fill beside them."""
    wide = np.full((len(rows), max(map(len, rows))), fill)
    for row, values in zip(wide, rows):
        row[: len(values)] = values
    return wide


def random_batch(seed):
    """Columns of uneven and interleaved groups, with ties, holes in the mask, and responses without tokens or with one."""
    rng = np.random.default_rng(seed)
    responses, tokens = int(rng.integers(9, 30)), int(rng.integers(1, 12))
    mask = rng.random((responses, tokens)) < rng.choice([0.5, 0.9])
    mask[rng.integers(responses)] = False
    mask[rng.integers(responses)] = np.arange(tokens) == tokens // 2
    groups = rng.choice([3, 11, -5, 10**12, 7], responses, p=[0.4, 0.3, 0.2, 0.05, 0.05])
    sizes = np.array([(groups == group).sum() for group in groups])
    # For a k of 4 no group may be smaller.
    groups[sizes < 4] = 3
    logp = lambda: -rng.exponential(0.5, mask.shape)
    old = logp()
    columns = {
        "reward": rng.choice([0.0, 0.1, 0.7, 1.0], responses), "reward_baseline": rng.random(responses),
        "truncated": rng.integers(0, 2, responses).astype(float), "input_tokens": rng.integers(1, 9, responses).astype(float),
        "turns": rng.integers(1, 4, responses).astype(float), "advantage": rng.choice([-1.5, -0.3, 0.0, 0.8], mask.shape),
        "old_logp": old, "logp": old + rng.normal(0, 0.3, mask.shape), "ref_logp": old + rng.normal(0, 0.1, mask.shape),
        "rollout_logp": old + rng.normal(0, 0.05, mask.shape), "teacher_logp": logp(), "value": rng.normal(size=mask.shape),
        "entropy": rng.random(mask.shape).round(1), "process_reward": rng.normal(size=mask.shape),
        "sum_pi_squared": rng.random(mask.shape), "flawed": rng.integers(0, 2, responses).astype(float),
        "reasoning_length": rng.integers(0, 2, responses).astype(float),
    }  # fmt: skip
    trajectory = groups * 10 + rng.integers(0, 2, responses)
    return {"groups": groups, "mask": mask, "trajectory": trajectory, **columns}


def inputs_of(function):
    """The names of the tensors that a function takes; parameters of the recipe and the generator have defaults."""
    arguments = inspect.signature(function).parameters.items()
    return [name for name, argument in arguments if argument.default is inspect.Parameter.empty]


def theirs(function, columns, dtype):
    """The exported function's result; beside the tokens, each column is NaN."""
    mask = torch.tensor(columns["mask"]) if "mask" in columns else None
    given = {}
    for name in inputs_of(function):
        values = columns["groups" if name == "group" else name]
        if name in ("group", "trajectory"):
            given[name] = torch.tensor(np.unique(values, return_inverse=True)[1] * 977 - 5)
        elif name == "mask":
            given[name] = mask
        else:
            given[name] = torch.tensor(values, dtype=dtype)
            if given[name].ndim == 2:
                given[name] = torch.where(mask, given[name], torch.nan)
    if "logp" in given:
        given["logp"].requires_grad_()
    return function(**given), given.get("logp")


def ours(recipe, hook, columns, dtype):
    numpy = np.float64 if dtype == torch.float64 else np.float32
    of_type = lambda values: values if values.dtype.kind in "biUO" else values.astype(numpy if values.ndim == 2 else float)
    columns = {name: of_type(np.asarray(values)) for name, values in columns.items()}
    if "trajectory" in columns:
        columns["trajectory"] = [str(one) for one in columns["trajectory"]]
    return recipe.loss(**columns) if hook == "loss" else recipe.advantage(**columns)


def close(got, expected, dtype, what):
    got, expected = got.detach().double().numpy(), np.asarray(expected, dtype=float)
    if got.shape != expected.shape:
        got = got[:, None] * np.ones(expected.shape)
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=what)


def compare(recipe, columns, dtype=torch.float64):
    """The exported functions of a recipe against the recipe, on columns."""
    for hook in {"reward", "advantage", "loss", "weight", "returns"} & set(recipe.hooks):
        function = recipe.torch(hook=hook)
        used = inputs_of(function)
        kept = {name: values for name, values in columns.items() if name in (*used, "groups", "mask", "random")}
        if hook == "weight" or "reward" not in kept and hook != "loss":
            kept["reward"] = columns["reward"]
        if "loss" in recipe.hooks and hook == "weight":
            continue
        result, logp = theirs(function, columns, dtype)
        if hook == "loss":
            expected = ours(recipe, hook, kept, dtype)
            close(result, expected.loss, dtype, "loss")
            result.backward()
            close(torch.where(torch.tensor(columns["mask"]), logp.grad, 0), expected.grad, dtype, "gradient")
            assert not logp.grad.isnan().any()
        else:
            all_columns = {**kept, **{name: columns[name] for name in _reads(recipe, columns)}}
            expected = ours(recipe, hook, all_columns, dtype)
            values = getattr(expected, hook)
            values = np.where(columns["mask"], values, 0) if np.ndim(values) == 2 else values
            close(result, values, dtype, hook)


def _reads(recipe, columns):
    """The columns that any function of the recipe takes."""
    names = set()
    for hook in {"reward", "advantage", "weight", "returns"} & set(recipe.hooks):
        names |= set(inputs_of(recipe.torch(hook=hook)))
    return names & set(columns)


# Settings that choose other formulas.
SETTINGS = {
    "grpo": [{"std": "population", "eps": 1e-4}],
    "rec": [{"drop": "balance"}],
    "pkpo": [{"variant": "sloo", "k": 2}, {"variant": "s", "k": 3}],
    "reinforce": [{"gamma": 0.9, "baseline": "batch", "whiten": False}],
    "reinforce_pp": [{"gamma": 0.97, "reward_clip": 0.5, "kl": "k3", "std": False}],
    "gae": [{"gamma": 0.9, "whiten": False}],
    "ppo_clip": [
        {"aggregate": "response", "dual_clip": 3.0},
        {"aggregate": "prompt", "kl_beta": 0.1, "kl": "k3"},
        {"aggregate": "token_sum", "kl_beta": 0.1, "kl": "k3+", "kl_is": True},
    ],
    "pacs": [{"adv_estimator": "grpo", "eps": 0.1}, {"adv_estimator": "naive", "reward_method": "mean", "weight_mode": "none"}],
    "tis": [
        {"level": "sequence", "normalize": True},
        {"mode": "icepop", "aggregate": "response"},
        {"mode": "kpop", "high": 0.01},
    ],
    "rejection": [
        {"over": "token", "estimator": "k3", "high": 1e-3, "weight": "token"},
        {"over": "max", "low": 0.9, "high": 1.1, "aggregate": "response"},
        {"over": "sum", "estimator": "k2", "high": 0.01, "aggregate": "prompt"},
        {"denominator": "all", "weight": "mean", "weight_high": 1e9, "aggregate": "response_sum"},
    ],
    "gae_decoupled": [{"retained": 0.3, "whiten": False}],
    "gapo": [{"ratio": "token", "clip_low": 0.2, "clip_high": 0.5}],
    "gtpo": [{"apart": True}],
    "rlsd": [{"negative_only": True, "lambda": 1.0}],
    "fipo": [{"half_life": 2.0, "dual_clip": 1.5, "safety": 1.2, "weight_low": 0.2}],
    "cosine_length": [{"max_length": 5, "exceeded": -10.0}],
    "nemotron_length": [
        {"bonus": 0.1, "longest_penalty": 0.2, "pass_rate": 0.3, "outlier_penalty": 0.2, "outlier_z": 1.0},
        {"of": "answer", "band_start": 1.0, "band_end": 4.0, "band_floor": 0.5},
    ],
}
CASES = [(name, settings) for name in EXPORTED for settings in ({}, *SETTINGS.get(name, ()))]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda value: value if isinstance(value, str) else str(value or ""))
def test_random_batches(name, settings, monkeypatch):
    recipe = advlab.load(name, **settings)
    for seed in range(8):
        columns = random_batch(seed)
        if "generator" in str(recipe.torch().source):
            # The recipe draws the same numbers from a column.
            of_tokens = columns["mask"].shape if "loss" in recipe.hooks else columns["mask"].shape[:1]
            columns["random"] = np.random.default_rng(seed).random(of_tokens)
            monkeypatch.setattr(torch, "rand", lambda *_, dtype, **__: torch.tensor(columns["random"], dtype=dtype))
        # Float32 does not hold how little these lengths matter beside a max_length of 16384.
        is_coarse = name == "cosine_length" and not settings
        for dtype in (torch.float64,) if is_coarse else (torch.float64, torch.float32):
            compare(recipe, columns, dtype=dtype)


@pytest.mark.parametrize("name", [name for name in EXPORTED if "loss" in advlab.load(name).hooks])
def test_gradients_on_policy(name):
    """Equal ratios and equal advantages: the rounded mean of equal values may lie beside them, and has a gradient all the same."""
    recipe = advlab.load(name)
    for responses, tokens in [(1, 3), (1, 10), (1, 13), (4, 9), (12, 15)]:
        columns = random_batch(3)
        shape = (responses, tokens)
        columns = {
            column: np.resize(values, shape if np.ndim(values) == 2 else responses) for column, values in columns.items()
        } | {"mask": np.ones(shape, bool), "groups": np.arange(responses) // 4, "advantage": np.full(shape, 0.7)}
        columns |= {column: columns["old_logp"] for column in ("logp", "rollout_logp", "ref_logp")}
        compare(recipe, columns)


@pytest.mark.parametrize("name", EXPORTED)
def test_empty_batches(name):
    """No responses, no tokens, or neither: numbers, and no error."""
    recipe = advlab.load(name)
    for responses, tokens in [(0, 5), (6, 0), (0, 0)]:
        part = lambda values: values[:responses, :tokens] if values.ndim == 2 else values[:responses]
        columns = {column: part(values) for column, values in random_batch(0).items()}
        columns["groups"] = np.zeros(responses, int)
        for hook in {"reward", "advantage", "loss", "weight", "returns"} & set(recipe.hooks):
            result, _ = theirs(recipe.torch(hook=hook), columns, torch.float64)
            assert len(result) == responses if result.ndim else hook == "loss", hook
            assert result.isfinite().all() and (responses or result.sum() == 0), hook


@pytest.mark.parametrize("name", ["grpo", "passk", "reinforce_pp", "gae", "ppo_clip", "pacs"])
def test_types_of_inputs(name):
    """They are computed with in float32: bfloat16 counts to 256, and whole numbers and truth values have no mean."""
    function, columns = advlab.load(name).torch(), random_batch(0)
    columns = {column: np.resize(values, (600, *values.shape[1:])) for column, values in columns.items()}
    columns |= {"groups": np.zeros(600, int), "reward": (columns["reward"] > 0.5).astype(float)}
    given = {
        column: torch.tensor(columns["groups" if column == "group" else column]) for column in inputs_of(function)
    }
    given = {column: values.bfloat16().float() if values.is_floating_point() else values for column, values in given.items()}
    expected = function(**given)
    for dtype in (torch.int64, torch.bool, torch.bfloat16):
        is_cast = lambda column: column == "reward" or dtype.is_floating_point and given[column].is_floating_point()
        cast = {column: values.to(dtype) if is_cast(column) else values for column, values in given.items()}
        torch.testing.assert_close(function(**cast), expected, rtol=0, atol=0)


def test_parameters_are_arguments():
    """Two settings in one process; a function that another calls gets the parameters that it takes."""
    settings = {"grpo": {"eps": 0.5}, "gae": {"gamma": 0.5, "lambda": 0.3}, "ppo_clip": {"clip_low": 0.01, "clip_high": 0.02}}
    for name, setting in settings.items():
        function, columns = advlab.load(name).torch(), random_batch(2)
        at = {f"{of}_" if of == "lambda" else of: value for of, value in setting.items()}
        wrapped = lambda **given: function(**given, **at)
        wrapped.__signature__ = inspect.signature(function)
        result, _ = theirs(wrapped, columns, torch.float64)
        expected, _ = theirs(advlab.load(name, **setting).torch(), columns, torch.float64)
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
        assert not torch.equal(result, theirs(function, columns, torch.float64)[0])


def test_functions_of_the_script_that_two_hooks_call(tmp_path):
    """Each is one function of the file, also if the script calls it with different arguments, or if torch's file has its name."""
    text = """
    fn params() { #{ scale: #{ value: 0.5 }, half: #{ value: 3.0 } } }
    fn returns(batch, p) {
        half(batch.reward, p.scale) * half(batch.length, p.scale) + half(batch.truncated, p.scale) * p.half - whiten(batch) * batch.value
    }
    fn advantage(batch, p) {
        half(batch.reward, p.scale) * half(batch.length, p.scale) - half(batch.truncated, p.scale) + whiten(batch)
    }
    fn half(x, scale) { let y = x * scale; y - x.mean("group") }
    fn whiten(batch) { batch.reward.mean("group") * batch.old_logp.sum("response") }
    """
    (tmp_path / "mine.rhai").write_text(text)
    recipe = advlab.load(str(tmp_path / "mine.rhai"))
    source = recipe.torch().source
    assert [source.count(f"def {name}(") for name in ("half_2", "half_3", "whiten_2")] == [1, 1, 1], source
    for seed in range(3):
        compare(recipe, random_batch(seed))


def by_right(pos, neg, size):
    """A group for each number of right responses, and the advantages of right and of wrong ones there."""
    inputs = {"rewards": [], "groups": []}
    for right in range(size + 1):
        inputs["groups"] += [right] * size
        inputs["rewards"] += [1.0] * right + [0.0] * (size - right)
    value = lambda right, reward: pos[right] if reward else neg[right]
    return inputs, {"advantages": [value(*one) for one in zip(inputs["groups"], inputs["rewards"])]}


def in_our_names(case):
    """A case as recipes, parameters, inputs and expected results; those of the older files have names of their own."""
    method, theirs, inputs, expected = (case[name] for name in ("method", "params", "inputs", "expected"))
    advantages, k = {"advantages": expected.get("advantages")}, {"k": theirs.get("k")}
    of = lambda method, params, inputs=inputs, expected=advantages: [(method, params, inputs, expected)]
    if method == "implied_objective":
        designs = {
            "rloo": {}, "dr_grpo": {}, "maxrl": {}, "grpo_pop": {"std": "population", "eps": 0}, "grpo_sample": {"eps": 0},
            "passk2": {"k": 2}, "passk4": {"k": 4}, "passk8": {"k": 8}, "exceeding4": {"k": 4}, "combination4": {"k": 4},
        }  # fmt: skip
        name = {"grpo_pop": "grpo", "grpo_sample": "grpo", "exceeding4": "passk_exceeding", "combination4": "passk_combination"}
        design = theirs["design"]
        if design not in designs:
            return []
        ours = name.get(design, design.rstrip("248") if design.startswith("passk") else design)
        return of(ours, designs[design], *by_right([None, *expected["A_pos_by_c"]], [*expected["A_neg_by_c"], None], theirs["N"]))
    if method == "passk_analytic_curve":
        return of("passk", k, *by_right(expected["A_pos"], expected["A_neg"], theirs["N"]))
    if method == "pkpo" and "variant" not in theirs:
        inputs = {**inputs, "groups": [0] * len(inputs["rewards"])}
        variants = [name for name in ("s", "sloo", "sloo_minus_one") if expected.get(name)]
        return [("pkpo", {**k, "variant": name}, inputs, {"advantages": expected[name]}) for name in variants]
    if method == "grpo_lambda" and "lam" in theirs:
        ours = {"acc_top_lambda": theirs["lam"], "length_penalty_alpha": theirs["alpha"], "length_eps": theirs["len_std_eps"]}
        results = lambda name: {"rewards": expected["rewards"], "advantages": expected[name]}
        kinds = {"advantages_ddof0": ("population", 0.0), "advantages_ddof1_eps1e6": ("sample", 1e-6)}
        settings = {name: {**ours, "std": std, "eps": eps} for name, (std, eps) in kinds.items()}
        return [(method, params, inputs, results(name)) for name, params in settings.items()]
    if method == "pacs" and "reward_method" in theirs and "rollout_n" in theirs:
        inputs = {**inputs, "groups": [one // theirs["rollout_n"] for one in range(len(inputs["labels"]))]}
        ours = {name: theirs[name] for name in ("beta", "adv_estimator")} | {
            "std": theirs["norm_adv_by_std"],
            "eps": theirs["grpo_eps"],
        }
        ours |= {
            "reward_method": "sum" if theirs["reward_method"] == "1" else "mean",
            "weight_mode": theirs["weight_mode"] or "none",
        }
        return of(method, ours, inputs, expected)
    if method == "pacs_weight":
        # At logp = old_logp a response's loss is w ln 2, and w (0.5 - y) / B is its derivative.
        labels, weights = np.array(inputs["labels"]), np.array(expected["weight"])
        groups = [one // theirs["rollout_n"] for one in range(len(labels))]
        rows = [[-1.0]] * len(labels)
        inputs = {"labels": labels, "groups": groups, "logp": rows, "logp_old": rows}
        slopes = [[slope] for slope in weights * (0.5 - labels) / len(labels)]
        expected = {"loss": weights.mean() * np.log(2), "grad_logp": slopes}
        return of("pacs", {"weight_mode": theirs["mode"], "adv_estimator": "naive"}, inputs, expected)
    if method in ("reinforce_pp", "reinforce_pp_baseline") and "beta" in theirs:
        ours = {"kl_beta": theirs["beta"], "kl": theirs["kl"], "gamma": theirs["gamma"], "std": "no_std" not in theirs}
        return of(method, ours | ({"reward_clip": theirs["reward_clip"][1]} if "reward_clip" in theirs else {}))
    if method == "passk_adaptive_entropy":
        inputs = {
            "rewards": inputs["rewards"],
            "groups": inputs["groups"],
            "entropy": [[one] for one in inputs["response_entropy"]],
        }
        return of("passk_by_entropy", {**k, "high_fraction": theirs["high_fraction"]}, inputs)
    if method == "passk_analytic":
        return of("passk", k) if "error" not in expected else []
    if method == "grpo" and "ddof" in theirs:
        return of("grpo", {"std": "sample" if theirs["ddof"] else "population", "eps": theirs["eps"]})
    if method in EXPORTED:
        named = case["file"] in ("estimators", "losses", "methods") or method.startswith("passk")
        return of(method, k if method.startswith("passk") else theirs if named else {}, inputs, expected)
    return []


def golden():
    seen = []
    for folder in (GOLDEN, GOLDEN.parents[2] / "shared" / "golden"):
        for file in (
            "estimators",
            "losses",
            "methods",
            "baselines",
            "grpo_lambda",
            "reinforce_pp",
            "pacs",
            "passk",
            "objectives",
        ):
            path = folder / f"{file}.json"
            cases = json.loads(path.read_text())["cases"] if path.exists() else []
            for case in [{**case, "file": file} for case in cases]:
                if case not in seen:
                    seen.append(case)
                    yield from (pytest.param(*ours, id=f"{case['name']}-{ours[0]}") for ours in in_our_names(case))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("method", "params", "inputs", "results"), list(golden()))
def test_golden_cases(method, params, inputs, results, dtype):
    recipe = advlab.load(method, **params)
    columns, inputs = {}, {name: values for name, values in inputs.items() if name != "state_before"}
    for name, values in inputs.items():
        if name != "groups":
            is_rows = isinstance(values[0], list)
            columns[OURS.get(name, name)] = padded(values, 0.0) if is_rows else np.array(values)
    size = len(next(iter(columns.values())))
    columns["groups"] = np.unique(inputs.get("groups", range(size)), return_inverse=True)[1]
    rows = [values for values in inputs.values() if isinstance(values[0], list)]
    if rows:
        mask = inputs.get("mask", [[1] * len(row) for row in rows[0]])
        columns["mask"] = padded(mask, 0.0) > 0
    text = lambda values: [str(one) for one in values]
    given = {name: text(values) if name == "trajectory" else values for name, values in columns.items()}
    compared = 0
    names = {"advantage": "advantages", "loss": "loss", "returns": "returns", "reward": "rewards", "weight": "weights"}
    for hook in names.keys() & set(recipe.hooks):
        expected = results.get(names[hook])
        if expected is None:
            continue
        result, logp = theirs(recipe.torch(hook=hook, **given), columns, dtype)
        if hook == "loss":
            result.backward()
            close(logp.grad, padded(results["grad_logp"], 0.0), dtype, "gradient")
        is_rows = isinstance(expected, list) and isinstance(expected[0], list)
        close(result, padded(expected, 0.0) if is_rows else expected, dtype, hook)
        compared += 1
    assert compared, "the case has no result of an exported hook"


# Losses that are a mean whatever their parameters are, or that compare the responses of a batch.
NO_PARTS = (
    "a_star_po",
    "gvpo",
    "real",
    "fipo",
    "gapo",
    "pacs",
    "gspo",
    "gmpo",
    "clip_cov",
    "kl_cov",
    "high_entropy",
    "opmd_loss",
)


@pytest.mark.parametrize("name", [name for name in EXPORTED if "loss" in advlab.load(name).hooks])
def test_the_parts_of_single_responses_add_up(name):
    """Each of them is traced by torch.fx, as a service does that takes only traced functions."""
    recipe = advlab.load(name)
    settings = {"aggregate": "token_sum"} if "aggregate" in recipe.params else {}
    try:
        recipe = advlab.load(name, **settings)
        function = recipe.torch(per_response=True)
    except (advlab.RecipeError, ValueError) as refused:
        assert name in NO_PARTS, refused
        return
    assert name not in NO_PARTS
    traced, names = torch.fx.symbolic_trace(function), list(inspect.signature(function).parameters)
    for seed in range(4):
        columns, total = random_batch(seed), 0.0
        logp = torch.tensor(columns["logp"], requires_grad=True)
        given = {name: torch.tensor(columns[name]) for name in names if name != "logprobs"} | {"logprobs": logp}
        for row in range(len(logp)):
            part, metrics = traced(*(given[name][row] for name in names))
            total, _ = total + part, metrics
        total.backward()
        kept = {name: columns[name] for name in (*names, "logp", "groups") if name in columns}
        expected = ours(recipe, "loss", kept, torch.float64)
        close(total, expected.loss, torch.float64, "loss")
        close(logp.grad, np.where(columns["mask"], expected.grad, 0), torch.float64, "gradient")


@pytest.mark.parametrize("name", ["grpo", "passk", "rloo", "ppo_clip", "gspo", "reinforce_pp", "gae"])
def test_no_breaks_in_a_compiled_graph(name):
    recipe, columns = advlab.load(name), random_batch(1)
    function = recipe.torch()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    wrapped = lambda **given: compiled(**given)
    wrapped.__signature__ = inspect.signature(function)
    close(theirs(wrapped, columns, torch.float64)[0], theirs(function, columns, torch.float64)[0].detach(), torch.float64, name)


def test_files_are_as_black_ruff_and_mypy_want(tmp_path):
    for name in EXPORTED:
        (tmp_path / f"{name}.py").write_text(advlab.load(name).torch().source)
    for name in ("ppo_clip", "tis", "vespo"):
        source = advlab.load(name, aggregate="token_sum").torch(per_response=True).source
        (tmp_path / f"{name}_part.py").write_text(source)
    for tool in (["black", "--check", "-q"], ["ruff", "check", "--isolated"], ["mypy", "--strict", "--no-error-summary"]):
        pytest.importorskip(tool[0], reason=f"{tool[0]} is not installed")
        done = subprocess.run([sys.executable, "-m", *tool, str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 0, (tool, done.stdout + done.stderr)
