"""MLPs that run tile by tile compute what their composition computes, gradients included."""

import pytest
import torch
from torch import Tensor

from eqr.backends.cpu import kernels, mlp
from eqr.backends.cpu.operators import LARGEST_WEIGHTS
from eqr.model import structured as exchanges
from eqr.model import systems
from eqr.model.config import CandidateSites, ReasonerConfig
from eqr.model.definitions import gated_mlp
from eqr.model.structured import Cross, Factors, Groups, exchange
from eqr.tasks import task_named
from fixtures import small

pytestmark = pytest.mark.usefixtures("kernels_on")

SIZES = [(1, 1, 1), (7, 5, 3), (23, 24, 24), (24, 16, 16), (25, 33, 40), (100, 24, 96), (60, 70, 50)]
"""Rows, width and hidden size: below, at and beyond whole tiles and whole vectors."""


def drawn(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights(width: int, hidden: int, inputs: int | None = None) -> tuple[Tensor, Tensor]:
    inputs = inputs or width
    up = drawn(2 * hidden, inputs, seed=1, scale=inputs**-0.5)
    return up, drawn(width, hidden, seed=2, scale=hidden**-0.5)


@pytest.fixture
def ran(monkeypatch) -> list[str]:
    """Note which kernels run, lest a composition be compared with itself."""
    names: list[str] = []
    for name in ("forward", "gradient"):
        kernel = getattr(mlp, name)
        monkeypatch.setattr(
            mlp, name, lambda *given, kernel=kernel, name=name: (names.append(name), kernel(*given))[1]
        )
    return names


def with_gradients(function, tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    tensors = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    out = function(*tensors)
    towards = drawn(*out.shape, seed=9).to(dtype)
    return [out.detach(), *torch.autograd.grad(out, tensors, towards)]


def assert_close(found: list[Tensor], exact: list[Tensor]) -> None:
    for one, other in zip(found, exact, strict=True):
        assert one.dtype is torch.float32
        assert torch.allclose(one.double(), other, rtol=1e-5, atol=2e-6 * max(float(other.abs().max()), 1.0))


@pytest.mark.parametrize(("rows", "width", "hidden"), SIZES)
def test_the_gated_mlp_and_its_gradient(ran, rows, width, hidden):
    given = [drawn(rows, width, seed=0), *weights(width, hidden)]
    exact = with_gradients(lambda *t: gated_mlp(*t, 1), given, torch.float64)
    assert not ran
    assert_close(with_gradients(lambda *t: gated_mlp(*t, 1), given, torch.float32), exact)
    assert ran == ["forward", "gradient"]
    with torch.no_grad():
        assert_close([gated_mlp(*given, 1)], exact[:1])


def test_large_weights_are_left_to_the_library(ran):
    width = 512
    hidden = LARGEST_WEIGHTS // (3 * width) + 1
    with torch.no_grad():
        assert gated_mlp(drawn(2, width, seed=0), *weights(width, hidden), 1).shape == (2, width)
    assert not ran


def test_a_row_does_not_depend_on_its_tile():
    h, (up, down) = drawn(61, 24, seed=0), weights(24, 40)
    with torch.no_grad():
        together = gated_mlp(h, up, down, 1)
        for rows in (slice(0, 1), slice(17, 48), slice(60, 61)):
            assert torch.equal(gated_mlp(h[rows], up, down, 1), together[rows])


def test_the_gate_is_exact_to_a_millionth_and_lets_no_nan_vanish():
    g = torch.cat((torch.linspace(-80, 80, 4001), torch.tensor([0.0, -0.0, 1e-30, -500.0, 500.0])))
    up, down = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0], [0.0]])

    def said(h: Tensor) -> Tensor:
        """MLP(h) alone."""
        out = torch.empty_like(h)
        place = h.data_ptr(), 0, 1, len(h), 1, 2, up.data_ptr(), down.data_ptr(), 1
        mlp.forward(*place, out.data_ptr(), 0, 0, kernels.F4(0.0))
        return out

    found = said(torch.stack((g, torch.ones_like(g)), dim=1))
    exact = torch.nn.functional.silu(g.double())
    assert ((found[:, 0].double() - exact).abs() <= 1e-6 * exact.abs() + 1e-30).all()
    assert said(torch.tensor([[torch.nan, 1.0]]))[0, 0].isnan()


def families() -> ReasonerConfig:
    return systems.eqr(task_named("sudoku-4x4"), width=24, mixer=Groups(), sites=CandidateSites())


def uneven() -> Factors:
    """Groups of different sizes, one empty site, two families."""
    lines = torch.tensor([[0, 1, 2], [3, -1, -1]]).numpy()
    return Factors((lines, torch.tensor([[1, 3]]).numpy()), sites=5)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("kind", ["cross", "sudoku", "uneven"])
def test_exchange_and_its_gradient(kind, rows):
    width, hidden = 24, 20
    if kind == "cross":
        along: exchanges.Exchange = Cross(3, 4)
        sites, parts, inputs = 12, 1, 5 * width
    else:
        config = families()
        along = (
            Factors(tuple(config.mixer.families(config).values()), config.tokens)
            if kind == "sudoku"
            else uneven()
        )
        sites, parts, inputs = (
            (config.tokens, len(config.mixer.families(config)), width) if kind == "sudoku" else (5, 2, width)
        )
    pairs = [weights(width, hidden, inputs) for _ in range(parts)]
    given = [drawn(sites, rows, width, seed=0), *(up for up, _ in pairs), *(down for _, down in pairs)]

    def run(h: Tensor, *both: Tensor) -> Tensor:
        return exchange(h, along, both[:parts], both[parts:])

    assert_close(with_gradients(run, given, torch.float32), with_gradients(run, given, torch.float64))
    few = [tensor.double().requires_grad_() for tensor in (given[0][:, :1, :], *given[1:])]
    assert torch.autograd.gradcheck(run, few, fast_mode=True)


def test_second_gradients_go_through_the_composition():
    given = [tensor.requires_grad_() for tensor in (drawn(6, 8, seed=0), *weights(8, 4))]
    (first,) = torch.autograd.grad(gated_mlp(*given, 1).square().sum(), given[:1], create_graph=True)
    found = torch.autograd.grad(first.square().sum(), given)
    wide = [tensor.detach().double().requires_grad_() for tensor in given]
    (first,) = torch.autograd.grad(gated_mlp(*wide, 1).square().sum(), wide[:1], create_graph=True)
    exact = torch.autograd.grad(first.square().sum(), wide)
    for one, other in zip(found, exact, strict=True):
        assert torch.allclose(one.double(), other, rtol=1e-3, atol=1e-3)


def test_small_configs_run_on_tiles(ran):
    from eqr.model.reasoner import Reasoner

    model = Reasoner(small("eqr"))
    with torch.no_grad():
        keys = torch.arange(2)
        x = model.embed_tokens(torch.ones(2, model.config.cells, dtype=torch.long))
        model.segment(model.initial_state(x, keys), x, keys, keys)
    assert ran == ["forward"] * model.config.layers_per_segment
