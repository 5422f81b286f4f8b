"""A rollout server for verl by the `generate` of transformers.

A response depends on the weights, the prompt, the step and how often the prompt came in it: not on the order of requests.
"""

import os
import zlib
from collections import Counter

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

DEVICE = "cpu" if os.environ["VERL_PLATFORM"] == "cpu" else "cuda"


class Server:
    def __init__(self, path, config):
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        # The GPU is the trainer's: Ray shows none to an actor that asks for no share of it.
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(DEVICE)
        self.step, self.length, self.times = 0, config.response_length, Counter()

    def load(self, weights, step):
        self.model.load_state_dict(weights, strict=False)
        self.step, self.times = step, Counter()

    @torch.no_grad()
    def sample(self, prompt_ids, params):
        key = tuple(prompt_ids)
        torch.manual_seed(zlib.crc32(repr((key, self.step, self.times[key])).encode()))
        self.times[key] += 1
        ids = torch.tensor([key], device=DEVICE)
        settings = {"do_sample": params.get("temperature", 1.0) > 0, "top_k": 0, "top_p": 1.0, "max_new_tokens": self.length}
        made = self.model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        out = made[0, ids.shape[1] :]
        logits = self.model(made).logits[0, ids.shape[1] - 1 : -1].float()
        return out.tolist(), logits.log_softmax(-1).gather(-1, out[:, None])[:, 0].tolist()

    async def generate(self, prompt_ids, sampling_params, request_id, **kwargs):
        out, logp = self.sample(prompt_ids, sampling_params)
        logp = logp if sampling_params.get("logprobs") else None
        more = {"global_steps": self.step}
        return TokenOutput(token_ids=out, log_probs=logp, stop_reason="completed", num_preempted=0, extra_fields=more)

    async def nothing(self, *args, **kwargs):
        pass

    wake_up = sleep = abort_all_requests = resume_generation = nothing
    clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


class Replica(RolloutReplica):
    async def launch_servers(self):
        options = {"name": f"hf_{self.replica_rank}", "max_concurrency": 64}
        server = ray.remote(num_cpus=0)(Server).options(**options).remote(self.model_config.path, self.config)
        self.servers = [server]
        self._server_handle, self._server_address = server, f"127.0.0.1:{9000 + self.replica_rank}"


class Adapter(BaseRollout):
    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **kwargs):
        kept = {}
        for name, tensor in weights:
            tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            kept[name] = tensor.detach().float().cpu().clone()
        if int(os.environ.get("RANK", 0)) == 0:
            await ray.get_actor("hf_0").load.remote(kept, global_steps)
