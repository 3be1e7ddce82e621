"""Laws of mazes: the published stream, the rules against brute force, text, symmetries."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.errors import UserError
from eqr.tasks import task_named
from eqr.tasks.grids import INVERSE, dihedral
from eqr.tasks.maze import MazeOpen, MazeOptions, MazeUnique, OpenMazeOptions
from eqr.tasks.maze_search import GOAL, OPEN, PATH, START, WALL

TASKS = [MazeUnique(11, 11), MazeUnique(8, 13), MazeOpen(6, 6), MazeOpen(5, 7)]
tasks = st.sampled_from(TASKS)
seeds = st.integers(0, 2**32 - 1)
law = settings(max_examples=60, deadline=None)


def instance(task, seed):
    return next(task.generate(np.random.default_rng(seed)))


def shortest_by_enumeration(task, puzzle):
    """Every shortest path as a set of interior cells, found by walking all simple paths."""
    rows, columns = task.shape
    grid = puzzle.reshape(rows, columns)
    goal = tuple(np.argwhere(grid == GOAL)[0])
    paths = []
    walks = [[tuple(np.argwhere(grid == START)[0])]]
    while walks and not paths:
        longer = []
        for walk in walks:
            r, c = walk[-1]
            if walk[-1] == goal:
                paths.append(walk)
            for step in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                inside = 0 <= step[0] < rows and 0 <= step[1] < columns
                if inside and grid[step] != WALL and step not in walk:
                    longer.append([*walk, step])
        walks = longer
    return [frozenset(r * columns + c for r, c in path[1:-1]) for path in paths]


@pytest.fixture(scope="module")
def published():
    """The first 2,000 puzzles of seed 42: train, then test."""
    made = list(islice(MazeUnique(30, 30).generate(np.random.default_rng(42)), 2000))
    return np.stack([one.puzzle for one in made]), np.stack([one.answer for one in made]), made


def test_the_stream_of_seed_42_is_the_published_set(published):
    puzzles, answers, made = published
    lengths = np.array([one.rating for one in made])
    assert lengths[:1000].mean() == 120.094
    assert lengths[1000:].mean() == 119.415
    assert (lengths.min(), lengths.max()) == (100, 140)
    assert ((puzzles != WALL).sum(axis=1) == 391).all()
    assert (answers == PATH).sum(axis=1).tolist() == (lengths - 1).tolist()
    assert round(float((puzzles == answers).mean()), 3) == 0.868
    assert len({puzzle.tobytes() for puzzle in puzzles}) == 2000


def test_published_mazes_are_perfect_and_walled_twice_at_right_and_bottom(published):
    puzzles, answers, made = published
    task = MazeUnique(30, 30)
    grids = puzzles.reshape(-1, 30, 30)
    passable = grids != WALL
    corridors = (passable[:, 1:] & passable[:, :-1]).sum((1, 2)) + (
        passable[:, :, 1:] & passable[:, :, :-1]
    ).sum((1, 2))
    assert (corridors == 390).all()  # connected (below) with one edge fewer than nodes: a tree
    assert not passable[:, 28:].any()
    assert not passable[:, :, 28:].any()
    assert (task.shortest_paths(puzzles) == 1).all()
    assert task.path_lengths(puzzles).tolist() == [one.rating for one in made]
    assert task.check_many(puzzles, answers).all()


@pytest.mark.parametrize("shape", [(3, 5), (5, 5), (11, 11), (12, 9), (15, 15), (20, 31)])
def test_perfect_mazes_of_any_size(shape):
    task = MazeUnique(*shape)
    least, most = task.lengths(MazeOptions())
    for one in islice(task.generate(np.random.default_rng(1)), 50):
        assert (one.puzzle != WALL).sum() == task.open_cells
        assert least <= one.rating <= most
        assert task.shortest_paths(one.puzzle[None]) == 1
        assert task.check(one.puzzle, one.answer)


def test_generation_goes_on_from_a_saved_generator_state():
    rng = np.random.default_rng(3)
    stream = MazeUnique(11, 11).generate(rng)
    next(stream)
    again = np.random.default_rng(0)
    again.bit_generator.state = rng.bit_generator.state
    expected = [next(stream).puzzle.tobytes() for _ in range(5)]
    assert [one.puzzle.tobytes() for one in islice(MazeUnique(11, 11).generate(again), 5)] == expected


@law
@given(seed=seeds)
def test_paths_are_counted_as_by_brute_force(seed):
    task = MazeOpen(5, 5)
    one = next(task.generate(np.random.default_rng(seed), OpenMazeOptions(min_walls=0.0, max_walls=0.4)))
    paths = shortest_by_enumeration(task, one.puzzle)
    assert one.facts["shortest_paths"] == len(paths) == task.shortest_paths(one.puzzle[None])[0]
    assert frozenset(np.flatnonzero(one.answer == PATH)) in paths
    for path in paths:
        other = one.puzzle.copy()
        other[list(path)] = PATH
        assert task.check(one.puzzle, other)


@law
@given(seed=seeds, marks=st.integers(0, 2**25 - 1))
def test_exactly_the_shortest_paths_are_accepted(seed, marks):
    task = MazeOpen(5, 5)
    puzzle = instance(task, seed).puzzle
    chosen = (marks >> np.arange(25) & 1).astype(bool)
    answer = np.where(chosen & (puzzle == OPEN), PATH, puzzle).astype(np.uint8)
    expected = frozenset(np.flatnonzero(answer == PATH)) in shortest_by_enumeration(task, puzzle)
    assert task.check(puzzle, answer).valid == expected
    assert task.check_many(puzzle[None], answer[None]).tolist() == [expected]


@law
@given(seed=seeds)
def test_the_nearest_answer_is_the_best_of_all_shortest_paths(seed):
    task = MazeOpen(6, 6)
    made = instance(task, seed)
    scores = np.random.default_rng(seed).standard_normal((task.cells, task.vocabulary)).astype(np.float32)
    (found,) = task.nearest(made.puzzle[None], made.answer[None], scores[None])
    gains = {
        path: sum(scores[cell, PATH] - scores[cell, OPEN] for cell in path)
        for path in shortest_by_enumeration(task, made.puzzle)
    }
    assert frozenset(np.flatnonzero(found == PATH).tolist()) == max(gains, key=gains.get)
    assert task.check(made.puzzle, found)


def test_random_ties_reach_every_shortest_path():
    task, options = MazeOpen(3, 5), OpenMazeOptions(min_walls=0.0, max_walls=0.0, min_length=6)
    stream = task.generate(np.random.default_rng(0), options)
    corner = [one for one in islice(stream, 4000) if one.puzzle[0] == START]
    paths = {one.answer.tobytes() for one in corner}
    assert all(one.facts == {"shortest_paths": 15} for one in corner)
    assert len(paths) == 15


def test_path_counts_saturate_instead_of_wrapping():
    task = MazeOpen(80, 80)
    puzzle = np.full(task.cells, OPEN, np.uint8)
    puzzle[[0, -1]] = START, GOAL
    assert task.shortest_paths(puzzle[None])[0] == np.iinfo(np.int64).max


def test_open_mazes_keep_their_promises():
    task = MazeOpen(12, 10)
    for one in islice(task.generate(np.random.default_rng(5)), 200):
        assert 0.3 <= (one.puzzle == WALL).mean() <= 0.5
        assert one.rating + 1 >= 12
        assert (one.answer == PATH).sum() == one.rating - 1
        assert task.check(one.puzzle, one.answer)


@law
@given(task=tasks, seed=seeds, cell=st.integers(0, 10**6), token=st.integers(0, 5))
def test_any_single_change_to_an_answer_is_rejected_with_its_cell(task, seed, cell, token):
    one = instance(task, seed)
    cell %= task.cells
    answer = one.answer.copy()
    if answer[cell] == token:
        return
    answer[cell] = token
    verdict = task.check(one.puzzle, answer)
    assert not verdict
    place = f"(row {cell // task.shape[1] + 1}, column {cell % task.shape[1] + 1})"
    before = one.puzzle[cell]
    if before == WALL:
        assert verdict.reason == f"wall changed at {place}"
    elif before in (START, GOAL) or token not in (OPEN, PATH):
        assert verdict.reason.endswith(f" at {place}")
        assert verdict.cells == (cell,)
    elif token == OPEN:
        assert "path breaks after" in verdict.reason or "extra" in verdict.reason
    else:
        assert verdict.reason.startswith("an extra 'o' or dead branch at")


DETOUR = MazeOpen(5, 5).parse("S   G/ ### /     /#####/#####".replace("/", "\n"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("SoooG\n ### \n     \n#####\n#####", ""),
        ("Soo G\n ### \n     \n#####\n#####", "the path breaks after (row 1, column 3)"),
        ("S   G\no###o\nooooo\n#####\n#####", "longer than the shortest path (8 steps against 4)"),
        ("SoooG\no### \n     \n#####\n#####", "an extra 'o' or dead branch at (row 2, column 1)"),
        ("SoooG\n ### \n     \n####o\n#####", "wall changed at (row 4, column 5)"),
        (" SooG\n ### \n     \n#####\n#####", "start changed at (row 1, column 1)"),
        ("SoooG\n ### \n #   \n#####\n#####", "wall added at (row 3, column 2)"),
    ],
)
def test_reasons(answer, reason):
    task = MazeOpen(5, 5)
    verdict = task.check(DETOUR, task.parse(answer))
    assert verdict.valid == (reason == "")
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("S   S\n" + "    G\n" * 4, "one start 'S', it has 2"),
        ("S    \n" * 1 + "     \n" * 4, "one goal 'G', it has 0"),
        ("S#  G\n##   \n" + "     \n" * 3, "no way leads from S to G"),
        ("So  G\n" + "     \n" * 4, "path mark 'o' at (row 1, column 2)"),
    ],
)
def test_malformed_puzzles_are_named(text, reason):
    task = MazeOpen(5, 5)
    puzzle = task.parse(text)
    assert reason in task.check_puzzle(puzzle).reason
    assert reason in task.check(puzzle, puzzle).reason
    assert not task.check_many(puzzle[None], puzzle[None])[0]


def test_padding_is_judged_and_drawn_but_not_read():
    task = MazeUnique(11, 11)
    one = instance(task, 0)
    blank = np.zeros_like(one.answer)
    assert task.check(one.puzzle, blank).reason == "wall changed at (row 1, column 1)"
    assert (
        "empty cell" in task.check_puzzle(np.where(one.puzzle == OPEN, 0, one.puzzle).astype(np.uint8)).reason
    )
    with pytest.raises(UserError, match="row 1, column 1: '\\?'"):
        task.parse(task.render(blank))


@law
@given(task=tasks, seed=seeds, data=st.data())
def test_parse_undoes_render(task, seed, data):
    one = instance(task, seed)
    scribble = data.draw(st.lists(st.integers(1, 5), min_size=task.cells, max_size=task.cells))
    for grid in (one.puzzle, one.answer, np.array(scribble, np.uint8)):
        text = task.render(grid)
        forms = [text, text + "\n", text.replace("\n", "\r\n"), text.replace("\n", "")]
        if " " in text:
            dotted = text.replace(" ", ".")
            forms += ["\n" + dotted + "\n", " ".join(dotted), dotted.replace("\n", "")]
        for form in forms:
            assert (task.parse(form) == grid).all()


@law
@given(seed=seeds)
def test_lines_trimmed_by_an_editor_are_repaired_or_refused_never_misread(seed):
    task = MazeOpen(6, 6)
    text = task.render(instance(task, seed).puzzle)
    trimmed = "\n".join(line.rstrip() for line in text.split("\n"))
    stripped = "\n".join(line.strip() for line in text.split("\n"))
    for damaged in (trimmed, trimmed.strip(" "), stripped):
        try:
            read = task.parse(damaged)
        except UserError:
            continue
        assert task.render(read) == text


def test_a_trimmed_line_is_repaired_where_leading_spaces_survived():
    task = MazeOpen(5, 5)
    repaired = task.parse("S   G\n ###\n\n#####\n#")
    assert (repaired == task.parse("S...G.###......######....")).all()
    with pytest.raises(UserError, match=r"row 5 has 1 characters, it needs 5; .* write open cells as '\.'"):
        task.parse("S   G\n#####\n\n#####\n#")


def test_spaces_behind_a_whole_maze_on_one_line_do_not_count():
    task = MazeOpen(5, 5)
    line = "S   G ###      #####     "
    assert (task.parse(line + "  ") == task.parse(line)).all()
    with pytest.raises(UserError, match="one line of 26 characters"):
        task.parse(line + "#")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one line of 0 characters"),
        ("#" * 899, "one line of 899 characters"),
        ("\n".join(["#" * 30] * 29), "this text has 29 lines"),
        ("\n".join(["#" * 30] * 29 + ["#" * 31]), "row 30 has 31 characters, it needs 30"),
        ("\n".join(["#" * 30] * 3 + ["#" * 29] + ["#" * 30] * 26), "row 4 has 29 characters"),
        ("#" * 31 + "x" + "#" * 868, "row 2, column 2: 'x'"),
        ("\n".join([".#" * 15] * 29 + [" #" * 15]), "row 30 has 15 characters"),
    ],
)
def test_bad_text_is_refused_with_its_place(text, message):
    with pytest.raises(UserError, match=message):
        MazeOpen(30, 30).parse(text)


def test_a_colour_drawing_shows_every_cell_two_wide():
    task = MazeUnique(11, 11)
    drawn = task.render(instance(task, 0).answer, color=True)
    assert len(drawn.split("\n")) == 11
    assert "\x1b[43m  " in drawn
    assert drawn.count("S ") == drawn.count("G ") == 1


@law
@given(task=tasks, seed=seeds)
def test_symmetries_keep_verdicts_and_undo(task, seed):
    one = instance(task, seed)
    rng = np.random.default_rng(seed)
    drawn = task.draw_symmetries(rng, 16)
    puzzles, answers = np.tile(one.puzzle, (16, 1)), np.tile(one.answer, (16, 1))
    moved, solved = drawn.apply(puzzles), drawn.apply(answers)
    assert task.check_many(moved, solved).all()
    assert not task.check_many(moved, moved).any()
    assert (drawn.inverse().apply(moved) == puzzles).all()
    assert (task.canonical(moved) == task.canonical(puzzles)).all()
    assert (task.path_lengths(moved) == one.rating).all()


def test_dihedral_ids_and_inverses():
    grid = np.arange(25).reshape(5, 5)
    tables = dihedral(5, 5)
    assert len({table.tobytes() for table in tables}) == 8
    assert (grid.reshape(-1)[tables[1]] == np.rot90(grid).reshape(-1)).all()
    assert (grid.reshape(-1)[tables[7]] == np.fliplr(np.rot90(grid)).reshape(-1)).all()
    for transform, inverse in enumerate(INVERSE):
        assert (tables[transform][tables[inverse]] == np.arange(25)).all()
    assert len(dihedral(4, 6)) == 4


@law
@given(task=tasks, seed=seeds)
def test_canonical_is_the_smallest_image(task, seed):
    puzzle = instance(task, seed).puzzle
    images = [puzzle[table].tolist() for table in dihedral(*task.shape)]
    assert task.canonical(puzzle[None])[0].tolist() == min(images)


def test_names_reach_the_same_object():
    assert task_named("maze-unique-15x15") is task_named("maze-15x15")
    assert task_named("maze-unique-30x30") is task_named("maze-unique")
    assert task_named("maze-1k-30x30") is task_named("maze-1k")
    for name in ("maze-unique", "maze-11x11", "maze-1k", "maze-1k-12x12"):
        assert task_named(name).name == name
    for name in ("maze-0x0", "maze-unique-0x0", "maze-1k-0x0", f"maze-{'9' * 5000}x5"):
        with pytest.raises(UserError, match=r"cannot be made|unknown task"):
            task_named(name)


@pytest.mark.parametrize("name", ["maze-2x9", "maze-3x3", "maze-1k-4x4", "maze-999x999"])
def test_sizes_that_cannot_be_are_refused(name):
    with pytest.raises(UserError, match="cannot be made"):
        task_named(name)


def test_options_steer_and_are_checked():
    task = MazeUnique(11, 11)
    options = task.options({"min_length": 5, "max_length": 7})
    assert {one.rating for one in islice(task.generate(np.random.default_rng(0), options), 100)} == {5, 6, 7}
    with pytest.raises(UserError, match="did you mean 'min_length'"):
        task.options({"min_lenght": 5})
    with pytest.raises(UserError, match="min_length 9 is above max_length 7"):
        task.options({"min_length": 9, "max_length": 7})
    with pytest.raises(UserError, match="only 49 open cells"):
        next(task.generate(np.random.default_rng(0), MazeOptions(max_length=49)))
    with pytest.raises(UserError, match="lower min_length"):
        next(
            MazeUnique(21, 21).generate(np.random.default_rng(0), MazeOptions(min_length=198, max_length=198))
        )
    with pytest.raises(UserError, match=r"min_walls 0\.6 is above max_walls"):
        MazeOpen(6, 6).options({"min_walls": 0.6})
    with pytest.raises(UserError, match="no path of 34"):
        next(MazeOpen(6, 6).generate(np.random.default_rng(0), OpenMazeOptions(min_length=34)))
