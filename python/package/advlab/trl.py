"""TRL: GRPOTrainer and RLOOTrainer with the advantage of a recipe, for TRL 1.16.

    from advlab.trl import GRPOTrainer
    trainer = GRPOTrainer(recipe="mine.rhai", recipe_params={"k": 4}, model=..., reward_funcs=[...], args=..., train_dataset=...)

For a subclass of your own: `class Mine(GRPOMixin, MyTrainer)`. A saved edit that has passed its checks is used at the next
generation. `trainer.advlab` is the live recipe on the main process, which computes the advantages of all processes.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather, gather_object, pad_across_processes
from datasets import Value
from trl import GRPOConfig, RLOOConfig
from trl import GRPOTrainer as _GRPOTrainer
from trl import RLOOTrainer as _RLOOTrainer

from ._recipe import LiveRecipe, watch
from ._trainers import (
    FITS, OF_LOGP, Trainer, Unfit, announce, column_name, kind_of, metrics, of_rows, on_cpu, pick, plain, refusals, resume, save,
)  # fmt: skip

TRL = Trainer(
    "TRL",
    {
        "old_logp": "TRL computes old log-probs only if `gradient_accumulation_steps` is not a multiple of `steps_per_generation * "
        "num_iterations`: set `num_iterations=2`, or a larger `steps_per_generation`",
        "ref_logp": "`beta` above 0 adds the reference policy, which gives this column",
        "rollout_logp": "`use_vllm=True` keeps the sampler's log-probs",
        "teacher_logp": "TRL runs no teacher: a subclass with `GRPOMixin` adds `teacher_per_token_logps` to what "
        "`_generate_and_score_completions` returns (docs/mixing.md)",
    },
    {
        "old_per_token_logps": "old_logp",
        "ref_per_token_logps": "ref_logp",
        "sampling_per_token_logps": "rollout_logp",
        "teacher_per_token_logps": "teacher_logp",
    },
    lacks={
        "value": "GRPOTrainer and RLOOTrainer have no critic",
        "entropy": "TRL does not compute entropies before the advantage",
    },
)
NO_LOGP = "RLOOTrainer has no log-probs of tokens: use GRPOTrainer"
NO_TOKENS = ("trajectory", "RLOOTrainer takes one value for each response: use GRPOTrainer")
TRL_RLOO = Trainer("TRL", lacks={**TRL.lacks, **dict.fromkeys((*OF_LOGP, "teacher_logp"), NO_LOGP)}, one_per=NO_TOKENS)

WITHOUT_EFFECT = {
    GRPOConfig: (
        ("scale_rewards", "group", "leave it out; the recipe decides whether to divide by a deviation, as `grpo` does and `dr_grpo` does not"),
        ("multi_objective_aggregation", "sum_then_normalize", "leave it out; recipes read the rewards as `batch.reward_<name>`"),
    ),
    RLOOConfig: (
        ("beta", 0.0, "set beta to 0.0; for a KL, use GRPOTrainer, whose loss adds a KL with weight `beta`"),
        ("reward_clip_range", None, "set it to None; a recipe clips by `batch.reward.clamp(low, high)`"),
        ("normalize_advantages", False, 'set it to False; a recipe normalises by `whiten("batch")`'),
    ),
}
"""Settings that act only on TRL's own advantage, which the recipe's advantage replaces; each with the only value that is
accepted, and with what to do instead."""

MEANS = {
    **dict.fromkeys(("grpo", "sapo", "dr_grpo", "luspo"), "responses"),
    **dict.fromkeys(("dapo", "bnpo", "cispo", "vespo"), "tokens"),
}
"""The unit over which each `loss_type` of GRPOTrainer averages."""


def _refuse_what_has_no_effect(given: Any) -> None:
    for config, settings in WITHOUT_EFFECT.items():
        for option, value, instead in settings if isinstance(given, config) else ():
            if (found := getattr(given, option, value)) != value:
                why = "acts only on TRL's own advantage, which the recipe's advantage replaces"
                raise ValueError(f"`{option}={found}` {why}: {instead}")


class GRPOMixin:
    """The advantage of a recipe in a trainer with GRPOTrainer's methods.

    `recipe` is a built-in's name or a script's path, `recipe_params` sets its parameters, and `recipe_folder` keeps the run as
    `advlab.watch` does, with the last `recipe_batches` batches. `recipe_columns` names attributes of the rollouts' environments
    that become columns. With `recipe_keep_rejected`, a completion whose mask is empty, such as one that
    `mask_truncated_completions` masks, stays a member of its group. Columns are `reward`, the weighted sum that TRL computes,
    `reward_<name>` for each reward function (NaN if it returned None), `truncated` (whether the completion ends without an end
    token), the log-probs that TRL computes, and the data set's columns of numbers or strings, or of lists with a number or string
    for each turn; a column of strings is a key, such as `batch.key("agent")`. None becomes NaN in a column of numbers, and the
    empty string in a column of strings. A recipe that names the level `trajectory` sees a row for each turn, which is the text
    between two holes of the tools' mask. A completion that no function scored is left out and has the advantage 0.
    """

    advlab: LiveRecipe | None  # The live recipe; None on all processes but the main one.

    def __init__(
        self,
        *args: Any,
        recipe: str | os.PathLike[str],
        recipe_params: dict[str, Any] | None = None,
        recipe_folder: str | os.PathLike[str] | None = None,
        recipe_batches: int = 3,
        recipe_columns: Sequence[str] = (),
        recipe_keep_rejected: bool | None = None,
        **kwargs: Any,
    ):
        params = recipe_params or {}
        # A subclass of RLOOTrainer may add log-probs to a batch.
        refused = (TRL_RLOO if type(self) is RLOOTrainer else TRL).refused
        # A mistake is reported before a model is loaded, and on each process.
        watch(recipe, **refused, **params).close()
        for given in (*args, *kwargs.values()):
            _refuse_what_has_no_effect(given)
        super().__init__(*args, **kwargs)
        _refuse_what_has_no_effect(self.args)
        self._advlab_columns_of_rewards = [f"reward_{column_name(name)}" for name in self.reward_func_names]
        twice = [name for name, count in Counter(self._advlab_columns_of_rewards).items() if count > 1]
        if twice:
            raise ValueError(
                f"several of the reward functions {self.reward_func_names} would be the column `{twice[0]}`: "
                "give these functions different names (`__name__`)"
            )
        loss_type = getattr(self.args, "loss_type", "grpo")
        self._advlab_more, self._advlab_keep = list(recipe_columns), recipe_keep_rejected
        self._advlab_mean = MEANS.get(loss_type)
        why = None if self._advlab_mean else f"advlab does not know over what `loss_type={loss_type}` averages"
        refuses = refusals(self._advlab_mean or "tokens", why)
        self.advlab = None
        if self.accelerator.is_main_process:
            self.advlab = watch(recipe, folder=recipe_folder, keep_batches=recipe_batches, _refuses=refuses, **refused, **params)
            announce(self.advlab, {})
        features = getattr(self.train_dataset, "features", None) or {}
        is_text = {name: "string" in feature.dtype for name, feature in features.items() if isinstance(feature, Value)}
        self._advlab_kinds = {name: "strings" if text else "numbers" for name, text in is_text.items()}

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        self._advlab_rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        self._advlab_truncated = torch.tensor([not ids or ids[-1] not in ends for ids in completion_ids_list])
        return self._advlab_rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        mode = "train" if self.model.training else "eval"
        columns = self._advlab_columns(inputs, output)
        # The main process computes for all processes, so that there is one version and one state; an error ends all processes.
        answer: list[Any] = [None]
        failed: Exception | None = None
        if self.accelerator.is_main_process:
            try:
                answer = [self._advlab_compute(columns, mode)]
            except Exception as error:
                # The other processes wait for an answer. They get the error's text, because not every error can be sent.
                failed, answer = error, [f"{type(error).__name__} on the main process: {error}"]
        broadcast_object_list(answer)
        if isinstance(answer[0], str):
            raise failed or RuntimeError(answer[0])
        advantages, told = answer[0]
        local = len(output["advantages"])
        start = self.accelerator.process_index * local
        own = advantages[start : start + local].to(output["advantages"])
        # Each process pads to its longest completion.
        output["advantages"] = own if own.dim() == 1 else own[:, : output["completion_mask"].shape[1]]
        self._advlab_log(mode, advantages, told)
        return output

    def _advlab_columns(self, inputs: list[dict[str, Any]], output: dict[str, Any]) -> dict[str, Any]:
        """Returns the columns of all processes, on the CPU; every process must call this function."""
        mask = output["completion_mask"]
        if output.get("tool_mask") is not None:
            mask = mask * output["tool_mask"]
        columns = {ours: output[theirs] for theirs, ours in TRL.columns.items() if output.get(theirs) is not None}
        columns = {name: on_cpu(gather(pad_across_processes(value, dim=1))) for name, value in {**columns, "mask": mask}.items()}
        per_function = on_cpu(self._advlab_rewards)
        columns.update(zip(self._advlab_columns_of_rewards, per_function.T, strict=True))
        columns["reward"] = (per_function * on_cpu(self.reward_weights).to(per_function.dtype)).nansum(1)
        columns["truncated"] = on_cpu(gather(self._advlab_truncated.to(mask.device)))
        columns["is_scored"] = ~per_function.isnan().all(1)
        found = [dict(row) for row in inputs]
        for row, environment in zip(found, getattr(self, "environments", None) or (), strict=False):
            row.update({name: getattr(environment, name) for name in self._advlab_more if hasattr(environment, name)})
        found = [{name: plain(value) for name, value in row.items()} for row in found]
        # Values that fit in no column are not sent.
        is_sent = lambda value: value is None or kind_of(value) in (*FITS, "lists")
        sent = lambda value: value if is_sent(value) else Unfit(kind_of(value))
        rows = gather_object([{name: sent(value) for name, value in row.items()} for row in found])
        return {**of_rows(rows, self._advlab_kinds), **columns}

    def _advlab_compute(self, columns: dict[str, Any], mode: str) -> tuple[torch.Tensor, dict[str, float]]:
        """Returns the advantages of all processes, and the numbers to log."""
        is_scored = columns.pop("is_scored")
        if not is_scored.any():
            return torch.zeros(len(is_scored)), {}
        rows = is_scored.nonzero()[:, 0]
        if len(rows) < len(is_scored):
            columns = pick(columns, rows)
        is_rloo, live = isinstance(self, _RLOOTrainer), self.advlab
        columns["groups"] = rows // (self.num_generations if mode == "train" else self.num_generations_eval)
        columns["step"] = self.state.global_step
        # An evaluation uses a copy of the recipe, so that it does not change the state of the training.
        recipe: Any = live if mode == "train" or live is None else live._frozen()
        out = (TRL_RLOO if is_rloo else TRL).advantage(recipe, columns, self._advlab_mean or "tokens", False, self._advlab_keep)
        whole = torch.zeros((len(is_scored), *out.advantage.shape[1:]), dtype=torch.float32)
        whole[rows] = out.advantage.float()
        return whole, metrics(out, counts=mode == "train")

    def _advlab_log(self, mode: str, advantages: torch.Tensor, told: dict[str, float]) -> None:
        for name, value in told.items():
            self._metrics[mode][name].append(value)
        shown = advantages if advantages.dim() == 1 else advantages.sum(1) / (advantages != 0).sum(1).clamp(min=1)
        logged = self._logs["advantages"]
        for _ in range(min(len(shown), len(logged))):
            logged.pop()
        logged.extend(shown.tolist())

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.advlab is not None:
            save(self.advlab, Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.advlab is not None and checkpoint is not None:
            resume(self.advlab, Path(checkpoint), self.state.global_step)


class GRPOTrainer(GRPOMixin, _GRPOTrainer):
    """TRL's GRPOTrainer with the advantage of a recipe."""


class RLOOTrainer(GRPOMixin, _RLOOTrainer):
    """TRL's RLOOTrainer with the advantage of a recipe, one value per response."""
