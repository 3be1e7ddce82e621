"""The fused gated MLP equals its definition, and its gradient is the gradient."""

import pytest
import torch
from torch.nn import functional as F

from eqr.model.definitions import gated_mlp

pytestmark = pytest.mark.usefixtures("kernels_on")


def parts(dim: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(dim)
    h = torch.randn(6, 5, dtype=dtype, generator=generator)
    size = h.shape[dim]
    up = torch.randn(8, size, dtype=dtype, generator=generator)
    down = torch.randn(size, 4, dtype=dtype, generator=generator)
    return [tensor.requires_grad_() for tensor in (h, up, down)]


def definition(h, up, down, dim):
    rows = h if dim == 1 else h.t()
    g, u = F.linear(rows, up).chunk(2, dim=1)
    out = rows + F.linear(F.silu(g) * u, down)
    out = out / (out.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    return out if dim == 1 else out.t()


@pytest.mark.parametrize("dim", [0, 1])
def test_it_is_its_definition_with_and_without_a_graph(dim):
    tensors = parts(dim)
    expected = definition(*tensors, dim)
    before = [tensor.detach().clone() for tensor in tensors]
    with torch.no_grad():
        assert torch.allclose(gated_mlp(*tensors, dim), expected, rtol=0, atol=1e-12)
    assert torch.allclose(gated_mlp(*tensors, dim), expected, rtol=0, atol=1e-12)
    assert all(torch.equal(tensor, old) for tensor, old in zip(tensors, before, strict=True))


@pytest.mark.parametrize("dim", [0, 1])
def test_gradient_and_second_gradient(dim):
    assert torch.autograd.gradcheck(lambda *t: gated_mlp(*t, dim), parts(dim))
    assert torch.autograd.gradgradcheck(lambda *t: gated_mlp(*t, dim), parts(dim))


@pytest.mark.parametrize("dim", [0, 1])
def test_frozen_weights_still_pass_gradients_on(dim):
    h, up, down = parts(dim)
    frozen = gated_mlp(h, up.detach(), down.detach(), dim).square().sum()
    expected = definition(h, up, down, dim).square().sum()
    assert torch.allclose(*(torch.autograd.grad(y, h)[0] for y in (frozen, expected)))
