"""Meta tensors: shapes, parameters and operations can be counted without any memory."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from latentalign import DISTRIBUTIONS, OBJECTIVES, LatentAttention, LinearHead

CASES = [(name, {}) for name in OBJECTIVES]
CASES += [("marginal", {"tolerance": 0.1}), ("variational-sample", {"baseline": "learned"})]
CASES += [("hard-sample", {"baseline": "running-mean"})]


def attention_for(objective):
    """The attention for an objective; q has to be passed if the built-in network cannot give it."""
    extra = bool(DISTRIBUTIONS[objective.distribution].extra_scores)
    inference = objective.needs_inferred and not extra
    sizes = {"query_dim": 6, "memory_dim": 5, "outputs": 1000, "hidden": 8}
    return LatentAttention(**sizes, distribution=objective.distribution, inference=inference)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_training_step_and_prediction_run_on_meta_tensors(name, options):
    with torch.device("meta"):
        objective = OBJECTIVES[name](**options)
        attention = attention_for(objective)
        query, memory, target = torch.empty(3, 2, 6), torch.empty(3, 4, 5), torch.empty(3, 2).long()
        padding = torch.empty(3, 4).bool()
    choice = attention(query, memory, key_padding_mask=padding)
    missing = objective.needs_inferred and attention.posterior is None
    q = type(choice.prior).from_scores(torch.empty(3, 2, 4, device="meta")) if missing else None
    estimate = objective(choice.observe(target, q))
    estimate.loss().backward()
    assert estimate.value.is_meta
    assert estimate.value.shape == (3, 2)
    for parameter in attention.parameters():
        assert parameter.grad.is_meta
        assert parameter.grad.shape == parameter.shape
    for how in ("exact", "kmax:2", "soft", "sample:3", "certified:0.1"):
        if not how.startswith(("soft", "sample")) and "enumerate" not in choice.prior.abilities:
            continue
        assert choice.predict(how).shape == (3, 2, 1000)


def test_operations_are_counted_without_computing_them():
    """A linear head: each of 3 x 2 x 4 pairs costs 2 D V to compute and 4 D V to differentiate."""
    with torch.device("meta"):
        attention = LatentAttention(5, 5, 100_000, score="dot", head=LinearHead(5, 100_000))
        query, memory, target = torch.empty(3, 2, 5), torch.empty(3, 4, 5), torch.empty(3, 2).long()
    memory.requires_grad_()
    with FlopCounterMode(display=False) as counter:
        OBJECTIVES["marginal"]()(attention(query, memory).observe(target)).loss().backward()
    pairs = 3 * 2 * 4
    assert counter.get_total_flops() == pytest.approx(6 * pairs * 5 * 100_000, rel=0.01)
    assert sum(p.numel() for p in attention.parameters()) == 6 * 100_000
