"""Latent attention for your own model, and a posterior network in the style of the paper."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any, cast, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.checks import check_targets
from latentalign.core.choice import LatentChoice
from latentalign.core.distributions import (
    DISTRIBUTIONS,
    AlignmentDistribution,
    Categorical,
    Chain,
    LookMixture,
)
from latentalign.core.kernels.likelihood import MAX_LOGITS
from latentalign.core.linear import Linear
from latentalign.core.scores import Score, resolve_score
from latentalign.nn.chain_prior import ChainKind, ChainPrior
from latentalign.nn.heads import MLPHead
from latentalign.nn.looks import DependentLooks, build_looks


class AlignmentScores(nn.Module):
    """A distribution over the members of the source, from one score, or several if the distribution needs them."""

    def __init__(
        self, query_dim: int, memory_dim: int, *, hidden: int, score: str | nn.Module, distribution: str
    ) -> None:
        super().__init__()
        self.distribution = DISTRIBUTIONS[distribution]
        sizes: dict[str, Any] = {"query_dim": query_dim, "memory_dim": memory_dim, "hidden": hidden}
        self.score = resolve_score(score, **sizes)
        self.sizes = sizes
        for name in self.distribution.extra_scores:
            setattr(self, name, self.another_score(score))

    def another_score(self, score: str | nn.Module) -> Score:
        """One more score with parameters of its own: a module is copied, a name is built anew."""
        return resolve_score(deepcopy(score), **self.sizes)

    def forward(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        mask: Bool[Tensor, "*batch T"],
    ) -> AlignmentDistribution:
        more = [getattr(self, name)(query, memory) for name in self.distribution.extra_scores]
        return self.distribution.from_scores(self.score(query, memory), *more, exists=mask)


class PosteriorNetwork(nn.Module):
    """q(z_i = 1) ~ exp(u' tanh(U1 (x_i * relu(V1 h_y)) + U2 (x~ * relu(V2 h_y)))), h_y an embedding of the output."""

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        outputs: int,
        *,
        hidden: int = 256,
        embedding: int | None = None,
        looks: int = 1,
    ) -> None:
        """`embedding` is the size of h_y, by default that of the hidden layer. With `looks`, u is one for each."""
        super().__init__()
        embedding = hidden if embedding is None else embedding
        self.embed = nn.Embedding(outputs, embedding)
        self.gate_memory = Linear(embedding, memory_dim)
        self.gate_query = Linear(embedding, query_dim)
        self.from_memory = Linear(memory_dim, hidden, bias=False)
        self.from_query = Linear(query_dim, hidden)
        self.to_score = Linear(hidden, looks, bias=False)

    def forward(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        target: Int[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch looks_T"]:
        """Scores of every member given the output; with several looks, those of the first, then of the second."""
        check_targets(target.flatten(), self.embed.num_embeddings)
        h = self.embed(target)
        gated = memory * torch.relu(self.gate_memory(h)).unsqueeze(-2)
        from_query = self.from_query(query * torch.relu(self.gate_query(h))).unsqueeze(-2)
        scores: Tensor = self.to_score(torch.tanh(self.from_memory(gated) + from_query))
        return scores.transpose(-1, -2).flatten(-2)


class LatentAttention(nn.Module):
    """Attention whose output is a `LatentChoice`: observe the outputs to train it, or predict them.

    query is (B, S, query_dim) or (B, query_dim), memory (B, T, memory_dim). `key_padding_mask` (B, T) and
    `query_padding_mask` (B, S) are True at padding, as in PyTorch. `score` is a registered name or a module; see
    `latentalign.core.scores`. `distribution` is a registered name; see `latentalign.core.distributions`.

    `prior` says how the alignments of one example depend on each other: independent, jump, monotone or dense, or a
    `ChainPrior` of your own. Queries are then (B, S, query_dim).

    `looks` says how often an output looks at the source; see docs/looks.md. With 2 or more, each look has a score of
    its own and, unless `views` is "shared", sees the members through a linear map of its own, to `hidden` numbers. With
    "dependent", there are two looks, and the second depends on what the first found. A `head` of your own sees views of
    the size `memory_dim`.

    `inference=True` adds the network behind q. Objectives with `needs_inferred` need it; for others it would only add
    parameters without a gradient. `hidden` is the size of every hidden layer, that network's included.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        outputs: int,
        *,
        hidden: int = 256,
        score: str | nn.Module = "mlp",
        distribution: str = "categorical",
        prior: str | ChainPrior = "independent",
        looks: int | str = 1,
        views: str = "own",
        dropout: float = 0.0,
        inference: bool = False,
        head: nn.Module | None = None,
        max_logits: int = MAX_LOGITS,
    ) -> None:
        super().__init__()
        self.query_dim, self.memory_dim, self.max_logits = query_dim, memory_dim, max_logits
        sizes: dict[str, Any] = {"hidden": hidden, "score": score, "distribution": distribution}
        self.prior = AlignmentScores(query_dim, memory_dim, **sizes)
        self.chain = None if prior == "independent" else as_chain_prior(prior, query_dim, memory_dim)
        view_dim = hidden if head is None else memory_dim
        self.looks = build_looks(
            looks,
            views,
            query_dim=query_dim,
            memory_dim=memory_dim,
            member_dim=memory_dim,
            view_dim=view_dim,
            hidden=hidden,
            make_score=lambda: self.prior.another_score(score),
        )
        self.check(distribution, inference=inference)
        if head is None:
            seen = memory_dim if self.looks is None else self.looks.seen_size(memory_dim)
            head = MLPHead(query_dim, seen, outputs, hidden=hidden, dropout=dropout)
        self.head = head
        separate = self.looks is not None and self.looks.views is not None
        self.inferred_looks = self.looks.looks if separate and self.looks is not None else 1
        self.posterior = None
        if inference:
            sizes = {"hidden": hidden, "looks": self.inferred_looks}
            self.posterior = PosteriorNetwork(query_dim, memory_dim, outputs, **sizes)

    def check(self, distribution: str, *, inference: bool) -> None:
        """Raise if the parts do not fit together."""
        if self.chain is not None and not self.prior.distribution.supports("enumerate"):
            raise ValueError(f"a chain of alignments needs a categorical distribution, got {distribution!r}")
        if self.chain is not None and self.chain.kind == "monotone" and inference:
            raise ValueError(
                "the built-in q is independent, and a monotone prior needs a q that never goes back; pass "
                "inference=False, and q to `observe`"
            )
        if inference and self.prior.distribution.extra_scores:
            raise ValueError(
                f"the built-in posterior network has one score, {distribution} needs more; pass inference=False, "
                "and q to `observe`"
            )
        if inference and self.prior.distribution.sparse:
            raise ValueError(
                f"the built-in q has mass everywhere, so its divergence from {distribution} is infinite; pass "
                "inference=False, and train with marginal"
            )
        if self.looks is not None:
            self.check_looks(distribution, inference=inference)

    def check_looks(self, distribution: str, *, inference: bool) -> None:
        """Raise where several looks are not defined."""
        if self.chain is not None:
            raise ValueError(
                'several looks need prior="independent": in a chain, a position depends on the position before, and '
                "several looks have no single position"
            )
        if self.prior.distribution is not Categorical:
            raise ValueError(f"several looks need a categorical distribution, got {distribution!r}")
        if inference and isinstance(self.looks, DependentLooks):
            raise ValueError(
                "there is no posterior network for pairs of members; pass inference=False, and q, a LookPairs, to "
                "`observe`"
            )

    def forward(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "B T D"],
        *masks: Any,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        query_padding_mask: Bool[Tensor, "*batch"] | None = None,
    ) -> LatentChoice:
        """The latent choice of every query, with q from the posterior network."""
        if masks:
            raise TypeError(
                "masks are passed by name: key_padding_mask (B, T) and query_padding_mask (B, S) are True at padding"
            )
        query, memory, mask = self.prepare(query, memory, key_padding_mask, query_padding_mask)
        prior = self.prior_of(query, memory, mask)
        if self.chain is not None and self.chain.null:
            memory = self.chain.append_null(memory.squeeze(1)).unsqueeze(1)
            mask = torch.cat([mask, mask.any(-1, keepdim=True)], -1)
        return LatentChoice(
            prior,
            self.head,
            query,
            memory if self.looks is None else self.looks.view(memory),
            infer=None if self.posterior is None else partial(self.infer, query, memory, mask),
            max_logits=self.max_logits,
        )

    def prior_of(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        mask: Bool[Tensor, "*batch T"],
    ) -> AlignmentDistribution:
        """p(z | x, x~)."""
        if self.chain is not None:
            return self.chain_of(query, memory, mask)
        if self.looks is None:
            return cast(AlignmentDistribution, self.prior(query, memory, mask))
        found: Categorical = self.looks(self.prior.score(query, memory), query, memory, exists=mask)
        return found

    def chain_of(
        self,
        query: Float[Tensor, "B S Dq"],
        memory: Float[Tensor, "B 1 T D"],
        mask: Bool[Tensor, "B S T"],
    ) -> Chain:
        """The chain of every example."""
        assert self.chain is not None
        chain: Chain = self.chain(self.prior.score(query, memory), mask, query, memory.squeeze(1))
        return chain

    def infer(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        mask: Bool[Tensor, "*batch T"],
        target: Int[Tensor, "*batch"],
    ) -> AlignmentDistribution:
        """q(z; x, x~, y) from the posterior network."""
        assert self.posterior is not None
        target = target.masked_fill(~mask.any(-1), 0)  # padding may hold any number
        looks = self.inferred_looks
        mask = torch.cat([mask] * looks, -1)
        q = self.prior.distribution.from_scores(self.posterior(query, memory, target), exists=mask)
        return q if looks == 1 else LookMixture.of(cast(Categorical, q), looks=looks)

    def prepare(
        self, query: Tensor, memory: Tensor, key_padding: Tensor | None, query_padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query and memory with zeros at padding, memory that broadcasts over queries, and the mask (*batch, T)."""
        batch = query.shape[:-1]
        if memory.dim() != 3 or query.dim() not in (2, 3) or batch[0] != memory.shape[0]:
            raise ValueError(
                f"query must be (B, Dq) or (B, S, Dq) and memory (B, T, D) with the same B, got "
                f"{tuple(query.shape)} and {tuple(memory.shape)}"
            )
        if self.chain is not None and query.dim() != 3:
            raise ValueError(f"a chain needs all queries of an example, (B, S, Dq), got {tuple(query.shape)}")
        if (query.shape[-1], memory.shape[-1]) != (self.query_dim, self.memory_dim):
            raise ValueError(
                f"this attention was built for query_dim = {self.query_dim} and memory_dim = {self.memory_dim}, "
                f"got query {tuple(query.shape)} and memory {tuple(memory.shape)}"
            )
        check_padding("key_padding_mask", key_padding, memory.shape[:2])
        check_padding("query_padding_mask", query_padding, batch)
        exists = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        if key_padding is not None:
            exists = ~key_padding
        # Padding must affect neither values nor gradients, and 0 * NaN is NaN, so replace it here.
        memory = memory.masked_fill(~exists.unsqueeze(-1), 0.0)
        if query.dim() == 3:
            memory, exists = memory.unsqueeze(1), exists.unsqueeze(1)
        mask = exists.expand(*batch, memory.shape[-2])
        if query_padding is not None:
            mask = mask & ~query_padding.unsqueeze(-1)
        return query.masked_fill(~mask.any(-1, keepdim=True), 0.0), memory, mask


def as_chain_prior(prior: str | ChainPrior, query_dim: int, memory_dim: int) -> ChainPrior:
    """A chain prior by its kind, or as it is."""
    if isinstance(prior, ChainPrior):
        return prior
    if prior not in get_args(ChainKind):
        raise ValueError(
            f"prior must be independent, {', '.join(get_args(ChainKind))} or a ChainPrior, got {prior!r}"
            + (f"; pass distribution={prior!r} instead" if prior in DISTRIBUTIONS else "")
        )
    return ChainPrior(cast(ChainKind, prior), query_dim, memory_dim)


def check_padding(name: str, padding: Tensor | None, shape: torch.Size) -> None:
    """Raise unless a mask is None, or boolean and of the right shape."""
    if padding is not None and (padding.dtype != torch.bool or padding.shape != shape):
        raise ValueError(
            f"{name} must be boolean, True at padding, and of shape {tuple(shape)}, "
            f"got {padding.dtype} of shape {tuple(padding.shape)}"
        )
