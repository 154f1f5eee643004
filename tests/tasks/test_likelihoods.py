"""Entropies and the information that outputs carry about alignments."""

import pytest
import torch

from latentalign import Categorical, Latent, parse_predict
from latentalign.tasks.likelihoods import log_probabilities

PRIOR = torch.tensor(
    [[0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64
)
EXISTS = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()


def measure(likelihood):
    scores = PRIOR.log().masked_fill(~EXISTS, 0.0)
    latent = Latent(Categorical.from_scores(scores, exists=EXISTS), lambda z: z.select(likelihood).log())
    return log_probabilities(latent, parse_predict("exact"))


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
