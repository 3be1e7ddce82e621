"""The compiled sweeps compute what the compositions they replace compute, to float32's rounding."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from eqr.backends.cpu import kernels
from eqr.backends.cpu import operators as sweeps
from eqr.backends.cpu.operators import InOneGo
from eqr.model.definitions import (
    NOISE_VECTORS,
    choose_noise,
    gate,
    gated_mlp,
    noise_vectors,
    normalise,
    scramble,
    truncated_normal,
    uniform,
)
from eqr.model.operator import Damped, Noise, Noisy
from eqr.model.state import halt_scores, products, square_distances

pytestmark = pytest.mark.usefixtures("kernels_on")

SHAPES = [(1, 2), (3, 10), (81, 64), (36, 514)]
"""Rows and (even) columns: less than a vector, odd halves, more columns than are normalised together."""


CPU = torch.device("cpu")


def matrix(rows: int, columns: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, exact: Tensor) -> bool:
    assert (found.dtype, exact.dtype) == (torch.float32, torch.float64)
    return torch.allclose(found.double(), exact, rtol=2e-6, atol=2e-6)


KERNELS = (
    "gate",
    "gate_gradient",
    "add_and_normalise_rows",
    "add_and_normalise_columns",
    "normalise_rows_gradient",
    "normalise_columns_gradient",
    "uniform",
    "choose",
    "square_distances",
    "halt_scores",
    "products",
    "damp_and_add_chosen",
)


@pytest.fixture
def ran(monkeypatch) -> list[str]:
    """Note which kernels run: without them, a test here compares PyTorch with itself."""
    names: list[str] = []
    for name in KERNELS:
        kernel = getattr(kernels, name)
        monkeypatch.setattr(
            kernels, name, lambda *given, kernel=kernel, name=name: (names.append(name), kernel(*given))[1]
        )
    return names


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_gate(ran, shape, dim):
    both = matrix(*shape) if dim == 1 else matrix(*shape).t().contiguous()
    exact = gate(both.double(), dim)
    assert close(gate(both, dim), exact)
    assert ran == ["gate"]


def test_the_sigmoid_holds_to_its_last_bits():
    g = torch.cat((torch.linspace(-87, 87, 20_001), torch.tensor([0.0, -0.0, 1e-30, -500.0, 500.0])))
    found = gate(torch.cat((g, torch.ones_like(g))).unsqueeze(0), 1)[0].double()
    exact = torch.nn.functional.silu(g.double())
    assert ((found - exact).abs() <= 4e-7 * exact.abs() + 1e-30).all()
    assert gate(torch.tensor([[torch.nan, 1.0]]), 1).isnan().all()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_of_the_gate(ran, shape, dim):
    both = matrix(*shape) if dim == 1 else matrix(*shape).t().contiguous()
    towards = torch.randn_like(gate(both, dim))
    wide = both.double().requires_grad_()
    exact_gated = gate(wide, dim)
    (exact_both,) = torch.autograd.grad(exact_gated, wide, towards.double())
    to_both, gated = sweeps.gate_gradient(both, towards.clone(), dim)
    assert close(to_both, exact_both)
    assert close(gated, exact_gated.detach())
    assert ran == ["gate", "gate_gradient"]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_normalisation_and_its_gradient(ran, shape, dim):
    h, towards, plus = matrix(*shape), matrix(*shape, seed=1), matrix(*shape, seed=2)
    wide = (h.double() + plus.double()).requires_grad_()
    exact = normalise(wide, dim)
    found, scale = sweeps.add_and_normalise_(h.clone(), plus, dim)
    assert close(found, exact.detach())
    assert close(scale, (exact / wide).detach().mean(dim=dim, keepdim=True))
    inner = sweeps.normalise_gradient(towards, found, scale, dim)
    assert close(inner, torch.autograd.grad(exact, wide, towards.double())[0])
    flipped = towards.t().contiguous().t()  # the same numbers, laid out differently
    assert torch.equal(sweeps.normalise_gradient(flipped, found, scale, dim), inner)
    forward, backward = (
        ("add_and_normalise_rows", "normalise_rows_gradient")
        if dim == 1
        else ("add_and_normalise_columns", "normalise_columns_gradient")
    )
    assert ran == [forward, backward, backward]


@pytest.mark.parametrize("damping", [0.1, 0.0])
def test_damping_and_noise_in_one_sweep_are_both(ran, damping):
    z, moved = (matrix(5 * 3, 12, seed=seed).view(5, 3, 12) for seed in (0, 1))
    keys = torch.arange(3)
    noise = Noise(noise_vectors(12, CPU), choose_noise(keys, keys * 0, 1, 5), 0.25)
    towards = matrix(5 * 3, 12, seed=2).view(5, 3, 12)

    def run(dtype: torch.dtype, noise: Noise = noise) -> list[Tensor]:
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (z, moved)]
        fused = InOneGo(damping=damping, noise=0.25).around(lambda *_: inputs[1], noise)
        out = fused(inputs[0], None, 0)
        apart = Noisy(Damped(lambda *_: inputs[1], damping), noise)(inputs[0], None, 0)
        assert torch.allclose(out, apart, rtol=1e-6, atol=1e-6)
        return [out.detach(), *torch.autograd.grad(out, inputs, towards.to(dtype), materialize_grads=True)]

    exact = run(torch.float64)
    assert ran == ["choose"]
    for others in (
        Noise(noise.vectors, noise.chosen, torch.tensor(0.25)),
        replace(noise, chosen=noise.chosen.int()),
    ):
        assert all(map(close, run(torch.float32, others), exact))
    assert ran == ["choose"]
    assert all(map(close, run(torch.float32), exact))
    assert ran == ["choose", "damp_and_add_chosen"]


def test_noise_is_chosen_by_the_same_bits(ran):
    keys = torch.tensor([0, 5, 2**62 + 12345, 2**63 - 9])
    bases = scramble(keys + torch.arange(3).view(-1, 1, 1))
    wanted = scramble(bases + torch.arange(7).unsqueeze(1)) & (NOISE_VECTORS - 1)
    assert torch.equal(choose_noise(keys, keys * 0, 3, 7), wanted)
    assert ran == ["choose"]


def test_distances_of_rows(ran):
    one, other = (matrix(7 * 3, 10, seed=seed).view(7, 3, 10) for seed in (0, 1))
    exact = (one.double() - other.double()).square().sum(dim=(0, 2))
    assert close(square_distances(one, other) / 1e3, exact / 1e3)
    assert ran == ["square_distances"]
    rows = slice(1, 3)
    part = square_distances(one[:, rows].contiguous(), other[:, rows].contiguous())
    assert torch.equal(part, square_distances(one, other)[rows])


@pytest.mark.parametrize("width", [8, 10, 16, 24, 33, 64])
def test_readings_of_a_row_are_the_same_bits_whatever_rows_are_beside_it(ran, width):
    tokens, rows = 29, 67
    h = matrix(tokens * rows, width).view(tokens, rows, width)
    weight, bias = matrix(3, width, seed=1), matrix(1, 3, seed=2)[0]
    found = (halt_scores(h, weight, bias), products(h, weight))
    exact = h.double().mean(dim=0) @ weight.double().t() + bias
    assert torch.allclose(found[0].double(), exact, atol=1e-4)
    assert torch.allclose(found[1].double(), h.double() @ weight.double().t(), atol=1e-4)
    assert ran == ["halt_scores", "products"]
    for some in ([5], [66, 0], [3, 1, 4], list(range(8)), list(range(1, 64))):
        part = h[:, some].contiguous()
        assert torch.equal(halt_scores(part, weight, bias), found[0][some])
        assert torch.equal(products(part, weight), found[1][:, some])


def test_counters_are_hashed_to_the_same_bits(ran):
    keys = torch.tensor([0, 1, 2**62 + 12345, 2**63 - 1])
    counters = torch.arange(5 * 12).view(5, 1, 12)
    bits = scramble(scramble(keys).view(1, -1, 1) + counters) >> 39
    assert torch.equal(uniform(keys, 5, 12), (bits.float() + 0.5) * 2.0**-24)
    assert ran == ["uniform"]
    strided = torch.stack((keys, keys), dim=1)[:, 0]
    assert torch.equal(uniform(strided, 5, 12), uniform(keys, 5, 12))
    few = torch.tensor([3, 4], dtype=torch.int32)
    assert torch.equal(truncated_normal(few, 1 << 40, 5, 12), truncated_normal(few.long(), 1 << 40, 5, 12))


@pytest.mark.parametrize("dim", [0, 1])
def test_the_gated_mlp_in_float32(ran, monkeypatch, dim):
    monkeypatch.setattr(sweeps, "LARGEST_WEIGHTS", 0)  # small weights have a way of their own
    h = matrix(24, 30, scale=1.0)
    size = h.shape[dim]
    weights = matrix(32, size, seed=1, scale=0.2), matrix(size, 16, seed=2, scale=0.2)
    towards = matrix(24, 30, seed=3)

    def run(dtype: torch.dtype) -> list[Tensor]:
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (h, *weights)]
        out = gated_mlp(*inputs, dim)
        return [out.detach(), *torch.autograd.grad(out, inputs, towards.to(dtype))]

    exact = run(torch.float64)
    assert not ran
    for found, wanted in zip(run(torch.float32), exact, strict=True):
        assert torch.allclose(found.double(), wanted, rtol=1e-5, atol=2e-5)
    assert len(ran) == 4
    with torch.no_grad():
        assert torch.allclose(gated_mlp(h, *weights, dim).double(), exact[0], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_dtype_does_not_matter(ran, dtype):
    both = matrix(20, 40)

    def run() -> list[Tensor]:
        normalised = sweeps.add_and_normalise_(both.clone(), both, 1)
        return [gate(both, 1), *normalised, uniform(torch.arange(3), 4, 5)]

    wanted = run()
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = run()
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert len(ran) == 6


def test_tensors_that_are_more_than_numbers_take_the_composition(ran):
    h, tangent = matrix(6, 8, scale=1.0), matrix(6, 8, seed=1, scale=1.0)
    weights = matrix(10, 8, seed=2, scale=0.3), matrix(8, 5, seed=3, scale=0.3)
    with torch.no_grad():
        out, slope = torch.func.jvp(lambda x: gated_mlp(x, *weights, 1), (h,), (tangent,))
        step = 1e-6 * tangent.double()
        wide = [weight.double() for weight in weights]
        sides = [gated_mlp(h.double() + sign * step, *wide, 1) for sign in (1, -1)]
    assert torch.allclose(slope.double(), (sides[0] - sides[1]) / 2e-6, atol=1e-4)
    assert out.shape == h.shape
    with FakeTensorMode(), torch.no_grad():
        assert gate(torch.empty(4, 6), 1).shape == (4, 3)
    assert not ran


def test_no_rows_are_no_trouble():
    assert gate(torch.empty(0, 8), 1).shape == (0, 4)
    for dim, none in ((1, torch.empty(0, 8)), (0, torch.empty(8, 0))):
        assert sweeps.add_and_normalise_(none, none.clone(), dim)[0].shape == none.shape
