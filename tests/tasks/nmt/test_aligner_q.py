"""q from our own word aligner: its links are made once per run and used as they are."""

import numpy as np
import pytest

from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.links.formats import read_predicted
from latentalign.tasks.nmt import external
from latentalign.tasks.nmt.evaluate import evaluate
from latentalign.tasks.nmt.external import align_splits, likely_links, obtain_links
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION, obtain_tokenizer
from latentalign.textfiles import count_lines
from latentalign.training.run import Run
from support.nmt import tiny

CHAIN = ["inference.kind=aligner", "prior.kind=jump", "prior.null=true", "model.emission=word+state"]


@pytest.fixture
def prepared(demo_files, tmp_path):
    """A recipe and its tokenizer."""
    config = tiny(demo_files, "variational-sample", *CHAIN, "training.max_steps=3")
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    return config, obtain_tokenizer(config, run)


def test_links_are_made_once_for_the_same_text(prepared, tmp_path, monkeypatch):
    config, tokenizer = prepared
    calls = []

    def fake(config, tokenizer, folder):
        calls.append(config)
        return {"train": ["0-0:0.5"], "valid": [""]}

    monkeypatch.setattr(external, "link_words", fake)
    files = align_splits(config, tokenizer, tmp_path / "aligner")
    assert files["train"].read_text() == "0-0:0.5\n"
    assert align_splits(config, tokenizer, tmp_path / "aligner") == files
    assert len(calls) == 1
    files["valid"].unlink()
    align_splits(config, tokenizer, tmp_path / "aligner")
    assert len(calls) == 2
    (tmp_path / "aligner" / "identity.json").write_text("{}")
    align_splits(config, tokenizer, tmp_path / "aligner")
    assert len(calls) == 3


def test_an_objective_without_q_needs_no_aligner(demo_files, prepared, tmp_path):
    config = tiny(demo_files, "marginal", "inference.kind=aligner")
    assert obtain_links(config, prepared[1], tmp_path / "cache") == {}
    assert not (tmp_path / "cache").exists()


def test_improbable_links_are_not_stored():
    assert likely_links(np.array([[0.004, 0.25], [1.0000001, 0.0]])) == {(1, 0): 0.25, (0, 1): 1.0}


@pytest.mark.slow
def test_a_run_learns_from_the_posterior_of_the_aligner(prepared, demo_files, tmp_path, monkeypatch):
    config, _ = prepared
    run = Run(tmp_path / "run")
    TRANSLATION.train(config, run, resume=True, overwrite=False)
    links = read_predicted(run.cache / "aligner" / "train.links")
    assert len(links.links) == count_lines(demo_files / "train.de")
    assert all(0 < p <= 1 for line in links.probabilities for p in line.values())
    trained = TRANSLATION.load(run.folder)
    assert trained.model.inference is None
    found = evaluate(trained, "valid")
    assert found["elbo"] < 0
    assert found["entropy_inferred"] > 0

    def refuse(*_):
        raise AssertionError("the aligner is trained again")

    monkeypatch.setattr(external, "link_words", refuse)
    longer = config.model_copy(update={"training": config.training.model_copy(update={"max_steps": 5})})
    assert TRANSLATION.train(longer, run, resume=True, overwrite=False)["steps"] == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["objective.name=relaxed", "inference.kind=aligner"], "relaxed has no q from links"),
        (
            ["objective.name=variational-enum", "inference.kind=aligner", "prior.kind=monotone"],
            "never goes back",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        TRANSLATION.check_recipe(recipes.load("nmt/demo", NMTConfig, changes))
