"""A moving picture of a solution: the grid after each segment, shaded by confidence, and the residual.

One renderer for every task, by the task's own look as in the figures of a report, but drawn by Pillow: a GIF
wants few colours and small frames, which matplotlib is slow to make.
"""

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eqr.errors import UserError
from eqr.solve.candidates import Snapshot, changes
from eqr.tasks.base import PAD, Task, Tokens

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PAPER, INK, MODEL, LINE, STRONG = "#fffdf8", "#1c1a17", "#0b5f6b", "#d9d3c6", "#3b3833"
DOUBT, CHANGED, MUTED, GOOD, BAD = "#f3c566", "#e8960c", "#6b665d", "#17633a", "#a8201a"
SIDE, STRIP, MARGIN = 330, 74, 12
"""Pixels: the grid's width, the height of what is below it, the space around."""
FINE = 2
"""Everything is drawn this much larger and then shrunk, which smooths its edges."""
EDGE = FINE * MARGIN
COLOURS = 64
FRAME_MS, LAST_MS = 160, 2500


def moving_picture(
    task: Task, puzzle: Tokens, frames: Sequence[Snapshot], *, verdict: str = "solved"
) -> bytes:
    """Return an animated GIF of a trajectory; `verdict` is written under its last frame."""
    from PIL import Image

    if not frames:
        raise UserError("no segments to show; give a depth of at least 1")
    given = _given(task, puzzle)
    rings = [set(changed) - given for changed in changes(puzzle, frames)]
    pictures = [
        _picture(task, puzzle, given, frames, number, rings, verdict) for number in range(-1, len(frames))
    ]
    # one palette for all frames, so that nothing flickers
    width, height = pictures[0].size
    chosen = [pictures[place] for place in sorted({0, 1, len(pictures) // 2, len(pictures) - 1})]
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for place, picture in enumerate(chosen):
        sheet.paste(picture, (0, place * height))
    palette = sheet.quantize(COLOURS)
    first, *others = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures)
    durations, out = [4 * FRAME_MS] + [FRAME_MS] * (len(frames) - 1) + [LAST_MS], io.BytesIO()
    every: dict[str, Any] = {"save_all": True, "loop": 0, "optimize": True, "disposal": 1}
    first.save(out, "GIF", append_images=others, duration=durations, **every)
    return out.getvalue()


def _given(task: Task, puzzle: Tokens) -> set[int]:
    """Cells that were written before anything ran: neither blank nor, in a maze, open."""
    if task.identities:
        return set()
    blank = {task.symbols.index(symbol) + 1 for symbol in ". " if symbol in task.symbols}
    return {cell for cell, token in enumerate(puzzle.tolist()) if token not in blank}


def _picture(
    task: Task,
    puzzle: Tokens,
    given: set[int],
    frames: Sequence[Snapshot],
    number: int,
    rings: Sequence[set[int]],
    verdict: str,
) -> "Image":
    """Draw one frame, or the puzzle alone (`number` -1)."""
    from PIL import Image, ImageDraw

    rows, columns = task.shape
    step = FINE * max(round(SIDE / columns), 8)
    width, height = columns * step + 2 * EDGE, rows * step + 2 * EDGE + FINE * STRIP
    picture = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(picture)
    frame = frames[number] if number >= 0 else None
    for cell, token in enumerate(puzzle.tolist()):
        row, column = divmod(cell, columns)
        kept = cell in given
        doubt = 0.0 if kept or frame is None else 1.0 - float(frame.confidence[cell])
        shown = token if kept or frame is None else int(frame.grid[cell])
        corner = (EDGE + column * step, EDGE + row * step)
        _cell(pen, task, corner, step, shown, kept=kept, doubt=doubt)
        if frame is not None and cell in rings[number]:
            inset = max(step // 12, 1)
            ring = (corner[0] + inset, corner[1] + inset, corner[0] + step - inset, corner[1] + step - inset)
            pen.rounded_rectangle(ring, step // 7, outline=CHANGED, width=max(step // 18, 2))
    if not task.look().fills:
        _lines(pen, task, step)
    _strip(pen, width, height, frames, number, verdict)
    return picture.resize((width // FINE, height // FINE), Image.Resampling.LANCZOS)


def _cell(
    pen: "ImageDraw", task: Task, corner: tuple[int, int], step: int, token: int, *, kept: bool, doubt: float
) -> None:
    (x, y), look = corner, task.look()
    symbol = "?" if token == PAD else task.symbols[token - 1]
    fill = look.fills.get(symbol)
    if fill is not None:
        pen.rectangle((x, y, x + step, y + step), fill=_mix(fill, PAPER, 0.75 * doubt))
    elif doubt > 0.02:
        pen.rectangle((x, y, x + step, y + step), fill=_mix(PAPER, DOUBT, doubt))
    if symbol not in look.silent and symbol != " ":
        ink = INK if kept or fill is not None else _mix(MODEL, MUTED, doubt)
        font = _font(round(0.6 * step), bold=kept)
        pen.text((x + step / 2, y + step / 2), symbol, fill=ink, font=font, anchor="mm")


def _lines(pen: "ImageDraw", task: Task, step: int) -> None:
    """Draw the lines between cells, those around boxes last and stronger."""
    rows, columns = task.shape
    high, wide = task.look().box or (rows, columns)
    right, bottom = EDGE + columns * step, EDGE + rows * step
    across = [(r % high == 0, (EDGE, EDGE + r * step, right, EDGE + r * step)) for r in range(rows + 1)]
    down = [(c % wide == 0, (EDGE + c * step, EDGE, EDGE + c * step, bottom)) for c in range(columns + 1)]
    for strong, ends in sorted(across + down):
        pen.line(ends, fill=STRONG if strong else LINE, width=2 * FINE if strong else FINE)


def _strip(
    pen: "ImageDraw", width: int, height: int, frames: Sequence[Snapshot], number: int, verdict: str
) -> None:
    """Write the segment and draw the residuals so far, on a logarithmic scale."""
    left, right, top = EDGE, width - EDGE, height - FINE * (STRIP - 4)
    font = _font(13 * FINE, bold=False)
    if number < 0:
        pen.text((left, top), "puzzle", fill=MUTED, font=font)
    else:
        frame, last = frames[number], number == len(frames) - 1
        word = f"{verdict} after {frame.segment} segments" if last else f"segment {frame.segment}"
        ink = INK if not last else GOOD if verdict == "solved" else BAD
        pen.text((left, top), word, fill=ink, font=font)
        pen.text((right, top), f"residual {frame.residual:.2g}", fill=MUTED, font=font, anchor="ra")
    logs = np.log10([max(frame.residual, 1e-6) for frame in frames])
    floor, ceiling = height - FINE * 8, top + FINE * 26
    heights = (logs - logs.min()) / max(float(np.ptp(logs)), 1e-9)
    ups = (floor - (floor - ceiling) * heights).tolist()
    points = list(zip(np.linspace(left, right, max(len(frames), 2)).tolist(), ups, strict=False))
    pen.line(points, fill=LINE, width=FINE, joint="curve")
    if number > 0:
        pen.line(points[: number + 1], fill=MODEL, width=2 * FINE, joint="curve")
    if number >= 0:
        x, y = points[number]
        pen.ellipse((x - 4 * FINE, y - 4 * FINE, x + 4 * FINE, y + 4 * FINE), fill=MODEL)


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
