"""Chains against brute force over all paths, in float64, with padding, NULL states and sentences of one word."""

import itertools

import pytest
import torch

from latentalign import Chain, Jump, LatentChoice, MLPHead, Monotone
from latentalign.core.objectives import OBJECTIVES
from support.chains import (
    EXACT,
    KINDS,
    QUERIES,
    B,
    Problem,
    S,
    T,
    brute_force_likelihood,
    posterior_paths,
)


@pytest.fixture(params=list(itertools.product(KINDS, (False, True))), ids=str)
def problem(request):
    return Problem(*request.param)


def test_the_likelihood_of_every_query_is_the_sum_over_all_paths(problem):
    torch.testing.assert_close(
        problem.chain().filter(problem.log_f), brute_force_likelihood(problem), **EXACT
    )


def test_gradients_of_the_likelihood_agree_with_brute_force_for_any_weights_of_the_queries(problem):
    weight = torch.rand(B, S, dtype=torch.float64)
    ours = torch.autograd.grad((weight * problem.chain().filter(problem.log_f)).sum(), problem.parameters())
    theirs = torch.autograd.grad((weight * brute_force_likelihood(problem)).sum(), problem.parameters())
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.nan_to_num(0.0), **EXACT)


@pytest.mark.slow
def test_gradients_of_the_marginals_agree_with_finite_differences(problem):
    problem.scores.data.nan_to_num_(0.0)
    torch.autograd.gradcheck(lambda *_: problem.chain().mean, problem.parameters()[:1])


def test_the_posterior_is_a_chain_with_the_probabilities_of_bayes_rule(problem):
    chain = problem.chain().posterior(problem.log_f)
    for b in range(B):
        unary = torch.zeros(S, T + problem.null, dtype=torch.float64)
        for index, _, log_p in posterior_paths(problem, b):
            for j, i in enumerate(index):
                unary[j, i] += log_p.exp()
        torch.testing.assert_close(chain.mean[b].detach(), unary, **EXACT)


def test_marginals_of_the_prior_are_sums_over_paths(problem):
    for b in range(B):
        unary = torch.zeros(S, T + problem.null, dtype=torch.float64)
        for index, _, log_prior, _ in problem.paths(b):
            for j, i in enumerate(index):
                unary[j, i] += log_prior.exp().detach()
        torch.testing.assert_close(problem.chain().mean[b].detach(), unary, **EXACT)


@pytest.mark.parametrize("of_posterior", [False, True])
def test_the_entropy_adds_up_to_that_of_the_path(problem, of_posterior):
    chain = problem.chain()
    chain = chain.posterior(problem.log_f) if of_posterior else chain
    for b in range(B):
        if of_posterior:
            log_p = torch.stack([p for *_, p in posterior_paths(problem, b)])
        else:
            log_p = torch.stack([p for _, _, p, _ in problem.paths(b)])
        torch.testing.assert_close(chain.entropy[b].sum(), -(log_p.exp() * log_p).sum(), **EXACT)


def test_the_divergence_of_the_posterior_from_the_prior_is_a_sum_over_paths(problem):
    prior = problem.chain()
    divergence = prior.posterior(problem.log_f).kl(prior)
    for b in range(B):
        expected = 0.0
        for (_, _, log_p), (_, _, log_prior, _) in zip(
            posterior_paths(problem, b), problem.paths(b), strict=True
        ):
            expected = expected + log_p.exp() * (log_p - log_prior)
        torch.testing.assert_close(divergence[b].sum(), expected, **EXACT)


def test_the_bound_is_tight_at_the_posterior(problem):
    prior = problem.chain()
    q = prior.posterior(problem.log_f)
    log_f = problem.log_f.masked_fill(q.mean == 0, 0.0)
    bound = (q.mean * log_f).sum((-1, -2)) - q.kl(prior).sum(-1)
    torch.testing.assert_close(bound, prior.filter(problem.log_f).sum(-1), **EXACT)


def test_the_best_path_is_the_most_probable_of_all(problem):
    path, log_prob = problem.chain().posterior(problem.log_f).best()
    for b in range(B):
        index, _, log_p = max(posterior_paths(problem, b), key=lambda found: float(found[2]))
        assert path[b, : len(index)].tolist() == list(index)
        torch.testing.assert_close(log_prob[b], log_p, **EXACT)


@pytest.mark.slow
def test_sampled_paths_have_the_probabilities_of_the_chain(problem):
    stats = pytest.importorskip("scipy.stats")
    chain, n = problem.chain().posterior(problem.log_f), 20_000
    drawn = chain.sample_paths(n)
    for b in range(B):
        length = int(QUERIES[b].sum())
        probabilities = {}
        for index, _, log_p in posterior_paths(problem, b):
            probabilities[index] = probabilities.get(index, 0.0) + float(log_p.exp())
        counts = dict.fromkeys(probabilities, 0)
        for path in drawn[b, :length].t().tolist():
            counts[tuple(path)] += 1
        common = [k for k, p in probabilities.items() if p * n >= 5]
        observed = [counts[k] for k in common] + [n - sum(counts[k] for k in common)]
        expected = [n * probabilities[k] for k in common]
        expected.append(n - sum(expected))
        if expected[-1] < 1e-6:
            observed, expected = observed[:-1], expected[:-1]
        if len(expected) > 1:
            assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.parametrize("padding", [0.0, 7.0, float("inf")])
def test_padding_never_matters_bit_for_bit(problem, padding):
    other = Problem(problem.kind, problem.null, padding=padding)
    ours, theirs = (p.chain().filter(p.log_f) for p in (problem, other))
    assert torch.equal(ours, theirs)
    for a, b in zip(
        torch.autograd.grad(ours.sum(), problem.parameters()),
        torch.autograd.grad(theirs.sum(), other.parameters()),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_a_longer_batch_does_not_change_an_example():
    scores, log_f = (torch.randn(1, 4, 5, dtype=torch.float64) for _ in range(2))
    table = torch.randn(5, dtype=torch.float64)
    short = Chain.from_scores(scores, transition=Jump(table)).filter(log_f)
    wide = torch.nn.functional.pad(scores, (0, 3, 0, 2), value=float("nan"))
    mask = torch.zeros(1, 6, 8, dtype=torch.bool)
    mask[:, :4, :5] = True
    long = Chain.from_scores(wide, exists=mask, transition=Jump(table)).filter(
        torch.nn.functional.pad(log_f, (0, 3, 0, 2), value=float("nan"))
    )
    torch.testing.assert_close(long[:, :4], short, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", ["jump", "monotone"])
def test_float32_and_likelihoods_a_thousand_nats_apart_stay_exact(kind):
    scores = 30 * torch.randn(2, 5, 6)
    log_f = -500 * torch.rand(2, 5, 6)
    transition = Jump(torch.randn(7)) if kind == "jump" else Monotone()
    ours = Chain.from_scores(scores, transition=transition).filter(log_f)
    wide = Jump(transition.table.double()) if kind == "jump" else transition
    exact = Chain.from_scores(scores.double(), transition=wide).filter(log_f.double())
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, exact.float(), rtol=1e-5, atol=1e-4)


@pytest.fixture
def choice():
    """A latent choice with a jump chain as prior, and everything that should get a gradient."""
    torch.manual_seed(0)
    query, memory = torch.randn(2, 3, 4), torch.randn(2, 1, 5, 6)
    query, memory = query.double().requires_grad_(), memory.double().requires_grad_()
    scores = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    table = torch.randn(5, dtype=torch.float64, requires_grad=True)
    head = MLPHead(4, 6, 7, hidden=8).double()
    chain = Chain.from_scores(scores, transition=Jump(table))
    leaves = [query, memory, scores, table, *head.parameters()]
    return LatentChoice(chain, head, query, memory), leaves


def test_marginal_likelihood_of_a_chain_is_the_sum_over_paths_with_gradients_to_everything(choice):
    choice, leaves = choice
    target = torch.tensor([[1, 2, 3], [4, 5, 6]])
    value = OBJECTIVES["marginal"]()(choice.observe(target)).value
    logits = choice.head(
        choice.query.unsqueeze(2).expand(2, 3, 5, 4), choice.memory.expand(2, 3, 5, 6)
    ).log_softmax(-1)
    log_f = logits.gather(-1, target[..., None, None].expand(2, 3, 5, 1)).squeeze(-1)
    chain, total = choice.prior, []
    for b in range(2):
        joint = []
        for path in itertools.product(range(5), repeat=3):
            log_p = sum(chain.log_rows(j)[b, path[j - 1] if j else 0, i] for j, i in enumerate(path))
            joint.append(log_p + sum(log_f[b, j, i] for j, i in enumerate(path)))
        total.append(torch.stack(joint).logsumexp(0))
    expected = torch.stack(total)
    torch.testing.assert_close(value.sum(1), expected, **EXACT)
    ours, theirs = (torch.autograd.grad(x.sum(), leaves, retain_graph=True) for x in (value, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_soft_attention_uses_the_marginals_of_the_chain(choice):
    choice, _ = choice
    value = OBJECTIVES["soft"]()(choice.observe(torch.zeros(2, 3, dtype=torch.long))).value
    context = choice.prior.mean @ choice.memory.squeeze(1)
    expected = choice.head(choice.query, context).log_softmax(-1)[..., 0]
    torch.testing.assert_close(value, expected, **EXACT)


def test_a_query_that_does_not_exist_changes_nothing(problem):
    exists = QUERIES.clone()
    exists[0, 1] = False
    chain = problem.chain().where(exists)
    assert (chain.filter(problem.log_f)[0, 1] == 0).all()
    assert (chain.mean[0, 1] == 0).all()


@pytest.mark.parametrize("kind", ["jump", "monotone"])
def test_a_query_that_does_not_exist_is_passed_over(kind):
    problem = Problem(kind, True, padding=0.0)
    middle = torch.tensor([[1, 0, 1], [1, 0, 1], [1, 0, 1]]).bool()
    members = torch.ones(B, S, T, dtype=torch.bool)
    options = {"transition": problem.transition()}
    whole = Chain.from_scores(problem.scores, exists=members, null_scores=problem.null_scores, **options)
    ends = Chain.from_scores(
        problem.scores[:, ::2], exists=members[:, ::2], null_scores=problem.null_scores[:, ::2], **options
    )
    torch.testing.assert_close(
        whole.where(middle).filter(problem.log_f)[:, ::2], ends.filter(problem.log_f[:, ::2]), **EXACT
    )


def test_a_detached_chain_has_the_same_values_and_no_gradient(problem):
    chain = problem.chain()
    value = chain.detach().filter(problem.log_f.detach())
    assert not value.requires_grad
    assert torch.equal(value, chain.filter(problem.log_f).detach())


def test_a_number_added_to_all_scores_of_a_query_changes_nothing(problem):
    expected = problem.chain().filter(problem.log_f).detach()
    shift = torch.tensor([[0.0, 3000.0, -3000.0]], dtype=torch.float64).unsqueeze(-1)
    problem.scores = (problem.scores + shift).detach()
    torch.testing.assert_close(problem.chain().filter(problem.log_f), expected, rtol=1e-9, atol=1e-9)


def test_an_absent_query_gets_no_gradient_even_after_a_null(problem):
    loss = problem.chain().filter(problem.log_f).sum()
    for x, grad in zip(
        problem.parameters()[:3], torch.autograd.grad(loss, problem.parameters())[:3], strict=False
    ):
        if x.shape[:2] == QUERIES.shape and x is not problem.weights:
            assert (grad[~QUERIES] == 0).all()
