import math
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from latentalign import config
from latentalign.config import DataPath, Section, dump, load
from latentalign.errors import InputError
from latentalign.training.objective import ObjectiveConfig


class Split(Section):
    source: DataPath
    gold: DataPath | None = None


class Data(Section):
    train: Split
    test: Split | None = None


class Training(Section):
    learning_rate: float = Field(3e-4, gt=0)
    epochs: int = 30
    normalize: Literal["tokens", "sentences"] = "tokens"
    betas: tuple[float, float] = (0.9, 0.999)
    shuffle: bool = True
    note: str = ""
    limit: int | None = None

    @model_validator(mode="after")
    def _short_enough(self):
        if self.limit and self.limit < self.epochs:
            raise ValueError("limit must be at least epochs")
        return self


class Cat(Section):
    kind: Literal["cat"]
    lives: int = 9


class Dog(Section):
    kind: Literal["dog"]
    legs: int = 4


class Recipe(Section):
    data: Data
    training: Training = Training()
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None


class WithObjective(Section):
    data: Data
    objective: ObjectiveConfig = ObjectiveConfig()


MINIMAL = '[data.train]\nsource = "train.de"\n'


@pytest.fixture
def recipe(tmp_path: Path):
    def recipe(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return recipe


def complaint(path: Path | str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load(path, Recipe, overrides)
    return str(caught.value)


def test_a_recipe_becomes_its_model(recipe):
    loaded = load(recipe(MINIMAL + "[training]\nlearning_rate = 1\nbetas = [0.5, 0.9]\n"), Recipe)
    assert loaded.training == Training(learning_rate=1.0, betas=(0.5, 0.9))
    assert isinstance(loaded.training.learning_rate, float)


def test_sections_never_change():
    with pytest.raises(ValidationError):
        Training().epochs = 3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[training]\nlearnig_rate = 1.0",
            "unknown key training.learnig_rate; did you mean training.learning_rate?",
        ),
        ("[trainig]\nepochs = 1", "unknown key trainig; did you mean training?"),
        ("[data.train.deep]\nx = 1", "unknown key data.train.deep; valid here: source, gold"),
        ("[data]\nlearning_rate = 1", "unknown key data.learning_rate; did you mean training.learning_rate?"),
        ("[pet]\nkind = 'cat'\nlive = 3", "unknown key pet.live; did you mean pet.lives?"),
        ("[training]\nepochs = 'ten'", "training.epochs: expected a valid integer, got 'ten'"),
        ("[training]\nepochs = '10'", "training.epochs: expected a valid integer, got '10'"),
        ("[training]\nepochs = true", "training.epochs: expected a valid integer, got True"),
        ("[training]\nshuffle = 1", "training.shuffle: expected a valid boolean, got 1"),
        ("[training]\nlearning_rate = -1.0", "training.learning_rate: expected greater than 0, got -1.0"),
        (
            "[training]\nnormalize = 'words'",
            "training.normalize: expected 'tokens' or 'sentences', got 'words'",
        ),
        ("[training]\nlimit = 3", "training: limit must be at least epochs"),
        ("[pet]\nkind = 'cow'", "'cow'"),
        ("[pet]\nkind = 'dog'\nlegs = 'x'", "pet.legs: expected a valid integer, got 'x'"),
        ("[data.test]\ngold = 'g'", "missing key data.test.source"),
    ],
)
def test_every_complaint_names_file_and_key(recipe, line, expected):
    path = recipe(line + "\n" + MINIMAL)
    message = complaint(path)
    assert message.startswith(f"{path}: ")
    assert expected in message


def test_misspelt_keys_come_before_what_they_leave_missing(recipe):
    first, second = complaint(recipe('[data.train]\nsorce = "x"')).split("\n")
    assert "unknown key data.train.sorce; did you mean data.train.source?" in first
    assert "missing key data.train.source" in second


def test_broken_toml_is_named_with_its_line(recipe):
    assert "line 3" in complaint(recipe(MINIMAL + "epochs = = 3\n"))
    path = recipe("")
    path.write_bytes(b"[data]\nx = '\xff'\n")
    assert f"{path}, line 2: not UTF-8" in complaint(path)


def test_byte_order_mark_and_crlf_are_accepted(recipe):
    path = recipe("")
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load(path, Recipe).data.train.source.name == "train.de"


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("training.epochs=3", "epochs", 3),
        ("training.epochs = 3", "epochs", 3),
        ("training.learning_rate=1e-2", "learning_rate", 0.01),
        ("training.shuffle=false", "shuffle", False),
        ("training.betas=[0.1, 0.2]", "betas", (0.1, 0.2)),
        ("training.normalize=sentences", "normalize", "sentences"),
        ('training.note="3"', "note", "3"),
        ("training.note=a=b", "note", "a=b"),
        ("training.note=", "note", ""),
        ("training.note=2024-01-01", "note", "2024-01-01"),
        ("training.note=1\nx = 2", "note", "1\nx = 2"),
    ],
)
def test_overrides_win(recipe, override, field, value):
    path = recipe(MINIMAL + "[training]\nepochs = 7\nlearning_rate = 7.0\n")
    assert getattr(load(path, Recipe, [override]).training, field) == value


def test_complaints_about_overrides_say_so(recipe):
    path = recipe(MINIMAL)
    assert "--set: unknown key training.epoch; did you mean training.epochs?" in complaint(
        path, "training.epoch=3"
    )
    assert "expected table.key=value" in complaint(path, "training.epochs")
    assert "expected table.key=value" in complaint(path, "training.=3")
    assert "training.epochs is a value" in complaint(path, "training.epochs=3", "training.epochs.x=3")


def test_a_complaint_blames_the_file_for_what_the_file_alone_does_wrong(recipe):
    path = recipe(MINIMAL + "[training]\nlearnig_rate = 1.0\n")
    assert complaint(path, "training.epochs=9").startswith(f"{path}: unknown key training.learnig_rate")
    path = recipe(MINIMAL + "[training]\nlimit = 3\n")
    assert complaint(path, "training.epochs=9") == f"{path}: training: limit must be at least epochs"


def test_a_rule_about_a_table_that_an_override_breaks_blames_the_override(recipe):
    path = recipe(MINIMAL + "[training]\nlimit = 30\n")
    assert complaint(path, "training.epochs=31") == "--set: training: limit must be at least epochs"
    flags = {"training.epochs": "--epochs"}
    with pytest.raises(InputError, match=r"^--epochs: limit must be at least epochs$"):
        config.read_recipe(path).build(Recipe, ["training.epochs=31"], flags=flags)


def test_a_recipe_takes_from_its_base_what_it_does_not_set(recipe, tmp_path):
    (tmp_path / "common").mkdir()
    base = '[data.train]\nsource = "train.de"\ngold = "/gold"\n[training]\nepochs = 7\nshuffle = false\n'
    (tmp_path / "common" / "base.toml").write_text(base)
    middle = 'base = "base.toml"\n[data.test]\nsource = "test.de"\n[training]\nepochs = 8\n'
    (tmp_path / "common" / "middle.toml").write_text(middle)
    path = recipe('base = "common/middle.toml"\n[data.test]\ngold = "g"\n[training]\nnote = "mine"\n')
    loaded = load(path, Recipe, ["data.test.source=here.de"])
    assert loaded.training == Training(epochs=8, shuffle=False, note="mine")
    assert loaded.data.train == Split(source=tmp_path / "common" / "train.de", gold="/gold")
    assert loaded.data.test == Split(source=Path.cwd() / "here.de", gold=tmp_path / "g")
    assert load(path, Recipe).data.test.source == tmp_path / "common" / "test.de"
    assert config.read_recipe(path).merged_table["training"] == {
        "epochs": 8,
        "shuffle": False,
        "note": "mine",
    }


def test_another_objective_does_not_inherit_the_options_of_the_recipes_own(recipe, tmp_path):
    table = '[objective]\nname = "marginal"\ntolerance = 0.01\n'
    (tmp_path / "base.toml").write_text(MINIMAL + table)
    path = recipe('base = "base.toml"\n')
    assert load(path, WithObjective).objective.options == {"tolerance": 0.01}
    assert load(path, WithObjective, ["objective.name=marginal"]).objective.options == {"tolerance": 0.01}
    assert load(path, WithObjective, ["objective.name=soft"]).objective.options == {}
    # Options of the command line count, whatever the order.
    changes = ["objective.n=3", "objective.name=hard-sample", "objective.baseline=none"]
    assert load(path, WithObjective, changes).objective.options == {"n": 3, "baseline": "none"}
    assert (
        load(recipe('base = "base.toml"\nobjective.name = "soft"\n'), WithObjective).objective.options == {}
    )
    with pytest.raises(InputError, match="soft has no option 'tolerance'"):
        load(path, WithObjective, ["objective.name=soft", "objective.tolerance=0.1"])


def test_a_complaint_names_the_base_that_has_the_problem(recipe, tmp_path):
    (tmp_path / "base.toml").write_text(MINIMAL + "[training]\nepoch = 3\n")
    path = recipe('base = "base.toml"\n[training]\nshufle = true\n')
    first, second = complaint(path).split("\n")
    assert {first, second} == {
        f"{tmp_path / 'base.toml'}: unknown key training.epoch; did you mean training.epochs?",
        f"{path}: unknown key training.shufle; did you mean training.shuffle?",
    }


def test_bases_that_are_missing_circular_or_no_text_are_errors(recipe, tmp_path):
    path = recipe('base = "absent.toml"\n')
    message = complaint(path)
    assert message.startswith(f"{path}: base: {tmp_path / 'absent.toml'}: no such file")
    assert "nmt/demo" in message
    (tmp_path / "a.toml").write_text('base = "b.toml"')
    (tmp_path / "b.toml").write_text('base = "a.toml"')
    assert "base = 'a.toml' leads back to itself" in complaint(tmp_path / "a.toml")
    assert "leads back to itself" in complaint(recipe('base = "recipe.toml"\n'))
    assert "base must be the name of a recipe or a file, got 3" in complaint(recipe("base = 3\n"))
    assert "unknown key bas; did you mean base?" in complaint(recipe('bas = "a"\n' + MINIMAL))


def test_a_shipped_recipe_is_a_base_that_sees_the_current_folder(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from latentalign.tasks.nmt.recipe import NMTConfig

    loaded = load(recipe('base = "nmt/multi30k-small"\n[training]\nepochs = 2\n'), NMTConfig)
    assert loaded.training.epochs == 2
    plain = load("nmt/multi30k-small", NMTConfig)
    assert loaded.model == plain.model
    assert loaded.data == plain.data


def test_paths_are_seen_from_the_recipe_and_overrides_from_here(recipe, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = recipe(MINIMAL + 'gold = "/abs/gold"\n[data.test]\nsource = "a"\n')
    data = load(Path("..") / path.name, Recipe, ["data.test.source=test.de", "data.test.gold=7"]).data
    assert data.train.source.resolve() == tmp_path / "train.de"
    assert data.train.source.is_absolute()
    assert data.train.gold == Path("/abs/gold")
    assert data.test.source == here / "test.de"
    assert data.test.gold == here / "7"


def test_paths_built_in_python_stay_as_given():
    assert Split(source="x/y").source == Path("x/y")


def test_shipped_recipes_are_found_by_name_and_see_the_current_folder(tmp_path, monkeypatch):
    shelf = tmp_path / "package" / "recipes" / "nmt"
    shelf.mkdir(parents=True)
    (shelf / "tiny.toml").write_text(MINIMAL)
    monkeypatch.setattr(config.resources, "files", lambda package: tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    assert config.shipped_recipes() == ["nmt/tiny"]
    assert load("nmt/tiny", Recipe).data.train.source == tmp_path / "train.de"
    assert "nmt/huge: no such file, and no shipped recipe has that name (nmt/tiny)" in complaint("nmt/huge")
    assert "no such file" in complaint("../recipes/nmt/tiny")
    assert "is a directory" in complaint(tmp_path)


def test_a_recipe_is_read_once_and_stays_as_it_was_read(recipe, monkeypatch):
    opened = []
    monkeypatch.setattr(config, "read_lines", lambda path: opened.append(path) or iter(MINIMAL.split("\n")))
    found = config.read_recipe(recipe(MINIMAL))
    assert found.build(Recipe, ["training.epochs=3", "data.test.source=x"]).training.epochs == 3
    assert found.build(Recipe).training.epochs == 30
    assert found.table == {"data": {"train": {"source": "train.de"}}}
    assert len(opened) == 1


any_text = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.builds(
        Training,
        learning_rate=st.floats(min_value=0, exclude_min=True, allow_infinity=True),
        epochs=st.integers(-(2**63), 2**63 - 1),
        betas=st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
        shuffle=st.booleans(),
        note=any_text,
        normalize=st.sampled_from(["tokens", "sentences"]),
    ),
    any_text.filter(lambda text: "\0" not in text),
    st.sampled_from([None, Cat(kind="cat"), Dog(kind="dog", legs=3)]),
)
def test_what_is_dumped_loads_back_equal(tmp_path_factory, training, name, pet):
    path = tmp_path_factory.mktemp("dump") / "config.toml"
    test = Split(source=Path("/data") / name.lstrip("/"))
    original = Recipe(data=Data(train=Split(source="/a b/c"), test=test), training=training, pet=pet)
    path.write_bytes(dump(original).encode())
    assert load(path, Recipe) == original


def test_dump_writes_defaults_but_no_absent_values():
    text = dump(Recipe(data=Data(train=Split(source="/x"))))
    assert '[data.train]\nsource = "/x"\n' in text
    assert "epochs = 30" in text
    assert "gold" not in text
    assert "pet" not in text


def test_dump_keeps_odd_keys_empty_tables_and_inner_tables(tmp_path):
    class Odd(Section):
        tables: dict[str, dict[str, float]]
        rows: list[dict[str, list[bool]]]

    original = Odd(tables={"a.b": {'"': math.inf}, "empty": {}, "": {}}, rows=[{"x y": [True, False]}, {}])
    path = tmp_path / "odd.toml"
    path.write_text(dump(original))
    assert load(path, Odd) == original
