"""One run of TRL's GRPOTrainer in a process of its own: trl_run.py SETTINGS, in JSON.

`recipe` is a path or a built-in, or null for TRL's own advantage, or for that of `exported`, a file of PyTorch. `edits` has what is saved after a step, `die` the step after which
the process kills itself, `resume` whether it goes on from the newest checkpoint. `rows` of TRL's log are written a line a step.
"""

import json
import os
import runpy
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import trl
from datasets import Dataset
from tiny import many_a, model, tokenizer
from transformers import TrainerCallback

import advlab.trl


class Steps(TrainerCallback):
    def __init__(self, settings, out):
        self.settings, self.out, self.live = settings, out, None

    def on_log(self, args, state, control, logs=None, **_):
        if state.is_world_process_zero and "loss" in logs:
            with self.out.open("a") as rows:
                rows.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    def on_step_end(self, args, state, control, **_):
        if (text := self.settings["edits"].get(str(state.global_step))) is not None:
            Path(self.settings["recipe"]).write_text(text)
            self.live.refresh()

    def on_step_begin(self, args, state, control, **_):
        # After the checkpoint of the step before.
        if state.global_step == self.settings["die"]:
            os.kill(os.getpid(), signal.SIGKILL)


class Exported(trl.GRPOTrainer):
    """The advantage by the function of a file that `advlab plan --torch` wrote. The file `differences` has how far each is from TRL's."""

    def _calculate_rewards(self, *args):
        self.rewards_per_func = super()._calculate_rewards(*args)
        return self.rewards_per_func

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        reward = (self.rewards_per_func * self.reward_weights.to(self.rewards_per_func)).nansum(1)
        group = torch.arange(len(reward), device=reward.device) // self.num_generations
        theirs = output["advantages"]
        start = self.accelerator.process_index * len(theirs)
        output["advantages"] = self.exported(group=group, reward=reward)[start : start + len(theirs)]
        with (Path(self.args.output_dir) / "differences").open("a") as out:
            out.write(f"{float((output['advantages'] - theirs).abs().max())}\n")
        return output


def fail_on_all(trainer, batch):
    """An error that is not the recipe's reaches every process: nobody is left waiting."""

    def fails(*_):
        raise KeyError("unforeseen")

    trainer._advlab_compute = fails
    try:
        trainer._generate_and_score_completions([{"prompt": "a b"}] * batch)
    except (KeyError, RuntimeError) as error:
        assert isinstance(error, KeyError) == (trainer.advlab is not None) and "unforeseen" in str(error)
    else:
        raise AssertionError("no error")


def main():
    is_cpu = os.environ.get("DEVICE", "cpu") == "cpu"
    settings = {"edits": {}, "die": None, "resume": False, **json.loads(sys.argv[1])}
    folder, recipe = Path(settings["folder"]), settings["recipe"]
    args = trl.GRPOConfig(
        output_dir=str(folder), max_steps=settings["steps"], per_device_train_batch_size=settings["batch"], num_generations=settings["generations"],
        num_iterations=2, max_completion_length=6, learning_rate=1e-2, logging_steps=1, save_steps=2, save_only_model=False,
        report_to=[], use_cpu=is_cpu, full_determinism=not is_cpu, disable_tqdm=True, bf16=False, seed=7,
    )  # fmt: skip
    steps = Steps(settings, folder / "rows.jsonl")
    ours = {
        "recipe": recipe,
        "recipe_params": settings.get("params"),
        "recipe_folder": settings.get("kept"),
        "recipe_batches": 99,
    }
    if exported := settings.get("exported"):
        Exported.exported = staticmethod(runpy.run_path(exported)["advantage"])
    trainer = (advlab.trl.GRPOTrainer if recipe else Exported if exported else trl.GRPOTrainer)(
        model=model(), reward_funcs=[many_a], args=args, processing_class=tokenizer(), callbacks=[steps],
        train_dataset=Dataset.from_dict({"prompt": ["a b", "c d", "e f", "g h"] * 4}), **(ours if recipe else {}),
    )  # fmt: skip
    steps.live = getattr(trainer, "advlab", None)
    trainer.train(resume_from_checkpoint=settings["resume"])
    if trainer.accelerator.is_main_process:
        torch.save(trainer.accelerator.unwrap_model(trainer.model).state_dict(), folder / "weights.pt")
    if recipe and trainer.accelerator.num_processes > 1:
        assert (trainer.advlab is None) == (trainer.accelerator.process_index > 0)
        fail_on_all(trainer, settings["batch"])
    sys.stdout.flush()
    # Not by the interpreter's end: a thread of gloo's that drops its last message then aborts the process, with or without a recipe.
    os._exit(0)


if __name__ == "__main__":
    main()
