"""q of question answering as the prior times learned factors: where it starts and what it learns."""

import pytest
import torch

from latentalign import OBJECTIVES
from latentalign.tasks.looks import LooksConfig
from latentalign.tasks.vqa.data import Batch
from latentalign.tasks.vqa.inference_network import InferenceConfig
from latentalign.tasks.vqa.model import AnswerModel, ModelConfig

B, T, D, V = 3, 4, 5, 6


@pytest.fixture(params=[1, 2], ids=["one look", "two looks"])
def model(request):
    torch.manual_seed(0)
    config = ModelConfig(embedding=4, question_size=7, attention_size=3, head_size=8, dropout=0.0)
    inference = InferenceConfig(answer_embedding=2, size=3, start_at_prior=True)
    looks = LooksConfig(looks=request.param)
    made = AnswerModel(config, words=9, answers=V, region_dim=D, prior=looks, inference=inference)
    return made.double().eval()


@pytest.fixture
def batch():
    torch.manual_seed(1)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 2:] = False
    words = torch.tensor([[2, 3, 4], [5, 0, 0], [6, 7, 0]])
    regions, boxes = torch.randn(B, T, D, dtype=torch.float64), torch.rand(B, T, 4)
    return Batch(regions, mask, boxes, words, words > 0, torch.tensor([0, 3, 5]), torch.arange(B))


@torch.no_grad()
def test_q_is_the_prior_at_first_so_the_elbo_is_the_jensen_bound(model, batch):
    latent = model.latent(batch)
    torch.testing.assert_close(latent.inferred.mean, latent.prior.mean)
    assert type(latent.inferred) is type(latent.prior)
    elbo, jensen = (OBJECTIVES[name]()(latent).value for name in ("variational-enum", "hard-enum"))
    torch.testing.assert_close(elbo, jensen)


def test_q_learns_from_the_first_update_and_then_its_whole_network(model, batch):
    optimiser = torch.optim.Adam(model.inference.parameters(), lr=0.01)
    bounds = []
    for _ in range(5):
        optimiser.zero_grad()
        estimate = OBJECTIVES["variational-enum"]()(model.latent(batch))
        estimate.loss().backward()
        optimiser.step()
        bounds.append(float(estimate.mean().detach()))
    assert bounds[-1] > bounds[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.inference.parameters())


def test_no_gradient_reaches_the_prior_through_q(model, batch):
    torch.nn.init.normal_(model.inference.to_factor.weight)
    model.latent(batch).inferred.entropy.sum().backward()
    assert model.inference.to_factor.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in model.score.parameters())


@torch.no_grad()
def test_regions_that_do_not_exist_never_matter_to_q(model, batch):
    torch.nn.init.normal_(model.inference.to_factor.weight)
    before = model.latent(batch).inferred
    batch.regions[1, 2:] = 100.0
    after = model.latent(batch).inferred
    torch.testing.assert_close(after.mean, before.mean)
    assert not after.mean[1, 2:4].any()


def test_weights_of_the_other_kind_of_q_have_other_names():
    def names(start_at_prior):
        inference = InferenceConfig(answer_embedding=2, size=3, start_at_prior=start_at_prior)
        config = ModelConfig(embedding=4, question_size=7, attention_size=3, head_size=8)
        model = AnswerModel(config, words=9, answers=V, region_dim=D, inference=inference)
        return {name for name in model.state_dict() if name.startswith("inference.")}

    assert names(True) ^ names(False) == {"inference.to_factor.weight", "inference.to_score.weight"}
