"""A recipe's loss as a function that torch differentiates, and a recipe as a function of tensors."""

import linecache
from collections.abc import Callable
from typing import Any

import torch


class _Loss(torch.autograd.Function):
    """A scalar whose derivative with respect to the log-probs is already known."""

    @staticmethod
    def forward(ctx: Any, logp: torch.Tensor, value: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(grad)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        if torch.is_grad_enabled():
            # Only `create_graph=True` enables gradients here. With `once_differentiable`, the second derivative would silently
            # be 0.
            raise RuntimeError("a recipe's loss has no second derivative: leave `create_graph=True` out")
        (grad,) = ctx.saved_tensors
        return grad * upstream.to(grad.dtype), None, None


def scalar(logp: torch.Tensor, value: float, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the loss as a scalar tensor, and dloss/dlogp in the type of `logp`."""
    precision = torch.float64 if logp.dtype == torch.float64 else torch.float32
    grad = grad.to(logp.dtype)
    return _Loss.apply(logp, torch.tensor(value, dtype=precision), grad), grad  # type: ignore[no-untyped-call]


def exported(recipe: str, source: str, hook: str) -> Callable[..., torch.Tensor]:
    """Returns a hook's function from `source`, the text of a file that `advlab plan --torch` writes."""
    file, names = f"<{hook} of {recipe}>", dict[str, Any](__name__=f"advlab_{hook}")
    # With this entry, a debugger and a traceback show the lines of the source.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    function: Callable[..., torch.Tensor] | None = names.get("shaped_reward" if hook == "reward" else hook)
    if function is None:
        raise ValueError(f"{recipe} has no `{hook}` that can be written as a function of tensors")
    function.source = source  # type: ignore[attr-defined]
    return function
