"""Objectives and predictives on chains, against brute force over all paths, in float64."""

import itertools
import math

import pytest
import torch

from latentalign import OBJECTIVES, Categorical, Chain, Jump, Latent, parse_predict
from latentalign.core.errors import MissingAbilityError
from support.chains import EXACT, KINDS, MASK, QUERIES, B, Problem, S, T

ALL = list(itertools.product(KINDS, (False, True)))
WITHOUT_MONOTONE = [case for case in ALL if not case[0].startswith("monotone")]
"""Chains that allow every move, so that an independent q has a finite divergence."""


class Observed:
    """A chain prior with likelihoods from a table, and a q: independent, a chain, or none."""

    def __init__(self, kind, null, q=None):
        self.problem, self.null = Problem(kind, null), null
        torch.manual_seed(1)
        self.mask = torch.cat([MASK, QUERIES[:, :, None]], -1) if null else MASK
        self.q_scores = torch.randn(B, S, T + null, dtype=torch.float64).masked_fill(~self.mask, math.nan)
        self.q_null = torch.randn(B, S, dtype=torch.float64) if null else None
        self.q_scores.requires_grad_()
        self.q = q

    @property
    def leaves(self):
        return [*self.problem.parameters(), *([self.q_scores] if self.q else [])]

    def inferred(self):
        if self.q == "chain":
            return Chain.from_scores(
                self.q_scores[..., :T],
                exists=MASK,
                transition=self.problem.transition(),
                null_scores=self.q_null,
            )
        return Categorical.from_scores(self.q_scores, exists=self.mask) if self.q else None

    def latent(self):
        log_f = self.problem.log_f.masked_fill(~self.mask, 0.0)
        table = lambda alignments: log_f.gather(-1, alignments.index)  # noqa: E731
        return Latent(self.problem.chain(), table, inferred=self.inferred())

    def path_log_priors(self, b):
        """Visible paths (NULL is T) of an example, with the sum of the prior over hidden positions."""
        found = {}
        for index, _, log_prior, _ in self.problem.paths(b):
            found.setdefault(index, []).append(log_prior)
        return {index: torch.stack(parts).logsumexp(0) for index, parts in found.items()}

    def expected(self, b, log_q):
        """E_q[log p(z) + log f - log q] of an example by a sum over all its visible paths."""
        total = torch.zeros((), dtype=torch.float64)
        for index, log_prior in self.path_log_priors(b).items():
            here = log_q(index)
            log_f = sum(self.problem.log_f[b, j, i] for j, i in enumerate(index))
            total = total + here.exp() * (log_f + log_prior - here)
        return total


def independent(observed, b):
    """log q of a path when queries are independent."""
    log_probs = observed.inferred().log_probs
    return lambda index: sum(log_probs[b, j, i] for j, i in enumerate(index))


def gradients(value, leaves):
    grads = torch.autograd.grad(value, leaves, allow_unused=True)
    return [
        torch.zeros_like(x) if g is None else g.nan_to_num(0.0) for x, g in zip(leaves, grads, strict=True)
    ]


@pytest.mark.parametrize(("kind", "null"), ALL)
def test_hard_attention_is_the_expected_log_likelihood_under_the_paths(kind, null):
    observed = Observed(kind, null)
    value = OBJECTIVES["hard-enum"]()(observed.latent()).value
    expected = []
    for b in range(B):
        rows = [
            log_prior.exp() * sum(observed.problem.log_f[b, j, i] for j, i in enumerate(index))
            for index, _, log_prior, _ in observed.problem.paths(b)
        ]
        expected.append(torch.stack(rows).sum())
    torch.testing.assert_close(value.sum(1), torch.stack(expected), **EXACT)
    ours = gradients(value.sum(), observed.leaves)
    theirs = gradients(torch.stack(expected).sum(), observed.leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("kind", "null"), WITHOUT_MONOTONE)
def test_the_bound_of_an_independent_q_is_a_sum_over_paths_with_gradients_to_everything(kind, null):
    observed = Observed(kind, null, "independent")
    value = OBJECTIVES["variational-enum"]()(observed.latent()).value
    expected = torch.stack([observed.expected(b, independent(observed, b)) for b in range(B)])
    torch.testing.assert_close(value.sum(1), expected, **EXACT)
    ours, theirs = (gradients(x.sum(), observed.leaves) for x in (value, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("kind", "null"), ALL)
def test_the_bound_of_a_chain_q_is_below_the_evidence_and_tight_at_the_posterior(kind, null):
    observed = Observed(kind, null, "chain")
    latent = observed.latent()
    bound = OBJECTIVES["variational-enum"]()(latent).value.sum(1)
    evidence = OBJECTIVES["marginal"]()(latent).value.sum(1)
    assert (bound <= evidence + 1e-12).all()
    assert (bound[:2] < evidence[:2] - 1e-6).all()  # the last example has a single path
    latent.inferred = latent.prior.exact_posterior(latent)
    tight = OBJECTIVES["variational-enum"]()(latent).value.sum(1)
    torch.testing.assert_close(tight, evidence, **EXACT)


def test_a_monotone_chain_asks_for_a_chain_as_q():
    with pytest.raises(ValueError, match="make q a chain"):
        OBJECTIVES["variational-enum"]()(Observed("monotone", False, "independent").latent())


@pytest.mark.parametrize("name", ["hard", "variational"])
@pytest.mark.parametrize("q", ["independent", "chain"])
def test_the_score_function_on_marginals_is_unbiased(name, q):
    if name == "hard" and q == "chain":
        pytest.skip("hard attention has no q")
    observed = Observed("jump", True, q)
    exact = OBJECTIVES[f"{name}-enum"]()(observed.latent())
    sampled = OBJECTIVES[f"{name}-sample"](baseline="none")
    over = (
        observed.latent().prior if name == "hard" else observed.latent().inferred
    ).per_query.log_probs.detach()
    value, total = 0.0, [torch.zeros_like(x) for x in observed.leaves]
    # Every query has its own draw, so it is enough to average over the draws of each query alone.
    for i in range(T + 1):
        draws = torch.full((B, S, 1), i)
        estimate = sampled(observed.latent(), draws)
        weight = over[..., i].exp()
        fit = estimate.value + estimate.terms.get("kl", 0.0)
        value = value + weight * fit.masked_fill(weight == 0, 0.0).detach()
        parts = gradients(
            (weight * (estimate.surrogate + estimate.terms.get("kl", 0.0))).sum(), observed.leaves
        )
        total = [a + b for a, b in zip(total, parts, strict=True)]
    fit = exact.value + exact.terms.get("kl", 0.0)
    torch.testing.assert_close(value, fit.detach(), **EXACT)
    for a, b in zip(total, gradients(fit.sum(), observed.leaves), strict=True):
        torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("name", ["sum-and-sample", "gumbel", "rws", "vimco", "svi", "semi-amortized"])
@pytest.mark.parametrize("q", ["independent", "chain"])
def test_other_objectives_refuse_a_chain_with_a_reason(name, q):
    with pytest.raises((MissingAbilityError, TypeError), match=r"depend on each other|does not implement"):
        OBJECTIVES[name]()(Observed("jump", False, q).latent())


def test_a_tolerance_is_refused_for_a_chain():
    with pytest.raises(MissingAbilityError, match="does not implement"):
        OBJECTIVES["marginal"](tolerance=0.01)(Observed("jump", False).latent())


@pytest.mark.parametrize(("kind", "null"), ALL)
def test_predictions_use_the_outputs_before_each_query(kind, null):
    observed = Observed(kind, null)
    latent = observed.latent()
    predicted = latent.prior.predicted(latent)
    for b in range(B):
        for j in range(int(QUERIES[b].sum())):
            # p(z_j | y_<j): the prior over paths of j + 1 steps, weighted by the likelihoods of the first j.
            mass = torch.zeros(T + null, dtype=torch.float64)
            for index, _, log_prior, _ in observed.problem.paths(b, j + 1):
                log_f = sum((observed.problem.log_f[b, k, index[k]] for k in range(j)), torch.zeros(()))
                mass[index[j]] += (log_prior + log_f).exp().detach()
            torch.testing.assert_close(predicted.mean[b, j], mass / mass.sum(), **EXACT)
    exact = parse_predict("exact").log_prob(latent)
    torch.testing.assert_close(exact, latent.prior.filter(observed.problem.log_f), **EXACT)
    everything = parse_predict(f"kmax:{T + null}").log_prob(latent)
    torch.testing.assert_close(everything, exact.detach(), **EXACT)


@pytest.mark.parametrize(("kind", "null"), ALL)
def test_one_step_after_another_gives_what_the_filter_gives(kind, null):
    problem = Problem(kind, null)
    chain = problem.chain()
    expected, member, nothing = chain.run_filter(problem.log_f)
    by_member, by_null = chain.split(problem.log_f)
    position = None
    for j in range(S):
        selected, unselected = chain.move(position, j)
        seen = selected * by_member[:, j].exp() + unselected * by_null[:, j, None].exp()
        here = QUERIES[:, j]
        torch.testing.assert_close(seen.sum(-1).log()[here], expected[here, j], **EXACT)
        position = member[:, j] + nothing[:, j]
        torch.testing.assert_close((seen / seen.sum(-1, keepdim=True))[here], position[here], **EXACT)


@pytest.mark.parametrize(("kind", "null"), ALL)
def test_pairwise_posteriors_and_jump_counts_are_sums_over_paths(kind, null):
    problem = Problem(kind, null)
    chain = problem.chain().posterior(problem.log_f)
    for b in range(B):
        total = torch.stack([joint for *_, joint in problem.paths(b)]).logsumexp(0)
        pairs, counts = torch.zeros(S - 1, T, T, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        for _, path, _, joint in problem.paths(b):
            for j in range(1, len(path)):
                origin, (place, is_null) = path[j - 1][0], path[j]
                if not is_null:
                    pairs[j - 1, origin, place] += (joint - total).exp().detach()
                    counts[max(-1, min(1, place - origin)) + 1] += (joint - total).exp().detach()
        torch.testing.assert_close(chain.pairwise[b].detach(), pairs, **EXACT)
        torch.testing.assert_close(chain.jump_counts(1)[b].detach(), counts, **EXACT)


def test_a_table_for_every_move_equals_one_table_where_all_are_equal():
    problem = Problem("jump", True)
    own = problem.weights.expand(B, S - 1, -1)
    many = Chain.from_scores(
        problem.scores, exists=MASK, transition=Jump(own), null_scores=problem.null_scores
    )
    ours, theirs = many.filter(problem.log_f), problem.chain().filter(problem.log_f)
    torch.testing.assert_close(ours, theirs, **EXACT)
    for a, b in zip(*(gradients(x.sum(), problem.parameters()) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def test_autocast_changes_a_chain_by_rounding_only():
    problem = Problem("jump", True, padding=0.0)
    scores, log_f = problem.scores.detach().float(), problem.log_f.detach().float()
    table, null = problem.weights.detach().float(), problem.null_scores.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        low = Chain.from_scores(scores, exists=MASK, transition=Jump(table), null_scores=null)
        value, path = low.filter(log_f), low.posterior(log_f).best()[0]
    exact = problem.chain()
    torch.testing.assert_close(value.double(), exact.filter(problem.log_f).detach(), rtol=1e-5, atol=1e-5)
    assert torch.equal(path, exact.posterior(problem.log_f).best()[0])
    half = Chain.from_scores(scores.bfloat16(), exists=MASK, transition=Jump(table.bfloat16()))
    assert half.filter(log_f[..., :T].bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("table", [torch.zeros(4), torch.zeros(2, 3)])
def test_a_table_of_jumps_needs_an_odd_length_and_one_or_three_dimensions(table):
    with pytest.raises(ValueError, match="odd length"):
        Jump(table)


@pytest.mark.parametrize("name", ["marginal", "hard-enum", "variational-enum"])
def test_a_look_without_gradient_never_stops_gradients(name):
    gradients = []
    for looks in (False, True):
        observed = Observed("jump", True, q="independent")
        latent = observed.latent()
        if looks:
            with torch.no_grad():  # as a baseline does
                _ = latent.prior.mean
        estimate = OBJECTIVES[name]()(latent)
        gradients.append(torch.autograd.grad(estimate.surrogate.sum(), observed.leaves, allow_unused=True))
    for without, with_look in zip(*gradients, strict=True):
        assert (without is None) == (with_look is None)
        if without is not None:
            torch.testing.assert_close(with_look, without)
