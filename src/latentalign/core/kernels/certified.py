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
    member. With `tail="sample"`, a query that would need more than `members` visits those and one of the rest, drawn
    in proportion to its bound. This estimates p without bias, so it is a lower bound of log p on average, without
    proof.

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
            ranking = rank_members(latent.prior, screen)
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
    """Members in descending order of the bound on their joint probability."""

    order: Int[Tensor, "*batch T"]
    bound: Float[Tensor, "*batch T"]
    """log of the bound, in order; -inf for members that do not exist."""
    left: Float[Tensor, "*batch T"]
    """log of the total bound of ranks k and later."""
    found: Float[Tensor, "*batch"]
    """log joint probability of the first member."""
    count: Int[Tensor, "*batch"]
    """Members that exist."""


def rank_members(prior: AlignmentDistribution, screen: Screen) -> Ranking:
    """Order the members by their bound, and evaluate the first."""
    log_prior = prior.enumerate().log_weight.detach()
    exists = log_prior > NEG_INF
    bound = log_prior + screen.log_bound()
    lowest = torch.finfo(bound.dtype).min  # members that exist come before those that do not
    bound, order = bound.clamp_min(lowest).masked_fill(~exists, NEG_INF).sort(-1, descending=True)
    # Summed from the small end, so that tails keep their digits.
    left = bound.flip(-1).logcumsumexp(-1).flip(-1).masked_fill(bound == NEG_INF, NEG_INF)
    first = order[..., :1]
    found = screen.log_likelihood(first, exists.any(-1, keepdim=True)).squeeze(-1)
    found = found + log_prior.gather(-1, first).squeeze(-1)
    return Ranking(order, bound, left, found, exists.sum(-1))


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

    The posterior s_i of a member is estimated by its bound, minus the slack of the first member's bound. It never
    exceeds what the certificate allows. A query with a sampled tail needs no estimate.
    """
    order, bound = ranking.order, ranking.bound
    with torch.no_grad():
        unvisited = ~plan.chosen[..., : order.shape[-1]] & (bound > NEG_INF) & ~plan.sampled.unsqueeze(-1)
        slack = (bound[..., 0] - ranking.found).clamp_min(0)
        share = (bound - (slack + value).unsqueeze(-1)).clamp_max(0).exp().masked_fill(~unvisited, 0.0)
        share = torch.zeros_like(share).scatter(-1, order, share)
    log_probs = prior.enumerate().log_prob
    return (share * log_probs.masked_fill(share == 0, 0.0)).sum(-1)
