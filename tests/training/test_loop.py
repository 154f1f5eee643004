"""The training loop, on the toy task."""

import torch

from latentalign import config as recipes
from latentalign.training import checkpoint
from latentalign.training.run import Run
from toy_task.data import DigitsRecipe, digits_settings, write_digits
from toy_task.task import RECIPE, DigitsTask


def test_validating_more_often_changes_no_weight(tmp_path):
    """A validation draws samples of its own and gives the random numbers of training back."""
    write_digits(tmp_path)
    weights = []
    for steps in (1, 3):
        fixed_rate = ["training.decay=1", "training.patience=100"]
        settings = [*digits_settings(tmp_path), *fixed_rate, f"training.validate_steps={steps}"]
        run = Run(tmp_path / str(steps))
        recipe = recipes.load(str(RECIPE), DigitsRecipe, settings)
        DigitsTask().train(recipe, run, resume=False, overwrite=False)
        weights.append(checkpoint.load(run.checkpoint).tensors["module"])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
