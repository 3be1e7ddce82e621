"""`Reasoner`: embed a puzzle, start a state, advance it a segment, read it.

The model knows nothing of depth, breadth, halting, training or devices. Those are arguments of its callers
(`eqr.dynamics`, `eqr.solve`, `eqr.train`), and compilation or precision are applied from outside.
"""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from eqr.errors import UserError
from eqr.model.config import Positions, ReasonerConfig
from eqr.model.definitions import choose_noise, matrix, noise_vectors, row_key
from eqr.model.operator import STILL, Applications, Move, Noise, Perturbation, Stack, run_segment
from eqr.model.saving import Saved
from eqr.model.state import Input, Reading, State, halt_scores, products
from eqr.tasks import task_named
from eqr.tasks.base import Task

HALT_BIAS = -5.0
"""A fresh model says "not done" with certainty, so that halting is learned and not stumbled into."""


class Reasoner(Saved):
    """A learned dynamical system z <- f(z; x) with two heads."""

    identity_table: Tensor | None

    def __init__(self, config: ReasonerConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.moves = config.recurrence.moves()
        generator = torch.Generator().manual_seed(seed)
        width = config.width
        self.sites = None if config.sites is None else config.sites.layer(config)
        # of a candidate: its cell holds no symbol (but which token), the candidate, or another symbol
        kinds = config.vocabulary if self.sites is None else self.sites.first + 2
        self.embedding = matrix(kinds, width, generator)
        learned = config.positions is Positions.LEARNED
        self.position = matrix(config.tokens, width, generator) if learned else None
        self.stack = Stack(config, generator)
        self.answer_stack = Stack(config, generator) if config.recurrence.two_stacks else None
        self.answer_head = matrix(config.vocabulary if self.sites is None else 1, width, generator)
        self.halt_head = nn.Linear(width, 2)
        nn.init.zeros_(self.halt_head.weight)
        nn.init.constant_(self.halt_head.bias, HALT_BIAS)
        self.starter = config.start.starter(config, generator)
        # relative to the config's, so that weight decay pulls towards that scale and not towards 1
        scales = torch.zeros(2 if config.two_states else 1)
        self.log_noise = nn.Parameter(scales) if config.path.learned_noise else None
        # trained by sign descent on the rows a batch uses, hence not an ordinary parameter
        table = torch.zeros(config.identities, width) if config.identities else None
        self.register_buffer("identity_table", table)

    def forward(self, z: State, x: Input) -> State:
        """Return f(z; x): one segment without damping and noise, the map whose fixed points are answers."""
        keys = torch.zeros(z.rows, dtype=torch.int64, device=z.answer.device) if z.keys is None else z.keys
        depths = torch.zeros_like(keys) if z.depths is None else z.depths
        moved = self.segment(z, x.embedding, keys, depths, perturbation=STILL)
        return replace(moved, keys=z.keys, depths=None if z.depths is None else z.depths + 1)

    @property
    def still(self) -> Perturbation:
        """Its own damping, without noise."""
        return self.config.path.still

    def embed(self, puzzles: str | NDArray[Any] | Tensor, identity: int = 0, *, copies: int = 1) -> Input:
        """Embed a puzzle as typed, or puzzles as tokens (rows, cells), each so many times.

        `identity` numbers the family that they belong to, where the model knows families (Mini-ARC).
        """
        if isinstance(puzzles, str):
            if self.config.task is None:
                raise UserError("this model does not say which task it is for: give the puzzle as tokens")
            puzzles = task_named(self.config.task).parse(puzzles)
        plain = puzzles if isinstance(puzzles, Tensor) else torch.from_numpy(np.array(puzzles))
        tokens = plain.to(self.embedding.device, torch.uint8)
        tokens = tokens.view(-1, tokens.shape[-1]).repeat_interleave(copies, dim=0)
        identities = torch.full((len(tokens),), identity, device=tokens.device)
        return Input(self.embed_tokens(tokens, self.identity_vectors(identities)), tokens, identities)

    def start(self, x: Input, *, seed: int = 0) -> State:
        """Draw a start for each row; copies of one puzzle are its restarts, as `eqr solve` numbers them."""
        seen: Counter[bytes] = Counter()
        families = [0] * len(x.puzzles) if x.identities is None else x.identities.tolist()
        keys = []
        for puzzle, family in zip(x.puzzles.cpu().numpy(), families, strict=True):
            keys.append(row_key(seed, puzzle, seen[puzzle.tobytes()], family))
            seen[puzzle.tobytes()] += 1
        known = torch.tensor(keys, device=x.embedding.device)
        return replace(self.initial_state(x.embedding, known), keys=known, depths=torch.zeros_like(known))

    def identity_vectors(self, identities: Tensor) -> Tensor | None:
        """Look up the identity vectors (rows, width) of a batch, None for models without identities."""
        if self.identity_table is None:
            return None
        return self.identity_table.index_select(0, identities.long())

    def embed_tokens(self, puzzles: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Embed puzzles (rows, cells), with their identity vectors, as x (tokens, rows, width)."""
        config = self.config
        if puzzles.shape[1] != config.cells:
            raise UserError(f"this model reads {config.cells} cells, the puzzle has {puzzles.shape[1]}")
        tokens = puzzles.t().long()
        x = self.embedding[tokens] if self.sites is None else self.sites.embed(tokens, self.embedding)
        if config.identity_tokens:
            lead = x.new_zeros(config.identity_tokens, x.shape[1], config.width)
            if vectors is not None:
                lead = torch.cat((vectors.to(x.dtype).unsqueeze(0), lead[1:]))
            x = torch.cat((lead, x))
        if self.position is not None:
            x = (x + self.position.unsqueeze(1)) * 0.5**0.5
        return torch.mul(x, config.width**0.5)

    def initial_state(self, x: Tensor, keys: Tensor) -> State:
        """Return the initial state of each row; keys (rows,) int64 stand for (seed, puzzle, restart)."""
        state: State = self.starter(x, keys)
        return state if self.sites is None else self.sites.begin(state, x)

    def segment(
        self,
        state: State,
        x: Tensor,
        keys: Tensor,
        depths: Tensor,
        *,
        perturbation: Perturbation | None = None,
        tracked: int | None = None,
    ) -> State:
        """Advance every row by one segment.

        `depths` (rows,) int64 counts the segments each row has behind it, so that noise is fresh;
        `perturbation` overrides damping and noise for this run; `tracked` is the gradient window in
        applications.
        """
        perturbation = perturbation or self.config.path
        of_answer, of_scratch = self.noise(perturbation, keys, depths)
        applications = Applications(
            answer=perturbation.around(self.answer_stack or self.stack, of_answer),
            scratch=perturbation.around(self.stack, of_scratch),
        )
        return self.run(state, x, applications, tracked=tracked)

    def run(
        self,
        state: State,
        x: Tensor,
        applications: Applications,
        *,
        moves: Sequence[Move] | None = None,
        tracked: int | None = None,
    ) -> State:
        """Run a segment, or some other `moves`, of applications that are already perturbed."""
        run = run_segment if self.sites is None else self.sites.run
        return run(state, x, moves or self.moves, applications, tracked=tracked)

    def noise(
        self, perturbation: Perturbation, keys: Tensor, depths: Tensor
    ) -> tuple[Noise, Noise] | tuple[None, None]:
        """Return what a segment adds to answer and scratch state; None where a perturbation has no noise."""
        if not perturbation.noise:
            return None, None
        vectors = noise_vectors(self.config.width, keys.device)
        chosen = choose_noise(keys, depths, len(self.moves), self.config.tokens)
        if not perturbation.learned_noise:
            noise = Noise(vectors, chosen, perturbation.noise)
            return noise, noise
        if self.log_noise is None:
            raise UserError("this model has no learned noise scale; set path.learned_noise to false")
        scales = self.config.path.noise * self.log_noise.exp()
        return Noise(vectors, chosen, scales[0]), Noise(vectors, chosen, scales[-1])

    def perturbed_by(self, perturbation: Perturbation) -> Self:
        """Return this model, weights shared, with another perturbation, yours included."""
        view = copy(self)
        view.config = self.config.replace(path=perturbation)
        return view

    def read(self, state: State, before: State) -> Reading:
        """Read both heads; the residual compares with the state a segment earlier."""
        seen = state.answer if self.config.mixer.reads_mean else state.answer[:1]
        scores = halt_scores(seen, self.halt_head.weight, self.halt_head.bias).float()
        return Reading(
            logits=self.decode(state),
            halt=scores[:, 0],
            continue_score=scores[:, 1],
            residual=state.distance(before),
        )

    def decode(self, state: State) -> Tensor:
        """Return the logits (rows, cells, vocabulary) of the answer state."""
        logits = products(state.answer[self.config.identity_tokens :], self.answer_head)
        return logits.transpose(0, 1) if self.sites is None else self.sites.decode(logits, state.answer)

    def for_task(self, task: Task) -> "Reasoner":
        """Return a model with these weights that reads grids of `task`: itself, or a copy of that size."""
        config = self.config
        wanted = (*task.shape, task.vocabulary)
        same_size = (config.rows, config.columns, config.vocabulary) == wanted
        if same_size and (task.name == config.task or config.mixer.fits(config, task.name)):
            return self
        fixed = config.mixer.sized or config.positions is Positions.LEARNED
        if fixed or (config.sites is None and config.vocabulary != task.vocabulary):
            raise UserError(
                f"this model reads {config.rows}x{config.columns} grids of {config.vocabulary} tokens; "
                f"{task.name} has {task.shape[0]}x{task.shape[1]} of {task.vocabulary}"
            )
        sizes = dict(zip(("rows", "columns", "vocabulary"), wanted, strict=True))
        resized = type(self)(config.replace(task=task.name, **sizes))
        resized.load_state_dict(self.state_dict())
        resized.measured = self.measured
        return resized.to(self.embedding).requires_grad_(self.embedding.requires_grad)
