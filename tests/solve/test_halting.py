"""Halting rules: what they mean, that they hold no state, and how they are typed and saved."""

from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.dynamics.halting import Memory, fingerprint
from eqr.errors import UserError
from eqr.model.state import Reading
from eqr.solve import (
    AllOf,
    AnswerAccepted,
    AnswerStable,
    AnyOf,
    Budget,
    Engine,
    FixedDepth,
    HaltHead,
    HaltingRule,
    Puzzle,
    ResidualBelow,
    parse_halting,
    rollout,
)
from settling import Settling, puzzles_4x4


def reading(halt, residual=None, answers=None) -> Reading:
    rows = len(halt)
    residual = torch.tensor(residual if residual is not None else [1.0] * rows)
    logits = torch.nn.functional.one_hot(torch.tensor(answers or [[0, 0]] * rows), 4).float()
    return Reading(
        logits=logits, halt=torch.tensor(halt), continue_score=torch.zeros(rows), residual=residual
    )


def first_halts(rule: HaltingRule, readings: list[Reading]) -> list[int | None]:
    """Depth at which each row first halts."""
    rows = len(readings[0].halt)
    counters, found = rule.start(rows), [None] * rows
    for depth, seen in enumerate(readings, start=1):
        counters, halted = rule.update(counters, seen, torch.full((rows,), depth))
        found = [
            depth if now and was is None else was for was, now in zip(found, halted.tolist(), strict=True)
        ]
    return found


def test_head_needs_patience_in_a_row():
    scores = [[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
    readings = [reading(score) for score in scores]
    assert first_halts(HaltHead(), readings) == [1, 2]
    assert first_halts(HaltHead(patience=2), readings) == [4, 3]
    assert first_halts(HaltHead(threshold=2.0), readings) == [None, None]


def test_head_can_be_counted_from_the_continue_score():
    seen = Reading(
        logits=torch.zeros(1, 2, 3),
        halt=torch.tensor([-1.0]),
        continue_score=torch.tensor([-2.0]),
        residual=torch.ones(1),
    )
    assert first_halts(HaltHead(), [seen]) == [None]
    assert first_halts(HaltHead(over_continue=True), [seen]) == [1]


def test_residual_below():
    readings = [reading([0.0], [value]) for value in (0.5, 0.05, 0.2, 0.05, 0.01)]
    assert first_halts(ResidualBelow(tolerance=0.1), readings) == [2]
    assert first_halts(ResidualBelow(tolerance=0.1, patience=2), readings) == [5]
    assert first_halts(ResidualBelow(tolerance=0.1), [reading([0.0], [float("nan")])]) == [None]


def test_a_score_at_the_threshold_does_not_halt():
    at, above = reading([0.5], [0.25]), reading([0.5000001], [0.2499999])
    for rule in (HaltHead(threshold=0.5), ResidualBelow(tolerance=0.25)):
        assert first_halts(rule, [at, at]) == [None]
        assert first_halts(rule, [at, above]) == [2]


def test_an_accepted_answer_halts_and_without_a_judge_nobody_can_say():
    seen = [
        replace(reading([0.0, 0.0]), accepted=torch.tensor(said)) for said in ([False, True], [True, True])
    ]
    assert first_halts(AnswerAccepted(), seen) == [2, 1]
    assert first_halts(AnswerAccepted(patience=2), seen) == [None, 2]
    assert not HaltHead().uses_verifier
    assert AnyOf(rules=(HaltHead(), AllOf(rules=(AnswerAccepted(),)))).uses_verifier
    with pytest.raises(UserError, match="no verifier"):
        first_halts(AnswerAccepted(), [reading([0.0])])


class Falling(HaltingRule):
    """Halt when the residual falls below half of the greatest seen; starts with a memory that is not zero."""

    kind: Literal["falling"] = "falling"

    def start(self, rows: int, *, device: torch.device | None = None) -> Memory:
        return torch.full((rows, 1), 0.5, dtype=torch.float64, device=device)

    def update(self, memory: Memory, reading: Reading, depths: torch.Tensor) -> tuple[Memory, torch.Tensor]:
        assert memory.dtype == torch.float64
        greatest = torch.maximum(memory, reading.residual.double().unsqueeze(1))
        return greatest, reading.residual < greatest[:, 0] / 2


@pytest.mark.parametrize("together", [AnyOf, AllOf])
def test_combined_rules_keep_what_each_began_with(together):
    readings = [reading([1.0], [value], [[3, 1]]) for value in (0.3, 0.2, 0.1)]
    assert first_halts(Falling(), readings) == [2], "half of 0.5, which it began with"
    assert first_halts(together(rules=(Falling(), Falling())), readings) == [2]
    rule = together(rules=(Falling(), AnswerStable(patience=1)))
    memory = rule.start(1)
    for depth, seen in enumerate(readings, start=1):
        memory, _ = rule.update(memory, seen, torch.tensor([depth]))
    assert memory[1][1].dtype == torch.int64
    assert int(memory[1][1]) == int(fingerprint(readings[-1].tokens)), "the hash lost bits"


def test_a_rule_with_a_memory_of_its_own_kind_runs_in_slots():
    puzzles = puzzles_4x4(6)
    budget = Budget(depth=9, halting=AllOf(rules=(Falling(), AnswerStable(patience=1))))
    reasoner = Settling(puzzles, stuck=0.0)
    alone = [int(rollout(reasoner, grid[None], budget).depth[0]) for grid in puzzles.inputs]
    assert len(set(alone)) > 1
    together = {}
    for finished in Engine(reasoner, budget, slots=2).run(Puzzle(i, p) for i, p in enumerate(puzzles.inputs)):
        together.update(zip(finished.puzzles.tolist(), finished.candidates.depth.tolist(), strict=True))
    assert [together[index] for index in range(6)] == alone


def test_answer_stable():
    answers = [[[1, 2], [3, 3]], [[1, 2], [3, 2]], [[1, 2], [2, 3]], [[1, 1], [2, 3]], [[1, 1], [2, 3]]]
    readings = [reading([0.0, 0.0], answers=answer) for answer in answers]
    assert first_halts(AnswerStable(patience=1), readings) == [2, 4]
    assert first_halts(AnswerStable(patience=2), readings) == [3, 5]


@pytest.mark.parametrize("cells", [16, 81, 900])
def test_every_cell_counts_in_a_fingerprint(cells):
    grid = torch.ones(1, cells, dtype=torch.long)
    changed = grid + torch.eye(cells, dtype=torch.long)
    assert len(set(fingerprint(torch.cat((grid, changed))).tolist())) == cells + 1


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0.01, 1)), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_any_and_all_combine_what_their_rules_say(values):
    readings = [reading([halt], [residual]) for halt, residual in values]
    rules = (HaltHead(), ResidualBelow(tolerance=0.3, patience=2), FixedDepth(depth=3))
    alone = [_says(rule, readings) for rule in rules]
    assert _says(AnyOf(rules=rules), readings) == [any(says) for says in zip(*alone, strict=True)]
    assert _says(AllOf(rules=rules), readings) == [all(says) for says in zip(*alone, strict=True)]


def _says(rule: HaltingRule, readings: list[Reading]) -> list[bool]:
    counters, said = rule.start(1), []
    for depth, seen in enumerate(readings, start=1):
        counters, halted = rule.update(counters, seen, torch.tensor([depth]))
        said.append(bool(halted))
    return said


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("never", None),
        ("head", HaltHead()),
        ("head:1.5:2", HaltHead(threshold=1.5, patience=2)),
        ("residual:0.02", ResidualBelow(tolerance=0.02)),
        ("stable:3", AnswerStable(patience=3)),
        ("above-continue", HaltHead(over_continue=True)),
        ("above-continue:0.5:2", HaltHead(over_continue=True, threshold=0.5, patience=2)),
        ("valid", AnswerAccepted()),
        ("head+residual:0.05", AllOf(rules=(HaltHead(), ResidualBelow(tolerance=0.05)))),
        (
            "head+depth:4/stable",
            AnyOf(rules=(AllOf(rules=(HaltHead(), FixedDepth(depth=4))), AnswerStable())),
        ),
    ],
)
def test_rules_as_typed_and_as_saved(text, rule):
    assert parse_halting(text) == rule
    budget = Budget(halting=rule)
    assert Budget(halting=text) == budget, "the words of the command line are good enough for Python"
    assert Budget.from_json(budget.to_json()) == budget


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("haed", "did you mean 'head'"),
        ("residual", "tolerance"),
        ("residual:-1", "greater than 0"),
        ("head:x", "head:x"),
        ("head:1:2:3", "3 numbers"),
        ("head+never", "stands alone"),
        ("depth:0", "greater than 0"),
        ("stable:99999999999999999999", "patience.*less than or equal to 1048576"),
        ("residual:0.1:99999999999999999999", "patience.*less than or equal to 1048576"),
        ("depth:99999999999999999999", "depth.*less than or equal to 1048576"),
    ],
)
def test_mistyped_rules_say_what_to_mend(text, words):
    with pytest.raises(UserError, match=words):
        parse_halting(text)
    with pytest.raises(UserError, match=words):
        Budget(halting=text)


def test_an_unknown_kind_in_json_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'residual'"):
        Budget.from_json({"halting": {"kind": "residuel", "tolerance": 1}})
