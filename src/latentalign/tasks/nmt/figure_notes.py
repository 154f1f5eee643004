"""The figures of a translation run, with their units."""

from latentalign.tasks.figure_notes import FigureNote, shared_notes
from latentalign.tasks.likelihoods import KMAX

_PER_TOKEN = "exp(nats per token)"

FIGURES = {
    **shared_notes("token"),
    "tokens": FigureNote("tokens", "Target tokens of the split, with one end of sentence per sentence."),
    "sentences": FigureNote("sentence pairs", "Size of the split."),
    "ppl": FigureNote(
        _PER_TOKEN,
        "Perplexity under the run's own predictive. Lower is better; 1 means that every token was certain.",
    ),
    "ppl_exact": FigureNote(_PER_TOKEN, "Perplexity under the sum over all alignments."),
    "ppl_soft": FigureNote(
        _PER_TOKEN, "Perplexity if the model looks at the mean of the prior, like soft attention."
    ),
    f"ppl_kmax{KMAX}": FigureNote(
        _PER_TOKEN, f"Perplexity under the {KMAX} most probable alignments, renormalised."
    ),
    "ppl_elbo": FigureNote(_PER_TOKEN, "exp of the negative variational bound. Never below ppl_exact."),
    "elbo": FigureNote(
        "nats per token", "The variational bound E_q[log f] - KL[q, p]. Never above -log(ppl_exact)."
    ),
    "bleu": FigureNote(
        "points, 0 to 100", "BLEU of the translations against one reference. Higher is better."
    ),
    "bleu_signature": FigureNote("", "How sacrebleu computed BLEU. Compare only equal signatures."),
    "bleu_13a": FigureNote(
        "points, 0 to 100",
        "BLEU with sacrebleu's own tokenizer (tok:13a, else as bleu_signature says), if the recipe has another one.",
    ),
    "chrf": FigureNote(
        "points, 0 to 100", "chrF of the translations, from character n-grams. Higher is better."
    ),
    "chrf_signature": FigureNote("", "How sacrebleu computed chrF."),
    "aer_prior": FigureNote(
        "share, 0 to 1", "Alignment error rate of the prior against gold links. Lower is better."
    ),
    "aer_inferred": FigureNote("share, 0 to 1", "Alignment error rate of q."),
    "aer_posterior": FigureNote("share, 0 to 1", "Alignment error rate of the exact posterior."),
    "aer_path": FigureNote("share, 0 to 1", "Alignment error rate of the most probable path of a chain."),
    "wer": FigureNote(
        "percent of lines",
        "Word error rate of string transduction: lines whose output differs from the reference. Lower is better.",
    ),
    "wer_interval": FigureNote("percent of lines", "95 % bootstrap interval of wer over lines."),
    "per": FigureNote(
        "percent of tokens",
        "Phoneme error rate: edit distance between output and reference, relative to the length of the references.",
    ),
    "per_interval": FigureNote("percent of tokens", "95 % bootstrap interval of per over lines."),
}
