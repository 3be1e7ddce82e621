"""Recipes: every one builds, says what the paper says, and changes only in ways that make sense."""

import pytest

from eqr.errors import UserError
from eqr.model.mixers import Attention
from eqr.model.reasoner import Reasoner
from eqr.model.state import FixedStart, LearnedStart, RandomStart
from eqr.recipes import RECIPES, VARIANTS, recipe_named, training_dynamics
from eqr.runs import RunFolder
from eqr.train.optimizer import AdamW
from eqr.train.recipe import Recipe
from eqr.train.schedule import LearnedHalt, NoHalting, QHalt
from eqr.train.sources import load_data, open_stream
from eqr.train.trainer import Trainer

PARAMETERS = {
    "paper/sudoku-eqr": 4_855_298,
    "paper/sudoku-trm": 4_855_298,
    "paper/sudoku-hrm": 27_275_266,
    "paper/sudoku-urm": 13_662_210,
    "paper/maze-eqr": 263_938,
    "paper/maze-hrm": 526_082,
    "paper/maze-urm": 265_474,
}
"""Computed from the published sizes."""

LAYERS = {
    "trm": (42, 15), "eqr": (42, 15), "hrm": (24, 6), "urm": (48, 12),
    "feedforward": (42, 15), "weight-tied": (42, 15),
}  # fmt: skip
"""Equivalent layers per segment on Sudoku and Maze."""


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_and_survives_json(name):
    recipe = recipe_named(name)
    assert recipe.name == name
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert RECIPES[name]().digest() == recipe.digest()


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_recipes_have_the_published_sizes(name):
    assert Reasoner(recipe_named(name).model).parameter_count() == PARAMETERS[name]


@pytest.mark.parametrize("system", LAYERS)
def test_published_recipes_have_the_published_layers(system):
    layers = [recipe_named(f"paper/{task}-{system}").model.layers_per_segment for task in ("sudoku", "maze")]
    assert tuple(layers) == LAYERS[system]


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("paper/")])
def test_published_recipes_have_the_published_training(name):
    recipe = recipe_named(name)
    assert recipe.steps == (100_000 if "maze" in name else 50_000)
    assert recipe.rows == (128 if name == "paper/sudoku-urm" else 768)
    assert (recipe.optimizer.kind, recipe.optimizer.rate) == ("adam-atan2", 1e-4)
    assert (recipe.optimizer.betas, recipe.optimizer.weight_decay) == ((0.9, 0.95), 1.0)
    assert (recipe.rate.warmup, recipe.rate.decay) == (2000, "none")
    assert recipe.seed == 0
    if "hrm" in name:
        assert isinstance(recipe.halting, QHalt)
        assert recipe.averaging is None
    else:
        assert recipe.averaging.decay == 0.999
        assert not recipe.averaging.warm_start
    windows = {"trm": (7, 5), "eqr": (7, 5), "hrm": (2, 2), "urm": (6, 6)}
    system = name.rsplit("-", 1)[1]
    if system in windows:
        assert recipe.schedule.tracked == windows[system]["maze" in name]
        assert recipe.schedule.depth == 16
    else:  # rows 1 and 2: one segment, all of it with gradient, no halting
        assert (recipe.schedule.kind, recipe.schedule.depth) == ("terminal-full", 1)
        assert recipe.halting == NoHalting()
        assert recipe.evaluation.depths == (1,)


def tiny_base():
    return recipe_named("sudoku-4x4").with_settings(
        [
            'data={"kind": "generated", "task": "sudoku-4x4", "train": 20, "validation": 4, "test": 0}',
            *("model.width=16", "model.round_hidden_to=16", "rows=4", "schedule.depth=4", "threads=1"),
            *("model.recurrence.cycles=2", "model.recurrence.scratch=1", "schedule.tracked=2"),
        ]
    )


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return load_data(tiny_base().data, RunFolder(tmp_path_factory.mktemp("data")), quiet=True)


ROWS = list(training_dynamics(tiny_base()))


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_training_dynamics_table_trains(row, splits):
    recipe = training_dynamics(tiny_base())[row]
    trainer = Trainer(recipe, open_stream(recipe, splits))
    before = trainer.flat.vector.clone()
    assert trainer.step().stats["loss"] > 0
    assert (trainer.flat.vector != before).any()


def test_the_table_has_rows_one_to_twelve_and_matched_layers():
    rows = training_dynamics(recipe_named("paper/sudoku-trm"))
    assert {name[:2] for name in rows} == {f"{number:02d}" for number in range(1, 13)}
    assert {recipe.model.layers_per_segment for recipe in rows.values()} == {42}
    assert rows["04-full-depth"].schedule.depth == 16
    assert rows["08-segmented-truncated"].schedule.tracked == 7
    assert rows["06-late-half"].schedule.first == 8
    assert rows["06-late-quarter"].schedule.first == 12


@pytest.mark.parametrize("base", ["sudoku-6x6-tokens", "paper/sudoku-trm"])
def test_each_row_is_selected_and_reported_at_its_trained_depth(base):
    for recipe in training_dynamics(recipe_named(base)).values():
        assert recipe.evaluation.depths[-1] == recipe.schedule.depth
    rows = training_dynamics(recipe_named(base))
    assert rows["02-weight-tied"].evaluation.depths == (1,)
    assert rows["03-twice-the-depth"].evaluation.depths == (1, 2)
    assert rows["07-segmented"].evaluation.depths == (1, 2, 4, 8, 16)


SMALL = [name for name in RECIPES if not name.startswith("paper/")]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("base", SMALL)
def test_every_recipe_has_every_variant(base, variant):
    recipe = recipe_named(f"{base}/{variant}")
    assert recipe.name == f"{base}/{variant}"
    assert Recipe.from_json(recipe.to_json()) == recipe
    same = recipe_named(base)
    assert recipe.model.layers_per_segment == same.model.layers_per_segment
    assert (recipe.data, recipe.steps, recipe.rows) == (same.data, same.steps, same.rows)


def test_variants_change_what_they_say():
    def model(name):
        return recipe_named(f"sudoku-6x6-tokens/{name}").model

    interventions = {name: (model(name).start, model(name).path) for name in VARIANTS}
    assert interventions["trm"][0] == FixedStart()
    assert interventions["ri"][0] == RandomStart()
    assert interventions["learned-start"][0] == LearnedStart()
    for name in ("trm", "ri", "learned-start"):
        assert (interventions[name][1].damping, interventions[name][1].noise) == (0.0, 0.0)
    assert interventions["learned-noise"][1].learned_noise
    assert recipe_named("sudoku-6x6-tokens/eqr").model == recipe_named("sudoku-6x6-tokens").model
    assert model("attention").mixer == Attention()
    assert model("attention/trm") == model("trm/attention")
    assert model("hrm").recurrence.separate
    assert recipe_named("sudoku-6x6-tokens/hrm").halting == QHalt()
    assert model("urm").convolution


def test_rows_of_the_table_have_names():
    for row, recipe in training_dynamics(recipe_named("sudoku-6x6-tokens")).items():
        assert recipe_named(f"sudoku-6x6-tokens/{row}") == recipe
    assert recipe_named("paper/sudoku-trm/07-segmented").model.layers_per_segment == 42
    assert recipe_named("sudoku-6x6-tokens/attention/07-segmented").model.mixer == Attention()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sudoku-6x6-tokens/atention", "did you mean 'attention'"),
        ("sudoku-6x6-tokens/07-segmentd", "did you mean '07-segmented'"),
        ("sudoku-6x6-tokens/attention/tmr", "did you mean 'trm'"),
        ("sudoku-6x6-tokens/01-feedforward/hrm", "no two-level recurrence"),
        ("paper/sudoku-eqrr/ri", "did you mean 'paper/sudoku-eqr'"),
    ],
)
def test_an_unknown_variant_names_the_nearest(name, said):
    with pytest.raises(UserError) as error:
        recipe_named(name)
    assert said in str(error.value)


VARIANT_NAMES = ["learned-start", "learned-noise", "attention", "hrm", "urm"]


@pytest.mark.parametrize("variant", VARIANT_NAMES)
def test_variants_train(variant, splits, monkeypatch):
    monkeypatch.setitem(RECIPES._known, "tiny", tiny_base)
    recipe = recipe_named(f"tiny/{variant}")
    trainer = Trainer(recipe, open_stream(recipe, splits))
    before = trainer.flat.vector.clone()
    assert trainer.step().stats["loss"] > 0
    assert (trainer.flat.vector != before).any()


def test_settings_reach_nested_fields():
    recipe = recipe_named("sudoku-6x6-tokens").with_settings(
        ["model.width=96", "model.recurrence.cycles=3", "halting.exploration=0.2", "averaging=null", "seed=7"]
    )
    assert recipe.model.width == 96
    assert recipe.model.recurrence.cycles == 3
    assert recipe.halting == LearnedHalt(exploration=0.2)
    assert recipe.averaging is None
    assert recipe.seed == 7


def test_a_setting_can_choose_another_kind():
    recipe = recipe_named("sudoku-6x6-tokens").with_settings(["optimizer=adamw", "optimizer.rate=0.01"])
    assert recipe.optimizer == AdamW(rate=0.01)
    assert recipe_named("sudoku-6x6-tokens").with_settings(["halting.kind=oracle"]).halting.kind == "oracle"
    fixed = recipe_named("sudoku-6x6-tokens").with_settings(["model.start=fixed"])
    assert fixed.model.start.kind == "fixed"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("modle.width=3", "did you mean 'model'"),
        ("model.widht=3", "did you mean 'width'"),
        ("halting.explore=0.5", "did you mean 'exploration'"),
        ("rows=none", "rows = 'none'"),
        ("rows=1000000000000", "rows = 1000000000000"),
        ("threads=1000000000", "threads = 1000000000"),
        ("schedule.depth=1000000000", "depth = 1000000000"),
        ("evaluation.depths=[1000000000]", "depths.0 = 1000000000"),
        ("model.path.noise=1e308", "noise = 1e+308"),
        ("seed=-1", "seed = -1"),
        ("rows", "not of the form key=value"),
        ("schedule.tracked=99", "only 6 applications"),
        ('data.options={"clue": 5}', "did you mean 'clues'"),
        ("model.vocabulary=9", "the task sudoku-6x6 has"),
        ("halting=sometimes", "sometimes"),
    ],
)
def test_mistakes_are_named(setting, said):
    with pytest.raises(UserError) as error:
        recipe_named("sudoku-6x6-tokens").with_settings([setting])
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "../a", "-a", "/a", "a\n", "a\0", "\ud800", "a\ud800"])
def test_a_name_that_no_folder_should_have_is_refused(name):
    with pytest.raises(UserError, match="a name begins with a letter or a digit"):
        recipe_named("sudoku-6x6").replace(name=name)


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'sudoku-6x6'"):
        recipe_named("sudoku-6x7")
