"""Chains: the alignments z_1..z_S of one example depend on each other.

    p(z_1) prod_j p(z_j | z_{j-1}, x, y_<j),    p(z_j = i' | z_{j-1} = i) = K(i, i') exp(score_j(i')) / n_j(i)

The kernel K says which moves are preferred: a table of jump widths, never backwards, or a matrix for every step. With
`null_scores` an output may also come from no member at all (NULL); the chain then remembers its position, and the last
of the T members stands for NULL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.distributions.base import AlignmentDistribution, check_scores, refuse_positional
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.kernels.chains import (
    ChainFilter,
    DenseKernel,
    Kernel,
    MonotoneKernel,
    Scaled,
    TableKernel,
    backward_messages,
)
from latentalign.core.numerics import NEG_INF, in_float64, masked_log_softmax

if TYPE_CHECKING:
    from latentalign.core.latent import Latent


class Transition(ABC):
    """Which moves from member to member a chain prefers."""

    @abstractmethod
    def kernel(self, members: int, like: Tensor) -> Kernel:
        """K for this many members, in the precision and on the device of `like`."""

    def detach(self) -> Transition:
        """The same transition without gradient."""
        return self

    def to(self, device: Any) -> Transition:
        """The same transition on another device."""
        return self


@dataclass(frozen=True, eq=False)
class Jump(Transition):
    """K(i, i') = exp(table[i' - i]), jumps wider than the table clipped to its ends."""

    table: Float[Tensor, "widths"]
    """Log weights of the jumps -W..W: an odd number of them."""

    def __post_init__(self) -> None:
        if self.table.dim() != 1 or len(self.table) % 2 == 0:
            raise ValueError(f"a table of jumps -W..W has an odd length, got shape {tuple(self.table.shape)}")

    def kernel(self, members: int, like: Tensor) -> Kernel:
        place = torch.arange(members, device=like.device)
        widest = len(self.table) // 2
        jump = (place - place.unsqueeze(1)).clamp(-widest, widest) + widest
        table = self.table.to(like.dtype)
        return TableKernel((table - table.detach().amax()).exp()[jump])

    def detach(self) -> Jump:
        return Jump(self.table.detach())

    def to(self, device: Any) -> Jump:
        return Jump(self.table.to(device))


@dataclass(frozen=True)
class Monotone(Transition):
    """Never backwards, and at most `max_step` members forward where that is set."""

    max_step: int | None = None

    def kernel(self, members: int, like: Tensor) -> Kernel:
        return MonotoneKernel(members, self.max_step, like)


@dataclass(frozen=True, eq=False)
class Dense(Transition):
    """K_j(i, i') = exp(log_weights[b, j - 1, i, i']): a matrix of its own for every example and move."""

    log_weights: Float[Tensor, "B moves T T"]

    def kernel(self, members: int, like: Tensor) -> Kernel:
        weights = self.log_weights.to(like.dtype)
        peak = weights.detach().amax((-1, -2), keepdim=True)
        return DenseKernel((weights - peak.masked_fill(peak == NEG_INF, 0.0)).exp())

    def detach(self) -> Dense:
        return Dense(self.log_weights.detach())

    def to(self, device: Any) -> Dense:
        return Dense(self.log_weights.to(device))


@dataclass(frozen=True, eq=False)
class Chain(AlignmentDistribution):
    """A distribution over the paths z_1..z_S of every example; *batch is (B, S).

    Queries depend on each other, so a chain cannot be enumerated query by query: objectives that need that refuse it.
    """

    scores: Float[Tensor, "B S N"]
    """log E_j, for the members that can be selected; -inf elsewhere. Float64 where the device has it."""
    transition: Transition
    members: Bool[Tensor, "B S N"]
    exists: Bool[Tensor, "B S"]
    """Queries that exist; beyond the end of an example the chain stays where it is."""
    log_null: Float[Tensor, "B S N"]
    """log of the chance of NULL from every position before; -inf without NULL."""
    null: bool
    dtype: torch.dtype

    @classmethod
    def from_scores(
        cls, scores: Float[Tensor, "B S N"], *more: Any, exists: Tensor | None = None, **options: Any
    ) -> Chain:
        """A chain with the options `transition` and `null_scores` (B, S).

        The chance of NULL is sigmoid(null_scores); without them there is no NULL.
        """
        refuse_positional(cls, more)
        transition, null_scores = options["transition"], options.get("null_scores")
        _, members = check_scores(scores, exists)
        wide = in_float64(scores).masked_fill(~members, NEG_INF)
        queries = members.any(-1)
        if null_scores is None:
            log_null = torch.full_like(wide, NEG_INF)
        else:
            clean = in_float64(null_scores).masked_fill(~queries, 0.0)
            log_null = F.logsigmoid(clean).unsqueeze(-1).expand(wide.shape)
        return cls(wide, transition, members, queries, log_null, null_scores is not None, scores.dtype)

    def where(self, exists: Bool[Tensor, "B S"]) -> Chain:
        """The same chain without the queries that do not exist; it stays where it is for them."""
        keep = exists.unsqueeze(-1)
        scores = self.scores.masked_fill(~keep, NEG_INF)
        return replace(self, scores=scores, members=self.members & keep, exists=self.exists & exists)

    def detach(self) -> Chain:
        """The same chain without gradient."""
        return replace(
            self,
            scores=self.scores.detach(),
            transition=self.transition.detach(),
            log_null=self.log_null.detach(),
        )

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> Chain:
        """The same chain on another device; `dtype` is that of its results, sums over paths stay in float64."""
        device, dtype = (None, device) if isinstance(device, torch.dtype) else (device, dtype)
        moved = cast(Chain, super().to(device))
        return replace(moved, transition=self.transition.to(device), dtype=dtype or self.dtype)

    @cached_property
    def kernel(self) -> Kernel:
        """K."""
        return self.transition.kernel(
            self.scores.shape[-1], self.scores[0, 0] if len(self.scores) else self.scores
        )

    @property
    def mask(self) -> Bool[Tensor, "B S T"]:  # type: ignore[override]
        """True where a member exists; the last one is NULL where the chain has it."""
        return torch.cat([self.members, self.exists.unsqueeze(-1)], -1) if self.null else self.members

    # Sums over all paths

    def split(self, log_f: Float[Tensor, "B S T"]) -> tuple[Tensor, Tensor]:
        """log f of the members and of NULL, in float64, with padding cleared."""
        log_f = in_float64(log_f)
        by_member, by_null = (log_f[..., :-1], log_f[..., -1]) if self.null else (log_f, self.no_null)
        return by_member.masked_fill(~self.members, NEG_INF), by_null.masked_fill(~self.exists, 0.0)

    def run_filter(self, log_f: Float[Tensor, "B S T"]) -> tuple[Tensor, Tensor, Tensor]:
        """log p(y_j | y_<j, x), and p(z_j | y_<=j, x) of the members and of their NULL copies."""
        by_member, by_null = self.split(log_f)
        kernel = self.kernel
        found: tuple[Tensor, Tensor, Tensor] = ChainFilter.apply(  # type: ignore[no-untyped-call]
            kernel, kernel.weight, self.scores, by_member, self.log_null, by_null, self.exists
        )
        return found

    @property
    def nothing_seen(self) -> Float[Tensor, "B S T"]:
        """log f of outputs that say nothing about z: the filter then gives the prior."""
        return torch.zeros(self.mask.shape, dtype=self.scores.dtype, device=self.scores.device)

    @property
    def no_null(self) -> Float[Tensor, "B S"]:
        """log f of a NULL that never happens."""
        return torch.full_like(self.scores[..., 0], NEG_INF)

    def joined(self, member: Tensor, nothing: Tensor) -> Float[Tensor, "B S T"]:
        """Masses of members and of NULL side by side; nothing where a query does not exist."""
        if self.null:
            member = torch.cat([member, nothing.sum(-1, keepdim=True)], -1)
        return member.masked_fill(~self.mask, 0.0)

    def filter(self, log_f: Float[Tensor, "B S T"]) -> Float[Tensor, "B S"]:
        """log p(y_j | y_<j, x): the exact log-likelihood of every query, summed over all paths."""
        return self.run_filter(log_f)[0].to(self.dtype)

    def log_evidence(self, latent: Latent) -> Float[Tensor, "B S"]:
        index = torch.arange(self.mask.shape[-1], device=self.mask.device).expand(self.mask.shape)
        weight = torch.zeros(self.mask.shape, dtype=self.dtype, device=self.mask.device)
        weight = weight.masked_fill(~self.mask, NEG_INF)
        return self.filter(latent.log_likelihood(OneHot(index, weight, weight)))

    @cached_property
    def marginals(self) -> Categorical:
        """p(z_j) of every query by itself."""
        _, member, nothing = self.run_filter(self.nothing_seen)
        mass = self.joined(member, nothing)
        used = mass > 0
        log_mass = mass.masked_fill(~used, 1.0).log().masked_fill(~used, NEG_INF)
        return Categorical(log_mass.to(self.dtype), mask=used & self.mask, check=False)

    @property
    def mean(self) -> Float[Tensor, "B S T"]:
        """E[z_j], the unary marginals."""
        return self.marginals.mean

    @torch.no_grad()
    def posterior(self, log_f: Float[Tensor, "B S T"]) -> Chain:
        """p(z_1..z_S | y, x): again a chain, with the same kernel."""
        by_member, by_null = self.split(log_f)
        s = Scaled(self.scores, by_member, self.log_null, by_null)
        after, null = backward_messages(self.kernel, s, self.exists)
        scores = self.scores + by_member + after.log()
        start = s.real[:, 0] * s.likelihood[:, 0] + s.null[:, 0] * s.null_likelihood[:, 0]
        scores[:, 0] = self.scores[:, 0] + (start * after[:, 0]).log()
        scores = scores.masked_fill(~self.members, NEG_INF)
        return replace(self, scores=scores, log_null=null.log())

    # Rows of the transition, differentiable

    def log_rows(self, step: int) -> Float[Tensor, "B N N"]:
        """log p(z_j = i' | z_{j-1} = i, not NULL); of the first step the same row for every i."""
        scores = self.scores[:, step].unsqueeze(1)
        if step > 0:
            log_kernel = self.kernel.log_dense(*self.scores.shape[:2])
            scores = scores + log_kernel[:, min(step, log_kernel.shape[1]) - 1]
        else:
            scores = scores.expand(-1, self.scores.shape[-1], -1)
        mask = (scores.detach() != NEG_INF) & self.members[:, step].unsqueeze(1)
        return masked_log_softmax(scores, mask)

    def log_real(self, step: int) -> Float[Tensor, "B N"]:
        """log of the chance that step j is not NULL."""
        log_null = self.log_null[:, step]
        return torch.log1p(-log_null.exp().clamp_max(1 - 1e-16))

    def positions(self) -> Float[Tensor, "B S N"]:
        """p(position before step j): of the first step, where it starts."""
        _, member, nothing = self.run_filter(self.nothing_seen)
        start = masked_log_softmax(self.scores[:, 0], self.members[:, 0]).exp()
        return torch.cat([start.unsqueeze(1), (member + nothing)[:, :-1]], 1)

    def expected_log_ratio(self, other: Chain | None) -> Float[Tensor, "B S"]:
        """E[log p(z_j | z_{j-1}) - log other(z_j | z_{j-1})] under this chain, query by query; 0 for no other."""
        position, found = self.positions(), []
        for j in range(self.scores.shape[1]):
            ours, real = self.log_rows(j), self.log_real(j)
            log_null = self.log_null[:, j]
            theirs = torch.zeros_like(ours) if other is None else other.log_rows(j)
            log_real_ratio = real if other is None else real - other.log_real(j)
            log_null_ratio = log_null if other is None else log_null - other.log_null[:, j]
            if j == 0:  # one position, drawn once: row i of the first step is the same for every i
                rows = weighted_product(ours[:, 0].exp(), ours[:, 0] - theirs[:, 0]).sum(-1)
                split = position[:, 0] * (
                    real.exp() * log_real_ratio + weighted_product(log_null.exp(), log_null_ratio)
                )
                found.append(rows + split.sum(-1))
                continue
            rows = weighted_product(ours.exp(), ours - theirs).sum(-1) + log_real_ratio
            each = real.exp() * rows + weighted_product(log_null.exp(), log_null_ratio)
            found.append((position[:, j] * each).sum(-1))
        return torch.stack(found, 1).masked_fill(~self.exists, 0.0)

    @property
    def entropy(self) -> Float[Tensor, "B S"]:
        """-E[log p(z_j | z_{j-1})] in nats: by the chain rule, queries add up to the entropy of the path."""
        return -self.expected_log_ratio(None).to(self.dtype)

    def kl(self, other: Chain) -> Float[Tensor, "B S"]:
        """KL[self || other] of paths, query by query: E[KL of the rows], by the chain rule."""
        return self.expected_log_ratio(other).to(self.dtype)

    # Paths

    @torch.no_grad()
    def sample_paths(self, n: int) -> Int[Tensor, "B S n"]:
        """n paths for every example, as members; NULL is the last one."""
        found = []
        position = torch.zeros(len(self.scores), n, dtype=torch.long, device=self.scores.device)
        for j in range(self.scores.shape[1]):
            rows = self.log_rows(j).exp()
            rows = rows.masked_fill(~self.exists[:, j, None, None], 1.0)
            chosen = rows.gather(1, position.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))
            chosen = chosen.masked_fill(chosen.sum(-1, keepdim=True) == 0, 1.0)
            drawn = torch.multinomial(chosen.flatten(0, 1), 1).view(position.shape)
            origin = drawn if j == 0 else position
            nothing = torch.rand_like(chosen[..., 0]) < self.log_null[:, j].exp().gather(1, origin)
            here = self.exists[:, j, None]
            position = torch.where(here & (~nothing | (j == 0)), drawn, position)
            found.append(torch.where(nothing & here, self.scores.shape[-1], drawn).masked_fill(~here, 0))
        return torch.stack(found, 1)

    @torch.no_grad()
    def best(self) -> tuple[Int[Tensor, "B S"], Float[Tensor, "B"]]:
        """The most probable path and its log-probability (Viterbi); NULL is the last member."""
        batch, steps, width = self.scores.shape
        came_from = torch.zeros(batch, steps, 2, width, dtype=torch.long, device=self.scores.device)
        value = torch.zeros(batch, 2, width, dtype=self.scores.dtype, device=self.scores.device)
        stay = torch.arange(width, device=self.scores.device).expand(batch, width)
        copy = torch.zeros(batch, steps, 2, width, dtype=torch.long, device=self.scores.device)
        for j in range(steps):
            best, which = value.max(1)
            if j == 0:
                start = masked_log_softmax(self.scores[:, 0], self.members[:, 0])
                new = torch.stack([start + self.log_real(0), start + self.log_null[:, 0]], 1)
                origin = torch.stack([stay, stay], 1)
            else:
                moved, source = (best.unsqueeze(-1) + self.log_real(j).unsqueeze(-1) + self.log_rows(j)).max(
                    1
                )
                new = torch.stack([moved, best + self.log_null[:, j]], 1)
                origin = torch.stack([source, stay], 1)
            here = self.exists[:, j, None, None]
            value = torch.where(here, new, value if j else new)
            came_from[:, j] = torch.where(here, origin, stay.unsqueeze(1))
            picked = which.unsqueeze(1).expand(-1, 2, -1).gather(2, origin)
            keep = torch.tensor([0, 1], device=value.device)[:, None].expand(2, width)
            copy[:, j] = torch.where(here, picked, keep)
        log_prob, last = value.flatten(1).max(1)
        path = []
        kind, place = last.div(width, rounding_mode="floor"), last % width
        rows = torch.arange(batch, device=last.device)
        for j in reversed(range(steps)):
            path.append(torch.where(kind == 1, width, place))
            kind, place = copy[rows, j, kind, place], came_from[rows, j, kind, place]
        found = torch.stack(path[::-1], 1).masked_fill(~self.exists, 0)
        return found, log_prob.masked_fill(~self.exists.any(1), 0.0)


def weighted_product(weight: Tensor, value: Tensor) -> Tensor:
    """weight * value, and 0 where the weight is 0."""
    absent = weight == 0
    return weight * value.masked_fill(absent, 0.0)
