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


def test_checkpoints_of_the_first_version_load_a_learned_baseline_in_the_order_of_its_optimizer():
    """Adam's state is stored by the position of each parameter, so the order must not change either."""
    first, second = (
        LossModule(torch.nn.Linear(1, 1), OBJECTIVES["hard-sample"](baseline="learned")) for _ in range(2)
    )
    first.objective.expectation.baseline.net(torch.zeros(1, 3))  # its input size is that of the first batch
    state = {
        n.replace("objective.expectation.baseline.", "parts.0."): t for n, t in first.state_dict().items()
    }
    assert [name for name in state if name.startswith("parts.0.net.")] == list(state)[2:]
    second.load_state_dict(state)
    for name, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor)
    assert [name for name, _ in second.named_parameters()][:2] == ["model.weight", "model.bias"]


def test_a_learned_baseline_is_among_the_trained_parameters():
    module = LossModule(torch.nn.Linear(1, 1), OBJECTIVES["hard-sample"](baseline="learned"))
    names = {name for name, _ in module.named_parameters()}
    assert "objective.expectation.baseline.net.2.weight" in names
