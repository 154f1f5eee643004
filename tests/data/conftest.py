"""Generated scenes that several test files share."""

import pytest

from latentalign.data import scenes
from support.scenes import SMALL


@pytest.fixture(scope="session")
def pictures():
    return list(scenes.generate(scenes.Sizes(train=160, valid=20, test=60), seed=1))


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes") / "new"
    scenes.write(folder, SMALL, seed=4)
    return folder
