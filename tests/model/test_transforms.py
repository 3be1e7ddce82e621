"""`torch.func` and `torch.export` see through a segment, whatever the mixer, while weights want gradients."""

from functools import partial

import pytest
import torch
from fixtures import keys_of, puzzles_of, small
from torch import Tensor

from eqr.model import systems
from eqr.model.config import STILL, CandidateSites, Path, Positions, ReasonerConfig
from eqr.model.mixers import Attention, Groups, Neighbours, Tokens
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.tasks import task_named

ROWS = 3


def structured(name: str, **fields: object) -> ReasonerConfig:
    return systems.eqr(task_named(name), width=8, blocks=1, cycles=1, scratch=2, round_hidden_to=8, **fields)


CONFIGS = {
    "tokens": small("eqr", mixer=Tokens(), cycles=1, scratch=2),
    "attention": small("eqr", mixer=Attention(), positions=Positions.ROTARY, cycles=1, scratch=2),
    "convolution": small("urm", cycles=1, applications=2),
    "neighbours": structured("maze-5x5", mixer=Neighbours()),
    "groups": structured("sudoku-4x4", mixer=Groups()),
    "candidates": structured("sudoku-4x4", mixer=Groups(), sites=CandidateSites()),
}


@pytest.fixture(params=list(CONFIGS))
def model(request) -> Reasoner:
    return Reasoner(CONFIGS[request.param], seed=2)


def prepare(model: Reasoner, path: Path | None = None):
    """Return the segment as a function of its states, and where to begin."""
    keys, depths = keys_of(ROWS)
    x = model.embed(puzzles_of(model.config, ROWS)).detach()

    def segment(*latents: Tensor) -> tuple[Tensor, ...]:
        return model.segment(State(*latents), x, keys, depths, path=path).tensors()

    return segment, model.start(x, keys).tensors()


def directions(like: tuple[Tensor, ...], count: int = 1) -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(5)
    return [
        tuple(torch.randn(z.shape, generator=generator, dtype=z.dtype) for z in like) for _ in range(count)
    ]


def test_a_jacobian_product_equals_finite_differences(model):
    (tangent,) = directions(prepare(model)[1])
    segment, start = prepare(model)
    _, slopes = torch.func.jvp(segment, start, tangent)
    model.double()
    segment, start = prepare(model)  # in double precision, where differences are exact enough
    step = 1e-5
    sides = [segment(*(z + s * step * t for z, t in zip(start, tangent, strict=True))) for s in (1, -1)]
    for slope, ahead, behind in zip(slopes, *sides, strict=True):
        assert torch.allclose(slope.double(), (ahead - behind) / (2 * step), rtol=1e-3, atol=1e-4)


def test_forward_and_backward_products_agree(model):
    segment, start = prepare(model)
    (tangent,), (towards,) = directions(start), directions(start)
    _, slopes = torch.func.jvp(segment, start, tangent)
    out, pull = torch.func.vjp(segment, *start)
    back = pull(towards)
    pushed = sum((s * t).sum() for s, t in zip(slopes, towards, strict=True))
    pulled = sum((b * t).sum() for b, t in zip(back, tangent, strict=True))
    assert torch.allclose(pushed, pulled, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(out, segment(*start), strict=True))


def test_a_batch_of_directions_by_vmap(model):
    segment, start = prepare(model)
    three = directions(start, 3)
    stacked = tuple(torch.stack(parts) for parts in zip(*three, strict=True))
    together = torch.func.vmap(lambda *t: torch.func.jvp(segment, start, t)[1])(*stacked)
    for index, tangent in enumerate(three):
        alone = torch.func.jvp(segment, start, tangent)[1]
        assert all(torch.allclose(a[index], b, atol=1e-5) for a, b in zip(together, alone, strict=True))


def test_states_by_vmap(model):
    segment, start = prepare(model, STILL)
    others = [tuple(z + t for z, t in zip(start, d, strict=True)) for d in directions(start, 2)]
    together = torch.func.vmap(segment)(*(torch.stack(parts) for parts in zip(*others, strict=True)))
    for index, latents in enumerate(others):
        assert all(
            torch.allclose(a[index], b, atol=1e-5) for a, b in zip(together, segment(*latents), strict=True)
        )


def loss(model: Reasoner, weights: dict[str, Tensor], puzzles: Tensor) -> Tensor:
    logits = torch.func.functional_call(model, weights, (puzzles,), {"depth": 1})
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), puzzles.flatten())


def test_the_gradient_of_weights_by_functional_call(model):
    puzzles = puzzles_of(model.config, ROWS).clamp(min=2)
    weights = dict(model.named_parameters())
    found = torch.func.grad(partial(loss, model), argnums=0)(weights, puzzles)
    wanted = torch.autograd.grad(loss(model, weights, puzzles), list(weights.values()), allow_unused=True)
    for (name, gradient), other in zip(found.items(), wanted, strict=True):
        assert torch.allclose(
            gradient, torch.zeros_like(gradient) if other is None else other, rtol=1e-3, atol=1e-4
        ), name


@pytest.mark.parametrize("name", ["tokens", "candidates"])
def test_the_model_exports_as_one_graph_for_any_number_of_rows(name):
    model = Reasoner(CONFIGS[name], seed=2).requires_grad_(False)
    rows = torch.export.Dim("rows", min=1, max=1024)
    puzzles, keys = puzzles_of(model.config, ROWS), keys_of(ROWS)[0]
    program = torch.export.export(
        model,
        (puzzles, keys),
        {"depth": 1},
        dynamic_shapes={"puzzles": {0: rows}, "keys": {0: rows}, "depth": None},
    )
    for count in (1, 5):
        given = puzzles_of(model.config, count, seed=1), keys_of(count)[0]
        found, wanted = program.module()(*given, depth=1), model(*given, depth=1)
        assert found.shape == (count, model.config.cells, model.config.vocabulary)
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_without_keys_a_row_does_not_depend_on_its_place(model):
    puzzles = puzzles_of(model.config, ROWS)
    with torch.no_grad():
        together, alone = model(puzzles, depth=1), model(puzzles[1:2], depth=1)
    assert torch.allclose(together[1:2], alone, atol=1e-5)
    assert model(puzzles, depth=1).requires_grad
