"""Marginal likelihood from few members, with a proof of what the others could add.

The prior stays normalised over all members. An upper bound on each member's joint probability p_i f_i(y) says in
which order to visit them and how much the unvisited can still hold: by itself f <= 1, and for a factored head the
screened bound exp(logit_y) / (sum of exp(logit) over a shortlist of outputs and y), which leaves most of the
normaliser's terms out and so can only be too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.distributions import Categorical
from latentalign.core.factored import is_factored
from latentalign.core.kernels.emission import EmissionLatent, Pairs, check_targets, hidden_rows
from latentalign.core.kernels.fused_softmax import aligned, linear_log_prob
from latentalign.core.latent import Latent
from latentalign.core.numerics import NEG_INF, at_least_float32, top_values

Tail = Literal["enumerate", "sample"]
SHORTLIST = 256
SMALLEST = 1e-30
"""Sums of exponentials below it may have lost their terms."""


@dataclass(frozen=True, eq=False)
class Certified:
    """A marginal with a proof: log p lies between `value` and `value + gap`."""

    value: Float[Tensor, "*batch"]
    surrogate: Float[Tensor, "*batch"]
    """To be maximised: the gradient of `value`, and that of the prior by a guess at what the unvisited hold."""
    gap: Float[Tensor, "*batch"]
    """log(1 + left out / found): at most log(1 + tolerance) where no tail was sampled."""
    visited: Int[Tensor, "*batch"]
    """How many members were evaluated for the value."""


def certified_marginal(
    latent: Latent[Any],
    tolerance: float,
    *,
    tail: Tail = "enumerate",
    members: int = 2,
    shortlist: int = SHORTLIST,
    draws: Int[Tensor, "*batch 1"] | None = None,
) -> Certified:
    """log p(y | x, x~) from the members that can matter.

    Members are visited in order of their bound until what is left out is at most `tolerance` times what the first
    of them was found to hold. With `tail="sample"` a query that would need more than `members` visits those and one
    of the rest, drawn in proportion to its bound and weighted by what it stands for: an unbiased estimate of p, so
    a lower bound of log p in the mean, and no proof.

    A member that is not visited loses prior by its likelihood's absence alone, step after step. So `surrogate` also
    has the prior's gradient towards the unvisited, each counted for its bound, lowered by as much as that of the first
    member was too large. That costs no likelihood and is never more than the certificate allows.

    A head that is not factored and has noise of its own (dropout) is asked twice, with two noises: then `gap` is
    what it says, but may be above the tolerance.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    prior: Categorical = latent.categorical("the certified marginal").prior
    source = source_of(latent, shortlist)
    exists = prior.log_probs > NEG_INF
    with torch.no_grad():
        bound = prior.log_probs.detach() + source.log_bound()
        lowest = torch.finfo(bound.dtype).min  # a member that exists comes before those that do not
        bound, order = bound.clamp_min(lowest).masked_fill(~exists, NEG_INF).sort(-1, descending=True)
        # What ranks k and later may hold, summed from the small end so that tails keep their digits.
        left = bound.flip(-1).logcumsumexp(-1).flip(-1).masked_fill(bound == NEG_INF, NEG_INF)
        found = source.log_likelihood(order[..., :1], exists.any(-1, keepdim=True)).squeeze(-1)
        found = found + prior.log_probs.detach().gather(-1, order[..., :1]).squeeze(-1)
        # By how much the first one's bound is; those of the others are as loose, we guess.
        too_large = (bound[..., 0] - found).clamp_min(0)
        needed = (left > (math.log(tolerance) if tolerance else NEG_INF) + found.unsqueeze(-1)).sum(-1)
        needed = needed.clamp_min(1).minimum(exists.sum(-1))
        sampled = needed > members if tail == "sample" else torch.zeros_like(needed, dtype=torch.bool)
        visited = needed.masked_fill(sampled, members)
        chosen = torch.arange(order.shape[-1], device=order.device) < visited.unsqueeze(-1)
        index, log_proposal = order, torch.zeros_like(bound)
        if sampled.any():
            drawn, share = draw_rest(bound, order, members, draws)
            # A given draw that cannot be drawn counts for nothing.
            log_share = share.masked_fill(share == NEG_INF, 0.0)
            index, log_proposal = torch.cat([order, drawn], -1), torch.cat([log_proposal, log_share], -1)
            chosen = torch.cat([chosen, sampled.unsqueeze(-1) & (share > NEG_INF)], -1)
    log_prob = prior.log_prob_of(index)
    alignments = OneHot(index, (log_prob - log_proposal).masked_fill(~chosen, NEG_INF), log_prob)
    value = source.log_marginal(alignments)
    rest = left.gather(-1, visited.clamp(max=left.shape[-1] - 1).unsqueeze(-1)).squeeze(-1)
    gap = F.softplus(rest - value.detach()).masked_fill(visited >= exists.sum(-1), 0.0)
    with torch.no_grad():
        unvisited = ~chosen[..., : order.shape[-1]] & (bound > NEG_INF) & ~sampled.unsqueeze(-1)
        share = (bound - (too_large + value).unsqueeze(-1)).clamp_max(0).exp().masked_fill(~unvisited, 0.0)
        held = torch.zeros_like(share).scatter(-1, order, share)
    guess = (held * prior.log_probs.masked_fill(held == 0, 0.0)).sum(-1)
    return Certified(value, value + (guess - guess.detach()), gap, visited + sampled)


def draw_rest(
    bound: Float[Tensor, "*batch T"],
    order: Int[Tensor, "*batch T"],
    first: int,
    draws: Int[Tensor, "*batch 1"] | None,
) -> tuple[Int[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """One member of rank `first` or later in proportion to its bound, and the log-probability of that draw."""
    ranks = torch.arange(bound.shape[-1], device=bound.device)
    rest = Categorical.from_scores(bound, (ranks >= first) & (bound > NEG_INF))
    rank = rest.sample_index(1) if draws is None else (order == draws).long().argmax(-1, keepdim=True)
    return order.gather(-1, rank), rest.log_prob_of(rank).masked_fill(~rest.mask.any(-1, keepdim=True), 0.0)


FIRST_TAIL = 0.05
"""Prior mass that a first look at a hypothesis may leave out."""
ROUNDING = 1e-4
"""More than sums of single-precision probabilities are off."""


def beam_predictive(
    prior: Categorical,
    add: Callable[[Tensor, Tensor, Tensor, Tensor], None],
    *,
    outputs: int,
    beam: Beam,
    tolerance: float,
) -> Float[Tensor, "n V"]:
    """log p(y | x, x~) of every output for n hypotheses of a beam search, from the members that can matter to it.

    f <= 1, so what a hypothesis leaves out adds at most the prior mass left to any output. Members are visited in
    order of mass until that, on top of the hypothesis' own probability so far, is at most tolerance / (1 + tolerance)
    times what the last place of its sentence's beam is already known to be worth, or until it is plain that no
    continuation gets a place. Every continuation worth one then has a probability within a factor 1 + tolerance of
    the exact one; where the output has to end, its end has.

    `add(out, owner, member, log_weight)` adds w f(x, member) to the rows `owner` of `out`, owners ascending.
    """
    log_weight, order = prior.log_probs.sort(-1, descending=True)
    mass = log_weight.exp()
    left = mass.flip(-1).cumsum(-1).flip(-1)  # of ranks k and later
    exists = log_weight > NEG_INF
    out = aligned(len(order), mass, outputs).zero_()
    done = torch.zeros_like(exists)

    def visit(allowed: Tensor) -> None:
        wanted = exists & ~done & (left > allowed)
        owner, rank = wanted.nonzero(as_tuple=True)
        if len(owner):
            add(out, owner, order[owner, rank], log_weight[owner, rank])
        done.logical_or_(wanted)

    visit(torch.full_like(mass[:, :1], FIRST_TAIL))
    worth = (last_place(out, beam) - beam.log_prob).exp().to(mass.dtype)
    rest = mass.masked_fill(done, 0.0).sum(-1)
    hopeless = (1 + ROUNDING) * (out.amax(-1) + rest) < worth
    worth = worth.clamp(max=1.0).masked_fill(hopeless, math.inf)
    worth = torch.where(beam.last, out[:, beam.end].to(mass.dtype), worth)
    visit(tolerance / (1 + tolerance) * worth.unsqueeze(-1))
    return out.log_()


@dataclass(frozen=True)
class Beam:
    """What a search knows of its n hypotheses, at least one, ordered by sentence, when it asks how they go on."""

    log_prob: Float[Tensor, "n"]
    """Of each so far."""
    sentence: Int[Tensor, "n"]
    places: Int[Tensor, "n"]
    """How many continuations its sentence will keep."""
    last: Bool[Tensor, "n"]
    """It has to end now."""
    end: int
    never: tuple[int, ...]
    """Outputs that are no continuation, or may be counted for less than they are: the end among them."""


def last_place(out: Float[Tensor, "n V"], beam: Beam) -> Float[Tensor, "n"]:
    """For every hypothesis, what the worst continuation that its sentence will keep is worth at least.

    That of k continuations is no worse than the k-th best among those found, each counted for no more than it is.
    """
    never = torch.tensor(beam.never, device=out.device)
    hidden = out[:, never]
    out[:, never] = 0.0
    k = min(int(beam.places.max()), out.shape[-1])
    best = top_values(out, k)[0].double().log() + beam.log_prob.unsqueeze(-1)
    out[:, never] = hidden
    sizes = beam.sentence.bincount()
    first = (sizes.cumsum(0) - sizes)[beam.sentence]
    place = torch.arange(len(first), device=first.device) - first
    table = best.new_full((len(sizes), int(sizes.max()), k), NEG_INF)
    table[beam.sentence, place] = best
    ranked = table.flatten(1).topk(k).values[beam.sentence]
    wanted = (beam.places - 1).unsqueeze(-1)
    last = ranked.gather(-1, wanted.clamp(max=k - 1)).squeeze(-1)
    return last.masked_fill(wanted.squeeze(-1) >= k, NEG_INF)


@runtime_checkable
class Source(Protocol):
    """What the certificate asks of a latent choice; the same noise every time."""

    def log_bound(self) -> Tensor:
        """Above log f of every member, (*batch, T) or a number."""

    def log_likelihood(self, index: Int[Tensor, "*batch 1"], exists: Bool[Tensor, "*batch 1"]) -> Tensor:
        """log f of one member a query."""

    def log_marginal(self, alignments: OneHot) -> Float[Tensor, "*batch"]:
        """log of the weighted sum of f."""


def source_of(latent: Latent[Any], shortlist: int) -> Source:
    """The fast source where the head allows it."""
    if isinstance(latent, EmissionLatent) and is_factored(latent.emit) and latent.target.numel():
        return HeadSource(latent, shortlist)
    return PlainSource(latent)


@dataclass(frozen=True)
class PlainSource:
    """Any likelihood that is a probability: f <= 1."""

    latent: Latent[Any]

    def log_bound(self) -> Tensor:
        return torch.zeros(())

    def log_likelihood(self, index: Tensor, exists: Tensor) -> Tensor:
        weight = torch.zeros(index.shape, dtype=self.latent.prior.log_probs.dtype, device=index.device)
        weight = weight.masked_fill(~exists, NEG_INF)
        return self.latent.log_likelihood(OneHot(index, weight, weight))

    def log_marginal(self, alignments: OneHot) -> Tensor:
        return self.latent.log_marginal(alignments)


def log_of_sum(logits: Float[Tensor, "n V"], bias: Float[Tensor, "V"] | None) -> Float[Tensor, "n"]:
    """log of the sum of exp(logit + bias) in two passes over the logits.

    Nothing is shifted by the largest logit, which would take as many passes again, unless a sum leaves what
    numbers there are.
    """
    boost = logits.new_ones(logits.shape[-1]) if bias is None else bias.to(logits.dtype).exp()
    sums = logits.exp().mv(boost)
    if ((sums > SMALLEST) & (sums < math.inf)).all():
        return sums.log()
    return (logits if bias is None else logits + bias).logsumexp(-1)


def vector_norms(rows: Float[Tensor, "n H"]) -> Float[Tensor, "n"]:
    """Lengths of vectors, in single precision at least."""
    return at_least_float32(rows).square().sum(-1).sqrt()


class HeadSource:
    """A factored head: the hidden layer of every (query, member) is formed once, and its noise with it."""

    def __init__(self, latent: EmissionLatent[Categorical], shortlist: int) -> None:
        self.latent, self.shortlist = latent, shortlist
        assert latent.query is not None
        assert is_factored(latent.emit)
        everything = latent.prior.enumerate()
        pairs = Pairs.of(everything, latent.query_mask)
        self.hidden = hidden_rows(latent.emit, latent.query, latent.memory, everything, pairs=pairs)
        self.output, self.pairs = latent.emit.output, pairs
        self.target = latent.target.flatten()[pairs.query]  # padding has no pair, whatever stands there
        check_targets(self.target, self.output.out_features)
        row = torch.zeros(latent.prior.log_probs.numel(), dtype=torch.long, device=pairs.slot.device)
        row[pairs.slot] = torch.arange(len(pairs.slot), device=row.device)
        self.row = row.view(latent.prior.log_probs.shape)

    def log_bound(self) -> Tensor:
        """The screened bound; the shortlist is the outputs that are most frequent among the targets at hand."""
        hidden, weight, bias = self.hidden.detach(), self.output.weight, self.output.bias
        out = torch.zeros(self.row.shape, dtype=at_least_float32(hidden[:0]).dtype, device=hidden.device)
        if self.shortlist < 1:
            return out
        counts = self.target[
            self.pairs.query.unique_consecutive(return_counts=True)[1].cumsum(0) - 1
        ].bincount()
        common = counts.topk(min(self.shortlist, int((counts > 0).sum()))).indices
        few = weight[common].to(hidden.dtype)
        own = at_least_float32((hidden * weight.to(hidden.dtype).index_select(0, self.target)).sum(-1))
        own = own if bias is None else own + bias[self.target]
        logits = at_least_float32(F.linear(hidden, few))
        log_sum = log_of_sum(logits, None if bias is None else bias[common])
        listed = torch.zeros(len(weight), dtype=torch.bool, device=hidden.device).index_fill(0, common, True)
        bound = own - torch.where(listed[self.target], log_sum, torch.logaddexp(own, log_sum))
        # What rounding could hide of products, and of the sum; log f itself never exceeds 0.
        size = vector_norms(hidden) * vector_norms(few).amax()
        if (
            hidden.dtype.itemsize < 4
        ):  # sums of products are single precision there: what is rounded is the logit
            size = torch.maximum(own.abs(), logits.abs().amax(-1))
        size = size.clamp_min(1) if bias is None else size.clamp_min(1) + bias.abs().amax()
        slack = 8 * torch.finfo(hidden.dtype).eps * size + len(common) * torch.finfo(out.dtype).eps
        bound = (bound + slack).clamp_max(0).nan_to_num(0.0)
        return out.flatten().index_copy(0, self.pairs.slot, bound.to(out.dtype)).view(out.shape)

    def log_marginal(self, alignments: OneHot) -> Tensor:
        row = self.row.gather(-1, alignments.index)
        width = int(alignments.present.sum(-1).max())
        if width * self.output.out_features <= self.latent.max_logits:
            return self.latent.average_rows(
                lambda pairs: self.hidden.index_select(0, row.flatten()[pairs.slot]),
                alignments,
                marginal=True,
            )
        present = alignments.present
        return alignments.log_expect_exp(self.evaluate(row, present, self.hidden))

    def log_likelihood(self, index: Tensor, exists: Tensor) -> Tensor:
        return self.evaluate(self.row.gather(-1, index), exists, self.hidden.detach())

    def evaluate(self, row: Tensor, exists: Tensor, hidden: Tensor) -> Tensor:
        """log f of the rows that exist, 0 elsewhere."""
        rows = row[exists]
        weight, bias, limit = self.output.weight, self.output.bias, self.latent.max_logits
        log_f = linear_log_prob(
            hidden.index_select(0, rows), weight, bias, self.target[rows], max_logits=limit
        )
        return torch.zeros(row.shape, dtype=log_f.dtype, device=log_f.device).masked_scatter(exists, log_f)
