"""Laws of Sudoku: what is drawn can be read, what is generated has one answer, symmetries keep verdicts."""

import contextlib
import csv
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.errors import UserError
from eqr.tasks.base import Generate, Task
from eqr.tasks.registry import task_named
from eqr.tasks.sudoku import Sudoku, SudokuOptions
from eqr.tasks.sudoku_generate import solved_grid

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
REAL = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "sudoku"

SUDOKUS = [Sudoku.of_size(size, size) for size in (4, 6, 9, 16)] + [Sudoku(3, 2)]
NINE = SUDOKUS[2]
few = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def made(task, count, seed=0, **options):
    """Some generated puzzles, their answers and ratings; large grids with spare clues, to be quick."""
    if task.size == 16:
        options.setdefault("clues", 130)
    stream = task.generate(np.random.default_rng(seed), SudokuOptions(**options))
    instances = list(itertools.islice(stream, count))
    return (
        np.stack([instance.puzzle for instance in instances]),
        np.stack([instance.answer for instance in instances]),
        np.array([instance.rating for instance in instances]),
    )


@st.composite
def grids(draw):
    task = draw(st.sampled_from(SUDOKUS))
    rng = np.random.default_rng(draw(seeds))
    blanks = rng.random(task.cells) < draw(st.floats(0, 1))
    grid = rng.integers(2, task.vocabulary, task.cells).astype(np.uint8)
    return task, np.where(blanks, 1, grid).astype(np.uint8)


class TestText:
    @few
    @given(grids(), st.booleans())
    def test_what_is_rendered_is_parsed_back(self, case, color):
        task, grid = case
        assert (task.parse(task.render(grid, puzzle=np.ones_like(grid), color=color)) == grid).all()

    @few
    @given(grids(), st.sampled_from(".0_*"), st.sampled_from(["", "\n", " ", ", ", " | ", "\r\n"]))
    def test_blanks_and_separators_do_not_matter(self, case, blank, separator):
        task, grid = case
        letters = [task.symbols[token - 1].replace(".", blank) for token in grid]
        assert (task.parse(separator.join(letters)) == grid).all()

    def test_tokens_are_digits_plus_one(self):
        assert NINE.vocabulary == 11
        assert NINE.parse(PUZZLE)[:6].tolist() == [6, 4, 1, 1, 8, 1]

    def test_large_grids_take_letters_of_either_case_and_decimal_numbers(self):
        task = task_named("sudoku-16x16")
        letters = "123456789ABCDEFG" * 16
        numbers = " ".join(str(digit) for digit in range(1, 17)) + "\n"
        assert task.vocabulary == 18
        assert (task.parse(letters) == task.parse(letters.lower())).all()
        assert (task.parse(letters) == task.parse(numbers * 16)).all()

    def test_dashes_are_blanks_only_without_box_lines(self):
        assert (NINE.parse(PUZZLE.replace(".", "-")) == NINE.parse(PUZZLE)).all()
        with pytest.raises(UserError, match="has 30"):
            NINE.parse("+" + PUZZLE.replace(".", "-"))

    def test_errors_name_the_count_and_the_first_bad_character(self):
        with pytest.raises(UserError, match="81 cells, this text has 80"):
            NINE.parse(PUZZLE[:-1])
        with pytest.raises(UserError, match="line 2, character 3: 'x'"):
            NINE.parse("123456789\n12x456789\n" + "." * 63)
        with pytest.raises(UserError, match="'9' is no value of this puzzle; use 1, 2, 3, 4,"):
            task_named("sudoku-4x4").parse("9" * 16)

    @few
    @given(st.text(max_size=5) | st.text("123456789.-|+ \n", min_size=78, max_size=90))
    def test_any_text_is_a_grid_or_a_user_error(self, text):
        with contextlib.suppress(UserError):
            assert NINE.parse(text).shape == (81,)

    def test_filled_cells_stand_out_and_padding_is_shown(self):
        puzzle, answer = NINE.parse(PUZZLE), NINE.parse(ANSWER)
        assert "\x1b" not in NINE.render(answer, puzzle=puzzle)
        assert NINE.render(answer, puzzle=puzzle, color=True).count("\x1b[1;36m") == 51
        answer[0] = 0
        assert NINE.render(answer, puzzle=puzzle, color=True).startswith("\x1b[1;31m?")


class TestCheck:
    def judge(self, **changes):
        answer = NINE.parse(ANSWER)
        for cell, token in changes.items():
            answer[int(cell[1:])] = token
        return NINE.check(NINE.parse(PUZZLE), answer)

    def test_the_answer_is_valid(self):
        assert self.judge()

    def test_reasons_name_cell_digit_and_unit(self):
        assert self.judge(c0=2).reason == "the given 5 in row 1, column 1 was changed to 1"
        assert self.judge(c0=1).reason == "the given 5 in row 1, column 1 was removed"
        assert self.judge(c2=1).reason == "row 1, column 3 is left blank"
        assert self.judge(c2=0, c3=1).reason == "row 1, column 3 is left blank (of 2 blank cells the first)"
        twice = self.judge(c2=7)
        assert twice.reason == "row 1 has 6 twice: row 1, column 3 and row 1, column 4"
        assert twice.cells == (2, 3)

    def test_columns_and_boxes_count_too(self):
        empty = np.ones(16, np.uint8)
        four = task_named("sudoku-4x4")
        assert four.check(empty, four.parse("1234" * 4)).reason.startswith("column 1 has 1 4 times")
        assert four.check(empty, four.parse("1234 2341 3412 4123")).reason.startswith("box 1 has 2 twice")

    def test_contradictory_givens_are_named(self):
        assert NINE.check_puzzle(NINE.parse(PUZZLE))
        clash = NINE.check_puzzle(NINE.parse("5...5" + "." * 76))
        assert clash.reason == "row 1 has 5 twice: row 1, column 1 and row 1, column 5"
        assert not NINE.check_puzzle(np.zeros(81, np.uint8))
        with pytest.raises(UserError, match="needs 81 cells"):
            NINE.check(np.ones(16, np.uint8), np.ones(16, np.uint8))

    @few
    @given(st.sampled_from(SUDOKUS), seeds)
    def test_many_verdicts_equal_single_ones(self, task, seed):
        rng = np.random.default_rng(seed)
        puzzles, answers, _ = made(task, 4, seed)
        for row in (1, 2):  # two spoiled rows: one arbitrary cell, or two cells of a row exchanged
            answers[row, rng.integers(task.cells)] = rng.integers(task.vocabulary)
        answers[3, [0, 1]] = answers[3, [1, 0]]
        verdicts = task.check_many(puzzles, answers)
        assert verdicts.tolist() == Task.check_many(task, puzzles, answers).tolist()
        assert verdicts[0]
        assert not verdicts[3]


class TestSolve:
    def test_a_known_puzzle(self):
        solved = NINE.solve(NINE.parse(PUZZLE))
        assert (solved.solutions, solved.backtracks) == (1, 0)
        assert solved.answer is not None
        assert (solved.answer == NINE.parse(ANSWER)).all()

    def test_no_solution_and_several(self):
        clash, stuck = "55" + "." * 79, "12345678." + "........9" + "." * 63
        for text in (clash, stuck):
            assert NINE.solve(NINE.parse(text)).solutions == 0
        several = NINE.solve(np.ones(81, np.uint8), limit=7)
        assert several.solutions == 7
        assert several.answer is None

    def test_the_empty_4x4_has_288_solutions(self):
        assert task_named("sudoku-4x4").solve(np.ones(16, np.uint8), limit=1000).solutions == 288

    def test_counts_equal_brute_force(self):
        task = task_named("sudoku-4x4")
        lines = list(itertools.permutations(range(2, 6)))
        every = np.array([sum(rows, ()) for rows in itertools.product(lines, repeat=4)], np.uint8)
        every = every[task.check_many(np.ones_like(every), every)]
        assert len(every) == 288
        rng = np.random.default_rng(0)
        for clues in range(12):
            cells = rng.permutation(16)[:clues]
            puzzle = np.ones(16, np.uint8)
            puzzle[cells] = every[rng.integers(288), cells]
            if clues > 2 and clues % 2:
                puzzle[cells[0]] = rng.integers(2, 6)
            fitting = (every[:, cells] == puzzle[cells]).all(axis=1).sum()
            assert task.solve(puzzle, limit=1000).solutions == fitting

    def test_a_search_that_cannot_end_is_an_error(self, monkeypatch):
        monkeypatch.setattr("eqr.tasks.sudoku.SOLVE_STEPS", 5)
        with pytest.raises(UserError, match="puzzle 1: undecided after 5 steps"):
            NINE.solve(np.ones(81, np.uint8))

    def test_parsing_and_checking_do_not_load_the_compiler(self):
        code = (
            "import sys; from eqr.tasks.registry import task_named; t = task_named('sudoku-9x9');"
            f"assert not t.check(t.parse({PUZZLE!r}), t.parse({PUZZLE!r})); sys.exit('numba' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    @pytest.mark.skipif(not REAL.is_dir(), reason="the real puzzles are not here")
    @pytest.mark.parametrize("name", ["clue17_dev", "hard_dev"])
    def test_real_puzzles_have_the_answers_they_claim(self, name):
        with (REAL / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))[:300]
        puzzles = np.stack([NINE.parse(row["question"]) for row in rows])
        answers = np.stack([NINE.parse(row["answer"]) for row in rows])
        solved = NINE.solve_many(puzzles)
        assert (solved.solutions == 1).all()
        assert (solved.answers == answers).all()
        assert NINE.check_many(puzzles, answers).all()


class TestGenerate:
    @pytest.mark.parametrize("task", SUDOKUS, ids=lambda task: task.name)
    def test_puzzles_have_one_answer_and_a_true_rating(self, task):
        puzzles, answers, ratings = made(task, 20)
        solved = task.solve_many(puzzles)
        assert (solved.solutions == 1).all()
        assert (solved.answers == answers).all()
        assert (solved.backtracks == ratings).all()
        assert task.check_many(puzzles, answers).all()
        assert all(task.check_puzzle(puzzle) for puzzle in puzzles)

    @pytest.mark.parametrize("task", [task for task in SUDOKUS if task.size < 16], ids=lambda task: task.name)
    def test_every_clue_of_a_minimal_puzzle_is_needed(self, task):
        for puzzle in made(task, 5)[0]:
            given_cells = np.flatnonzero(puzzle > 1)
            without = np.repeat(puzzle[None], len(given_cells), axis=0)
            without[np.arange(len(given_cells)), given_cells] = 1
            assert (task.solve_many(without).solutions == 2).all()

    @pytest.mark.parametrize("clues", [24, 30, 60, 81])
    def test_clues_are_exact(self, clues):
        puzzles = made(NINE, 5, clues=clues)[0]
        assert (NINE.clues(puzzles) == clues).all()

    def test_large_minimal_puzzles_are_bounded_work(self):
        task = task_named("sudoku-16x16")
        puzzles = made(task, 1, clues=None)[0]
        assert task.clues(puzzles)[0] < 115

    def test_ratings_are_in_the_range_asked_for(self):
        ratings = made(NINE, 10, min_rating=3, max_rating=6)[2]
        assert ((ratings >= 3) & (ratings <= 6)).all()

    def test_equal_seeds_give_equal_puzzles(self):
        assert (made(NINE, 5, seed=3)[0] == made(NINE, 5, seed=3)[0]).all()
        assert (made(NINE, 5, seed=3)[0] != made(NINE, 5, seed=4)[0]).any()

    def test_all_288_solved_4x4_grids_come_up_evenly(self):
        task, rng = task_named("sudoku-4x4"), np.random.default_rng(0)
        seen = np.stack([solved_grid(rng, task.units) for _ in range(288 * 40)])
        counts = np.unique(seen, axis=0, return_counts=True)[1]
        assert len(counts) == 288
        assert counts.min() > 10
        assert counts.max() < 90

    def test_digits_are_even_in_every_cell(self):
        rng = np.random.default_rng(0)
        grids = np.stack([solved_grid(rng, NINE.units) for _ in range(3000)])
        counts = (grids[:, :, None] == np.arange(1, 10)).sum(axis=0)
        assert np.abs(counts - 3000 / 9).max() < 5 * np.sqrt(3000 / 9)

    def test_impossible_wishes_end_in_an_error_that_says_what_was_tried(self, monkeypatch):
        rng = np.random.default_rng(0)
        with pytest.raises(UserError, match="clues = 16: with one solution, sudoku-9x9 has 17 to 81"):
            NINE.generate(rng, SudokuOptions(clues=16))
        monkeypatch.setattr("eqr.tasks.sudoku_generate.TOTAL_ATTEMPTS", 20)
        with pytest.raises(UserError, match=r"clues = 17 in 20 attempts \(fewest clues reached: 2"):
            next(NINE.generate(rng, SudokuOptions(clues=17)))
        with pytest.raises(UserError, match=r"min_rating = 9999 in 20 attempts .*ratings seen: 0 to"):
            next(NINE.generate(rng, SudokuOptions(min_rating=9999)))
        with pytest.raises(UserError, match="SudokuOptions, not Generate"):
            NINE.generate(rng, Generate())

    def test_mistyped_options_are_named(self):
        with pytest.raises(UserError, match="did you mean 'clues'"):
            NINE.options({"clue": 30})
        with pytest.raises(UserError, match="max_rating 2 is below min_rating 4"):
            NINE.options({"min_rating": 4, "max_rating": 2})


class TestSymmetries:
    @few
    @given(st.sampled_from(SUDOKUS), seeds)
    def test_verdicts_and_single_answers_survive_and_inverses_undo(self, task, seed):
        puzzles, answers, _ = made(task, 3, seed)
        answers[2, 0] = answers[2, 1]
        symmetries = task.draw_symmetries(np.random.default_rng(seed), 3)
        moved, moved_answers = symmetries.apply(puzzles), symmetries.apply(answers)
        assert task.check_many(moved, moved_answers).tolist() == [True, True, False]
        assert (task.clues(moved) == task.clues(puzzles)).all()
        assert (task.solve_many(moved).solutions == 1).all()
        assert (symmetries.inverse().apply(moved) == puzzles).all()

    def test_padding_and_blanks_stay(self):
        symmetries = NINE.draw_symmetries(np.random.default_rng(0), 2)
        for token in (0, 1):
            same = np.full((2, 81), token, np.uint8)
            assert (symmetries.apply(same) == same).all()

    def test_every_cell_can_go_everywhere(self):
        for task in SUDOKUS[:3]:
            cells = task.draw_symmetries(np.random.default_rng(0), 4000).cells
            reached = [len(np.unique(cells[:, cell])) for cell in range(task.cells)]
            assert min(reached) == task.cells

    def test_square_boxes_are_transposed_half_the_time_and_others_never(self):
        for task, share in ((NINE, 0.5), (SUDOKUS[1], 0.0)):
            cells = task.draw_symmetries(np.random.default_rng(0), 4000).cells
            rows = cells // task.size
            transposed = rows[:, 0] != rows[:, 1]
            assert transposed.mean() == pytest.approx(share, abs=0.05)

    @few
    @given(st.sampled_from(SUDOKUS), seeds)
    def test_canonical_form_is_a_symmetric_variant_and_undoes_names_and_transposition(self, task, seed):
        rng = np.random.default_rng(seed)
        puzzles = made(task, 2, seed)[0]
        forms = task.canonical(puzzles)
        assert (task.solve_many(forms).solutions == 1).all()
        assert (task.clues(forms) == task.clues(puzzles)).all()
        names = np.concatenate([[0, 1], rng.permutation(np.arange(2, task.vocabulary))]).astype(np.uint8)
        assert (task.canonical(names[puzzles]) == forms).all()
        if task.box_rows == task.box_columns:
            turned = puzzles.reshape(-1, *task.shape).transpose(0, 2, 1).reshape(puzzles.shape)
            assert (task.canonical(turned) == forms).all()

    def test_canonical_form_finds_symmetric_copies_and_only_those(self):
        puzzles = made(NINE, 300)[0]
        symmetries = NINE.draw_symmetries(np.random.default_rng(1), 300)
        forms = NINE.canonical(puzzles)
        assert (forms == NINE.canonical(symmetries.apply(puzzles))).all(axis=1).mean() > 0.99
        assert len(np.unique(forms, axis=0)) == 300


def test_unknown_sizes_are_errors():
    with pytest.raises(UserError, match="no Sudoku of 8x8; known: 4x4, 6x6, 9x9, 16x16"):
        task_named("sudoku-8x8")
    with pytest.raises(UserError, match="no Sudoku of 9x6"):
        Sudoku.of_size(9, 6)
    with pytest.raises(UserError, match="boxes of 6x6"):
        Sudoku(6, 6)
    assert Sudoku(3, 2).name == "sudoku-6x6-boxes-3x2"
