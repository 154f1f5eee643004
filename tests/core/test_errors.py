"""Bad input to the library says what was expected and what came."""

import pytest
import torch
from problems import problem

from latentalign import (
    OBJECTIVES,
    Categorical,
    Dirichlet,
    GumbelSoftmax,
    Hard,
    Latent,
    LatentAttention,
    Pathwise,
    ScoreFunction,
    certified_marginal,
    exact_posterior,
    parse_predict,
    target_log_prob,
)
from latentalign.core.baselines import build_baseline, leave_one_out
from latentalign.core.scores import build_score


def test_scores_that_are_nan_are_named_with_their_place():
    scores = torch.zeros(2, 3)
    scores[1, 2] = float("nan")
    for build in (Categorical.from_scores, Dirichlet.from_scores):
        with pytest.raises(ValueError, match=r"nan at \(1, 2\)"):
            build(scores)
        build(scores, torch.tensor([[1, 1, 1], [1, 1, 0]]).bool())  # masked: harmless


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
    a = Categorical.from_scores(p.prior_scores, p.mask).enumerate()
    with pytest.raises(Exception, match=r"memory"):
        target_log_prob(p.head, p.query, p.memory.squeeze(1), p.target, a)


def test_targets_outside_the_outputs_are_named():
    p = problem()
    p.target[0, 0] = 5
    with pytest.raises(ValueError, match=r"0\.\.4 .* got 5"):
        OBJECTIVES["marginal"]()(p.latent())


def test_a_mask_of_the_wrong_shape_or_kind_is_refused():
    with pytest.raises(ValueError, match="does not broadcast"):
        Categorical.from_scores(torch.zeros(2, 3), torch.ones(2, 4).bool())


def test_a_discrete_objective_refuses_a_dirichlet_and_the_other_way_round():
    dirichlet = Dirichlet.from_scores(torch.zeros(2, 3))
    latent = Latent(dirichlet, lambda a: torch.zeros(2, 1), dirichlet)
    for name in ("marginal", "hard-enum", "variational-enum", "rws", "svi"):
        with pytest.raises(TypeError, match="Categorical"):
            OBJECTIVES[name]()(latent)
    with pytest.raises(TypeError, match="Dirichlet"):
        OBJECTIVES["relaxed"]()(problem().latent())
    with pytest.raises(TypeError, match="Categorical"):
        exact_posterior(latent)
    with pytest.raises(TypeError, match="sample:N"):
        parse_predict("exact")(dirichlet)
    with pytest.raises(TypeError, match="sample:N"):
        parse_predict("kmax:2")(dirichlet)


@pytest.mark.parametrize("text", ["", "kmax", "kmax:0", "kmax:-1", "exact:3", "sample:x", "kmax:²", "top"])
def test_predict_names_are_checked(text):
    with pytest.raises(ValueError, match="predict must be"):
        parse_predict(text)


def test_options_are_checked():
    with pytest.raises(ValueError, match="families dirichlet"):
        Hard(Pathwise(), "categorical")
    with pytest.raises(ValueError, match="unknown family"):
        Hard(Pathwise(), "gamma")
    with pytest.raises(ValueError, match="unknown baseline 'sofd'"):
        build_baseline("sofd")
    with pytest.raises(ValueError, match="unknown score"):
        build_score("cosine", query_dim=1, memory_dim=1, hidden=1)
    with pytest.raises(ValueError, match="one size"):
        build_score("dot", query_dim=1, memory_dim=2, hidden=1)
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
    with pytest.raises(ValueError, match="categorical"):
        LatentAttention(4, 3, 5, family="dirichlet")
    with pytest.raises(Exception, match="query"):
        attention(torch.zeros(2, 4), torch.zeros(3, 6, 3), torch.zeros(2, dtype=torch.long))
