"""Writes what verl trains on into the folder VERL_CAPTURE: imported in each of its processes by VERL_USE_EXTERNAL_MODULES."""

import functools
import os
import sys
import time
from pathlib import Path

from verl_hf import After


def dump(kind, **tensors):
    import torch

    # Of bfloat16 every value is one of float32.
    plain = lambda value: value.detach().cpu().to(torch.float32 if value.is_floating_point() else value.dtype, copy=True)
    tensors = {name: plain(value) if torch.is_tensor(value) else value for name, value in tensors.items()}
    at = Path(os.environ["VERL_CAPTURE"]) / f"{kind}-{time.time_ns()}-{os.getpid()}.pt"
    torch.save(tensors, at.with_suffix(".part"))
    at.with_suffix(".part").rename(at)


def of_trainer(module):
    """The batch of each step, as verl puts it back into its queue."""
    theirs = module.compute_advantage_for_multi_trajectories

    @functools.wraps(theirs)
    def compute(data, *args, **kwargs):
        out = theirs(data, *args, **kwargs)
        dump("step", uid=out.non_tensor_batch["uid"].tolist(), **{name: out.batch[name] for name in out.batch.keys()})
        return out

    module.compute_advantage_for_multi_trajectories = compute


def of_losses(module):
    """What the losses of actor and critic are given, and their values."""
    policy_loss_of, value_loss = module.get_policy_loss_fn, module.compute_value_loss

    def get_policy_loss_fn(mode):
        def loss(**given):
            out = policy_loss_of(mode)(**given)
            dump(
                "actor",
                loss=out[0],
                **{name: given[name] for name in ("old_log_prob", "log_prob", "advantages", "response_mask")},
            )
            return out

        return loss

    def compute_value_loss(**given):
        out = value_loss(**given)
        dump("critic", **{name: given[name] for name in ("vpreds", "returns", "values", "response_mask")})
        return out

    module.get_policy_loss_fn, module.compute_value_loss = get_policy_loss_fn, compute_value_loss


def of_servers(module):
    """Servers that also score a prompt, as verl's teachers do, under a name of their own."""
    import ray
    import torch

    class Server(module.Server):
        async def generate(self, prompt_ids, sampling_params, request_id, **kwargs):
            out = await super().generate(prompt_ids, {}, request_id, **kwargs)
            ids = torch.tensor(list(prompt_ids))
            logp = self.model(ids[None]).logits[0, :-1].float().log_softmax(-1).gather(1, ids[1:, None]).detach()
            # As vLLM has them: the log-prob of the next token, and 0 at the last.
            out.extra_fields |= {"prompt_ids": [[int(i)] for i in [*ids[1:], 0]], "prompt_logprobs": [*logp.tolist(), [0.0]]}
            return out

    theirs = module.Replica.launch_servers

    async def launch_servers(self):
        if not self.is_teacher_model:
            return await theirs(self)
        server = ray.remote(num_cpus=0)(Server).options(max_concurrency=64).remote(self.model_config.path, self.config)
        self.servers, self._server_handle, self._server_address = [server], server, "127.0.0.1:9900"

    module.Replica.launch_servers = launch_servers


changes = {"verl.trainer.ppo.v1.trainer_base": of_trainer, "verl.workers.utils.losses": of_losses, "hf_rollout": of_servers}
sys.meta_path.insert(0, After(changes))
