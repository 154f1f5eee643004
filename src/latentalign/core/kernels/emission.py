"""Latent choices whose likelihood is a head over a source: averages over z in one pass over the logits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Alignments
from latentalign.core.checks import check_targets
from latentalign.core.distributions import AlignmentDistribution, as_distribution
from latentalign.core.heads import Emit
from latentalign.core.kernels.borders import Borders
from latentalign.core.kernels.fused_softmax import fused_average
from latentalign.core.kernels.likelihood import MAX_LOGITS, target_log_prob
from latentalign.core.kernels.pairs import MAX_HIDDEN, HiddenParts, Pairs, is_factored
from latentalign.core.kernels.pieces import piecewise
from latentalign.core.latent import Latent


class EmissionLatent(Latent):
    """A latent choice whose likelihood is an emission head over a source; averages are fused if the head allows it."""

    def __init__(
        self,
        prior: AlignmentDistribution,
        emit: Emit,
        query: Float[Tensor, "*batch Dq"],
        *,
        memory: Float[Tensor, "*#batch T D"],
        target: Int[Tensor, "*batch"],
        inferred: AlignmentDistribution | None = None,
        query_exists: Bool[Tensor, "*batch"] | None = None,
        max_logits: int = MAX_LOGITS,
    ) -> None:
        prior = as_distribution(prior, "prior")
        inferred = None if inferred is None else as_distribution(inferred, "inferred")
        if prior.source_size != memory.shape[-2]:
            raise ValueError(
                f"the prior is over T = {prior.source_size} members, memory {tuple(memory.shape)} has "
                f"T = {memory.shape[-2]}"
            )
        if query_exists is not None:  # a query that does not exist has no members
            prior = prior.where(query_exists)
            inferred = None if inferred is None else inferred.where(query_exists)
        # Without super().__init__: storing a bound method as a field would create a cycle that keeps the tensors.
        self.prior, self.inferred, self.query = prior, inferred, query
        self.emit, self.memory, self.target = emit, memory, target
        self.query_exists, self.max_logits = query_exists, max_logits
        # Averages over more alignments are not fused: the head is not factored, or a query's logits do not fit.
        self.factored = emit if is_factored(emit) and not query.is_meta else None
        self.fused_width = max_logits // self.factored.output.out_features if self.factored else 0

    def log_likelihood(self, alignments: Alignments) -> Float[Tensor, "*batch K"]:
        """log p(y | x, x~, z_k) for any weighted set of alignments."""
        assert self.query is not None
        return target_log_prob(
            self.emit,
            self.query,
            self.memory,
            self.target,
            alignments,
            query_exists=self.query_exists,
            max_logits=self.max_logits,
        )

    def log_marginal(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        if alignments.log_weight.shape[-1] > self.fused_width:
            return super().log_marginal(alignments)
        return self.fuse(alignments, marginal=True)

    def mean_log_likelihood(self, alignments: Alignments) -> Float[Tensor, "*batch"]:
        if alignments.log_weight.shape[-1] > self.fused_width:
            return super().mean_log_likelihood(alignments)
        return self.fuse(alignments, marginal=False)

    def fuse(self, alignments: Alignments, *, marginal: bool) -> Float[Tensor, "*batch"]:
        """log E[f] (`marginal`) or E[log f] of a factored head, in one pass over the logits."""
        assert self.factored is not None
        assert self.query is not None
        output = self.factored.output
        pairs = Pairs.of(self.query, alignments, target=self.target, query_exists=self.query_exists)
        borders = pairs.borders(self.max_logits // output.out_features)
        target = pairs.targets(self.target)
        check_targets(target, output.out_features)
        log_weight = pairs.log_weights(alignments)
        parts = HiddenParts.of(self.factored, self.query, self.memory, alignments, pairs=pairs)
        many = len(borders.rows) > 2 and len(target) * output.in_features > MAX_HIDDEN
        if many and parts.by_row():
            pieces = borders.groups(MAX_HIDDEN // output.in_features)
            inputs = (parts.from_query, parts.from_memory, log_weight, output.weight, output.bias)
            value = piecewise(PieceAverage(parts, target, pairs.owner, marginal), pieces, inputs)
        else:
            value = fused_average(
                parts.rows(),
                output.weight,
                output.bias,
                target,
                log_weight=log_weight,
                owner=pairs.owner,
                borders=borders,
                marginal=marginal,
            )
        return pairs.spread_queries(value, self.target.shape)


@dataclass(frozen=True, eq=False)
class PieceAverage:
    """The fused average of a group of queries, whose hidden layer is computed for this group alone."""

    parts: HiddenParts
    target: Int[Tensor, "N"]
    owner: Int[Tensor, "N"]
    marginal: bool

    def __call__(
        self,
        borders: Borders,
        from_query: Tensor,
        from_memory: Tensor,
        log_weight: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        """The average of each owner between the first and the last border."""
        part = slice(borders.rows[0], borders.rows[-1])
        return fused_average(
            replace(self.parts, from_query=from_query, from_memory=from_memory).rows(part),
            weight,
            bias,
            self.target[part],
            log_weight=log_weight[part],
            owner=self.owner[part] - borders.queries[0],
            borders=borders.from_zero(),
            marginal=self.marginal,
        )
