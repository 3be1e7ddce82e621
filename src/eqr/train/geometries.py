"""`GeometryTrainer`: each step is about the rows of one random geometry, several of which take turns.

A geometry decides the tables of an operator and none of its weights. So each has a model of its own that
shares the weights of all (`sharing`), rows that live on from turn to turn, and leaves after its turns. Which
geometry a step is about follows from the number of the step, so that a run goes on where it ended.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eqr.data import Batches, GeneratedStream, PuzzleSet
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.puzzles.different import dug, random_geometry
from eqr.tasks.base import Task
from eqr.tasks.registry import TASKS
from eqr.train.recipe import Geometries, Recipe
from eqr.train.step import TrainingRows
from eqr.train.trainer import GO_ON, StepResult, StopRequest, Trainer

_GEOMETRY = 7
"""Sets the random numbers of geometries apart from others of the same seed."""


@dataclass
class Place:
    """A geometry under way."""

    number: int
    model: Reasoner
    stream: Batches
    rows: TrainingRows


class GeometryTrainer(Trainer):
    """A trainer whose rows are those of the geometry whose turn it is."""

    def __init__(self, recipe: Recipe, stream: Batches | GeneratedStream, **where: Any) -> None:
        super().__init__(recipe, stream, **where)
        if self.world.size > 1:
            raise UserError("data.geometries is for one process: train without torchrun")
        assert recipe.data.kind == "generated"
        assert recipe.data.geometries is not None
        self.geometries: Geometries = recipe.data.geometries
        self._places: dict[int, Place] = {}

    def step(self, stop: StopRequest = GO_ON) -> StepResult:
        """Take one optimizer step on the geometry whose turn it is."""
        place = self._place(self.step_number)
        home = self.model, self.stream, self.rows
        self.model, self.stream, self.rows = place.model, place.stream, place.rows
        self._refills = [int(self.rows.halted.sum())]
        try:
            return super().step(stop)
        finally:
            self.model, self.stream, self.rows = home

    def tensors(self) -> dict[str, Tensor]:
        """Return what changes from step to step, the rows of every geometry under way among it."""
        tensors = super().tensors()
        for at, place in self._places.items():
            tensors |= place.rows.tensors(f"places.{at}.")
        return tensors

    def record(self) -> dict[str, Any]:
        places = [[at, place.number, place.stream.state()] for at, place in self._places.items()]
        return {**super().record(), "places": places}

    @torch.no_grad()
    def restore(self, step: int, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        super().restore(step, tensors, record)
        for at, number, stream in record["places"]:
            place = self._places[at] = self._opened(number)
            place.rows.load(tensors, f"places.{at}.")
            place.stream.restore(stream)

    def _place(self, step: int) -> Place:
        """Return the place of a step's turn, with a fresh geometry in it if the last one has left."""
        turn, at = divmod(step, self.geometries.abreast)
        shift = at * self.geometries.turns // self.geometries.abreast  # they do not leave all at once
        number = (turn + shift) // self.geometries.turns * self.geometries.abreast + at
        place = self._places.get(at)
        if place is None or place.number != number:
            place = self._places[at] = self._opened(number)
        return place

    def _opened(self, number: int) -> Place:
        task, puzzles = geometry(self.recipe.seed, number, self.geometries.sizes, self.geometries.puzzles)
        TASKS.keep(task.name, task)
        try:
            model = sharing(self.model, task)
        finally:
            TASKS.forget(task.name)  # the model has its tables by now
        stream = Batches(puzzles, task, seed=number, augment=False, reveal=self.geometries.reveal)
        return Place(number, model, stream, TrainingRows.empty(self.recipe.rows, model.config, self.device))


def geometry(seed: int, number: int, sizes: tuple[int, ...], count: int) -> tuple[Task, PuzzleSet]:
    """Return geometry `number` of a seed and puzzles of it."""
    rng = np.random.default_rng([seed, _GEOMETRY, number])
    name = f"geometry-{seed}-{number}"
    task, answer = random_geometry(name, rng, int(rng.choice(sizes)))
    made = list(islice(dug(rng, task, answer), count))
    return task, PuzzleSet.of(name, [one.puzzle for one in made], [one.answer for one in made])


def sharing(model: Reasoner, task: Task) -> Reasoner:
    """Return a model with the tables of a task and the very weights of `model`."""
    other = model.for_task(task)
    for mine, theirs in zip(other.modules(), model.modules(), strict=True):
        mine._parameters.update(theirs._parameters)
    return other
