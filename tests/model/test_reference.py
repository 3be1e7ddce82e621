"""Every system, mixer and start computes what an implementation from the equations alone computes."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from eqr.backends.cpu.row_executor import one_thread
from eqr.model.config import Positions, ReasonerConfig
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.model.structured import Groups
from fixtures import STRUCTURED, keys_of, puzzles_of, reference_of, variants
from reference import Latents

ROWS = 3
CONFIGS = variants() | STRUCTURED
IDENTITIES = torch.tensor([0, 2, 1])


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """All is small here, and a second thread only waits for the first."""
    with one_thread():
        yield


def made(config: ReasonerConfig) -> Reasoner:
    """A model whose heads and identities say something."""
    model = Reasoner(config, seed=4)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.halt_head.weight.normal_(generator=generator)
        if model.identity_table is not None:
            model.identity_table.normal_(generator=generator)
        if model.log_noise is not None:
            model.log_noise.normal_(generator=generator)
    return model


def identities_of(config: ReasonerConfig) -> Tensor | None:
    return IDENTITIES % config.identities if config.identities else None


def embedded(model: Reasoner) -> tuple[Tensor, Tensor]:
    """x by the model and by the reference, both with the batch in front."""
    puzzles, identities = puzzles_of(model.config, ROWS), identities_of(model.config)
    if model.config.sites is not None:
        puzzles[:, 1::3], puzzles[:, 2::3] = 1, 1  # blanks, so that candidates are left
    vectors = None if identities is None else model.identity_vectors(identities)
    ours = model.embed_tokens(puzzles, vectors).transpose(0, 1)
    return ours, reference_of(model).embed(puzzles, identities)


def close(ours: Tensor, theirs: Tensor, tolerance: float) -> bool:
    ours, theirs = ours.detach(), theirs.detach()
    scale = float(theirs.abs().max().clamp(min=1.0))
    return ours.shape == theirs.shape and float((ours - theirs).abs().max()) <= tolerance * scale


def exact(config: ReasonerConfig) -> float:
    """What double precision leaves; angles of rotations and sizes of groups are kept in single precision."""
    if config.positions in (Positions.ROTARY, Positions.ROTARY_2D):
        return 1e-5
    return 1e-6 if isinstance(config.mixer, Groups) else 1e-9


@pytest.mark.parametrize("name", CONFIGS)
def test_inputs_and_starts(name):
    model = made(CONFIGS[name])
    keys, _ = keys_of(ROWS)
    ours, theirs = embedded(model)
    assert close(ours, theirs, 1e-6)
    state = model.initial_state(ours.transpose(0, 1), keys)
    latents = reference_of(model).start(theirs, keys.tolist())
    assert (state.scratch is None) == (latents.scratch is None)
    assert close(state.answer.transpose(0, 1), latents.answer, 1e-5)
    if state.scratch is not None and latents.scratch is not None:
        assert close(state.scratch.transpose(0, 1), latents.scratch, 1e-5)


def both(model: Reasoner, state: State, tracked: int | None = None) -> tuple[tuple[Tensor, ...], ...]:
    """A segment and its readings, by the model and by the reference: answer, logits, halt, residual."""
    keys, depths = keys_of(ROWS)[0], torch.tensor([0, 3, 1])
    ours, theirs = embedded(model)
    after = model.segment(state, ours.transpose(0, 1), keys, depths, tracked=tracked)
    reading = model.read(after, state)
    plain = reference_of(model)
    before = Latents(*(latent.transpose(0, 1) for latent in state.tensors()))
    told = plain.segment(before, theirs, keys.tolist(), depths.tolist(), tracked=tracked)
    pairs = zip(after.tensors(), (before.answer, before.scratch), strict=False)
    squares = [(new.transpose(0, 1) - old).square().mean(dim=(1, 2)) for new, old in pairs]
    residual = (sum(squares) / len(squares)).sqrt()
    return (
        (after.answer.transpose(0, 1), reading.logits, reading.halt, reading.residual),
        (told.answer, plain.logits(told), plain.halts(told)[:, 0].float(), residual.float()),
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_segment_with_its_damping_and_noise(name):
    single = made(CONFIGS[name])
    double = copy.deepcopy(single).double()
    with torch.no_grad():
        state = single.initial_state(embedded(single)[0].transpose(0, 1), keys_of(ROWS)[0])
        wide = State(*(latent.double() for latent in state.tensors()))
        for model, begun, tolerance in ((double, wide, exact(single.config)), (single, state, 2e-3)):
            for ours, theirs in zip(*both(model, begun), strict=True):
                assert close(ours, theirs, max(tolerance, 1e-6 if ours.dtype is torch.float32 else 0.0))


@pytest.mark.parametrize("tracked", [3, None])
@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_of_every_weight(name, tracked):
    model = made(CONFIGS[name]).double()
    with torch.no_grad():
        state = model.initial_state(embedded(model)[0].transpose(0, 1), keys_of(ROWS)[0])
    weights = dict(model.named_parameters())
    losses = [
        logits.square().mean() + halt.double().mean()
        for _, logits, halt, _ in both(model, State(*(z.double() for z in state.tensors())), tracked)
    ]
    found, wanted = (torch.autograd.grad(loss, list(weights.values()), allow_unused=True) for loss in losses)
    for label, mine, theirs in zip(weights, found, wanted, strict=True):
        assert (mine is None) == (theirs is None), label
        if mine is not None and theirs is not None:
            size = theirs.abs().max().clamp(min=1e-6)
            tolerance = max(100 * exact(model.config), 1e-6 if label.startswith("halt") else 0.0)
            assert close(mine / size, theirs / size, tolerance), label


@pytest.mark.parametrize("name", [*STRUCTURED, "trm", "hrm", "urm", "eqr"])
def test_gradients_by_the_kernels(name):
    model = made(CONFIGS[name])
    wide = copy.deepcopy(model).double()
    with torch.no_grad():
        state = model.initial_state(embedded(model)[0].transpose(0, 1), keys_of(ROWS)[0])
    logits = both(model, state, 2)[0][1]
    exact_logits = both(wide, State(*(z.double() for z in state.tensors())), 2)[1][1]
    labels = [label for label, _ in model.named_parameters() if not label.startswith(("halt", "starter"))]
    found, wanted = (
        torch.autograd.grad(loss, [dict(m.named_parameters())[label] for label in labels], allow_unused=True)
        for loss, m in ((logits.square().mean(), model), (exact_logits.square().mean(), wide))
    )
    for label, mine, theirs in zip(labels, found, wanted, strict=True):
        if mine is not None and theirs is not None:
            assert float((mine - theirs).abs().max()) <= 5e-2 * float(theirs.abs().max()), label


def test_a_window_of_no_applications_records_nothing():
    model = made(CONFIGS["trm"]).double()
    with torch.no_grad():
        state = model.initial_state(embedded(model)[0].transpose(0, 1), keys_of(ROWS)[0])
    (answer, *_), (theirs, *_) = both(model, state, 0)
    assert not answer.requires_grad
    assert not theirs.requires_grad
