"""The compiled sweeps compute what the compositions they replace compute, to float32's rounding."""

import pytest
import torch
from torch import Tensor

from eqr.model import kernels, passes
from eqr.model.counters import NoiseBank, _uniform, scramble

SHAPES = [(1, 2), (3, 10), (81, 64), (36, 514)]
"""Rows and (even) columns: less than a vector, odd halves, more columns than are normalised together."""


def matrix(rows: int, columns: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, exact: Tensor) -> bool:
    assert (found.dtype, exact.dtype) == (torch.float32, torch.float64)
    return torch.allclose(found.double(), exact, rtol=2e-6, atol=2e-6)


@pytest.fixture(autouse=True)
def count_sweeps(monkeypatch):
    """Every test here must have run a kernel, or it compared PyTorch with itself."""
    ran: list[str] = []
    for name in (
        "gate",
        "gate_gradient",
        "add_and_normalise_rows",
        "normalise_columns",
        "normalise_rows_gradient",
        "normalise_columns_gradient",
        "add_chosen",
        "uniform",
    ):
        kernel = getattr(kernels, name)
        monkeypatch.setattr(
            kernels, name, lambda *arrays, kernel=kernel, name=name: (ran.append(name), kernel(*arrays))[1]
        )
    yield
    assert ran


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_gate(shape, dim):
    both = matrix(*shape) if dim == 1 else matrix(*shape).t().contiguous()
    exact = passes.gate(both.double(), dim)
    assert close(passes.gate(both, dim), exact)
    assert close(passes.gate_(both.clone(), dim), exact)


def test_the_sigmoid_holds_to_its_last_bits_and_to_the_ends_of_the_range():
    g = torch.cat((torch.linspace(-87, 87, 20_001), torch.tensor([0.0, -0.0, 1e-30, -500.0, 500.0])))
    found = passes.gate(torch.cat((g, torch.ones_like(g))).unsqueeze(0), 1)[0].double()
    exact = torch.nn.functional.silu(g.double())
    assert ((found - exact).abs() <= 4e-7 * exact.abs() + 1e-30).all()
    assert passes.gate(torch.tensor([[torch.nan, 1.0]]), 1).isnan().all()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_of_the_gate(shape, dim):
    both = matrix(*shape) if dim == 1 else matrix(*shape).t().contiguous()
    towards = torch.randn_like(passes.gate(both, dim))
    exact_both, exact_gated = passes.gate_gradient(both.double(), towards.double(), dim)
    to_both, gated = passes.gate_gradient(both, towards.clone(), dim)
    assert close(to_both, exact_both)
    assert close(gated, exact_gated)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_normalisation_and_its_gradient(shape, dim):
    h, towards = matrix(*shape), matrix(*shape, seed=1)
    exact, exact_scale = passes.normalise_(h.double(), dim)
    found, scale = passes.normalise_(h.clone(), dim)
    assert scale.shape == exact_scale.shape
    assert close(found, exact)
    assert close(scale, exact_scale)
    inner = passes.normalise_gradient(towards, found, scale, dim)
    assert close(inner, passes.normalise_gradient(towards.double(), exact, exact_scale, dim))
    flipped = towards.t().contiguous().t()  # the same numbers, laid out differently
    assert torch.equal(passes.normalise_gradient(flipped, found, scale, dim), inner)


def test_chosen_vectors_are_added_token_by_token():
    bank = NoiseBank(12)
    h = matrix(5 * 3, 12).view(5, 3, 12)
    chosen = bank.choose(torch.arange(3), 1, tokens=5)[0]
    exact = h.double() + 0.25 * bank.vectors.double()[chosen]
    assert close(passes.add_chosen(h, bank.vectors, chosen, 0.25), exact)
    assert close(passes.add_chosen(h, bank.vectors, chosen, torch.tensor(0.25)), exact)


def test_counters_are_hashed_to_the_same_bits():
    keys = torch.tensor([0, 1, 2**62 + 12345, 2**63 - 1])
    counters = torch.arange(5 * 12).view(5, 1, 12)
    bits = scramble(scramble(keys).view(1, -1, 1) + counters) >> 39
    assert torch.equal(_uniform(keys, 5, 12), (bits.float() + 0.5) * 2.0**-24)
