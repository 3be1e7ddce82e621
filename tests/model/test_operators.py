"""The dispatcher chooses: numbers on the cpu come to the kernel, whoever looks inside sees the definition."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from eqr.cpu.gated import GATED_MLP
from eqr.cpu.operators import Kernel, only_numbers, operator
from eqr.model.counters import choose, uniform
from eqr.model.layers import attend, gate, gated_mlp
from eqr.model.operator import add_noise, damp_and_add_noise
from eqr.model.state import square_distances


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
    "add_noise": (add_noise, (Z, BANK, CHOSEN, 0.25)),
    "damp_and_add_noise": (damp_and_add_noise, (Z, MOVED, BANK, CHOSEN, 0.1, 0.25)),
    "square_distances": (square_distances, (Z, MOVED)),
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


@pytest.mark.parametrize("call", CALLS)
def test_pytorch_finds_nothing_wrong_with_it(call):
    found = torch.library.opcheck(CALLS[call][0], asking(call))
    assert set(found.values()) == {"SUCCESS"}


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
    assert torch.allclose((found * towards).sum(), (back * tangent).sum(), rtol=1e-4)


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

    kernel = replace(
        GATED_MLP, run=noting("run", GATED_MLP.run), forward=noting("forward", GATED_MLP.forward)
    )

    @operator(cpu=kernel)
    def spied_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
        ran.append("definition")
        g, u = (h @ up.t()).chunk(2, dim=dim)
        return h + (torch.nn.functional.silu(g) * u) @ down.t()

    return spied_mlp, ran


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
    assert "eqr::" not in str(traced.graph)


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


def test_lists_of_tensors_keep_their_places():
    kernel = Kernel(
        takes=lambda *_: True,
        run=lambda h, many, factor: factor * (h + sum(many)),
        forward=lambda h, many, factor: (factor * (h + sum(many)), (h.sum(),)),
        gradient=lambda towards, _kept, _h, many, factor: (towards * factor, [towards * factor] * len(many)),
    )

    @operator(cpu=kernel)
    def summed(h: Tensor, many: list[Tensor], factor: float) -> Tensor:
        return factor * (h + torch.stack(many).sum(0))

    tensors = [drawn(3, seed=seed).requires_grad_() for seed in range(3)]
    out = summed(tensors[0], tensors[1:], 2.0)
    assert torch.allclose(out, 2.0 * sum(tensors))
    for gradient in torch.autograd.grad(out.sum(), tensors):
        assert torch.equal(gradient, torch.full((3,), 2.0))
    assert torch.autograd.gradgradcheck(
        lambda h, *many: summed(h, list(many), 2.0), [t.detach().double().requires_grad_() for t in tensors]
    )
