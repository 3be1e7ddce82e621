"""Compiled searches on mazes: carve, flood, count shortest paths, draw one, judge an answer.

Grids are flat token vectors; numba is needed because generation and checking run in every training stream and
every evaluation. The order of random draws in `carve` and `draw_unique` is that of the published Maze-Unique
set and must not change: seed 42 has to give its mazes.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.base import PAD, Tokens
from eqr.tasks.compiled import compiled

Cells = NDArray[np.int64]
WALL, OPEN, START, GOAL, PATH = 1, 2, 3, 4, 5
MANY = np.iinfo(np.int64).max
"""Shortest-path counts saturate here."""


class MazeFault(IntEnum):
    """What is wrong with an answer; the order is the order of the checks."""

    NONE = 0
    PUZZLE = 1
    CHANGED = 2
    BROKEN = 3
    LONGER = 4
    EXTRA = 5


@compiled
def neighbours(cell: int, rows: int, columns: int, found: Cells) -> int:
    """Write the neighbours of a cell (down, up, right, left) into `found` and return how many there are."""
    row, column = cell // columns, cell % columns
    count = 0
    if row + 1 < rows:
        found[count] = cell + columns
        count += 1
    if row > 0:
        found[count] = cell - columns
        count += 1
    if column + 1 < columns:
        found[count] = cell + 1
        count += 1
    if column > 0:
        found[count] = cell - 1
        count += 1
    return count


@compiled
def flood(passable: NDArray[np.bool_], start: int, rows: int, columns: int) -> tuple[Cells, Cells]:
    """Return the distance of every cell from `start` (-1: unreached) and the reached cells, nearest first."""
    distance = np.full(rows * columns, -1, np.int64)
    queue = np.empty(rows * columns, np.int64)
    around = np.empty(4, np.int64)
    distance[start] = 0
    queue[0] = start
    taken, size = 0, 1
    while taken < size:
        cell = queue[taken]
        taken += 1
        for k in range(neighbours(cell, rows, columns, around)):
            following = around[k]
            if passable[following] and distance[following] < 0:
                distance[following] = distance[cell] + 1
                queue[size] = following
                size += 1
    return distance, queue[:size]


@compiled
def count_paths(distance: Cells, order: Cells, rows: int, columns: int) -> Cells:
    """Return the number of shortest paths from the flood's start to every reached cell, capped at `MANY`."""
    counts = np.zeros(rows * columns, np.int64)
    around = np.empty(4, np.int64)
    counts[order[0]] = 1
    for cell in order[1:]:
        for k in range(neighbours(cell, rows, columns, around)):
            before = around[k]
            if distance[before] == distance[cell] - 1:
                counts[cell] = min(counts[cell], MANY - counts[before]) + counts[before]
    return counts


@compiled
def mark_path(
    rng: np.random.Generator,
    puzzle: Tokens,
    goal: int,
    distance: Cells,
    counts: Cells,
    rows: int,
    columns: int,
) -> Tokens:
    """Return the puzzle with one shortest path marked, uniform over all; a single one costs no draw."""
    answer = puzzle.copy()
    around = np.empty(4, np.int64)
    cell = goal
    while distance[cell] > 1:
        kept, total = 0, 0.0
        for k in range(neighbours(cell, rows, columns, around)):
            if distance[around[k]] == distance[cell] - 1:
                around[kept] = around[k]
                total += counts[around[k]]
                kept += 1
        chosen = 0
        if kept > 1:
            left = rng.random() * total
            while chosen < kept - 1 and left >= counts[around[chosen]]:
                left -= counts[around[chosen]]
                chosen += 1
        cell = around[chosen]
        answer[cell] = PATH
    return answer


@compiled
def nearest_path(puzzle: Tokens, gains: NDArray[np.float32], rows: int, columns: int) -> Tokens:
    """Return the puzzle with that shortest path marked whose cells have the greatest sum of gains."""
    answer = puzzle.copy()
    start, goal = ends(puzzle)
    if start < 0:
        return answer
    distance, order = flood(puzzle != WALL, start, rows, columns)
    best = np.full(rows * columns, -np.inf)
    before = np.full(rows * columns, -1, np.int64)
    around = np.empty(4, np.int64)
    best[start] = 0.0
    for cell in order[1:]:
        for k in range(neighbours(cell, rows, columns, around)):
            other = around[k]
            if distance[other] == distance[cell] - 1 and best[other] + gains[cell] > best[cell]:
                best[cell] = best[other] + gains[cell]
                before[cell] = other
    cell = goal
    while distance[cell] > 1:
        cell = before[cell]
        answer[cell] = PATH
    return answer


@compiled
def nearest_paths(puzzles: Tokens, gains: NDArray[np.float32], rows: int, columns: int) -> Tokens:
    """Do so for many."""
    answers = np.empty_like(puzzles)
    for k in range(len(puzzles)):
        answers[k] = nearest_path(puzzles[k], gains[k], rows, columns)
    return answers


@compiled
def carve(rng: np.random.Generator, rows: int, columns: int) -> Tokens:
    """Carve a perfect maze by depth-first backtracking over the cells at odd coordinates."""
    high, wide = (rows - 1) // 2, (columns - 1) // 2
    grid = np.full((rows, columns), WALL, np.uint8)
    stack = np.empty(high * wide, np.int64)
    around = np.empty(4, np.int64)
    row = rng.integers(0, high)
    column = rng.integers(0, wide)
    grid[2 * row + 1, 2 * column + 1] = OPEN
    stack[0] = row * wide + column
    size = 1
    while size > 0:
        cell = stack[size - 1]
        unvisited = 0
        for k in range(neighbours(cell, high, wide, around)):
            if grid[2 * (around[k] // wide) + 1, 2 * (around[k] % wide) + 1] == WALL:
                around[unvisited] = around[k]
                unvisited += 1
        if unvisited == 0:
            size -= 1
            continue
        following = around[rng.integers(0, unvisited)]
        row, column = following // wide, following % wide
        grid[2 * row + 1, 2 * column + 1] = OPEN
        grid[row + cell // wide + 1, column + cell % wide + 1] = OPEN
        stack[size] = following
        size += 1
    return grid.reshape(-1)


@compiled
def draw_unique(
    rng: np.random.Generator, rows: int, columns: int, shortest: int, longest: int, layouts: int, tries: int
) -> tuple[Tokens, Tokens, int]:
    """Return a perfect maze, its answer and its path length; length 0 when no layout offered that length."""
    length = int(rng.integers(shortest, longest + 1))
    puzzle = np.zeros(rows * columns, np.uint8)
    for _ in range(layouts):
        puzzle = carve(rng, rows, columns)
        passable = puzzle == OPEN
        places = np.flatnonzero(passable)
        for _ in range(tries):
            start = places[rng.integers(0, len(places))]
            distance, order = flood(passable, start, rows, columns)
            goals = np.flatnonzero(distance == length)
            if len(goals) > 0:
                goal = goals[rng.integers(0, len(goals))]
                puzzle[start], puzzle[goal] = START, GOAL
                counts = count_paths(distance, order, rows, columns)
                return puzzle, mark_path(rng, puzzle, goal, distance, counts, rows, columns), length
    return puzzle, puzzle, 0


@compiled
def draw_open(
    rng: np.random.Generator, rows: int, columns: int, walls: int, shortest: int, longest: int, tries: int
) -> tuple[Tokens, Tokens, int, int]:
    """Return a random layout, an answer, its path length and path count; length 0 when no try fitted."""
    order = np.arange(rows * columns)
    for k in range(walls):
        other = k + rng.integers(0, len(order) - k)
        order[k], order[other] = order[other], order[k]
    puzzle = np.full(rows * columns, OPEN, np.uint8)
    puzzle[order[:walls]] = WALL
    free = order[walls:]
    passable = puzzle == OPEN
    for _ in range(tries):
        first = rng.integers(0, len(free))
        second = rng.integers(0, len(free) - 1)
        start, goal = free[first], free[second + (second >= first)]
        distance, reached = flood(passable, start, rows, columns)
        if shortest <= distance[goal] <= longest:
            puzzle[start], puzzle[goal] = START, GOAL
            counts = count_paths(distance, reached, rows, columns)
            answer = mark_path(rng, puzzle, goal, distance, counts, rows, columns)
            return puzzle, answer, distance[goal], counts[goal]
    return puzzle, puzzle, 0, 0


@compiled
def ends(puzzle: Tokens) -> tuple[int, int]:
    """Return the cells of start and goal, (-1, -1) unless there is one of each and no stray token."""
    start, goal = -1, -1
    for cell in range(len(puzzle)):
        token = puzzle[cell]
        stray = token == PAD or token >= PATH
        if stray or (token == START and start >= 0) or (token == GOAL and goal >= 0):
            return -1, -1
        if token == START:
            start = cell
        elif token == GOAL:
            goal = cell
    return (start, goal) if start >= 0 and goal >= 0 else (-1, -1)


@compiled
def shortest_paths(puzzles: Tokens, rows: int, columns: int) -> tuple[Cells, Cells]:
    """Return length and number of the shortest paths of puzzles (count, cells); zeros where there is none."""
    lengths = np.zeros(len(puzzles), np.int64)
    counts = np.zeros(len(puzzles), np.int64)
    for k in range(len(puzzles)):
        start, goal = ends(puzzles[k])
        if start >= 0:
            distance, order = flood(puzzles[k] != WALL, start, rows, columns)
            if distance[goal] > 0:
                lengths[k] = distance[goal]
                counts[k] = count_paths(distance, order, rows, columns)[goal]
    return lengths, counts


@compiled
def judge(puzzle: Tokens, answer: Tokens, rows: int, columns: int) -> tuple[MazeFault, int, int, int]:
    """Return an answer's first fault, the cell it is about, the marked path's length and the shortest."""
    start, goal = ends(puzzle)
    if start < 0:
        return MazeFault.PUZZLE, 0, 0, 0
    shortest = flood(puzzle != WALL, start, rows, columns)[0][goal]
    if shortest < 0:
        return MazeFault.PUZZLE, 0, 0, 0
    for cell in range(len(puzzle)):
        if answer[cell] != puzzle[cell] and not (puzzle[cell] == OPEN and answer[cell] == PATH):
            return MazeFault.CHANGED, cell, 0, shortest
    distance, order = flood(answer >= START, start, rows, columns)
    if distance[goal] < 0:
        return MazeFault.BROKEN, order[-1], 0, shortest
    if distance[goal] > shortest:
        return MazeFault.LONGER, goal, distance[goal], shortest
    if np.sum(answer == PATH) > shortest - 1:
        return MazeFault.EXTRA, _off_path(answer, goal, distance, rows, columns), shortest, shortest
    return MazeFault.NONE, 0, shortest, shortest


@compiled
def judge_many(puzzles: Tokens, answers: Tokens, rows: int, columns: int) -> NDArray[np.bool_]:
    """Return which answers are faultless."""
    good = np.empty(len(puzzles), np.bool_)
    for k in range(len(puzzles)):
        good[k] = judge(puzzles[k], answers[k], rows, columns)[0] == MazeFault.NONE
    return good


@compiled
def _off_path(answer: Tokens, goal: int, distance: Cells, rows: int, columns: int) -> int:
    """Return a marked cell that one shortest marked path does without."""
    needless = answer == PATH
    around = np.empty(4, np.int64)
    cell = goal
    while distance[cell] > 1:
        for k in range(neighbours(cell, rows, columns, around)):
            if distance[around[k]] == distance[cell] - 1:
                cell = around[k]
                break
        needless[cell] = False
    return int(np.flatnonzero(needless)[0])
