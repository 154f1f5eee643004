"""The figures of a question answering run, with their units."""

from latentalign.tasks.figure_notes import FigureNote, shared_notes
from latentalign.tasks.likelihoods import KMAX

_NATS = "nats per question"
_PERCENT = "per cent"

FIGURES = {
    **shared_notes("question"),
    "questions": FigureNote("questions", "Size of the split."),
    "answerable": FigureNote(
        "questions", "Questions with a human answer in the vocabulary; likelihoods use these."
    ),
    "nll": FigureNote(_NATS, "Negative log-likelihood of the human answers under the run's own predictive."),
    "nll_exact": FigureNote(_NATS, "The same under the sum over all regions."),
    "nll_soft": FigureNote(
        _NATS, "The same if the model looks at the mean of the prior, as soft attention does."
    ),
    f"nll_kmax{KMAX}": FigureNote(_NATS, f"The same under the {KMAX} most probable regions, renormalised."),
    "nll_elbo": FigureNote(_NATS, "The negative variational bound. Never below nll_exact."),
    "accuracy": FigureNote(
        _PERCENT, "The main accuracy: accuracy_paper, or exact_match if questions have one answer."
    ),
    "accuracy_paper": FigureNote(
        _PERCENT, "min(1, people who gave this answer / 3), as the paper computes it."
    ),
    "accuracy_official": FigureNote(
        _PERCENT, "The official VQA accuracy, which averages over subsets of nine people."
    ),
    "exact_match": FigureNote(
        _PERCENT, "Share of questions for which a most frequent human answer was predicted."
    ),
    "grounding_prior": FigureNote(
        "share, 0 to 1", "How often the prior's best region overlaps a gold region."
    ),
    "grounding_inferred": FigureNote("share, 0 to 1", "The same for q."),
    "grounding_posterior": FigureNote("share, 0 to 1", "The same for the exact posterior."),
    "comparison": FigureNote(
        _PERCENT, "The accuracies of the model beside those of baselines that see no picture."
    ),
    "by_question_type": FigureNote(_PERCENT, "Accuracies of each type of question."),
    "by_answer_type": FigureNote(_PERCENT, "Accuracies of each type of answer."),
}
