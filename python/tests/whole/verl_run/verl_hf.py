"""What verl 0.9.1 needs to sample with transformers, and to run on a CPU if VERL_PLATFORM is `cpu`. All the rest is verl's.

verl imports this module in each of its processes, at its own import: `VERL_USE_EXTERNAL_MODULES=verl_hf`.
"""

import importlib.abc
import importlib.util
import os
import sys
import types
from contextlib import contextmanager

import torch

IS_CPU = os.environ["VERL_PLATFORM"] == "cpu"


def of_replica(module):
    from verl.workers.rollout import base

    def replica():
        import hf_rollout

        return hf_rollout.Replica

    base._ROLLOUT_REGISTRY[("hf_generate", "async")] = "hf_rollout.Adapter"
    module.RolloutReplicaRegistry.register("hf_generate", replica)


def of_engine(module):
    from verl.workers.engine.base import EngineRegistry

    for kind, cls in (("language_model", module.FSDPEngineWithLMHead), ("value_model", module.FSDPEngineWithValueHead)):
        for strategy in ("fsdp", "fsdp2"):
            EngineRegistry._engines[kind][strategy]["cpu"] = cls


class After(importlib.abc.MetaPathFinder):
    """Calls functions with modules once they are loaded."""

    def __init__(self, changes):
        self.changes = changes

    def find_spec(self, name, path, target=None):
        change = self.changes.pop(name, None)
        spec = importlib.util.find_spec(name) if change else None
        if spec is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


changes = {"verl.workers.rollout.replica": of_replica}
if IS_CPU:
    changes["verl.workers.engine.fsdp.transformer_impl"] = of_engine
sys.meta_path.insert(0, After(changes))


def run_on_a_cpu():
    from verl.plugin.platform.platform_base import PlatformBase
    from verl.plugin.platform.platform_manager import PlatformRegistry

    class Device(types.ModuleType):
        """torch.cuda's functions, for a CPU."""

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(torch.cpu, name)

    device = Device("cpu_device")
    device.is_available = lambda: False
    device.empty_cache = lambda: None
    device.synchronize = device.set_device = lambda *_: None
    device.current_device = lambda: 0
    device.device_count = lambda: 1
    device.max_memory_allocated = device.max_memory_reserved = device.memory_allocated = device.memory_reserved = lambda *_: 0
    device.reset_peak_memory_stats = lambda *_: None
    device.mem_get_info = lambda *_: (1 << 30, 1 << 31)
    device.get_device_name = lambda *_: "cpu"
    device.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 31, name="cpu", multi_processor_count=1)
    device.get_rng_state, device.set_rng_state = torch.get_rng_state, torch.set_rng_state
    device.manual_seed = device.manual_seed_all = torch.manual_seed
    nothing = lambda self, *_, **__: None
    answers = {
        "device_name": "cpu", "vendor_name": "cpu", "device_module": device,
        "is_available": lambda self: True, "is_platform_available": lambda self, use_smi_check=False: True,
        "current_device": lambda self: torch.device("cpu"), "device_count": lambda self: 1,
        "set_device": nothing, "synchronize": nothing, "set_allocator_settings": nothing, "empty_cache": nothing,
        "profiler_start": nothing, "profiler_stop": nothing, "cudart": nothing,
        "manual_seed": lambda self, seed: torch.manual_seed(seed), "manual_seed_all": lambda self, seed: torch.manual_seed(seed),
        "get_device_capability": lambda self, i=0: (None, None), "communication_backend_name": lambda self: "gloo",
        "visible_devices_envvar": lambda self: "CPU_VISIBLE", "nvtx_range": contextmanager(lambda self, _: (yield)),
        "ray_resource_name": lambda self: "GPU", "ray_noset_envvars": lambda self: [],
        "ray_resource_options": lambda self, n: {"num_gpus": n}, "is_ipc_supported": lambda self: False,
    }  # fmt: skip
    PlatformRegistry.register(platform="cpu")(type("PlatformCPU", (PlatformBase,), answers))
    init = torch.distributed.init_process_group
    only_gloo = lambda backend: "gloo" if backend and "cpu:gloo" in backend else backend
    torch.distributed.init_process_group = lambda backend=None, **given: init(backend=only_gloo(backend), **given)
    # verl's value head asks for flash attention by name.
    import transformers

    theirs = transformers.AutoModelForTokenClassification.from_pretrained.__func__
    eager = lambda cls, *args, **given: theirs(cls, *args, **{**given, "attn_implementation": "eager"})
    transformers.AutoModelForTokenClassification.from_pretrained = classmethod(eager)


# verl 0.9.1 asks an old TRL for a class that TRL 1.16 has not.
if importlib.util.find_spec("trl"):
    import trl

    object.__setattr__(trl, "AutoModelForCausalLMWithValueHead", type("Nothing", (), {}))
if IS_CPU:
    run_on_a_cpu()
