"""Every system runs and learns; gradients, damping, starts and noise obey their laws."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import eqr
from eqr.errors import UserError
from eqr.model.definitions import choose_noise, noise_vectors, row_key
from eqr.model.operator import (
    STILL,
    Applications,
    Damped,
    Move,
    Perturbation,
    SingleState,
    TwoLevel,
    run_segment,
)
from eqr.model.reasoner import Reasoner
from eqr.model.state import RandomStart, State
from fixtures import NOISY, keys_of, puzzles_of, small, variants

ROWS = 4


def begin(model: Reasoner, rows: int = ROWS):
    x = model.embed_tokens(puzzles_of(model.config, rows))
    keys, depths = keys_of(rows)
    return x, keys, depths, model.initial_state(x, keys)


@pytest.mark.parametrize(("name", "config"), list(variants().items()), ids=lambda value: str(value)[:40])
def test_every_system_runs_a_segment_forward_and_backward(name, config):
    model = Reasoner(config)
    identities = torch.arange(ROWS) % max(config.identities, 1)
    x = model.embed_tokens(puzzles_of(config, ROWS), model.identity_vectors(identities))
    keys, depths = keys_of(ROWS)
    state = model.initial_state(x, keys)
    after = model.segment(state, x, keys, depths)
    reading = model.read(after, state)
    assert reading.logits.shape == (ROWS, config.cells, config.vocabulary)
    assert reading.tokens.shape == (ROWS, config.cells)
    assert torch.equal(reading.halt, torch.full((ROWS,), -5.0))
    (reading.logits.square().mean() + reading.halt.mean()).backward()
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.isfinite().all(), label
        assert label == "halt_head.weight" or parameter.grad.abs().sum() > 0, label


def test_damping_keeps_fixed_points_and_slows_the_rest():
    rest = torch.randn(3, 2, 4)

    def halfway(z, condition, index):
        return rest + 0.5 * (z - rest)

    damped = Damped(halfway, 0.25)
    assert torch.equal(damped(rest, None, 0), rest)
    away = rest + 1.0
    assert torch.allclose(damped(away, None, 0) - rest, torch.tensor(0.625))


def test_a_contraction_reaches_its_known_fixed_point():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)

    def scratch(z, condition, index):
        return 0.5 * z + 0.25 * condition

    def answer(z, condition, index):
        return 0.5 * z + 0.25 * condition

    # at rest: l = 0.5 (h + x) and h = 0.5 l, hence h = x / 3 and l = 2 x / 3
    state = State(torch.randn_like(x), torch.randn_like(x))
    moves = TwoLevel(cycles=3, scratch=6).moves()
    for _ in range(12):
        state = run_segment(state, x, moves, Applications(answer=answer, scratch=scratch))
    assert torch.allclose(state.answer, x / 3, atol=1e-6)
    assert torch.allclose(state.scratch, 2 * x / 3, atol=1e-6)


def test_moves_follow_the_recurrence():
    assert TwoLevel(cycles=2, scratch=2).moves() == (Move.SCRATCH, Move.SCRATCH, Move.ANSWER) * 2
    assert SingleState(cycles=1, applications=3, close_alone=True).moves()[-1] is Move.ALONE


def test_a_start_depends_only_on_seed_puzzle_and_restart():
    model = Reasoner(small("eqr"))
    puzzle = np.zeros(6, np.uint8)
    keys = torch.tensor([row_key(seed, puzzle, restart) for seed in (0, 1) for restart in (0, 1)])
    assert len(set(keys.tolist())) == 4
    assert row_key(0, puzzle, 0) != row_key(0, np.array([0, 0, 0, 0, 0, 1]), 0)
    x = model.embed_tokens(puzzles_of(model.config, 4))
    together = model.initial_state(x, keys)
    for row in (3, 1):
        alone = model.initial_state(x[:, :1] * 2, keys[row : row + 1])
        for all_rows, one in zip(together.tensors(), alone.tensors(), strict=True):
            assert torch.equal(all_rows[:, row : row + 1], one)
    assert not torch.equal(together.answer, together.scratch)


def test_a_key_stands_for_the_puzzle_and_its_identity_however_they_are_held():
    puzzle = np.arange(6, dtype=np.uint8)
    forms = [puzzle, puzzle.astype(np.int64), puzzle.astype(">i4"), np.repeat(puzzle, 2)[::2]]
    assert len({row_key(3, form, 1, np.int32(2)) for form in forms}) == 1
    assert len({row_key(3, puzzle, 1, identity) for identity in range(9)}) == 9
    with pytest.raises(ValueError, match="257"):
        row_key(0, np.array([1, 257]), 0)


def test_random_starts_have_unit_spread_and_bounded_support():
    model = Reasoner(small("eqr", start=RandomStart(answer=1.0, scratch=0.5)))
    rows = 4096
    state = model.initial_state(model.embed_tokens(puzzles_of(model.config, rows)), torch.arange(rows))
    assert state.answer.std().item() == pytest.approx(1.0, abs=2e-3)
    assert state.answer.mean().item() == pytest.approx(0.0, abs=3e-3)
    assert state.scratch.std().item() == pytest.approx(0.5, abs=1e-3)
    assert 2.25 < state.answer.abs().max() <= 2.2737


def test_zero_scale_starts_from_zeros():
    model = Reasoner(small("eqr", start=RandomStart(answer=0.0)))
    assert begin(model)[3].answer.abs().sum() == 0


def test_noise_is_standard_normal_and_fresh():
    vectors, keys = noise_vectors(32, torch.device("cpu")), torch.arange(500)
    first, second = (vectors[chosen] for chosen in choose_noise(keys, keys * 0, 2, 20))
    assert first.std().item() == pytest.approx(1.0, abs=0.01)
    assert first.mean().item() == pytest.approx(0.0, abs=0.01)
    for one, other in ((first, second), (first[:, :-1], first[:, 1:]), (first[:-1], first[1:])):
        assert (one * other).mean().abs() < 0.01


def test_a_perturbation_of_ones_own_may_apply_what_it_is_around_more_than_once():
    """A midpoint rule around noise: each application's two calls draw the same noise."""
    model = Reasoner(small("eqr", path=Perturbation(noise=0.1)))
    x, keys, depths, state = begin(model)

    class Midpoint(Perturbation):
        def around(self, application, noise):
            inner = super().around(application, noise)

            def twice(z, condition, index):
                return inner(torch.lerp(z, inner(z, condition, index), 0.5), condition, index)

            return twice

    twice = model.perturbed_by(Midpoint(noise=0.1))
    one, again, plain = (m.segment(state, x, keys, depths) for m in (twice, twice, model))
    assert torch.equal(one.answer, again.answer)
    assert not torch.equal(one.answer, plain.answer)
    given = model.segment(state, x, keys, depths, perturbation=Midpoint(noise=0.1))
    assert torch.equal(given.answer, one.answer)
    assert torch.equal(model.segment(state, x, keys, depths).answer, plain.answer), "the model itself changed"
    assert twice.stack is model.stack


def test_noise_does_not_depend_on_neighbours_but_on_depth():
    model = Reasoner(small("eqr", path=NOISY))
    x, keys, depths, state = begin(model)
    with torch.no_grad():
        together = model.segment(state, x, keys, depths)
        alone = model.segment(state.chunk(slice(2, 3)), x[:, 2:3], keys[2:3], depths[2:3])
        later = model.segment(state, x, keys, depths + 1)
        still = model.segment(state, x, keys, depths, perturbation=STILL)
        other_still = model.segment(state, x, keys + 1, depths + 1, perturbation=STILL)
    assert torch.allclose(together.answer[:, 2:3], alone.answer, atol=1e-4)
    assert not torch.allclose(together.answer, later.answer, atol=1e-2)
    assert not torch.allclose(together.answer, still.answer, atol=1e-2)
    assert torch.equal(still.answer, other_still.answer)


def test_learned_noise_must_be_there_to_be_used():
    model = Reasoner(small("eqr"))
    with pytest.raises(UserError, match="learned noise"):
        model.segment(*reorder(begin(model)), perturbation=NOISY.replace(learned_noise=True))


def test_learned_noise_starts_where_the_fixed_scale_is_and_decays_to_it():
    fixed = Reasoner(small("eqr", path=NOISY))
    learned = Reasoner(small("eqr", path=NOISY.replace(learned_noise=True)))
    assert not learned.log_noise.any(), "weight decay shrinks towards zero, which must be the scale given"
    with torch.no_grad():
        parts = reorder(begin(fixed))
        assert torch.allclose(fixed.segment(*parts).answer, learned.segment(*parts).answer, atol=1e-3)


def reorder(parts):
    x, keys, depths, state = parts
    return state, x, keys, depths


def test_rows_of_a_wrong_size_are_refused():
    with pytest.raises(UserError, match="reads 6 cells"):
        Reasoner(small("eqr")).embed_tokens(torch.ones(2, 5, dtype=torch.long))


def test_compilers_can_take_the_whole_segment():
    model = Reasoner(small("eqr", cycles=1, scratch=1, path=NOISY))
    parts = tuple(part.detach() for part in reorder(begin(model)))
    # traces forward and backward as every compiler would, without waiting for one to generate code
    compiled = torch.compile(model.segment, backend="aot_eager", fullgraph=True)
    expected, found = model.segment(*parts), compiled(*parts)
    assert torch.allclose(expected.answer, found.answer, atol=1e-5)
    wanted, given = (
        torch.autograd.grad(
            state.answer.square().sum(), model.stack.blocks[0].channels.up, retain_graph=True
        )[0]
        for state in (expected, found)
    )
    assert torch.allclose(wanted, given, atol=1e-3)


BFLOAT16 = """
import torch
from fixtures import *
for name in ("eqr", "hrm", "urm"):
    model = Reasoner(small(name))
    x = model.embed_tokens(puzzles_of(model.config, 3))
    keys, depths = keys_of(3)
    state = model.initial_state(x, keys)
    exact = model.read(model.segment(state, x, keys, depths), state).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = model.embed_tokens(puzzles_of(model.config, 3))
        after = model.segment(state, x, keys, depths, tracked=2)
        reading = model.read(after, state)
    reading.logits.float().square().mean().backward()
    assert model.stack.blocks[0].channels.up.grad.isfinite().all()
    assert reading.halt.dtype == torch.float32
    assert (reading.logits - exact).abs().mean() < 0.3, name
    model = model.bfloat16()
    x = model.embed_tokens(puzzles_of(model.config, 3))
    state = model.initial_state(x, keys)
    after = model.segment(state, x, keys, depths)
    assert after.answer.dtype == torch.bfloat16
    assert model.read(after, state).residual.dtype == torch.float32
print("fine")
"""


def test_bfloat16_by_autocast_and_by_conversion():
    here = os.pathsep.join(sys.path)
    # some builds of oneDNN pick bfloat16 instructions that virtual machines do not have
    environment = {**os.environ, "PYTHONPATH": here, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    run = subprocess.run([sys.executable, "-c", BFLOAT16], env=environment, capture_output=True, text=True)
    assert run.stdout == "fine\n", run.stderr[-2000:]


SOURCE = Path(eqr.__file__).parent
CORE = {"reasoner", "state", "operator", "definitions", "mixers"}
"""Where the equation stands, from embedding to reading."""
ASIDE = {"config"}
"""Sizes."""


def test_a_reader_needs_five_files_from_the_embedding_to_the_reading():
    model = Reasoner(small("eqr", path=NOISY))
    run: set[str] = set()

    def note(frame, event, _):
        place = Path(frame.f_code.co_filename)
        if event == "call" and place.is_relative_to(SOURCE):
            run.add(place.stem)

    sys.setprofile(note)
    try:
        keys, depths = keys_of(2)
        x = model.embed_tokens(puzzles_of(model.config, 2))
        z = model.initial_state(x, keys)
        model.read(model.segment(z, x, keys, depths), z)
    finally:
        sys.setprofile(None)
    assert run - ASIDE == CORE
