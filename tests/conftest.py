"""Shape annotations are checked while the tests run; research data is found or skipped."""

import os
from pathlib import Path

import jaxtyping
import pytest
from jaxtyping import install_import_hook

with install_import_hook("latentalign", "beartype.beartype"):
    import latentalign  # noqa: F401

import torch

DATA = Path(
    os.environ.get("LATENTALIGN_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data")
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two workers share two cores; a run that was loaded may have asked for more


@pytest.fixture
def unchecked():
    """For long trainings: shapes are checked in all others, and cost a third of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def corpora() -> Path:
    """The folder of research corpora, or a skip that says how to get it."""
    if not DATA.is_dir():
        pytest.skip("research corpora are absent: set LATENTALIGN_DATA to the folder that holds them")
    return DATA
