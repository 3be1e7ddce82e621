"""Live candidates: what the givens rule out, and that leaving it out changes nothing else."""

import numpy as np
import pytest
import torch

from eqr.backends import Cpu
from eqr.backends.cpu import backend
from eqr.backends.cpu import segment as kernels
from eqr.backends.cpu.row_executor import RowExecutor
from eqr.errors import UserError
from eqr.model.config import CandidateSites, ReasonerConfig
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.model.structured import IMPOSSIBLE, Groups
from eqr.model.systems import eqr
from eqr.tasks import task_named

TASK = task_named("sudoku-6x6")
SIZES = {"width": 16, "cycles": 2, "scratch": 2, "round_hidden_to": 8, "blocks": 1}
CONFIG = eqr(TASK, mixer=Groups(hidden=40), sites=CandidateSites(live=True), **SIZES)
ROWS = 7
BACKEND = Cpu(RowExecutor(1))
NOISY = Perturbation(damping=0.05, noise=0.1)


def puzzles(rows: int = ROWS) -> np.ndarray:
    made = TASK.generate(np.random.default_rng(3))
    return np.stack([next(made).puzzle for _ in range(rows)])


def by_hand(puzzle: np.ndarray) -> np.ndarray:
    """What is possible (cells, symbols), by looking at every pair."""
    lines, puzzle = TASK.members, puzzle.astype(int)
    found = np.ones((36, 6), bool)
    for cell in range(36):
        for symbol in range(6):
            for other in range(36):
                if puzzle[other] < 2:
                    continue
                same = puzzle[other] - 2 == symbol
                near = any(cell in line and other in line for line in lines)
                if (other == cell and not same) or (other != cell and same and near):
                    found[cell, symbol] = puzzle[cell] - 2 == symbol
    return found


def test_givens_rule_out_their_cell_and_their_like_in_each_group():
    model, grids = Reasoner(CONFIG), puzzles(2)
    x = model.embed_tokens(torch.from_numpy(grids))
    for row, puzzle in enumerate(grids):
        there = (x[:, row] != 0).any(-1).view(36, 6).numpy()
        assert np.array_equal(there, by_hand(puzzle))
        assert there[puzzle >= 2].sum() == (puzzle >= 2).sum()
        open_sites = model.sites.open(x)[:, row, 0].view(36, 6).numpy()
        assert not open_sites[puzzle >= 2].any()
        assert not (open_sites & ~there).any()


@pytest.mark.parametrize("tracked", [None, 3])
@pytest.mark.parametrize("blocks", [1, 2])
def test_carrying_open_sites_alone_equals_masking_the_others(monkeypatch, tracked, blocks):
    model, runs = Reasoner(CONFIG.replace(blocks=blocks)), []
    kernel = kernels.forward
    monkeypatch.setattr(kernels, "forward", lambda *given: (runs.append(1), kernel(*given))[1])

    def numbers() -> list[torch.Tensor]:
        keys = torch.arange(ROWS) * 7919
        x = model.embed_tokens(torch.from_numpy(puzzles())).detach().requires_grad_()
        old = State(*(z.requires_grad_() for z in model.initial_state(x.detach(), keys).tensors()))
        new = BACKEND.segment(model, old, x, keys, keys * 0, perturbation=NOISY, tracked=tracked)
        inputs = (*old.tensors(), x, *model.stack.parameters())
        loss = sum((z * torch.linspace(-1, 1, z.numel()).view_as(z)).sum() for z in new.tensors())
        found = torch.autograd.grad(loss, inputs, allow_unused=True)
        gradients = [torch.zeros_like(z) if g is None else g for z, g in zip(inputs, found, strict=True)]
        return [*(z.detach() for z in new.tensors()), *gradients]

    found = numbers()
    assert runs
    monkeypatch.setattr(backend, "weights_for_one_call", lambda *_: [])
    wanted = numbers()
    assert len(runs) == 1
    for one, other in zip(found, wanted, strict=True):  # two ways to round, amplified by a whole segment
        assert float((one - other).abs().max()) <= 1e-4 * max(float(other.abs().max()), 1.0)


def test_what_is_ruled_out_stays_nothing_and_is_never_chosen():
    model, grids = Reasoner(CONFIG), puzzles()
    keys = torch.arange(ROWS)
    with torch.no_grad():
        x = model.embed_tokens(torch.from_numpy(grids))
        state = model.initial_state(x, keys)
        for depth in range(3):
            state = BACKEND.segment(model, state, x, keys, keys * 0 + depth, perturbation=NOISY)
        logits = model.decode(state)
    out = ~(x != 0).any(-1)
    assert all((latent[out] == 0).all() for latent in state.tensors())
    scores = logits[..., 2:].permute(1, 2, 0).flatten(0, 1)
    assert (scores[out] == IMPOSSIBLE).all()
    assert (scores[~out] > IMPOSSIBLE).all()
    chosen = logits.argmax(-1).numpy()
    assert np.array_equal(chosen[grids >= 2], grids[grids >= 2])


def test_a_symmetry_of_the_puzzle_permutes_the_trajectory():
    model = Reasoner(CONFIG).double()
    puzzle = puzzles(1)
    symmetry = TASK.draw_symmetries(np.random.default_rng(1), 1)
    renamed = np.argsort(symmetry.tokens[0, 2:])
    sites = torch.from_numpy((symmetry.cells[0][:, None] * 6 + renamed[None, :]).reshape(-1))
    keys = torch.tensor([5])
    x, x_moved = (model.embed_tokens(torch.from_numpy(grid)) for grid in (puzzle, symmetry.apply(puzzle)))
    assert torch.equal(x[sites], x_moved)
    state = model.initial_state(x, keys)
    turned = State(*(latent[sites] for latent in state.tensors()))
    for _ in range(3):
        state = model.segment(state, x, keys, keys * 0, perturbation=Perturbation(damping=0.05))
        turned = model.segment(turned, x_moved, keys, keys * 0, perturbation=Perturbation(damping=0.05))
    assert torch.allclose(state.answer[sites], turned.answer, atol=1e-9)


def test_configs_say_live_only_where_it_holds():
    old = eqr(TASK, mixer=Groups(), sites=CandidateSites(), **SIZES)
    assert old.to_json()["sites"] == {"first": 2}
    assert ReasonerConfig.from_json(CONFIG.to_json()) == CONFIG != old.replace(mixer=CONFIG.mixer)
    with pytest.raises(ValueError, match="live needs the groups or the rules mixer"):
        eqr(TASK, sites=CandidateSites(live=True), **SIZES)


def test_a_task_that_does_not_say_what_differs_has_no_live_candidates(monkeypatch):
    monkeypatch.setattr(type(TASK), "distinct", lambda self: ())
    with pytest.raises(UserError, match=r"Task\.distinct"):
        CONFIG.replace(width=24)
