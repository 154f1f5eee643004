"""Upper bounds on log f of every member, and log f of the members that are visited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.alignments import OneHot
from latentalign.core.checks import check_targets
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.kernels.fused_softmax import fused_average, linear_log_prob, safe_sums
from latentalign.core.kernels.pairs import HiddenParts, Pairs
from latentalign.core.latent import Latent
from latentalign.core.numerics import NEG_INF, at_least_float32
from latentalign.core.products import product

MAX_SCREENED = 2**25
"""Most numbers in the hidden layers of all pairs of members for which the screened bound is computed."""


SCREENED_AT_ONCE = 2**19
"""Numbers of the hidden layer whose bounds are computed at once, so that they stay in the processor's cache."""


@runtime_checkable
class Screen(Protocol):
    """What the certificate asks of a latent choice; every call sees the same dropout noise."""

    def log_bound(self, asked: Bool[Tensor, "*batch T"]) -> Tensor:
        """An upper bound on log f of every member, (*batch, T) or a number; 0 for members that are not asked for."""

    def log_likelihood(self, index: Int[Tensor, "*batch K"], exists: Bool[Tensor, "*batch K"]) -> Tensor:
        """log f of some members of every query, 0 where they do not exist."""

    def log_marginal(self, alignments: OneHot) -> Float[Tensor, "*batch"]:
        """log of the weighted sum of f."""


def screen_of(latent: Latent, shortlist: int) -> Screen:
    """The screened bound if the head is factored and alone decides, else f <= 1.

    The screened bound keeps the noise of all members. If that is too much for all pairs of members, f <= 1; likewise
    if the head cannot repeat its noise.
    """
    if not isinstance(latent, EmissionLatent) or latent.side_evidence is not None:
        return PlainScreen(latent)
    if latent.factored is not None and latent.factored.is_repeatable() and latent.target.numel():
        rows = int(latent.prior.mask.sum()) if latent.prior.members_per_alignment > 1 else 0
        if rows * latent.factored.output.in_features <= MAX_SCREENED:
            return HeadScreen(latent, shortlist)
    return PlainScreen(latent)


@dataclass(frozen=True)
class PlainScreen:
    """Any likelihood that is a probability: f <= 1."""

    latent: Latent

    def log_bound(self, asked: Tensor) -> Tensor:
        return torch.zeros((), device=asked.device)

    def log_likelihood(self, index: Tensor, exists: Tensor) -> Tensor:
        prior = self.latent.prior
        dtype, looks = prior.mean.dtype, prior.members_per_alignment
        weight = torch.zeros(index.shape, dtype=dtype, device=index.device).masked_fill(~exists, NEG_INF)
        return self.latent.log_likelihood(OneHot(index, weight, weight, looks))

    def log_marginal(self, alignments: OneHot) -> Tensor:
        return self.latent.log_marginal(alignments)


class HeadScreen:
    """A factored head. The noise of a member is drawn when it is first asked for, and kept; its hidden layer is not.

    Hidden layers of all members would take most of the time: they are large, and few members are visited.
    """

    def __init__(self, latent: EmissionLatent, shortlist: int) -> None:
        self.latent, self.shortlist = latent, shortlist
        assert latent.query is not None
        assert latent.factored is not None
        everything = latent.prior.enumerate()
        self.pairs = Pairs.of(latent.query, everything, query_exists=latent.query_exists)
        self.parts = HiddenParts.of(
            latent.factored, latent.query, latent.memory, everything, pairs=self.pairs
        )
        self.output, self.size = latent.factored.output, latent.factored.output.in_features
        # Padding has no pair, so its targets do not matter.
        self.target = latent.target.flatten()[self.pairs.query]
        check_targets(self.target, self.output.out_features)
        shape, device = everything.log_weight.shape, self.pairs.slot.device
        number = torch.arange(len(self.target), device=device)
        none = torch.full((shape.numel(),), -1, device=device)
        self.pair = none.index_copy(0, self.pairs.slot, number).view(shape)
        """The number of every member's pair; -1 for members that do not exist."""
        self.drawn = torch.zeros_like(number, dtype=torch.bool)
        self.kept: Bool[Tensor, "N H"] | None = None
        """What dropout keeps of the pairs that are drawn."""

    def hidden(self, pair: Int[Tensor, "n"]) -> Float[Tensor, "n H"]:
        """The hidden layer of different pairs, with the same noise whenever it is asked for."""
        new = pair[~self.drawn[pair]]
        noise = self.parts.head.draw_noise(len(new))
        if noise is not None:
            if self.kept is None:
                self.kept = noise.new_empty(len(self.target), self.size)
            self.kept[new] = noise
        self.drawn[new] = True
        return self.parts.rows_with_noise(pair, None if self.kept is None else self.kept[pair])

    def log_bound(self, asked: Bool[Tensor, "*batch T"]) -> Float[Tensor, "*batch T"]:
        """exp(logit_y) / (sum of exp(logit) over a shortlist of outputs and y), in log space, plus rounding errors.

        The shortlist is the most frequent outputs among the targets of the batch. Dropping the other terms of the
        normaliser can only make the bound too large.
        """
        out = torch.zeros(asked.numel(), dtype=self.latent.prior.mean.dtype, device=asked.device)
        if self.shortlist < 1:
            return out.view(asked.shape)
        pair, common = self.pair[asked & (self.pair >= 0)], self.frequent_targets()
        for some in pair.split(max(1, SCREENED_AT_ONCE // self.size)):
            bound = bound_likelihood(self.hidden(some), self.target[some], self.output, common)
            out[self.pairs.slot[some]] = bound.to(out.dtype)
        return out.view(asked.shape)

    def frequent_targets(self) -> Int[Tensor, "m"]:
        """The most frequent targets of the batch, at most `shortlist`."""
        counts = self.latent.target.flatten()[self.pairs.used].bincount()
        return counts.topk(min(self.shortlist, int((counts > 0).sum()))).indices

    def log_marginal(self, alignments: OneHot) -> Tensor:
        latent, output = self.latent, self.output
        most = latent.max_logits // output.out_features
        if int(alignments.present.sum(-1).max()) > most:
            return alignments.log_expect_exp(self.log_likelihood(alignments.index, alignments.present))
        assert latent.query is not None
        pairs = Pairs.of(latent.query, alignments, query_exists=latent.query_exists)
        value = fused_average(
            self.hidden(self.pair.gather(-1, alignments.index).flatten()[pairs.slot]),
            output.weight,
            output.bias,
            pairs.targets(latent.target),
            log_weight=pairs.log_weights(alignments),
            owner=pairs.owner,
            borders=pairs.borders(most),
            marginal=True,
        )
        return pairs.spread_queries(value, latent.target.shape)

    def log_likelihood(self, index: Tensor, exists: Tensor) -> Tensor:
        exists = exists & (self.pair.gather(-1, index) >= 0)
        pair = self.pair.gather(-1, index)[exists]
        weight, bias, limit = self.output.weight, self.output.bias, self.latent.max_logits
        log_f = linear_log_prob(self.hidden(pair), weight, bias, self.target[pair], max_logits=limit)
        out = torch.zeros(index.shape, dtype=log_f.dtype, device=log_f.device)
        return out.masked_scatter(exists, log_f)


def bound_likelihood(
    hidden: Float[Tensor, "n H"], target: Int[Tensor, "n"], output: nn.Linear, common: Int[Tensor, "m"]
) -> Float[Tensor, "n"]:
    """An upper bound on log f of each row from the logits of its target and of the outputs in `common`."""
    weight, bias = output.weight, output.bias
    few = weight[common].to(hidden.dtype)
    own = at_least_float32((hidden * weight.to(hidden.dtype).index_select(0, target)).sum(-1))
    own = own if bias is None else own + bias[target]
    logits = at_least_float32(product(hidden, few.t()))
    log_sum = log_sum_of_logits(logits, None if bias is None else bias[common])
    listed = torch.zeros(len(weight), dtype=torch.bool, device=hidden.device).index_fill(0, common, True)
    bound = own - torch.where(listed[target], log_sum, torch.logaddexp(own, log_sum))
    size = vector_norms(hidden) * vector_norms(few).amax()
    if hidden.dtype.itemsize < 4:  # products are summed in single precision there; the logit is rounded
        size = torch.maximum(own.abs(), logits.abs().amax(-1))
    size = size.clamp_min(1) if bias is None else size.clamp_min(1) + bias.abs().amax()
    slack = 8 * torch.finfo(hidden.dtype).eps * size + len(common) * torch.finfo(bound.dtype).eps
    return (bound + slack).clamp_max(0).nan_to_num(0.0)


def log_sum_of_logits(logits: Float[Tensor, "n V"], bias: Float[Tensor, "V"] | None) -> Float[Tensor, "n"]:
    """log of the sum of exp(logit + bias), in two passes over the logits.

    Subtracting the largest logit would double the passes, so it is done only if a sum overflows or underflows.
    """
    boost = logits.new_ones(logits.shape[-1]) if bias is None else bias.to(logits.dtype).exp()
    sums = logits.exp().mv(boost)
    low, _ = safe_sums(len(boost), 0.0, logits.dtype)
    if ((sums > low * boost.max()) & (sums < math.inf)).all():
        return sums.log()
    return (logits if bias is None else logits + bias).logsumexp(-1)


def vector_norms(rows: Float[Tensor, "n H"]) -> Float[Tensor, "n"]:
    """Euclidean norms of rows, in single precision at least."""
    return at_least_float32(rows).square().sum(-1).sqrt()
