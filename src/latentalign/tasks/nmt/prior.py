"""The recipe's `[prior]`: whether the alignments of a sentence depend on each other, and how."""

from __future__ import annotations

from typing import Literal, cast

from pydantic import Field, model_validator

from latentalign.nn.chain_prior import ChainKind, ChainPrior
from latentalign.tasks.looks import LooksConfig

OPTIONS = {
    "independent": ("null", "looks", "views"),
    "jump": ("null", "widest_jump", "by_query"),
    "monotone": ("null", "max_step"),
    "dense": ("null", "hidden"),
    "entmax": ("null",),
    "sparsemax": ("null",),
}
"""The options of every kind of prior."""
SPARSE = ("entmax", "sparsemax")
"""Kinds whose alignments are independent, and whose distribution has the same name."""


class PriorConfig(LooksConfig):
    """How the alignments of one sentence depend on each other, whether some are impossible, and how often a word looks
    at the source."""

    kind: Literal["independent", "jump", "monotone", "dense", "entmax", "sparsemax"] = "independent"
    """`independent`: not at all, as in the paper. `jump`: the next position depends on the distance to the one
    before. `monotone`: positions never go back. `dense`: learned for every pair of positions. `entmax` and
    `sparsemax`: independent, and positions with low scores have a probability of exactly zero."""
    null: bool = False
    """Let an output word come from no source position at all."""
    widest_jump: int = Field(10, ge=1)
    """`jump`: distances beyond this count as this one."""
    by_query: bool = False
    """`jump`: let the decoder state change the preferred distances."""
    max_step: int | None = Field(None, ge=1)
    """`monotone`: advance at most this many source positions at a time. Without it there is no limit."""
    hidden: int = Field(64, ge=1)
    """`dense`: hidden units of the score of a move."""

    @model_validator(mode="after")
    def _check_kind(self) -> PriorConfig:
        """Refuse several looks where they are not defined."""
        if self.several and self.kind in ("jump", "monotone", "dense"):
            raise ValueError(
                f'prior.looks = {self.looks!r} needs prior.kind = "independent": in a chain such as "{self.kind}", a '
                "position depends on the position before, and several looks have no single position"
            )
        if self.looks == "dependent" and self.null:
            raise ValueError("prior.null is not defined for dependent looks, which always see two positions")
        return self

    @model_validator(mode="after")
    def _check_options(self) -> PriorConfig:
        """Refuse options that this kind of prior would ignore."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        for name in sorted(self.model_fields_set - {"kind"} - set(OPTIONS[self.kind])):
            if getattr(self, name) != defaults[name]:
                kinds = [kind for kind, options in OPTIONS.items() if name in options]
                raise ValueError(
                    f'prior.{name} has no effect if prior.kind is "{self.kind}"; it needs {kinds}'
                )
        return self

    @property
    def sparse(self) -> bool:
        """Whether source positions may have a probability of exactly zero."""
        return self.kind in SPARSE

    @property
    def chained(self) -> bool:
        """Whether the alignments depend on each other."""
        return self.kind != "independent" and not self.sparse

    def distribution(self, wanted: str) -> str:
        """The distribution of single alignments: the sparse one, or the one that the objective wants."""
        if self.sparse and wanted not in ("categorical", self.kind):
            raise ValueError(f'prior.kind is "{self.kind}", but the objective needs a {wanted} prior')
        return self.kind if self.sparse else wanted

    def build(
        self, query_dim: int, memory_dim: int, *, member_dim: int | None = None, emits: bool = True
    ) -> ChainPrior | None:
        """The module of the prior; None if alignments are independent."""
        if not self.chained:
            return None
        return ChainPrior(
            cast(ChainKind, self.kind),
            query_dim,
            memory_dim,
            null=self.null,
            member_dim=member_dim,
            emits=emits,
            widest_jump=self.widest_jump,
            by_query=self.by_query,
            max_step=self.max_step,
            hidden=self.hidden,
        )
