"""Question answering: every figure is explained, stored with what it depends on, and details are as documented."""

import json

from latentalign.tasks.base import EvaluationOptions
from latentalign.tasks.evaluation import evaluate_and_store, find_stored
from latentalign.tasks.vqa.figure_notes import FIGURES
from latentalign.tasks.vqa.schema import AnsweringDetails
from latentalign.tasks.vqa.task import ANSWERING


def test_figures_are_explained_stored_and_found_again(trained):
    figures, details = evaluate_and_store(ANSWERING, trained, "test", EvaluationOptions(details=2))
    assert figures.keys() == FIGURES.keys()
    assert find_stored(ANSWERING, trained, "test", EvaluationOptions(outputs=False)) == figures
    (entry,) = json.loads((trained.run.evaluation / "test.json").read_text())["results"]
    files = {"data.train.questions", "data.train.annotations", "data.test.questions", "data.test.features"}
    assert files <= entry["identity"]["data"].keys()
    AnsweringDetails.model_validate_json(json.dumps(details), strict=True)
