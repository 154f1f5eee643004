"""What users of `torch.distributions` expect works, or an error says what to do instead."""

import inspect
import pydoc

import pytest
import torch
from torch import distributions

from latentalign import (
    OBJECTIVES,
    Categorical,
    Chain,
    Dirichlet,
    EmissionLatent,
    Jump,
    Latent,
    LatentChoice,
    LikelihoodShapeError,
    LogisticNormal,
    NotNormalisedError,
    marginal,
)
from support.problems import problem


@pytest.fixture
def scores():
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


def test_a_categorical_answers_like_that_of_torch(scores):
    ours, theirs = Categorical.from_scores(scores), distributions.Categorical(logits=scores)
    value = torch.randint(4, (2, 3))
    torch.testing.assert_close(ours.probs, theirs.probs)
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.log_prob(value), theirs.log_prob(value))
    torch.testing.assert_close(ours.entropy, theirs.entropy())
    assert torch.equal(ours.mode, theirs.mode)
    assert ours.sample().index.shape == (2, 3, 1)


@pytest.mark.usefixtures("unchecked")
def test_a_shape_of_samples_is_refused(scores):
    with pytest.raises(TypeError, match="not a shape"):
        Categorical.from_scores(scores).sample((5,))


@pytest.mark.parametrize("kind", [Categorical, Dirichlet, LogisticNormal])
def test_a_distribution_moves_to_a_device_and_a_precision(kind, scores):
    exists = torch.arange(4) < 3
    ours = kind.from_scores(scores, exists=exists)
    wide = ours.to(torch.float64)
    assert wide.mean.dtype == torch.float64
    assert wide.mask.dtype == torch.bool
    torch.testing.assert_close(wide.entropy.float(), kind.from_scores(scores, exists=exists).entropy)
    moved = ours.to("meta")
    assert moved.mean.is_meta
    assert moved.mask.is_meta
    assert torch.equal(ours.to("cpu", torch.float64).mean, wide.mean)


def test_a_chain_moves_to_a_device_and_a_precision(scores):
    chain = Chain.from_scores(scores, transition=Jump(torch.zeros(3)))
    assert chain.to(torch.float64).mean.dtype == torch.float64
    torch.testing.assert_close(chain.to(torch.float64).mean.float(), chain.mean)
    assert chain.to("meta").scores.is_meta
    assert chain.to("meta").transition.table.is_meta


def uniform_likelihood(alignments):
    return torch.zeros_like(alignments.log_weight)


@pytest.mark.usefixtures("unchecked")
def test_a_categorical_of_torch_is_accepted_as_prior_and_q():
    p = problem(ragged=False)
    ours = p.latent()
    theirs = EmissionLatent(
        distributions.Categorical(logits=p.prior_scores),
        p.head,
        p.query,
        memory=p.memory,
        target=p.target,
        inferred=distributions.Categorical(probs=p.inferred_scores.softmax(-1)),
    )
    for name in ("marginal", "variational-enum"):
        torch.testing.assert_close(OBJECTIVES[name]()(theirs).value, OBJECTIVES[name]()(ours).value)
    choice = LatentChoice(distributions.Categorical(logits=p.prior_scores), p.head, p.query, p.memory)
    torch.testing.assert_close(marginal(choice.observe(p.target)).value, marginal(ours).value)
    relaxed = Latent(distributions.Dirichlet(torch.ones(2, 3)), uniform_likelihood)
    assert isinstance(relaxed.prior, Dirichlet)


@pytest.mark.usefixtures("unchecked")
def test_a_probability_of_zero_stays_zero():
    probs = torch.tensor([[0.5, 0.5, 0.0]], requires_grad=True)
    prior = Latent(distributions.Categorical(probs=probs), uniform_likelihood).prior
    assert prior.mean.tolist() == [[0.5, 0.5, 0.0]]
    assert prior.mask.tolist() == [[True, True, False]]
    (gradient,) = torch.autograd.grad(prior.log_probs[0, 0], probs)
    assert gradient.isfinite().all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("role", ["prior", "inferred"])
def test_any_other_distribution_is_refused_with_the_class_that_is_needed(role):
    given = {"prior": Categorical.from_scores(torch.zeros(1, 2)), role: distributions.Normal(0.0, 1.0)}
    with pytest.raises(
        TypeError, match=rf"{role} must be a latentalign.AlignmentDistribution.*Normal.*from_scores"
    ):
        Latent(log_likelihood=uniform_likelihood, **given)


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 3), (2, 3, 1), ()])
def test_a_likelihood_of_the_wrong_shape_is_refused_by_every_objective(shape):
    q = Categorical.from_scores(torch.zeros(2, 3))
    latent = Latent(q, lambda alignments: torch.zeros(shape), q)
    for name in ("marginal", "soft", "hard-enum", "variational-sample", "rws", "svi"):
        wanted = {"soft": 1, "variational-sample": 1, "svi": 1}.get(name, 3)
        if shape == (2, wanted) or (name == "rws" and shape == (2, 5)):
            continue
        with pytest.raises(LikelihoodShapeError, match=r"one number for every alignment, .* got"):
            OBJECTIVES[name]()(latent)


def test_constructors_check_what_from_scores_guarantees():
    mask = torch.ones(1, 2).bool()
    Categorical(torch.tensor([[0.25, 0.75]]).log(), mask=mask)
    for wrong in ([[0.5, 0.7]], [[0.2, 0.2]], [[float("nan"), 1.0]]):
        with pytest.raises(NotNormalisedError, match=r"sum to 1.*from_scores"):
            Categorical(torch.tensor(wrong).log(), mask=mask)
    with pytest.raises(NotNormalisedError, match="0 elsewhere"):
        Categorical(torch.tensor([[0.5, 0.5]]).log(), mask=torch.tensor([[True, False]]))
    Categorical(torch.full((1, 2), -float("inf")), mask=~mask)  # a query without members
    with pytest.raises(NotNormalisedError, match="concentration must be finite and above 0"):
        Dirichlet(torch.tensor([[1.0, 0.0]]), mask=mask)
    with pytest.raises(NotNormalisedError, match="scale must be finite and above 0"):
        LogisticNormal(torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), mask=mask)
    Dirichlet(torch.tensor([[1.0, 0.0]]), mask=torch.tensor([[True, False]]))


def test_a_misspelt_objective_suggests_the_nearest():
    with pytest.raises(KeyError, match="did you mean 'variational-sample'"):
        OBJECTIVES["variational_sample"]


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_explains_its_options(name):
    entry = OBJECTIVES[name]
    text = pydoc.plain(pydoc.render_doc(entry))
    for option, parameter in inspect.signature(entry).parameters.items():
        assert f"`{option}`" in entry.__doc__, option
        assert parameter.default is not inspect.Parameter.empty
        assert f"{option}: {parameter.annotation.__name__} = {parameter.default!r}" in text
    assert entry.maximises in text
    assert ("Needs q" in text) == entry.needs_inferred
    assert "**" not in text.partition("\n")[2].partition("Maximises")[0]
