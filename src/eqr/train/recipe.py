"""`Recipe`: how to train one model, whole, as a frozen value; saved in every run as `recipe.json`.

Presets are in `eqr.recipes`. Changes are `recipe.replace(...)` in Python and `--set key=value` on the command
line; both are validated as a whole, and a mistyped key fails with the nearest known one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from eqr.errors import UserError, brief
from eqr.files import parse_word, read_json
from eqr.model.config import ReasonerConfig
from eqr.model.state import LearnedStart, Segments
from eqr.runs import RunFolder
from eqr.tasks import task_named
from eqr.train.loss import Loss
from eqr.train.optimizer import AdamAtan2, AnyOptimizer, Averaging, Decay, Rate, SignDescent
from eqr.train.schedule import AnyHalting, AnySchedule, Curriculum, LearnedHalt, SegmentedOnline
from eqr.value import Value

Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Ladder(Value):
    """A way up to puzzles that are out of reach: they teach once some of their answers are given away.

    Whole ones beyond a model's reach lower its accuracy (docs/lab-notes.md)."""

    path: str
    """A dataset folder; the puzzles of its train split join those that are generated."""
    copies: PositiveInt = 4
    """How often each joins, with other answers given away every time."""
    least: NonNegativeInt = 1
    most: PositiveInt = 5
    """How many answers are given away: `least` to `most`."""

    @model_validator(mode="after")
    def _goes_up(self) -> "Ladder":
        if self.least > self.most:
            raise ValueError(f"least {self.least} lies beyond most {self.most}")
        return self


class Geometries(Value):
    """Random all-different puzzles (`eqr.puzzles.different`): each step is about one geometry of several."""

    sizes: tuple[Annotated[int, Field(ge=4, le=16)], ...] = Field(default=(4, 5, 6, 7, 8, 9), min_length=1)
    """Sizes of grids, drawn evenly; one that stands twice is drawn twice as often."""
    abreast: PositiveInt = 16
    """Geometries in turn; each has rows of its own."""
    turns: PositiveInt = 32
    """Steps that a geometry is used for, before a fresh one takes its place."""
    puzzles: PositiveInt = 4
    """Puzzles of each."""
    reveal: NonNegativeInt = 4
    """Most answers given away in a row, drawn anew each time it comes."""


class Generated(Value):
    """Puzzles from the task's own generator."""

    newer: ClassVar[tuple[str, ...]] = ("validation_from", "ladder", "fewer", "geometries")

    kind: Literal["generated"] = "generated"
    task: str
    train: PositiveInt = 1000
    validation: PositiveInt = 256
    test: NonNegativeInt = 1000
    seed: Seed = 42
    options: dict[str, Any] = Field(default_factory=dict)
    """The generator's options (`eqr tasks --json` lists them)."""
    endless: bool = False
    """Train on ever fresh puzzles instead of on `train` of them; none is a validation or test puzzle."""
    workers: NonNegativeInt = 0
    """Background processes that generate ahead, for `endless`."""
    validation_from: str | None = None
    """A dataset folder whose validation split judges the run while it trains, instead of `validation`
    generated puzzles: harder ones than it learns from, say."""
    ladder: Ladder | None = None
    """Harder puzzles that join the generated ones."""
    fewer: bool = False
    """Whether less will do where there are not so many distinct puzzles."""
    geometries: Geometries | None = None
    """Random puzzles that are trained on instead of the task's, which then only judge."""

    @model_validator(mode="after")
    def _options_fit(self) -> "Generated":
        if self.endless and self.ladder is not None:
            raise ValueError("a ladder joins puzzles that are generated once; set endless to false")
        if self.geometries is not None and (self.endless or self.ladder is not None):
            raise ValueError("geometries take the place of the task's puzzles: leave out ladder and endless")
        task_named(self.task).options(self.options)
        return self


class Folder(Value):
    """A dataset folder made by `eqr data build` or `eqr data import`."""

    newer: ClassVar[tuple[str, ...]] = ("reveal",)

    kind: Literal["folder"] = "folder"
    task: str
    path: str
    validation: PositiveInt = 256
    """Puzzles held out from `train` for validation where the folder has no validation split."""
    seed: Seed = 42
    """Decides which are held out."""
    reveal: NonNegativeInt = 0
    """Most answers given away in a training row, drawn anew each time it comes: easier puzzles among hard."""


Data = Annotated[Generated | Folder, Field(discriminator="kind")]


class EvaluationPlan(Value):
    """How a run is judged: on validation while it trains, on the test set once, at its end."""

    every: PositiveInt = 500
    """Steps between evaluations."""
    puzzles: PositiveInt = 256
    """Validation puzzles used, at most."""
    depths: tuple[Segments, ...] = (1, 2, 4, 8, 16)
    """Depths reported; the last decides which weights are best."""
    test_puzzles: PositiveInt = 1000
    """Test puzzles used at the end, at most."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _depths_ascend(self) -> "EvaluationPlan":
        if not self.depths or list(self.depths) != sorted(set(self.depths)):
            raise ValueError(f"depths must be given and ascend, not {self.depths}")
        return self


class Saving(Value):
    """What a run writes and how often, in steps."""

    checkpoint_every: PositiveInt = 500
    keep: PositiveInt = 2
    log_every: PositiveInt = 50
    trackers: tuple[Literal["tensorboard", "trackio"], ...] = ()
    """Besides metrics.jsonl, which is always written; they need the extra `eqr[tracking]`."""


class Precision(StrEnum):
    """The type of matrix products, in training and in its validation; weights and latents stay float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def computing(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the context in which a model computes with a precision."""
    return torch.autocast(
        device.type,
        dtype=torch.bfloat16,
        enabled=precision is Precision.BFLOAT16,
        # older PyTorch would use a weight cast without a graph, before a gradient window, inside it too
        cache_enabled=False,
    )


def _folder_name(name: str) -> str:
    """Return a recipe's name if a folder can be called by it."""
    if not (name[:1].isalnum() and name.isprintable()):
        raise ValueError("a name begins with a letter or a digit and holds what can be printed")
    return name


class Recipe(Value):
    """Everything that decides a training run."""

    name: Annotated[str, AfterValidator(_folder_name)]
    data: Data
    augment: bool = True
    """Whether each training row is turned by a fresh random symmetry of its task."""
    model: ReasonerConfig
    begin: str | None = None
    """A model whose weights training begins with: a run, a model folder, a shipped name or a hub id. If it is
    `runs/NAME` and NAME a recipe, `eqr train` trains that first, unless it has."""
    schedule: AnySchedule = SegmentedOnline()
    curriculum: Curriculum | None = None
    halting: AnyHalting = LearnedHalt()
    loss: Loss = Loss()
    optimizer: AnyOptimizer = AdamAtan2()
    rate: Rate = Rate()
    identity_optimizer: SignDescent = SignDescent()
    """For the sparse table of puzzle identities, where the model has one."""
    averaging: Averaging | None = Averaging()
    rows: Annotated[PositiveInt, Field(le=1 << 16)] = 768
    """Batch size over all processes."""
    steps: PositiveInt = 50_000
    time_limit: PositiveFloat | None = None
    """Seconds of training, evaluation not counted, after which the run ends."""
    evaluation: EvaluationPlan = EvaluationPlan()
    saving: Saving = Saving()
    seed: Seed = 0
    threads: Annotated[PositiveInt, Field(le=1 << 10)] | None = None
    """Cores used on cpu, None for all; the same number gives the same weights bit for bit."""
    rows_per_cut: PositiveInt | None = None
    """Rows a core works on at once; None cuts a batch evenly among the cores."""
    device: str = "auto"
    precision: Precision = Precision.FLOAT32
    compile: bool = False
    """Whether the block stacks are compiled (torch.compile); slow to start, fast on a GPU."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "Recipe":
        task = task_named(self.data.task)
        shape = (*task.shape, task.vocabulary)
        if (self.model.rows, self.model.columns, self.model.vocabulary) != shape:
            raise ValueError(
                f"model reads {self.model.rows}x{self.model.columns} grids, {self.model.vocabulary} tokens; "
                f"the task {task.name} has {shape[0]}x{shape[1]} of {shape[2]}"
            )
        depths = {self.schedule.depth, *self.evaluation.depths}
        if self.model.greatest_depth == 1 and depths != {1}:
            raise ValueError(
                "a feedforward model has depth 1: set schedule.depth and evaluation.depths to it"
            )
        if (
            isinstance(self.model.start, LearnedStart)
            and self.schedule.windows(self.schedule.depth)[0].untracked
        ):
            raise ValueError(f"a learned start gets no gradient under the schedule {self.schedule.kind!r}")
        tracked, applications = self.schedule.applications, self.trained_model.applications
        if tracked is not None and tracked > applications:
            raise ValueError(f"schedule.tracked = {tracked}: a segment has only {applications} applications")
        return self

    @property
    def trained_model(self) -> ReasonerConfig:
        """The model with segments as long as they are while it trains."""
        cycles, recurrence = self.schedule.cycles, self.model.recurrence
        if cycles is None:
            return self.model
        if "cycles" not in type(recurrence).model_fields:
            raise ValueError(f"schedule.cycles = {cycles}: a {recurrence.kind} recurrence has no cycles")
        return self.model.replace(recurrence=recurrence.replace(cycles=cycles))

    @classmethod
    def of_run(cls, folder: RunFolder) -> "Recipe":
        """Read the recipe that a run was trained by."""
        return cls.from_json(read_json(folder.recipe), where=str(folder.recipe))

    def with_settings(self, settings: list[str]) -> "Recipe":
        """Return a copy changed by `key=value` texts: dotted keys, JSON values, plain words as themselves."""
        changes = {}
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals or not key:
                raise UserError(f"--set {brief(setting)} is not of the form key=value")
            changes[key.strip()] = parse_word(text, where=f"--set {key}")
        return self.changed(changes)

    def changed(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return a copy with other values in some fields, by dotted name."""
        data = self.to_json()
        for key, value in changes.items():
            _assign(data, key.split("."), value)
        return Recipe.from_json(data, where="recipe")

    def changed_since(self, before: "Recipe") -> list[str]:
        """Return the fields in which this recipe would not continue a run that began with `before`."""
        mine, theirs = flatten(self.to_json()), flatten(before.to_json())
        keys = [key for key in {**theirs, **mine} if mine.get(key) != theirs.get(key)]
        free = [*_MAY_CHANGE]
        if self.rate.decay is Decay.NONE and self.curriculum is None:
            free.append("steps")
        return [
            f"{key} ({theirs.get(key)!r} then, {mine.get(key)!r} now)"
            for key in keys
            if not any(key == name or key.startswith(f"{name}.") for name in free)
        ]


_MAY_CHANGE = ("time_limit", "saving", "threads", "rows_per_cut", "device", "data.workers")
"""What may differ when a run goes on; the number of steps too, where nothing else depends on it."""


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested JSON data as one level of dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _assign(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a nested key; choosing a `kind` leaves that kind's own defaults."""
    *folders, last = path
    for folder in folders:
        inner = data.get(folder)
        if not isinstance(inner, dict):
            inner = data[folder] = {}
        data = inner
    if last == "kind" and data.get("kind") != value:
        data.clear()
    known = data.get(last)
    if isinstance(known, dict) and "kind" in known and isinstance(value, str):
        value = {"kind": value}
    data[last] = value
