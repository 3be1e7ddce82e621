"""What inference and training cost, from a config and a recipe: segments, layers, operations and bytes.

NFE counts segments (outer iterations) over all starts of a puzzle, as the paper's appendix D.4 does; the
operations counted are those of the matrix products, two for each multiply-add.

Training costs are the paper's symbolic ones (appendix A.2), evaluated for one recipe. The paper counts in
segments: here a base trajectory is one segment (L = 1) and the long one has the recipe's depth (its 16L). For
memory, unit costs are the bytes autograd really keeps for a tracked segment, found by running one on a row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from eqr.backends import default_backend
from eqr.model.config import ReasonerConfig
from eqr.model.reasoner import Reasoner
from eqr.train.recipe import Recipe

UPDATE_OPERATIONS = 15
"""Operations per parameter of an Adam-like update with weight decay and averaging."""
PARAMETER_COPIES = 5
"""Floats kept per parameter: weight, gradient, two moments, average."""


def flops_per_segment(config: ReasonerConfig) -> int:
    """Return the operations of one segment of one row, without the reading."""
    return config.layers_per_segment * flops_per_block(config)


def flops_per_block(config: ReasonerConfig) -> int:
    """Return the operations of one block on one row."""
    tokens, width = config.tokens, config.width
    hidden = config.hidden(width)
    channels = 3 * tokens * width * hidden + (2 * tokens * hidden if config.convolution else 0)
    return 2 * (config.mixer.multiply_adds(config) + channels)


def flops_per_reading(config: ReasonerConfig) -> int:
    """Return the operations of the two heads on one row."""
    scores = config.cells * (config.vocabulary if config.sites is None else config.symbols)
    return 2 * config.width * (scores + 2)


def equivalent_layers(config: ReasonerConfig, nfe: float) -> float:
    """Return the layer evaluations of `nfe` segments, NLE in the paper."""
    return nfe * config.layers_per_segment


def flops(config: ReasonerConfig, nfe: float) -> float:
    """Return the operations of `nfe` segments, each with its reading."""
    return nfe * (flops_per_segment(config) + flops_per_reading(config))


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """The symbols of the paper's table, for a batch: operations and bytes per optimizer step."""

    forward: float
    """F: one segment forward."""
    loss: float
    """c_l: backward through the heads, twice their forward."""
    parameters: float
    """c_B: backward inside a segment, two products for each forward one; c_J has the first states'."""
    parameters_truncated: float
    """c_B^trunc: the same for the tracked applications only."""
    state: float
    """c_J: what it takes beyond c_B to hand the gradient on to the segment before."""
    sharing: float
    """c_theta: adding a segment's gradient to the shared one."""
    update: float
    """c_u: the optimizer."""
    activations: float
    """a_f, and a_f^det, which holds the same tensors."""
    activations_truncated: float
    """a_f^trunc."""
    loss_activations: float
    """a_l: logits and their probabilities."""
    parameter_memory: float
    """P."""
    applications: int
    """Applications per segment; without weight tying each has parameters of its own."""


@dataclass(frozen=True)
class TrainingCost:
    """One row of the paper's table, evaluated per optimizer step of the whole batch."""

    forward: float
    """Operations of the forward pass."""
    backward_formula: str
    backward: float
    """Operations of the backward pass and the update."""
    memory_formula: str
    memory: float
    """Bytes of activations and parameter-side memory kept for the backward pass."""


def unit_costs(config: ReasonerConfig, *, rows: int, tracked: int | None) -> UnitCosts:
    """Return the unit costs for batches of `rows` when the last `tracked` applications have a gradient."""
    reasoner = Reasoner(config)
    count, applications = reasoner.parameter_count(), config.applications
    forward = float(rows * flops_per_segment(config))
    kept = min(tracked or applications, applications)
    return UnitCosts(
        forward=forward,
        loss=2.0 * rows * flops_per_reading(config),
        parameters=forward * (2 - 1 / applications),
        parameters_truncated=forward * (2 * kept - 1) / applications,
        state=forward / applications,
        sharing=float(count),
        update=float(UPDATE_OPERATIONS * count),
        activations=float(rows * kept_bytes(reasoner, applications)),
        activations_truncated=float(rows * kept_bytes(reasoner, kept)),
        loss_activations=8.0 * rows * config.cells * config.vocabulary,
        parameter_memory=4.0 * PARAMETER_COPIES * count,
        applications=applications,
    )


def kept_bytes(reasoner: Reasoner, tracked: int) -> int:
    """Return the bytes autograd keeps for one row's segment, weights and shared noise not counted."""
    config, sizes = reasoner.config, dict[int, int]()
    weights = {weight.untyped_storage().data_ptr() for weight in reasoner.parameters()}

    def pack(kept: Tensor) -> Tensor:
        place = kept.untyped_storage().data_ptr()
        if place not in weights:
            sizes[place] = kept.untyped_storage().nbytes()
        held.append(kept)  # alive until counted, or a later tensor could take its place
        return kept

    held: list[Tensor] = []
    key = torch.zeros(1, dtype=torch.int64)
    x = reasoner.embed_tokens(torch.ones(1, config.cells, dtype=torch.int64))
    state = reasoner.initial_state(x, key).detach()
    still = config.path.replace(noise=0.0, learned_noise=False)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        default_backend(config).segment(reasoner, state, x, key, key, perturbation=still, tracked=tracked)
    return sum(sizes.values())


def training_cost_rows(u: UnitCosts, *, depth: int) -> list[TrainingCost]:
    """Evaluate rows 1 to 8 of the table for trajectories of `depth` segments."""
    t, one, full = depth, "c_l + c_B + c_u", "{0}L·c_B + ({0}L-1)(c_J + c_θ) + c_u".format
    a, a_l, p = u.activations, u.loss_activations, u.parameter_memory
    shared, detached = a + a_l + p, "a_f^det + a_l + P"
    trajectory = t * (u.loss + u.parameters) + (t - 1) * u.sharing + u.update
    truncated = u.loss + u.parameters_truncated + u.update
    rows = (
        # untied layers, L
        (1, "c_l + L·c_B + (L-1)·c_J + L·c_u", _full(u, 1, tied=False),
         "L·a_f + a_l + L·P", a + u.applications * p + a_l),
        # weight-tied, L
        (1, "c_l + L·c_B + (L-1)(c_J + c_θ) + c_u", _full(u, 1), "L·a_f + a_l + P", shared),
        # full gradient, 2L and the whole trajectory
        (2, f"c_l + {full(2)}", _full(u, 2), "2L·a_f + a_l + P", 2 * a + p + a_l),
        (t, f"c_l + {full(t)}", _full(u, t), f"{t}L·a_f + a_l + P", t * a + p + a_l),
        # detached
        (t, one, _full(u, 1), detached, shared),
        # trajectory supervision
        (t, f"{t}L(c_l + c_B) + ({t}L-1)·c_θ + c_u", trajectory,
         f"{t}L(a_f^det + a_l) + P", t * a + (t - 1) * a_l + p + a_l),
        # segmented online, and with truncation
        (1, one, _full(u, 1), detached, shared),
        (1, "c_l + c_B^trunc + c_u", truncated, "a_f^trunc + a_l + P", u.activations_truncated + p + a_l),
    )  # fmt: skip
    return [
        TrainingCost(segments * u.forward, formula, backward, memory_formula, memory)
        for segments, formula, backward, memory_formula, memory in rows
    ]


def _full(u: UnitCosts, segments: int, *, tied: bool = True) -> float:
    """C_full(T): one loss, back-propagated through T segments."""
    chain = segments * u.parameters + (segments - 1) * u.state
    update = (segments - 1) * u.sharing + u.update if tied else u.applications * u.update
    return u.loss + chain + update


def own_row(recipe: Recipe) -> int:
    """Return the table's row that a recipe trains by."""
    schedule = recipe.schedule
    if schedule.kind == "segmented-online":
        return 7 if schedule.applications is None else 8
    if schedule.kind == "terminal-full":
        tied = recipe.model.recurrence.iterates
        return min(1 + schedule.depth, 4) if tied else 1
    return 5 if schedule.kind == "terminal-detached" else 6


def training_operations(recipe: Recipe) -> float:
    """Return the operations of a whole training: forward everywhere, twice that backward where tracked."""
    segment = recipe.rows * flops_per_segment(recipe.model)
    windows = recipe.schedule.windows(recipe.schedule.depth)
    share = (recipe.schedule.applications or recipe.model.applications) / recipe.model.applications
    per_step = sum(window.untracked + window.tracked * (1 + 2 * share) for window in windows) * segment
    return recipe.steps * per_step
