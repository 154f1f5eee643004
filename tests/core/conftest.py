"""Lets the tests of this folder import the problems they share."""

import sys
from pathlib import Path

import jaxtyping
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def unchecked():
    """Shape annotations switched off, as they are for users: the library's own messages are what is seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
