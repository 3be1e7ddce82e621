"""A reasoner with known dynamics: it contracts towards the answer, or for some starts towards a wrong one.

How fast is decided by the row's key, so that rows halt at different depths; some never do. The dynamics are
element by element, so a row does not depend on the batch it is in; what is read off it is summed over tokens,
in an order that may, which is why floats are compared up to rounding.
"""

import numpy as np
import torch
from torch import Tensor

from eqr.data import PuzzleSet
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import scramble
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import Reading, State
from eqr.tasks import task_named


def assert_equal_up_to_rounding(mine: np.ndarray, theirs: np.ndarray, name: str = "") -> None:
    """Compare integers and flags exactly, floats to a few units in the last place."""
    if np.issubdtype(mine.dtype, np.floating):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=name)
    else:
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def puzzles_4x4(count: int, *, seed: int = 0) -> PuzzleSet:
    """Draw 4x4 Sudoku puzzles; their ratings are made up, so that there are some."""
    task = task_named("sudoku-4x4")
    made = task.generate(np.random.default_rng(seed))
    drawn = [next(made) for _ in range(count)]
    return PuzzleSet.of(
        task.name,
        np.stack([one.puzzle for one in drawn]),
        np.stack([one.answer for one in drawn]),
        ratings=np.arange(count) % 7,
    )


class Settling(Reasoner):
    """z <- z + rate (x - z), where x is the answer; a rate of 0 never arrives."""

    def __init__(self, puzzles: PuzzleSet, *, wrong: float = 0.2, stuck: float = 0.1) -> None:
        task = task_named(puzzles.task)
        config = ReasonerConfig(
            task=task.name,
            rows=task.shape[0],
            columns=task.shape[1],
            vocabulary=task.vocabulary,
            width=8,
            round_hidden_to=8,
        )
        super().__init__(config)
        self.wrong, self.stuck = wrong, stuck
        rows = zip(puzzles.inputs, puzzles.labels, strict=True)
        self.answers = {puzzle.tobytes(): torch.as_tensor(np.array(answer)) for puzzle, answer in rows}

    def embed_tokens(self, puzzles: Tensor, vectors: Tensor | None = None) -> Tensor:
        answers = torch.stack([self.answers[puzzle.cpu().numpy().tobytes()] for puzzle in puzzles])
        return torch.nn.functional.one_hot(answers.t().long(), self.config.width).float()

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
        luck = (scramble(keys) % 1000).float() / 1000
        rate = 0.05 + 0.9 * ((scramble(keys + 7) % 1000).float() / 1000)
        rate = torch.where(luck < self.stuck, 0.0, rate).view(1, -1, 1)
        lost = (luck > 1 - self.wrong).view(1, -1, 1)
        goal = torch.where(lost, x.roll(1, dims=0), x)
        return State(*(z + rate * (goal - z) for z in state.tensors()))

    def read(self, state: State, before: State) -> Reading:
        residual = state.distance(before)
        halt = torch.where(residual > 0, torch.log(0.05 / residual.clamp_min(1e-9)), -5.0)
        return Reading(logits=self.decode(state), halt=halt, continue_score=-halt, residual=residual)

    def decode(self, state: State) -> Tensor:
        return state.answer[:, :, : self.config.vocabulary].transpose(0, 1).clone()
