"""A moving picture of a solution: the grid after each segment, shaded by confidence, and the residual.

One renderer for every task, by the task's own look as in the figures of a report, but drawn by Pillow: a GIF
wants few colours and small frames, which matplotlib is slow to make.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eqr.errors import UserError
from eqr.solve.answers import Snapshot, changes
from eqr.tasks.base import PAD, Appearance, Task, Tokens

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PAPER, INK, MODEL, LINE, STRONG = "#fffdf8", "#1c1a17", "#0b5f6b", "#d9d3c6", "#3b3833"
DOUBT, CHANGED, MUTED, GOOD, BAD = "#f3c566", "#e8960c", "#6b665d", "#17633a", "#a8201a"
SIDE, STRIP, MARGIN = 330, 74, 12
"""Pixels: the grid's width, the height of what is below it, the space around."""
FINE = 2
"""Everything is drawn this much larger and then shrunk, which smooths its edges."""
COLOURS = 64
FRAME_MS, LAST_MS = 160, 2500


@dataclass(frozen=True)
class _Page:
    """Where things are, in fine pixels."""

    task: Task
    look: Appearance
    step: int

    @property
    def size(self) -> tuple[int, int]:
        rows, columns = self.task.shape
        edge = 2 * FINE * MARGIN
        return columns * self.step + edge, rows * self.step + edge + FINE * STRIP

    def corner(self, cell: int) -> tuple[int, int]:
        row, column = divmod(cell, self.task.shape[1])
        return FINE * MARGIN + column * self.step, FINE * MARGIN + row * self.step


def moving_picture(
    task: Task, puzzle: Tokens, frames: Sequence[Snapshot], *, verdict: str = "solved"
) -> bytes:
    """Return an animated GIF of a trajectory; `verdict` is written under its last frame."""
    if not frames:
        raise UserError("no segments to show; give a depth of at least 1")
    page = _Page(task, task.look(), FINE * max(round(SIDE / task.shape[1]), 8))
    given = _given(task, puzzle)
    rings = [set(changed) - given for changed in changes(puzzle, frames)]
    pictures = [_draw(page, puzzle, None, given, rings, frames, verdict)]
    pictures += [_draw(page, puzzle, number, given, rings, frames, verdict) for number in range(len(frames))]
    from PIL import Image

    shared = _palette(pictures)
    few = [picture.quantize(palette=shared, dither=Image.Dither.NONE) for picture in pictures]
    out = io.BytesIO()
    durations = [4 * FRAME_MS] + [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    few[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=few[1:],
        duration=durations,
        loop=0,
        optimize=True,
        disposal=1,
    )
    return out.getvalue()


def _given(task: Task, puzzle: Tokens) -> set[int]:
    """Cells that were written before anything ran: neither blank nor, in a maze, open."""
    if task.identities:
        return set()
    blank = {task.symbols.index(symbol) + 1 for symbol in ". " if symbol in task.symbols}
    return {cell for cell, token in enumerate(puzzle.tolist()) if token not in blank}


def _draw(
    page: _Page,
    puzzle: Tokens,
    number: int | None,
    given: set[int],
    rings: Sequence[set[int]],
    frames: Sequence[Snapshot],
    verdict: str,
) -> "Image":
    """Draw the puzzle alone (`number` None) or one frame."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", page.size, PAPER)
    pen = ImageDraw.Draw(picture)
    frame = None if number is None else frames[number]
    for cell, token in enumerate((puzzle if frame is None else frame.grid).tolist()):
        kept = cell in given
        shown = int(puzzle[cell]) if kept else token
        doubt = 0.0 if kept or frame is None else 1.0 - float(frame.confidence[cell])
        ring = number is not None and cell in rings[number]
        _cell(page, pen, cell, shown, kept=kept, doubt=doubt, ring=ring)
    _rules(page, pen)
    _strip(page, pen, frames, -1 if number is None else number, verdict)
    width, height = page.size
    return picture.resize((width // FINE, height // FINE), Image.Resampling.LANCZOS)


def _cell(
    page: _Page, pen: "ImageDraw", cell: int, token: int, *, kept: bool, doubt: float, ring: bool
) -> None:
    x, y = page.corner(cell)
    box = (x, y, x + page.step, y + page.step)
    symbol = "?" if token == PAD else page.task.symbols[token - 1]
    fill = page.look.fills.get(symbol)
    if fill is not None:
        pen.rectangle(box, fill=_mix(fill, PAPER, 0.75 * doubt))
    elif doubt > 0.02:
        pen.rectangle(box, fill=_mix(PAPER, DOUBT, doubt))
    if symbol not in page.look.silent and symbol != " ":
        ink = INK if kept or fill is not None else _mix(MODEL, MUTED, doubt)
        middle = (x + page.step / 2, y + page.step / 2)
        pen.text(middle, symbol, fill=ink, font=_font(round(0.6 * page.step), bold=kept), anchor="mm")
    if ring:
        inset = max(page.step // 12, 1)
        inner = (x + inset, y + inset, x + page.step - inset, y + page.step - inset)
        pen.rounded_rectangle(inner, page.step // 7, outline=CHANGED, width=max(page.step // 18, 2))


def _rules(page: _Page, pen: "ImageDraw") -> None:
    if page.look.fills:
        return
    rows, columns = page.task.shape
    high, wide = page.look.box or (rows, columns)
    left, top = page.corner(0)
    right, bottom = left + columns * page.step, top + rows * page.step
    lines = [
        (r % high == 0, (left, top + r * page.step, right, top + r * page.step)) for r in range(rows + 1)
    ]
    lines += [
        (c % wide == 0, (left + c * page.step, top, left + c * page.step, bottom)) for c in range(columns + 1)
    ]
    for strong, ends in sorted(lines):
        pen.line(ends, fill=STRONG if strong else LINE, width=2 * FINE if strong else FINE)


def _strip(page: _Page, pen: "ImageDraw", frames: Sequence[Snapshot], number: int, verdict: str) -> None:
    """Write the segment and draw the residuals so far, on a logarithmic scale."""
    width, height = page.size
    left, right = FINE * MARGIN, width - FINE * MARGIN
    top = height - FINE * (STRIP - 4)
    font = _font(13 * FINE, bold=False)
    last = number == len(frames) - 1
    if number < 0:
        pen.text((left, top), "puzzle", fill=MUTED, font=font)
    else:
        frame = frames[number]
        word = f"{verdict} after {frame.segment} segments" if last else f"segment {frame.segment}"
        ink = (GOOD if verdict == "solved" else BAD) if last else INK
        pen.text((left, top), word, fill=ink, font=font)
        pen.text((right, top), f"residual {frame.residual:.2g}", fill=MUTED, font=font, anchor="ra")
    logs = [math.log10(max(frame.residual, 1e-6)) for frame in frames]
    low, high = min(logs), max(max(logs), min(logs) + 1e-9)
    floor, ceiling = height - FINE * 8, top + FINE * 26
    points = [
        (
            left + (right - left) * place / max(len(frames) - 1, 1),
            floor - (floor - ceiling) * (value - low) / (high - low),
        )
        for place, value in enumerate(logs)
    ]
    pen.line(points, fill=LINE, width=FINE, joint="curve")
    if number > 0:
        pen.line(points[: number + 1], fill=MODEL, width=2 * FINE, joint="curve")
    if number >= 0:
        x, y = points[number]
        pen.ellipse((x - 4 * FINE, y - 4 * FINE, x + 4 * FINE, y + 4 * FINE), fill=MODEL)


def _palette(pictures: Sequence["Image"]) -> "Image":
    """One palette for all frames, so that nothing flickers: of the first, a middle and the last."""
    from PIL import Image

    width, height = pictures[0].size
    chosen = [pictures[place] for place in sorted({0, 1, len(pictures) // 2, len(pictures) - 1})]
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for place, picture in enumerate(chosen):
        sheet.paste(picture, (0, place * height))
    return sheet.quantize(COLOURS)


def _mix(first: str, second: str, share: float) -> tuple[int, int, int]:
    """Go from one colour towards another."""
    ends = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (first, second)])
    red, green, blue = np.rint(ends[0] + (ends[1] - ends[0]) * share).astype(int).tolist()
    return red, green, blue


@cache
def _font(size: int, *, bold: bool) -> Any:
    from matplotlib import get_data_path
    from PIL import ImageFont

    name = "DejaVuSerif-Bold.ttf" if bold else "DejaVuSerif.ttf"
    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}", size)
