"""The model's formulas against loops over questions and regions, in double precision."""

import pytest
import torch

from latentalign.tasks.vqa.data import Batch
from latentalign.tasks.vqa.inference_network import InferenceConfig
from latentalign.tasks.vqa.model import AnswerModel, ModelConfig

B, T, D, V = 3, 4, 5, 6


@pytest.fixture
def model():
    config = ModelConfig(embedding=4, question_size=7, attention_size=3, head_size=8, dropout=0.5)
    inference = InferenceConfig(answer_embedding=2, size=3)
    made = AnswerModel(config, words=9, answers=V, region_dim=D, inference=inference)
    return made.double().eval()


@pytest.fixture
def batch():
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 2:] = False
    words = torch.tensor([[2, 3, 4], [5, 0, 0], [6, 7, 0]])
    return Batch(
        torch.randn(B, T, D, dtype=torch.float64),
        mask,
        torch.rand(B, T, 4),
        words,
        words > 0,
        torch.tensor([0, 3, 5]),
        torch.arange(B),
    )


@torch.no_grad()
def test_prior_head_and_inference_network_agree_with_loops(model, batch):
    latent = model.latent(batch)
    inference, score, head = model.inference, model.score, model.head
    for b in range(B):
        length = int(batch.question_mask[b].sum())
        alone = model.ask(batch.question[b : b + 1, :length], batch.question_mask[b : b + 1, :length])[0]
        members = [i for i in range(T) if batch.region_mask[b, i]]
        p_scores, q_scores, likelihood = [], [], []
        h = inference.answer.weight[batch.target[b]]
        for i in members:
            x = batch.regions[b, i]
            hidden = torch.tanh(score.from_memory.weight @ x + score.from_query.weight @ alone)
            p_scores.append(score.to_score.weight[0] @ hidden)
            gated_x = x * torch.relu(inference.to_region.weight @ h)
            gated_q = alone * torch.relu(inference.to_question.weight @ h)
            seen = inference.from_region.weight @ gated_x + inference.from_question.weight @ gated_q
            q_scores.append(inference.to_score.weight[0] @ torch.tanh(seen))
            mixed = torch.cat([head.from_memory.weight, head.from_query.weight], 1) @ torch.cat([x, alone])
            logits = head.output.weight @ torch.relu(mixed + head.from_query.bias) + head.output.bias
            likelihood.append(logits.log_softmax(0)[batch.target[b]])
        prior, q = torch.stack(p_scores).softmax(0), torch.stack(q_scores).softmax(0)
        torch.testing.assert_close(latent.prior.mean[b, members], prior, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(latent.inferred.mean[b, members], q, rtol=1e-10, atol=1e-12)
        found = latent.log_likelihood(latent.prior.enumerate())[b, members]
        torch.testing.assert_close(found, torch.stack(likelihood), rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_products_of_question_and_region_agree_with_loops(batch):
    """The score and the head of the recipe vqa/scenes, with the layer that both share."""
    sizes = {"embedding": 4, "question_size": 7, "attention_size": 3, "head_size": 8, "region_size": 6}
    config = ModelConfig(**sizes, attention="product", head="product")
    model = AnswerModel(config, words=9, answers=V, region_dim=D, inference=InferenceConfig(size=3))
    model, latent = model.double().eval(), model.latent(batch)
    score, head = model.score, model.head
    query = model.ask(batch.question, batch.question_mask)
    for b in range(B):
        scores, likelihood = [], []
        members = [i for i in range(T) if batch.region_mask[b, i]]
        for i in members:
            seen = torch.relu(model.region.weight @ batch.regions[b, i] + model.region.bias)
            wanted = torch.tanh(score.from_query.weight @ query[b] + score.from_query.bias)
            scores.append(wanted @ torch.tanh(score.from_memory.weight @ seen + score.from_memory.bias))
            asked = torch.relu(head.from_query.weight @ query[b] + head.from_query.bias)
            logits = head.output(asked * torch.relu(head.from_memory.weight @ seen))
            likelihood.append(logits.log_softmax(0)[batch.target[b]])
        torch.testing.assert_close(latent.prior.mean[b, members], torch.stack(scores).softmax(0))
        found = latent.log_likelihood(latent.prior.enumerate())[b, members]
        torch.testing.assert_close(found, torch.stack(likelihood))
    assert latent.inferred.mean.shape == (B, T)


def test_an_unknown_score_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'product'"):
        ModelConfig(attention="produkt")


@torch.no_grad()
def test_a_blind_model_sees_the_question_alone(batch):
    config = ModelConfig(embedding=4, question_size=7, attention_size=3, head_size=8, blind=True)
    model = AnswerModel(config, words=9, answers=V, region_dim=D).double().eval()
    other = Batch(batch.regions + 1, *(getattr(batch, n) for n in list(batch.__dataclass_fields__)[1:]))
    torch.testing.assert_close(model.latent(batch).soft(), model.latent(other).soft())


@torch.no_grad()
def test_padding_changes_nothing(model, batch):
    other = batch.regions.clone()
    other[1, 2:] = 1e6
    changed = Batch(other, *(getattr(batch, n) for n in list(batch.__dataclass_fields__)[1:]))
    torch.testing.assert_close(model.latent(batch).soft(), model.latent(changed).soft())
