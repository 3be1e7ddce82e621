"""A declared puzzle obeys the laws of every task, whatever its rules are."""

import pickle
import time
from itertools import islice, product

import numpy as np
import pytest

import eqr
from eqr.data.generated import Blocks, generate
from eqr.errors import UserError
from eqr.puzzles import compiled_puzzle, generating
from eqr.puzzles.search import find
from eqr.recipes import recipe_named
from eqr.tasks import task_named

cp = pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")


def latin(n=4, **options):
    x = cp.intvar(1, n, shape=(n, n), name="x")
    return compiled_puzzle("latin", x, [cp.AllDifferent(line) for line in (*x, *x.T)], **options)


def boxes():
    x = cp.intvar(1, 4, shape=(4, 4), name="x")
    rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
    rules += [cp.AllDifferent(x[r : r + 2, c : c + 2]) for r in (0, 2) for c in (0, 2)]
    return compiled_puzzle("boxes", x, rules)


def takuzu():
    x = cp.boolvar(shape=(4, 4), name="x")
    rules = [cp.sum(line) == 2 for line in (*x, *x.T)]
    threes = [line[k : k + 3] for line in (*x, *x.T) for k in range(2)]
    rules += [rule for three in threes for rule in (cp.sum(three) >= 1, cp.sum(three) <= 2)]
    return compiled_puzzle("takuzu", x, rules)


def order():
    x = cp.intvar(1, 3, shape=(3, 3), name="x")
    rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
    return compiled_puzzle("order", x, [*rules, x[0, 0] < x[0, 1], x[1, 1] > x[2, 1]])


def holes():
    x = cp.intvar(8, 12, shape=5, name="x")
    cells = [[x[0], None, x[1]], [None, x[2], None], [x[3], None, x[4]]]
    return compiled_puzzle("holes", cells, [cp.sum(x) == 50, x[0] < x[1], x[3] + x[4] == 2 * x[2]])


def graph():
    x = cp.intvar(0, 2, shape=6, name="x")
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3), (1, 4)]
    return compiled_puzzle("graph", x, [x[a] != x[b] for a, b in edges], letters="RGB")


def signs():
    x = cp.intvar(1, 3, shape=(3, 3), name="x")
    rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
    pairs = [(line[at], line[at + 1]) for line in x for at in range(2)]
    sign = cp.boolvar(shape=len(pairs), name="sign")
    rules += [there.implies(one < other) for there, (one, other) in zip(sign, pairs, strict=True)]
    return compiled_puzzle("signs", x, rules, given=sign)


def cages():
    x = cp.intvar(1, 3, shape=(2, 3), name="x")
    total = cp.intvar(2, 9, shape=3, name="total")
    held = [cp.sum(cage) == sum_ for cage, sum_ in zip((x[0], x[1], x[:, 2]), total, strict=True)]
    return compiled_puzzle("cages", x, held, given=total)


KINDS = {make.__name__: make for make in (latin, boxes, takuzu, order, holes, graph, signs, cages)}


@pytest.fixture(params=KINDS)
def task(request):
    return KINDS[request.param]()


def made(task, count, seed=0, **options):
    source = task.generate(np.random.default_rng(seed), task.options(options))
    instances = list(islice(source, count))
    return np.stack([one.puzzle for one in instances]), np.stack([one.answer for one in instances])


def answers_by_brute_force(task):
    """Every finished grid, extended cell by cell so far as the rules allow."""
    grids = np.full((1, task.cells), -1)
    for cell in range(task.cells):
        grids = np.repeat(grids, len(task.values), axis=0)
        grids[:, cell] = np.tile(np.arange(len(task.values)), len(grids) // len(task.values))
        sums = task.rows.sums(grids)
        positive = np.array(
            [(task.rows.weights[task.rows.row_of == row] >= 0).all() for row in range(len(task.rows))]
        )
        grids = grids[(sums[:, positive] <= task.rows.high[positive]).all(axis=1)]
    return grids[task.rows.kept(grids).all(axis=1)] + 2


def test_puzzles_have_one_answer_by_brute_force(task):
    every = answers_by_brute_force(task)
    puzzles, answers = made(task, 20)
    for puzzle, answer in zip(puzzles, answers, strict=True):
        fits = ((puzzle == 1) | (puzzle == every)).all(axis=1)
        assert fits.sum() == 1
        assert (every[fits][0] == answer).all()
    assert (task.count_answers(puzzles) == 1).all()
    assert task.count_answers(np.ones_like(puzzles[:1]))[0] == min(len(every), 2)
    assert all(task.check_puzzle(puzzle) for puzzle in puzzles)
    assert task.check_many(puzzles, answers).all()


def test_every_clue_is_needed(task):
    puzzle = made(task, 1)[0][0]
    given = np.flatnonzero(puzzle[: task.cells - task.board.given] > 1)
    without = np.tile(puzzle, (len(given), 1))
    without[np.arange(len(given)), given] = 1
    assert (task.count_answers(without) == 2).all()


def test_search_and_cp_sat_agree(task):
    pytest.importorskip("ortools", reason="OR-tools is not installed: pip install 'eqr[puzzles]'")
    empty = np.full(task.cells, -1)
    count = len(answers_by_brute_force(task))
    assert find(task.tables, empty, limit=count + 5, steps=10**9)[0].solutions == count
    found, complete = generating.answers_by_cp_sat(task.rows, empty, limit=count + 5, seconds=60)
    assert complete
    assert len({tuple(answer) for answer in found}) == count


def test_symmetries_never_change_what_check_says(task):
    rng = np.random.default_rng(0)
    puzzles, answers = made(task, 30)
    wrong = answers.copy()
    wrong[np.arange(30), rng.integers(task.cells, size=30)] = 2
    turned = task.draw_symmetries(rng, 30)
    for grids in (answers, wrong):
        before = task.check_many(puzzles, grids)
        assert (task.check_many(turned.apply(puzzles), turned.apply(grids)) == before).all()
    assert (turned.inverse().apply(turned.apply(puzzles)) == puzzles).all()
    assert task.check_many(puzzles, answers).all()


def test_symmetries_are_found():
    assert [len(KINDS[name]().symmetries.turns) for name in ("latin", "boxes", "takuzu", "order")] == [
        8,
        8,
        8,
        1,
    ]
    assert latin().symmetries.values == ((0, 1, 2, 3),)
    assert latin().symmetries.bands[0] == (0, 1, ((0, 1, 2, 3),))
    assert (0, 2, ((0, 1),)) in boxes().symmetries.bands
    assert takuzu().symmetries.values == ((0, 1),)
    assert order().symmetries.values == ()
    assert graph().symmetries.values == ((0, 1, 2),)


def test_parsing_undoes_drawing(task):
    for grids in made(task, 10):
        for grid in grids:
            assert (task.parse(task.render(grid)) == grid).all()
            assert (task.parse(task.render(grid, puzzle=np.ones_like(grid), color=True)) == grid).all()
    assert len(task.symbols) == task.vocabulary - 1 == len(set(task.symbols))


def test_canonical_forms_are_those_of_the_class(task):
    puzzles, _ = made(task, 10)
    turns = task.symmetries.turns
    alike = puzzles[:, turns[-1]]
    assert (task.canonical(alike) == task.canonical(puzzles)).all()


def test_verdicts_name_the_rule_and_the_cells():
    puzzle = boxes()
    blank = np.ones(16, np.uint8)
    answer = puzzle.parse("1234 3412 2143 4321")
    assert puzzle.check(blank, answer)
    swapped = puzzle.parse("1234 3412 2143 4312")
    assert puzzle.check(blank, swapped).reason == "column 3 has 1 twice: row 2, column 3 and row 4, column 3"
    assert "row 1, column 1 is left blank" in puzzle.check(blank, puzzle.parse(".234 3412 2143 4321")).reason
    assert "was changed to 1" in puzzle.check(puzzle.parse("2... .... .... ...."), answer).reason
    assert "row 1 has 2 twice" in puzzle.check_puzzle(puzzle.parse("2.2. .... .... ....")).reason
    assert takuzu().check_puzzle(takuzu().parse("111. .... .... ....")).reason.startswith("sum(")
    assert "does not hold" in order().check_puzzle(order().parse("2 1 . ... ...")).reason


def test_what_every_puzzle_gives_is_never_taken_away():
    task = cages()
    puzzles, _ = made(task, 20)
    assert (puzzles[:, 6:] > 1).all()
    assert (puzzles[:, :6] == 1).any()
    assert "given number 2 is missing" in task.check_puzzle(task.parse("... ... 6 . 4")).reason
    assert task.check_puzzle(task.parse("... ... 6 5 4"))


def test_given_values_about_two_cells_are_drawn_as_signs():
    task = signs()
    links = task.look().links
    assert [link[:3] for link in links] == [
        (0, 1, 9),
        (1, 2, 10),
        (3, 4, 11),
        (4, 5, 12),
        (6, 7, 13),
        (7, 8, 14),
    ]
    named = dict(zip(task.board.names, links[0].signs, strict=True))
    assert named == {"0": "", "1": "<", "2": None, "3": None}
    assert task.look().places[9:] == (-1,) * 6
    assert not cages().look().links
    assert cages().look().places[6:] == (9, 10, 11)


def test_a_description_is_what_the_verdict_says():
    x = cp.intvar(1, 3, shape=3, name="x")
    rule = cp.sum(x) == 5
    rule.set_description("the cage of 5")
    puzzle = compiled_puzzle("cage", x, [rule])
    assert puzzle.check(np.ones(3, np.uint8), puzzle.parse("1 1 1")).reason.startswith(
        "the cage of 5: cell 1 is 1"
    )


def test_a_declared_puzzle_is_known_by_its_name_and_has_a_recipe():
    x = cp.intvar(1, 4, shape=(4, 4), name="x")
    declared = eqr.puzzle("declared-here", x, [cp.AllDifferent(line) for line in (*x, *x.T)])
    assert task_named("declared-here") is declared
    assert recipe_named("declared-here").model.live
    assert recipe_named("declared-here/trm").model.task == "declared-here"
    assert eqr.puzzle("declared-here", x, [cp.AllDifferent(line) for line in x]) is task_named(
        "declared-here"
    )


def test_groups_are_the_sets_of_different_cells():
    assert {name: groups.shape for name, groups in boxes().groups().items()} == {"once": (12, 4)}
    x = cp.intvar(1, 4, shape=4, name="x")
    some = compiled_puzzle("some", x, [cp.AllDifferent(x[:3]), x[2] != x[3], cp.AllDifferent(x[0], x[3])])
    assert not some.groups()
    few = compiled_puzzle("few", x, [cp.AllDifferent(x[:3]), cp.AllDifferent(x[0], x[3])])
    assert few.groups()["differ"].tolist() == [[0, 1, 2], [0, 3, -1]]
    assert not takuzu().groups()


def test_background_processes_make_the_same_puzzles():
    task = pickle.loads(pickle.dumps(latin()))
    with Blocks(task, None, seed=1, workers=1) as apart, Blocks(latin(), None, seed=1) as here:
        pairs = zip(next(apart), next(here), strict=True)
        assert all((one.puzzle == other.puzzle).all() for one, other in pairs)


def test_rules_that_contradict_each_other_are_one_clear_error():
    x = cp.intvar(1, 3, shape=(2, 2), name="x")
    pigeons = [x[0, 0] < x[0, 1], x[0, 1] < x[1, 0], x[1, 0] < x[0, 0]]
    with pytest.raises(UserError, match="no grid keeps all rules"):
        next(compiled_puzzle("none", x, pigeons).generate(np.random.default_rng(0)))


def test_clues_and_ratings_steer_the_generator():
    task = latin(5)
    puzzles, _ = made(task, 5, clues=15)
    assert (task.clues(puzzles) == 15).all()
    hard = list(islice(task.generate(np.random.default_rng(0), task.options({"min_rating": 1})), 3))
    assert min(one.rating for one in hard) >= 1
    with pytest.raises(UserError, match="below min_rating"):
        task.options({"min_rating": 3, "max_rating": 1})


def test_generating_is_quick():
    task = boxes()
    made(task, 1)  # compiles
    start = time.process_time()
    made(task, 50, seed=1)
    assert time.process_time() - start < 5


def test_letters_and_long_values_are_read():
    squares = latin(letters="ABCD")
    assert (
        squares.parse("a.. d .C.. .... D...".replace("a.. d", "a..d")) == squares.parse("A..D .C.. .... D...")
    ).all()
    board = holes()
    grid = board.parse("8 # 12\n# 10 #\n. # 9")
    assert [board.board.name(token) for token in grid] == ["8", "12", "10", ".", "9"]
    assert (board.parse("8 12 10 . 9") == grid).all()
    with pytest.raises(UserError, match="'13' is no value"):
        board.parse("8 12 10 . 13")
    with pytest.raises(UserError, match="has 5 cells"):
        board.parse("8 12")


def test_reach_bounds_every_finished_grid(task):
    rng = np.random.default_rng(0)
    values = len(task.values)
    possible = rng.random((task.cells, values)) < 0.6
    possible[np.arange(task.cells), rng.integers(values, size=task.cells)] = True
    least, greatest = task.rows.reach(possible)
    for _ in range(50):
        grid = np.array([rng.choice(np.flatnonzero(row)) for row in possible])
        sums = task.rows.sums(grid[None])[0]
        assert (least <= sums).all()
        assert (sums <= greatest).all()


def test_product_of_small_domains_is_listed_exactly():
    x = cp.intvar(1, 4, shape=3, name="x")
    task = compiled_puzzle("product", x, [x[0] * x[1] * x[2] == 8])
    right = [g for g in product(range(1, 5), repeat=3) if np.prod(g) == 8]
    assert {tuple(g - 1) for g in answers_by_brute_force(task)} == set(right)


def test_a_kind_of_few_puzzles_trains_on_those_there_are():
    task = latin(3)
    sizes = {"train": 900, "validation": 90}
    with pytest.raises(UserError, match="distinct puzzles"):
        generate(task, sizes, seed=0, quiet=True)
    splits = generate(task, sizes, seed=0, fewer=True, quiet=True)
    assert all(16 <= len(splits[name]) < size for name, size in sizes.items())


def test_large_grids_end_in_bounded_time():
    x = cp.boolvar(shape=(40, 40), name="x")
    task = compiled_puzzle("large", x, [cp.sum(line) == 20 for line in (*x, *x.T)])
    made(latin(), 1)  # compiles
    start = time.process_time()
    whole = (np.add.outer(np.arange(40), np.arange(40)) % 2).ravel()
    givens = whole.copy()
    generating.take_away(givens, np.random.default_rng(0).permutation(1600), task.tables, 0)
    assert time.process_time() - start < 60
    assert (givens < 0).any()
    assert ((givens < 0) | (givens == whole)).all()
