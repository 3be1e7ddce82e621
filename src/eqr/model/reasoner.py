"""`Reasoner`: embed a puzzle, start a state, advance it a segment, read it.

The model is plain: it knows nothing of depth, breadth, halting, training or devices. Those are arguments of
whoever calls it (`eqr.solve`, `eqr.train`), and compilation or precision are applied from outside.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Self

import torch
from torch import Tensor, nn

from eqr.errors import UserError
from eqr.model.blocks import Stack
from eqr.model.config import Path, Positions, ReasonerConfig
from eqr.model.counters import NoiseBank
from eqr.model.layers import matrix, scaled_normal
from eqr.model.live import Rules, holds, only_open
from eqr.model.operator import Bare, Damped, Numbered, Wrapped, run_segment, strayed
from eqr.model.saving import Saved
from eqr.model.state import Reading, State
from eqr.tasks.base import Task

HALT_BIAS = -5.0
"""A fresh model says "not done" with certainty, so that halting is learned and not stumbled into."""


IMPOSSIBLE = -1e4
"""Logit of tokens that are no candidates: no weight in any softmax, yet a number to calculate with."""


class Reasoner(Saved):
    """A learned dynamical system z <- f(z; x) with two heads."""

    identity_table: Tensor | None

    def __init__(self, config: ReasonerConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.moves = config.recurrence.moves()
        generator = torch.Generator().manual_seed(seed)
        width = config.width
        # a candidate is the symbol given in its cell, or another is, or the cell holds no symbol
        kinds = config.vocabulary if config.sites is None else config.sites.first + 2
        self.embedding = nn.Parameter(scaled_normal(kinds, width, std=width**-0.5, generator=generator))
        self.position = (
            nn.Parameter(scaled_normal(config.tokens, width, std=width**-0.5, generator=generator))
            if config.positions is Positions.LEARNED
            else None
        )
        self.stack = Stack(config, generator)
        self.answer_stack = Stack(config, generator) if config.recurrence.two_stacks else None
        self.answer_head = matrix(config.vocabulary if config.sites is None else 1, width, generator)
        self.halt_head = nn.Linear(width, 2)
        nn.init.zeros_(self.halt_head.weight)
        nn.init.constant_(self.halt_head.bias, HALT_BIAS)
        self.starter = config.start.starter(config, generator)
        self.rules = Rules(config) if config.live else None
        # relative to the config's, so that weight decay pulls towards that scale and not towards 1
        self.log_noise = (
            nn.Parameter(torch.zeros(2 if config.two_states else 1)) if config.path.learned_noise else None
        )
        # trained by sign descent on the rows a batch uses, hence not an ordinary parameter
        table = torch.zeros(config.identities, width) if config.identities else None
        self.register_buffer("identity_table", table)
        self._bank: NoiseBank | None = None
        self.wrappers: tuple[Callable[[Numbered], Numbered], ...] = ()

    def forward(
        self,
        puzzles: Tensor,
        keys: Tensor | None = None,
        identities: Tensor | None = None,
        *,
        depth: int = 16,
    ) -> Tensor:
        """Embed puzzles (rows, cells), run `depth` segments from the start and return the logits.

        Whoever wants halting, breadth or what lies between uses `eqr.solve`; this is the whole model as one
        function, for graphs and function transforms. Without keys every row starts and strays alike.
        """
        x = self.embed(puzzles, None if identities is None else self.identity_vectors(identities))
        keys = torch.zeros_like(puzzles[:, 0], dtype=torch.int64) if keys is None else keys
        state = self.start(x, keys)
        for segment in range(depth):
            state = self.segment(state, x, keys, torch.full_like(keys, segment))
        return self.decode(state)

    def identity_vectors(self, identities: Tensor) -> Tensor | None:
        """Look up the identity vectors (rows, width) of a batch, None for models without identities."""
        if self.identity_table is None:
            return None
        return self.identity_table.index_select(0, identities.long())

    def embed(self, puzzles: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Embed puzzles (rows, cells), with their identity vectors, as x (tokens, rows, width)."""
        config = self.config
        if puzzles.shape[1] != config.cells:
            raise UserError(f"this model reads {config.cells} cells, the puzzle has {puzzles.shape[1]}")
        kinds = self._kinds(puzzles.t().long())
        x = self.embedding[kinds]
        if self.rules is not None and config.sites is not None:
            x = torch.where(self.rules.possible((kinds == config.sites.first).unsqueeze(2)), x, 0.0)
        if config.identity_tokens:
            lead = x.new_zeros(config.identity_tokens, x.shape[1], config.width)
            if vectors is not None:
                lead = torch.cat((vectors.to(x.dtype).unsqueeze(0), lead[1:]))
            x = torch.cat((lead, x))
        if self.position is not None:
            x = (x + self.position.unsqueeze(1)) * 0.5**0.5
        return torch.mul(x, config.width**0.5)

    def _kinds(self, tokens: Tensor) -> Tensor:
        """Return which embedding each site takes, (sites, rows), given the tokens (cells, rows)."""
        if self.config.sites is None:
            return tokens
        first, symbols = self.config.sites.first, self.config.symbols
        own = torch.arange(first, first + symbols, device=tokens.device).view(1, -1, 1)
        held = tokens.unsqueeze(1)
        given = torch.where(held == own, first, first + 1)
        return torch.where(held < first, held, given).flatten(0, 1)

    def start(self, x: Tensor, keys: Tensor) -> State:
        """Return the initial state of each row; keys (rows,) int64 stand for (seed, puzzle, restart)."""
        state: State = self.starter(x, keys)
        if self.rules is None:
            return state
        there = holds(x)
        return State(*(torch.where(there, latent, 0.0) for latent in state.tensors()))

    def segment(
        self,
        state: State,
        x: Tensor,
        keys: Tensor,
        depths: Tensor,
        *,
        path: Path | None = None,
        tracked: int | None = None,
    ) -> State:
        """Advance every row by one segment.

        `depths` (rows,) int64 counts the segments each row has behind it, so that noise is fresh; `path`
        overrides damping and noise for this run; `tracked` is the gradient window in applications.
        """
        wrapped = self._wrap(path or self.config.path, keys, depths)
        if self.rules is None:
            return run_segment(state, x, self.moves, wrapped, tracked=tracked)
        return only_open(self.rules.open(x), state, x, self.moves, wrapped, tracked=tracked)

    def wrapped_by(self, *wrappers: Callable[[Numbered], Numbered]) -> Self:
        """Return this model, weights shared, with wrappers of your own around damping and noise.

        Each is called once per segment and state, with the application to wrap.
        """
        view = copy(self)
        view.wrappers = (*self.wrappers, *wrappers)
        return view

    def read(self, state: State, before: State) -> Reading:
        """Read both heads; the residual compares with the state a segment earlier."""
        seen = state.answer.mean(dim=0) if self.config.mixer.reads_mean else state.answer[0]
        scores = nn.functional.linear(seen, self.halt_head.weight, self.halt_head.bias).float()
        return Reading(
            logits=self.decode(state),
            halt=scores[:, 0],
            continue_score=scores[:, 1],
            residual=state.distance(before),
        )

    def decode(self, state: State) -> Tensor:
        """Return the logits (rows, cells, vocabulary) of the answer state."""
        config = self.config
        logits = state.answer[config.identity_tokens :] @ self.answer_head.t()
        if config.sites is None:
            return logits.transpose(0, 1)
        if self.rules is not None:
            logits = torch.where(holds(state.answer), logits, IMPOSSIBLE)
        scores = logits.view(config.cells, config.symbols, -1).permute(2, 0, 1)
        return nn.functional.pad(scores, (config.sites.first, 0), value=IMPOSSIBLE)

    def for_task(self, task: Task) -> "Reasoner":
        """Return a model with these weights that reads grids of `task`: itself, or a copy of that size."""
        config = self.config
        wanted = (*task.shape, task.vocabulary)
        if (config.rows, config.columns, config.vocabulary) == wanted:
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

    def parameter_count(self) -> int:
        """Number of trained parameters, without buffers and the sparse identity table."""
        return sum(parameter.numel() for parameter in self.parameters())

    def _wrap(self, path: Path, keys: Tensor, depths: Tensor) -> Wrapped:
        scratch: Numbered = Bare(self.stack)
        answer: Numbered = Bare(self.answer_stack or self.stack)
        if path.noise:
            bank, chosen = self.noise(keys, depths)
            of_answer, of_scratch = self._noise_scales(path)
            answer = strayed(answer, path.damping, of_answer, bank, chosen)
            scratch = strayed(scratch, path.damping, of_scratch, bank, chosen)
        elif path.damping:
            scratch, answer = Damped(scratch, path.damping), Damped(answer, path.damping)
        for wrap in self.wrappers:
            answer, scratch = wrap(answer), wrap(scratch)
        return Wrapped(answer=answer, scratch=scratch)

    def _noise_scales(self, path: Path) -> tuple[float | Tensor, float | Tensor]:
        if not path.learned_noise:
            return path.noise, path.noise
        if self.log_noise is None:
            raise UserError("this model has no learned noise scale; set path.learned_noise to false")
        learned = self.config.path.noise * self.log_noise.exp()
        return learned[0], learned[-1]

    def noise(
        self, keys: Tensor, depths: Tensor, *, since: Tensor | int = 0, applications: int | None = None
    ) -> tuple[NoiseBank, Tensor]:
        """Return the bank of noise and what a segment picks of it, (applications, tokens, rows).

        For a part of a segment say `since` which application it goes on and how many are asked for.
        """
        bank, count = self.noise_bank(keys.device), applications or len(self.moves)
        return bank, bank.choose(keys + (depths << 20) + since, count, self.config.tokens)

    def noise_bank(self, device: torch.device) -> NoiseBank:
        """Return the vectors that path noise is picked from, made on first use."""
        if self._bank is None or self._bank.vectors.device != device:
            # drawn on a thread of its own: modes of tracing, transforms and inference end at its border
            with ThreadPoolExecutor(1) as aside:
                self._bank = aside.submit(NoiseBank, self.config.width, device=device).result()
        return self._bank
