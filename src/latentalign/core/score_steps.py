"""Scores inside a recurrence: one step after the other, with a backward pass that forms weight gradients at the end.

The recurrence is packed: its N queries are the first steps of all sequences, then all second steps, and so on. The
longest sequence comes first, so the n sequences of a step are the first n rows of the projected source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.core.products import add_product_of_rows, product_over_rows

ByStep = Callable[[Tensor], Tensor]
"""Packed rows (N, D) as a grid (S, B, D), with zeros where a sequence has ended."""


class ScoreSteps(ABC):
    """The scores of one recurrence and their gradients.

    A forward pass calls `forward` for each step; `finish` completes the scores of all steps, by autograd. A backward
    pass calls `begin_backward`, then `backward` for each step from the last to the first, then `gradients`.
    """

    parameters: tuple[Tensor, ...] = ()
    """The score's parameters that the steps use."""
    saved: tuple[Tensor, ...] = ()
    """Tensors for the backward pass. Autograd keeps them between the passes, so that it can free them early."""

    @abstractmethod
    def forward(self, rows: slice, query: Float[Tensor, "n Dq"], out: Float[Tensor, "n T"]) -> None:
        """Write the scores of one step; a constant may be missing, because a softmax ignores it."""

    def finish(self, scores: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """Scores of all steps with the constant that `forward` left out."""
        return scores

    def begin_backward(self) -> None:  # noqa: B027, a score without parameters sums up nothing
        """Set gradients to zero."""

    @abstractmethod
    def backward(self, rows: slice, d_scores: Float[Tensor, "n T"], d_query: Float[Tensor, "n Dq"]) -> None:
        """Add the gradient of one step's queries to `d_query`."""

    @abstractmethod
    def gradients(
        self, queries: Float[Tensor, "N Dq"], d_scores: Float[Tensor, "N T"], by_step: ByStep
    ) -> tuple[Float[Tensor, "B T A"], list[Tensor | None]]:
        """Gradients of the projected source and of each parameter, from all queries and their `d_scores`."""


class MLPSteps(ScoreSteps):
    """w' tanh(W1 x_i + W2 x~) as 2 w' sigmoid(2 W1 x_i + 2 W2 x~) - sum(w); `projected` is 2 W1 x_i."""

    def __init__(
        self,
        from_query: Float[Tensor, "A Dq"],
        to_score: Float[Tensor, "1 A"],
        projected: Float[Tensor, "B T A"],
        *,
        queries: int,
    ) -> None:
        self.parameters = from_query, to_score
        self.doubled, self.weight = 2 * from_query.detach(), 2 * to_score.detach().squeeze(0)
        self.projected = projected.detach()
        self.saved = (projected.new_empty(queries, *projected.shape[1:]),)

    def forward(self, rows: slice, query: Tensor, out: Tensor) -> None:
        hidden = self.saved[0][rows]
        asked = (query @ self.doubled.t()).unsqueeze(1)
        torch.add(self.projected[: len(query)], asked, out=hidden).sigmoid_()
        torch.matmul(hidden, self.weight, out=out)

    def finish(self, scores: Tensor) -> Tensor:
        return scores - self.parameters[1].squeeze(0).sum()

    def begin_backward(self) -> None:
        hidden = self.saved[0]
        self.d_asked = hidden.new_empty(len(hidden), hidden.shape[-1])
        self.d_projected = torch.zeros_like(self.projected)
        self.d_weight = torch.zeros_like(self.weight)

    def backward(self, rows: slice, d_scores: Tensor, d_query: Tensor) -> None:
        hidden = self.saved[0][rows]
        self.d_weight.addmv_(hidden.flatten(0, 1).t(), d_scores.flatten())
        d_hidden = torch.ops.aten.sigmoid_backward(d_scores.unsqueeze(2) * self.weight, hidden)
        self.d_projected[: len(hidden)] += d_hidden
        torch.sum(d_hidden, 1, out=self.d_asked[rows])
        add_product_of_rows(d_query, self.d_asked, rows, self.doubled)

    def gradients(
        self, queries: Tensor, d_scores: Tensor, by_step: ByStep
    ) -> tuple[Tensor, list[Tensor | None]]:
        d_from_query = 2 * product_over_rows(self.d_asked, queries)
        return self.d_projected, [d_from_query, 2 * self.d_weight.unsqueeze(0)]


class DotSteps(ScoreSteps):
    """x~' p_i, for a projected source p."""

    def __init__(self, projected: Float[Tensor, "B T Dq"]) -> None:
        self.projected = projected.detach()

    def forward(self, rows: slice, query: Tensor, out: Tensor) -> None:
        across = self.projected[: len(query)].transpose(1, 2)
        torch.bmm(query.unsqueeze(1), across, out=out.unsqueeze(1))

    def backward(self, rows: slice, d_scores: Tensor, d_query: Tensor) -> None:
        d_query.unsqueeze(1).baddbmm_(d_scores.unsqueeze(1), self.projected[: len(d_query)])

    def gradients(
        self, queries: Tensor, d_scores: Tensor, by_step: ByStep
    ) -> tuple[Tensor, list[Tensor | None]]:
        return by_step(d_scores).permute(1, 2, 0) @ by_step(queries).transpose(0, 1), []


class AutogradSteps(ScoreSteps):
    """Any score; autograd differentiates each step by itself."""

    def __init__(self, score: Any, projected: Float[Tensor, "B T A"]) -> None:
        self.parameters = tuple(p for p in score.parameters() if p.requires_grad)
        self.score, self.projected = score, projected.detach()
        self.differentiable = torch.is_grad_enabled()
        self.graphs: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        """Query, projected source and scores of the step that begins at a row."""

    def forward(self, rows: slice, query: Tensor, out: Tensor) -> None:
        query, projected = query.detach(), self.projected[: len(query)].detach()
        if self.differentiable:
            query, projected = query.clone().requires_grad_(), projected.requires_grad_()
        with torch.set_grad_enabled(self.differentiable):
            scores = self.score.scores(query, projected)
        if self.differentiable:
            self.graphs[rows.start] = query, projected, scores
        out.copy_(scores.detach())

    def begin_backward(self) -> None:
        self.d_projected = torch.zeros_like(self.projected)
        self.d_parameters: list[Tensor | None] = [None] * len(self.parameters)

    def backward(self, rows: slice, d_scores: Tensor, d_query: Tensor) -> None:
        query, projected, scores = self.graphs[rows.start]
        if not scores.requires_grad:
            return
        inputs = [query, projected, *self.parameters]
        to_query, to_projected, *to_parameters = torch.autograd.grad(
            scores, inputs, d_scores.to(scores.dtype), retain_graph=True, allow_unused=True
        )
        if to_query is not None:
            d_query += to_query
        if to_projected is not None:
            self.d_projected[: len(projected)] += to_projected
        for i, gradient in enumerate(to_parameters):
            before = self.d_parameters[i]
            self.d_parameters[i] = gradient if gradient is None or before is None else before + gradient

    def gradients(
        self, queries: Tensor, d_scores: Tensor, by_step: ByStep
    ) -> tuple[Tensor, list[Tensor | None]]:
        return self.d_projected, self.d_parameters
