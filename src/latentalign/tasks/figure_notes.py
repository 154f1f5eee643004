"""What the figures of `latentalign evaluate` mean, with their units. `--explain` and the documentation read it here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FigureNote:
    """The unit and the meaning of one figure."""

    unit: str
    """Empty for a name or a text."""
    meaning: str


SHARED: Mapping[str, FigureNote] = {
    "split": FigureNote("", "The split that was evaluated."),
    "objective": FigureNote("", "The objective that the run was trained with."),
    "predict": FigureNote(
        "", "How the own figures average over alignments: the run's predictive, or --predict."
    ),
    "entropy_prior": FigureNote(
        "nats per query",
        "Mean entropy of the prior. 0: the model is certain where to look before it sees the output.",
    ),
    "entropy_inferred": FigureNote(
        "nats per query", "Mean entropy of q, the alignment inferred from the output."
    ),
    "entropy_posterior": FigureNote(
        "nats per query", "Mean entropy of the exact posterior, the alignment given the output."
    ),
    "mutual_information": FigureNote(
        "nats per query",
        "How much the output says about the alignment: mean KL of the exact posterior from the prior. 0: the model "
        "ignores the choice.",
    ),
    "elbo_gap": FigureNote(
        "nats per query",
        "How far the variational bound lies below the exact log-likelihood. 0: q is the posterior.",
    ),
    "jensen_gap": FigureNote(
        "nats per query",
        "How far E_p[log f], the bound of hard attention, lies below the exact log-likelihood.",
    ),
}
"""Figures that the built-in tasks have in common."""


def shared_notes(query: str) -> dict[str, FigureNote]:
    """The notes of the shared figures, with a task's own word for a query."""
    return {name: replace(note, unit=note.unit.replace("query", query)) for name, note in SHARED.items()}
