"""Tinker: a recipe's advantage in the cookbook's loops, and a recipe's loss for `forward_backward_custom`.

    import advlab.tinker
    advlab.tinker.patch()       # before tinker_cookbook.rl.train.main(config); then ADVLAB_RECIPE=mine.rhai

In a loop of your own the recipe is an argument:

    recipe = advlab.watch("mine.rhai")
    advantages = advlab.tinker.compute_advantages(groups, recipe)
    data, metadata = advlab.tinker.assemble_training_data(groups, advantages)
    training_client.forward_backward_custom(data, advlab.tinker.loss(recipe))
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ._batch import Call
from ._outcome import Advantage, RecipeError
from ._recipe import LiveRecipe, Recipe, log
from ._torch import scalar
from ._trainers import (
    Trainer, callers, is_proportional, kinds_of, metrics, of_rows, put_in_place, report, sees_turns, setting, warn_of_unknown_loss,
    warn_once, with_its_rows,
)  # fmt: skip

TINKER = Trainer(
    "Tinker",
    {
        "old_logp": "an action has no log-probs, because its completer leaves `maybe_logprobs` out",
        "state": "an environment gives `state` in a step's `logs` (a string) or `metrics` (a number)",
    },
    lacks={
        "rollout_logp": "the sampler's log-probs are the column `old_logp`",
        "ref_logp": "the cookbook adds its KL to the advantages itself, with `kl_penalty_coef`",
        "value": "Tinker has no critic",
        "entropy": "Tinker returns only the log-probs of the sampled tokens",
    },
)

INPUTS = {"mask": "mask", "logprobs": "old_logp", "advantages": "advantage"}  # The loss inputs of a datum, and their columns.

PROPORTIONAL = (None, "importance_sampling", "ppo", "cispo", "gspo")  # Tinker's losses that are proportional to the advantage.


def compute_advantages(
    trajectory_groups_P: list[Any], recipe: Recipe | LiveRecipe | None = None, *, step: int | None = None
) -> list[Any]:
    """Replaces the cookbook's function of this name, and uses a recipe. The result has, for each group, a tensor [G] with a value
    per trajectory.

    Each trajectory is a row, and `turn` and `token_reward` are columns of its tokens. If the recipe names `trajectory`, each turn
    is a row, with the columns `trajectory`, `turn` and `step_reward`. For such a recipe, and for a recipe that gives an advantage
    per token, the result has for each group a list of G tensors with a value per sampled token. Without `recipe`, ADVLAB_RECIPE
    names the recipe. `step` is `batch.step`; without `step`, the steps of a live recipe are counted.
    """
    if not any(group.trajectories_G for group in trajectory_groups_P):
        return [torch.zeros(0) for _ in trajectory_groups_P]
    return _step(recipe or TINKER.open_from_environment("sum"), trajectory_groups_P, step)[0]


def assemble_training_data(
    trajectory_groups_P: list[Any], advantages_P: list[Any], **settings: Any
) -> tuple[list[Any], list[dict[str, int]]]:
    """Replaces the cookbook's function of this name, and also takes advantages per token."""
    from tinker import TensorData
    from tinker_cookbook.rl.data_processing import trajectory_to_data

    data, metadata = [], []
    for index, (group, advantages) in enumerate(zip(trajectory_groups_P, advantages_P, strict=True)):
        for place, (trajectory, advantage) in enumerate(zip(group.trajectories_G, advantages, strict=True)):
            is_one = advantage.ndim == 0
            made = trajectory_to_data(trajectory, float(advantage) if is_one else 1.0, **settings)
            # The advantages are passed in place of log-probs, so that the cookbook itself decides where each token's value is
            # put.
            carriers = [] if is_one else trajectory_to_data(_carrying(trajectory, advantage), 1.0, **settings)
            for datum, carrier in zip(made, carriers):
                values = carrier.loss_fn_inputs["logprobs"].to_torch() * datum.loss_fn_inputs["mask"].to_torch()
                datum.loss_fn_inputs["advantages"] = TensorData.from_torch(values)
            data += made
            metadata += [{"group_idx": index, "traj_idx": place} for _ in made]
    return data, metadata


def loss(recipe: Recipe | LiveRecipe, **columns: Any) -> Callable[[list[Any], list[Any]], tuple[Any, dict[str, float]]]:
    """Returns a function for `TrainingClient.forward_backward_custom`: the recipe's loss with its gradient and metrics.

    The data are those of `assemble_training_data`, with their `mask`. `columns` have a value per datum, among them `groups` for a
    loss that looks at groups: `groups=[one["group_idx"] for one in metadata]`. If a live recipe has an `advantage`, the version
    of its last step computes the loss; if not, each call is a step, with the newest version.
    """

    def of_data(data: list[Any], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
        if not all("mask" in datum.loss_fn_inputs for datum in data):
            raise ValueError("the data have no `mask` of the tokens that count: pass the data that `assemble_training_data` returns")
        given = {"logp": pad_sequence(logprobs, batch_first=True), **columns}
        for theirs, ours in INPUTS.items():
            found = [datum.loss_fn_inputs[theirs].to_torch() for datum in data if theirs in datum.loss_fn_inputs]
            if len(found) == len(data):
                given[ours] = pad_sequence(found, batch_first=True)
        # These are the hooks of the version of the last step, because a newer version may have been published since.
        hooks = {*recipe._frozen().hooks}
        if isinstance(recipe, LiveRecipe) and "advantage" not in hooks:
            return _step_of_loss(recipe, given)
        if {"weight", "advantage"} <= hooks:
            # The advantages have been multiplied by the weights already.
            given.setdefault("weight", [1.0] * len(data))
            _warn_of_weights(recipe)
        out = recipe.loss(**given)
        report(recipe, out)
        return out.loss, metrics(out)

    return of_data


def _warn_of_weights(recipe: Recipe | LiveRecipe) -> None:
    """Warns, once per version, if its weights multiply the advantages but its loss is not proportional to the advantages."""
    if recipe._in_use() in _tried:
        return
    _tried.add(recipe._in_use())
    right, ones = np.array([1.0, 0.0]), np.ones(2)
    # A loss that needs other columns is not tried.
    with contextlib.suppress(RecipeError):
        if not is_proportional(recipe, groups=[0, 0], correct=right, reward=right, weight=ones):
            warn_once(
                f"{recipe.name} has weights, which multiply the advantages, but its loss is not proportional to the advantages: leave `weight` out"
            )


_tried: set[str] = set()  # The versions whose weights have been tried.


def _step_of_loss(live: LiveRecipe, given: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    """Runs a step of a recipe that has only a loss: its advantage is -M dloss/dlogp, where M is the number of tokens."""
    logp, tokens = given["logp"], max(1, int(given["mask"].count_nonzero()))
    if "groups" not in given:
        given = {**given, "groups": list(range(len(logp)))}
        live._refuse_without_groups(Call.of_columns(given).dimensions)
    out = TINKER.advantage(live, given, keep_rejected=True)
    value, _ = scalar(logp, out.loss or 0.0, out.advantage / -tokens)
    return value, metrics(out)


@with_its_rows
def _step(live: Recipe | LiveRecipe, groups: list[Any], step: int | None) -> tuple[list[Any], Advantage]:
    """Runs a step of the recipe; returns the advantages in the form of `compute_advantages`, and the step's outcome."""
    turns = sees_turns(live)
    rows, told = map(list, zip(*_rows(groups, turns)))
    columns = of_rows(told, kinds_of(live))
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        columns[name] = pad_sequence(values, batch_first=True) if isinstance(first, torch.Tensor) else values
    if torch.as_tensor(columns["old_logp"]).isnan().any():
        del columns["old_logp"]
    # Tokens are never rejected here, so an episode without tokens counts with its reward.
    out = TINKER.advantage(live, {**columns, "step": step}, "sum", turns, True, turns)
    return _by_group(groups, out, turns), out


def _rows(groups: list[Any], turns: bool) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields the columns of each row, and the logs and metrics of the row's environment; later values replace earlier ones."""
    number = -1
    for index, group in enumerate(groups):
        given = zip(group.trajectories_G, group.final_rewards_G, group.get_total_rewards(), group.metrics_G, strict=True)
        for trajectory, final, reward, of_group in given:
            every, number = trajectory.transitions, number + 1
            # A trajectory without turns is a row, too, because it is a member of its group.
            found = [[part] for part in every] if turns and every else [every]
            for turn, parts in enumerate(found):
                own = final if turn == len(found) - 1 else 0.0
                row = {"groups": index, "reward": reward, **_tokens(parts, own)}
                if turns:
                    # `reward` is the reward of the whole trajectory, as in the mazes of `advlab train`.
                    del row["token_reward"]
                    row.update(trajectory=number, turn=turn, step_reward=own + sum(part.reward for part in parts))
                row["truncated"] = bool(parts) and parts[-1].ac.stop_reason == "length"
                yield row, functools.reduce(lambda one, part: {**one, **part.logs, **part.metrics}, parts, {}) | of_group


def _tokens(parts: list[Any], final: float) -> dict[str, Any]:
    """Returns the columns of a row's tokens: only the tokens of the actions, one action after another."""
    from tinker_cookbook.rl.types import PARSE_ERROR_MASKED_METRIC_KEY

    found: dict[str, list[float]] = {"mask": [], "old_logp": [], "turn": [], "token_reward": []}
    last, owed = None, 0.0
    for turn, part in enumerate(parts):
        size, is_masked = len(part.ac.tokens), part.metrics.get(PARSE_ERROR_MASKED_METRIC_KEY, 0.0) >= 1
        logp = part.ac.maybe_logprobs or [math.nan] * size
        for column, values in zip(found.values(), ([not is_masked] * size, logp, [turn] * size, [0.0] * size)):
            column += values
        last = len(found["mask"]) - 1 if size and not is_masked else last
        # The reward of a masked turn is added to the turn before it or, if there is none, to the next turn, so that the sum stays
        # the total.
        owed += part.reward + (final if turn == len(parts) - 1 else 0.0)
        if last is not None:
            found["token_reward"][last] += owed
            owed = 0.0
    return {name: torch.tensor(values, dtype=torch.float32) for name, values in found.items()}


def _by_group(groups: list[Any], out: Advantage, turns: bool) -> list[Any]:
    """Returns the advantages of rows by group and trajectory."""
    if out.level == "response" and not turns:
        return list(out.advantage.float().split([len(group.trajectories_G) for group in groups]))
    rows = iter(out.advantage.float())
    found: list[list[Any]] = []
    for group in groups:
        found.append([])
        for trajectory in group.trajectories_G:
            every = [len(part.ac.tokens) for part in trajectory.transitions]
            sizes = every if turns and every else [sum(every)]
            parts = [row[:size] for row, size in zip(islice(rows, len(sizes)), sizes)]
            found[-1].append(torch.cat([torch.zeros(0), *parts]))
    return found


def _carrying(trajectory: Any, advantage: torch.Tensor) -> Any:
    """Returns the trajectory with the advantages of its tokens in place of their log-probs."""
    parts = advantage.split([len(part.ac.tokens) for part in trajectory.transitions])
    given = zip(trajectory.transitions, parts, strict=True)
    actions = [replace(one, ac=replace(one.ac, maybe_logprobs=values.tolist())) for one, values in given]
    return replace(trajectory, transitions=actions)


class _Loop:
    """The cookbook's loops with a recipe. Values that the loops do not pass are found in the frames of the callers."""

    def __init__(self) -> None:
        self.live: LiveRecipe | None = None
        self.left: dict[str, Any] | None = None  # The recipe's part of a checkpoint, until the recipe is opened.
        self.computed: tuple[Any, list[Any]] | None = None  # The groups of a step, and their advantages.

    def compute_advantages(self, trajectory_groups_P: list[Any]) -> list[Any]:
        """Runs a step, but only once for the groups of a minibatch, because the cookbook first calls this function for two of
        these groups, cut to four trajectories, to print them."""
        here: dict[str, Any] = {}
        for frame in callers():
            if frame.f_globals.get("__name__", "").startswith("tinker_cookbook."):
                here = {**frame.f_locals, **here}
        groups = here.get("trajectory_groups_P", trajectory_groups_P)
        if self.computed is None or self.computed[0] is not groups:
            live = self.open(here.get("config"))
            found, out = _step(live, groups, here.get("i_batch"))
            if isinstance(here.get("metrics"), dict):
                here["metrics"].update(metrics(out))
            self.computed = groups, found
        advantages = self.computed[1]
        if groups is trajectory_groups_P:
            self.computed = None
            return advantages
        of_each = {
            id(one): value
            for group, values in zip(groups, advantages)
            for one, value in zip(group.trajectories_G, values)
        }  # fmt: skip
        return [[of_each[id(one)] for one in group.trajectories_G] for group in trajectory_groups_P]

    def open(self, config: Any) -> LiveRecipe:
        of_run = getattr(config, "training_loss_fn", None)
        loss = of_run() if of_run else setting(config, "loss_fn")
        why = "the loss of `loss_fn=dro` is not proportional to the advantage, which the weights multiply" if loss == "dro" else None
        live = TINKER.open_from_environment("sum", why)
        if self.live is not live and self.left is not None:
            live.load_state_dict(self.left)
        self.live, self.left = live, None
        if "weight" in live.hooks and loss not in PROPORTIONAL:
            warn_of_unknown_loss(live, f"loss_fn={loss}")
        return live

    def state(self) -> dict[str, Any]:
        """Returns the recipe's entry for a checkpoint."""
        left = self.left if self.live is None else self.live.state_dict()
        return {} if left is None else {"advlab": left}

    def resume(self, checkpoint: Any) -> None:
        self.left = checkpoint.extra.get("advlab")
        if self.left is None:
            log.warning("the checkpoint %s has no state of the recipe, so the recipe begins with the state of `init`", checkpoint.name)


def patch() -> None:
    """Replaces the cookbook's advantages by the advantages of ADVLAB_RECIPE, in the cookbook's loops of this process. The
    checkpoints of `tinker_cookbook.rl.train` keep the state of the recipe."""
    from tinker_cookbook import checkpoint_utils
    from tinker_cookbook.rl import data_processing, train

    if data_processing.assemble_training_data is assemble_training_data:
        return
    loop, last, state = _Loop(), checkpoint_utils.get_last_checkpoint, train._loop_state

    @functools.wraps(last)
    def get_last_checkpoint(*args: Any, **kwargs: Any) -> Any:
        found = last(*args, **kwargs)
        if found is not None:
            loop.resume(found)
        return found

    @functools.wraps(state)
    def loop_state(*args: Any, **kwargs: Any) -> Any:
        return {**state(*args, **kwargs), **loop.state()}

    for theirs, ours in (
        (data_processing.compute_advantages, loop.compute_advantages),
        (data_processing.assemble_training_data, assemble_training_data),
        (last, get_last_checkpoint),
        (state, loop_state),
    ):
        put_in_place("tinker_cookbook", theirs, ours)
