"""Fixtures of the tests of core."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Shape annotations switched off, as they are for users: the library's own messages are what is seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
