"""A toy task that trains in a fraction of a second."""

import pytest

from latentalign import config as recipes
from latentalign.training.run import Run
from toy_task.data import DigitsRecipe, digits_settings, write_digits
from toy_task.task import RECIPE, DigitsTask


class Digits:
    """Training runs of the toy task: four steps an epoch."""

    def __init__(self, folder):
        self.task, self.settings = DigitsTask(), digits_settings(folder)

    def recipe(self, *overrides):
        return recipes.load(RECIPE, DigitsRecipe, [*self.settings, *overrides])

    def train(self, folder, *overrides, resume=False, overwrite=False, **more):
        config = self.recipe(*overrides)
        return self.task.train(config, Run(folder), resume=resume, overwrite=overwrite, **more)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    write_digits(folder)
    return Digits(folder)
