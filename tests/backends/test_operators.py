"""Numbers on the cpu come to the kernel, whoever looks inside sees the definition."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from eqr.backends.cpu import operators
from eqr.backends.cpu.operators import MEANS, Kernel, damp_and_add_noise, only_numbers
from eqr.model.definitions import choose, computed_by, definition, gate, gated_mlp, uniform
from eqr.model.mixers import attend
from eqr.model.state import halt_scores, products, square_distances

pytestmark = pytest.mark.usefixtures("kernels_on")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return 0.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


H, UP, DOWN = drawn(6, 8), drawn(20, 8, seed=1), drawn(8, 10, seed=2)
Z, MOVED, BANK = drawn(4, 3, 8), drawn(4, 3, 8, seed=1), drawn(16, 8, seed=2)
CHOSEN, KEYS = torch.arange(12).view(4, 3), torch.tensor([3, 2**40, 5])
Q = drawn(2, 2, 5, 4)
CALLS = {
    "gated_mlp": (gated_mlp, (H, UP, DOWN, 1)),
    "gated_mlp over tokens": (gated_mlp, (H.t().contiguous(), UP, DOWN, 0)),
    "gate": (gate, (H, 1)),
    "attend": (attend, (Q, Q + 1, Q - 1)),
    "damp_and_add_noise": (damp_and_add_noise, (Z, MOVED, BANK, CHOSEN, 0.1, 0.25)),
    "square_distances": (square_distances, (Z, MOVED)),
    "halt_scores": (halt_scores, (Z, UP[:2], DOWN[0, :2])),
    "products": (products, (Z, UP[:3])),
    "uniform": (uniform, (KEYS, 4, 8)),
    "choose": (choose, (KEYS, 2, 4, 16)),
}
LOOKED_INTO = ("gated_mlp", "gated_mlp over tokens", "damp_and_add_noise", "attend")


def asking(call: str) -> list:
    """The arguments of a call, weights and states wanting gradients; the bank never changes."""
    return [
        value.clone().requires_grad_()
        if isinstance(value, Tensor) and value.is_floating_point() and value is not BANK
        else value
        for value in CALLS[call][1]
    ]


def test_outside_of_a_backend_a_definition_is_what_runs():
    with torch.no_grad():
        kernel = gated_mlp(H, UP, DOWN, 1)
        with computed_by({}):
            plain, called = gated_mlp.__wrapped__(H, UP, DOWN, 1), gated_mlp(H, UP, DOWN, 1)
    assert torch.equal(plain, called)
    assert torch.allclose(plain, kernel, atol=1e-6)
    assert not torch.equal(plain, kernel)
    assert set(MEANS) == {gate, gated_mlp, square_distances, halt_scores, products, uniform, choose}


@pytest.mark.parametrize("call", LOOKED_INTO)
def test_forward_derivatives_are_those_of_reverse(call):
    function = CALLS[call][0]
    given = asking(call)
    x, others = given[0].detach(), [v.detach() if isinstance(v, Tensor) else v for v in given[1:]]
    tangent, towards = torch.randn_like(x), torch.randn_like(x)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent), *others)).tangent
    assert found is not None
    x.requires_grad_()
    (back,) = torch.autograd.grad(function(x, *others), x, towards)
    one, other = found * towards, back * tangent
    size = float(one.abs().sum() + other.abs().sum())  # of terms that may cancel
    assert float((one.sum() - other.sum()).abs()) < 1e-6 * size


@pytest.mark.parametrize("call", LOOKED_INTO)
def test_a_compiled_graph_has_the_same_gradients(call):
    function = CALLS[call][0]
    given = asking(call)
    inputs = [value for value in given if isinstance(value, Tensor) and value.requires_grad]
    compiled = torch.compile(lambda *values: function(*values), backend="aot_eager", fullgraph=True)
    found, wanted = compiled(*given), function(*given)
    assert torch.allclose(found, wanted, atol=1e-6)
    for one, other in zip(
        torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(wanted.sum(), inputs), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.fixture(scope="module")
def spied() -> tuple:
    """A gated MLP of its own name that notes when its kernel runs, and when its definition."""
    ran: list[str] = []

    def noting(name: str, function):
        return lambda *given: (ran.append(name), function(*given))[1]

    kernel = Kernel(
        takes=operators._takes_sweep,
        run=noting("run", operators._run_mlp),
        forward=noting("forward", operators._record_mlp),
        gradient=operators._mlp_gradient,
    )

    @definition
    def spied_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int, /) -> Tensor:
        ran.append("definition")
        g, u = (h @ up.t()).chunk(2, dim=dim)
        return h + (torch.nn.functional.silu(g) * u) @ down.t()

    return kernel.of(spied_mlp), ran


def test_who_sees_what(spied):
    mlp, ran = spied

    def seen(*given) -> str:
        ran.clear()
        mlp(*given, 1)
        return ran[0]

    weights = UP.clone().requires_grad_(), DOWN
    assert seen(H, *weights) == "forward"
    assert seen(H, UP, DOWN) == "run"
    with torch.no_grad():
        assert seen(H, *weights) == "run"
    with torch.inference_mode():
        assert seen(H, *weights) == "run"
    assert seen(H.double(), UP.double(), DOWN.double()) == "definition"
    assert seen(H.t().contiguous().t(), UP, DOWN) == "definition"
    assert seen(*(tensor.to("meta") for tensor in (H, UP, DOWN))) == "definition"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert seen(H, UP, DOWN) == "definition"
    ran.clear()
    torch.func.vmap(lambda h: mlp(h, UP, DOWN, 1))(torch.stack((H, H)))
    torch.func.grad(lambda h: mlp(h, UP, DOWN, 1).sum())(H)
    traced = torch.jit.trace(lambda h: mlp(h, UP, DOWN, 1), (H,), check_trace=False)
    assert set(ran) == {"definition"}
    assert "silu" in str(traced.graph)


def test_numbers_are_told_from_what_is_more():
    weights = UP.clone().requires_grad_()
    assert only_numbers([H, weights])
    with torch.inference_mode():
        assert only_numbers([H, weights])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not only_numbers([H, weights])
    assert not only_numbers([H.to("meta")])
    with forward_ad.dual_level():
        assert only_numbers([H])
        assert not only_numbers([UP, forward_ad.make_dual(H, H)])
    seen: list[bool] = []

    def ask(h: Tensor) -> Tensor:
        seen.append(only_numbers([h, weights]))
        return h * 2.0

    torch.func.vmap(ask)(torch.stack((H, H)))
    torch.func.jvp(ask, (H,), (H,))
    torch.func.vjp(ask, H)
    torch.jit.trace(ask, (H,), check_trace=False)
    torch.compile(ask, backend="eager", fullgraph=True)(H)

    class Asking(torch.nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return ask(h)

    torch.export.export(Asking(), (H,), strict=False)
    assert not any(seen)
    assert len(seen) >= 5
