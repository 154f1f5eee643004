"""`torch.compile`: a training step has the same loss and gradients, with one break in the graph.

In a process of their own, because the checks of shapes during tests are not for the compiler.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def compiled_steps(backend, objectives, sizes):
    """Figures of benchmarks/compiled.py by objective."""
    result = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks" / "compiled.py"),
            "--json",
            "--steps=0",
            f"--backend={backend}",
            f"--sizes={sizes}",
            f"--objectives={','.join(objectives)}",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return {row["objective"]: row for row in json.loads(result.stdout)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "objectives", "sizes"),
    [
        ("eager", ["marginal", "variational-sample", "gumbel", "rws"], 2),
        ("inductor", ["variational-sample"], 1),
    ],
)
def test_a_compiled_step_is_the_eager_step(backend, objectives, sizes):
    found = compiled_steps(backend, objectives, sizes)
    assert list(found) == objectives
    for name, row in found.items():
        assert row["largest_difference"] < 1e-4, name
        # One before and one after the objective, first for the given sizes, then for any.
        assert row["graphs"] <= 4, name


@pytest.mark.slow
def test_the_compiler_is_not_imported_by_an_eager_step():
    code = (
        "import sys, torch, latentalign as la\n"
        "choice = la.LatentAttention(2, 2, 3, hidden=4)(torch.zeros(1, 2), torch.zeros(1, 2, 2))\n"
        "la.marginal(choice.observe(torch.zeros(1).long())).loss().backward()\n"
        "with torch.no_grad():\n    choice.predict('exact')\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
