"""Every backend computes what stands in the model, segment by segment from the same state."""

import shutil
import subprocess
import sys
from functools import cache

import pytest
import torch
from torch import Tensor

from eqr.backends import BACKENDS, Backend, Compiled, Cpu, Eager, default_backend
from eqr.backends.cpu.row_executor import RowExecutor
from eqr.model.config import Positions, ReasonerConfig
from eqr.model.mixers import Attention
from eqr.model.operator import STILL, Damped, Noisy, Perturbation, SingleState
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.registry import register
from eqr.solve import load
from fixtures import NOISY, STRUCTURED, keys_of, puzzles_of, small

ROWS = 6
SHORT = {"cycles": 2, "scratch": 2, "path": NOISY}
CONFIGS: dict[str, ReasonerConfig] = {
    "tokens": small("eqr", **SHORT),
    "attention": small("eqr", mixer=Attention(), positions=Positions.ROTARY, **SHORT),
    "convolution": small("urm", cycles=1, applications=2, path=NOISY),
    "two stacks": small("hrm", path=NOISY),
    "one state": small("weight-tied", path=NOISY).replace(
        recurrence=SingleState(cycles=2, applications=2, close_alone=True)
    ),
    "learned noise": small("eqr", **{**SHORT, "path": NOISY.replace(learned_noise=True)}),
    **{name: config.replace(path=NOISY) for name, config in STRUCTURED.items()},
}
EAGER = Eager()


def cut(config: ReasonerConfig) -> Cpu:
    """One that cuts even a few rows."""
    return Cpu(RowExecutor(2, 2))


def begin(config: ReasonerConfig) -> tuple[Reasoner, State, Tensor, Tensor, Tensor]:
    model = Reasoner(config, seed=3)
    puzzles = puzzles_of(config, ROWS)
    if config.sites is not None:
        puzzles[:, 1::3], puzzles[:, 2::3] = 1, 1  # blanks, so that candidates are left
    keys, depths = keys_of(ROWS)
    x = model.embed_tokens(puzzles).detach()
    return model, model.initial_state(x, keys), x, keys, depths + torch.arange(ROWS)


def close(found: State, wanted: State, tolerance: float = 2e-3) -> bool:
    pairs = zip(found.detach().tensors(), wanted.detach().tensors(), strict=True)
    return all(float((a - b).abs().max()) <= tolerance * float(b.abs().max().clamp(min=1)) for a, b in pairs)


@pytest.mark.parametrize("make", [default_backend, cut], ids=["whole", "cut"])
@pytest.mark.parametrize("name", CONFIGS)
def test_cpu_segments_are_those_of_eager(name, make):
    model, z, *given = begin(CONFIGS[name])
    backend: Backend = make(model.config)
    with torch.inference_mode():
        for perturbation in (None, STILL, Perturbation(damping=0.1), Perturbation(noise=0.2)):
            wanted = EAGER.segment(model, z, *given, perturbation=perturbation)
            assert close(backend.segment(model, z, *given, perturbation=perturbation), wanted)
        plain = model.read(wanted, z)
        with backend.alone():
            reading = model.read(wanted, z)
        assert torch.allclose(reading.logits, plain.logits, rtol=1e-5, atol=1e-4)
        assert torch.allclose(reading.halt, plain.halt, rtol=1e-5, atol=1e-4)
        assert torch.allclose(reading.residual, plain.residual, rtol=1e-5)


@pytest.mark.parametrize("tracked", [None, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_cpu_gradients_are_those_of_eager(name, tracked):
    model, z, x, *where = begin(CONFIGS[name])
    backend = default_backend(model.config)
    weights = [*model.stack.parameters(), *(() if model.log_noise is None else (model.log_noise,))]

    def gradients(by: Backend) -> list[Tensor]:
        given = x.clone().requires_grad_()
        after = by.segment(model, z, given, *where, tracked=tracked)
        loss = sum(
            (part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in after.tensors()
        )
        return list(torch.autograd.grad(loss, [given, *weights], materialize_grads=True))

    for found, wanted in zip(gradients(backend), gradients(EAGER), strict=True):
        assert float((found - wanted).abs().max()) <= 5e-3 * max(float(wanted.abs().max()), 1.0)


@pytest.mark.parametrize("name", ["tokens", "attention", "candidates", "live candidates", "neighbours"])
def test_transforms_go_through_a_backend(name):
    model, z, x, *where = begin(CONFIGS[name])
    backend = default_backend(model.config)
    tangent = State(*(torch.randn_like(latent) for latent in z.tensors()))

    def slopes(by: Backend) -> State:
        return torch.func.jvp(lambda z: by.segment(model, z, x, *where), (z,), (tangent,))[1]

    assert close(slopes(backend), slopes(EAGER), 1e-4)
    two = [torch.stack((a, b)) for a, b in zip(z.tensors(), tangent.tensors(), strict=True)]
    both = torch.func.vmap(
        lambda *z: backend.segment(model, State(*z), x, *where, perturbation=STILL).tensors()
    )
    plain = EAGER.segment(model, z, x, *where, perturbation=STILL).tensors()
    for found, wanted in zip(both(*two), plain, strict=True):
        assert torch.allclose(found[0], wanted, atol=1e-4)


@cache
def shipped(name: str) -> tuple[Reasoner, State, Tensor, Tensor, Tensor]:
    model = load(name)
    puzzles = torch.ones(2, model.config.cells, dtype=torch.uint8)
    keys, depths = keys_of(2)
    x = model.embed_tokens(puzzles)
    return model, model.initial_state(x, keys), x, keys, depths


@pytest.mark.parametrize("name", ["sudoku-4x4", "maze", "sudoku-9x9"])
def test_eager_runs_what_one_reads_for_shipped_models_too(monkeypatch, capsys, name):
    model, *given = shipped(name)
    capsys.readouterr()
    for wrapper in (Damped, Noisy):  # as with a print typed into either
        apply = wrapper.__call__
        printing = lambda self, *what, apply=apply: (print(type(self).__name__), apply(self, *what))[1]  # noqa: E731
        monkeypatch.setattr(wrapper, "__call__", printing)
    with torch.inference_mode():
        found = EAGER.segment(model, *given)
        assert capsys.readouterr().out.split() == ["Noisy", "Damped"] * model.config.applications
        fast = default_backend(model.config).segment(model, *given)
    assert not capsys.readouterr().out, "the cpu backend has kernels for this"
    assert close(fast, found)
    with default_backend(model.config).alone(), torch.inference_mode():
        inside = EAGER.segment(model, *given)
    assert all(torch.equal(a, b) for a, b in zip(inside.tensors(), found.tensors(), strict=True))


IMPORTING = """
import hashlib, torch
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.structured import Groups
from eqr.model.systems import eqr
from eqr.tasks import task_named

torch.set_num_threads(1)

def bits():
    found = hashlib.sha256()
    path = Perturbation(damping=0.05, noise=0.1)
    for fields in ({}, {"mixer": Groups()}, {"mixer": "attention"}):
        model = Reasoner(eqr(task_named("sudoku-4x4"), width=32, cycles=1, path=path, **fields))
        x, keys = model.embed_tokens(torch.ones(3, 16, dtype=torch.long)), torch.arange(3)
        z = model.initial_state(x, keys)
        reading = model.read(model.segment(z, x, keys, keys), z)
        for part in (reading.logits, reading.residual):
            found.update(part.detach().numpy().tobytes())
    return found.hexdigest()

before = bits()
from eqr.backends import default_backend
default_backend(Reasoner(eqr(task_named("sudoku-4x4"))).config).map(lambda rows: rows, 8)
print(before == bits())
"""


def test_importing_a_backend_changes_no_number():
    run = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    assert run.stdout == "True\n", run.stderr[-2000:]


def test_work_on_a_piece_is_not_cut_again():
    model, z, x, keys, depths = begin(CONFIGS["tokens"])
    backend = cut(model.config)

    def work(rows: slice) -> Tensor:
        with torch.no_grad():
            return backend.segment(model, z.chunk(rows), x[:, rows], keys[rows], depths[rows]).answer

    together = torch.cat(backend.map(work, ROWS), dim=1)
    with torch.no_grad():
        assert torch.allclose(together, backend.segment(model, z, x, keys, depths).answer, atol=2e-3)
        whole = backend.map(lambda rows: backend.executor.cuts(ROWS) if rows.start == 0 else [], ROWS)
    assert len(whole[0]) > 1


def test_a_backend_of_ones_own_is_found_by_name():
    @register
    class Twice(Eager):
        """Advances two segments for one."""

        name = "twice"

        def segment(self, model, state, x, keys, depths, **how):
            between = super().segment(model, state, x, keys, depths, **how)
            return super().segment(model, between, x, keys, depths + 1, **how)

    model, z, *given = begin(CONFIGS["tokens"])
    found = BACKENDS["twice"].solving(model.config).segment(model, z, *given)
    assert not close(found, EAGER.segment(model, z, *given))
    assert {"eager", "cpu", "compiled", "twice"} <= set(BACKENDS)
    with pytest.raises(Exception, match="did you mean 'eager'"):
        BACKENDS["eagre"]
    assert isinstance(default_backend(model.config), Cpu)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a cpu")
@pytest.mark.parametrize("name", ["tokens", "live candidates"])
def test_compiled_segments_and_gradients_are_those_of_eager(name):
    model, z, x, *where = begin(CONFIGS[name].replace(recurrence=SingleState(cycles=1, applications=1)))
    backend = Compiled()
    with torch.no_grad():
        found = backend.segment(model, z, x, *where)
        assert found.rows == ROWS
        assert close(found, EAGER.segment(model, z, x, *where))
        took = backend.compile_seconds
        assert took > 0
        one = slice(0, ROWS - 1)
        fewer = backend.segment(model, z.chunk(one), x[:, one], *(part[one] for part in where))
    assert close(fewer, found.chunk(one), 1e-4)
    if name == "tokens":
        weights = list(model.stack.parameters())
        both = [by.segment(model, z, x, *where).answer.square().sum() for by in (backend, EAGER)]
        for mine, theirs in zip(*(torch.autograd.grad(loss, weights) for loss in both), strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))
