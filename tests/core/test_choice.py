"""A prior and a head before the output is observed: observing, predicting, and parts of one's own."""

import pytest
import torch
from torch import nn

from latentalign import (
    DISTRIBUTIONS,
    OBJECTIVES,
    PREDICTIVES,
    AlignmentDistribution,
    Categorical,
    Dirichlet,
    Estimate,
    Expectation,
    Hard,
    Latent,
    LatentAttention,
    LatentChoice,
    MissingAbilityError,
    MLPHead,
    OneHot,
    Predictive,
    certified_marginal,
    marginal,
    parse_predict,
)
from latentalign.core.heads import FactoredHead
from latentalign.core.kernels.beam import Beam
from support.problems import gradients, problem

HOW = ("exact", "certified:0.01", "kmax:2", "soft")


def choice_of(p, **changed):
    prior = Categorical.from_scores(p.prior_scores, exists=p.mask)
    return LatentChoice(prior, p.head, p.query, p.memory, max_logits=p.max_logits, **changed)


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft"])
def test_predicting_and_observing_agree(how):
    p = problem()
    log_probs = choice_of(p).predict(how)
    for output in range(log_probs.shape[-1]):
        latent = choice_of(p).observe(torch.full_like(p.target, output))
        own = parse_predict(how).log_prob(latent)
        torch.testing.assert_close(log_probs[..., output], own)


@pytest.mark.parametrize("how", HOW)
def test_queries_that_share_a_source_need_no_copy_of_it(how):
    p = problem((4,), 3, ragged=False)
    memory, source = p.memory[:2], torch.tensor([1, 0, 1, 1])
    shared = LatentChoice(choice_of(p).prior, p.head, p.query, memory, source=source)
    copied = LatentChoice(choice_of(p).prior, p.head, p.query, memory[source])
    torch.testing.assert_close(shared.predict(how), copied.predict(how))
    observed = [marginal(choice.observe(p.target)).value for choice in (shared, copied)]
    torch.testing.assert_close(*observed)


def test_q_comes_from_the_network_unless_it_is_passed():
    p = problem()
    network, other = (
        Categorical.from_scores(torch.randn_like(p.prior_scores), exists=p.mask) for _ in range(2)
    )
    choice = choice_of(p, infer=lambda target: network if target is p.target else None)
    assert choice.observe(p.target).inferred is network
    assert choice.observe(p.target, other).inferred is other
    assert choice_of(p).observe(p.target).inferred is None


class Halves(AlignmentDistribution):
    """All mass on two members, half on each: it can enumerate and nothing else."""

    def __init__(self, log_probs, mask):
        self.log_probs, self.mask = log_probs, mask

    @classmethod
    def from_scores(cls, scores, *, exists=None):
        best = scores.topk(2).indices
        log_probs = torch.full_like(scores, float("-inf")).scatter(-1, best, -torch.tensor(2.0).log().item())
        return cls(log_probs + 0 * scores, torch.ones_like(scores).bool())

    mean = property(lambda self: self.log_probs.exp())
    entropy = property(lambda self: torch.full_like(self.log_probs[..., 0], 2.0).log())

    def kl(self, other):
        raise NotImplementedError

    def where(self, exists):
        return self

    def detach(self):
        return Halves(self.log_probs.detach(), self.mask)

    def enumerate(self):
        index = torch.arange(self.log_probs.shape[-1]).expand(self.log_probs.shape)
        return OneHot(index, self.log_probs, self.log_probs)


@pytest.fixture
def halves(monkeypatch):
    monkeypatch.setitem(DISTRIBUTIONS, "halves", Halves)


@pytest.mark.usefixtures("halves")
def test_a_distribution_of_ones_own_works_where_its_abilities_suffice():
    attention = LatentAttention(4, 3, 5, hidden=8, distribution="halves", inference=False)
    choice = attention(torch.randn(2, 3, 4), torch.randn(2, 6, 3))
    latent = choice.observe(torch.zeros(2, 3, dtype=torch.long))
    torch.testing.assert_close(OBJECTIVES["marginal"]()(latent).value, choice.predict("exact")[..., 0])
    with pytest.raises(MissingAbilityError, match="kmax:K needs `top`, which Halves does not implement"):
        choice.predict("kmax:2")
    with pytest.raises(MissingAbilityError, match=r"Hard\(ScoreFunction\) needs `sample`, which Halves"):
        OBJECTIVES["hard-sample"]()(latent)


def test_abilities_are_the_methods_that_a_class_implements():
    assert Halves.abilities == {"enumerate"}
    assert Categorical.supports("enumerate", "top", "sample", "at", "log_prob_of", "relaxed_sample")
    assert not Categorical.supports("enumerate", "rsample")
    with pytest.raises(MissingAbilityError, match=r"`rsample`.*dirichlet, logistic-normal"):
        Categorical.from_scores(torch.zeros(2, 3)).rsample(1)


class Controlled(Expectation):
    """E[log f] by enumeration, with a part that learns."""

    abilities = ("enumerate",)

    def __init__(self):
        super().__init__()
        self.control = nn.Linear(1, 1).double()

    def forward(self, latent, over):
        value = latent.mean_log_likelihood(over.enumerate())
        fit = self.control(torch.ones_like(value).unsqueeze(-1)).squeeze(-1)
        return Estimate(value, value - (fit - value.detach()) ** 2)


def test_what_learns_in_an_objective_is_among_its_parameters():
    objective = Hard(Controlled())
    names = [name for name, _ in objective.named_parameters()]
    assert names == ["expectation.control.weight", "expectation.control.bias"]
    found = gradients(objective(problem().latent()).surrogate, list(objective.parameters()))
    assert all((grad != 0).all() for grad in found)


def test_a_predictive_of_ones_own_is_used_by_its_name(monkeypatch):
    class First(Predictive):
        usage = "first"

        def alignments(self, prior):
            return prior.at(torch.zeros_like(prior.mask[..., :1], dtype=torch.long))

    monkeypatch.setitem(PREDICTIVES, "first", First)
    p = problem(ragged=False)
    each = p.latent().log_likelihood(p.latent().prior.enumerate())
    torch.testing.assert_close(parse_predict("first").log_prob(p.latent()), each[..., 0])
    own = choice_of(p).predict("first").gather(-1, p.target.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(own, each[..., 0])
    with pytest.raises(ValueError, match=r"one of exact.*first; got 'frist'"):
        parse_predict("frist")


def test_a_head_that_is_not_factored_predicts_alike():
    p = problem()
    plain = choice_of(p)
    plain.head = lambda query, context: p.head(query, context)
    assert isinstance(p.head, MLPHead)
    for how in HOW:
        torch.testing.assert_close(plain.predict(how), choice_of(p).predict(how))


def test_absent_queries_of_a_choice_count_for_nothing():
    p = problem((2, 3), ragged=False)
    exists = torch.tensor([[True, True, False], [True, False, False]])
    latent = choice_of(p, query_exists=exists).observe(p.target)
    found, whole = marginal(latent).value, marginal(choice_of(p).observe(p.target)).value
    assert (found[~exists] == 0).all()
    torch.testing.assert_close(found[exists], whole[exists])


def test_prediction_is_exact_unless_asked_otherwise():
    p = problem()
    assert torch.equal(choice_of(p).predict(), choice_of(p).predict("exact"))


def test_a_predictive_is_given_the_choice_and_the_beam():
    class Echo(Predictive):
        def alignments(self, prior):
            raise NotImplementedError

        def log_probs(self, choice, beam=None):
            return torch.full((1, 1), float(choice is wanted and beam is known))

    wanted = choice_of(problem())
    flags = torch.zeros(1, dtype=torch.long)
    known = Beam(torch.zeros(1), flags, flags + 1, flags.bool(), end=0, never=(0,))
    assert wanted.predict(Echo(), known).item() == 1
    assert wanted.predict(Echo()).item() == 0


def test_the_marginal_of_a_distribution_that_cannot_enumerate_says_what_is_missing():
    latent = Latent(Dirichlet.from_scores(torch.zeros(2, 3)), lambda alignments: alignments.log_weight)
    with pytest.raises(
        MissingAbilityError, match="a sum over all alignments needs `enumerate`, which Dirichlet"
    ):
        latent.prior.log_evidence(latent)


def test_a_head_of_ones_own_is_not_taken_apart_by_rows_unless_it_says_so():
    class Plain(FactoredHead):
        memory_part = query_part = staticmethod(lambda x: x)
        hidden = staticmethod(lambda query_part, memory_part: query_part + memory_part)

    assert not Plain().hidden_by_row()


def test_the_certified_likelihood_is_the_certified_marginal():
    latent = problem(members=9, sharp=4.0).latent()
    found = parse_predict("certified:0.3").log_prob(latent)
    assert torch.equal(found, certified_marginal(latent, 0.3).value)
    assert not torch.equal(found, parse_predict("exact").log_prob(latent))


def test_a_beam_is_certified_only_if_the_head_can_be_taken_apart():
    p, whole = problem((4,), 3, ragged=False), torch.zeros(4, dtype=torch.long)
    beam = Beam(torch.zeros(4), whole, whole + 2, whole.bool(), end=0, never=(0,))
    choice = LatentChoice(
        Categorical.from_scores(p.prior_scores), p.head, p.query, p.memory[:2], source=whole
    )
    choice.head = lambda query, context: p.head(query, context)
    torch.testing.assert_close(choice.predict("certified:0.5", beam), choice.predict("exact"))


@pytest.mark.parametrize(
    ("text", "usage"), [("soft:1", "soft"), ("sample:0", "sample:N"), ("kmax:x", "kmax:K")]
)
def test_a_wrong_argument_says_how_the_predictive_is_written(text, usage):
    with pytest.raises(ValueError, match=f"predict must be {usage}; got '{text}'"):
        parse_predict(text)
