"""verl's advantage estimators that run recipes."""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .. import _arrays
from .._recipe import LiveRecipe, load
from .._trainers import (
    ONLY_A_LOSS, RULE, Trainer, column_name, explain_zero, held, keeps_rejected, kind_of, kinds_of, leave_out, metrics, of_data_set,
    on_cpu, plain, refusals, row_sums, sees_turns, setting, warn_of_unknown_loss, warn_once, weighted, with_its_rows, _kinds,
)  # fmt: skip
from .caller import ALWAYS, COLUMNS, Caller, read_columns
from .loss import follows_advantage

VERL = Trainer(
    "verl",
    {
        "old_logp": "verl has no old log-probs here: the estimator is called outside of a trainer, or the trainer computes them "
        "only after the advantage",
        "ref_logp": "`algorithm.use_kl_in_reward=True` or `actor_rollout_ref.actor.use_kl_loss=True` adds the reference policy, which gives this column",
        "value": "`critic.enable=True` adds a critic, which gives this column",
        "rollout_logp": "`actor_rollout_ref.rollout.calculate_log_probs=True` keeps the sampler's log-probs",
        "entropy": "the default trainer computes entropies unless `algorithm.rollout_correction.bypass_mode=True`",
        "reward_baseline": "verl's trainers sample a baseline only for their own estimator `remax`",
        "teacher_logp": "`distillation.enabled=True` with a `loss_mode` without top-k adds a teacher, which gives this column (docs/mixing.md)",
        "sum_pi_squared": "verl computes it with `+actor_rollout_ref.actor.calculate_sum_pi_squared=True` and `trainer.use_v1=False`",
    },
    COLUMNS,
    "if `{0}` is a field of verl's batch, or of an agent loop's `extra_fields`, `+algorithm.advlab.columns=[{0}]` makes it a column",
)

NO_COLUMNS = {"token_level_rewards", "rm_scores", "response_mask", "advantages", "returns"}
"""The tensors of verl's batch that become no column, because another column has their values or the estimator computes them."""

SETTINGS = {"recipe", "params", "folder", "keep_batches", "columns", "keep_rejected"}  # The settings below `algorithm.advlab`.

ACTOR = "actor_rollout_ref.actor"

MEANS = {
    "token-mean": "tokens",
    "token-sum": "sum",
    **dict.fromkeys(("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"), "responses"),
}
"""The unit over which each `loss_agg_mode` of verl averages, as `weighted` names it. Each of the three `seq-mean` modes divides
the sum of a response by a number that weights do not change, and then averages over responses."""

OVER_RESPONSES = ("sapo", "geo_mean")  # The losses that ignore `loss_agg_mode`, and average over responses.

PROPORTIONAL = (None, "vanilla", "gspo", "sapo", "gpg", "geo_mean", "cispo", "bypass_mode", "advlab")
"""The losses of verl that are proportional to the advantage. The `dppo_...` losses are, too; `advlab` is proportional only if the
loss of its recipe is."""

NOT_PROPORTIONAL = ("clip_cov", "kl_cov", "dro")
"""The losses that are not proportional to the advantage: they select tokens by the advantage, or have a term without it."""

SHARED = (
    "response",
    "all rows of a session share the advantage of the session's last row: give each response one value, or name the level `trajectory`",
)
"""The `one_per` for sessions whose rows share one advantage, because the recipe does not take each row as a turn."""


@with_its_rows
def estimate(
    token_level_rewards: Any,
    response_mask: Any,
    config: Any = None,
    index: Any = None,
    *,
    recipe: str | None = None,
    **others: Any,
) -> tuple[Any, Any]:
    """Computes advantages and returns as verl's advantage estimators do: float32 [B, T], 0 where the mask is 0.

    The advantages include the recipe's weights (`weighted`). With a critic, the returns are the critic's targets: the result of
    the recipe's hook `returns` or, without this hook, the discounted reward-to-go. Without a critic, the returns are the recipe's
    advantages.
    """
    caller = Caller.of(token_level_rewards, others.pop("batch", None), others.pop("non_tensor_batch", None))
    live, kept = _open(recipe, config, caller)
    _refuse_what_would_be_wrong(live, config)
    rewards, mask = on_cpu(token_level_rewards), on_cpu(response_mask)
    if index is None:
        raise ValueError("verl passes no `uid` of the prompts, so advlab cannot tell which responses belong together")
    index, turns = np.asarray(index, dtype=object).tolist(), sees_turns(live)
    rows = Rows(index, mask, rewards, caller.keys, turns, keeps_rejected(kept.get("keep_rejected")))
    reads, are_all = live._columns()
    asked = _asked(caller, kept.get("columns") or [])
    is_read = lambda name: not are_all or name in reads or name in ALWAYS
    tensors = caller.tensors(is_read, [*asked])
    caller.follow(live, is_first=live not in _kinds)
    columns = _columns({**tensors, **others, **asked}, rewards, rows, [*asked], kinds_of(live))
    columns = {**of_data_set(_named(caller, reads, is_read, rows), kinds_of(live)), **columns}
    if turns:
        columns = {**rows.turns(columns["token_reward"]), **columns}
        if "token" in str(setting(config, "rollout_correction.rollout_rs")):
            warn_once("`rollout_rs` rejects tokens, which become holes of the mask; the recipe sees the tokens between two holes as a turn")
    groups = index if rows.is_whole else [index[row] for row in rows.chosen]
    columns = {**columns, "groups": groups, "mask": rows.select(mask), "step": caller.step}
    adapter = replace(VERL, one_per=SHARED if rows.is_shared else None)
    out = adapter.advantage(live, columns, (lambda: _mean(live, caller)) if turns else "", True, True, turns)
    if caller.metrics is not None:
        caller.metrics.update(metrics(out))
    advantage, returns = rows.spread(out.advantage, mask), rows.spread(out.returns, mask)
    if not turns and (out.weight is not None or out.loss is not None):
        # A loss takes its mean over all rows, including rows that share an advantage.
        weight = None if out.weight is None else rows.spread_responses(out.weight)
        advantage = weighted(replace(out, advantage=advantage, weight=weight), mask, _mean(live, caller))
    explain_zero(advantage, mask, MEANS.get(caller.setting(f"{ACTOR}.loss_agg_mode"), "tokens"))
    return advantage, returns


def _asked(caller: Caller, names: list[str]) -> dict[str, Any]:
    """Returns the fields that `algorithm.advlab.columns` names, from verl's batch, its `non_tensor_batch`, or the default
    trainer's queue."""
    found = {}
    for name in names:
        value = held(caller.others, name)
        value = held(caller.batch, name) if value is None else value
        value = caller.field(name) if value is None else value
        if value is None:
            there = {*(caller.batch.keys() if caller.batch is not None else ()), *caller.others.keys(), *caller.fields}
            there |= {name for fields in caller.extra() for name in fields}
            raise ValueError(
                f"`algorithm.advlab.columns` names `{name}`, but verl has no such field; verl has {', '.join(sorted(there))}"
            )
        found[name] = value
    return found


def _named(caller: Caller, reads: list[str], is_read: Callable[[str], bool], rows: "Rows") -> dict[str, list[Any]]:
    """Returns the columns of `non_tensor_batch`, and the reward function's values other than the score, as `reward_<name>`."""
    names = lambda name: [column_name(name), *[column_name(f"reward_{name}")] * (name in caller.scored)]
    others = read_columns(caller.others, lambda name: any(map(is_read, names(name))))
    named = {name: np.asarray(values, dtype=object) for name, values in others.items()}
    named.update({f"reward_{name}": named[name] for name in caller.scored if name in named})
    if any(name.startswith("reward_") for name in reads):
        parts = [row.get("reward_extra_info") or {} for row in caller.extra()]
        for name in dict.fromkeys(name for part in parts for name in part):
            values = np.empty(len(parts), dtype=object)
            values[:] = [part.get(name) for part in parts]
            named[f"reward_{name}"] = values
    return {name: [plain(value) for value in values[rows.chosen]] for name, values in named.items()}


def _columns(
    tensors: Mapping[str, Any], rewards: Any, rows: "Rows", asked: list[str], kinds: dict[str, str] | None = None
) -> dict[str, Any]:
    """Returns the columns of the chosen rows: verl's tensors with one number per response, or one floating-point number per
    token. Fields that are `asked` for may also have one integer per token, or be lists or tensors of one value per turn."""
    token_reward = rows.select(rewards)
    columns, others = {"token_reward": token_reward, "reward": row_sums(token_reward)}, []
    for name, value in tensors.items():
        is_numbers = _arrays.is_tensor(value) and not value.is_nested
        if name in asked and not (is_numbers and value.shape in (rewards.shape[:1], rewards.shape)):
            values = [plain(on_cpu(one)) for one in value]
            found = of_data_set({name: [values[row] for row in rows.chosen]}, kinds)
            if not found and len(rows.chosen):
                has = ", ".join(sorted({kind_of(one) for one in values if one is not None})) or "nothing"
                raise ValueError(f"`algorithm.advlab.columns` names `{name}`, a field of {has}, but {RULE}, or numbers for each token")
            columns.update(found)
        elif not is_numbers or name in NO_COLUMNS or value.data_ptr() == rewards.data_ptr():
            continue
        elif value.shape == rewards.shape and not value.is_floating_point() and name not in asked:
            others.append(name)
        elif value.shape in (rewards.shape[:1], rewards.shape):
            columns.setdefault(VERL.columns.get(name) or column_name(name), rows.select(on_cpu(value)))
    # `responses` and `loss_mask` are verl's token ids and mask.
    others = sorted({*others} - {"responses", "loss_mask"})
    rule = f"integers are taken for token ids; `+algorithm.advlab.columns=[{','.join(others)}]` makes columns of them"
    leave_out(dict.fromkeys(others, "integers [B, T]"), rule)
    return columns


def _open(name: str | None, config: Any, caller: Caller) -> tuple[LiveRecipe, dict[str, Any]]:
    """Opens the live recipe; returns it with the settings `algorithm.advlab`."""
    from omegaconf import DictConfig, OmegaConf

    settings = setting(config, "advlab")
    settings = OmegaConf.to_container(settings, resolve=True) if isinstance(settings, DictConfig) else settings or {}
    if not isinstance(settings, dict) or not isinstance(settings.get("params") or {}, dict):
        raise ValueError(
            f"`algorithm.advlab` is {settings!r}: write `+algorithm.advlab.recipe=mine.rhai +algorithm.advlab.params.k=4`"
        )
    if unknown := settings.keys() - SETTINGS:
        raise ValueError(f"`algorithm.advlab` has {sorted(unknown)}, but its settings are {', '.join(sorted(SETTINGS))}")
    recipe = name or settings.get("recipe") or os.environ.get("ADVLAB_RECIPE")
    if not recipe:
        raise ValueError("the estimator `advlab` needs a recipe: `+algorithm.advlab.recipe=mine.rhai`")
    loss, mode, why = caller.setting(f"{ACTOR}.policy_loss.loss_mode"), caller.setting(f"{ACTOR}.loss_agg_mode"), None
    if loss in NOT_PROPORTIONAL or loss == "advlab" and not follows_advantage(caller.setting(f"{ACTOR}.policy_loss.advlab")):
        why = f"`{ACTOR}.policy_loss.loss_mode={loss}` is not proportional to the advantages, which the weights multiply"
    refuses = refusals("tokens" if loss not in OVER_RESPONSES and mode in (None, "token-mean") else "another", why)
    kept = {name: settings[name] for name in ("folder", "keep_batches") if name in settings}
    theirs = {"gamma": setting(config, "gamma"), "lambda": setting(config, "lam")}
    return VERL.open(recipe, settings.get("params") or {}, theirs, **kept, _refuses=refuses), settings


def _refuse_what_would_be_wrong(live: LiveRecipe, config: Any) -> None:
    weight = "coef" if live.name == "kl_advantage" else "kl_beta"
    if setting(config, "use_kl_in_reward") and live.params.get(weight):
        raise ValueError(
            f"{live.name} subtracts a KL itself ({weight} {live.params[weight]}), but `algorithm.use_kl_in_reward` has "
            f"already subtracted one from the reward: set `+algorithm.advlab.params.{weight}=0`, or `algorithm.use_kl_in_reward=False`"
        )
    if live.name == "grpo" and setting(config, "norm_adv_by_std_in_grpo") is False:
        raise ValueError(
            "`algorithm.norm_adv_by_std_in_grpo=False` is the recipe dr_grpo: write `algorithm.adv_estimator=advlab/dr_grpo`"
        )


def _mean(live: LiveRecipe, caller: Caller) -> str:
    """Returns the unit over which verl's loss averages: `tokens`, `responses` or `sum`."""
    mode, loss = caller.setting(f"{ACTOR}.loss_agg_mode"), caller.setting(f"{ACTOR}.policy_loss.loss_mode")
    if loss not in PROPORTIONAL and not str(loss).startswith("dppo_"):
        warn_of_unknown_loss(live, f"{ACTOR}.policy_loss.loss_mode={loss}")
    if mode is None:
        told = f"{live.name} has weights or a loss, and the trainer's `{ACTOR}.loss_agg_mode` was not found"
        warn_once(f"{told}: advlab assumes `token-mean`")
        return "tokens"
    if mode not in MEANS and loss not in OVER_RESPONSES:
        modes = f"weights can be scaled only with {', '.join(MEANS)}"
        raise ValueError(f"`{ACTOR}.loss_agg_mode={mode}`: {modes}")
    return "responses" if loss in OVER_RESPONSES else MEANS[mode]


class Rows:
    """The rows of verl's batch on which the recipe computes, and for each row of the batch, the row whose values it gets. Padding
    rows get no values, nor do rejected rows unless they are kept. All other rows of a session with several trajectories get the
    values of the session's last row, unless the recipe sees turns; in that case, each row is one turn or several turns."""

    def __init__(
        self, index: list[Any], mask: Any, rewards: Any, keys: list[str] | None, turns: bool, keep_rejected: bool
    ) -> None:
        has_tokens = (mask != 0).any(-1).numpy()
        fillers = [uid for uid in set(index) if str(uid).startswith("pad")]
        # The default trainer pads batches with rows that have no token, which are not responses.
        is_row = has_tokens | ~(np.isin(index, fillers) & (rewards == 0).all(-1).numpy())
        if not keep_rejected:
            is_row = has_tokens
        rows = source = np.flatnonzero(is_row)
        # Keys have the form `{uid}_{session}_{turn}`. If no turns are seen, only the last trajectory of a session counts.
        sessions, numbers = zip(*(key.rpartition("_")[::2] for key in keys)) if keys else ((), ())
        self.sessions: tuple[str, ...] = ()
        if all(number.isdigit() for number in numbers) and sessions:
            self.sessions, self.numbers = sessions, np.array([int(number) for number in numbers])
            self.last = {sessions[row]: row for row in sorted(rows, key=lambda row: self.numbers[row])}
            if not turns:
                source = np.array([self.last[sessions[row]] for row in rows], dtype=int)
        self.chosen = np.unique(source)  # The indices of the rows on which the recipe computes.
        self.source = np.full(len(mask), -1)
        """For each row, the index in `chosen` of the row whose values it gets; -1 for a row that gets no values."""
        self.source[rows] = np.searchsorted(self.chosen, source)
        self.is_whole = len(self.chosen) == len(self.source)
        self.is_shared = len(self.chosen) < len(rows)  # Whether a row gets the values of another row.

    def turns(self, token_reward: Any) -> dict[str, Any]:
        """Returns columns that say which rows belong to one session. verl copies the score of a session to each of its rows;
        here, only the last row has the score."""
        if not self.sessions:
            return {}
        sessions = [self.sessions[row] for row in self.chosen]
        is_last = [self.last[session] == row for session, row in zip(sessions, self.chosen, strict=True)]
        scores = token_reward * torch.tensor(is_last)[:, None]
        return {"trajectory": sessions, "turn": self.numbers[self.chosen], "step_reward": scores}

    def select(self, tensor: Any) -> Any:
        """Returns the chosen rows of a tensor."""
        return tensor if self.is_whole else tensor[torch.from_numpy(self.chosen)]

    def spread(self, values: Any, mask: Any) -> Any:
        """Returns the values of all rows, [B, T]: 0 for a row that gets no values (see `source`); every trajectory of a session
        has the value of the session's last trajectory, unless the recipe sees turns."""
        if self.is_whole:
            return values
        chosen, whole = torch.from_numpy(self.chosen), torch.zeros(mask.shape, dtype=values.dtype)
        if self.is_shared:
            # This is the value of the first token that counts.
            first = values[torch.arange(len(values)), (mask[chosen] != 0).int().argmax(1)]
            whole = self.spread_responses(first).unsqueeze(-1) * (mask != 0)
        whole[chosen] = values
        return whole

    def spread_responses(self, values: Any) -> Any:
        """Does the same as `spread`, for one value per response, [B]."""
        return torch.cat([values, values.new_zeros(1)])[torch.from_numpy(self.source)]


class Estimators(dict[str, Any]):
    """verl's registry of estimators, with each built-in as `advlab/<name>`; a built-in is loaded when it is looked up."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and name.startswith("advlab/"))

    def __missing__(self, name: str) -> Any:
        """Raises `RecipeError`, with the nearest name, for a name that is not a built-in's, and ValueError for a loss on an
        advantage."""
        if not name.startswith("advlab/"):
            raise KeyError(name)
        recipe = load(name.removeprefix("advlab/"))
        if "advantage" not in recipe.hooks and recipe._reads(["advantage"]):
            raise ValueError(f"`{name}` is not an advantage estimator: {ONLY_A_LOSS}")
        estimator: Any = functools.partial(estimate, recipe=recipe.name)
        estimator.__name__ = f"advlab_{recipe.name}"
        return self.setdefault(name, estimator)
