"""Upper bounds on log f of every member, and log f of the members that are visited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.checks import check_targets
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.kernels.fused_softmax import fused_average, linear_log_prob, safe_sums
from latentalign.core.kernels.pairs import HiddenParts, Pairs
from latentalign.core.latent import Latent
from latentalign.core.numerics import NEG_INF, at_least_float32
from latentalign.core.products import product

MAX_SCREENED = 2**25
"""Most numbers in the hidden layer of all pairs of members for which the screened bound is computed."""


@runtime_checkable
class Screen(Protocol):
    """What the certificate asks of a latent choice; every call sees the same dropout noise."""

    def log_bound(self) -> Tensor:
        """An upper bound on log f of every member, (*batch, T) or a number."""

    def log_likelihood(self, index: Int[Tensor, "*batch 1"], exists: Bool[Tensor, "*batch 1"]) -> Tensor:
        """log f of one member per query."""

    def log_marginal(self, alignments: OneHot) -> Float[Tensor, "*batch"]:
        """log of the weighted sum of f."""


def screen_of(latent: Latent, shortlist: int) -> Screen:
    """The screened bound if the head is factored and alone decides, else f <= 1.

    The screened bound keeps the hidden layer of everything. If that is too much for all pairs of members, f <= 1.
    """
    if not isinstance(latent, EmissionLatent) or latent.side_evidence is not None:
        return PlainScreen(latent)
    if latent.factored is not None and latent.target.numel():
        rows = int(latent.prior.mask.sum()) if latent.prior.members_per_alignment > 1 else 0
        if rows * latent.factored.output.in_features <= MAX_SCREENED:
            return HeadScreen(latent, shortlist)
    return PlainScreen(latent)


@dataclass(frozen=True)
class PlainScreen:
    """Any likelihood that is a probability: f <= 1."""

    latent: Latent

    def log_bound(self) -> Tensor:
        return torch.zeros(())

    def log_likelihood(self, index: Tensor, exists: Tensor) -> Tensor:
        prior = self.latent.prior
        dtype, looks = prior.mean.dtype, prior.members_per_alignment
        weight = torch.zeros(index.shape, dtype=dtype, device=index.device).masked_fill(~exists, NEG_INF)
        return self.latent.log_likelihood(OneHot(index, weight, weight, looks))

    def log_marginal(self, alignments: OneHot) -> Tensor:
        return self.latent.log_marginal(alignments)


class HeadScreen:
    """A factored head: the hidden layer of every (query, member), and its dropout noise, is computed once."""

    def __init__(self, latent: EmissionLatent, shortlist: int) -> None:
        self.latent, self.shortlist = latent, shortlist
        assert latent.query is not None
        assert latent.factored is not None
        everything = latent.prior.enumerate()
        pairs = Pairs.of(latent.query, everything, query_exists=latent.query_exists)
        parts = HiddenParts.of(latent.factored, latent.query, latent.memory, everything, pairs=pairs)
        self.hidden, self.output, self.pairs = parts.rows(), latent.factored.output, pairs
        # Padding has no pair, so its targets do not matter.
        self.target = latent.target.flatten()[pairs.query]
        check_targets(self.target, self.output.out_features)
        row = torch.zeros(everything.log_weight.numel(), dtype=torch.long, device=pairs.slot.device)
        row[pairs.slot] = torch.arange(len(pairs.slot), device=row.device)
        self.row = row.view(everything.log_weight.shape)

    def log_bound(self) -> Tensor:
        """exp(logit_y) / (sum of exp(logit) over a shortlist of outputs and y), in log space, plus rounding errors.

        The shortlist is the most frequent outputs among the targets of the batch. Dropping the other terms of the
        normaliser can only make the bound too large.
        """
        hidden, weight, bias = self.hidden.detach(), self.output.weight, self.output.bias
        out = torch.zeros(self.row.shape, dtype=at_least_float32(hidden[:0]).dtype, device=hidden.device)
        if self.shortlist < 1:
            return out
        common = self.frequent_targets()
        few = weight[common].to(hidden.dtype)
        own = at_least_float32((hidden * weight.to(hidden.dtype).index_select(0, self.target)).sum(-1))
        own = own if bias is None else own + bias[self.target]
        logits = at_least_float32(product(hidden, few.t()))
        log_sum = log_sum_of_logits(logits, None if bias is None else bias[common])
        listed = torch.zeros(len(weight), dtype=torch.bool, device=hidden.device).index_fill(0, common, True)
        bound = own - torch.where(listed[self.target], log_sum, torch.logaddexp(own, log_sum))
        size = vector_norms(hidden) * vector_norms(few).amax()
        if hidden.dtype.itemsize < 4:  # products are summed in single precision there; the logit is rounded
            size = torch.maximum(own.abs(), logits.abs().amax(-1))
        size = size.clamp_min(1) if bias is None else size.clamp_min(1) + bias.abs().amax()
        slack = 8 * torch.finfo(hidden.dtype).eps * size + len(common) * torch.finfo(out.dtype).eps
        bound = (bound + slack).clamp_max(0).nan_to_num(0.0)
        return out.flatten().index_copy(0, self.pairs.slot, bound.to(out.dtype)).view(out.shape)

    def frequent_targets(self) -> Int[Tensor, "m"]:
        """The most frequent targets of the batch, at most `shortlist`."""
        last = self.pairs.query.unique_consecutive(return_counts=True)[1].cumsum(0) - 1
        counts = self.target[last].bincount()
        return counts.topk(min(self.shortlist, int((counts > 0).sum()))).indices

    def log_marginal(self, alignments: OneHot) -> Tensor:
        latent, output = self.latent, self.output
        row = self.row.gather(-1, alignments.index)
        most = latent.max_logits // output.out_features
        if int(alignments.present.sum(-1).max()) > most:
            return alignments.log_expect_exp(self.evaluate(row, alignments.present, self.hidden))
        assert latent.query is not None
        pairs = Pairs.of(latent.query, alignments, query_exists=latent.query_exists)
        hidden = self.hidden.index_select(0, row.flatten()[pairs.slot])
        value = fused_average(
            hidden,
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
        return self.evaluate(self.row.gather(-1, index), exists, self.hidden.detach())

    def evaluate(self, row: Tensor, exists: Tensor, hidden: Tensor) -> Tensor:
        """log f of the rows that exist, 0 elsewhere."""
        rows = row[exists]
        weight, bias, limit = self.output.weight, self.output.bias, self.latent.max_logits
        log_f = linear_log_prob(
            hidden.index_select(0, rows), weight, bias, self.target[rows], max_logits=limit
        )
        return torch.zeros(row.shape, dtype=log_f.dtype, device=log_f.device).masked_scatter(exists, log_f)


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
