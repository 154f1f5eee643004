"""Entropies and the information that outputs carry about alignments."""

import pytest
import torch

from latentalign import Categorical, Latent, LatentChoice, parse_predict
from latentalign.nn.heads import MLPHead
from latentalign.tasks.likelihoods import compute_likelihoods

PRIOR = torch.tensor(
    [[0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64
)
EXISTS = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()


def measure(likelihood):
    scores = PRIOR.log().masked_fill(~EXISTS, 0.0)
    latent = Latent(Categorical.from_scores(scores, exists=EXISTS), lambda z: z.select(likelihood).log())
    return compute_likelihoods(latent, parse_predict("exact")).figures


def test_information_is_the_divergence_of_the_posterior_from_the_prior():
    likelihood = torch.tensor([[0.1, 0.8, 0.3, 1.0], [0.9, 0.0, 0.2, 0.4], [1.0, 1.0, 1.0, 1.0]]).double()
    found = measure(likelihood)
    for row in range(2):
        joint = PRIOR[row] * likelihood[row]
        posterior = joint / joint.sum()
        information = sum(
            float(q * (q / p).log()) for q, p in zip(posterior, PRIOR[row], strict=True) if q > 0
        )
        entropy = -sum(float(q * q.log()) for q in posterior if q > 0)
        assert float(found["mutual_information"][row]) == pytest.approx(information, abs=1e-12)
        assert float(found["entropy_posterior"][row]) == pytest.approx(entropy, abs=1e-12)
    assert float(found["mutual_information"][2]) == float(found["entropy_posterior"][2]) == 0


def test_an_output_that_no_member_explains_better_carries_no_information():
    found = measure(torch.full((3, 4), 0.3, dtype=torch.float64))
    assert found["mutual_information"].abs().max() < 1e-12
    torch.testing.assert_close(found["entropy_posterior"], found["entropy_prior"])


@pytest.mark.parametrize("how", ["exact", "soft", "kmax:5", "kmax:2", "certified:0.1"])
def test_own_likelihood_is_that_of_the_predictive_even_if_it_is_not_computed_again(how):
    torch.manual_seed(0)
    memory, query = torch.randn(3, 4, 2).double(), torch.randn(3, 5).double()
    head = MLPHead(5, 2, 6, hidden=3).double()
    prior = Categorical.from_scores(PRIOR.log().masked_fill(~EXISTS, 0.0), exists=EXISTS)
    latent = LatentChoice(prior, head, query, memory).observe(torch.tensor([0, 3, 5]))
    predictive = parse_predict(how)
    found = compute_likelihoods(latent, predictive).figures["own"]
    torch.testing.assert_close(found, predictive.log_prob(latent))
