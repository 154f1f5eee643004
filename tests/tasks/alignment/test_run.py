"""An aligner as a run directory: trained, loaded, damaged, evaluated and served."""

import json
import re

import pytest

from latentalign.errors import CheckpointError, InputError
from latentalign.tasks.alignment.recipe import AlignmentConfig
from latentalign.tasks.alignment.task import ALIGNMENT
from latentalign.tasks.base import EvaluationOptions
from latentalign.training.run import Run
from support.aligners import demo_text, small_aligner


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A recipe that learns from the text of `small_aligner`."""
    folder = tmp_path_factory.mktemp("text")
    for side, name in enumerate(("source", "target")):
        lines = "".join(f"{pair[side]}\n" for pair in demo_text())
        (folder / name).write_text(lines, encoding="utf-8")
    (folder / "gold").write_text("0-0\n" * len(demo_text()))
    files = {name: str(folder / name) for name in ("source", "target")}
    data = {"train": files, "test": {**files, "gold": str(folder / "gold")}}
    return AlignmentConfig.model_validate({"data": data})


@pytest.fixture
def run(config, tmp_path):
    """A new run with that aligner."""
    made = Run(tmp_path / "run")
    ALIGNMENT.open_run(config, made, resume=False, overwrite=False)
    ALIGNMENT.save(small_aligner(), config, made, seconds=1.0)
    return made


def links(trained):
    return list(ALIGNMENT.align(trained, demo_text()[:30]).pharaoh())


def test_a_run_gives_the_links_of_the_aligner_in_memory(config, tmp_path):
    in_memory = ALIGNMENT.train_on_text(config, None, overwrite=False)
    saved = ALIGNMENT.train_on_text(config, tmp_path / "run", overwrite=False)
    assert links(in_memory) == links(saved) == links(ALIGNMENT.load(tmp_path / "run"))
    assert list((tmp_path / "run" / "cache").iterdir()) == []


def test_a_finished_run_stays_as_it_is_when_it_is_resumed(config, run):
    before = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    figures = ALIGNMENT.train(config, run, resume=True, overwrite=False)
    assert "perplexity_forward" in figures
    after = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    assert {name: after.get(name) for name in before} == before
    other = config.model_copy(update={"aligner": config.aligner.model_copy(update={"iterations": 1})})
    with pytest.raises(InputError, match="iterations"):
        ALIGNMENT.train(other, run, resume=True, overwrite=False)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"[1, 2", r"tokenizer\.json"),
        ("tokenizer.json", b"[1, 2]", "expected two lists of words"),
        ("tokenizer.json", b'{"source": ["a"], "target": ["b"]}', "the vocabularies differ"),
        ("model.safetensors", None, r"model\.safetensors"),
        ("config.toml", b'task = "alignment"\n[data]\n', r"config\.toml"),
    ],
)
def test_a_damaged_run_is_named(run, name, content, message):
    path = run.folder / name
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(CheckpointError, match=message):
        ALIGNMENT.load(run.folder)


def test_a_model_of_other_units_does_not_fit(run):
    path = run.folder / "config.toml"
    changed = re.sub(r"suffixes = \[[^\]]*\]", "suffixes = [3, 4]", path.read_text())
    assert "[3, 4]" in changed
    path.write_text(changed.partition("\n")[2])  # without the checksum
    with pytest.raises(CheckpointError, match="does not fit"):
        ALIGNMENT.load(run.folder)


def test_figures_count_gold_links_if_there_are_any(run):
    trained = ALIGNMENT.load(run.folder)
    found, details = ALIGNMENT.evaluate(trained, "test", EvaluationOptions(details=3))
    assert set(found) == set(ALIGNMENT.figure_notes)
    assert found["sentences"] == 300
    assert 0 < found["aer"] < 1
    assert [example["sure"] for example in details["examples"]] == [[[0, 0]]] * 3
    without, _ = ALIGNMENT.evaluate(trained, "train", EvaluationOptions())
    assert without["aer"] is None
    assert without["expected_f1"] == found["expected_f1"]
    with pytest.raises(InputError, match="no split 'valid'"):
        ALIGNMENT.evaluate(trained, "valid", EvaluationOptions())


def test_commands_about_gradients_are_refused(run, config):
    trained = ALIGNMENT.load(run.folder)
    with pytest.raises(InputError, match="learns by counting"):
        ALIGNMENT.example_set(trained, "test")
    with pytest.raises(InputError, match="both directions already"):
        ALIGNMENT.align(trained, [], reverse=trained)
    soft = config.model_copy(update={"objective": config.objective.model_copy(update={"name": "soft"})})
    with pytest.raises(InputError, match="it has no objective soft"):
        ALIGNMENT.check_recipe(soft)


def test_the_server_aligns_and_refuses(run, serving):
    app = ALIGNMENT.serve(ALIGNMENT.load(run.folder), "run", {})
    with serving(app) as client:
        source, target = demo_text()[0]
        pairs = [{"source": f"  {source}", "target": target}] * 12
        found = client.found("/api/align", {"pairs": pairs})["alignments"]
        assert len(found) == 12
        assert found[11]["source"] == source.split()
        assert found[11]["links"]
        assert client.found("/api/align", {"pairs": []}) == {"alignments": []}
        for blank in ("", " \t\n"):
            body = {"pairs": [pairs[0], {"source": source, "target": blank}]}
            assert client.refused("/api/align", body) == "pairs.1.target: there is no word in it"
        assert "2000" in client.refused("/api/align", {"pairs": [{"source": "x" * 2001, "target": "y"}]})
        assert "100" in client.refused("/api/align", {"pairs": pairs * 9})
        status, page = client("/")
        assert status == 200
        assert b"align" in page


def test_rows_of_the_experiment_are_recipes(config):
    from latentalign.config import read_recipe

    for row in ALIGNMENT.experiment().rows:
        made = read_recipe("align/demo").build(AlignmentConfig, list(row.overrides))
        assert made.objective.name == row.objective
    assert json.loads(config.model_dump_json())["task"] == "alignment"
