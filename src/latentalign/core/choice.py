"""A prior and a head before the output is observed: what models return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.alignments import Alignments
from latentalign.core.compiling import outside_of_graphs
from latentalign.core.distributions import AlignmentDistribution, as_distribution
from latentalign.core.heads import Emit
from latentalign.core.kernels.beam import Beam
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.kernels.likelihood import MAX_LOGITS
from latentalign.core.kernels.predictive import predictive_log_prob
from latentalign.core.predictives import Predictive, parse_predict


@dataclass(eq=False)
class LatentChoice:
    """A batch of latent choices z ~ prior, y ~ f(x, z), with y not yet observed.

    For training, `objective(choice.observe(target))`; at test time, `choice.predict("exact")`.
    """

    prior: AlignmentDistribution
    head: Emit
    query: Float[Tensor, "*batch Dq"]
    memory: Float[Tensor, "*sources T D"]
    _: KW_ONLY
    query_exists: Bool[Tensor, "*batch"] | None = None
    """False for queries that do not exist; not needed if the prior has no members for them."""
    infer: Callable[[Tensor], AlignmentDistribution | None] | None = None
    """q(z; x, x~, y) as a function of the outputs, if there is an inference network."""
    source: Int[Tensor, "*batch"] | None = None
    """Query i reads memory[source[i]]; by default memory broadcasts over the queries."""
    max_logits: int = MAX_LOGITS
    """Logits in memory at once. It limits memory and never changes results."""

    def __post_init__(self) -> None:
        self.prior = as_distribution(self.prior, "prior")

    def observe(
        self,
        target: Int[Tensor, "*batch"],
        inferred: AlignmentDistribution | None = None,
        *,
        side_evidence: Float[Tensor, "..."] | None = None,
    ) -> EmissionLatent:
        """The choices with their outputs observed, for an objective; q is `inferred`, or what `infer` gives.

        `side_evidence` (*batch, T) is log p(e | z = i, y) of every member, at most 0: what else is known about z.
        """
        if target.shape != self.query.shape[:-1]:
            raise ValueError(
                f"target must have one output for every query, {tuple(self.query.shape[:-1])}, "
                f"got {tuple(target.shape)}"
            )
        if target.is_floating_point():
            raise TypeError(f"target must be whole numbers, one output for every query, got {target.dtype}")
        if inferred is None and self.infer is not None:
            inferred = self.infer(target)
        return EmissionLatent(
            self.prior,
            self.head,
            self.query,
            memory=self.memory if self.source is None else self.memory[self.source],
            target=target,
            inferred=inferred,
            query_exists=self.query_exists,
            side_evidence=side_evidence,
            max_logits=self.max_logits,
        )

    @outside_of_graphs
    def predict(self, how: str | Predictive = "exact", beam: Beam | None = None) -> Float[Tensor, "*batch V"]:
        """log p(y | x, x~) of every output: exact, certified:TOLERANCE, kmax:K, soft, sample:N, or one of your own."""
        return (parse_predict(how) if isinstance(how, str) else how).log_probs(self, beam)

    def average(self, alignments: Alignments) -> Float[Tensor, "*batch V"]:
        """log E[f(x, z)] over a weighted set of alignments; zeros for queries without members."""
        return predictive_log_prob(
            self.head, self.query, self.memory, alignments, source=self.source, max_logits=self.max_logits
        )

    def soft(self) -> Float[Tensor, "*batch V"]:
        """log f(x, E_p[z])."""
        return self.average(self.prior.point())
