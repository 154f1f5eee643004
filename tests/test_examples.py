"""Every example runs as a person runs it, is short, and shows what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name, *arguments, cwd):
    """What an example prints when it is run as a script."""
    command = [sys.executable, "-W", "error", EXAMPLES / name, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(pattern, text):
    """What two groups of a pattern find: name -> number."""
    return {key: float(value) for key, value in re.findall(pattern, text)}


def is_a_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_examples_are_under_sixty_lines(path):
    assert len(path.read_bytes().split(b"\n")) - 1 < 60


@pytest.mark.slow
def test_marginal_likelihood_beats_soft_attention_where_the_lookup_is_ambiguous(tmp_path):
    found = numbers(r"(\w+): held-out .* = (-[\d.]+) nats", run("soft_to_marginal.py", cwd=tmp_path))
    assert found["marginal"] > found["soft"] + 0.3


@pytest.mark.slow
def test_two_dependent_looks_answer_what_one_look_cannot(tmp_path):
    nll = numbers(r"\| (\w+) \| ([\d.]+) \|", run("two_looks.py", cwd=tmp_path))
    assert nll["dependent"] < 0.05
    assert min(nll[looks] for looks in "124") > 0.2


@pytest.mark.slow
def test_the_new_estimator_is_unbiased_and_spreads_less(tmp_path):
    out = run("new_estimator.py", "given.png", cwd=tmp_path)
    assert max(numbers(r"(\w+\(\d\)).* mean ([\d.]+) standard errors", out).values()) < 5
    spread = numbers(r"(\w+\(\d\)): spread ([\d.]+)", out)
    assert len(spread) == 8
    assert spread["Systematic(8)"] < 0.8 * spread["ScoreFunction(8)"]
    assert is_a_picture(tmp_path / "given.png")


@pytest.mark.slow
def test_five_objectives_come_out_as_in_the_paper(tmp_path):
    out = run("five_objectives.py", cwd=tmp_path)
    final = numbers(r"│ ([\w-]+) +│ (-[\d.]+)", out)
    assert final["marginal"] > final["variational-enum"] > final["soft"] > final["hard-sample"]
    assert final["variational-sample"] > final["soft"]
    entropy = numbers(r"│ ([\w-]+) +│ -[\d.]+ +│ ([\d.]+)", out)
    assert min(entropy, key=entropy.get) == "hard-sample"
    assert is_a_picture(tmp_path / "five_objectives.png")


@pytest.mark.slow
def test_proposition_one_holds_for_every_point_drawn(tmp_path):
    out = run("proposition_one.py", cwd=tmp_path)
    shares = numbers(r"(\w+: .* at most) ([\d.]+) of c\n", out)
    tighter = numbers(r"(\w+: .* at most) ([\d.]+) of c/2", out)
    assert len(shares) == len(tighter) == 2
    assert all(0 < shares[key] < tighter[key] <= 1 for key in shares)
    assert is_a_picture(tmp_path / "proposition_one.png")
