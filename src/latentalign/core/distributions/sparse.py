"""z selects one member of the source, and members whose score is too low have a probability of exactly zero."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from latentalign.core.distributions.base import DISTRIBUTIONS, check_scores, refuse_positional
from latentalign.core.distributions.categorical import Categorical
from latentalign.core.numerics import NEG_INF

Threshold = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From mean, sum of squared deviations and number of the highest members: t if they were the support."""


class SparseCategorical(Categorical):
    """z is one member: p(z_i = 1) = max(0, (a - 1) scores_i - t)^(1 / (a - 1)), with t such that p sums to one.

    `mask` is the support. Nothing is computed for members outside of it, and their scores have no gradient.
    """

    mean_is_softmax = False
    sparse = True
    a: ClassVar[float]

    @classmethod
    def from_scores(
        cls, scores: Float[Tensor, "*batch T"], *more: Any, exists: Bool[Tensor, "..."] | None = None
    ) -> SparseCategorical:
        """The nearest probabilities over the members that exist; a score of -inf is a member of probability zero."""
        refuse_positional(cls, more)
        scores, exists = check_scores(scores, exists)
        log_probs: Tensor = SparseLogProbs.apply(scores, exists, cls.a, cls.threshold)  # type: ignore[no-untyped-call]
        return cls(log_probs, mask=log_probs.detach() > NEG_INF, check=False)

    @staticmethod
    @abstractmethod
    def threshold(mean: Tensor, squares: Tensor, count: Tensor) -> Tensor:
        """t if the support were the `count` highest members; `squares` sums their squared deviations from `mean`."""


@DISTRIBUTIONS.register("entmax")
class Entmax(SparseCategorical):
    """p = max(0, scores / 2 - t)^2: 1.5-entmax, between softmax and sparsemax (Peters et al. 2019)."""

    a = 1.5

    @staticmethod
    def threshold(mean: Tensor, squares: Tensor, count: Tensor) -> Tensor:
        """The lower t with sum_i (s_i - t)^2 = 1; the mean where there is none, because the support is smaller."""
        return mean - ((1 - squares).clamp_min(0.0) / count).sqrt()


@DISTRIBUTIONS.register("sparsemax")
class Sparsemax(SparseCategorical):
    """p = max(0, scores - t): the point of the simplex nearest to the scores (Martins and Astudillo 2016)."""

    a = 2.0

    @staticmethod
    def threshold(mean: Tensor, squares: Tensor, count: Tensor) -> Tensor:
        """The t with sum_i (s_i - t) = 1."""
        return mean - 1 / count


OUT_OF_REACH = -2.0
"""A scaled score, relative to the highest one, that is in no support: t is never below -1."""


class SparseLogProbs(torch.autograd.Function):
    """log p of every member; -inf, without gradient, outside of the support."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, exists: Tensor, a: float, threshold: Threshold) -> Tensor:
        """Sort the scores; the support is the largest number of members that lie above their own threshold."""
        highest = scores.masked_fill(~exists, NEG_INF).amax(-1, keepdim=True)
        scaled = (scores - highest.masked_fill(highest == NEG_INF, 0.0)) * (a - 1)
        # Scores that are out of reach anyway could overflow when they are summed.
        scaled = scaled.clamp_min(OUT_OF_REACH).masked_fill(~exists, OUT_OF_REACH)
        ordered = scaled.sort(-1, descending=True).values
        count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
        mean = ordered.cumsum(-1) / count
        t = threshold(mean, (ordered**2).cumsum(-1) - count * mean**2, count)
        size = (ordered > t).sum(-1, keepdim=True)
        above = scaled - t.gather(-1, (size - 1).clamp_min(0))
        support = exists & (above > 0)
        above = above.masked_fill(~support, 1.0)
        ctx.save_for_backward(above, support)
        ctx.a = a
        return (above.log() / (a - 1)).masked_fill(~support, NEG_INF)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_log_probs: Tensor) -> tuple[Tensor | None, ...]:
        """d log p_i / d score_j = (1[i = j] - w_j / sum w) / u_i, with u = p^(a - 1) and w = p^(2 - a)."""
        above, support = ctx.saved_tensors
        each = d_log_probs.masked_fill(~support, 0.0) / above
        weight = above.pow((2 - ctx.a) / (ctx.a - 1)).masked_fill(~support, 0.0)
        total = weight.sum(-1, keepdim=True)
        share = weight / total.masked_fill(total == 0, 1.0)
        return each - share * each.sum(-1, keepdim=True), None, None, None
