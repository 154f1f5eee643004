"""The path of a GPU, where no size depends on values, gives what the path of a CPU gives."""

from itertools import chain

import pytest
import torch

from latentalign import OBJECTIVES, MLPHead, parse_predict
from latentalign.core import devices
from latentalign.core.checks import may_check, no_waiting_checks
from latentalign.core.distributions import Categorical, categorical, chain_paths
from latentalign.core.kernels.certified import certified_marginal
from latentalign.core.kernels.predictive import predictive_log_prob
from latentalign.core.numerics import draw_members
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.decode import Translator
from support.problems import problem
from support.static_shapes import compute_as_on_a_cpu, compute_as_on_a_gpu
from support.waits import Waits

pytestmark = pytest.mark.usefixtures("unchecked")

NMT = ["training.precision=float64", "model.dropout=0"]
TRANSLATION = [(name, "lstm", []) for name in OBJECTIVES]
TRANSLATION += [
    ("marginal", "transformer", ["training.label_smoothing=0.1"]),
    ("marginal", "lstm", ["prior.kind=jump", "prior.null=true"]),
    ("variational-enum", "lstm", ["prior.kind=monotone", "inference.chain=true"]),
    ("variational-sample", "lstm", ["prior.kind=dense"]),
    ("hard-sample", "lstm", ["objective.baseline=running-mean", "prior.null=true"]),
]
PATHS = {"cpu": compute_as_on_a_cpu, "gpu": compute_as_on_a_gpu}


def draw_alike(weights, n):
    """Draws that depend on the weights and on the number of rows alone, whatever the path."""
    random = torch.rand(*weights.shape[:-1], n, generator=torch.Generator().manual_seed(weights.shape[-1]))
    share = weights.cumsum(-1) / weights.sum(-1, keepdim=True)
    return (share.unsqueeze(-2) > random.unsqueeze(-1).to(share)).long().argmax(-1)


def on_both_paths(monkeypatch, compute):
    """What a function gives on the path of a CPU and on that of a GPU, with the same draws."""
    for module in (categorical, chain_paths):
        monkeypatch.setattr(module, "draw_members", draw_alike)
    found = []
    for take in PATHS.values():
        take(monkeypatch)
        torch.manual_seed(0)
        found.append(compute())
    return found


def require_equal(results):
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def figures_and_gradients(trainer):
    """The sums of a batch with padding on both sides, and all gradients."""
    key = max(trainer.data.batch_keys(0), key=len)
    batch = trainer.data.load_batch(key)
    trainer.updater.optimizer.zero_grad()
    sums = trainer.module.train()(batch)
    sums.surrogate.backward()
    named = trainer.module.named_parameters()
    gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
    return [sums.surrogate.detach(), sums.value.detach(), *gradients.values()]


@pytest.mark.parametrize(("name", "backbone", "more"), TRANSLATION)
def test_values_and_gradients_of_translation_are_equal(name, backbone, more, translation, monkeypatch):
    def compute():
        return figures_and_gradients(translation(name, *NMT, *more, backbone=backbone))

    require_equal(on_both_paths(monkeypatch, compute))


@pytest.mark.parametrize("name", ["soft", "marginal", "hard-sample", "variational-sample", "rws", "svi"])
def test_values_and_gradients_of_question_answering_are_equal(name, answers, monkeypatch):
    def compute():
        return figures_and_gradients(answers(name, "model.dropout=0", "training.precision=float64"))

    require_equal(on_both_paths(monkeypatch, compute))


@pytest.mark.parametrize("weights", ["even", "uneven"])
@pytest.mark.parametrize("max_logits", [30, 2**22])
def test_averages_of_missing_members_and_queries_are_equal(weights, max_logits, monkeypatch):
    """Sources of all lengths, queries without members, and padding that is not a number."""

    def compute():
        p = problem((4, 3), 5, 7, max_logits=max_logits)
        estimate = OBJECTIVES["marginal"]()(p.latent())
        outer = torch.rand_like(estimate.value) if weights == "uneven" else torch.ones_like(estimate.value)
        return [estimate.value, *torch.autograd.grad(estimate.surrogate, p.leaves, outer, allow_unused=True)]

    require_equal(on_both_paths(monkeypatch, compute))


@pytest.mark.parametrize("head", ["factored", "any function"])
@pytest.mark.parametrize("max_logits", [1, 2**22])
def test_predictions_and_their_gradients_are_equal(head, max_logits, monkeypatch):
    exists = torch.arange(5) < torch.tensor([5, 2, 0, 1]).unsqueeze(1)

    def compute():
        emit = MLPHead(3, 4, 6, hidden=8).double()
        query = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        memory = torch.randn(4, 5, 4, dtype=torch.float64)
        memory[~exists] = float("nan")
        prior = Categorical.from_scores(torch.randn(4, 5, dtype=torch.float64), exists=exists)
        used = emit if head == "factored" else lambda query, context: emit(query, context)
        found = predictive_log_prob(used, query, memory, prior.enumerate(), max_logits=max_logits)
        return [found, *torch.autograd.grad(found.exp().square().sum(), [query, *emit.parameters()])]

    require_equal(on_both_paths(monkeypatch, compute))


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft"])
@pytest.mark.parametrize("options", [(), ("prior.kind=jump", "prior.null=true")])
def test_translations_are_equal(how, options, translation, texts, monkeypatch):
    model = translation("marginal", *NMT, *options).module.model.eval()
    sources = [texts[1].train.source(i).tolist() for i in range(3)]
    search = BeamSearch(beam=3, nbest=3, max_length=6)
    ours, theirs = on_both_paths(monkeypatch, lambda: Translator(model, search, parse_predict(how))(sources))
    for a, b in zip(chain(*ours), chain(*theirs), strict=True):
        assert a.tokens == b.tokens
        assert a.log_prob == pytest.approx(b.log_prob, rel=1e-9)


def test_a_certified_marginal_is_exact_on_a_gpu(monkeypatch):
    def compute():
        latent = problem((4, 3), 5, 7).latent()
        exact = OBJECTIVES["marginal"]()(latent).value
        found = certified_marginal(latent, 0.5)
        return found.value, found.gap, exact

    (certified, gap, exact), (value, no_gap, same) = on_both_paths(monkeypatch, compute)
    assert (certified < exact - 1e-6).any()
    assert (certified + gap >= exact - 1e-9).all()
    torch.testing.assert_close(value, exact)
    torch.testing.assert_close(same, exact)
    assert (no_gap == 0).all()


def test_draws_of_both_paths_follow_the_weights(monkeypatch):
    weights = torch.tensor([[0.5, 0.0, 1.5], [0.0, 2.0, 0.0]])
    for take in PATHS.values():
        take(monkeypatch)
        drawn = draw_members(weights.expand(4000, 2, 3), 2)
        counts = torch.nn.functional.one_hot(drawn, 3).double().mean((0, 2))
        expected = torch.tensor([[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]], dtype=torch.float64)
        torch.testing.assert_close(counts, expected, rtol=0, atol=5 * (0.25 * 0.75 / 8000) ** 0.5)


def test_checks_are_skipped_only_where_they_would_wait(monkeypatch):
    cpu, x = torch.device("cpu"), torch.zeros(1)
    with no_waiting_checks(cpu):
        assert may_check(x)
    compute_as_on_a_gpu(monkeypatch)
    with no_waiting_checks(cpu):
        assert not may_check(x)
    assert may_check(x)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_in_float32_computes_nothing_in_float64_where_that_is_missing(name, translation, monkeypatch):
    """As on Apple's GPUs."""
    compute_as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(devices, "WITHOUT_FLOAT64", frozenset({"cpu"}))
    trainer = translation(name, *(["prior.kind=jump", "prior.null=true"] if name == "marginal" else []))
    with Waits() as waits:
        figures = trainer.update(trainer.data.batch_keys(0)[:1])
    assert waits.dtypes[torch.float32] > 100
    assert torch.float64 not in waits.dtypes
    assert abs(figures.value) < 1e6


@pytest.mark.parametrize("prior", ["independent", "jump"])
def test_a_search_in_float32_computes_nothing_in_float64_where_that_is_missing(
    prior, translation, texts, monkeypatch
):
    compute_as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(devices, "WITHOUT_FLOAT64", frozenset({"cpu"}))
    model = translation("marginal", f"prior.kind={prior}").module.model
    translator = Translator(model, BeamSearch(beam=2, max_length=4), parse_predict("exact"))
    with Waits() as waits:
        translator([texts[1].train.source(0).tolist()])
    assert torch.float64 not in waits.dtypes
