"""The predictive distribution of a beam search, from the members that can matter to the beam."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot, digits
from latentalign.core.heads import FactoredHead
from latentalign.core.kernels.fused_softmax import aligned
from latentalign.core.kernels.mixture import add_mixture
from latentalign.core.kernels.predictive import predictive_log_prob
from latentalign.core.numerics import NEG_INF, top_values

FIRST_TAIL = 0.05
"""Prior mass that the first visit of a hypothesis may leave out."""
ROUNDING = 1e-4
"""A bound on the relative rounding error of sums of single-precision probabilities."""


@dataclass(frozen=True)
class Beam:
    """What a search knows about its n >= 1 hypotheses, ordered by sentence, before it extends them."""

    log_prob: Float[Tensor, "n"]
    """log p of each hypothesis so far."""
    sentence: Int[Tensor, "n"]
    places: Int[Tensor, "n"]
    """How many continuations its sentence will keep."""
    last: Bool[Tensor, "n"]
    """Whether it has to end now."""
    end: int
    never: tuple[int, ...]
    """Outputs that are no continuation or may count for less than their probability; includes the end."""


def certified_log_probs(
    head: FactoredHead,
    query: Float[Tensor, "n Dq"],
    memory: Float[Tensor, "B T D"],
    everything: OneHot,
    *,
    source: Int[Tensor, "n"],
    beam: Beam,
    tolerance: float,
    max_logits: int,
) -> Float[Tensor, "n V"]:
    """log p(y | x, x~) of every output for the hypotheses of a beam; hypothesis i reads memory[source[i]].

    A hypothesis that has to end gets its exact end, however improbable: log space does not underflow.
    """
    parts, from_query = head.memory_part(memory), head.query_part(query)
    weight, bias = head.output.weight, head.output.bias

    def add(out: Tensor, owner: Tensor, member: Tensor, log_weight: Tensor) -> None:
        if everything.looks == 1:
            found = parts[source[owner], member]
        else:
            selected = digits(member, parts.shape[1], everything.looks)
            found = parts[source[owner].unsqueeze(-1), selected].sum(-2)
        hidden = head.hidden(from_query[owner], found)
        rows = {"log_weight": log_weight, "owner": owner}
        add_mixture(out, hidden, weight, bias, max_logits=max_logits, **rows)

    found = beam_predictive(everything.log_weight, add, outputs=len(weight), beam=beam, tolerance=tolerance)
    lost = (beam.last & (found[:, beam.end] == NEG_INF)).nonzero().squeeze(-1)
    if len(lost):
        some = OneHot(
            everything.index[lost], everything.log_weight[lost], everything.log_prob[lost], everything.looks
        )
        found[lost] = predictive_log_prob(
            head, query[lost], memory, some, source=source[lost], max_logits=max_logits
        )
    return found


def beam_predictive(
    log_prior: Float[Tensor, "n T"],
    add: Callable[[Tensor, Tensor, Tensor, Tensor], None],
    *,
    outputs: int,
    beam: Beam,
    tolerance: float,
) -> Float[Tensor, "n V"]:
    """log p(y | x, x~) of every output for n hypotheses of a beam search, from the members that can matter to it.

    Because f <= 1, unvisited members add at most their prior mass to any output. Members are visited in order of mass
    until this mass, times the probability of the hypothesis so far, is at most tolerance / (1 + tolerance) times a
    lower bound on the last place of the beam, or until no continuation can get a place. Every continuation that gets
    a place then has a probability within a factor 1 + tolerance of the exact one. If the output has to end, this
    holds for its end.

    `add(out, owner, member, log_weight)` adds w f(x, member) to the rows `owner` of `out`, owners ascending.
    """
    log_weight, order = log_prior.sort(-1, descending=True)
    mass = log_weight.exp()
    left = mass.flip(-1).cumsum(-1).flip(-1)  # mass of ranks k and later
    exists = log_weight > NEG_INF
    out = aligned(len(order), mass, outputs).zero_()
    done = torch.zeros_like(exists)

    def visit(allowed: Tensor) -> None:
        """Visit members in order until at most the allowed mass is left."""
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


def last_place(out: Float[Tensor, "n V"], beam: Beam) -> Float[Tensor, "n"]:
    """For every hypothesis, a lower bound on log p of the worst continuation that its sentence will keep.

    The worst of the k continuations kept is at least as good as the k-th best of those found so far, each counted
    with at most its probability.
    """
    never = torch.tensor(beam.never, device=out.device)
    saved = out[:, never]
    out[:, never] = 0.0
    k = min(int(beam.places.max()), out.shape[-1])
    best = top_values(out, k)[0].double().log() + beam.log_prob.unsqueeze(-1)
    out[:, never] = saved
    sizes = beam.sentence.bincount()
    first = (sizes.cumsum(0) - sizes)[beam.sentence]
    place = torch.arange(len(first), device=first.device) - first
    table = best.new_full((len(sizes), int(sizes.max()), k), NEG_INF)
    table[beam.sentence, place] = best
    ranked = table.flatten(1).topk(k).values[beam.sentence]
    wanted = (beam.places - 1).unsqueeze(-1)
    last = ranked.gather(-1, wanted.clamp(max=k - 1)).squeeze(-1)
    return last.masked_fill(wanted.squeeze(-1) >= k, NEG_INF)
