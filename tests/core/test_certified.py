"""The certificate of a factored head: its bound, its promise, its gradient and its sampled tail."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentalign import OBJECTIVES, LatentChoice, MLPHead, certified_marginal
from latentalign.core.distributions import Categorical
from latentalign.core.kernels import certified, fused_softmax, screening
from latentalign.core.kernels.beam import Beam, beam_predictive, last_place
from latentalign.core.kernels.certified import draw_rest, rank_members
from latentalign.core.kernels.screening import HeadScreen, log_sum_of_logits
from latentalign.core.numerics import BLOCK
from support.problems import gradients, problem

SHORTLISTS = (0, 1, 3, 64)


def exact(p):
    return OBJECTIVES["marginal"]()(p.latent()).value


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(SHORTLISTS),
    st.sampled_from([0.0, 1e-3, 1e-2, 0.1, 0.5]),
    st.sampled_from([0.3, 1.0, 6.0]),
)
def test_the_certificate_holds_for_every_head(seed, shortlist, tolerance, sharp):
    p = problem((3, 4), 6, 9, seed=seed, sharp=sharp)
    answer, full = certified_marginal(p.latent(), tolerance, shortlist=shortlist), exact(p)
    assert (answer.value <= full + 1e-9).all()
    assert (full <= answer.value + answer.gap + 1e-9).all()
    assert (answer.gap <= math.log1p(tolerance) + 1e-9).all()
    assert (answer.visited <= p.mask.sum(-1)).all()


@pytest.mark.parametrize("shortlist", SHORTLISTS)
def test_the_screened_bound_is_above_the_likelihood_and_tightens_with_the_shortlist(shortlist):
    p = problem((40,), 6, 9, ragged=False)
    latent = p.latent()
    log_f = latent.log_likelihood(latent.prior.enumerate())
    bounds = [HeadScreen(latent, n).log_bound(p.mask) for n in (shortlist, shortlist + 2)]
    assert (bounds[0] >= log_f - 1e-12).all()
    assert (bounds[0] >= bounds[1] - 1e-12).all()
    if shortlist >= 9:  # all outputs that occur, so nothing that occurs is left out of the normaliser
        assert (bounds[0] - log_f).mean() < 0.1


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_bound_holds_in_single_precision_whatever_the_logits(scale, with_bias):
    """Against the likelihood in double precision of the same hidden layer; large logits leave the range of exp."""
    p = problem((60,), 6, 400, ragged=False, max_logits=10**6)
    p.head = MLPHead(3, 4, 400, hidden=64)
    output = p.head.output
    if not with_bias:
        output.bias = None
    with torch.no_grad():
        output.weight.normal_(generator=torch.Generator().manual_seed(0)).mul_(scale)
    p.query, p.memory, p.prior_scores = (t.detach().float() for t in (p.query, p.memory, p.prior_scores))
    for shortlist in (10, 400):
        source = HeadScreen(p.latent(), shortlist)
        bound = source.log_bound(p.mask)
        bias = None if output.bias is None else output.bias.double()
        logits = torch.nn.functional.linear(
            source.hidden(torch.arange(len(source.target))).double(), output.weight.double(), bias
        )
        log_f = logits.log_softmax(-1).gather(-1, source.target.unsqueeze(-1)).squeeze(-1).detach()
        assert bound.dtype == torch.float32
        bound = bound.flatten()[source.pairs.slot]
        assert (bound >= log_f).all()
        assert (bound <= 0).all()
    own = logits.gather(-1, source.target.unsqueeze(-1)).squeeze(-1)
    screened = own - logits[:, source.target.unique()].logsumexp(-1)
    assert (bound <= screened + 1e-3 * scale).all(), "no looser than rounding makes it"


@pytest.mark.parametrize("shift", [-200.0, 0.0, 200.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_log_of_a_sum_is_right_beyond_the_range_of_exp(shift, with_bias):
    logits = torch.randn(5, 7) + shift
    bias = torch.randn(7) if with_bias else None
    expected = (logits + (bias if with_bias else 0)).double().logsumexp(-1)
    torch.testing.assert_close(log_sum_of_logits(logits, bias).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_longer_shortlist_visits_fewer_members():
    p = problem((200,), 10, 40, sharp=2.0, ragged=False)
    visited = [
        certified_marginal(p.latent(), 0.01, shortlist=n).visited.double().mean().item() for n in (0, 5, 40)
    ]
    assert visited[0] > visited[1] + 0.2 > visited[2] + 0.4


@pytest.mark.parametrize("shortlist", SHORTLISTS)
def test_at_tolerance_zero_value_and_gradient_are_exact(shortlist):
    p = problem()
    answer = certified_marginal(p.latent(), 0.0, shortlist=shortlist)
    torch.testing.assert_close(answer.value, exact(p), rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients(answer.value, p.leaves), gradients(exact(p), p.leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-3, 1e-2])
def test_the_gradient_by_the_prior_is_within_the_tolerance(tolerance):
    """It is posterior minus prior, and the posterior mass left out is at most the tolerance."""
    p = problem((50,), 8, 12, sharp=3.0, ragged=False)
    ours = torch.autograd.grad(certified_marginal(p.latent(), tolerance).value.sum(), p.prior_scores)[0]
    full = torch.autograd.grad(exact(p).sum(), p.prior_scores)[0]
    assert (ours - full).abs().sum(-1).max() <= 2 * tolerance
    assert certified_marginal(p.latent(), tolerance).visited.double().mean() < 8


def both_gradients(p, leaves, tolerance, **options):
    """Of surrogate and value, with the same draws."""
    found = []
    for which in ("surrogate", "value"):
        torch.manual_seed(0)
        answer = certified_marginal(p.latent(), tolerance, **options)
        found.append(gradients(getattr(answer, which), leaves))
    return found


def test_where_the_bound_is_tight_the_prior_has_the_exact_gradient_from_few_members(monkeypatch):
    """Up to a factor (found + rest) / found of each query, of which the second is at most the tolerance."""
    monkeypatch.setattr(certified, "UNSCREENED", 1e-9)
    p = problem((80,), 8, 6, sharp=3.0, ragged=False)
    assert p.target.unique().numel() == 6  # the shortlist is every output, so the bound is the likelihood
    answer = certified_marginal(p.latent(), 0.05, shortlist=6)
    torch.testing.assert_close(answer.surrogate, answer.value)
    assert answer.visited.double().mean() < 6
    missed = (exact(p) - answer.value).detach().exp().unsqueeze(-1)
    assert 1.001 < missed.max() <= 1.05
    (full,) = gradients(exact(p), [p.prior_scores])
    (guessed,), (plain,) = both_gradients(p, [p.prior_scores], 0.05, shortlist=6)
    torch.testing.assert_close(guessed, full * missed, rtol=1e-8, atol=1e-10)
    assert (plain - full * missed).abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("shortlist", [0, 3, 12])
@pytest.mark.parametrize("tolerance", [1e-3, 0.05])
def test_the_guess_brings_the_priors_gradient_nearer_and_leaves_all_others(shortlist, tolerance):
    p = problem((200,), 8, 12, sharp=3.0, ragged=False)
    full = gradients(exact(p), [p.prior_scores])[0]
    guessed, plain = both_gradients(p, p.leaves, tolerance, shortlist=shortlist)
    off = [(g[0] - full).abs().sum(-1) for g in (guessed, plain)]
    assert off[0].sum() < (0.9 if shortlist else 1.2) * off[1].sum()
    assert off[0].max() <= 4 * tolerance, "never more than the certificate allows"
    for ours, theirs in zip(guessed[1:], plain[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("tail", ["enumerate", "sample"])
def test_padding_and_sampled_tails_get_no_guess(tail):
    p = problem((2, 3), 6, 9, sharp=2.0)
    for ours, theirs in zip(*both_gradients(p, p.leaves, 0.0, tail=tail, members=1), strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs)


def test_bound_probe_and_value_see_the_same_dropout(monkeypatch):
    p = problem((300,), 8, 12, sharp=3.0, ragged=False, max_logits=10**6)
    p.head = MLPHead(3, 4, 12, hidden=6, dropout=0.5).double().train()
    screens = []
    monkeypatch.setattr(
        certified, "screen_of", lambda *a: screens.append(screening.screen_of(*a)) or screens[-1]
    )
    for _ in range(5):
        answer = certified_marginal(p.latent(), 0.05)
        full = screens[-1].log_marginal(p.latent().prior.enumerate())
        assert (answer.value <= full + 1e-9).all()
        assert (full <= answer.value + math.log1p(0.05) + 1e-9).all()


def test_noise_is_drawn_once_for_every_member():
    p = problem((20,), 8, 12, ragged=False)
    p.head = MLPHead(3, 4, 12, hidden=6, dropout=0.5).double().train()
    screen = HeadScreen(p.latent(), 4)
    some, more = torch.arange(10, 90), torch.arange(40, 160)
    before = screen.hidden(some)
    after = screen.hidden(more)
    assert torch.equal(before[30:], after[:50])
    assert torch.equal(screen.hidden(some), before)
    assert (before == 0).any()
    assert not torch.equal(before != 0, (HeadScreen(p.latent(), 4).hidden(some)) != 0)


def test_a_head_with_noise_of_its_own_is_bounded_by_one():
    class Noisy(MLPHead):
        def hidden(self, query_part, memory_part):
            return torch.nn.functional.dropout(self.activated(query_part, memory_part), 0.5)

    p = problem((20,), 8, 12, ragged=False)
    p.head = Noisy(3, 4, 12, hidden=6).double().train()
    assert isinstance(screening.screen_of(p.latent(), 4), screening.PlainScreen)
    assert certified_marginal(p.latent(), 0.05).value.isfinite().all()


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("shortlist", [0, 4])
def test_the_sampled_tail_is_unbiased_for_the_likelihood(members, shortlist):
    p = problem((7,), 6, 9, sharp=0.5, ragged=False)
    options = {"tail": "sample", "members": members, "shortlist": shortlist}
    latent = p.latent()
    with torch.no_grad():
        ranking = rank_members(latent.prior, HeadScreen(latent, shortlist), 0.0)
    bound, order = ranking.bound, ranking.order
    mean, mean_log = torch.zeros(7, dtype=torch.float64), torch.zeros(7, dtype=torch.float64)
    for member in range(6):
        draws = torch.full((7, 1), member)
        _, log_share = draw_rest(bound, order, members, draws)
        share = log_share.exp().squeeze(-1)
        possible = (order == draws).long().argmax(-1) >= members
        share = share.masked_fill(~possible, 0.0)
        answer = certified_marginal(latent, 0.0, draws=draws, **options)
        assert answer.value.isfinite().all(), "a draw of what was enumerated counts for nothing"
        assert (answer.visited == members + 1).all()
        mean += share * answer.value.exp()
        mean_log += share * answer.value
    torch.testing.assert_close(mean, exact(p).exp(), rtol=1e-10, atol=1e-10)
    assert (mean_log <= exact(p) + 1e-12).all()
    assert (mean_log < exact(p) - 1e-6).any()


def test_a_query_that_closes_is_not_sampled():
    p = problem((50,), 8, 12, sharp=8.0, ragged=False)
    answer = certified_marginal(p.latent(), 0.1, tail="sample", members=2)
    closed = certified_marginal(p.latent(), 0.1)
    few = closed.visited <= 2
    assert 0 < few.sum() < 50
    torch.testing.assert_close(answer.value[few], closed.value[few])
    assert (answer.visited[~few] == 3).all()


def test_only_visited_members_reach_the_vocabulary(monkeypatch):
    p = problem((50,), 8, 12, sharp=8.0, ragged=False, max_logits=10**6)
    rows = []
    original = fused_softmax.logits_of
    monkeypatch.setattr(fused_softmax, "logits_of", lambda h, *a: rows.append(len(h)) or original(h, *a))
    answer = certified_marginal(p.latent(), 0.01)
    tried = sum(rows) - int(
        answer.visited.sum()
    )  # beforehand: one member of each query, and of some a second
    assert 50 <= tried <= 60
    assert sum(rows) < 50 * 5


def test_a_query_too_long_for_the_bound_of_memory_is_the_same():
    p, small = problem((6,), 8, 12), problem((6,), 8, 12, max_logits=13)
    torch.testing.assert_close(
        certified_marginal(small.latent(), 1e-3).value, certified_marginal(p.latent(), 1e-3).value
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [({"tolerance": -1.0}, "tolerance"), ({"tail": "guess"}, "tail"), ({"members": 0}, "members")],
)
def test_bad_options_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        OBJECTIVES["marginal"](**options)


def test_the_objective_reports_members_and_gap():
    p = problem()
    estimate = OBJECTIVES["marginal"](tolerance=0.1)(p.latent())
    assert set(estimate.terms) == {"visited", "gap"}
    assert (estimate.value <= exact(p) + 1e-12).all()
    guessed = gradients(certified_marginal(p.latent(), 0.1).surrogate, p.leaves)
    for ours, theirs in zip(gradients(estimate.surrogate, p.leaves), guessed, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_stands_at_padding_is_never_looked_at():
    p = problem((5,), 6, 9)
    expected = certified_marginal(p.latent(), 0.01).value
    absent = ~p.mask.any(-1)
    assert absent.any()
    for strange in (-100, 9999):
        p.target = p.target.masked_fill(absent, strange)
        torch.testing.assert_close(certified_marginal(p.latent(), 0.01).value, expected)
    p.target = torch.full_like(p.target, 9999)
    with pytest.raises(ValueError, match="targets must lie in"):
        certified_marginal(p.latent(), 0.01)


PAD, BOS, EOS = 0, 1, 2


def decoded(log_prior, each, *, log_prob, sentence, places, last, tolerance=0.01):
    """`beam_predictive` over given distributions (n, T, V), and how many members it visited."""
    visited = []

    def add(out, owner, member, log_weight):
        visited.append(len(owner))
        out.index_add_(0, owner, log_weight.exp().unsqueeze(-1) * each[owner, member])

    beam = Beam(log_prob, sentence, places, last, end=EOS, never=(PAD, BOS, EOS))
    prior = Categorical(log_prior, mask=log_prior > -math.inf)
    found = beam_predictive(prior.log_probs, add, outputs=each.shape[-1], beam=beam, tolerance=tolerance)
    return found, sum(visited)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 7]), st.booleans(), st.sampled_from([1.0, 4.0, 12.0]))
def test_continuations_worth_a_place_are_within_the_tolerance(seed, width, eos_norm, sharp):
    """Against full enumeration: places shared by few hypotheses, ends that count for less, banned outputs, limits."""
    g = torch.Generator().manual_seed(seed)
    n, members, outputs = 6, 5, 8
    normal = lambda *shape: sharp * torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    log_prior, each = normal(n, members).log_softmax(-1), normal(n, members, outputs).softmax(-1)
    sentence = torch.tensor([0, 0, 0, 1, 2, 2])
    log_prob = -torch.rand(n, generator=g, dtype=torch.float64) * sharp
    places, last = torch.full((n,), width), sentence == 2
    exact = (log_prior.exp().unsqueeze(-1) * each).sum(1).log()
    found, _ = decoded(log_prior, each, log_prob=log_prob, sentence=sentence, places=places, last=last)
    value = exact.clone()
    value[:, [PAD, BOS]] = -math.inf
    value[:, EOS] -= 5.0 * eos_norm
    value[last] = torch.where(torch.arange(outputs) == EOS, value[last], -math.inf)
    for k in range(3):
        mine = (sentence == k).nonzero().squeeze(-1)
        total = (value[mine] + log_prob[mine].unsqueeze(-1)).flatten()
        kept = total.topk(min(width, int((total > -math.inf).sum()))).indices
        rows, columns = mine[kept // outputs], kept % outputs
        off = exact[rows, columns] - found[rows, columns]
        assert (off >= -1e-9).all()
        assert (off <= math.log1p(0.01) + 1e-9).all()


@pytest.mark.parametrize("outputs", [6, BLOCK * 30 + 17])
def test_the_last_place_is_the_kth_best_continuation(outputs):
    """Sentences with gaps in their numbers, each with its own places; more places than continuations too."""
    g = torch.Generator().manual_seed(0)
    sentence = torch.tensor([1, 1, 1, 4, 4, 7])
    places = torch.tensor([5, 5, 5, 2, 2, 9])
    out = torch.rand(6, outputs, generator=g, dtype=torch.float64)
    out[:, outputs // 2 :] *= 1e-3
    log_prob = -3 * torch.rand(6, generator=g, dtype=torch.float64)
    beam = Beam(log_prob, sentence, places, torch.zeros(6, dtype=torch.bool), end=EOS, never=(PAD, BOS, EOS))
    before = out.clone()
    found = last_place(out, beam)
    assert torch.equal(out, before)
    value = before.log() + log_prob.unsqueeze(-1)
    for row in range(6):
        mine = value[sentence == sentence[row]][:, 3:].flatten().sort(descending=True).values
        k = int(places[row])
        expected = float(mine[k - 1]) if k <= len(mine) else -math.inf
        assert float(found[row]) == pytest.approx(expected)


def test_hypotheses_that_cannot_win_a_place_are_asked_no_more():
    """The second is so improbable that no continuation of it can be kept, whatever its other members hold."""
    log_prior = torch.tensor([[0.96, 0.04], [0.96, 0.04]], dtype=torch.float64).log()
    each = torch.full((2, 2, 8), 1 / 8, dtype=torch.float64)
    state = {"sentence": torch.zeros(2, dtype=torch.long), "places": torch.full((2,), 2)}
    going = {**state, "last": torch.zeros(2, dtype=torch.bool)}
    far = torch.tensor([0.0, -5.0], dtype=torch.float64)
    assert decoded(log_prior, each, log_prob=far, **going)[1] == 3
    near = torch.tensor([0.0, -0.1], dtype=torch.float64)
    assert decoded(log_prior, each, log_prob=near, **going)[1] == 4


def test_a_sharp_prior_needs_few_members():
    log_prior = torch.tensor([[0.98, 0.015, 0.004, 0.001]], dtype=torch.float64).log()
    each = torch.eye(8, dtype=torch.float64)[[3, 4, 5, 6]].unsqueeze(0)
    state = {"log_prob": torch.zeros(1, dtype=torch.float64), "sentence": torch.zeros(1, dtype=torch.long)}
    free = {**state, "places": torch.ones(1, dtype=torch.long), "last": torch.tensor([False])}
    assert decoded(log_prior, each, **free, tolerance=0.1)[1] == 1
    found, visited = decoded(log_prior, each, **{**free, "last": torch.tensor([True])})
    assert visited == 4, "none of them ends here: all have to be asked"
    assert found[0, EOS] == -math.inf


@pytest.mark.parametrize("bias", [0.0, -2000.0])
def test_certified_predictions_of_a_beam_are_exact_where_every_continuation_has_a_place(bias):
    """Hypotheses share sources. The third has to end, and its end may be too improbable for exp."""
    p = problem((4,), 3, outputs=6, ragged=False)
    with torch.no_grad():
        p.head.output.bias[EOS] += bias
    source, prior = torch.tensor([1, 1, 0, 1]), Categorical.from_scores(p.prior_scores)
    choice = LatentChoice(prior, p.head, p.query, p.memory[:2], source=source)
    beam = Beam(
        torch.tensor([0.0, -1.0, -2.0, -3.0], dtype=torch.float64),
        sentence=torch.tensor([0, 0, 1, 2]),
        places=torch.full((4,), 50),
        last=torch.tensor([False, False, True, False]),
        end=EOS,
        never=(PAD, BOS, EOS),
    )
    exact_ones, found = choice.predict("exact"), choice.predict("certified:1e-6", beam)
    words = torch.tensor([True, True, False, True])
    torch.testing.assert_close(found[words][:, 3:], exact_ones[words][:, 3:])
    torch.testing.assert_close(found[2, EOS], exact_ones[2, EOS])
    assert (found[2, EOS] < -1000) == (bias < 0)
