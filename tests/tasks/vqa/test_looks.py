"""Question answering with several looks: formulas, what is shown, and whole runs."""

import json

import pytest
import torch

from latentalign import OBJECTIVES
from latentalign.errors import InputError
from latentalign.tasks.base import EvaluationOptions
from latentalign.tasks.looks import LooksConfig
from latentalign.tasks.vqa.data import Batch
from latentalign.tasks.vqa.model import AnswerModel, ModelConfig
from latentalign.tasks.vqa.schema import AnsweringDetails
from latentalign.tasks.vqa.task import ANSWERING
from latentalign.training.run import Run

B, T, D, V = 3, 4, 5, 6


def build(looks):
    torch.manual_seed(0)
    config = ModelConfig(embedding=4, question_size=7, attention_size=3, head_size=8, dropout=0.5)
    return (
        AnswerModel(config, words=9, answers=V, region_dim=D, prior=LooksConfig(looks=looks)).double().eval()
    )


@pytest.fixture
def batch():
    torch.manual_seed(1)
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, 2:] = False
    words = torch.tensor([[2, 3, 4], [5, 0, 0], [6, 7, 0]])
    regions = torch.randn(B, T, D, dtype=torch.float64)
    answers = torch.tensor([0, 3, 5])
    return Batch(regions, mask, torch.rand(B, T, 4), words, words > 0, answers, torch.arange(B))


@torch.no_grad()
@pytest.mark.parametrize("looks", [2, "dependent"])
def test_likelihood_equals_a_loop_over_regions(looks, batch):
    model = build(looks)
    found = OBJECTIVES["marginal"]()(model.latent(batch)).value
    query = model.ask(batch.question, batch.question_mask)
    for b in range(B):
        x = batch.regions[b, batch.region_mask[b]]
        one, two = (x @ w.t() for w in model.looks.views.weight.chunk(2))
        shift = model.looks.views.bias.chunk(2)
        one, two = one + shift[0], two + shift[1]
        first, total = model.score(query[b], x).softmax(0), 0.0

        def f(context, b=b):
            return model.head(query[b], context).softmax(0)[batch.target[b]]

        if looks == 2:
            weights = model.looks.weights(query[b]).softmax(0)
            second = model.looks.scores[0](query[b], x).softmax(0)
            for i in range(len(x)):
                total += weights[0] * first[i] * f(one[i]) + weights[1] * second[i] * f(two[i])
        else:
            for i in range(len(x)):
                asked = torch.tanh(model.looks.from_query(query[b]) + model.looks.from_memory(x[i]))
                second = model.looks.score(asked, x).softmax(0)
                for j in range(len(x)):
                    total += first[i] * second[j] * f(one[i] + two[j])
        torch.testing.assert_close(found[b], total.log(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("looks", "objective"), [("2", "variational-sample"), ("dependent", "marginal")])
def test_a_run_with_several_looks_trains_and_is_evaluated(tiny, tmp_path, looks, objective):
    config = tiny(objective, f"prior.looks={looks}", "training.epochs=1")
    ANSWERING.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    trained = ANSWERING.load(tmp_path / "run", double=True)
    figures, details = ANSWERING.evaluate(trained, "test", EvaluationOptions(details=3))
    assert 0 <= figures["grounding_posterior"] <= 1
    checked = AnsweringDetails.model_validate(json.loads(json.dumps(details)))
    for record in checked.looks:
        regions = len(record.boxes)
        assert all(len(shares) == regions for shares in record.looks.values())
        assert len(record.says) == regions
        assert sum(record.looks["posterior"]) == pytest.approx(1)
        both = [record.looks[f"posterior, look {h}"] for h in (1, 2)]
        share = 1 if looks == "2" else 0.5  # of each look in what is shown
        for shown, one, two in zip(record.looks["posterior"], *both, strict=True):
            assert shown == pytest.approx(share * (one + two))


def test_combinations_that_cannot_work_are_refused(tiny):
    with pytest.raises(InputError, match="no inference network for pairs"):
        tiny("variational-sample", "prior.looks=dependent")
    with pytest.raises(InputError, match=r"prior\.looks"):
        tiny("marginal", "prior.looks=many")
