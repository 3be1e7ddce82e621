"""Operators that are told the structure are equivariant and run on grids of any size."""

import numpy as np
import pytest
import torch

from eqr.errors import UserError
from eqr.model.config import CandidateSites, ReasonerConfig
from eqr.model.lookup import local_model, shipped
from eqr.model.mixers import Attention, Tokens
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.model.structured import IMPOSSIBLE, Groups, Neighbours
from eqr.model.systems import eqr
from eqr.results.costs import flops_per_block
from eqr.tasks import task_named
from fixtures import SIZES, STRUCTURED

ROWS = 5


def puzzles(config: ReasonerConfig, rows: int = ROWS) -> torch.Tensor:
    task = task_named(config.task or "")
    made = task.generate(np.random.default_rng(3))
    return torch.from_numpy(np.stack([next(made).puzzle for _ in range(rows)]))


def begin(model: Reasoner, rows: int = ROWS):
    x = model.embed_tokens(puzzles(model.config, rows))
    keys, depths = torch.arange(rows) * 7919, torch.zeros(rows, dtype=torch.long)
    return x, keys, depths, model.initial_state(x, keys)


@pytest.mark.parametrize("name", ["candidates", "groups of cells"])
def test_without_a_graph_the_numbers_are_the_same(name):
    model = Reasoner(STRUCTURED[name])
    x, keys, depths, state = begin(model)
    tracked = model.segment(state, x, keys, depths)
    with torch.no_grad():
        untracked = model.segment(state, x, keys, depths)
    assert torch.allclose(tracked.answer, untracked.answer, atol=1e-6)


def test_a_symmetry_of_the_puzzle_permutes_the_trajectory():
    task = task_named("sudoku-6x6")
    config = eqr(task, mixer=Groups(hidden=32), sites=CandidateSites(), **SIZES)
    model = Reasoner(config).double()
    puzzle = next(task.generate(np.random.default_rng(0))).puzzle[None]
    symmetry = task.draw_symmetries(np.random.default_rng(1), 1)
    moved = symmetry.apply(puzzle)
    # new site (cell, symbol) holds what old site (cells[cell], the symbol that was renamed to it) held
    symbols = config.symbols
    renamed = np.argsort(symmetry.tokens[0, 2:])
    sites = (symmetry.cells[0][:, None] * symbols + renamed[None, :]).reshape(-1)
    keys, depths = torch.tensor([5]), torch.tensor([0])
    x, x_moved = (model.embed_tokens(torch.from_numpy(grid)) for grid in (puzzle, moved))
    assert torch.equal(x[torch.from_numpy(sites)], x_moved)
    state = model.initial_state(x, keys)
    turned = State(*(latent[torch.from_numpy(sites)] for latent in state.tensors()))
    for _ in range(3):
        state = model.segment(state, x, keys, depths, perturbation=Perturbation(damping=0.05))
        turned = model.segment(turned, x_moved, keys, depths, perturbation=Perturbation(damping=0.05))
    assert torch.allclose(state.answer[torch.from_numpy(sites)], turned.answer, atol=1e-9)
    assert np.array_equal(
        symmetry.apply(model.decode(state).argmax(-1).numpy().astype(np.uint8)),
        model.decode(turned).argmax(-1).numpy(),
    )


def test_neighbours_do_not_care_where_on_the_grid_something_is():
    task = task_named("maze-9x9")
    model = Reasoner(eqr(task, mixer=Neighbours(), **SIZES)).double()
    z = torch.zeros(9, 9, 1, 16, dtype=torch.float64)
    z[2, 3, 0] = torch.randn(16, dtype=torch.float64)
    layer = model.stack.blocks[0].neighbours
    here, there = (layer(part.reshape(81, 1, 16)).view(9, 9, 16) for part in (z, z.roll((2, 1), (0, 1))))
    assert torch.allclose(here[:6, :7], there[2:8, 1:8])
    moved = (here != 0).any(-1).nonzero().tolist()
    assert sorted(map(tuple, moved)) == [(1, 3), (2, 2), (2, 3), (2, 4), (3, 3)]


def test_weights_run_on_other_sizes():
    small, large = task_named("sudoku-4x4"), task_named("sudoku-9x9")
    model = Reasoner(STRUCTURED["candidates"])
    resized = model.for_task(large)
    assert resized.config.tokens == 729
    assert resized.for_task(small).config == model.config
    assert model.for_task(small) is model
    for mine, theirs in zip(model.parameters(), resized.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    maze = Reasoner(STRUCTURED["neighbours"]).for_task(task_named("maze-unique"))
    x, keys, depths, state = begin(maze, 2)
    assert maze.segment(state, x, keys, depths).answer.shape == (900, 2, 16)
    for config in (eqr(small, **SIZES), eqr(small, mixer=Attention(), positions="learned", **SIZES)):
        with pytest.raises(UserError, match="reads 4x4 grids"):
            Reasoner(config).for_task(large)
    with pytest.raises(UserError, match="of 6 tokens"):
        Reasoner(STRUCTURED["groups of cells"]).for_task(large)


def test_candidates_are_told_what_their_cell_holds():
    model = Reasoner(STRUCTURED["candidates"])
    grid = torch.tensor([[1, 3, *[1] * 14]])  # the second cell holds symbol 2
    x = model.embed_tokens(grid).view(16, 4, 16)
    vectors = model.embedding * 4.0
    assert torch.equal(x[0], vectors[1].expand(4, 16))
    assert torch.equal(x[1], torch.stack([vectors[2 if symbol == 1 else 3] for symbol in range(4)]))
    logits = model.decode(model.initial_state(model.embed_tokens(grid), torch.tensor([0])))
    assert logits.shape == (1, 16, 6)
    assert (logits[..., :2] == IMPOSSIBLE).all()
    assert (logits.argmax(-1) >= 2).all()


def test_groups_pool_and_answer_their_members_only():
    members = STRUCTURED["candidates"].mixer.families(STRUCTURED["candidates"])
    assert {name: table.shape for name, table in members.items()} == {
        "cell": (16, 4),
        "line": (32, 4),
        "box": (16, 4),
    }
    assert all(sorted(np.concatenate(table)) == sorted([*range(64)] * times) for table, times in zip(
        members.values(), (1, 2, 1), strict=True
    ))  # fmt: skip


def test_costs_are_counted_and_old_names_still_load():
    config = STRUCTURED["neighbours"]
    width, cells, hidden = 16, 49, config.hidden(16)
    assert flops_per_block(config) == 2 * (11 * width * width * cells + 3 * cells * width * hidden)
    old = {**config.to_json(), "mixer": "attention", "heads": 4, "task": None}
    assert ReasonerConfig.from_json(old).mixer == Attention()
    assert ReasonerConfig.from_json({**old, "mixer": "tokens"}).mixer == Tokens()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mixer": Groups(), "task": None}, "groups come from a task"),
        ({"mixer": Groups(), "identity_tokens": 1}, "no place for identity tokens"),
        ({"mixer": Neighbours(), "sites": CandidateSites()}, "leave sites at null"),
        ({"mixer": Neighbours(), "positions": "rotary"}, "set positions to none"),
        ({"mixer": Groups(), "sites": CandidateSites(first=9)}, "only 6 tokens"),
    ],
)
def test_configs_that_cannot_be_built_say_why(fields, words):
    with pytest.raises(UserError, match=words):
        eqr(task_named("sudoku-4x4"), **SIZES).replace(**fields)
    with pytest.raises(ValueError, match="declares no groups"):
        eqr(task_named("maze-7x7"), mixer=Groups(), **SIZES)


def test_a_name_is_a_folder_a_run_a_shipped_model_or_an_error(tmp_path, monkeypatch):
    model = Reasoner(STRUCTURED["candidates"])
    model.save_pretrained(tmp_path / "run" / "best")
    assert local_model(tmp_path / "run") == tmp_path / "run" / "best"
    assert local_model(tmp_path / "run" / "best") == tmp_path / "run" / "best"
    assert local_model("sudoku-9x9") == shipped()["sudoku-9x9"]
    assert local_model("owner/name") is None
    with pytest.raises(UserError, match="did you mean 'sudoku-9x9'"):
        local_model("sudoku-9x8")
    with pytest.raises(UserError, match="holds no model"):
        local_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    model.save_pretrained("sudoku-9x9")
    assert str(local_model("sudoku-9x9")) == "sudoku-9x9"
