"""The posterior of a jump chain with NULL between two ends, for tables of translation probabilities.

The chain begins before the first member and ends behind the last one, so the first and the last jump count like all
others. There are no scores: only the jumps and the emissions decide. Everything is computed without gradients, in
float32 and in probability space, for expectation maximisation over whole corpora. `tests/core/test_jump_posterior.py`
writes the same model as a `Chain` with one more member, the end, and one more query, which only the end generates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

TINY = 1e-30
LONGEST_MATRIX = 384
"""Members up to which a move is one matrix product. Beyond, a convolution costs less."""


@dataclass(frozen=True, eq=False)
class JumpMoves:
    """K(i, i') = weights[i' - i], jumps wider than the table clipped to its ends."""

    weights: Float[Tensor, " widths"]
    members: int

    @property
    def widest(self) -> int:
        return len(self.weights) // 2

    def widths(self) -> Int[Tensor, "T T"]:
        """The entry of the table for every move."""
        place = torch.arange(self.members, device=self.weights.device)
        return (place - place.unsqueeze(1)).clamp(-self.widest, self.widest) + self.widest

    def matrix(self) -> Float[Tensor, "T T"]:
        return self.weights[self.widths()]

    def collect(self, moved: Tensor, matrix: Tensor | None) -> Float[Tensor, " widths"]:
        """The sums of K(i, i') times a weight of every move, by width. Without a matrix, weights are sums already."""
        if matrix is None:
            return moved * self.weights
        counts = torch.zeros_like(self.weights)
        return counts.index_add_(0, self.widths().flatten(), (moved * matrix).flatten())

    def end_widths(self, exists: Bool[Tensor, "B T"]) -> Int[Tensor, "B_2 T"]:
        """The entries of the table for moves from the start to every member, then for moves from there to the end."""
        place = torch.arange(self.members, device=self.weights.device)
        width = exists.sum(-1, keepdim=True)
        jumps = torch.cat([(place + 1).expand(exists.shape), width - place])
        return jumps.clamp(-self.widest, self.widest) + self.widest

    def ends(self, exists: Bool[Tensor, "B T"]) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """K(start, i) and K(i, end) of the members that exist."""
        first, last = self.weights[self.end_widths(exists)].chunk(2)
        return first * exists, last * exists

    def push(self, mass: Float[Tensor, "B T"], matrix: Tensor | None) -> Float[Tensor, "B T"]:
        """sum_i mass(i) K(i, i')."""
        return mass @ matrix if matrix is not None else self._convolve(mass, self.weights.flip(0))

    def pull(self, value: Float[Tensor, "B T"], matrix: Tensor | None) -> Float[Tensor, "B T"]:
        """sum_i' K(i, i') value(i')."""
        return value @ matrix.t() if matrix is not None else self._convolve(value, self.weights)

    def _convolve(self, mass: Float[Tensor, "B T"], weights: Tensor) -> Float[Tensor, "B T"]:
        """sum_k weights[k - widest] mass(t + k), with the end weights for everything further away."""
        widest, far = self.widest, self.members
        near = F.conv1d(mass.unsqueeze(1), weights.view(1, 1, -1), padding=widest).squeeze(1)
        total = F.pad(mass.cumsum(-1), (1, 0))  # total[t] = sum of the first t
        place = torch.arange(self.members, device=mass.device)
        before = total[:, (place - widest).clamp_min(0)]
        after = total[:, -1:] - total[:, (place + widest + 1).clamp_max(far)]
        return near + weights[0] * before + weights[-1] * after.clamp_min(0)

    def correlate(self, mass: Float[Tensor, "B T"], value: Float[Tensor, "B T"]) -> Float[Tensor, " widths"]:
        """sum_i mass(i) value(i + k) for every width k, over the batch; the end widths include all wider jumps."""
        widest, far = self.widest, self.members
        near = F.pad(value, (widest, widest)).unfold(-1, far, 1) @ mass.unsqueeze(-1)
        counts = near.squeeze(-1).sum(0)
        total = F.pad(value.cumsum(-1), (1, 0))
        place = torch.arange(far, device=mass.device)
        after = total[:, -1:] - total[:, (place + widest + 1).clamp_max(far)]
        counts[0] += (mass * total[:, (place - widest).clamp_min(0)]).sum()
        counts[-1] += (mass * after.clamp_min(0)).sum()
        return counts


class JumpPosterior(NamedTuple):
    """What the E-step of a chain needs."""

    links: Float[Tensor, "B S T"]
    """p(z_j = i | x, y)."""
    null: Float[Tensor, "B S"]
    """p(z_j = NULL | x, y)."""
    log_likelihood: Float[Tensor, "B S"]
    """log p(y_j | y_<j, x)."""
    jumps: Float[Tensor, " widths"] | None
    """Expected number of jumps of every width, over the batch; None where it was not asked for."""


@torch.no_grad()
def jump_posterior(
    emission: Float[Tensor, "B S T"],
    null_emission: Float[Tensor, "B S"],
    members: Bool[Tensor, "B T"],
    exists: Bool[Tensor, "B S"],
    *,
    weights: Float[Tensor, " widths"],
    null: float,
    count_jumps: bool = False,
) -> JumpPosterior:
    """The posterior of a chain that moves by `weights` from its start to its end and is NULL with the chance `null`.

    Emissions are probabilities, not logarithms. Padding may hold anything. The log-likelihood of the last query
    includes that of the end.
    """
    here, width = members.to(emission.dtype), emission.shape[-1]
    moves = JumpMoves(weights, width)
    matrix = moves.matrix() if width <= LONGEST_MATRIX else None
    possible = members.unsqueeze(1) & exists.unsqueeze(-1)
    likelihood = emission.masked_fill(~possible, 0.0).transpose(0, 1).contiguous()
    likelihood *= 1 - null
    unseen = (null * null_emission.masked_fill(~exists, 1.0)).t().contiguous().unsqueeze(-1)
    active = exists.t().contiguous().unsqueeze(-1)
    first, last = moves.ends(members)
    ways = moves.pull(here, matrix) + last  # n(i); the end is one more place to go
    scale = here / ways.clamp_min(TINY)
    position = first / first.sum(-1, keepdim=True).clamp_min(TINY)
    last = last * scale
    link, nothing = torch.empty_like(likelihood), torch.empty_like(likelihood)
    total = torch.ones_like(unseen)
    for j in range(len(likelihood)):
        arrived = position if j == 0 else moves.push(position * scale, matrix)
        seen, copied = arrived * likelihood[j], position * unseen[j]
        total[j] = (seen.sum(-1, keepdim=True) + copied.sum(-1, keepdim=True)).clamp_min(TINY)
        torch.div(seen, total[j], out=link[j])
        torch.div(copied, total[j], out=nothing[j])
        position = link[j] + nothing[j]
    ended = (position * last).sum(-1, keepdim=True).clamp_min(TINY)
    later = end = last / ended
    jumps = torch.zeros_like(weights if matrix is None else matrix) if count_jumps else None
    for j in reversed(range(len(likelihood))):
        if j + 1 < len(likelihood):
            seen = (likelihood[j + 1] * later / total[j + 1]).masked_fill(~active[j + 1], 0.0)
            if jumps is not None:
                left = (link[j] + nothing[j]) * scale
                jumps += left.t() @ seen if matrix is not None else moves.correlate(left, seen)
            moved = moves.pull(seen, matrix) * scale + unseen[j + 1] * later / total[j + 1]
            later = torch.where(active[j + 1], moved, end)
        link[j] *= later
        nothing[j] *= later
    counts = None
    if jumps is not None:
        counts = moves.collect(jumps, matrix)
        outer = torch.cat([link[0], position * end])
        counts.index_add_(0, moves.end_widths(members).flatten(), outer.flatten())
    return JumpPosterior(
        link.transpose(0, 1).masked_fill(~exists.unsqueeze(-1), 0.0),
        nothing.sum(-1).t().masked_fill(~exists, 0.0),
        log_likelihoods(total.squeeze(-1).t(), ended, exists),
        counts,
    )


def log_likelihoods(
    total: Float[Tensor, "B S"], ended: Float[Tensor, "B 1"], exists: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S"]:
    """The logarithm of every step's normaliser; that of the end belongs to the last query."""
    is_last = exists & (exists.cumsum(-1) == exists.sum(-1, keepdim=True))
    return total.masked_fill(~exists, 1.0).log() + ended.log() * is_last


@torch.no_grad()
def uniform_posterior(
    emission: Float[Tensor, "B S T"],
    null_emission: Float[Tensor, "B S"],
    members: Bool[Tensor, "B T"],
    exists: Bool[Tensor, "B S"],
    *,
    null: float,
) -> JumpPosterior:
    """The posterior without a chain (IBM model 1): every member is as likely as the others."""
    count = members.sum(-1).clamp_min(1).view(-1, 1, 1)
    seen = emission.masked_fill(~members.unsqueeze(1), 0.0) * ((1 - null) / count)
    unseen = null * null_emission
    total = (seen.sum(-1) + unseen).clamp_min(TINY)
    return JumpPosterior(
        (seen / total.unsqueeze(-1)).masked_fill(~exists.unsqueeze(-1), 0.0),
        (unseen / total).masked_fill(~exists, 0.0),
        total.log().masked_fill(~exists, 0.0),
        None,
    )
