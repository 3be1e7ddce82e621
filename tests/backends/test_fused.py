"""A segment in one call equals the same segment application by application, gradients included."""

import pytest
import torch

from eqr.backends import Cpu
from eqr.backends.cpu import backend
from eqr.backends.cpu import segment as kernels
from eqr.backends.cpu.row_executor import RowExecutor
from eqr.model.config import CandidateSites
from eqr.model.operator import STILL, Perturbation, SingleState, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.model.structured import Groups, Neighbours
from eqr.model.systems import eqr
from eqr.tasks import task_named

SUDOKU, MAZE = task_named("sudoku-4x4"), task_named("maze-7x7")
SIZES = {"width": 16, "cycles": 2, "scratch": 2, "round_hidden_to": 8, "blocks": 1}
CONFIGS = {
    "candidates": eqr(SUDOKU, mixer=Groups(hidden=40), sites=CandidateSites(), **SIZES),
    "groups of cells, two blocks": eqr(SUDOKU, mixer=Groups(), **{**SIZES, "blocks": 2}),
    "neighbours": eqr(MAZE, mixer=Neighbours(), **{**SIZES, "width": 20}),
    "two stacks": eqr(MAZE, mixer=Neighbours(hidden=24), **SIZES).replace(
        recurrence=TwoLevel(cycles=2, scratch=1, separate=True)
    ),
    "one state": eqr(SUDOKU, mixer=Groups(), **SIZES).replace(
        recurrence=SingleState(cycles=2, applications=2, close_alone=True)
    ),
}
ROWS = 7
BACKEND = Cpu(RowExecutor(1))


@pytest.fixture
def ran(monkeypatch) -> list[str]:
    """Note which kernels run, lest the composition be compared with itself."""
    names: list[str] = []
    for name in ("forward", "backward"):
        kernel = getattr(kernels, name)
        monkeypatch.setattr(
            kernels, name, lambda *given, kernel=kernel, name=name: (names.append(name), kernel(*given))[1]
        )
    return names


def numbers(model: Reasoner, perturbation: Perturbation, tracked: int | None) -> list[torch.Tensor]:
    """New states, residuals and the gradients of states, input and weights."""
    config = model.config
    grids = torch.randint(
        1, config.vocabulary, (ROWS, config.cells), generator=torch.Generator().manual_seed(0)
    )
    keys = torch.arange(ROWS) * 7919
    x = model.embed_tokens(grids).detach().requires_grad_()
    old = State(*(z.requires_grad_() for z in model.initial_state(x.detach(), keys).tensors()))
    new = BACKEND.segment(
        model, old, x, keys, torch.zeros_like(keys), perturbation=perturbation, tracked=tracked
    )
    loss = sum((z * torch.linspace(-1, 1, z.numel()).view_as(z)).sum() for z in new.tensors())
    inputs = (*old.tensors(), x, *model.stack.parameters(), *(model.answer_stack or model.stack).parameters())
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    gradients = [torch.zeros_like(z) if g is None else g for z, g in zip(inputs, found, strict=True)]
    return [*(z.detach() for z in new.tensors()), *gradients]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tracked", [None, 3, 1])
def test_numbers_and_gradients_equal_the_composition(ran, monkeypatch, name, tracked):
    monkeypatch.setattr(backend, "CACHE_NUMBERS", 1 << 15)  # so that rows are taken in several turns
    model = Reasoner(CONFIGS[name])
    for perturbation in (
        STILL,
        Perturbation(damping=0.05),
        Perturbation(noise=0.1),
        Perturbation(damping=0.05, noise=0.1),
    ):
        ran.clear()
        found = numbers(model, perturbation, tracked)
        assert ran == ["forward", "backward"]
        with monkeypatch.context() as without:
            without.setattr(backend, "weights_for_one_call", lambda *_: [])
            wanted = numbers(model, perturbation, tracked)
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * max(float(other.abs().mean()), 1.0))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_row_does_not_depend_on_the_others(monkeypatch, name):
    model, keys = Reasoner(CONFIGS[name]), torch.arange(ROWS)
    config = model.config
    grids = torch.randint(
        1, config.vocabulary, (ROWS, config.cells), generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        x = model.embed_tokens(grids)
        start = model.initial_state(x, keys)
        together = BACKEND.segment(model, start, x, keys, keys * 0)
        for row in (0, 4, 6):
            one = slice(row, row + 1)
            alone = BACKEND.segment(model, start.chunk(one), x[:, one], keys[one], keys[one] * 0)
            for mine, theirs in zip(alone.tensors(), together.chunk(one).tensors(), strict=True):
                assert torch.equal(mine, theirs)


def test_gradients_of_gradients_go_through_the_composition():
    model = Reasoner(CONFIGS["neighbours"])
    found = []
    for dtype in (torch.float32, torch.float64):
        model = model.to(dtype)
        grids = torch.ones(2, model.config.cells, dtype=torch.long)
        x, keys = model.embed_tokens(grids).detach().requires_grad_(), torch.arange(2)
        new = BACKEND.segment(
            model, model.initial_state(x.detach(), keys), x, keys, keys * 0, perturbation=STILL
        )
        (first,) = torch.autograd.grad(new.answer[:3, :, :4].sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x)[0].double())
    assert torch.allclose(*found, rtol=1e-2, atol=1e-3 * float(found[1].abs().max()))


class Own(Perturbation):
    """A perturbation that the kernels do not know."""


def test_other_perturbations_and_other_models_are_left_to_the_loop(ran):
    model, keys = Reasoner(CONFIGS["neighbours"]), torch.arange(2)
    grids = torch.ones(2, model.config.cells, dtype=torch.long)
    with torch.no_grad():
        x = model.embed_tokens(grids)
        BACKEND.segment(model, model.initial_state(x, keys), x, keys, keys, perturbation=Own())
        wide = model.double()
        x = wide.embed_tokens(grids)
        BACKEND.segment(wide, wide.initial_state(x, keys), x, keys, keys)
    assert not ran
