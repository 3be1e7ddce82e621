"""What a run says about itself: `metrics.jsonl` always, TensorBoard or trackio on request."""

import json
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Protocol

from eqr.errors import UserError, brief, with_extra
from eqr.files import append, flush, new_file
from eqr.runs import RunFolder
from eqr.train.recipe import Recipe
from eqr.train.step import STATS


class Tracker(Protocol):
    """Anything that takes numbers by name at a step."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Take one record."""

    def close(self) -> None:
        """Write what is pending."""


class Meter:
    """Averages step statistics between two log records; its sums are part of a checkpoint."""

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self.sums = dict(sums or {})
        if self.sums and not self.sums.keys() >= {*STATS, "gradient_norm", "steps", "rows"}:
            raise UserError(
                f"{brief(self.sums)} are no sums of a step's statistics; is the checkpoint eqr's?"
            )

    def add(self, stats: Mapping[str, float], rows: int) -> None:
        """Take one step's sums over a batch of `rows`."""
        for name, value in {**stats, "steps": 1.0, "rows": float(rows)}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def flush(self) -> dict[str, float]:
        """Return means since the last flush and begin anew."""
        sums, self.sums = self.sums, {}
        steps, halted = sums["steps"], sums["halted"]
        means = {name: sums[name] / steps for name in ("loss", "answer_loss", "halt_loss", "gradient_norm")}
        means["right"] = sums["right"] / sums["rows"]
        if halted:
            means["exact"] = sums["halted_right"] / halted
            means["halt_depth"] = sums["halted_depth"] / halted
        return means


class Journal:
    """Appends records to `metrics.jsonl` and passes their numbers on to the trackers asked for."""

    def __init__(self, folder: RunFolder, recipe: Recipe, *, step: int) -> None:
        """Open the journal of a run that stands at `step`; later records of a run cut short are dropped."""
        self.path = folder.metrics
        with new_file(self.path) as temporary:
            lines = takewhile(lambda entry: entry[1]["step"] <= step, folder.lines())
            temporary.write_text("".join(line for line, _ in lines), encoding="utf-8")
        self._trackers = [_TRACKERS[name](folder, recipe) for name in recipe.saving.trackers]

    def write(self, kind: str, step: int, record: Mapping[str, Any]) -> None:
        """Append one record, whole."""
        append(self.path, json.dumps({"kind": kind, "step": step, **record}) + "\n")
        numbers = {f"{kind}/{name}": value for name, value in record.items() if isinstance(value, float)}
        for tracker in self._trackers:
            tracker.log(numbers, step)

    def flush(self) -> None:
        """Return when the records are on the disk, where what builds on them may be written."""
        flush(self.path)

    def close(self) -> None:
        """Let the trackers write what is pending."""
        for tracker in self._trackers:
            tracker.close()


class _TensorBoard:
    def __init__(self, folder: RunFolder, recipe: Recipe) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer: Any = SummaryWriter(str(folder.tensorboard))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Trackio:
    def __init__(self, folder: RunFolder, recipe: Recipe) -> None:
        try:
            import trackio
        except ImportError:
            raise _missing("trackio") from None
        self._trackio: Any = trackio
        trackio.init(
            project=f"eqr-{recipe.name.replace('/', '-')}", name=folder.path.name, config=recipe.to_json()
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._trackio.log({**numbers, "step": step})

    def close(self) -> None:
        self._trackio.finish()


_TRACKERS: dict[str, type[_TensorBoard] | type[_Trackio]] = {"tensorboard": _TensorBoard, "trackio": _Trackio}


def _missing(name: str) -> UserError:
    return UserError(f"saving.trackers names {name}, which is not installed; {with_extra('tracking')}")
