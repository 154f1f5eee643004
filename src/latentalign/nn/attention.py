"""Latent attention to put into one's own model, and a posterior network in the style of the paper."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.distributions import Categorical, Dirichlet, LogisticNormal
from latentalign.core.kernels.emission import MAX_LOGITS, EmissionLatent, predictive_log_prob
from latentalign.core.objectives import FAMILIES
from latentalign.core.predictives import parse_predict
from latentalign.core.scores import resolve_score
from latentalign.nn.heads import MLPHead


class AlignmentScores(nn.Module):
    """Scores turned into a distribution of one family over the members of the source."""

    def __init__(
        self, query_dim: int, memory_dim: int, *, hidden: int, score: str | nn.Module, family: str
    ) -> None:
        super().__init__()
        if family not in FAMILIES:
            raise ValueError(f"unknown family {family!r}; choose one of {', '.join(FAMILIES)}")
        self.family = family
        sizes: dict[str, Any] = {"query_dim": query_dim, "memory_dim": memory_dim, "hidden": hidden}
        self.score = resolve_score(score, **sizes)
        # A second score with parameters of its own: a module is copied, a name is built anew.
        self.scale = resolve_score(deepcopy(score), **sizes) if family == "logistic-normal" else None

    def forward(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        mask: Bool[Tensor, "*batch T"],
    ) -> Categorical | Dirichlet | LogisticNormal:
        scores = self.score(query, memory)
        if self.family == "dirichlet":
            return Dirichlet.from_scores(scores, mask)
        if self.scale is not None:
            return LogisticNormal.from_scores(scores, mask, scale_scores=self.scale(query, memory))
        return Categorical.from_scores(scores, mask)


class PosteriorNetwork(nn.Module):
    """q(z_i = 1) ~ exp(u' tanh(U1 (x_i * relu(V1 h_y)) + U2 (x~ * relu(V2 h_y)))), h_y an embedding of the output."""

    def __init__(
        self, query_dim: int, memory_dim: int, outputs: int, *, hidden: int = 256, embedding: int = 256
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(outputs, embedding)
        self.gate_memory = nn.Linear(embedding, memory_dim)
        self.gate_query = nn.Linear(embedding, query_dim)
        self.from_memory = nn.Linear(memory_dim, hidden, bias=False)
        self.from_query = nn.Linear(query_dim, hidden)
        self.to_score = nn.Linear(hidden, 1, bias=False)

    def forward(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        target: Int[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch T"]:
        """Scores of every member given the output."""
        h = self.embed(target)
        gated = memory * torch.relu(self.gate_memory(h)).unsqueeze(-2)
        asked = self.from_query(query * torch.relu(self.gate_query(h))).unsqueeze(-2)
        scores: Tensor = self.to_score(torch.tanh(self.from_memory(gated) + asked)).squeeze(-1)
        return scores


class LatentAttention(nn.Module):
    """Attention whose output is a `Latent`, ready for any objective.

    query is (B, S, query_dim) or (B, query_dim), memory (B, T, memory_dim), target (B, S) or (B,);
    `key_padding_mask` (B, T) and `query_padding_mask` (B, S) are True where there is padding, as in PyTorch. `score` is
    a registered name or a module; see `latentalign.core.scores`.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        outputs: int,
        *,
        hidden: int = 256,
        score: str | nn.Module = "mlp",
        family: str = "categorical",
        dropout: float = 0.0,
        inference: bool = True,
        head: nn.Module | None = None,
        max_logits: int = MAX_LOGITS,
    ) -> None:
        super().__init__()
        self.query_dim, self.memory_dim = query_dim, memory_dim
        self.prior = AlignmentScores(query_dim, memory_dim, hidden=hidden, score=score, family=family)
        self.head = (
            MLPHead(query_dim, memory_dim, outputs, hidden=hidden, dropout=dropout) if head is None else head
        )
        if inference and family != "categorical":
            raise ValueError(
                "the built-in posterior network is categorical; pass inference=False and q to forward"
            )
        self.posterior = (
            PosteriorNetwork(query_dim, memory_dim, outputs, hidden=hidden) if inference else None
        )
        self.max_logits = max_logits

    def forward(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "B T D"],
        target: Int[Tensor, "*batch"],
        *,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
        query_padding_mask: Bool[Tensor, "*batch"] | None = None,
        inferred: Any = None,
    ) -> EmissionLatent[Any]:
        """The latent choice of every query, with q from the posterior network unless one is given."""
        query, memory, mask = self.prepare(query, memory, key_padding_mask, query_padding_mask)
        if target.shape != query.shape[:-1]:
            raise ValueError(
                f"target must have one output for every query, {tuple(query.shape[:-1])}, got {tuple(target.shape)}"
            )
        exists = mask.any(-1)
        if inferred is None and self.posterior is not None:
            seen = target.masked_fill(~exists, 0)
            inferred = Categorical.from_scores(self.posterior(query, memory, seen), mask)
        return EmissionLatent(
            self.prior(query, memory, mask),
            self.head,
            query,
            memory=memory,
            target=target,
            inferred=inferred,
            query_mask=exists,
            max_logits=self.max_logits,
        )

    def predict(
        self,
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "B T D"],
        how: str = "exact",
        *,
        key_padding_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "*batch V"]:
        """log p(y | x, x~) of every output: exact, kmax:K, soft or sample:N."""
        query, memory, mask = self.prepare(query, memory, key_padding_mask, None)
        alignments = parse_predict(how)(self.prior(query, memory, mask))
        return predictive_log_prob(self.head, query, memory, alignments, max_logits=self.max_logits)

    def prepare(
        self, query: Tensor, memory: Tensor, key_padding: Tensor | None, query_padding: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query and memory with zeros for padding, memory broadcast over queries, and the mask (*batch, T)."""
        batch = query.shape[:-1]
        if memory.dim() != 3 or query.dim() not in (2, 3) or batch[0] != memory.shape[0]:
            raise ValueError(
                f"query must be (B, Dq) or (B, S, Dq) and memory (B, T, D) with the same B, got "
                f"{tuple(query.shape)} and {tuple(memory.shape)}"
            )
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
        # What stands in padding must reach neither value nor gradient, and 0 * NaN is NaN: cut it here.
        memory = memory.masked_fill(~exists.unsqueeze(-1), 0.0)
        if query.dim() == 3:
            memory, exists = memory.unsqueeze(1), exists.unsqueeze(1)
        mask = exists.expand(*batch, memory.shape[-2])
        if query_padding is not None:
            mask = mask & ~query_padding.unsqueeze(-1)
        return query.masked_fill(~mask.any(-1, keepdim=True), 0.0), memory, mask


def check_padding(name: str, padding: Tensor | None, shape: torch.Size) -> None:
    """Raise unless a mask, where there is one, is boolean and of the given shape."""
    if padding is not None and (padding.dtype != torch.bool or padding.shape != shape):
        raise ValueError(
            f"{name} must be boolean, True where there is padding, and of shape {tuple(shape)}, "
            f"got {padding.dtype} of shape {tuple(padding.shape)}"
        )
