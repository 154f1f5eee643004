"""Guards against silent change: recorded loss curves of every objective, and a run written by an earlier version.

PYTHONPATH=tests python tests/tasks/nmt/test_golden.py    record the curves again after an intended change
"""

import json
import shutil
from pathlib import Path

import pytest

from latentalign import OBJECTIVES, parse_predict
from latentalign.data import demo
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.align import align_in_order, encode_pairs
from latentalign.tasks.nmt.decode import Translator
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.textfiles import read_lines
from latentalign.training.run import Run
from support.nmt import tiny

HERE = Path(__file__).parent
CURVES = HERE / "golden_curves.json"
FIXTURE = HERE.parents[1] / "fixtures" / "run-v1"


def pharaoh(alignment) -> str:
    return " ".join(f"{i}-{j}" for i, j in sorted(alignment.best()))


TRANSFORMERS = {
    "transformer marginal": [],
    "transformer variational-sample": [
        "model.emission_state=full",
        "model.lagged_layers=2",
        "model.positions=learned",
        "model.emission_drop=0.1",
        "training.label_smoothing=0.1",
    ],
}
"""Curves of transformers and their options."""
CURVE_NAMES = [*OBJECTIVES, *TRANSFORMERS]


def curve(name: str, folder: Path, files: Path) -> list[float]:
    """The bound at each of 20 steps in float64, with dropout and sampling."""
    objective, is_transformer = name.removeprefix("transformer "), name in TRANSFORMERS
    options = ["training.max_steps=20", "training.log_steps=1", "training.precision=float64"]
    options += TRANSFORMERS.get(name, [])
    config = tiny(files, objective, *options, backbone="transformer" if is_transformer else "lstm")
    run = Run(folder / name)
    TRANSLATION.train(config, run, resume=False, overwrite=False)
    return [r["bound"] for r in run.history() if r["kind"] == "training"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVE_NAMES)
def test_the_first_twenty_steps_are_as_recorded(name, demo_files, tmp_path):
    found = curve(name, tmp_path, demo_files)
    assert len(found) == 20
    assert found == pytest.approx(json.loads(CURVES.read_text())[name], rel=1e-6)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(demo_files, tmp_path):
    config = tiny(demo_files, "variational-sample", "training.max_steps=5")
    for name in "ab":
        TRANSLATION.train(config, Run(tmp_path / name), resume=False, overwrite=False)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (
        tmp_path / "b" / "model.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_a_model_of_version_1_still_translates_and_aligns():
    expected = json.loads((FIXTURE / "expected.json").read_text())
    trained = TRANSLATION.load(FIXTURE, double=True)
    sources = [*read_lines(FIXTURE / "text.de")]
    targets = [*read_lines(FIXTURE / "text.en")]
    search = Translator(trained.model, BeamSearch(beam=3, nbest=3), parse_predict("exact"))
    outputs = search([e.ids for e in trained.vocabulary.encode_source_batch(sources[:20])])
    for hypotheses, log_prob in zip(outputs, expected["log_prob"], strict=True):
        assert [h.log_prob for h in hypotheses] == pytest.approx(log_prob, rel=1e-9)
    found = align_in_order(trained, encode_pairs(trained, sources, targets), "posterior")
    assert [pharaoh(alignment) for alignment in found] == expected["links"]


@pytest.mark.slow
def test_a_training_of_version_1_still_goes_on(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(FIXTURE, folder)
    config = TRANSLATION.load(folder).config
    longer = config.model_copy(update={"training": config.training.model_copy(update={"max_steps": 65})})
    result = TRANSLATION.train(longer, Run(folder), resume=True, overwrite=False)
    assert result["steps"] == 65


def record_curves() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "demo"
        demo.write(files, train=400, valid=40, test=40)
        found = {name: curve(name, Path(folder), files) for name in CURVE_NAMES}
    CURVES.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record_curves()
