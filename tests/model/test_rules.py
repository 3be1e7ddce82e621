"""The mixer `rules` says what the rows say; its weights know no task, and symmetries of rules are its own."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from eqr.errors import UserError
from eqr.model.config import CandidateSites, ReasonerConfig
from eqr.model.operator import Perturbation, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.state import RandomStart
from eqr.model.structured import Rules
from eqr.puzzles import Puzzle
from eqr.tasks.filling import Board
from eqr.tasks.registry import TASKS, task_named
from eqr.tasks.rows import Row, RowKind, Rows, Rule, Sort

ALL = (RowKind.ONCE, RowKind.MOST, RowKind.COUNT, RowKind.SUM)
PLAIN = (RowKind.ONCE, RowKind.MOST)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))


def declare(name, shape, values, rows):
    """A puzzle straight from rows (sites, weights, low, high)."""
    table = Rows.of(
        values,
        [
            (0, Row(sites=np.array(sites), weights=np.array(weights), low=low, high=high))
            for sites, weights, low, high in rows
        ],
    )
    cells = shape[0] * shape[1]
    board = Board(shape, np.arange(cells), tuple(str(value) for value in range(values)))
    rule = Rule(text="all of it", sort=Sort.SUM, cells=tuple(range(cells)))
    return TASKS.keep(name, Puzzle(name, board, range(values), [rule], table))


def mixed(name="mixed"):
    """Four cells of three values with a row of every kind, a value barred among them."""
    rows = [
        ([0, 3, 6, 9], [1, 1, 1, 1], 1, 1),
        ([1, 4, 7], [1, 1, 1], 0, 1),
        ([2, 5, 8, 11], [1, 1, 1, 1], 1, 2),
        ([1, 2, 4, 5, 7, 8], [1, 2, 1, 2, 1, 2], 2, 4),
        ([10], [1], 0, 0),
    ]
    return declare(name, (2, 2), 3, rows)


def model_for(task, knows=ALL, *, live=True, seed=0, **fields):
    config = ReasonerConfig(
        task=task.name,
        rows=task.shape[0],
        columns=task.shape[1],
        vocabulary=task.vocabulary,
        width=8,
        blocks=1,
        mixer=Rules(hidden=6, knows=knows),
        sites=CandidateSites(live=live),
        round_hidden_to=8,
        recurrence=TwoLevel(cycles=1, scratch=2),
        **{"start": RandomStart(answer=0.0, scratch=0.0), **fields},
    )
    return Reasoner(config, seed=seed)


def answers(model, puzzles, depth):
    """Logits after some segments without noise, from nothing."""
    x = model.embed(puzzles)
    z = model.start(x)
    for _ in range(depth):
        z = model(z, x)
    return model.decode(z)


def bounded(answer, h, sites, weights, kind, low, high):
    """What a row that counts or sums says to its members, in one row of the batch."""
    there = h.abs().sum(1) > 0
    last = (there.view(-1, 3).sum(1) == 1).repeat_interleave(3) & there
    low = low - sum(w for s, w in zip(sites, weights, strict=True) if last[s])
    high = high - sum(w for s, w in zip(sites, weights, strict=True) if last[s])
    here = torch.tensor([bool(there[s] and not last[s]) for s in sites])
    if low <= 0 and high >= weights[here].sum():
        return torch.zeros(len(sites), h.shape[1]).double()
    members, held = h[sites][here], weights[here]
    norm = max(float(held.square().sum()), 1.0) ** 0.5
    heard = [members.sum(0) / max(len(held), 1) ** 0.5]
    if kind == RowKind.SUM:
        heard.append((members * held[:, None]).sum(0) / norm)
    facts = [low / norm, high / norm, low / 4, high / 4, len(held) ** 0.5 / 2, float(low == high)]
    message = answer(kind, torch.cat([*heard, torch.tensor([float(fact) for fact in facts]).double()]))
    if kind == RowKind.SUM:
        plain, in_proportion = message.chunk(2)
        return plain + in_proportion * weights[:, None] / norm
    return message.expand(len(sites), -1)


def test_a_layer_equals_what_each_row_says_by_itself():
    task = mixed()
    layer = model_for(task).stack.blocks[0].mixer
    h = torch.randn(12, 3, 8, generator=torch.Generator().manual_seed(1))
    h[10] = 0.0  # barred
    h[4, 1] = 0.0  # ruled out in one row of the batch
    h = h.double()
    layer.double()
    said = torch.zeros_like(h)

    def answer(kind, heard):
        g, u = F.linear(heard, layer.up[kind]).chunk(2, dim=-1)
        return F.linear(F.silu(g) * u, layer.down[kind])

    for cell in range(4):
        sites = [3 * cell, 3 * cell + 1, 3 * cell + 2]
        said[sites] += answer("cell", h[sites].sum(0) / 3**0.5)
    rows = task.rows
    for row, kind in enumerate(rows.kinds):
        if kind == RowKind.BARRED:
            continue
        entries = slice(rows.starts[row], rows.starts[row + 1])
        sites, weights = rows.sites[entries].tolist(), torch.tensor(rows.weights[entries]).double()
        if kind in PLAIN:
            said[sites] += answer(kind, h[sites].sum(0) / len(sites) ** 0.5)
            continue
        for batch in range(3):
            said[sites, batch] += bounded(
                answer, h[:, batch], sites, weights, kind, rows.low[row], rows.high[row]
            )
    new = h + said
    new = new / (new.square().mean(dim=2, keepdim=True) + 1e-5).sqrt()
    new = torch.where(h.abs().sum(2, keepdim=True) > 0, new, 0.0)
    torch.testing.assert_close(layer(h), new, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("knows", [ALL, PLAIN])
def test_renaming_and_moving_what_the_rules_do_not_mind_permutes_the_answer(knows):
    rng = np.random.default_rng(0)
    task = task_named("sudoku-4x4")
    model = model_for(task, knows)
    puzzles = np.ones((6, 16), np.uint8)
    puzzles[:, :3] = 3, 4, 2
    turned = task.draw_symmetries(rng, 6)
    one = answers(model, puzzles, 3)
    other = answers(model, turned.apply(puzzles), 3)
    for row in range(6):
        back = other[row][:, torch.from_numpy(turned.tokens[row].astype(np.int64))]
        torch.testing.assert_close(back, one[row][torch.from_numpy(turned.cells[row])], rtol=1e-4, atol=1e-4)


def test_sudoku_is_told_as_rows_what_its_groups_say():
    rows = task_named("sudoku-4x4").constraints()
    assert rows is not None
    assert len(rows) == 12 * 4
    assert set(rows.kinds.tolist()) == {RowKind.ONCE}
    assert task_named("maze-11x11").constraints() is None


def test_weights_run_on_any_rules_of_kinds_they_know():
    small, large = model_for(mixed()), declare("larger", (2, 3), 4, [([0, 4, 8], [1, 1, 1], 1, 2)])
    moved = small.for_task(large)
    assert moved.parameter_count() == small.parameter_count()
    assert answers(moved, np.ones((2, 6), np.uint8), 2).shape == (2, 6, 6)
    same_size = declare("same-size", (2, 2), 3, [([0, 3], [1, 1], 0, 1)])
    assert small.for_task(same_size).config.task == "same-size"
    plain = model_for(task_named("sudoku-4x4"), PLAIN)
    with pytest.raises(UserError, match="rules of the kind count; this model knows once, most"):
        plain.for_task(large)


def test_barred_values_and_those_the_givens_rule_out_are_never_chosen():
    model = model_for(mixed())
    logits = answers(model, np.array([[2, 1, 1, 1]]), 2)[0, :, 2:]
    barred = [(0, 1), (0, 2), (1, 0), (2, 0), (3, 0), (3, 1)]
    assert all(logits[cell, value] < -1000 for cell, value in barred)
    assert (logits > -1000).sum() == 12 - len(barred)


@pytest.mark.parametrize(
    ("knows", "sites", "words"),
    [
        (PLAIN, CandidateSites(live=True), "rules of the kind count, sum"),
        (ALL, CandidateSites(), "set sites.live to true"),
        (ALL, None, "acts on candidates"),
    ],
)
def test_configs_name_what_does_not_fit(knows, sites, words):
    task = mixed()
    with pytest.raises(UserError, match=words):
        ReasonerConfig.from_json(
            {
                "task": task.name,
                "rows": 2,
                "columns": 2,
                "vocabulary": 5,
                "mixer": Rules(knows=knows),
                "sites": sites,
                "path": Perturbation(),
            }
        )


def test_a_saved_config_comes_back():
    config = model_for(mixed()).config
    assert ReasonerConfig.from_json(config.to_json()) == config
    assert config.to_json()["mixer"]["knows"] == ["once", "most", "count", "sum"]
