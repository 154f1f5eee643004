"""Scores of the source against their plain formulas."""

import pytest
import torch

from latentalign import MLPScore
from latentalign.core.registry import SCORES
from latentalign.core.scores import resolve_score


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_mlp_scores_are_those_of_tanh(dtype, tolerance):
    """Values and gradients, where tanh is nearly linear and where it is flat."""
    torch.manual_seed(0)
    score = MLPScore(4, 5, 6).to(dtype)
    query, memory = torch.randn(3, 2, 4, dtype=dtype), torch.randn(3, 1, 7, 5, dtype=dtype)
    for size in (1e-3, 1.0, 30.0):
        q, m = (size * query).requires_grad_(), (size * memory).requires_grad_()
        w = score.to_score.weight.squeeze(0)
        expected = torch.tanh(score.from_memory(m) + score.from_query(q).unsqueeze(-2)) @ w
        found = score(q, m)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
        inputs = (q, m, *score.parameters())
        weight = torch.randn_like(expected)
        got = torch.autograd.grad((found * weight).sum(), inputs)
        want = torch.autograd.grad((expected * weight).sum(), inputs)
        for g, e in zip(got, want, strict=True):
            torch.testing.assert_close(g, e, atol=10 * tolerance * max(1, size), rtol=10 * tolerance)


def test_small_scores_keep_their_digits_in_half_precision():
    """Where a sigmoid would be 1/2 and some eight bits."""
    torch.manual_seed(0)
    score = MLPScore(4, 5, 6)
    query, memory = 1e-2 * torch.randn(3, 2, 4), 1e-2 * torch.randn(3, 1, 7, 5)
    expected = score(query, memory)
    found = score.bfloat16()(query.bfloat16(), memory.bfloat16())
    assert (found.float() - expected).abs().max() < 0.03 * expected.abs().max()


SIZES = {"query_dim": 5, "memory_dim": 5, "hidden": 6}


@pytest.mark.parametrize("name", SCORES)
def test_a_projected_source_gives_the_scores_of_the_source(name):
    score = resolve_score(name, **SIZES)
    query, memory = torch.randn(3, 2, 5), torch.randn(3, 1, 4, 5)
    torch.testing.assert_close(score(query, memory), score.scores(query, score.project(memory)))


def test_a_module_is_taken_as_it_is():
    score = MLPScore(5, 5, 6)
    assert resolve_score(score, **SIZES) is score


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown score 'bilinaer'; did you mean 'bilinear'\?"):
        resolve_score("bilinaer", **SIZES)


def test_a_registered_name_builds_the_users_score(monkeypatch):
    monkeypatch.setitem(SCORES, "wide-mlp", lambda query_dim, memory_dim, hidden: MLPScore(5, 5, 2 * hidden))
    assert resolve_score("wide-mlp", **SIZES).to_score.in_features == 12


def test_a_module_without_the_methods_of_a_score_is_refused():
    with pytest.raises(TypeError, match=r"Linear is not a score.*project"):
        resolve_score(torch.nn.Linear(5, 5), **SIZES)
