"""Everything that can be checked is checked before a run directory exists; a refused attempt leaves nothing behind."""

import shutil

import pytest

from latentalign.cli import train
from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import InputError, StorageError
from latentalign.storage import require_folder_place
from latentalign.tasks import registry
from latentalign.training.run import Run
from toy_task.data import digits_settings, write_digits
from toy_task.task import RECIPE, DigitsTask


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.device=cuda:7", "cuda:7"),
        ("training.device=abacus", "abacus"),
        ("training.epochs=0", "training.epochs"),
        ("training.max_minutes=0", "training.max_minutes"),
        ("training.max_steps=0", "training.max_steps"),
        ("training.warm_start=no/such/run", "no/such/run"),
        ("training.warm_start_objective=sofft", "did you mean 'soft'"),
        ("data.valid=no/such/file.txt", r"data\.valid: .*file\.txt: no such file"),
    ],
)
def test_a_recipe_that_cannot_be_trained_makes_nothing(override, message, digits, tmp_path):
    out = tmp_path / "deep" / "run"
    with pytest.raises(Exception, match=message) as caught:
        digits.train(out, override)
    assert getattr(caught.value, "exit_code", None) in (2, 4)
    assert list(tmp_path.iterdir()) == []


class FailsLate(DigitsTask):
    """A task whose data turns out to be unusable when it has written some of its files."""

    def prepare(self, config, run, world):
        run.cache.mkdir()
        (run.cache / "half").write_text("x")
        run.tokenizer.write_text("x")
        raise InputError("train.txt, line 9: not UTF-8")


def test_data_that_is_refused_late_leaves_nothing(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "task", FailsLate())
    with pytest.raises(InputError, match="line 9"):
        digits.train(tmp_path / "a" / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="line 9"):
        digits.train(tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == [], "a folder that existed stays"


def test_a_refused_overwrite_keeps_the_earlier_run(digits, tmp_path, monkeypatch):
    digits.train(tmp_path / "run", "training.max_steps=1")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = contents(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(digits, "task", FailsLate())
        with pytest.raises(InputError, match="line 9"):
            digits.train(tmp_path / "run", overwrite=True)
    assert contents(tmp_path / "run") == before
    digits.train(tmp_path / "run", "training.max_steps=2", overwrite=True)
    assert not Run(tmp_path / "run").replaced.exists()
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_refused_resumption_keeps_the_run(digits, tmp_path, monkeypatch):
    digits.train(tmp_path / "run", "training.max_steps=1")
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match="--resume: this run was started with"):
        digits.train(tmp_path / "run", "objective.name=soft", resume=True)
    assert contents(tmp_path / "run") == before


def test_a_dangling_link_is_named_with_its_target(digits, tmp_path):
    link = tmp_path / "run"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"run: is a symbolic link to .*gone, which does not exist"):
        digits.train(link)
    (tmp_path / "gone").mkdir()
    digits.train(link, "training.max_steps=1")
    assert (tmp_path / "gone" / "model.safetensors").is_file()


def test_a_place_that_is_no_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: is a file, expected a folder"):
        require_folder_place(tmp_path / "file" / "run")
    require_folder_place(tmp_path / "new" / "run")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StorageError, match="no permission"):
        require_folder_place(tmp_path / "new" / "run")


@pytest.mark.slow
def test_missing_corpora_name_the_command_that_gets_them(tmp_path, monkeypatch):
    from latentalign.config import read_recipe, shipped_recipes
    from latentalign.tasks.registry import task_of_recipe

    monkeypatch.chdir(tmp_path)
    for name in shipped_recipes():
        source = read_recipe(name)
        task = task_of_recipe(source)
        with pytest.raises(InputError) as caught:
            task.train(source.build(task.recipe), Run(tmp_path / "run"), resume=False, overwrite=False)
        corpus = name.split("/")[1].removesuffix("-small").removesuffix("-transformer")
        if "europarl" not in corpus:  # scripts of their own prepare the text
            assert f"`latentalign data {corpus}" in str(caught.value), name
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_unequal_files_and_unsuitable_objectives_are_refused_first(tmp_path):
    from latentalign.data import demo
    from latentalign.tasks.nmt.task import TRANSLATION
    from latentalign.tasks.vqa.task import ANSWERING
    from support.nmt import tiny

    demo.write(tmp_path / "data", train=20, valid=4, test=4)
    shutil.copy(tmp_path / "data" / "test.en", tmp_path / "data" / "valid.en")
    with open(tmp_path / "data" / "valid.en", "a") as file:
        file.write("one more\n")
    with pytest.raises(InputError, match=r"valid.de has 4 lines but .*valid.en has 5"):
        TRANSLATION.check_files(tiny(tmp_path / "data", "soft"))
    relaxed = tiny(tmp_path / "data", "relaxed", "inference.kind=external")
    with pytest.raises(InputError, match="relaxed has no q from links"):
        TRANSLATION.check(relaxed)
    relaxed = next(name for name in OBJECTIVES if name.startswith("relaxed"))
    objective = tiny(tmp_path / "data", relaxed).objective
    config = tiny(tmp_path / "data", "soft").model_copy(update={"objective": objective})
    with pytest.raises(InputError, match="cannot train question answering"):
        ANSWERING.check_recipe(config)


def test_resuming_a_run_that_does_not_exist_is_announced(tmp_path, monkeypatch, capsys):
    write_digits(tmp_path / "data")
    monkeypatch.setattr(registry, "task_of_recipe", lambda _: FailsLate())
    for resume, announced in (
        (False, ""),
        (True, "there is no run to continue; training starts from the beginning"),
    ):
        with pytest.raises(InputError, match="line 9"):
            train.command(
                str(RECIPE), tmp_path / "typo", override=digits_settings(tmp_path / "data"), resume=resume
            )
        said = capsys.readouterr().err
        assert announced in said
        assert ("no run to continue" in said) == resume


def test_a_folder_with_other_files_is_not_called_a_run(digits, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no run to --resume; choose another folder"):
        digits.train(tmp_path)
    assert contents(tmp_path) == {(tmp_path / "notes.txt").relative_to(tmp_path): b"mine"}
