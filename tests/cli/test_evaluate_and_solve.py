"""`eqr evaluate` and `eqr solve` as typed, on a tiny untrained model and on one with known dynamics."""

import io
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from eqr.cli import app
from eqr.cli.solve import LONGEST_LINE, _lines, _plain, _split
from eqr.data import Splits
from eqr.errors import UserError
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.solve import Budget, Refused, Solver
from eqr.tasks import task_named
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(12)
TASK = task_named("sudoku-4x4")
TEXTS = ["".join(TASK.symbols[token - 1] for token in grid) for grid in PUZZLES.inputs]


@pytest.fixture
def place(tmp_path) -> Path:
    """A run folder with a tiny model, and a dataset."""
    config = systems.eqr(TASK, width=16, round_hidden_to=16, cycles=1, scratch=2, blocks=1)
    Reasoner(config).save_pretrained(tmp_path / "run" / "best")
    Splits({"test": PUZZLES}).save(tmp_path / "data")
    return tmp_path


@pytest.fixture
def settling(monkeypatch):
    """Whatever model is named, a reasoner that mostly finds the answer is opened."""
    monkeypatch.setattr("eqr.solve.load", lambda name, device: Settling(PUZZLES, stuck=0.0, wrong=0.2))


def eqr(*words: object, stdin: str | bytes | None = None):
    done = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def number(said, metric, rule=""):
    (row,) = (row for row in said["rows"] if (row["metric"], row["rule"]) == (metric, rule))
    return row["value"]


def test_evaluate_prints_intervals_and_keeps_its_table(place):
    words = ("evaluate", place / "run", "--data", place / "data", "--depth", "2,4", "--breadth", "1,3")
    done = eqr(*words)
    assert "12 puzzles" in done.stdout
    assert "any correct (oracle)" in done.stdout
    said = json.loads(eqr(*words, "--json").stdout)
    assert [(row["depth"], row["breadth"]) for row in said["rows"] if row["metric"] == "nfe"] == [
        (2, 1), (2, 3), (4, 1), (4, 3),
    ]  # fmt: skip
    assert json.loads((Path(said["out"]) / "evaluation.json").read_text()) == said
    assert Path(said["out"]).is_relative_to(place / "run" / "best")


def test_evaluate_a_sample_with_halting_and_a_race(place, settling):
    words = (
        "evaluate",
        "any",
        "--data",
        place / "data",
        "--depth",
        20,
        "--breadth",
        4,
        "--halt",
        "head:1",
        "--json",
    )
    whole = json.loads(eqr(*words, "--out", place / "a", "--limit", 9).stdout)
    raced = json.loads(eqr(*words, "--out", place / "b", "--limit", 9, "--race").stdout)
    assert whole["n"] == raced["n"] == 9
    assert number(raced, "nfe") < number(whole, "nfe")
    assert number(raced, "exact", "first-to-halt") == number(whole, "exact", "first-to-halt")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--depth", "0"), "at least 1"),
        (("--depth", "4,x"), "list of numbers"),
        (("--depth", "1" + 29 * "0"), "depth = 1000"),
        (("--breadth", "1000000000"), "GiB of candidates; lower --breadth"),
        (("--breadth", "0"), "at least 1"),
        (("--halt", "haed"), "did you mean 'head'"),
        (("--select", "majorty"), "did you mean 'majority'"),
        (("--race",), "halting rule"),
        (("--split", "tset"), "did you mean 'test'"),
        (("--limit", "99"), "cannot sample 99 of 12"),
        (("--select", "residual:99"), "only the last 64"),
        (("--damping", "1"), "damping"),
    ],
)
def test_evaluate_says_what_to_mend(place, words, complaint):
    with pytest.raises(UserError, match=complaint):
        eqr("evaluate", place / "run", "--data", place / "data", *words)
    assert not (place / "run" / "best" / "evaluations").exists()


def test_evaluate_says_every_depth_and_breadth_it_was_asked_for(place):
    words = (
        "evaluate",
        place / "run",
        "--data",
        place / "data",
        "--depth",
        "1,2",
        "--breadth",
        "1,4",
        "--json",
    )
    said = json.loads(eqr(*words).stdout)
    assert (said["depths"], said["breadths"]) == ([1, 2], [1, 4])
    assert {"depth", "breadth"}.isdisjoint(said["budget"])


def test_feedforward_models_are_never_iterated(place):
    config = systems.feedforward(TASK, width=16, round_hidden_to=16, blocks=2)
    Reasoner(config).save_pretrained(place / "forward")
    words = ("evaluate", place / "forward", "--data", place / "data", "--json")
    said = json.loads(eqr(*words).stdout)
    assert said["depths"] == [1]
    assert {row["depth"] for row in said["rows"]} == {1}
    with pytest.raises(UserError, match="depth 16: a feedforward model"):
        eqr(*words, "--depth", 16)
    assert json.loads(eqr("solve", place / "forward", TEXTS[0], "--json").stdout)["depth"] == 1
    page = place / "report.html"
    plan = (
        "--puzzles",
        4,
        "--starts",
        2,
        "--landscapes",
        1,
        "--landscape-starts",
        4,
        "--out",
        page,
        "--json",
    )
    said = json.loads(eqr("report", place / "forward", "--data", place / "data", *plan).stdout)
    assert {row["nfe"] for row in said["headline"]} <= {1, 2}


def test_selection_by_probe_probes(place):
    words = ("evaluate", place / "run", "--data", place / "data", "--depth", 2, "--breadth", 2, "--json")
    said = json.loads(eqr(*words, "--select", "probe").stdout)
    assert [row["rule"] for row in said["rows"] if row["metric"] == "valid"] == ["mean over starts", "probe"]
    assert number(said, "nfe") == 2 * (2 + 1)
    done = eqr("solve", place / "run", TEXTS[0], "--depth", 2, "--breadth", 2, "--select", "probe", "--json")
    assert json.loads(done.stdout)["nfe"] <= 2 * (2 + 1)
    said = json.loads(eqr(*words, "--select", "converged:2").stdout)
    assert number(said, "nfe") == 2 * (2 + 1)


def test_models_and_tasks_must_fit(place):
    config = systems.eqr(task_named("sudoku-6x6"), width=16, round_hidden_to=16)
    Reasoner(config).save_pretrained(place / "other")
    with pytest.raises(UserError, match=r"reads 6x6 grids of 8 tokens; sudoku-4x4"):
        eqr("evaluate", place / "other", "--data", place / "data")
    with pytest.raises(UserError, match=r"holds no model"):
        eqr("evaluate", place / "data", "--data", place / "data")


def test_solve_arguments_file_and_stdin(place, settling):
    done = eqr("solve", "owner/any", TEXTS[0], "--breadth", 8)
    assert done.exit_code == 0
    assert "puzzle 1: solved" in done.stdout
    assert "depth" in done.stdout
    (place / "lines.txt").write_text("\n".join(TEXTS[:3]) + "\n")
    grids = "\n\n".join("\n".join(text[low : low + 4] for low in range(0, 16, 4)) for text in TEXTS[:3])
    from_file = eqr("solve", "owner/any", "--file", place / "lines.txt", "--breadth", 8, "--json")
    from_stdin = eqr("solve", "owner/any", "-", "--breadth", 8, "--json", stdin=grids)
    one, two = (
        [{**json.loads(line), "seconds": 0} for line in done.stdout.splitlines()]
        for done in (from_file, from_stdin)
    )
    assert len(one) == 3
    assert one == two
    assert all(answer["valid"] for answer in one)


@pytest.mark.parametrize(
    "written",
    [
        "\r\n".join(TEXTS[:2]).encode() + b"\r\n",
        "".join(f"{text}  \t\n" for text in TEXTS[:2]).encode(),
        "\n\n".join(TEXTS[:2]).encode("utf-8-sig"),
        f"\n  {TEXTS[0]}\n \n{TEXTS[1]}".encode(),
    ],
    ids=["windows", "trailing spaces", "byte-order mark", "indented"],
)
def test_solve_reads_files_as_editors_write_them(place, settling, written):
    (place / "puzzles.txt").write_bytes(written)
    done = eqr("solve", "owner/any", "--file", place / "puzzles.txt", "--breadth", 8, "--json")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["valid"] for one in said] == [True, True]


@pytest.mark.parametrize(("written", "complaint"), [(b"\r\n \n", "no puzzles"), (b"\xff\xfe1", "not UTF-8")])
def test_solve_says_what_is_wrong_with_a_file(place, settling, written, complaint):
    (place / "puzzles.txt").write_bytes(written)
    with pytest.raises(UserError, match=complaint):
        eqr("solve", "owner/any", "--file", place / "puzzles.txt")
    with pytest.raises(UserError, match=complaint):
        eqr("solve", "owner/any", "-", stdin=written)


def test_garbage_is_refused_as_it_comes_and_takes_no_room(settling, monkeypatch):
    """An endless pipe of short lines, then an endless line: each refusal comes out before more is read."""
    monkeypatch.setattr("eqr.cli.solve.LONGEST_LINE", 1000)
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield "12" if read < 500 else "1" * 1000

    refused = Solver(Settling(PUZZLES)).solve_many(_split(endless(), TASK))
    for number in range(600):
        assert isinstance(next(refused), Refused)
        assert read <= number + 22, "lines pile up"


def test_a_line_has_a_limit():
    class Endless(io.RawIOBase):
        asked = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            self.asked += len(buffer)
            buffer[:] = b"1" * len(buffer)
            return len(buffer)

    stream = Endless()
    lines = _lines("stdin", lambda: nullcontext(io.BufferedReader(stream)))
    assert next(lines) == "1" * LONGEST_LINE
    assert stream.asked < 2 * LONGEST_LINE
    text = b"1" * (3 * LONGEST_LINE) + b"\nshort\r\n" + "é".encode() * LONGEST_LINE + b"\nlast"
    lines = list(_lines("file", lambda: nullcontext(io.BytesIO(text))))
    assert [lines[0], lines[1], lines[3]] == ["1" * LONGEST_LINE, "short", "last"]
    assert set(lines[2]) == {"é"}


def test_solve_json_is_always_json(place):
    class Lost(Settling):
        def read(self, state, before):
            return replace(super().read(state, before), residual=torch.full((state.rows,), torch.nan))

    solver = Solver(Lost(PUZZLES), budget=Budget(depth=2))
    said = json.dumps(_plain(solver, solver.solve(PUZZLES.inputs[0]), True), allow_nan=False)
    assert json.loads(said)["residual"] is None
    assert [frame["residual"] for frame in json.loads(said)["trace"]] == [None, None]


def test_solve_halts_by_the_rules_and_starts_at_random_if_told(place, settling):
    words = ("solve", "owner/any", TEXTS[0], "--breadth", 8, "--json")
    by_rules = json.loads(eqr(*words, "--halt", "valid").stdout)
    assert (by_rules["valid"], by_rules["status"]) == (True, "halted")
    own, drawn = (json.loads(eqr(*words, "--start", text).stdout) for text in ("model", "random:0.1"))
    assert own["residual"] == json.loads(eqr(*words).stdout)["residual"] != drawn["residual"]
    with pytest.raises(UserError, match="--start fixed: give model, random"):
        eqr(*words, "--start", "fixed")


def test_stdin_is_there_once(settling):
    with pytest.raises(UserError, match="no puzzles in the input"):
        eqr("solve", "owner/any", "-", "-", stdin=TEXTS[0] + "\n")


def test_puzzles_are_read_as_they_are_asked_for():
    task = task_named("sudoku-4x4")
    read = []

    def lines():
        for line in ("1" + 15 * ".", "", "12..", "34..", "....", "....", "", "  " + 16 * "."):
            read.append(line)
            yield line

    given = _split(lines(), task)
    assert next(given) == "1" + 15 * "."
    assert len(read) == 1
    assert list(given) == ["12..\n34..\n....\n....", 16 * "."]
    cut_short = ["1" * 15, "2" * 15, "3" * 16, "4" * 15, "5" * 15]
    assert list(_split(cut_short, task)) == cut_short


def test_a_line_of_spaces_and_walls_can_be_a_whole_maze():
    task = task_named("maze-1k-5x5")
    mazes = ["    S #  # ## #    # G    ", " S         ###       G   "]
    mazes = [maze[:25] for maze in mazes]
    assert all(len(maze) == 25 > len(maze.strip()) for maze in mazes)
    assert list(_split(mazes, task)) == mazes


def test_solve_takes_the_task_that_a_model_does_not_name(place):
    reasoner = Reasoner.from_pretrained(place / "run" / "best")
    Reasoner(reasoner.config.replace(task=None)).save_pretrained(place / "nameless")
    with pytest.raises(UserError, match="add --task NAME"):
        eqr("solve", place / "nameless", TEXTS[0])
    done = eqr("solve", place / "nameless", TEXTS[0], "--task", TASK.name, "--depth", 2)
    assert "puzzle 1: " in done.stdout


def test_solve_is_told_the_family_of_a_puzzle(place):
    task = task_named("mini-arc")
    config = systems.eqr(task, width=16, round_hidden_to=16, cycles=1, scratch=1, blocks=1, identity_tokens=1)
    model = Reasoner(config.replace(identities=3))
    model.identity_table[2] = 5.0
    model.save_pretrained(place / "arc")
    words = ("solve", place / "arc", "0123401234012340123401234", "--depth", 2, "--halt", "never", "--json")
    with pytest.raises(UserError, match="add --identity"):
        eqr(*words)
    with pytest.raises(UserError, match=r"from 0 \(none\) to 2"):
        eqr(*words, "--identity", 3)
    with pytest.raises(UserError, match=r"recipe\.json"):
        eqr(*words, "--identity", "turn")
    one, two = (json.loads(eqr(*words, "--trace", "--identity", number).stdout) for number in (1, 2))
    assert one["residual"] != two["residual"]
    assert two["trace"][-1]["grid"] == two["answer"]
    assert two["trace"][-1]["residual"] == pytest.approx(two["residual"], rel=1e-3)


def test_solve_answers_the_good_puzzles_of_a_bad_lot(settling):
    done = eqr("solve", "owner/any", TEXTS[0], "11" + "." * 14, "12", TEXTS[1], "--breadth", 8, "--json")
    assert done.exit_code == 1
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["puzzle"] for one in said] == [1, 2, 3, 4]
    assert said[0]["valid"]
    assert said[3]["valid"]
    assert "twice" in said[1]["reason"]
    assert "16 cells" in said[2]["reason"]


def test_solve_shows_each_segment(settling):
    done = eqr("solve", "owner/any", TEXTS[0], "--trace", "--breadth", 4)
    assert "segment 1: " in done.stdout
    said = json.loads(eqr("solve", "owner/any", TEXTS[0], "--trace", "--breadth", 4, "--json").stdout)
    assert len(said["trace"]) == said["depth"]
    assert said["trace"][-1]["grid"] == said["answer"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give a puzzle"),
        (("--depth", 0, TEXTS[0]), "depth = 0"),
        (("--breadth", 0, TEXTS[0]), "breadth = 0"),
        (("--file", "nowhere.txt"), "cannot read nowhere.txt"),
        (("--file", "/dev/zero"), "cannot read /dev/zero: it is a pipe or device"),
        (("--race", "--halt", "never", TEXTS[0]), "halting rule"),
    ],
)
def test_solve_says_what_to_mend(settling, words, complaint):
    with pytest.raises(UserError, match=complaint):
        eqr("solve", "owner/any", *words)


def test_solve_reads_an_untrained_model_and_says_the_answer_is_wrong(place):
    done = eqr("solve", place / "run", TEXTS[0], "--depth", 2)
    assert done.exit_code == 1
    assert "not solved" in done.stdout


def test_the_solver_is_at_the_top_without_costing_anything():
    import eqr
    from eqr.solve import Solver

    assert eqr.Solver is Solver
    with pytest.raises(AttributeError, match="Slover"):
        _ = eqr.Slover
