"""`torch.func` and `torch.export` see through a segment, whatever the mixer, while weights want gradients."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from eqr.model import definitions, systems
from eqr.model.config import CandidateSites, Positions, ReasonerConfig
from eqr.model.mixers import Attention, Tokens
from eqr.model.operator import STILL, Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.model.structured import Groups, Neighbours
from eqr.tasks import task_named
from fixtures import keys_of, puzzles_of, small

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


def prepare(model: Reasoner, perturbation: Perturbation | None = None):
    """Return the segment as a function of its states, and where to begin."""
    keys, depths = keys_of(ROWS)
    x = model.embed_tokens(puzzles_of(model.config, ROWS)).detach()

    def segment(*latents: Tensor) -> tuple[Tensor, ...]:
        return model.segment(State(*latents), x, keys, depths, perturbation=perturbation).tensors()

    return segment, model.initial_state(x, keys).tensors()


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


class Unrolled(nn.Module):
    """Embed puzzles, run some segments from the start and return the logits: a model as one function."""

    def __init__(self, reasoner: Reasoner, *, depth: int) -> None:
        super().__init__()
        self.reasoner, self.depth = reasoner, depth

    def forward(self, puzzles: Tensor, keys: Tensor | None = None) -> Tensor:
        """Without keys every row starts and is perturbed alike."""
        model = self.reasoner
        keys = torch.zeros_like(puzzles[:, 0], dtype=torch.int64) if keys is None else keys
        x = model.embed_tokens(puzzles)
        state = model.initial_state(x, keys)
        for segment in range(self.depth):
            state = model.segment(state, x, keys, torch.full_like(keys, segment))
        return model.decode(state)


def loss(whole: Unrolled, weights: dict[str, Tensor], puzzles: Tensor) -> Tensor:
    logits = torch.func.functional_call(whole, weights, (puzzles,))
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), puzzles.flatten())


def test_the_gradient_of_weights_by_functional_call(model):
    puzzles = puzzles_of(model.config, ROWS).clamp(min=2)
    whole = Unrolled(model, depth=1)
    weights = dict(whole.named_parameters())
    found = torch.func.grad(partial(loss, whole), argnums=0)(weights, puzzles)
    wanted = torch.autograd.grad(loss(whole, weights, puzzles), list(weights.values()), allow_unused=True)
    for (name, gradient), other in zip(found.items(), wanted, strict=True):
        assert torch.allclose(
            gradient, torch.zeros_like(gradient) if other is None else other, rtol=1e-3, atol=1e-4
        ), name


@pytest.mark.parametrize("name", ["tokens", "candidates"])
def test_the_model_exports_as_one_graph_for_any_number_of_rows(name):
    model = Reasoner(CONFIGS[name], seed=2).requires_grad_(False)
    whole, rows = Unrolled(model, depth=1), torch.export.Dim("rows", min=1, max=1024)
    puzzles, keys = puzzles_of(model.config, ROWS), keys_of(ROWS)[0]
    program = torch.export.export(
        whole,
        (puzzles, keys),
        dynamic_shapes={"puzzles": {0: rows}, "keys": {0: rows}},
    )
    for count in (1, 5):
        given = puzzles_of(model.config, count, seed=1), keys_of(count)[0]
        found, wanted = program.module()(*given), whole(*given)
        assert found.shape == (count, model.config.cells, model.config.vocabulary)
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_without_keys_a_row_does_not_depend_on_its_place(model):
    puzzles, whole = puzzles_of(model.config, ROWS), Unrolled(model, depth=1)
    with torch.no_grad():
        together, alone = whole(puzzles), whole(puzzles[1:2])
    assert torch.allclose(together[1:2], alone, atol=1e-5)
    assert whole(puzzles).requires_grad


def test_transforms_take_a_state_for_what_it_holds(model):
    _, start = prepare(model)
    x, (tangent,) = model.embed(puzzles_of(model.config, ROWS)), directions(start)
    _, along = torch.func.jvp(lambda z: model(z, x), (State(*start),), (State(*tangent),))
    _, apart = torch.func.jvp(lambda *z: model(State(*z), x).tensors(), start, tangent)
    assert all(torch.equal(a, b) for a, b in zip(along.tensors(), apart, strict=True))


def test_noise_first_drawn_under_a_transform_is_numbers_afterwards(monkeypatch):
    monkeypatch.setattr("eqr.model.definitions._vectors", {})
    model = Reasoner(CONFIGS["tokens"], seed=2)
    segment, start = prepare(model)
    torch.func.jvp(segment, start, start)
    (vectors,) = definitions._vectors.values()
    assert vectors.data_ptr()
    assert not vectors.requires_grad
