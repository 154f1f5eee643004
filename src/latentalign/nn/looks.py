"""Priors with several looks at the source: they turn the scores of one look into a distribution over several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.distributions import Categorical, LookMixture, LookPairs
from latentalign.core.linear import Linear
from latentalign.core.scores import Score, resolve_score

Dependent = Literal["dependent"]
Views = Literal["own", "shared"]


class Looks(nn.Module, ABC):
    """Several looks at the members x_1..x_T, each with a view (linear map) of its own.

    The model scores the members for the first look; `forward` adds the others. `view` gives the members as the head
    sees them: those of the first look, then those of the second, and so on.
    """

    def __init__(self, looks: int, *, member_dim: int, view_dim: int | None) -> None:
        """Without `view_dim`, all looks see the members as they are."""
        super().__init__()
        self.looks = looks
        # One matrix for all views.
        self.views = None if view_dim is None else Linear(member_dim, looks * view_dim)

    def view(self, members: Float[Tensor, "*any T D"]) -> Float[Tensor, "*any looks_T Dv"]:
        """The members as each look sees them; padding must hold finite numbers, as for scores."""
        if self.views is None:
            return members
        seen: Tensor = self.views(members).unflatten(-1, (self.looks, -1))
        return seen.transpose(-2, -3).flatten(-3, -2)

    def seen_size(self, member_dim: int) -> int:
        """The size of what the head sees of a member."""
        return member_dim if self.views is None else self.views.out_features // self.looks

    @abstractmethod
    def forward(
        self,
        scores: Float[Tensor, "*batch T"],
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        *,
        exists: Bool[Tensor, "*batch T"],
    ) -> Categorical:
        """The prior of all looks from the scores of the first."""


class MixedLooks(Looks):
    """p(h, i) = w_h(x~) p_h(i | x, x~): one of H looks, and a member with that look's own score.

    With shared views, the look does not matter to the head, so p(i) = sum_h w_h p_h(i) over T members.
    """

    def __init__(
        self,
        looks: int,
        query_dim: int,
        *,
        make_score: Callable[[], Score],
        member_dim: int,
        view_dim: int | None,
    ) -> None:
        super().__init__(looks, member_dim=member_dim, view_dim=view_dim)
        self.weights = Linear(query_dim, looks)
        self.scores = nn.ModuleList([make_score() for _ in range(looks - 1)])  # type: ignore[misc]

    def forward(
        self,
        scores: Float[Tensor, "*batch T"],
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        *,
        exists: Bool[Tensor, "*batch T"],
    ) -> Categorical:
        each = torch.stack([scores, *[score(query, memory) for score in self.scores]], -2)
        prior = LookMixture.from_looks(self.weights(query), each, exists=exists)
        return prior.merged if self.views is None else prior


class DependentLooks(Looks):
    """p(z_1 = i | x, x~) p(z_2 = j | x, x~, x_i): the second look knows what the first found.

    The scores of the second look are (U tanh(W x~ + V x_i)) . (M x_j) / sqrt(hidden): products, because the hidden
    layer of an MLP for all T^2 pairs of members would be large.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, *, hidden: int, member_dim: int, view_dim: int
    ) -> None:
        super().__init__(2, member_dim=member_dim, view_dim=view_dim)
        self.from_query = Linear(query_dim, hidden)
        self.from_memory = Linear(memory_dim, hidden, bias=False)
        self.score = resolve_score("scaled-dot", query_dim=hidden, memory_dim=memory_dim, hidden=hidden)

    def forward(
        self,
        scores: Float[Tensor, "*batch T"],
        query: Float[Tensor, "*batch Dq"],
        memory: Float[Tensor, "*#batch T D"],
        *,
        exists: Bool[Tensor, "*batch T"],
    ) -> Categorical:
        asked = torch.tanh(self.from_query(query).unsqueeze(-2) + self.from_memory(memory))
        second = self.score(asked, memory.unsqueeze(-3))
        return LookPairs.from_scores(scores, exists=exists, second=second)


def build_looks(
    looks: int | str,
    views: str,
    *,
    query_dim: int,
    memory_dim: int,
    member_dim: int,
    view_dim: int,
    hidden: int,
    make_score: Callable[[], Score],
) -> Looks | None:
    """The module of several looks; None for a single one.

    `memory_dim` is the size of what is scored, `member_dim` of what the head would see of a member, `view_dim` of what
    a look sees of it.
    """
    check_looks(looks, views)
    if looks == 1:
        return None
    if isinstance(looks, str):
        sizes = {"hidden": hidden, "member_dim": member_dim, "view_dim": view_dim}
        return DependentLooks(query_dim, memory_dim, **sizes)
    size = None if views == "shared" else view_dim
    return MixedLooks(looks, query_dim, make_score=make_score, member_dim=member_dim, view_dim=size)


def check_looks(looks: int | str, views: str) -> None:
    """Raise unless these are looks that exist."""
    if isinstance(looks, bool) or not (looks == "dependent" or (isinstance(looks, int) and looks >= 1)):
        raise ValueError(f'looks must be a number of at least 1 or "dependent", got {looks!r}')
    if views not in get_args(Views):
        raise ValueError(f"views must be one of {', '.join(get_args(Views))}, got {views!r}")
    if views == "shared" and not (isinstance(looks, int) and looks > 1):
        reason = "a single look has no view" if looks == 1 else "dependent looks need views of their own"
        raise ValueError(f'views = "shared" needs two or more independent looks: {reason}')
