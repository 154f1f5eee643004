"""Model and objective as one module."""

import torch

from latentalign import OBJECTIVES
from latentalign.training.loss import LossModule


def loss():
    return LossModule(torch.nn.Linear(1, 1), OBJECTIVES["hard-sample"](baseline="running-mean"))


def test_checkpoints_of_the_first_version_load_the_state_of_a_baseline():
    first, second = loss(), loss()
    first.objective.expectation.baseline.mean.fill_(3.0)
    state = {
        n.replace("objective.expectation.baseline.", "parts.0."): t for n, t in first.state_dict().items()
    }
    assert "parts.0.mean" in state
    second.load_state_dict(state)
    assert second.objective.expectation.baseline.mean == 3.0


def test_a_learned_baseline_is_among_the_trained_parameters():
    module = LossModule(torch.nn.Linear(1, 1), OBJECTIVES["hard-sample"](baseline="learned"))
    names = {name for name, _ in module.named_parameters()}
    assert "objective.expectation.baseline.net.2.weight" in names
