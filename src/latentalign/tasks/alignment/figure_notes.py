"""What the figures of `latentalign evaluate` mean for an aligner, with their units."""

from latentalign.tasks.figure_notes import FigureNote

FIGURES = {
    "split": FigureNote("", "The split that was evaluated."),
    "sentences": FigureNote("sentence pairs", "Number of sentence pairs."),
    "objective": FigureNote("", "The objective: an aligner maximises the exact marginal likelihood."),
    "aer_interval": FigureNote("share", "95 % bootstrap interval of the AER over sentence pairs."),
    "aer": FigureNote("share", "Alignment error rate against the gold links; lower is better."),
    "precision": FigureNote("share", "Share of the links that are gold links."),
    "recall": FigureNote("share", "Share of the sure gold links that were found."),
    "f1": FigureNote("share", "Harmonic mean of precision and recall."),
    "expected_f1": FigureNote("share", "The F1 that the aligner itself expects of its links."),
    "threshold": FigureNote("share", "Probability from which a link is kept."),
    "unlinked_source": FigureNote("share", "Share of source words without a link."),
    "unlinked_target": FigureNote("share", "Share of target words without a link."),
}
