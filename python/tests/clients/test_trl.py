"""TRL 1.16: runs of its trainers on a tiny random model, with the advantage of a recipe."""

import functools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl", reason="TRL is not installed: pip install trl==1.16.0")

from scripts import documented
from tiny import logps, many_a, model, sample, tokenizer
from datasets import Dataset
from trl import GRPOConfig, RLOOConfig

import advlab
from advlab.trl import GRPOTrainer, RLOOTrainer


def short(completions, **_):
    return [-0.1 * len(text) if text else None for text in completions]


OURS = ("recipe_folder", "recipe_batches", "recipe_params", "recipe_columns", "recipe_keep_rejected", "rollout_func")


def trainer(folder, recipe, cls=GRPOTrainer, config=GRPOConfig, reward_funcs=(many_a, short), callbacks=(), **settings):
    kept = {name: settings.pop(name) for name in OURS if name in settings}
    data = settings.pop("train_dataset", Dataset.from_dict({"prompt": ["a b", "c d", "e f", "g h"] * 4}))
    settings = {
        "max_steps": 4,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 6,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        **settings,
    }
    args = config(output_dir=str(folder), **settings)
    return cls(
        recipe=recipe, **kept, model=model(), reward_funcs=list(reward_funcs), args=args, train_dataset=data, eval_dataset=data,
        processing_class=tokenizer(), callbacks=list(callbacks),
    )  # fmt: skip


def watched(trainer):
    """What each generation of a trainer gave."""
    seen, score = [], trainer._generate_and_score_completions

    def generate(inputs):
        output = score(inputs)
        seen.append((output, trainer._advlab_rewards.clone()))
        return output

    trainer._generate_and_score_completions = generate
    return seen


def test_the_advantage_of_the_recipe_is_trained_on(tmp_path):
    run = trainer(tmp_path, "dr_grpo")
    seen = watched(run)
    run.train()
    assert len(seen) == 4
    for output, rewards in seen:
        by_group = rewards.nansum(1).view(-1, 4)
        assert torch.allclose(output["advantages"], (by_group - by_group.mean(1, keepdim=True)).view(-1), atol=1e-6)
    logged = [row for row in run.state.log_history if "loss" in row]
    assert [row["advlab/serial"] for row in logged] == [0.0] * 4
    assert torch.allclose(torch.tensor(list(run._logs["advantages"])), seen[-1][0]["advantages"])
    assert isinstance(run.advlab, advlab.LiveRecipe)


@pytest.mark.parametrize("loss_type", ["grpo", "sapo", "dr_grpo", "luspo", "dapo", "bnpo", "cispo", "vespo"])
def test_a_response_of_weight_0_is_as_if_it_were_not_there(tmp_path, script, loss_type):
    """TRL's own loss and gradient of the whole generation are those of the responses that count."""
    path = script("fn weight(batch, p) { batch.reward_many_a > 0 } fn advantage(batch, p) { batch.reward - 0.75 }")
    run = trainer(tmp_path, path, reward_funcs=(many_a,), max_steps=1, loss_type=loss_type)
    seen = watched(run)
    run.train()
    ((output, rewards),) = seen
    is_used = rewards[:, 0] > 0
    assert 0 < is_used.sum() < len(rewards) and (output["advantages"][~is_used] == 0).all()
    part = {name: value[is_used] for name, value in output.items() if value.dim() > 0}
    part["advantages"] = (rewards[:, 0] - 0.75)[is_used]
    part["num_items_in_batch"] = part["completion_mask"].sum()
    run.model.train()

    def of(batch):
        loss = run._compute_loss(run.model, batch)
        return [loss, *torch.autograd.grad(loss, list(run.model.parameters()), allow_unused=True)]

    for whole, used in zip(of(output), of(part)):
        assert whole is None or torch.allclose(whole, used, atol=1e-6)


@pytest.mark.parametrize("cls, config", [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)])
def test_the_built_in_filters_run(tmp_path, cls, config):
    """Dynamic sampling is `zero_variance_filter`."""
    for recipe, params in [
        ("difficulty_filter", {"low": 0.2, "high": 0.7}),
        ("zero_variance_filter", {}),
        ("truncation_filter", {}),
    ]:
        settings = {"per_device_train_batch_size": 16, **({"beta": 0.0} if config is RLOOConfig else {})}
        run = trainer(tmp_path, recipe, cls, config, reward_funcs=(many_a,), max_steps=3, recipe_params=params, **settings)
        seen = watched(run)
        run.train()
        is_filtered = False
        for output, rewards in seen:
            by_group = rewards[:, 0].view(-1, 4)
            mean = by_group.mean(1, keepdim=True)
            grpo = ((by_group - mean) / (by_group.std(1, keepdim=True) + advlab.load("grpo").params["eps"])).view(-1)
            lengths = output["completion_mask"].sum(1)
            has_end = output["completion_ids"].gather(1, lengths[:, None] - 1)[:, 0] < 2
            weight = {
                "difficulty_filter": ((mean > 0.2) & (mean < 0.7)).expand(-1, 4).reshape(-1),
                "zero_variance_filter": (by_group.std(1, keepdim=True) > 0).expand(-1, 4).reshape(-1),
                "truncation_filter": has_end,
            }[recipe].float()
            tokens = lengths if config is GRPOConfig else torch.ones(len(weight))
            share = tokens.sum() / (weight * tokens).sum().clamp(min=1)
            assert torch.allclose(output["advantages"], weight * grpo * share, atol=1e-4), recipe
            is_filtered |= 0 < int(weight.sum()) < len(weight)
        assert is_filtered, recipe


def test_dapo_weighs_by_the_answers_and_shapes_by_length(tmp_path, script, caplog):
    """The recipe of docs/trl.md."""

    def has_a(completions, **_):
        return [float("a" in text) for text in completions]

    path = script(documented("rhai", "DAPO", "trl") + "fn loss(batch, p) { batch.logp.mean() }")
    settings = {"max_completion_length": 12, "recipe_params": {"max_length": 8, "buffer": 4}, "epsilon_high": 0.28}
    run = trainer(tmp_path, path, reward_funcs=(has_a,), per_device_train_batch_size=16, max_steps=3, **settings)
    assert f"advlab runs reward, weight, advantage, but not loss, of {path}" in caplog.text
    seen, kinds = watched(run), set()
    run.train()
    for output, rewards in seen:
        lengths = output["completion_mask"].sum(1)
        shaped = (rewards[:, 0] + ((4 - lengths) / 4).clamp(-1, 0)).view(-1, 4)
        grpo = (shaped - shaped.mean(1, keepdim=True)) / (shaped.std(1, keepdim=True) + 1e-6)
        right = rewards.view(-1, 4).mean(1, keepdim=True)
        weight = ((right > 0) & (right < 1)).expand(-1, 4).reshape(-1).float()
        share = lengths.sum() / (weight * lengths).sum().clamp(min=1)
        assert torch.allclose(output["advantages"], weight * grpo.view(-1) * share, atol=1e-4)
        kinds |= {(bool(counts), bool(spread > 0)) for counts, spread in zip(weight.view(-1, 4)[:, 0], shaped.std(1))}
    # Some group without weight has shaped rewards that differ.
    assert (False, True) in kinds and (True, True) in kinds


def test_a_missing_value_of_the_data_set_does_not_end_a_run(tmp_path, script):
    path = script(
        'fn advantage(batch, p) { metric("known", (batch.level == 0).mean("batch").value()); metric("x", (batch.key("agent") == "x").mean("batch").value()); batch.reward }'
    )
    data = {"prompt": ["a b", "c d", "e f"], "level": [None, 0, None], "agent": ["x", None, None], "odd": [None, [1], 3]}
    for known in (Dataset.from_dict({**data, "odd": [None] * 3}), Dataset.from_dict({**data, "odd": [[1], None, None]})):
        run = trainer(tmp_path, path, train_dataset=known, per_device_train_batch_size=4, shuffle_dataset=False, max_steps=3)
        run.train()
        logged = [row for row in run.state.log_history if "loss" in row]
        assert [(row["advlab/known"], row["advlab/x"]) for row in logged] == [(0, 1), (1, 0), (0, 0)]


def test_prints_and_the_start_are_logged(tmp_path, script, caplog):
    path = script("fn params() { #{ k: 4 } } fn advantage(batch, p) { for i in 0..30 { print(`line ${i}`); } batch.reward }")
    trainer(tmp_path, path, max_steps=2, recipe_params={"k": 8}).train()
    told = [record.getMessage() for record in caplog.records if record.name == "advlab" and record.levelname == "WARNING"]
    assert told[0].startswith(f"advlab runs advantage of {path} ") and told[0].endswith("k=8") and len(told) == 3
    assert all("line 19\n... and 10 more lines" in printed for printed in told[1:])


def test_columns_of_the_data_set_reach_the_recipe(tmp_path, script):
    path = script('fn advantage(batch, p) { batch.regroup(batch.key("agent")).reward.mean("group") + batch.level }')
    data = Dataset.from_dict({"prompt": ["a b", "c d"] * 8, "agent": ["x", "y"] * 8, "level": [0, 100] * 8, "extra": [[1]] * 16})
    run = trainer(tmp_path, path, max_steps=1, reward_funcs=(many_a,), train_dataset=data)
    seen = watched(run)
    run.train()
    ((output, rewards),) = seen
    by_prompt = rewards[:, 0].view(-1, 4).mean(1).repeat_interleave(4)
    level = output["advantages"] - by_prompt
    assert sorted({round(value) for value in level.tolist()}) == [0, 100]


OBSERVED = [2, 3]  # What the environment answers to a turn.


def rolled(prompts, trainer):
    """TRL's `rollout_func`: two turns, and one if the first is short, with the state and the reward of each."""
    made = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "state", "step_reward", "seen")}
    for row, prompt in enumerate(prompts):
        ids = tokenizer()(prompt)["input_ids"]
        first, logp = sample(trainer.model, ids, seed=100 * trainer.state.global_step + row, length=3)
        parts, mask = [*first], [1] * len(first)
        state, scores = ["start"], [float(first.count(2))]
        if len(first) == 3:
            second, more = sample(trainer.model, ids + first + OBSERVED, seed=row, length=3)
            parts, mask, logp = parts + OBSERVED + second, mask + [0] * len(OBSERVED) + [1] * len(second), [*logp, 0.0, 0.0, *more]
            state, scores = [*state, "even" if sum(first) % 2 == 0 else "odd"], [*scores, float(len(second))]
        for name, value in zip(made, (ids, parts, logp, mask, state, scores, sum(first)), strict=True):
            made[name].append(value)
    return made


def by_hand(lists, states, prompts, gamma, omega):
    """GiGPO's advantage of each turn, in plain Python."""
    returns = [[sum(gamma ** (later - turn) * own[later] for later in range(turn, len(own))) for turn in range(len(own))] for own in lists]
    found = []
    for row, own in enumerate(lists):
        peers = [other for other in range(len(lists)) if prompts[other] == prompts[row]]
        total = sum(own) - sum(sum(lists[other]) for other in peers) / len(peers)
        for turn, value in enumerate(returns[row]):
            pairs = [(other, at) for other in peers for at in range(len(lists[other])) if states[other][at] == states[row][turn]]
            found.append(total + omega * (value - sum(returns[other][at] for other, at in pairs) / len(pairs)))
    return found


@pytest.mark.parametrize("recipe", ["gigpo", "step_grpo", "own"])
def test_turns_of_a_rollout_function_are_credited(tmp_path, script, recipe):
    """A whole run of several turns: `env_mask` has the holes, and what is returned for each turn reaches the recipe."""
    text = 'fn advantage(batch, p) { batch.step_reward - batch.step_reward.mean("group") + 0 * batch.reward.last("trajectory") }'
    path = script(text) if recipe == "own" else recipe
    run = trainer(tmp_path, path, reward_funcs=(many_a,), max_steps=2, per_device_train_batch_size=8, rollout_func=rolled, learning_rate=0.1)
    before = torch.nn.utils.parameters_to_vector(run.model.parameters()).clone()
    seen, given, theirs = watched(run), [], run._calculate_rewards

    def rewards(inputs, *more):
        given.append([dict(row) for row in inputs])
        return theirs(inputs, *more)

    run._calculate_rewards = rewards
    run.train()
    assert (torch.nn.utils.parameters_to_vector(run.model.parameters()) - before).abs().max() > 1e-3
    assert len(seen) == 2 and any(len(row["state"]) == 1 for row in given[0]) and any(len(row["state"]) == 2 for row in given[0])
    for (output, scored), rows in zip(seen, given, strict=True):
        lists, states, prompts = ([row[name] for row in rows] for name in ("step_reward", "state", "prompt"))
        if recipe == "step_grpo":
            by_group = scored[:, 0].view(-1, 4)
            a = (by_group - by_group.mean(1, keepdim=True)) / (by_group.std(1, keepdim=True) + 1e-6)
            assert torch.allclose(output["advantages"], a.view(-1), atol=1e-5)
            continue
        expected = by_hand(lists, states, prompts, 0.95, 1.0)
        if recipe == "own":
            flat = [(prompt, score) for prompt, own in zip(prompts, lists, strict=True) for score in own]
            peers = lambda prompt: [score for other, score in flat if other == prompt]
            expected = [score - sum(peers(prompt)) / len(peers(prompt)) for prompt, score in flat]
        expected, mask = iter(expected), output["completion_mask"] * output["tool_mask"]
        for row, own in enumerate(lists):
            found = output["advantages"][row]
            assert (found[mask[row] == 0] == 0).all()
            counted = mask[row].nonzero()[:, 0]
            first = counted < 3
            for turn in range(len(own)):
                values = found[counted[first if turn == 0 else ~first]]
                assert torch.allclose(values, torch.tensor(next(expected)).float().expand_as(values), atol=1e-5)


@pytest.mark.parametrize("rows", ["", ' + 0 * batch.reward.last("trajectory")'])
def test_lists_of_a_data_set_are_numbers_of_turns(tmp_path, script, rows):
    """A run on a `Dataset` with a number for each turn, whether the recipe's rows are responses or turns."""
    lists = [[0.5, 1.0], [0.25, -2.0]]
    data = Dataset.from_dict({"prompt": ["a b", "c d"] * 8, "turn_rewards": lists * 8})
    path, settings = script(f"fn advantage(batch, p) {{ batch.turn_rewards{rows} }}"), {"rollout_func": rolled, "learning_rate": 0.1}
    run = trainer(tmp_path, path, reward_funcs=(many_a,), max_steps=2, train_dataset=data, **settings)
    before = torch.nn.utils.parameters_to_vector(run.model.parameters()).clone()
    seen, given, theirs = watched(run), [], run._calculate_rewards
    run._calculate_rewards = lambda inputs, *more: given.append([row["prompt"] for row in inputs]) or theirs(inputs, *more)
    run.train()
    assert (torch.nn.utils.parameters_to_vector(run.model.parameters()) - before).abs().max() > 1e-3
    found = set()
    for (output, _), prompts in zip(seen, given, strict=True):
        mask = output["completion_mask"] * output["tool_mask"]
        for advantage, counts, prompt in zip(output["advantages"], mask, prompts, strict=True):
            own, at = lists[prompt == "c d"], counts.nonzero()[:, 0]
            # The first turn has up to three tokens.
            assert torch.equal(advantage, torch.where(torch.arange(len(counts)) < 3, own[0], own[1]) * counts)
            found.add((prompt, bool((at >= 3).any())))
    assert found >= {("a b", True), ("c d", True)} and {has_two for _, has_two in found} == {True, False}


class Room:
    """An environment of TRL with a number for each turn."""

    def reset(self, **_):
        self.turn_scores = [1.0, 2.0]
        return None

    def look(self) -> str:
        """Looks."""
        return "a"

    def get_reward(self):
        return 1.0


def test_attributes_of_environments_are_columns(tmp_path, script):
    path = script("fn advantage(batch, p) { batch.turn_scores + 0 * batch.reward }")
    run = trainer(tmp_path, path, max_steps=1, reward_funcs=(many_a,), recipe_columns=["turn_scores"])
    run.environments = [Room() for _ in range(8)]
    [room.reset() for room in run.environments]
    theirs = run._calculate_rewards
    run._calculate_rewards = lambda inputs, *more: theirs(inputs, *more)
    seen = watched(run)
    run.train()
    output = seen[0][0]
    # One turn, whose number is the first.
    assert torch.equal(output["advantages"], output["completion_mask"].float())


def test_a_masked_completion_is_no_member_of_its_group(tmp_path):
    for kept in (False, True):
        run = trainer(
            tmp_path, "dr_grpo", max_steps=1, reward_funcs=(many_a,), mask_truncated_completions=True, recipe_keep_rejected=kept,
            max_completion_length=3,
        )  # fmt: skip
        seen = watched(run)
        run.train()
        output, rewards = seen[0]
        counts = output["completion_mask"].any(1).view(-1, 4)
        assert 0 < counts.sum() < 8
        rewards = rewards[:, 0].view(-1, 4)
        members = torch.ones_like(rewards) if kept else counts
        expected = rewards - (rewards * members).sum(1, keepdim=True) / members.sum(1, keepdim=True).clamp(min=1)
        assert torch.allclose(output["advantages"].view(-1, 4), expected * members, atol=1e-6)


def many_b(completions, **_):
    return [float(text.count("b")) for text in completions]


def test_a_token_recipe_is_spread_by_its_mask(tmp_path, script):
    path = script("fn advantage(batch, p) { batch.old_logp * 0 + batch.reward }")
    run = trainer(tmp_path, path, max_steps=2, num_iterations=2, reward_funcs=(many_a,))
    seen = watched(run)
    run.train()
    output, rewards = seen[0]
    assert torch.allclose(output["advantages"], rewards.nansum(1)[:, None] * output["completion_mask"])


def test_a_teachers_term_is_mixed_in(tmp_path, script):
    """The recipe and the trainer of docs/mixing.md; each log-prob by hand from a response without padding."""
    exec(documented("python", "class MixedTrainer"), own := {})
    teacher = model(1)
    cls = functools.partial(own["MixedTrainer"], teacher=teacher)
    path = script(documented("rhai", "opd::advantage"))
    settings = {"recipe_params": {"teacher": 0.25}, "reward_funcs": (many_a,), "temperature": 0.7, "learning_rate": 0.0, "bf16": False}
    run = trainer(tmp_path, path, cls, max_steps=2, **settings)
    seen = watched(run)
    run.train()

    assert len(seen) == 2
    for output, rewards in seen:
        by_group = rewards[:, 0].view(-1, 4)
        grpo = ((by_group - by_group.mean(1, keepdim=True)) / (by_group.std(1, keepdim=True) + 1e-6)).view(-1)
        assert grpo.abs().sum() > 0
        for row, counts in enumerate(output["completion_mask"].bool()):
            texts = output["prompt_ids"][row][output["prompt_mask"][row].bool()], output["completion_ids"][row][counts]
            gain = logps(teacher, *texts, 0.7) - logps(model(), *texts, 0.7)
            assert torch.allclose(output["advantages"][row][counts], 0.75 * grpo[row] + 0.25 * gain, atol=1e-5)
            assert (output["advantages"][row][~counts] == 0).all()
    logged = [row for row in run.state.log_history if "loss" in row]
    assert all(row["advlab/std_teacher"] > 0 for row in logged)


def named(name):
    def score(completions, **_):
        return [0.0] * len(completions)

    score.__name__ = name
    return score


def needs(column):
    return f'fn advantage(batch, p) {{ batch.{column}.mean("response") }}'


RLOO = {"cls": RLOOTrainer, "config": RLOOConfig}
TWO_OF_ONE_NAME = (named("is-right"), named("is.right"))
BY_TOKEN = "fn advantage(batch, p) { batch.token_reward.suffix_sum(1.0) }"


@pytest.mark.parametrize(
    ("recipe", "settings", "words"),
    [
        (needs("old_logp"), {}, "num_iterations=2"),
        (needs("ref_logp"), {}, "`beta`"),
        (needs("teacher_logp"), {}, "teacher_per_token_logps"),
        ("grppo", {}, "grpo"),
        ("rloo", RLOO, "`beta=.*GRPOTrainer"),
        ("rloo", {**RLOO, "beta": 0.0, "reward_clip_range": (-1.0, 1.0)}, "`reward_clip_range=.*clamp"),
        ("rloo", {**RLOO, "beta": 0.0, "normalize_advantages": True}, "`normalize_advantages=.*whiten"),
        (needs("old_logp"), {**RLOO, "beta": 0.0}, "RLOOTrainer has no log-probs"),
        (BY_TOKEN, {**RLOO, "beta": 0.0}, "GRPOTrainer"),
        ("grpo", {"scale_rewards": "none"}, "`scale_rewards=none`.*dr_grpo"),
        ("grpo", {"multi_objective_aggregation": "normalize_then_sum"}, "`multi_objective_aggregation=.*reward_<name>"),
        ("grpo", {"reward_funcs": TWO_OF_ONE_NAME}, "would be the column `reward_is_right`"),
    ],
)
def test_what_trl_lacks_or_would_ignore_is_an_error_with_its_option(tmp_path, script, recipe, settings, words):
    with pytest.raises(ValueError, match=words):
        trainer(tmp_path, script(recipe) if recipe.startswith("fn") else recipe, **settings).train()


def test_completions_that_nobody_scores_are_left_out(tmp_path, script):
    def sometimes(completions, **_):
        return [None if row % 4 == 0 else float(row % 4) for row in range(len(completions))]

    run = trainer(tmp_path, "dr_grpo", reward_funcs=(sometimes,), max_steps=1)
    seen = watched(run)
    run.train()
    assert seen[0][0]["advantages"].tolist() == [0, -1, 0, 1] * 2


def test_an_evaluation_leaves_the_state_alone(tmp_path, script):
    path = script('fn init(p) { #{ n: 0 } } fn advantage(batch, p) { this.n += 1; metric("n", this.n); batch.reward }')
    run = trainer(tmp_path, path, eval_strategy="steps", eval_steps=2, num_generations_eval=2, per_device_eval_batch_size=4)
    run.train()
    assert run.advlab.state_dict()["state"] == {"n": 4}
    assert any("eval_advlab/n" in row for row in run.state.log_history)


def test_a_checkpoint_without_the_recipes_state_is_told(tmp_path, caplog):
    trainer(tmp_path, "dr_grpo", max_steps=2, save_strategy="steps", save_steps=2).train()
    (tmp_path / "checkpoint-2/advlab.json").unlink()
    trainer(tmp_path, "dr_grpo", max_steps=3).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert "no state of" in caplog.text


def test_rloo_takes_one_value_a_response(tmp_path, script):
    run = trainer(tmp_path, "rloo", RLOOTrainer, RLOOConfig, max_steps=2, beta=0.0)
    seen = watched(run)
    run.train()
    rewards = seen[0][1].nansum(1).view(-1, 4)
    others = (rewards.sum(1, keepdim=True) - rewards) / 3
    assert torch.allclose(seen[0][0]["advantages"], (rewards - others).view(-1), atol=1e-5)
