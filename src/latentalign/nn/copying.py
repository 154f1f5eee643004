"""Outputs that may be copies of the source: a pointer mixture, summed out exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentalign.core.alignments import Alignments
from latentalign.core.choice import LatentChoice
from latentalign.core.distributions import AlignmentDistribution
from latentalign.core.latent import Latent
from latentalign.core.linear import Linear
from latentalign.core.numerics import NEG_INF


class CopyHead(nn.Module):
    """p(y | x~, z = i) = (1 - g) f(x_i, x~)_y + g [y = copy_i],  g = sigmoid(u . x_i + v . x~ + b).

    Whether an output is copied is a second latent choice, and it is summed out exactly. Copying selects the same member
    as generating, so posteriors say where an output comes from in both cases (See et al. 2017 mix with soft attention).
    """

    def __init__(self, query_dim: int, memory_dim: int) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, 1, bias=False)
        self.from_query = Linear(query_dim, 1)

    def forward(self, choice: LatentChoice, copies: Int[Tensor, "*sources T"]) -> CopyChoice:
        """A choice whose outputs may also be copied; `copies` has the output of every member, -1 for none."""
        if copies.shape != choice.memory.shape[:-1]:
            raise ValueError(
                f"copies must have one output for every member, {tuple(choice.memory.shape[:-1])}, got "
                f"{tuple(copies.shape)}; use -1 for members that cannot be copied"
            )
        if choice.source is not None:
            raise ValueError(
                "CopyHead needs memory that broadcasts over the queries; `source` is not supported"
            )
        return CopyChoice(
            choice.prior,
            choice.head,
            choice.query,
            choice.memory,
            query_exists=choice.query_exists,
            infer=choice.infer,
            max_logits=choice.max_logits,
            gate=self,
            copies=copies,
        )

    def gates(
        self, query: Float[Tensor, "*batch Dq"], context: Float[Tensor, "*batch K D"]
    ) -> Float[Tensor, "*batch K"]:
        """The logit of g for every alignment."""
        logits: Tensor = self.from_memory(context).squeeze(-1) + self.from_query(query)
        return logits


@dataclass(eq=False)
class CopyChoice(LatentChoice):
    """A latent choice between the members of the source, and between generating and copying."""

    gate: CopyHead | None = None
    copies: Int[Tensor, "*sources T"] | None = None

    def observe(self, target: Int[Tensor, "*batch"], inferred: AlignmentDistribution | None = None) -> Latent:  # type: ignore[override]  # not fused, so not an EmissionLatent
        """The choices with their outputs observed, for an objective."""
        generated = super().observe(target, inferred)
        return Latent(
            generated.prior,
            partial(self.log_likelihood, generated.log_likelihood, target),
            inferred=generated.inferred,
            query=generated.query,
        )

    def log_likelihood(
        self,
        generate: Callable[[Alignments], Tensor],
        target: Int[Tensor, "*batch"],
        alignments: Alignments,
    ) -> Float[Tensor, "*batch K"]:
        """log p(y | x, x~, z_k), copying summed out."""
        log_copy, log_generate = self.log_gates(alignments)
        generated = generate(alignments) + log_generate
        matching = alignments.select((self.members() == target.unsqueeze(-1)).to(generated.dtype))
        return log_add(generated, log_copy, matching).masked_fill(~alignments.present, 0.0)

    def average(self, alignments: Alignments) -> Float[Tensor, "*batch V"]:
        """log E[f(x, z)] of every output, copying summed out."""
        log_copy, log_generate = self.log_gates(alignments)
        absent = ~alignments.present
        log_weight = (alignments.log_weight + log_generate).masked_fill(absent, NEG_INF)
        generated = super().average(replace(alignments, log_weight=log_weight))  # type: ignore[type-var]
        copied = (alignments.log_weight + log_copy).masked_fill(absent, NEG_INF).exp()
        members = self.members()
        by_member = alignments.spread(copied, members.shape[-1]).masked_fill(members < 0, 0.0)
        by_output = torch.zeros_like(generated)
        by_output = by_output.scatter_add(-1, members.clamp_min(0), by_member.to(generated.dtype))
        return log_add(generated, torch.zeros_like(generated), by_output)

    def members(self) -> Int[Tensor, "*batch T"]:
        """The output that every member would be copied to, for every query."""
        assert self.copies is not None
        return self.copies.expand(*self.query.shape[:-1], self.copies.shape[-1])

    def log_gates(
        self, alignments: Alignments
    ) -> tuple[Float[Tensor, "*batch K"], Float[Tensor, "*batch K"]]:
        """log g of every alignment, and log of the chance to generate; where nothing can be copied, that is 0."""
        assert self.gate is not None
        logits = self.gate.gates(self.query, alignments.contexts(self.memory))
        # Of a mixture of members, only the share that can be copied is.
        copied = torch.sigmoid(logits) * alignments.select((self.members() >= 0).to(logits.dtype))
        return F.logsigmoid(logits), torch.log1p(-copied)


def log_add(log_first: Tensor, log_second: Tensor, share: Tensor) -> Tensor:
    """log(exp(first) + share exp(second)), where the share may be 0."""
    some = share > 0
    second = log_second + share.masked_fill(~some, 1.0).log()
    return torch.where(some, torch.logaddexp(log_first, second.masked_fill(~some, NEG_INF)), log_first)
