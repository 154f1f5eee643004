"""An evaluation is stored in the run, and used again only for the same model, data and options."""

import json
import shutil

import pytest

from latentalign.tasks.base import EvaluationOptions
from latentalign.tasks.evaluation import (
    describe_evaluation,
    evaluate_and_store,
    evaluate_for_page,
    find_stored,
    result_file,
)
from latentalign.tasks.nmt.figure_notes import FIGURES
from latentalign.tasks.nmt.task import TRANSLATION
from support.commands import command

LIKELIHOODS = EvaluationOptions(outputs=False)
OUTPUTS = EvaluationOptions(beam=1)


@pytest.fixture
def run(trained_run, tmp_path):
    """A copy of the run, so that a test may store results in it."""
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def trained(run):
    return TRANSLATION.load(run)


def test_the_file_says_what_was_measured_on_what(trained):
    figures, details = evaluate_and_store(TRANSLATION, trained, "test", LIKELIHOODS)
    assert details is None
    (entry,) = json.loads((trained.run.folder / "evaluation" / "test.json").read_text())["results"]
    assert entry["figures"] == figures
    identity = entry["identity"]
    assert identity["split"] == "test"
    assert identity["predict"] == "exact"
    assert identity["precision"] == "float32"
    assert identity["data"].keys() == {"data.test.source", "data.test.target", "data.test.gold"}
    sums = (trained.run.folder / "model.safetensors.sha256").read_text()
    assert sums.startswith(identity["model"])


def test_every_figure_is_explained(trained):
    figures, _ = evaluate_and_store(TRANSLATION, trained, "test", OUTPUTS)
    assert figures.keys() == FIGURES.keys()
    for name, note in FIGURES.items():
        assert note.meaning.endswith("."), name
        assert bool(note.unit) is not isinstance(figures[name], str), name


def test_a_result_is_used_again_only_for_the_same_model_data_and_options(trained, tmp_path):
    figures, _ = evaluate_and_store(TRANSLATION, trained, "test", LIKELIHOODS)

    def stored(found=trained, split="test", options=LIKELIHOODS):
        return find_stored(TRANSLATION, found, split, options)

    assert stored() == figures
    assert stored(options=EvaluationOptions("exact", outputs=False)) == figures
    assert stored(split="valid") is None
    assert stored(options=EvaluationOptions("soft", outputs=False)) is None
    assert stored(options=EvaluationOptions()) is None  # outputs were not scored
    assert stored(TRANSLATION.load(trained.run.folder, double=True)) is None
    gold = trained.config.data.test.gold
    changed = tmp_path / "gold"
    changed.write_text(gold.read_text().replace("0-0", "0-1"))
    test = trained.config.data.test.model_copy(update={"gold": changed})
    data = trained.config.data.model_copy(update={"test": test})
    config = trained.config.model_copy(update={"data": data})
    other = type(trained)(trained.run, config, trained.vocabulary, trained.model, trained.objective)
    assert stored(other) is None
    with open(trained.run.model, "ab") as file:
        file.write(b" ")
    assert stored() is None


def test_an_evaluation_with_outputs_serves_one_without(trained, monkeypatch):
    options = EvaluationOptions(beam=None)
    monkeypatch.setattr(TRANSLATION, "evaluate", lambda *_: ({"bleu": 1.0}, None), raising=False)
    evaluate_and_store(TRANSLATION, trained, "test", options)
    assert find_stored(TRANSLATION, trained, "test", LIKELIHOODS) == {"bleu": 1.0}
    monkeypatch.setattr(TRANSLATION, "evaluate", lambda *_: ({"bleu": 2.0}, None), raising=False)
    evaluate_and_store(TRANSLATION, trained, "test", OUTPUTS)
    assert find_stored(TRANSLATION, trained, "test", options) == {"bleu": 1.0}  # other options, side by side
    assert find_stored(TRANSLATION, trained, "test", OUTPUTS) == {"bleu": 2.0}


@pytest.mark.parametrize(
    "content", ["", "[]", '{"version": 1}', '{"version": 1, "results": [3]}', '{"version": 9}']
)
def test_a_damaged_result_is_no_result(trained, content):
    path = result_file(trained, "test")
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    assert find_stored(TRANSLATION, trained, "test", LIKELIHOODS) is None
    evaluate_and_store(TRANSLATION, trained, "test", LIKELIHOODS)
    assert find_stored(TRANSLATION, trained, "test", LIKELIHOODS)


def test_a_run_that_cannot_be_written_is_evaluated_all_the_same(trained, capsys):
    (trained.run.folder / "evaluation").write_text("in the way")
    figures, _ = evaluate_and_store(TRANSLATION, trained, "test", LIKELIHOODS)
    assert figures["ppl"] > 1
    assert "the result is not stored" in capsys.readouterr().err


def test_a_page_takes_figures_from_the_stored_evaluation(trained, monkeypatch):
    first, was_stored = evaluate_for_page(TRANSLATION, trained, "test", examples=1)
    assert not was_stored
    monkeypatch.setattr(TRANSLATION, "evaluate", None)  # it must not be called again
    again, was_stored = evaluate_for_page(TRANSLATION, trained, "test", examples=1)
    assert was_stored
    assert again.figures == first.figures


@pytest.mark.slow
def test_evaluate_explains_and_report_says_that_it_reuses(run, tmp_path):
    plain = json.loads(command("evaluate", run, "--no-bleu", "--json").stdout)
    done = json.loads(command("evaluate", run, "--no-bleu", "--json", "--explain").stdout)
    assert done.pop("explanations")["ppl"]["unit"] == "exp(nats per token)"
    assert done == plain
    text = command("evaluate", run, "--no-bleu", "--explain").stdout.decode()
    assert "ppl [exp(nats per token)]: Perplexity under the run's own predictive." in text
    reported = command("report", run, "--out", tmp_path / "page.html")
    assert reported.returncode == 0
    assert "the figures are those of an earlier evaluation" in reported.stderr.decode()
    page = (tmp_path / "page.html").read_text()
    assert ">BLEU<" not in page, "it was not measured"
    command("evaluate", run)
    command("report", run, "--out", tmp_path / "page.html", "--overwrite")
    assert ">BLEU<" in (tmp_path / "page.html").read_text()


def test_overwriting_a_run_forgets_its_evaluations(trained):
    evaluate_and_store(TRANSLATION, trained, "test", LIKELIHOODS)
    assert describe_evaluation(TRANSLATION, trained, "test", LIKELIHOODS)["beam"] is None
    trained.run.open(resume=False, overwrite=True)
    assert not trained.run.evaluation.exists()


@pytest.mark.slow
def test_other_files_of_the_split_are_measured_and_stored_beside_its_own(run, trained, tmp_path):
    test = trained.config.data.test
    names = {"source": test.source, "target": test.target, "gold": test.gold}
    changes = []
    for key, path in names.items():
        (tmp_path / key).write_text("".join(path.read_text().splitlines(keepends=True)[:7]))
        changes += ["--set", f"data.test.{key}={tmp_path / key}"]
    own = json.loads(command("evaluate", run, "--no-bleu", "--json").stdout)
    other = json.loads(command("evaluate", run, "--no-bleu", "--json", *changes).stdout)
    assert own["sentences"] > other["sentences"] == 7
    assert len(json.loads((run / "evaluation" / "test.json").read_text())["results"]) == 2
    assert json.loads(command("evaluate", run, "--no-bleu", "--json").stdout) == own
    for change in ("model.dropout=0", "data.valid.source=x", "data.max_length=3"):
        refused = command("evaluate", run, "--no-bleu", "--set", change)
        assert refused.returncode == 2
        assert b"only the files of the split" in refused.stderr
