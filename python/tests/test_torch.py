"""Tensors of torch in and out, and a loss that torch differentiates."""

import numpy as np
import pytest

import advlab

torch = pytest.importorskip("torch")

GROUPS = torch.tensor([7, 3, 7, 3])
REWARD = torch.tensor([1.0, 0.0, 0.0, 1.0])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]])
VALUE = torch.linspace(0.1, 1.2, 12).reshape(4, 3)


def gae(**columns):
    columns = {"groups": GROUPS, "reward": REWARD, "mask": MASK, "value": VALUE, **columns}
    return advlab.load("gae").advantage(**columns).advantage


def test_tensors_give_tensors():
    out = gae()
    assert isinstance(out, torch.Tensor) and out.dtype == torch.float32 and not out.requires_grad
    arrays = {"groups": GROUPS.numpy(), "reward": REWARD.numpy(), "mask": MASK.numpy(), "value": VALUE.numpy()}
    assert (out.numpy() == gae(**arrays)).all()
    assert gae(reward=REWARD.double()).dtype == torch.float64
    out += 1  # it is the caller's own
    assert isinstance(gae(reward=REWARD.numpy(), groups=np.array([7, 3, 7, 3])), torch.Tensor)


@pytest.mark.parametrize(
    "value",
    [
        VALUE.t().contiguous().t(),
        VALUE.clone().requires_grad_(),
        torch.complex(torch.zeros_like(VALUE), -VALUE).conj().imag,
        VALUE.repeat_interleave(2, dim=1)[:, ::2],
    ],
    ids=["transposed", "with a gradient", "with the negative bit", "strided"],
)
def test_any_tensor_is_read(value):
    assert (gae(value=value) == gae()).all()
    for dtype in (torch.bool, torch.uint8, torch.int32, torch.float32, torch.bfloat16):
        assert (gae(value=value, mask=MASK.to(dtype)) == gae()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    half = VALUE.to(dtype)
    assert (gae(value=half) == gae(value=half.float())).all()
    assert (gae(value=half.t().contiguous().t()) == gae(value=half.float())).all()
    rows = [row[:n].to(dtype) for row, n in zip(VALUE, (3, 1, 2, 3))]
    ragged = advlab.load("gae").advantage(groups=GROUPS, reward=REWARD, value=rows).advantage
    assert [len(row) for row in ragged] == [3, 1, 2, 3] and all(isinstance(row, torch.Tensor) for row in ragged)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"value": VALUE.to("meta")}, r"`value=value.cpu\(\)`"),
        ({"value": VALUE.to_sparse()}, "nested or sparse"),
        ({"value": VALUE.to(torch.float8_e4m3fn)}, r"`value` holds torch.float8_e4m3fn.*`value.float\(\)`"),
        ({"mask": torch.ones(4)}, "`mask` has 1 dimension"),
    ],
)
def test_tensors_elsewhere_are_refused_with_the_line_to_write(column, words):
    with pytest.raises(TypeError, match=words):
        gae(**column)


def test_autograd_follows_the_gradient_of_the_recipe():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64).mul_(0.3).requires_grad_()
    old = torch.full((4, 3), -0.7, dtype=torch.float64)
    advantage = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)

    def theirs():
        ratio = (weight - old).exp()
        a = advantage[:, None]
        clipped = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2))
        return (clipped * MASK).sum() / MASK.sum()

    recipe = advlab.load("ppo_clip")
    ours = recipe.loss(logp=weight, old_logp=old, mask=MASK, advantage=advantage)
    assert ours.loss.item() == pytest.approx(theirs().item(), abs=1e-12)
    (3 * ours.loss).backward()
    grad = weight.grad.clone()
    weight.grad = None
    theirs().backward()
    assert torch.allclose(grad, 3 * weight.grad, atol=1e-12)
    assert torch.equal(ours.grad * 3, grad)


def test_a_loss_of_half_precision_has_a_gradient_of_it_and_no_second_derivative():
    logp = torch.full((4, 3), -0.5, dtype=torch.bfloat16, requires_grad=True)
    call = {"old_logp": logp.detach(), "mask": MASK, "advantage": REWARD}
    out = advlab.load("ppo_clip").loss(logp=logp, **call)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(out.loss + (logp**2).sum(), logp, create_graph=True)
    out = advlab.load("ppo_clip").loss(logp=logp, **call)
    out.loss.backward()
    assert logp.grad.dtype == torch.bfloat16 and out.loss.dtype == torch.float32
    assert not advlab.load("ppo_clip").loss(logp=logp.detach(), **call).loss.requires_grad
