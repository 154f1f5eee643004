"""Commands that take long print plain lines of progress where there is no terminal, and keep stdout clean."""

import pytest

from latentalign import progress
from latentalign.progress import Verbosity, set_verbosity
from latentalign.tasks.base import EvaluationOptions
from latentalign.tasks.nmt.task import TRANSLATION

pytestmark = pytest.mark.slow  # trains a small model first


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    yield
    set_verbosity(Verbosity.NORMAL)


def test_evaluate_counts_lines_and_examples(trained, capsys):
    TRANSLATION.evaluate(trained, "test", EvaluationOptions(beam=1))
    out, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert out == ""
    assert any(line.startswith("translating: 40 of 40 lines, ") for line in lines)
    assert any(line.startswith("likelihoods: 40 of 40 examples, ") for line in lines)
    set_verbosity(Verbosity.QUIET)
    TRANSLATION.evaluate(trained, "test", EvaluationOptions(outputs=False))
    assert capsys.readouterr().err == ""


def test_translate_counts_lines(trained_run, tmp_path, capsys):
    from latentalign.cli.translate import command

    (tmp_path / "in").write_text("der Hund\ndie Katze\n")
    command(trained_run, source=tmp_path / "in", output=tmp_path / "out", beam=1)
    assert (tmp_path / "out").read_text().count("\n") == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert "translating: 2 of 2 lines, " in errors


def test_features_counts_pictures(tmp_path, capsys):
    import numpy as np

    from latentalign.cli.features import command

    (tmp_path / "in").mkdir()
    for number in (1, 2):
        np.save(tmp_path / "in" / f"{number}.npy", np.ones((4, 3), np.float32))
    command(tmp_path / "in", out=tmp_path / "f.safetensors", layout="npy")
    assert "npy: 2 pictures, " in capsys.readouterr().err
