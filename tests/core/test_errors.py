"""Bad input to the library says what was expected and what came."""

import pytest
import torch

from latentalign import (
    OBJECTIVES,
    Categorical,
    Dirichlet,
    EmissionLatent,
    Enumerate,
    GumbelSoftmax,
    Hard,
    Latent,
    LatentAttention,
    MissingAbilityError,
    Mixed,
    Pathwise,
    ScoreFunction,
    SumAndSample,
    certified_marginal,
    exact_posterior,
    parse_predict,
    predictive_log_prob,
    target_log_prob,
)
from latentalign.core.baselines import build_baseline, leave_one_out
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.scores import resolve_score
from support.problems import problem


def test_scores_that_are_nan_are_named_with_their_place():
    scores = torch.zeros(2, 3)
    scores[1, 2] = float("nan")
    for build in (Categorical.from_scores, Dirichlet.from_scores):
        with pytest.raises(ValueError, match=r"nan at \(1, 2\)"):
            build(scores)
        build(scores, exists=torch.tensor([[1, 1, 1], [1, 1, 0]]).bool())  # masked: harmless


def test_k_beyond_the_source_is_refused():
    with pytest.raises(ValueError, match="at most T = 3, got 4"):
        Categorical.from_scores(torch.zeros(2, 3)).top(4)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Categorical.from_scores(torch.zeros(2, 3)).sample(0)


@pytest.mark.parametrize(
    "name",
    ["variational-enum", "variational-sample", "rws", "vimco", "gumbel", "semi-amortized", "sum-and-sample"],
)
def test_an_objective_that_needs_q_says_how_to_get_one(name):
    latent = problem().latent()
    latent.inferred = None
    with pytest.raises(ValueError, match="inference network"):
        OBJECTIVES[name]()(latent)


def test_a_source_that_does_not_broadcast_is_refused_with_a_hint():
    p = problem((2, 3))
    a = Categorical.from_scores(p.prior_scores, exists=p.mask).enumerate()
    with pytest.raises(Exception, match=r"memory"):
        target_log_prob(p.head, p.query, p.memory.squeeze(1), p.target, a)


def test_targets_outside_the_outputs_are_named():
    p = problem()
    p.target[0, 0] = 5
    with pytest.raises(ValueError, match=r"0\.\.4 .* got 5"):
        OBJECTIVES["marginal"]()(p.latent())


def test_a_mask_of_the_wrong_shape_or_kind_is_refused():
    with pytest.raises(ValueError, match="does not broadcast"):
        Categorical.from_scores(torch.zeros(2, 3), exists=torch.ones(2, 4).bool())


def test_a_discrete_objective_refuses_a_dirichlet_and_the_other_way_round():
    dirichlet = Dirichlet.from_scores(torch.zeros(2, 3))
    latent = Latent(dirichlet, lambda a: torch.zeros(2, 1), dirichlet)
    for name in ("marginal", "hard-enum", "variational-enum", "rws", "svi"):
        with pytest.raises(MissingAbilityError, match=r"which Dirichlet does not implement.*categorical"):
            OBJECTIVES[name]()(latent)
    with pytest.raises(MissingAbilityError, match=r"`rsample`, which Categorical .*dirichlet"):
        OBJECTIVES["relaxed"]()(problem().latent())
    with pytest.raises(MissingAbilityError, match="the exact posterior needs `enumerate`"):
        exact_posterior(latent)
    for how, ability in (("exact", "enumerate"), ("certified:0.1", "enumerate"), ("kmax:2", "top")):
        with pytest.raises(MissingAbilityError, match=f"{how[:5]}.* needs `{ability}`.*sample:N"):
            parse_predict(how).log_prob(latent)


@pytest.mark.parametrize("text", ["", "kmax", "kmax:0", "kmax:-1", "exact:3", "sample:x", "kmax:²", "top"])
def test_predict_names_are_checked(text):
    with pytest.raises(ValueError, match="predict must be"):
        parse_predict(text)


def test_options_are_checked():
    with pytest.raises(MissingAbilityError, match=r"Hard\(Pathwise\) needs `rsample`, which Categorical"):
        Hard(Pathwise(), "categorical")
    with pytest.raises(ValueError, match="unknown distribution 'gamma'"):
        Hard(Pathwise(), "gamma")
    with pytest.raises(ValueError, match="unknown baseline 'sofd'"):
        build_baseline("sofd")
    with pytest.raises(ValueError, match="unknown score"):
        resolve_score("cosine", query_dim=1, memory_dim=1, hidden=1)
    with pytest.raises(ValueError, match="one size"):
        resolve_score("dot", query_dim=1, memory_dim=2, hidden=1)
    with pytest.raises(ValueError, match="n >= 2"):
        Hard(ScoreFunction(1, leave_one_out))(problem().latent())
    with pytest.raises(ValueError, match="temperature"):
        Hard(GumbelSoftmax(1, 0.0))(problem().latent())
    with pytest.raises(ValueError, match="tolerance"):
        certified_marginal(problem().latent(), -1.0)


def test_the_drop_in_module_checks_shapes():
    attention = LatentAttention(4, 3, 5, hidden=8)
    with pytest.raises(ValueError, match="same B"):
        attention.prepare(torch.zeros(2, 4), torch.zeros(3, 6, 3), None, None)
    with pytest.raises(ValueError, match="one score, logistic-normal needs more"):
        LatentAttention(4, 3, 5, distribution="logistic-normal", inference=True)
    with pytest.raises(Exception, match="query"):
        attention(torch.zeros(2, 4), torch.zeros(3, 6, 3))


def latent_with(prior, inferred):
    return Latent(prior, lambda a: torch.zeros(a.log_weight.shape), inferred)


@pytest.mark.parametrize("name", ["variational-enum", "rws", "semi-amortized"])
def test_q_must_go_with_the_prior(name):
    prior = Categorical.from_scores(torch.randn(2, 3, 4))
    for shape in ((2, 3, 5), (2, 1, 4), (3, 4), (4,)):
        with pytest.raises(ValueError, match="one shape"):
            OBJECTIVES[name]()(latent_with(prior, Categorical.from_scores(torch.randn(shape))))
    with pytest.raises(TypeError, match="one distribution, got Categorical and Dirichlet"):
        OBJECTIVES[name]()(latent_with(prior, Dirichlet.from_scores(torch.randn(2, 3, 4))))


@pytest.mark.parametrize("name", ["relaxed", "relaxed-logistic-normal"])
def test_a_relaxed_q_must_have_the_priors_family_and_members(name):
    build = DISTRIBUTIONS[OBJECTIVES[name]().distribution].from_scores
    scores, mask = torch.zeros(1, 3), torch.tensor([[True, True, False]])
    for masks in ((None, mask), (mask, None)):
        with pytest.raises(ValueError, match="same members"):
            OBJECTIVES[name]()(latent_with(*(build(scores, exists=m) for m in masks)))
    with pytest.raises(TypeError, match="one distribution"):
        OBJECTIVES[name]()(latent_with(build(scores), Categorical.from_scores(scores)))
    OBJECTIVES[name]()(latent_with(build(scores, exists=mask), build(scores, exists=mask)))


@pytest.mark.parametrize("members", [3, 5])
def test_a_prior_over_another_number_of_members_is_refused_with_both(members):
    p = problem((3,), 4)
    mask = torch.ones(3, members).bool()
    mask[:, 2:] = False
    prior = Categorical.from_scores(torch.zeros(3, members, dtype=torch.float64), exists=mask)
    with pytest.raises(ValueError, match=rf"T = {members} .* T = 4"):
        EmissionLatent(prior, p.head, p.query, memory=p.memory, target=p.target)
    point = Mixed.point(prior.mean, exists=prior.mask)
    with pytest.raises(ValueError, match=rf"T = {members} .* T = 4"):
        target_log_prob(p.head, p.query, p.memory, p.target, point)
    with pytest.raises(ValueError, match=rf"T = {members} .* T = 4"):
        predictive_log_prob(p.head, p.query, p.memory, point)


def test_a_member_beyond_the_source_is_refused():
    p = problem((3,), 4)
    beyond = Categorical.from_scores(torch.zeros(3, 5, dtype=torch.float64)).enumerate()
    for call in (
        lambda: target_log_prob(p.head, p.query, p.memory, p.target, beyond),
        lambda: predictive_log_prob(p.head, p.query, p.memory, beyond),
        lambda: beyond.contexts(p.memory),
    ):
        with pytest.raises(ValueError, match=r"member 4, .*0\.\.3"):
            call()


def test_alignments_of_another_batch_are_refused(unchecked):
    p = problem((2,))
    for shape in ((3, 4), (1, 4), (4,)):
        other = Categorical.from_scores(torch.zeros(shape, dtype=torch.float64)).enumerate()
        with pytest.raises(ValueError, match=r"agree on \*batch"):
            predictive_log_prob(p.head, p.query, p.memory, other)
        with pytest.raises(ValueError, match=r"agree on \*batch"):
            target_log_prob(p.head, p.query, p.memory, p.target, other)


def test_the_drop_in_module_names_what_is_wrong(unchecked):
    attention = LatentAttention(4, 3, 5, hidden=8)
    query, memory = torch.zeros(2, 3, 4), torch.zeros(2, 6, 3)
    for padding in (torch.zeros(2, 5).bool(), torch.zeros(2, 6), torch.zeros(1, 6).bool()):
        with pytest.raises(ValueError, match=r"key_padding_mask must be boolean.*\(2, 6\)"):
            attention(query, memory, key_padding_mask=padding)
    with pytest.raises(ValueError, match=r"query_padding_mask must be boolean.*\(2, 3\)"):
        attention(query, memory, query_padding_mask=torch.zeros(2, 4).bool())
    with pytest.raises(ValueError, match=r"target must .*\(2, 3\), got \(2, 4\)"):
        attention(query, memory).observe(torch.zeros(2, 4).long())
    with pytest.raises(ValueError, match="query_dim = 4"):
        attention(torch.zeros(2, 3, 7), memory)
    with pytest.raises(ValueError, match="memory_dim = 3"):
        attention(query, torch.zeros(2, 6, 4))


def test_counts_below_what_a_method_needs_are_refused():
    latent, one = problem((2,)).latent(), torch.zeros(2, 1).long()
    for k in (0, -1):
        with pytest.raises(ValueError, match="k must be at least 1"):
            SumAndSample(k)
    with pytest.raises(ValueError, match="svi needs steps >= 0"):
        OBJECTIVES["svi"](steps=-3)
    with pytest.raises(ValueError, match="n must be at least 1"):
        OBJECTIVES["semi-amortized"](n=0)
    with pytest.raises(ValueError, match="n >= 2"):
        OBJECTIVES["vimco"]()(latent, one)
    for expectation in (Enumerate(), GumbelSoftmax()):
        with pytest.raises(TypeError, match=f"{type(expectation).__name__} .* no draws"):
            Hard(expectation)(latent, one)


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 2, 4, 5), (1, 1, 1, 4, 5), (4, 5)])
def test_memory_that_does_not_broadcast_over_the_queries_is_refused(shape):
    prior = Categorical.from_scores(torch.zeros(2, 3, 4))
    for alignments in (prior.enumerate(), Mixed.point(prior.mean, exists=prior.mask)):
        with pytest.raises(ValueError, match=r"broadcast over \(2, 3\)"):
            alignments.contexts(torch.zeros(shape))


def test_a_table_in_place_of_a_likelihood_is_refused_with_the_function_that_reads_it(unchecked):
    prior, table = Categorical.from_scores(torch.randn(2, 5, 7)), torch.randn(2, 5, 7)
    with pytest.raises(TypeError, match=r"got a Tensor; .*`lambda z: table\.gather\(-1, z\.index\)`"):
        Latent(prior, table)
    found = OBJECTIVES["marginal"]()(Latent(prior, lambda z: table.gather(-1, z.index))).value
    torch.testing.assert_close(found, (prior.logits + table).logsumexp(-1))


def test_a_posterior_without_outputs_says_how_to_observe_them(unchecked):
    choice = LatentAttention(4, 3, 5)(torch.randn(2, 4), torch.randn(2, 6, 3))
    with pytest.raises(TypeError, match=r"choice\.observe\(target\)`, got a LatentChoice"):
        exact_posterior(choice)


@pytest.mark.parametrize("inference", [False, True])
def test_targets_that_are_no_whole_numbers_are_refused(inference, unchecked):
    choice = LatentAttention(4, 3, 5, inference=inference)(torch.randn(2, 4), torch.randn(2, 6, 3))
    with pytest.raises(TypeError, match=r"whole numbers, .* got torch\.float32"):
        choice.observe(torch.zeros(2))
