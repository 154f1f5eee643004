"""The fused log softmax: where it may stand in for a head, what it refuses, and what it never computes."""

import math

import pytest
import torch
from torch import nn

from latentalign import (
    OBJECTIVES,
    Categorical,
    EmissionLatent,
    Mixed,
    MLPHead,
    predictive_log_prob,
    target_log_prob,
)
from latentalign.core.kernels import fused_softmax, mixture
from latentalign.core.kernels.borders import Borders
from latentalign.core.kernels.pairs import is_factored
from support.problems import brute_force, gradients, problem


def scaled_linear():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 3 * super().forward(x)

    head = MLPHead(3, 4, 5, hidden=6)
    head.output = Scaled(6, 5)
    return head


def own_forward():
    class Banning(MLPHead):
        def forward(self, query, context):
            return super().forward(query, context).index_fill(-1, torch.tensor([1]), -9.0)

    return Banning(3, 4, 5, hidden=6)


def forward_of_one_instance():
    head = MLPHead(3, 4, 5, hidden=6)
    plain = head.forward
    head.forward = lambda query, context: 2 * plain(query, context)
    return head


def hooked(which):
    head = MLPHead(3, 4, 5, hidden=6)
    module = head.output if which == "output" else head
    module.register_forward_hook(lambda module, args, out: 2 * out)
    return head


def parametrized():
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    head = MLPHead(3, 4, 5, hidden=6)
    nn.utils.parametrize.register_parametrization(head.output, "weight", Doubled())
    return head


CHANGED = {
    "subclass of the last layer": scaled_linear,
    "forward of its own": own_forward,
    "forward of the instance": forward_of_one_instance,
    "hook on the last layer": lambda: hooked("output"),
    "hook on the head": lambda: hooked("head"),
    "parametrisation": parametrized,
}


@pytest.mark.parametrize("change", list(CHANGED))
def test_a_head_that_does_more_than_its_parts_is_called_as_a_whole(change):
    head, p = CHANGED[change]().double(), problem(ragged=False)
    assert not is_factored(head)
    prior = Categorical.from_scores(p.prior_scores)
    a = prior.enumerate()
    contexts = a.contexts(p.memory)
    logits = head(p.query.unsqueeze(-2).expand(*contexts.shape[:-1], 3), contexts)
    expected = logits.log_softmax(-1)
    index = p.target[..., None, None].expand(*a.index.shape, 1)
    chosen = expected.gather(-1, index).squeeze(-1)
    torch.testing.assert_close(target_log_prob(head, p.query, p.memory, p.target, a), chosen)
    latent = EmissionLatent(prior, head, p.query, memory=p.memory, target=p.target)
    torch.testing.assert_close(OBJECTIVES["marginal"]()(latent).value, a.log_expect_exp(chosen))
    mixture = (a.log_weight.unsqueeze(-1) + expected).logsumexp(-2)
    torch.testing.assert_close(predictive_log_prob(head, p.query, p.memory, a), mixture)


def test_plain_heads_take_the_fast_path():
    assert is_factored(problem().head)
    assert not is_factored(nn.Linear(3, 4))
    assert not is_factored(lambda query, context: context)


@pytest.mark.parametrize("average", ["log_likelihood", "log_marginal", "mean_log_likelihood"])
def test_second_derivatives_are_refused_instead_of_wrong(average):
    latent = problem((3,), ragged=False).latent()
    z = latent.prior.mean.detach().requires_grad_()
    value = getattr(latent, average)(Mixed.point(z, exists=latent.prior.mask))
    with pytest.raises(RuntimeError, match="dense_probability"):
        torch.autograd.grad(value.sum(), z, create_graph=True)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_no_gradients_are_formed_where_none_are_asked_for(off, monkeypatch):
    formed = []
    original = fused_softmax.Gradients.add
    monkeypatch.setattr(fused_softmax.Gradients, "add", lambda *a: formed.append(1) or original(*a))
    with off():
        OBJECTIVES["marginal"]()(problem().latent())
    assert not formed
    OBJECTIVES["marginal"]()(problem().latent())
    assert formed


def test_an_impossible_output_under_an_alignment_without_weight_counts_nothing():
    log_weight, log_p = torch.tensor([0.0, -800.0]), torch.tensor([-1.0, -math.inf])
    value, factor, slope = fused_softmax.mean_average(log_weight, log_p, torch.tensor([0, 0]), 1)
    assert value.tolist() == [-1.0]
    assert factor.tolist() == [1.0, 0.0]
    assert slope.tolist() == [-1.0, 0.0]


def test_a_banned_output_has_probability_zero_and_poisons_no_gradient():
    p = problem(ragged=False)
    banned = torch.arange(5) == 0

    def emit(query, context):
        return p.head(query, context).masked_fill(banned, -math.inf)

    for max_logits in (2**20, 60):  # in one chunk, and with queries cut by the border of two
        a = Categorical.from_scores(p.prior_scores).enumerate()
        log_p = predictive_log_prob(emit, p.query, p.memory, a, max_logits=max_logits)
        assert (log_p[..., 0] == -math.inf).all()
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))
        grads = torch.autograd.grad(log_p[..., 1:].sum(), [p.query, p.prior_scores, p.memory])
        assert all(g.isfinite().all() for g in grads)
        assert grads[0].abs().max() > 0


def test_a_single_query_needs_no_batch():
    p = problem((1,), ragged=False)
    batched = p.latent()
    alone = EmissionLatent(
        Categorical.from_scores(p.prior_scores[0]),
        p.head,
        p.query[0],
        memory=p.memory[0],
        target=p.target[0],
        inferred=Categorical.from_scores(p.inferred_scores[0]),
    )
    for name in ("soft", "marginal", "hard-enum", "variational-enum"):
        torch.testing.assert_close(OBJECTIVES[name]()(alone).value, OBJECTIVES[name]()(batched).value[0])
    for name in ("hard-sample", "rws", "sum-and-sample", "svi"):
        assert OBJECTIVES[name]()(alone).value.shape == ()
    ours = predictive_log_prob(p.head, p.query[0], p.memory[0], alone.prior.enumerate())
    torch.testing.assert_close(
        ours, predictive_log_prob(p.head, p.query, p.memory, batched.prior.enumerate())[0]
    )


@pytest.mark.parametrize("bias", ["none", "small", "wide", "banned"])
@pytest.mark.parametrize("shift", [0.0, -200.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_of_every_size_give_the_dense_softmax_and_its_gradients(bias, shift, dtype):
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 6, generator=g, dtype=torch.float64) for n in (9, 7))
    hidden[:, 0], weight[:, 0] = 1.0, shift  # all logits of a row move together
    offsets = {"none": None, "small": torch.randn(7, generator=g), "wide": torch.linspace(-150, 150, 7)}
    offset = offsets.get(bias, torch.tensor([0.0] * 6 + [-math.inf]))
    target = torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2])
    log_weight = torch.randn(9, generator=g, dtype=torch.float64)
    owner = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])

    def leaves(kind):
        given = [hidden, weight, log_weight] if offset is None else [hidden, weight, log_weight, offset]
        return [x.detach().to(kind).requires_grad_() for x in given]

    def dense(h, w, lw, b=None):
        logits = h @ w.t() if b is None else h @ w.t() + b
        log_p = logits.log_softmax(-1)[torch.arange(9), target]
        return torch.stack([(lw + log_p)[owner == k].logsumexp(0) for k in range(3)]), log_p

    true = leaves(torch.float64)
    value, log_p = dense(*true)
    expected = torch.autograd.grad(value.sum(), true)
    ours = leaves(dtype)
    h, w, lw, *b = ours
    found = fused_softmax.fused_average(
        h,
        w,
        b[0] if b else None,
        target,
        log_weight=lw,
        owner=owner,
        borders=Borders([0, 5, 9], [0, 2, 3]),
        marginal=True,
    )
    rounding = {torch.float32: 1e-4 if shift or bias == "wide" else 1e-5, torch.float64: 1e-10}[dtype]
    torch.testing.assert_close(found.double(), value, rtol=rounding, atol=rounding)
    for one, other in zip(torch.autograd.grad(found.sum(), ours), expected, strict=True):
        torch.testing.assert_close(one.double(), other.nan_to_num(0.0), rtol=rounding, atol=10 * rounding)
    single = fused_softmax.linear_log_prob(h, w, b[0] if b else None, target, max_logits=21)
    torch.testing.assert_close(single.double(), log_p, rtol=rounding, atol=rounding)
    out = torch.zeros(3, 7, dtype=dtype)
    mixture.add_mixture(out, h, w, b[0] if b else None, log_weight=lw.detach(), owner=owner, max_logits=21)
    logits = hidden @ weight.t() if offset is None else hidden @ weight.t() + offset
    each = log_weight.exp().unsqueeze(1) * logits.softmax(-1)
    mixed = torch.zeros(3, 7, dtype=torch.float64).index_add(0, owner, each)
    torch.testing.assert_close(out.double(), mixed, rtol=rounding, atol=rounding)
    alone = torch.empty(9, 7, dtype=dtype)
    mixture.single_log_prob(alone, h, w, b[0] if b else None, log_weight=lw.detach())
    expected = log_weight.unsqueeze(1) + logits.log_softmax(-1)
    torch.testing.assert_close(alone.double(), expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("name", ["marginal", "hard-enum", "variational-enum"])
@pytest.mark.parametrize("uniform", [True, False])
def test_fused_averages_of_many_chunks_equal_a_loop_over_z(name, uniform, monkeypatch):
    pieces = []
    original = fused_softmax.FusedAverage.apply
    monkeypatch.setattr(
        fused_softmax.FusedAverage, "apply", lambda *a: pieces.append(len(a[-2].rows) - 1) or original(*a)
    )
    p = problem((4, 3), 4, 5, max_logits=45)  # two whole queries of 4 x 5 logits to a chunk
    weight = None if uniform else torch.rand(4, 3, dtype=torch.float64)
    estimate, expected = OBJECTIVES[name]()(p.latent()), brute_force(p)[name]
    assert max(pieces) > 3
    torch.testing.assert_close(estimate.value, expected, rtol=1e-10, atol=1e-10)
    ours, theirs = (gradients(v, p.leaves, weight) for v in (estimate.surrogate, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_rows_below_the_rounding_error_of_the_largest_are_left_out_and_no_others():
    hidden = torch.randn(40, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    target, share = torch.arange(40) % 6, torch.full((40,), 1e-18, dtype=torch.float64)
    share[:4] = torch.tensor([1.0, 1e-3, 1e-6, 1e-12])
    fused = fused_softmax.linear_log_prob(hidden, weight, None, target, max_logits=2**20)
    plain = (hidden @ weight.t()).log_softmax(-1).gather(1, target[:, None]).squeeze(1)
    ours, theirs = (torch.autograd.grad((share * x).sum(), [hidden, weight]) for x in (fused, plain))
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(ours[0][:4], theirs[0][:4], rtol=1e-10, atol=0.0)
    assert (ours[0][4:] == 0).all()
