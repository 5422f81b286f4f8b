"""What verl's trainers do not pass to an estimator, found by name in the frames of its callers; and their checkpoints."""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _arrays
from .._recipe import LiveRecipe, log
from .._trainers import callers, resume, save, setting, warn_once


@dataclass
class Caller:
    """The batch and the trainer behind a call of an estimator."""

    batch: Any = None  # The tensors of verl's batch, by name.
    others: dict[str, Any] = field(default_factory=dict)  # The columns of its `non_tensor_batch`.
    keys: list[str] | None = None  # `{uid}_{session}_{turn}` of each row, in the default trainer.
    queue: tuple[Any, Any] | None = None  # The default trainer's queue, and what it knows the batch's rows by.
    trainer: Any = None  # The object with `global_steps`.
    metrics: dict[str, Any] | None = None

    @classmethod
    def of(cls, rewards: Any) -> "Caller":
        """Of the function that calls this one with a batch's `token_level_rewards`."""
        found = cls()
        for frame in callers():
            here = frame.f_locals
            data: Any = here.get("data")
            if found.batch is None and _is_same(setting(getattr(data, "batch", None), "token_level_rewards"), rewards):
                found.batch, found.others = data.batch, dict(getattr(data, "non_tensor_batch", {}))
            keys = here.get("batch_keys")
            if found.keys is None and isinstance(keys, (list, tuple)) and len(keys) == len(rewards):
                found.keys = list(keys)
            if found.queue is None and "tq" in frame.f_globals and getattr(here.get("batch"), "partition_id", None):
                found.queue = frame.f_globals["tq"], here["batch"]
            if isinstance(getattr(here.get("self"), "global_steps", None), int):
                found.trainer = here["self"]
                found.metrics = here["metrics"] if isinstance(here.get("metrics"), dict) else None
                break
        for name, lost in (
            ("trainer", "`batch.step` counts the calls, and verl's log and checkpoints have nothing of the recipe"),
            ("batch", "a recipe can read no other columns than `reward` and `token_reward`"),
        ):
            if getattr(found, name) is None:
                warn_once(f"verl's {name} was not found among the callers of the estimator: {lost}")
        return found

    def tensors(self) -> dict[str, Any]:
        """The tensors of verl's batch, and those that the default trainer leaves in its queue: entropies and a teacher's log-probs."""
        found = dict(self.batch.items()) if self.batch is not None else {}
        for name in ("entropy", "teacher_log_probs"):
            if (data := self._queued(name)) is not None:
                found.setdefault(name, data.to_padded_tensor()[name])
        # verl's own teachers score prompts and responses; of several tokens per place none is the sampled one for certain.
        data = self._queued("teacher_logprobs", "prompts", "responses")
        if data is not None and data["teacher_logprobs"].shape[-1] == 1:
            from verl.workers.utils.padding import no_padding_2_padding

            found.setdefault("teacher_log_probs", no_padding_2_padding(data["teacher_logprobs"], data).squeeze(-1))
        return found

    def _queued(self, *names: str) -> Any:
        """Fields of the default trainer's queue; None if it has not all of them."""
        if self.queue is None or not {*names} <= {*(getattr(self.queue[1], "fields", None) or ())}:
            return None
        queue, rows = self.queue
        return queue.kv_batch_get(keys=rows.keys, partition_id=rows.partition_id, select_fields=list(names))

    @property
    def step(self) -> int | None:
        return getattr(self.trainer, "global_steps", None)

    def setting(self, path: str) -> Any:
        """A setting of the trainer's configuration; None if there is none."""
        return setting(getattr(self.trainer, "config", None), path)

    def follow(self, live: LiveRecipe, is_first: bool) -> None:
        """Saves when the trainer saves, and resumes with it if this `is_first` in this process."""
        trainer, folder = self.trainer, self.setting("trainer.default_local_dir")
        if not folder or not hasattr(trainer, "_save_checkpoint") or getattr(trainer._save_checkpoint, "live", None) is live:
            return

        def number(before: bool = False) -> int:
            # The fully asynchronous trainer numbers its checkpoints by the version of its parameters.
            version = getattr(trainer, "current_param_version", None)
            return int(trainer.global_steps - before if version is None else version)

        done = number(before=True)
        if is_first and done > 0:
            is_named = self.setting("trainer.resume_mode") == "resume_path"
            at = self.setting("trainer.resume_from_path") if is_named else f"{folder}/global_step_{done}"
            resume(live, Path(at), self.step)
        theirs = trainer._save_checkpoint

        @functools.wraps(theirs)
        def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
            at = Path(f"{folder}/global_step_{number()}")
            # First, so that a checkpoint that verl calls the latest has it.
            try:
                save(live, at)
            except OSError as error:
                log.error("%s has no state of %s, and a run resumed there begins anew: %s", at, live.name, error)
            return theirs(*args, **kwargs)

        save_checkpoint.live = live  # type: ignore[attr-defined]
        trainer._save_checkpoint = save_checkpoint


def _is_same(found: Any, rewards: Any) -> bool:
    return _arrays.is_tensor(found) and bool(found.shape == rewards.shape and found.data_ptr() == rewards.data_ptr())
