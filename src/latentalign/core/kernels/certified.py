"""Marginal likelihood from few members, with a proof of how much the others could add.

The prior stays normalised over all members. An upper bound on the joint probability p_i f_i(y) of each member gives
the order of visits and limits the mass of unvisited members. `screening.py` computes the bound on f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.profiler import record_function

from latentalign.core.alignments import OneHot
from latentalign.core.devices import prefers_static_shapes
from latentalign.core.distributions import AlignmentDistribution, Categorical
from latentalign.core.kernels.screening import Screen, screen_of
from latentalign.core.latent import Latent
from latentalign.core.numerics import NEG_INF

Tail = Literal["enumerate", "sample"]
CERTIFICATE = "latentalign::certificate"
"""The name, in profiles, of everything that decides which members are visited."""
SHORTLIST = 256
"""Default for the number of outputs in the screened bound."""
UNSCREENED = 0.25
"""The part of the tolerance that members may have together for which not even a bound is computed."""


@dataclass(frozen=True, eq=False)
class Certified:
    """A marginal with a proof: log p lies between `value` and `value + gap`."""

    value: Float[Tensor, "*batch"]
    surrogate: Float[Tensor, "*batch"]
    """To be maximised: its gradient is that of `value` plus an estimate of the prior's for unvisited members."""
    gap: Float[Tensor, "*batch"]
    """log(1 + left out / found): at most log(1 + tolerance) unless a tail was sampled."""
    visited: Int[Tensor, "*batch"]
    """How many members were evaluated for the value."""


def certified_marginal(
    latent: Latent,
    tolerance: float,
    *,
    tail: Tail = "enumerate",
    members: int = 2,
    shortlist: int = SHORTLIST,
    draws: Int[Tensor, "*batch 1"] | None = None,
) -> Certified:
    """log p(y | x, x~) from the members that can matter.

    Members are visited in order of their bound until the mass left out is at most `tolerance` times that of the first
    member. Those with hardly any prior mass are bounded by it alone. With `tail="sample"`, a query that would need
    more than `members` visits those and one of the rest, drawn in proportion to its bound. This estimates p without
    bias, so it is a lower bound of log p on average, without proof.

    Without the likelihood of unvisited members, their prior would shrink at every step. `surrogate` therefore
    estimates their part of the prior's gradient from their bounds, which costs no likelihood.

    On a device that prefers static shapes, such as a GPU, all members are visited, because their number would depend
    on values. The result is then exact, and the gap is 0.

    A head that is not factored and has dropout is evaluated twice with different noise: then `gap` still holds, but
    may exceed the tolerance.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    latent.prior.require("enumerate", "log_prob_of", by="the certified marginal")
    if prefers_static_shapes(latent.prior.mask.device):  # values are not compared: every member is visited
        value = latent.log_marginal(latent.prior.enumerate())
        return Certified(value, value, torch.zeros_like(value), latent.prior.mask.sum(-1))
    with record_function(CERTIFICATE):
        screen = screen_of(latent, shortlist)
        with torch.no_grad():
            ranking = rank_members(latent.prior, screen, tolerance)
            plan = plan_visits(ranking, tolerance, most=members if tail == "sample" else None, draws=draws)
    log_prob = latent.prior.log_prob_of(plan.index)
    weight = (log_prob - plan.log_proposal).masked_fill(~plan.chosen, NEG_INF)
    looks = latent.prior.members_per_alignment
    value = screen.log_marginal(OneHot(plan.index, weight, log_prob, looks))
    guess = unvisited_gradient(latent.prior, ranking, plan, value=value)
    return Certified(
        value,
        value + (guess - guess.detach()),
        certificate(ranking, plan, value),
        plan.visited + plan.sampled,
    )


@dataclass(frozen=True, eq=False)
class Ranking:
    """Members in the order of visits: descending bounds on their joint probability, with two exceptions.

    The member whose joint probability is `found` comes first, and members that cannot matter come last.
    """

    order: Int[Tensor, "*batch T"]
    bound: Float[Tensor, "*batch T"]
    """log of the bound, in order; -inf for members that do not exist."""
    left: Float[Tensor, "*batch T"]
    """log of the total bound of ranks k and later."""
    found: Float[Tensor, "*batch"]
    """log joint probability of the first member."""
    estimate: Float[Tensor, "*batch T"]
    """log of the estimated joint probability of every member, not in order."""
    count: Int[Tensor, "*batch"]
    """Members that exist."""


def rank_members(prior: AlignmentDistribution, screen: Screen, tolerance: float) -> Ranking:
    """Evaluate the likeliest member a priori, bound those that can matter beside it, and order all of them."""
    log_prior = prior.enumerate().log_weight.detach()
    exists = log_prior > NEG_INF
    lead = log_prior.argmax(-1, keepdim=True)
    found = log_prior.gather(-1, lead) + screen.log_likelihood(lead, exists.gather(-1, lead))
    possible = can_matter(log_prior, found, tolerance)
    log_bound = screen.log_bound(possible).expand(log_prior.shape)
    screened = (log_prior + log_bound).masked_fill(~exists, NEG_INF)
    known = screened.scatter(-1, lead, found)
    first, found, known = try_better(log_prior, known, screen, lead=lead, found=found)
    estimate = estimate_joint(screened, known, log_bound, possible, first=first)
    lowest = torch.finfo(known.dtype).min  # members that exist come before those that do not
    key = torch.where(possible, known, known + lowest / 4).clamp_min(lowest)
    order = key.scatter(-1, first, math.inf).masked_fill(~exists, NEG_INF).argsort(-1, descending=True)
    bound = known.clamp_min(lowest).masked_fill(~exists, NEG_INF).gather(-1, order)
    # Summed from the small end, so that tails keep their digits.
    left = bound.flip(-1).logcumsumexp(-1).flip(-1).masked_fill(bound == NEG_INF, NEG_INF)
    return Ranking(order, bound, left, found.squeeze(-1), estimate, exists.sum(-1))


def can_matter(
    log_prior: Float[Tensor, "*batch T"], found: Float[Tensor, "*batch 1"], tolerance: float
) -> Bool[Tensor, "*batch T"]:
    """All members except the least likely ones a priori, whose prior mass is together a part of the tolerance."""
    if not tolerance:
        return log_prior > NEG_INF
    ascending, order = log_prior.sort(-1)
    kept = ascending.logcumsumexp(-1) > found + math.log(UNSCREENED * tolerance)
    return torch.zeros_like(kept).scatter(-1, order, kept & (ascending > NEG_INF))


def estimate_joint(
    screened: Float[Tensor, "*batch T"],
    known: Float[Tensor, "*batch T"],
    log_bound: Float[Tensor, "*batch T"],
    possible: Bool[Tensor, "*batch T"],
    *,
    first: Int[Tensor, "*batch 1"],
) -> Float[Tensor, "*batch T"]:
    """log of the estimated joint probability of every member: what is known, or its bound minus the slack of `first`.

    Members that cannot matter are assumed to have the lowest bound on f of those that can.
    """
    lowest = log_bound.masked_fill(~possible, math.inf).amin(-1, keepdim=True).clamp_max(0)
    slack = (screened - known).gather(-1, first).clamp_min(0).nan_to_num(0.0)
    guess = screened + torch.where(possible, 0.0, lowest) - slack
    return torch.where(known < screened, known, guess)


def try_better(
    log_prior: Float[Tensor, "*batch T"],
    bound: Float[Tensor, "*batch T"],
    screen: Screen,
    *,
    lead: Int[Tensor, "*batch 1"],
    found: Float[Tensor, "*batch 1"],
) -> tuple[Int[Tensor, "*batch 1"], Float[Tensor, "*batch 1"], Float[Tensor, "*batch T"]]:
    """Evaluate the member with the largest bound where that is not `lead`.

    Returns the better one, its log joint probability, and the bounds with what is now known.
    """
    second = bound.argmax(-1, keepdim=True)
    other = (second != lead) & (bound.gather(-1, second) > found)
    if not other.any():
        return lead, found, bound
    joint = log_prior.gather(-1, second) + screen.log_likelihood(second, other)
    joint = torch.where(other, joint, found)
    bound = bound.scatter(-1, torch.where(other, second, lead), joint)
    return torch.where(joint > found, second, lead), torch.maximum(joint, found), bound


@dataclass(frozen=True, eq=False)
class Plan:
    """Which members are evaluated: a prefix of the ranking and, for some queries, one draw from the rest."""

    index: Int[Tensor, "*batch K"]
    chosen: Bool[Tensor, "*batch K"]
    log_proposal: Float[Tensor, "*batch K"]
    """log-probability of a draw; 0 for members of the prefix."""
    visited: Int[Tensor, "*batch"]
    """Length of the prefix."""
    sampled: Bool[Tensor, "*batch"]


def plan_visits(
    ranking: Ranking, tolerance: float, *, most: int | None, draws: Int[Tensor, "*batch 1"] | None
) -> Plan:
    """Visit members until the tolerance is met; beyond `most`, draw one of the rest instead."""
    allowed = (math.log(tolerance) if tolerance else NEG_INF) + ranking.found.unsqueeze(-1)
    needed = (ranking.left > allowed).sum(-1).clamp_min(1).minimum(ranking.count)
    sampled = torch.zeros_like(needed, dtype=torch.bool) if most is None else needed > most
    visited = needed if most is None else needed.masked_fill(sampled, most)
    order = ranking.order
    chosen = torch.arange(order.shape[-1], device=order.device) < visited.unsqueeze(-1)
    index, log_proposal = order, torch.zeros_like(ranking.bound)
    if most is not None and sampled.any():
        drawn, share = draw_rest(ranking.bound, order, most, draws)
        # A draw that was passed in but cannot be drawn counts for nothing.
        log_share = share.masked_fill(share == NEG_INF, 0.0)
        index, log_proposal = torch.cat([order, drawn], -1), torch.cat([log_proposal, log_share], -1)
        chosen = torch.cat([chosen, sampled.unsqueeze(-1) & (share > NEG_INF)], -1)
    return Plan(index, chosen, log_proposal, visited, sampled)


def draw_rest(
    bound: Float[Tensor, "*batch T"],
    order: Int[Tensor, "*batch T"],
    first: int,
    draws: Int[Tensor, "*batch 1"] | None,
) -> tuple[Int[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """One member of rank `first` or later in proportion to its bound, and the log-probability of that draw."""
    ranks = torch.arange(bound.shape[-1], device=bound.device)
    rest = Categorical.from_scores(bound, exists=(ranks >= first) & (bound > NEG_INF))
    rank = rest.sample(1).index if draws is None else (order == draws).long().argmax(-1, keepdim=True)
    return order.gather(-1, rank), rest.log_prob_of(rank).masked_fill(~rest.mask.any(-1, keepdim=True), 0.0)


def certificate(ranking: Ranking, plan: Plan, value: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """log(1 + left out / found); 0 if every member was visited."""
    last = ranking.left.shape[-1] - 1
    rest = ranking.left.gather(-1, plan.visited.clamp(max=last).unsqueeze(-1)).squeeze(-1)
    return F.softplus(rest - value.detach()).masked_fill(plan.visited >= ranking.count, 0.0)


def unvisited_gradient(
    prior: AlignmentDistribution, ranking: Ranking, plan: Plan, *, value: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """sum_i s_i log p_i over unvisited members: its gradient estimates their part of the prior's.

    s_i is the estimated posterior of a member. A query with a sampled tail needs no estimate.
    """
    order = ranking.order
    with torch.no_grad():
        unvisited = ~plan.chosen[..., : order.shape[-1]] & (ranking.bound > NEG_INF)
        unvisited &= ~plan.sampled.unsqueeze(-1)
        unvisited = torch.zeros_like(unvisited).scatter(-1, order, unvisited)
        share = (ranking.estimate - value.unsqueeze(-1)).clamp_max(0).exp().masked_fill(~unvisited, 0.0)
    log_probs = prior.enumerate().log_prob
    return (share * log_probs.masked_fill(share == 0, 0.0)).sum(-1)
