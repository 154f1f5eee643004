"""The most probable paths of a chain, compared with a list of all paths."""

import math

import pytest
import torch

from support.chains import EXACT, KINDS, MASK, QUERIES, B, Problem, T, posterior_paths


def all_paths(problem, b):
    """Every path as members with its probability, best first; a position that nobody sees is summed out."""
    found = {}
    for index, _, log_p in posterior_paths(problem, b):
        found.setdefault(index, []).append(log_p)
    scored = ((list(path), float(torch.stack(scores).logsumexp(0))) for path, scores in found.items())
    return sorted((entry for entry in scored if entry[1] > -math.inf), key=lambda entry: -entry[1])


@pytest.mark.parametrize("null", [False, True], ids=["all linked", "null"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 7, 1000])
def test_they_are_the_best_of_all_paths(kind, null, k):
    problem = Problem(kind, null)
    found = problem.chain().posterior(problem.log_f).best_paths(k)
    for b in range(B):
        expected = all_paths(problem, b)[:k]
        assert [path for path, _ in found[b]] == [path for path, _ in expected]
        scores = ([score for _, score in paths] for paths in (found[b], expected))
        torch.testing.assert_close(*(torch.tensor(s, dtype=torch.float64) for s in scores), **EXACT)


def test_the_probabilities_of_all_paths_sum_to_one():
    problem = Problem("jump", True)
    for paths in problem.chain().posterior(problem.log_f).best_paths(1000):
        assert sum(math.exp(score) for _, score in paths) == pytest.approx(1, abs=1e-9)
        assert len({tuple(path) for path, _ in paths}) == len(paths)


def test_a_path_may_be_null_alone():
    problem = Problem("jump", True)
    log_f = problem.log_f.detach().clone()
    log_f[..., T] += 30
    found = problem.chain().posterior(log_f).best_paths(3)
    for b, paths in enumerate(found):
        assert paths[0][0] == [T] * int(QUERIES[b].sum())
        assert paths[0][1] == pytest.approx(0, abs=1e-6)


def test_an_example_without_queries_has_the_empty_path():
    problem = Problem("jump", True, padding=0.0)
    problem.scores = problem.scores.detach()
    mask = MASK & torch.tensor([True, False, True])[:, None, None]
    from latentalign import Chain

    chain = Chain.from_scores(
        problem.scores, exists=mask, transition=problem.transition(), null_scores=problem.null_scores.detach()
    )
    assert chain.posterior(problem.log_f.detach()).best_paths(2)[1] == [([], 0.0)]
