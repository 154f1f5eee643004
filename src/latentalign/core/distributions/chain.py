"""Chains: the alignments z_1..z_S of one example depend on each other.

    p(z_1) prod_j p(z_j | z_{j-1}, x, y_<j),    p(z_j = i' | z_{j-1} = i) = K(i, i') exp(score_j(i')) / n_j(i)

The kernel K says which moves are preferred: a table of jump widths, never backwards, or a matrix for every step. With
`null_scores` an output may also come from no member at all (NULL); the chain then remembers its position, and the last
of the T members stands for NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import OneHot
from latentalign.core.caching import cached_with_gradient
from latentalign.core.distributions.base import AlignmentDistribution, check_scores, refuse_positional
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.distributions.chain_paths import (
    best_path,
    best_paths,
    expected_log_prob,
    sample_paths,
    weighted_product,
)
from latentalign.core.distributions.transitions import Transition
from latentalign.core.errors import MissingAbilityError
from latentalign.core.kernels.chains import ChainFilter, Kernel, Scaled, backward_messages, safe_ratio
from latentalign.core.numerics import NEG_INF, in_float64, masked_log_softmax

if TYPE_CHECKING:
    from latentalign.core.latent import Latent


@dataclass(frozen=True, eq=False)
class Chain(AlignmentDistribution):
    """A distribution over the paths z_1..z_S of every example; *batch is (B, S).

    Queries depend on each other, so a chain cannot be enumerated query by query. `per_query` has the marginals, which
    can.
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

    dependent_queries = True

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

    @classmethod
    def lacks(cls, ability: str, by: str = "this call") -> MissingAbilityError:
        return MissingAbilityError(
            f"{by} needs `{ability}`, which {cls.__name__} does not implement, because its queries depend on each "
            "other: every output changes the distribution of the next alignment; see docs/chains.md for what a chain "
            "offers instead"
        )

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

    @cached_with_gradient
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

    def log_likelihoods(self, latent: Latent) -> Float[Tensor, "B S T"]:
        """log p(y_j | x, z_j = i) of every member."""
        index = torch.arange(self.mask.shape[-1], device=self.mask.device).expand(self.mask.shape)
        weight = torch.zeros(self.mask.shape, dtype=self.dtype, device=self.mask.device)
        weight = weight.masked_fill(~self.mask, NEG_INF)
        return latent.log_likelihood(OneHot(index, weight, weight))

    def log_evidence(self, latent: Latent) -> Float[Tensor, "B S"]:
        return self.filter(self.log_likelihoods(latent))

    def exact_posterior(self, latent: Latent) -> Chain:
        return self.posterior(self.log_likelihoods(latent))

    @torch.no_grad()
    def predicted(self, latent: Latent, log_f: Float[Tensor, "B S T"] | None = None) -> Categorical:
        """p(z_j | x, y_<j): the filtered distribution of each step, moved once; no gradient."""
        _, member, nothing = self.run_filter(self.log_likelihoods(latent) if log_f is None else log_f)
        position, found = None, []
        for j in range(self.scores.shape[1]):
            found.append(self.move(position, j))
            position = member[:, j] + nothing[:, j]
        selected, unselected = (torch.stack(masses, 1) for masses in zip(*found, strict=True))
        return Categorical.from_probs(self.joined(selected, unselected).to(self.dtype), check=False)

    def move(self, position: Float[Tensor, "B N"] | None, step: int) -> tuple[Tensor, Tensor]:
        """p(z_j = i | position before) of the members, and of NULL from every position; no gradient.

        The position before is a distribution over the members; None at the start.
        """
        wanted = masked_log_softmax(self.scores[:, step].detach(), self.members[:, step]).exp()
        null = self.log_null[:, step].detach().exp()
        before = wanted if position is None else position
        selected = (1 - null) * before
        if position is not None:
            move = max(step, 1)  # moves are numbered by the step at which they end
            selected = wanted * self.kernel.push(safe_ratio(selected, self.kernel.pull(wanted, move)), move)
        return selected, null * before

    @cached_with_gradient
    def marginals(self) -> Categorical:
        """p(z_j) of every query by itself."""
        _, member, nothing = self.run_filter(self.nothing_seen)
        return Categorical.from_probs(self.joined(member, nothing).to(self.dtype), check=False)

    @property
    def per_query(self) -> Categorical:
        return self.marginals

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
        below_one = 1 - torch.finfo(log_null.dtype).eps / 2
        return torch.log1p(-log_null.exp().clamp_max(below_one))

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

    def kl_from(self, q: AlignmentDistribution) -> Float[Tensor, "B S"]:
        """KL[q || self] of paths for a q whose queries are independent, query by query."""
        if not self.transition.allows_all_moves:
            raise ValueError(
                f"the divergence of an independent q from a chain with {type(self.transition).__name__} moves is "
                "infinite: q allows moves that the chain forbids; make q a chain (in a recipe, inference.chain = true)"
            )
        return (-q.entropy - expected_log_prob(self, in_float64(q.mean))).to(self.dtype)

    @property
    def pairwise(self) -> Float[Tensor, "B moves N N"]:
        """p(position before step j is i, z_j = i') for the steps after the first; NULL has the rest."""
        position = self.positions()
        steps = [
            (position[:, j] * self.log_real(j).exp()).unsqueeze(-1) * self.log_rows(j).exp()
            for j in range(1, self.scores.shape[1])
        ]
        found = torch.stack(steps, 1) if steps else self.kernel.log_dense(*self.scores.shape[:2])[:, :0]
        return found.masked_fill(~self.exists[:, 1:, None, None], 0.0)

    def jump_counts(self, widest: int) -> Float[Tensor, "B widths"]:
        """Expected number of jumps of every width -widest..widest, wider ones counted at the ends."""
        place = torch.arange(self.scores.shape[-1], device=self.scores.device)
        width = (place - place.unsqueeze(1)).clamp(-widest, widest) + widest
        total = self.pairwise.sum(1).flatten(1)
        counts = total.new_zeros(len(total), 2 * widest + 1)
        return counts.index_add(1, width.flatten(), total)

    # Paths

    def sample_paths(self, n: int) -> Int[Tensor, "B S n"]:
        """n paths for every example, as members; NULL is the last one."""
        return sample_paths(self, n)

    @property
    def mode(self) -> Int[Tensor, "B S"]:
        """The most probable path."""
        return self.best()[0]

    def best(self) -> tuple[Int[Tensor, "B S"], Float[Tensor, "B"]]:
        """The most probable path and its log-probability (Viterbi); NULL is the last member."""
        return best_path(self)

    def best_paths(self, k: int) -> list[list[tuple[list[int], float]]]:
        """Up to k most probable paths of every example with log-probabilities, best first; NULL is the last member."""
        return best_paths(self, k)
