"""The recipe's version and state in verl's checkpoints, beside what verl writes there."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

from .._recipe import LiveRecipe
from .._trainers import resume, save
from .caller import Caller

log = logging.getLogger("advlab.verl")


def follow(live: LiveRecipe, caller: Caller, is_first: bool) -> None:
    """Saves when the trainer saves, and resumes with it if this `is_first` in this process."""
    trainer, folder = caller.trainer, caller.setting("trainer.default_local_dir")
    if not folder or not hasattr(trainer, "_save_checkpoint") or getattr(trainer._save_checkpoint, "live", None) is live:
        return
    done = _number(trainer, before=True)
    if is_first and done > 0:
        is_named = caller.setting("trainer.resume_mode") == "resume_path"
        at = Path(caller.setting("trainer.resume_from_path") if is_named else f"{folder}/global_step_{done}")
        resume(live, at, caller.step)
    theirs = trainer._save_checkpoint

    @functools.wraps(theirs)
    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        at = Path(f"{folder}/global_step_{_number(trainer)}")
        # First, so that a checkpoint that verl calls the latest has it.
        try:
            save(live, at)
        except OSError as error:
            log.error("%s has no state of %s, and a run resumed there begins anew: %s", at, live.name, error)
        return theirs(*args, **kwargs)

    save_checkpoint.live = live  # type: ignore[attr-defined]
    trainer._save_checkpoint = save_checkpoint


def _number(trainer: Any, before: bool = False) -> int:
    """The number of a trainer's checkpoint: its step, and in the fully asynchronous trainer the version of its parameters; or
    that of the checkpoint before the first step."""
    version = getattr(trainer, "current_param_version", None)
    return int(trainer.global_steps - before if version is None else version)
