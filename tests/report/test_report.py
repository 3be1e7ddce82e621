"""The report: one page that needs nothing from outside, every part captioned, every table readable."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eqr.diagnostics.traces as traces_module
from eqr.cli import app
from eqr.cli.report import summary
from eqr.data import load_split
from eqr.errors import UserError
from eqr.model import systems
from eqr.progress import duration
from eqr.report import ReportPlan, write_report
from eqr.report import run as run_report
from eqr.report.page import Sheet, scaled
from eqr.result import Result, one, pivot
from eqr.tasks import task_named
from eqr.train.recipe import EvaluationPlan, Generated, Recipe, Saving
from eqr.train.run import train
from eqr.train.schedule import SegmentedOnline

PLAN = ReportPlan(
    puzzles=10, starts=4, depth=8, landscapes=2, landscape_puzzles=4, landscape_starts=8, landscape_depth=6,
    stability=2, panels=5,
)  # fmt: skip
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks nesting while it collects what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
            self.words.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.words[tag][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    task = task_named("sudoku-4x4")
    recipe = Recipe(
        name="small",
        data=Generated(task=task.name, train=40, validation=16, test=16, options={"clues": 8}),
        model=systems.eqr(task, cycles=2, scratch=1, width=16, blocks=1, round_hidden_to=16),
        schedule=SegmentedOnline(tracked=2, depth=4),
        rows=6,
        steps=20,
        evaluation=EvaluationPlan(every=10, depths=(1, 4), puzzles=16, test_puzzles=16),
        saving=Saving(log_every=5, checkpoint_every=10),
        threads=1,
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("runs") / "small"
    train(recipe, folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def written(run):
    return write_report(run, PLAN, quiet=True)


@pytest.fixture(scope="module")
def page(written) -> Page:
    return Page(written.page.read_text(encoding="utf-8"))


def test_the_page_is_whole_and_needs_nothing_from_outside(written, page):
    text = written.page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert [attributes["lang"] for attributes in page.of("html")] == ["en"]
    assert not page.of("script")
    assert not page.of("link")
    assert all(str(image["src"]).startswith("data:image/svg+xml;base64,") for image in page.of("img"))
    names = {attributes.get("id") for _, attributes in page.tags}
    links = [str(link["href"]) for link in page.of("a")]
    assert links
    assert all(link.startswith("#") and link[1:] in names for link in links)
    assert not re.search(r"url\(|@import|https?://", page.words["style"][0])
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_every_figure_and_table_has_a_caption_with_its_setting(written, page):
    captions = page.words["figcaption"]
    assert len(page.of("img")) == len(written.figures) // 2
    assert len(captions) == len(page.of("figure")) == len(page.of("img")) + len(page.of("table"))
    assert len(page.of("table")) == len(written.tables)
    assert all(image["alt"] for image in page.of("img"))
    assert sum("test puzzles" in caption for caption in captions) >= 14
    measured = [caption for caption in captions if "segments, path noise" in caption]
    assert len(measured) >= 8
    assert all("10 test puzzles, 4 starts each, up to 8 segments" in caption for caption in measured)
    assert all("path noise 0.01, damping 0.05, seed 0" in caption for caption in measured)


def test_all_figures_of_the_issue_are_there(written):
    stems = {path.stem for path in written.figures}
    assert stems >= {
        "training", "accuracy-against-residual", "depth-and-breadth", "accuracy-against-nfe",
        "accuracy-against-breadth", "decoded-trajectory", "residual-traces", "attractor-landscape",
        "stability", "modes-over-training", "tracking",
    }  # fmt: skip
    assert {path.suffix for path in written.figures} == {".svg", ".png"}
    assert all(path.stat().st_size > 1000 for path in written.figures)


def test_tables_are_readable_csv(written):
    for path in written.tables:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert all(None not in row and None not in row.values() for row in rows)
    with (written.page.parent / "report" / "tables" / "scaling.csv").open(encoding="utf-8") as file:
        scaling = list(csv.DictReader(file))
    assert [(int(row["depth"]), int(row["breadth"])) for row in scaling][-1] == (8, 4)
    shares = [row for row in scaling if row["metric"] == "exact"]
    assert all(0 <= float(row["low"]) <= float(row["value"]) <= float(row["high"]) <= 1 for row in shares)


def test_one_number_has_one_interval(written):
    folder = written.page.parent / "report" / "tables"

    def rows(name):
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if row["metric"] == "exact"]

    def interval(row):
        return [pytest.approx(float(row[end])) for end in ("value", "low", "high")]

    scaling = {(int(row["depth"]), int(row["breadth"])): row for row in rows("scaling")}
    costs = {(row["rule"], int(row["depth"])): row for row in rows("cost")}
    breadths = {(row["rule"], int(row["breadth"])): row for row in rows("breadth")}
    assert interval(scaling[8, 1]) == interval(costs["fixed depth", 8])
    assert interval(scaling[8, 4]) == interval(costs["Top-1 converged, 4 starts", 8])
    assert interval(scaling[8, 4]) == interval(breadths["Top-1 converged", 4])
    alone = [interval(row) for (_, breadth), row in breadths.items() if breadth == 1]
    assert alone == [alone[0]] * 3


def test_every_puzzle_can_be_solved_again(run, written):
    with (written.page.parent / "report" / "tables" / "puzzles.csv").open(
        newline="", encoding="utf-8"
    ) as file:
        rows = list(csv.DictReader(file))
    task = task_named("sudoku-4x4")
    assert [int(row["number"]) for row in rows] == list(range(10))
    shown = {task.parse(row["puzzle"]).tobytes() for row in rows}
    there = load_split(next((run / "data").iterdir()), "test").inputs
    assert len(shown) == 10
    assert shown <= {grid.tobytes() for grid in there}


def test_the_trajectorys_caption_says_what_was_left_out(written, page):
    caption = next(text for text in page.words["figcaption"] if text.startswith("decoded-trajectory"))
    left_out = re.search(r"(\d+) of the (\d+) segments after which the answer was another", caption)
    assert left_out or "and all after which the answer changed" in caption
    assert not left_out or int(left_out[1]) == PLAN.panels < int(left_out[2])


def test_what_was_found_around_the_states_is_kept(written):
    kept = list((written.page.parent / "report" / "cache").glob("stability-*.json"))
    assert len(kept) == 1
    rows = json.loads(kept[0].read_text())["rows"]
    found = pivot([Result(**row) for row in rows], "part")
    assert list(found) == [("puzzle 0",), ("puzzle 1",)]
    assert all(at["right"].value or not at["within bound"].value for at in found.values())


def test_headline_numbers_come_with_interval_price_and_command(written, page):
    assert [row["budget"] for row in written.headline] == [
        "fixed depth, D=4, B=1", "fixed depth, D=8, B=1", "halting, D=8, B=1",
        "Top-1 converged, 4 starts, D=8", "racing, 4 starts, D=8",
    ]  # fmt: skip
    for row in written.headline:
        assert row["low"] <= row["exact"] <= row["high"]
        assert row["flops"] > row["equivalent_layers"] > 0
        assert row["command"] in page.words["pre"]


def test_a_headline_command_prints_the_headline_number(written, tmp_path):
    """The averages over starts are `exact`, the others what a selection rule reaches."""
    for number, rule in enumerate((None, None, None, "residual", "first-to-halt")):
        row = written.headline[number]
        words = [*row["command"].split()[1:], "--json", "--out", str(tmp_path / str(number))]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        said = [Result(**one) for one in json.loads(result.stdout)["rows"]]
        exact = one(said, metric="exact", rule=rule or "mean over starts", part="")
        assert (exact.value, exact.low, exact.high) == pytest.approx((row["exact"], row["low"], row["high"]))
        nfe = one(said, metric="nfe").value
        assert nfe == pytest.approx(row["nfe"] * (PLAN.starts if rule is None else 1))


def test_a_second_time_only_draws_the_same_page(run, written, monkeypatch):
    before = written.page.read_text(encoding="utf-8")
    monkeypatch.setattr(
        traces_module, "fill", lambda table, *_, **__: table.missing() and pytest.fail("ran again")
    )
    monkeypatch.setattr(run_report, "landscape", lambda *_, **__: pytest.fail("ran again"))
    monkeypatch.setattr(run_report, "stability", lambda *_, **__: pytest.fail("ran again"))
    asked = {name.replace("_", "-"): value for name, value in PLAN.to_json().items() if value is not None}
    options = [f"--{name}={value}" for name, value in asked.items()]
    result = CliRunner().invoke(app, ["report", str(run), *options, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["headline"] == written.headline
    assert written.page.read_text(encoding="utf-8") == before


def test_the_summary_says_what_was_reached_and_where_it_is(written):
    lines = summary(written).splitlines()
    assert len(lines) == 1 + len(written.headline) + 3
    assert lines[5].startswith("racing, 4 starts, D=8")
    assert f"{written.headline[4]['exact']:.1%}" in lines[5]
    assert str(written.page) in lines[-2]


def test_a_model_without_a_run_is_reported_on_other_puzzles(run, tmp_path):
    data = next((run / "data").iterdir())
    plan = PLAN.replace(starts=1, landscapes=0, split="validation")
    written = write_report(run / "best", plan, data=data, out=tmp_path / "page.html", quiet=True)
    page = Page(written.page.read_text(encoding="utf-8"))
    assert "not trained in this folder" in page.words["section"][0]
    assert any("10 validation puzzles, 1 start each" in caption for caption in page.words["figcaption"])
    assert (tmp_path / "page" / "tables" / "headline.csv").is_file()
    assert all("--split validation" in row["command"] for row in written.headline)


def test_mistakes_are_named(run, tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        write_report(tmp_path / "nowhere", quiet=True)
    with pytest.raises(UserError, match="--data DIR"):
        write_report(run / "best", quiet=True)
    with pytest.raises(UserError, match=r"\.html"):
        write_report(run, out=tmp_path / "report.pdf", quiet=True)
    with pytest.raises(UserError, match="starts = 0"):
        ReportPlan.from_json({"starts": 0}, where="report")


def test_numbers_are_written_for_people():
    rows = [{"exact": 0.123456, "step": 12_000, "right": 1.0}, {"step": 2, "exact low": 0.5}]
    table = Sheet(name="", rows=rows, shown=("exact", "exact low", "step", "right"), called={"step": "at"})
    assert table.headings == ["exact", "95% from", "at", "right"]
    assert table.cells == [["12.3%", "–", "12,000", "yes"], ["–", "50.0%", "2", "–"]]
    assert [scaled(1.359e9, "FLOP"), scaled(12, "B")] == ["1.36 GFLOP", "12 B"]
    assert [duration(s) for s in (12, 600, 36_000, 90_000)] == ["12 s", "10.0 min", "10.0 h", "1.0 days"]
