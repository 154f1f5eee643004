"""Base class of objectives, and their registry: one entry per objective."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import nn

from latentalign.core.compiling import outside_of_graphs
from latentalign.core.latent import Estimate, Latent
from latentalign.core.registry import Registry


class Objective(nn.Module, ABC):
    """Latent -> Estimate; its attributes say which model it needs and how that model predicts.

    Parts that learn (baselines, control variates) are submodules: they are trained and saved with the model.
    """

    distribution: str = "categorical"
    """The distribution that the model must build: a name in DISTRIBUTIONS."""
    needs_inferred: bool = False
    """Whether the model must have an inference network."""
    accepts_chains: bool = False
    """Whether the queries of the prior may depend on each other."""
    predict: str = "exact"
    """The predictive inference that matches the objective: the model's own perplexity is measured with it."""

    @outside_of_graphs
    def __call__(self, latent: Latent, *args: Any, **options: Any) -> Estimate:
        """The estimate of `forward`, which then knows which queries exist."""
        estimate: Estimate = super().__call__(latent, *args, **options)
        if estimate.exists is not None:
            return estimate
        return replace(estimate, exists=latent.prior.mask.any(-1))

    @abstractmethod
    def forward(self, latent: Latent) -> Estimate:
        """One number per query."""


@dataclass(frozen=True, repr=False)
class ObjectiveEntry:
    """Everything the project knows about an objective by name; calling it builds the objective from its options.

    `help(OBJECTIVES[name])` and `inspect.signature(OBJECTIVES[name])` show the options.
    """

    name: str
    build: Callable[..., Objective]
    maximises: str = ""
    """The quantity whose gradient is estimated; p is the prior, q the inference network, f the likelihood."""
    gradient: str = ""
    """How the gradient is computed."""
    unbiased: bool = True
    """Whether the estimated gradient is, on average, that of `maximises`."""
    remark: str = ""
    """A qualification of `unbiased`, for the table."""
    needs_inferred: bool = False
    """Whether the model must have an inference network."""
    table: int | None = None
    """The paper's table that has, or would have, this row; None for auxiliary objectives."""
    truth: str | None = None
    """The enumerated objective with the exact gradient, for `diagnose`."""
    variants: Mapping[str, Mapping[str, Any]] | None = None
    """Options of the estimators that `diagnose` measures, by their label; the defaults under `name` if None."""

    def __post_init__(self) -> None:
        lines = [
            f"OBJECTIVES[{self.name!r}]{self.__signature__}",
            inspect.getdoc(self.build) or "",
            f"Maximises {self.maximises}." if self.maximises else "",
            f"Gradient: {self.gradient}." if self.gradient else "",
            "Needs q: LatentAttention with inference=True, or `inferred`." if self.needs_inferred else "",
        ]
        # `help` of an instance prints its own docstring if it has one.
        object.__setattr__(self, "__doc__", "\n\n".join(line for line in lines if line))

    def __call__(self, **options: Any) -> Objective:
        return self.build(**options)

    def __repr__(self) -> str:
        return f"OBJECTIVES[{self.name!r}]"

    @property
    def __signature__(self) -> inspect.Signature:
        """The options with their types and defaults."""
        try:
            found = inspect.signature(self.build, eval_str=True)
        except NameError:  # an annotation that exists only for type checkers
            found = inspect.signature(self.build)
        return found.replace(return_annotation=inspect.Signature.empty)

    @property
    def options(self) -> list[str]:
        """Names of the options."""
        return list(inspect.signature(self.build).parameters)

    def default(self, option: str) -> Any:
        """The value of an option that is not given."""
        return inspect.signature(self.build).parameters[option].default

    @classmethod
    def of(cls, name: str, entry: Any) -> ObjectiveEntry:
        """An entry as it is; any other callable as an entry without a description."""
        return entry if isinstance(entry, cls) else cls(name, entry)


OBJECTIVES: Registry[ObjectiveEntry] = Registry("objective", convert=ObjectiveEntry.of)
"""Objectives by name: `OBJECTIVES[name](**options)`."""

F = TypeVar("F", bound=Callable[..., Objective])


def objective(name: str, **details: Any) -> Callable[[F], F]:
    """A decorator that registers the class or function that builds an objective; details of `ObjectiveEntry`."""

    def add(build: F) -> F:
        OBJECTIVES[name] = ObjectiveEntry(name, build, **details)
        return build

    return add


def objectives_table() -> str:
    """The table of all objectives in Markdown."""
    lines = ["| name | maximises | gradient | unbiased | needs q |", "|---|---|---|---|---|"]
    for entry in OBJECTIVES.values():
        unbiased = ("yes" if entry.unbiased else "no") + entry.remark
        needs = "yes" if entry.needs_inferred else "no"
        lines.append(f"| `{entry.name}` | {entry.maximises} | {entry.gradient} | {unbiased} | {needs} |")
    return "\n".join(lines) + "\n"
