"""What verl's trainers do not pass to an estimator: it is found by name in the frames of the callers."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

log = logging.getLogger("advlab.verl")

_told: set[str] = set()
"""Warnings that this process has given."""


@dataclass
class Caller:
    """The batch and the trainer behind a call of an estimator."""

    batch: Any = None
    """The tensors of verl's batch, by name."""
    others: dict[str, Any] = field(default_factory=dict)
    """The columns of its `non_tensor_batch`."""
    keys: list[str] | None = None
    """`{uid}_{session}_{turn}` of each row, in the default trainer."""
    queue: tuple[Any, Any] | None = None
    """The default trainer's queue, and what it knows the batch's rows by."""
    trainer: Any = None
    """The object with `global_steps`."""
    metrics: dict[str, Any] | None = None

    @classmethod
    def of(cls, rewards: Any) -> Caller:
        """Of the function that calls this one with a batch's `token_level_rewards`."""
        found = cls()
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and found.trainer is None:
            here = frame.f_locals
            data: Any = here.get("data")
            if found.batch is None and getattr(data, "batch", None) is not None and _has(data.batch, rewards):
                found.batch, found.others = data.batch, dict(getattr(data, "non_tensor_batch", {}))
            keys = here.get("batch_keys")
            if found.keys is None and isinstance(keys, (list, tuple)) and len(keys) == len(rewards):
                found.keys = list(keys)
            if found.queue is None and "tq" in frame.f_globals and getattr(here.get("batch"), "partition_id", None):
                found.queue = frame.f_globals["tq"], here["batch"]
            if isinstance(getattr(here.get("self"), "global_steps", None), int):
                found.trainer = here["self"]
                found.metrics = here["metrics"] if isinstance(here.get("metrics"), dict) else None
            frame = frame.f_back
        for name, lost in (
            ("trainer", "`batch.step` counts the calls, and verl's log and checkpoints have nothing of the recipe"),
            ("batch", "a recipe can read no other columns than `reward` and `token_reward`"),
        ):
            if getattr(found, name) is None:
                warn_once(f"verl's {name} was not found among the callers of the estimator: {lost}")
        return found

    def tensors(self) -> dict[str, Any]:
        """The tensors of verl's batch, and the entropy, which the default trainer computes and leaves in its queue."""
        found = dict(self.batch.items()) if self.batch is not None else {}
        if self.queue is not None and "entropy" in (getattr(self.queue[1], "fields", None) or ()):
            queue, rows = self.queue
            data = queue.kv_batch_get(keys=rows.keys, partition_id=rows.partition_id, select_fields=["entropy"])
            found.setdefault("entropy", data.to_padded_tensor()["entropy"])
        return found

    @property
    def step(self) -> int | None:
        """The trainer's step."""
        return getattr(self.trainer, "global_steps", None)

    def setting(self, path: str) -> Any:
        """A setting of the trainer's configuration, such as `trainer.save_freq`; None if there is none."""
        found = getattr(self.trainer, "config", None)
        for name in path.split("."):
            found = found.get(name, None) if found is not None and hasattr(found, "get") else None
        return found


def _has(batch: Any, rewards: Any) -> bool:
    try:
        own = batch["token_level_rewards"]
    except (KeyError, TypeError):
        return False
    return bool(own.shape == rewards.shape and own.data_ptr() == rewards.data_ptr())


def warn_once(text: str) -> None:
    """Logs a warning, once per process."""
    if text not in _told:
        _told.add(text)
        log.warning(text)
