"""Mazes as text: read what people paste, draw what a terminal shows.

Spaces are cells here, and editors and forms love to drop them, so reading repairs a line only where there is
one way to do it and otherwise asks for `.` instead of spaces.
"""

from eqr.errors import UserError

SYMBOLS = "# SGo"
"""Wall, open, start, goal, path: `SYMBOLS[t - 1]` is the character of token t."""
_UNKNOWN = "?"
_PAINT = {
    "#": "\x1b[100m  \x1b[0m",
    " ": "  ",
    "S": "\x1b[1;30;42mS \x1b[0m",
    "G": "\x1b[1;30;41mG \x1b[0m",
    "o": "\x1b[43m  \x1b[0m",
    _UNKNOWN: "\x1b[1;35m??\x1b[0m",
}


def draw(tokens: list[int], columns: int, *, color: bool) -> str:
    """Draw a grid, one line per row; padding, which only a model can produce, shows as `?`."""
    symbols = _UNKNOWN + SYMBOLS
    characters = "".join(symbols[token] for token in tokens)
    lines = [characters[start : start + columns] for start in range(0, len(characters), columns)]
    if color:
        lines = ["".join(_PAINT[character] for character in line) for line in lines]
    return "\n".join(lines)


def read(text: str, rows: int, columns: int) -> str:
    """Return the rows x columns characters of a pasted maze, row by row, open cells as spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    dotted = "." in text
    if dotted:  # then a space is no cell but a separator or padding
        text = "\n".join("".join(line.split()) for line in text.split("\n"))
    unbroken = text.strip("\n")
    if "\n" not in unbroken and not unbroken[rows * columns :].strip(" "):
        unbroken = unbroken[: rows * columns]
    if len(unbroken) == rows * columns and "\n" not in unbroken:
        lines = [unbroken[start : start + columns] for start in range(0, len(unbroken), columns)]
    else:
        lines = _lines(text, rows, columns)
        if not dotted:
            lines = [_repaired(lines, number, columns) for number in range(rows)]
    for number, line in enumerate(lines, 1):
        _require_line(line, number, columns, dotted=dotted)
    return "".join(lines).replace(".", " ")


def _lines(text: str, rows: int, columns: int) -> list[str]:
    """Split into `rows` lines; blank lines around the maze go, but only as many as are too many."""
    lines = text.split("\n")
    while len(lines) > rows and not lines[-1].strip():
        lines.pop()
    while len(lines) > rows and not lines[0].strip():
        lines.pop(0)
    if len(lines) != rows:
        size = f"{len(lines)} lines" if len(lines) > 1 else f"one line of {len(lines[0])} characters"
        raise UserError(
            f"a {rows}x{columns} maze needs {rows} lines of {columns} characters, or all {rows * columns} "
            f"characters on one line; this text has {size}"
        )
    return lines


def _repaired(lines: list[str], number: int, columns: int) -> str:
    """Return line `number` with the end spaces that an editor trimmed, if nothing else can have been lost."""
    line = lines[number]
    if not line[columns:].strip(" "):
        line = line[:columns]
    end_trimmed = number == len(lines) - 1 or not any(other.endswith(" ") for other in lines)
    front_kept = line.startswith(" ") or (number > 0 and any(other.startswith(" ") for other in lines))
    if not line.strip(" ") or (end_trimmed and front_kept):
        return line.ljust(columns)
    return line


def _require_line(line: str, number: int, columns: int, *, dotted: bool) -> None:
    if len(line) != columns:
        hint = ""
        if dotted:
            hint = "; with '.' for open cells, spaces do not count"
        elif len(line) < columns:
            hint = "; if spaces were lost on the way, write open cells as '.'"
        raise UserError(f"maze row {number} has {len(line)} characters, it needs {columns}{hint}")
    for column, character in enumerate(line, 1):
        if character not in SYMBOLS + ".":
            raise UserError(
                f"maze row {number}, column {column}: {character!r} is none of '#' (wall), ' ' or '.' "
                "(open), 'S' (start), 'G' (goal), 'o' (path)"
            )
