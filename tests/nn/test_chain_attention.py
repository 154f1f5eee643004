"""`LatentAttention` with a chain as prior."""

import pytest
import torch

from latentalign import OBJECTIVES, ChainPrior, LatentAttention, exact_posterior
from latentalign.core.errors import MissingAbilityError

QUERY, MEMORY, TARGET = torch.randn(2, 3, 4), torch.randn(2, 5, 6), torch.tensor([[1, 2, 3], [3, 0, 0]])
KEY_PADDING = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]).bool()
QUERY_PADDING = torch.tensor([[0, 0, 0], [0, 1, 1]]).bool()
MASKS = {"key_padding_mask": KEY_PADDING, "query_padding_mask": QUERY_PADDING}


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("kind", ["jump", "monotone", "dense"])
@pytest.mark.parametrize("name", ["marginal", "soft", "hard-enum", "variational-enum"])
def test_every_parameter_is_trained_and_padding_never_matters(kind, null, name):
    torch.manual_seed(0)
    inference = name == "variational-enum"
    if inference and kind == "monotone":
        pytest.skip("the built-in q is independent")
    prior = ChainPrior(kind, 4, 6, null=null)
    attention = LatentAttention(4, 6, 7, hidden=8, prior=prior, inference=inference)
    values = []
    for filler in (float("nan"), 7.0):
        query, memory = (
            x.masked_fill(padding.unsqueeze(-1), filler)
            for x, padding in ((QUERY, QUERY_PADDING), (MEMORY, KEY_PADDING))
        )
        estimate = OBJECTIVES[name]()(attention(query, memory, **MASKS).observe(TARGET))
        values.append(estimate.value)
    assert torch.equal(*values)
    estimate.surrogate.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attention.parameters())


def test_a_prior_is_chosen_by_name_and_gives_the_posterior_of_whole_sentences():
    attention = LatentAttention(4, 6, 7, hidden=8, prior="jump")
    posterior = exact_posterior(attention(QUERY, MEMORY, **MASKS).observe(TARGET))
    path, log_prob = posterior.best()
    assert path.shape == (2, 3)
    assert (log_prob <= 0).all()


def test_predictions_of_a_chain_need_the_outputs_before():
    with pytest.raises(MissingAbilityError, match="queries depend on each other"):
        LatentAttention(4, 6, 7, hidden=8, prior="jump")(QUERY, MEMORY).predict("exact")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "jmp"}, "prior must be independent"),
        ({"prior": "monotone", "inference": True}, "never goes back"),
        ({"prior": "jump", "distribution": "dirichlet"}, "categorical"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LatentAttention(4, 6, 7, **options)


def test_a_chain_needs_all_queries_of_an_example():
    with pytest.raises(ValueError, match="all queries of an example"):
        LatentAttention(4, 6, 7, prior="jump")(QUERY[:, 0], MEMORY)
