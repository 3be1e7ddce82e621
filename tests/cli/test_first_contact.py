"""What somebody new types: one way in for every puzzle, words for near misses, honest notes, progress."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.cli import solve as module
from eqr.errors import UserError
from eqr.model.lookup import local_model, model_for, shipped, task_for
from eqr.solve import Budget, Snapshot, load
from eqr.solve.solver import SOLVE_BUDGET, SolveOptions
from eqr.tasks import task_named

NINE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ROWS = [NINE[start : start + 9] for start in range(0, 81, 9)]
FOUR = "1.......4...2..."


def eqr(*words, stdin=None):
    done = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def drawn(name: str) -> str:
    task = task_named(name)
    return task.render(next(task.generate(np.random.default_rng(1))).puzzle)


@pytest.mark.parametrize("model", [(), ("maze",)])
@pytest.mark.parametrize("way", ["inline", "one line", "file", "stdin", "dotted file"])
def test_a_maze_of_another_size_is_solved_whatever_way_it_is_asked(tmp_path, model, way):
    maze = drawn("maze-21x21")
    path = tmp_path / "m.txt"
    path.write_text((maze.replace(" ", ".") if way == "dotted file" else maze) + "\n")
    words = {
        "inline": (maze,),
        "one line": (maze.replace("\n", ""),),
        "file": ("--file", path),
        "stdin": ("-",),
        "dotted file": ("--file", path),
    }[way]
    done = eqr("solve", *model, *words, "--depth", 1, "--json", stdin=maze + "\n")
    (said,) = (json.loads(line) for line in done.stdout.splitlines())
    assert len(said["answer"]) == 441


@pytest.mark.parametrize(
    ("text", "count", "cells"),
    [
        ("\n".join(ROWS), 1, 81),
        ("\n\n".join(["\n".join(ROWS)] * 2), 2, 81),
        ("\n".join([NINE, NINE]), 2, 81),
        ("\n".join([FOUR] * 3), 3, 16),
        ("\n\n" + FOUR, 1, 16),
        ("\n".join(["12" + "." * 14, *["." * 16] * 15]), 1, 256),
    ],
)
def test_a_file_is_read_as_its_puzzles_are_written(tmp_path, text, count, cells):
    (tmp_path / "p.txt").write_text(text)
    lines = eqr("solve", "--file", tmp_path / "p.txt", "--depth", 1, "--json").stdout.splitlines()
    assert [len(json.loads(line)["answer"]) for line in lines] == [cells] * count


def test_the_first_line_of_an_open_pipe_is_enough():
    def pipe():
        yield NINE + "\n"
        raise AssertionError("read on before the first puzzle was told")

    read, first = module._looked_at(pipe(), None)
    assert (len(read), first.strip()) == (1, NINE)
    read, first = module._looked_at(iter([FOUR]), "sudoku-4x4")
    assert first == FOUR


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NINE[:-1], "as sudoku-9x9: a puzzle of 9x9 has 81 cells, this text has 80"),
        (NINE[:4] + "x" + NINE[5:], "as sudoku-9x9: line 1, character 5: 'x' is no value"),
        (drawn("maze-11x11")[:-1] + "?", "as maze-11x11: maze row 11, column 11: '?'"),
        ("hello", "reads like none"),
    ],
)
def test_a_near_miss_is_told_the_count_or_the_character_once(text, words):
    with pytest.raises(UserError) as caught:
        model_for(text)
    assert words in str(caught.value)
    assert str(caught.value).count("sudoku-9x9") <= 1


def test_a_word_that_is_nearly_a_model_is_one():
    with pytest.raises(UserError, match=r"no model 'sudoku-9x9-hrad'.*did you mean 'sudoku-9x9-hard'"):
        eqr("solve", "sudoku-9x9-hrad")
    with pytest.raises(UserError, match="no folder runs/x/best"):
        eqr("solve", "runs/x/best", NINE)
    with pytest.raises(UserError, match="no folder runs/none"):
        local_model("runs/none")
    assert local_model("owner/name") is None


def test_a_model_takes_the_sizes_it_runs_on_and_refuses_others_in_its_own_words():
    assert task_for("." * 36, "sudoku-9x9").name == "sudoku-6x6"
    assert task_for("." * 80, "sudoku-9x9").name == "sudoku-9x9"
    assert task_for(drawn("maze-21x21"), "sudoku-9x9").name == "sudoku-9x9"
    assert task_for(NINE, "mini-arc").name == "mini-arc"


def test_load_may_follow_the_verb_and_import_is_still_understood(tmp_path):
    (tmp_path / "mine.py").write_text("import eqr.tasks.sudoku as s\ns.LOADED_FOR_A_TEST = True\n")
    import eqr.tasks.sudoku as sudoku

    assert eqr("tasks", "--load", tmp_path / "mine.py").exit_code == 0
    assert vars(sudoku).pop("LOADED_FOR_A_TEST") is True
    assert "Convert a checkpoint" in eqr("import", "--help").stdout
    assert "Convert a checkpoint" in eqr("convert", "--help").stdout


@pytest.mark.parametrize("puzzle", ["." * 16, "1" + "." * 15])
def test_a_puzzle_of_several_answers_is_told_so(puzzle):
    said = eqr("solve", puzzle).stdout
    assert "note: the puzzle has several answers" in said
    assert "note" not in eqr("solve", NINE).stdout


def test_notes_come_from_an_exact_search_and_from_the_shape_of_a_maze():
    nine = task_named("sudoku-9x9")
    solved = nine.solve(nine.parse(NINE)).answer
    assert nine.caution(nine.parse(NINE), solved=True) == ""
    twice = "".join("." if digit in "12" else digit for digit in "".join(nine.symbols[t - 1] for t in solved))
    assert "several answers, of which this is one" in nine.caution(nine.parse(twice), solved=True)
    wrong = NINE[:2] + "1" + NINE[3:]
    assert nine.caution(nine.parse(wrong), solved=False) == "the puzzle has no answer"
    maze = task_named("maze-7x7")
    room = "#######\n#S    #\n#     #\n#     #\n#     #\n#    G#\n#######"
    assert "loops or rooms" in maze.caution(maze.parse(room), solved=False)
    assert maze.caution(maze.parse(room), solved=True) == ""
    assert maze.caution(next(maze.generate(np.random.default_rng(0))).puzzle, solved=False) == ""


def test_what_is_not_solved_is_told_what_to_try():
    said = eqr("solve", NINE, "--depth", 1, "--noise", 5).stdout
    assert "try several starts, --breadth 8 --race, or more segments, --depth 4" in said


def test_depth_is_deep_where_halting_makes_it_cheap():
    assert inspect.signature(module.solve).parameters["halt"].default == SolveOptions().halt
    assert SolveOptions().budget(load("sudoku-4x4").config) == SOLVE_BUDGET
    assert SolveOptions().usual_depth == 1024
    assert SolveOptions(halt="never").usual_depth == 64


class Slow:
    """A solver whose answer never comes."""

    def __init__(self) -> None:
        self.task = task_named("sudoku-4x4")
        self.budget = Budget(depth=9)

    def solve_many(self, puzzles, *, live, watch):
        for segment, residual in ((1, 0.5), (2, 0.25)):
            for start in (0, 1):
                grid = np.full(16, 2 + start, np.uint8)
                watch(
                    Snapshot(
                        puzzle=0, start=start, segment=segment, grid=grid, confidence=np.ones(16, np.float32),
                        residual=residual + start, logit_residual=0.0, halt=0.0, status=None,
                    )
                )  # fmt: skip
        raise KeyboardInterrupt
        yield


def test_long_work_says_how_far_it_is_and_ctrl_c_shows_the_best_so_far(monkeypatch, capsys):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "LOG_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        list(module.Watcher(Slow(), quiet=False).solved([], live=False))
    said = capsys.readouterr()
    assert "puzzle 1: segment 2 of 9, residual 0.2500; Ctrl-C shows the best so far" in said.err
    assert "stopped after segment 2; the best so far" in said.out
    assert "1 1 | 1 1" in said.out


def test_weights_of_a_folder_that_is_not_there_are_said_to_be_missing(tmp_path):
    with pytest.raises(UserError, match="no folder runs/none"):
        eqr("evaluate", "runs/none")
    assert not Path("runs/none").exists()


def test_models_are_a_line_each_and_a_name_shows_the_card():
    lines = eqr("models").stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(shipped())
    assert max(map(len, lines)) <= 120
    assert "97.5% of 200 the hardest known" in eqr("models").stdout
    card = eqr("models", "maze").stdout
    assert card.startswith("# Equilibrium reasoner for maze")
    assert "| metric | value |" in card
    with pytest.raises(UserError, match="did you mean 'maze'"):
        eqr("models", "mase")
