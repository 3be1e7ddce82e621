"""Laws of Mini-ARC: text, exact inverses, variants that end, votes that do not depend on order."""

import json
import math
from itertools import islice, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.errors import UserError
from eqr.tasks import task_named
from eqr.tasks.mini_arc import ORIGINAL, RULES, MiniArc, Variant, symmetries, variants, vote

TASK = MiniArc()
PUBLIC = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "mini_arc"
law = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)
grids = st.lists(st.integers(1, 10), min_size=25, max_size=25).map(lambda cells: np.array(cells, np.uint8))
any_variant = st.builds(
    Variant,
    transform=st.integers(0, 7),
    colors=st.permutations(range(1, 10)).map(lambda colors: (0, *colors)),
)


@law
@given(grid=grids)
def test_parse_takes_every_usual_form(grid):
    colors = (grid.astype(int) - 1).reshape(5, 5).tolist()
    flat = [color for row in colors for color in row]
    digits = "".join(map(str, flat))
    forms = [TASK.render(grid), digits, digits.replace("0", "."), json.dumps(colors), json.dumps(flat)]
    forms += ["\r\n".join(",".join(map(str, row)) for row in colors), "\n" + json.dumps(colors, indent=1)]
    for form in forms:
        assert (TASK.parse(form) == grid).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this text has 0"),
        ("1" * 26, "this text has 26"),
        ("12345 x", "character 7, 'x'"),
        ("٣" * 25, "character 1"),
        ("[[1,2,3", "not valid JSON"),
        ("[" * 100_000, "nested more than 64 levels"),
        ("[[1,2,3]]", "row 1 of the grid has 3 colours"),
        ("[10, 2]", "cell 1 of the grid is 10"),
        ("[true]", "cell 1 of the grid is True"),
        ("[[1,2,3,4,5], 7]", "cell 1"),
    ],
)
def test_bad_text_is_refused_with_its_place(text, message):
    with pytest.raises(UserError, match=message):
        TASK.parse(text)


@law
@given(grid=grids, cell=st.integers(0, 24))
def test_check_asks_for_a_colour_in_every_cell(grid, cell):
    assert TASK.check(grid, grid)
    assert TASK.check_puzzle(grid)
    broken = grid.copy()
    broken[cell] = 0
    assert TASK.check(grid, broken).reason == f"no colour at (row {cell // 5 + 1}, column {cell % 5 + 1})"
    assert TASK.check_many(np.stack([grid, grid]), np.stack([grid, broken])).tolist() == [True, False]


@law
@given(grid=grids)
def test_colour_drawing_dots_what_changed(grid):
    puzzle = np.where(np.arange(25) < 3, grid % 10 + 1, grid).astype(np.uint8)
    assert TASK.render(grid, color=True).count("··") == 0
    assert TASK.render(grid, puzzle=puzzle, color=True).count("··") == 3


@law
@given(seed=seeds, grid=grids)
def test_symmetries_undo_and_keep_the_background(seed, grid):
    drawn = TASK.draw_symmetries(np.random.default_rng(seed), 20)
    many = np.tile(grid, (20, 1))
    moved = drawn.apply(many)
    assert (drawn.inverse().apply(moved) == many).all()
    assert ((moved == 1).sum(axis=1) == (grid == 1).sum()).all()
    assert TASK.check_many(many, moved).all()
    assert (drawn.apply(np.zeros((20, 25), np.uint8)) == 0).all()


@law
@given(variant=any_variant, grid=grids, task=st.text().filter(lambda text: "|||" not in text))
def test_a_variant_is_undone_exactly_and_told_by_its_name(variant, grid, task):
    assert (variant.inverse().apply(variant.apply(grid[None])) == grid).all()
    assert variant.inverse().inverse() == variant
    assert Variant.from_name(variant.name(task)) == (task, variant)
    assert ORIGINAL.name(task) == task


def test_a_name_follows_the_published_form():
    swap = Variant(transform=3, colors=(0, 2, 1, 4, 3, 5, 6, 7, 8, 9))
    assert swap.name("flip") == "flip|||t3|||0214356789"
    column = TASK.parse("10000" * 5)
    assert TASK.render(swap.apply(column[None])[0]).split("\n")[0] == "2 2 2 2 2"


@pytest.mark.parametrize("name", ["a|||t8|||0123456789", "a|||t1|||0113456789", "a|||t1|||123", "a|||b"])
def test_a_name_that_is_no_variant_is_refused(name):
    with pytest.raises(UserError, match="variant"):
        Variant.from_name(name)


def images_by_enumeration(task_grids):
    """All distinct looks of a task, by trying every transform and every map of its colours."""
    used = [int(token) - 1 for token in np.unique(task_grids) if token > 1]
    looks = set()
    for targets in permutations(range(1, 10), len(used)):
        rest = [color for color in range(1, 10) if color not in targets]
        colors = dict(zip(used, targets, strict=True))
        table = (0, *(colors[c] if c in colors else rest.pop(0) for c in range(1, 10)))
        looks |= {Variant(transform=t, colors=table).apply(task_grids).tobytes() for t in range(8)}
    return looks


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0" * 25, 1), ("1" * 25, 9), ("1" + "0" * 24, 9 * 4), ("11" + "0" * 23, 72), ("12" + "0" * 23, 576)],
)
def test_variants_end_with_every_one_that_exists(text, expected):
    task_grids = TASK.parse(text)[None]
    found = variants(np.random.default_rng(0), task_grids, 1000)
    looks = {variant.apply(task_grids).tobytes() for variant in found}
    assert len(found) == len(looks) == expected
    assert looks == images_by_enumeration(task_grids)
    assert found[0] == ORIGINAL


@settings(max_examples=20, deadline=None)
@given(seed=seeds, count=st.integers(0, 60), task_grids=st.lists(grids, min_size=1, max_size=4).map(np.stack))
def test_variants_are_distinct_inverted_and_as_many_as_asked(seed, count, task_grids):
    found = variants(np.random.default_rng(seed), task_grids, count)
    assert len({variant.apply(task_grids).tobytes() for variant in found}) == len(found) <= count + 1
    used = len(np.unique(task_grids[task_grids > 1]))
    assert len(found) == count + 1 or math.perm(9, used) <= count
    for variant in found:
        assert (variant.inverse().apply(variant.apply(task_grids)) == task_grids).all()
    assert found == variants(np.random.default_rng(seed), task_grids, count)


@law
@given(seed=seeds, chosen=st.lists(any_variant, min_size=1, max_size=12))
def test_votes_are_counted_in_the_original_and_do_not_depend_on_order(seed, chosen):
    rng = np.random.default_rng(seed)
    answers = rng.integers(1, 11, (3, 25)).astype(np.uint8)
    picks = rng.integers(0, 3, len(chosen))
    scores = rng.random(len(chosen)).round(1)
    predictions = symmetries(chosen).apply(answers[picks])
    ranked = vote(predictions, chosen, scores)
    expected = sorted(
        (-(picks == k).sum(), -math.fsum(scores[picks == k]) / (picks == k).sum(), answers[k].tolist())
        for k in {*picks}
    )
    assert [(-one.votes, -one.score, one.answer.tolist()) for one in ranked] == expected
    order = rng.permutation(len(chosen))
    again = vote(predictions[order], [chosen[k] for k in order], scores[order])
    assert [one.answer.tobytes() for one in again] == [one.answer.tobytes() for one in ranked]


def test_votes_need_matching_lengths():
    with pytest.raises(UserError, match="1 predictions, 1 variants, 2 scores"):
        vote(np.ones((1, 25), np.uint8), [ORIGINAL], [0.1, 0.2])
    assert vote(np.ones((0, 25), np.uint8), [], []) == []


def test_generated_pairs_follow_the_rule_of_their_identity():
    assert task_named("mini-arc").identities
    made = list(islice(TASK.generate(np.random.default_rng(0)), 400))
    assert {one.facts["identity"] for one in made} == set(range(1, len(RULES) + 1))
    for one in made:
        after = RULES[one.facts["identity"] - 1].apply(one.puzzle.reshape(5, 5) - 1)
        assert (after.reshape(-1) + 1 == one.answer).all()
        assert (one.puzzle != one.answer).any()
        assert TASK.check(one.puzzle, one.answer)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("fall down", "00000 00000 00000 10000 23040"),
        ("next colour", "20000 03050 40000 00000 00000"),
        ("make symmetric", "10001 02020 30003 00000 00000"),
        ("fill with the commonest colour", "11111 12141 31111 11111 11111"),
    ],
)
def test_rules_do_what_they_say(name, after):
    before = TASK.parse("10000 02040 30000 00000 00000").reshape(5, 5) - 1
    if name == "fall down":
        before[2, 0], before[2, 1] = 2, 3
        before[1, 1] = 0
    rule = next(rule for rule in RULES if rule.name == name)
    assert (rule.apply(before).reshape(-1) + 1 == TASK.parse(after)).all()


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public Mini-ARC files are not here")
def test_public_tasks_with_few_colours_have_no_more_variants_than_can_exist():
    limits = {0: 8, 1: 72, 2: 576}
    counts = dict.fromkeys(limits, 0)
    for path in sorted(PUBLIC.glob("*.json")):
        pairs = [pair for part in json.loads(path.read_text()).values() for pair in part]
        task_grids = np.stack(
            [TASK.parse(json.dumps(pair[k])) for pair in pairs for k in ("input", "output")]
        )
        used = len(np.unique(task_grids[task_grids > 1]))
        if used in limits:
            counts[used] += 1
            assert len(variants(np.random.default_rng(0), task_grids, 600)) <= limits[used]
    assert counts[1] == 17
    assert counts[2] == 34
