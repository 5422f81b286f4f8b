"""TRL: GRPOTrainer and RLOOTrainer with the advantage of a recipe, for TRL 1.16.

    from advlab.trl import GRPOTrainer
    trainer = GRPOTrainer(recipe="mine.rhai", recipe_params={"k": 4}, model=..., reward_funcs=[...], args=..., train_dataset=...)

For a subclass of your own: `class Mine(GRPOMixin, MyTrainer)`. A save is used at the next generation. `trainer.advlab` is the
live recipe on the main process, which computes for all.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather, gather_object, pad_across_processes
from datasets import Value
from trl import GRPOConfig, RLOOConfig
from trl import GRPOTrainer as _GRPOTrainer
from trl import RLOOTrainer as _RLOOTrainer

from ._native import RecipeError
from ._recipe import LiveRecipe, load, watch
from ._trainers import NOT_OVER_TOKENS, column_name, explain, of_data_set, on_cpu, plain, report, resume, save, weighted

log = logging.getLogger("advlab")

OPTIONS = {
    "old_logp": "old log-probs are computed where `gradient_accumulation_steps` is not a multiple of `steps_per_generation * "
    "num_iterations`: set `num_iterations=2`, or `steps_per_generation` to more",
    "ref_logp": "the reference policy runs with `beta` above 0",
    "rollout_logp": "the sampler's log-probs are there with `use_vllm=True`",
    "value": "TRL has no critic here",
    "entropy": "TRL does not compute entropies before the advantage",
}
"""What to set in TRL for a column."""

RLOO_OPTIONS = {
    **OPTIONS,
    **dict.fromkeys(("old_logp", "ref_logp", "rollout_logp"), "RLOOTrainer has no log-probs by token for it: use GRPOTrainer"),
}
"""What to do in TRL for a column with RLOOTrainer."""

COLUMNS = {
    "old_per_token_logps": "old_logp",
    "ref_per_token_logps": "ref_logp",
    "sampling_per_token_logps": "rollout_logp",
}
"""TRL's tensors [B, T], and the columns that they are."""


WITHOUT_EFFECT = {
    GRPOConfig: (
        ("scale_rewards", "group", "leave it out; a recipe divides by a deviation itself: `grpo` does, `dr_grpo` does not"),
        ("multi_objective_aggregation", "sum_then_normalize", "leave it out; a recipe has the rewards as `batch.reward_<name>`"),
    ),
    RLOOConfig: (
        ("beta", 0.0, "set beta to 0.0; for a KL use GRPOTrainer, whose loss has it by `beta`"),
        ("reward_clip_range", None, "set it to None; a recipe clips by `batch.reward.clamp(low, high)`"),
        ("normalize_advantages", False, 'set it to False; a recipe normalises by `whiten("batch")`'),
    ),
}
"""Settings that act only on TRL's own advantage, which the recipe's replaces, with the value that changes nothing."""

MEANS = {
    **dict.fromkeys(("grpo", "sapo", "dr_grpo", "luspo"), "responses"),
    **dict.fromkeys(("dapo", "bnpo", "cispo", "vespo"), "tokens"),
}
"""What each `loss_type` of GRPOTrainer averages over."""


def _refuse_what_has_no_effect(given: Any) -> None:
    for config, settings in WITHOUT_EFFECT.items():
        for option, value, instead in settings if isinstance(given, config) else ():
            if (found := getattr(given, option, value)) != value:
                raise ValueError(f"`{option}={found}` acts only on TRL's own advantage, which the recipe's replaces: {instead}")


def _refuse_one_column_of_two(names: list[str]) -> None:
    """An error where two reward functions would be one column."""
    known: dict[str, str] = {}
    for name in names:
        column = f"reward_{column_name(name)}"
        if column in known:
            raise ValueError(
                f"the reward functions `{known[column]}` and `{name}` would both be the column `{column}`: give one of them "
                "another `__name__`"
            )
        known[column] = name


def _scalar(value: Any) -> Any:
    value = plain(value)
    return value if value is None or isinstance(value, (str, int, float)) else ()


def _of_rows(values: Any, rows: torch.Tensor) -> Any:
    return [value for value, is_row in zip(values, rows.tolist()) if is_row] if isinstance(values, list) else values[rows]


class GRPOMixin:
    """The advantage of a recipe in a trainer with GRPOTrainer's methods.

    `recipe` is a built-in's name or a script's path, `recipe_params` sets its parameters, and `recipe_folder` keeps the run as
    `advlab.watch` does, with the last `recipe_batches` batches. Columns are `reward`, as TRL weighs and adds it up,
    `reward_<name>` for each reward function (NaN where it returned None), `truncated` (whether it ends without an end token), the
    log-probs that TRL computes, and those of the data set that are numbers or strings; `batch.key("agent")` is one of the latter.
    None there is NaN among numbers and the empty string among strings.
    A completion that no function scored is left out and has the advantage 0.
    """

    advlab: LiveRecipe | None
    """The live recipe; None on other processes than the main one."""

    def __init__(
        self,
        *args: Any,
        recipe: str | os.PathLike[str],
        recipe_params: dict[str, Any] | None = None,
        recipe_folder: str | os.PathLike[str] | None = None,
        recipe_batches: int = 3,
        **kwargs: Any,
    ):
        params = recipe_params or {}
        # A slip is told before a model is loaded, and on each process.
        load(recipe, **params)
        for given in (*args, *kwargs.values()):
            _refuse_what_has_no_effect(given)
        super().__init__(*args, **kwargs)
        _refuse_what_has_no_effect(self.args)
        _refuse_one_column_of_two(self.reward_func_names)
        loss_type = getattr(self.args, "loss_type", "grpo")
        self._advlab_mean = MEANS.get(loss_type)
        refuses = {} if self._advlab_mean else {"weight": f"what `loss_type={loss_type}` averages over is not known"}
        if self._advlab_mean == "responses":
            refuses["loss"] = NOT_OVER_TOKENS
        self.advlab = None
        if self.accelerator.is_main_process:
            self.advlab = watch(recipe, folder=recipe_folder, keep_batches=recipe_batches, _refuses=refuses, **params)
            told = " ".join(f"{name}={value}" for name, value in self.advlab.params.items())
            log.warning("%s %s %s", recipe, self.advlab.version[:6], told)
        self._advlab_rewards: torch.Tensor | None = None
        self._advlab_serial = 0
        features = getattr(self.train_dataset, "features", None) or {}
        is_text = {name: "string" in feature.dtype for name, feature in features.items() if isinstance(feature, Value)}
        self._advlab_kinds = {name: str if text else float for name, text in is_text.items()}

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        self._advlab_rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        self._advlab_truncated = torch.tensor([not ids or ids[-1] not in ends for ids in completion_ids_list])
        return self._advlab_rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        mode = "train" if self.model.training else "eval"
        columns = self._advlab_columns(inputs, output)
        # One version and one state: the main process computes for all, and an error ends all.
        answer: list[Any] = [None]
        failed: Exception | None = None
        if self.accelerator.is_main_process:
            try:
                answer = [self._advlab_compute(columns, mode)]
            except Exception as error:
                # Whatever it is, the others wait for an answer; theirs is its text, as not every error can be sent.
                failed, answer = error, [f"{type(error).__name__} on the main process: {error}"]
        broadcast_object_list(answer)
        if isinstance(answer[0], str):
            raise failed or RuntimeError(answer[0])
        advantages, metrics = answer[0]
        local = len(output["advantages"])
        start = self.accelerator.process_index * local
        output["advantages"] = self._advlab_local(advantages, slice(start, start + local), output)
        self._advlab_log(mode, advantages, metrics)
        return output

    def _advlab_columns(self, inputs: list[dict[str, Any]], output: dict[str, Any]) -> dict[str, Any]:
        """The columns of all processes, on the CPU; every process takes part."""
        mask = output["completion_mask"]
        if output.get("tool_mask") is not None:
            mask = mask * output["tool_mask"]
        columns = {"mask": mask, **{ours: output[theirs] for theirs, ours in COLUMNS.items() if output.get(theirs) is not None}}
        gathered = {name: on_cpu(gather(pad_across_processes(value, dim=1))) for name, value in columns.items()}
        per_function = on_cpu(self._advlab_rewards)
        for name, values in zip(self.reward_func_names, per_function.T, strict=True):
            gathered[f"reward_{column_name(name)}"] = values
        weights = on_cpu(self.reward_weights).to(per_function.dtype)
        gathered["reward"] = (per_function * weights).nansum(1)
        gathered["truncated"] = on_cpu(gather(self._advlab_truncated.to(mask.device)))
        gathered["is_scored"] = ~per_function.isnan().all(1)
        # An empty tuple stands for what can be in no column.
        rows = gather_object([{name: _scalar(value) for name, value in row.items()} for row in inputs])
        names = dict.fromkeys(name for row in rows for name in row)
        return {**of_data_set({name: [row.get(name) for row in rows] for name in names}, self._advlab_kinds), **gathered}

    def _advlab_compute(self, columns: dict[str, Any], mode: str) -> tuple[Any, dict[str, float]]:
        size = self.num_generations if mode == "train" else self.num_generations_eval
        rows = columns.pop("is_scored")
        total = len(rows)
        groups = torch.arange(total) // size
        kept = columns if rows.all() else {name: _of_rows(value, rows) for name, value in columns.items()}
        if not rows.any():
            return torch.zeros(total), {}
        try:
            # An evaluation leaves the state of the training alone.
            live: Any = self.advlab
            recipe = live if mode == "train" else live._frozen()
            out = recipe.advantage(groups=groups[rows], step=self.state.global_step, **kept)
            report(recipe, out)
            advantage = weighted(out, kept["mask"], self._advlab_mean)
        except RecipeError as error:
            raise explain(error, RLOO_OPTIONS if isinstance(self, _RLOOTrainer) else OPTIONS, "TRL") from None
        whole = torch.zeros((total, *advantage.shape[1:]), dtype=torch.float32)
        whole[rows] = advantage.float()
        metrics = {f"advlab/{name}": float(value) for name, value in out.metrics.items()}
        if mode == "train":
            metrics["advlab/serial"] = float(out.serial)
            # A reload stands out in a plot.
            metrics["advlab/reloaded"] = float(out.serial != self._advlab_serial)
            self._advlab_serial = out.serial
        return whole, metrics

    def _advlab_local(self, advantages: torch.Tensor, rows: slice, output: dict[str, Any]) -> torch.Tensor:
        own = advantages[rows].to(output["advantages"])
        if own.dim() == 2:
            if isinstance(self, _RLOOTrainer):
                raise ValueError(
                    f"{self.advlab.name if self.advlab else 'the recipe'} gives an advantage for each token, and RLOOTrainer takes "
                    "one for each response: use GRPOTrainer"
                )
            # Processes pad to their own longest completion.
            own = own[:, : output["completion_mask"].shape[1]]
        return own

    def _advlab_log(self, mode: str, advantages: torch.Tensor, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
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
            self._advlab_serial = self.advlab.state_dict()["serial"]


class GRPOTrainer(GRPOMixin, _GRPOTrainer):
    """TRL's GRPOTrainer with the advantage of a recipe."""


class RLOOTrainer(GRPOMixin, _RLOOTrainer):
    """TRL's RLOOTrainer with the advantage of a recipe, one value a response."""
