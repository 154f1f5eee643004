"""Does q improve finished translations? Iterative refinement and reranking with the inference network, measured.

    python benchmarks/refine.py RUN [--lines 300] [--beams 1,10] [--rounds 2]

q sees the whole output, so its alignments may be better than those of the prior that wrote the output. Each round
takes the n best outputs and scores every position by log sum_i q(z_j = i) f(y_j | i). At the positions of lowest
score, the word is replaced by the most probable ones under q's alignment. All outputs are ranked again by the exact
log p(y | x), normalised by length as in the search, and the n best are kept. The last rows rank the n best of the
search by the ELBO instead. RUN needs an inference network. On the demo language nothing of this helped, so no command
offers it. Only outputs of equal length are proposed: a replaced word stays one piece.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import sacrebleu
import torch

from latentalign.core.predictives import parse_predict
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.model import TranslationModel
from latentalign.tasks.nmt.recipe import find_split
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.tasks.nmt.tokenizer import EOS
from latentalign.tasks.nmt.translate import TranslationJob, TranslationSettings

Output = tuple[int, ...]
POSITIONS, WORDS = 3, 2
"""How many positions of an output are edited, and how many words are tried at each."""


def length_normalised(log_prob: float, output: Output, alpha: float) -> float:
    """The score that beam search ranks by."""
    return log_prob / ((5 + len(output) + 1) / 6) ** alpha


@torch.no_grad()
def log_probs(model: TranslationModel, source: Sequence[int], outputs: Sequence[Output]) -> list[float]:
    """Exact log p(y | x) of each output."""
    latent = model.latent(pair_batch([source] * len(outputs), outputs))
    return parse_predict("exact").log_prob(latent).sum(1).tolist()


@torch.no_grad()
def elbos(model: TranslationModel, source: Sequence[int], outputs: Sequence[Output]) -> list[float]:
    """E_q[log f] - KL[q, p] of each output."""
    latent = model.latent(pair_batch([source] * len(outputs), outputs))
    q = latent.require_inferred("reranking by the ELBO")
    each = latent.prior.log_likelihoods(latent)
    return (q.per_query.enumerate().expect(each) - q.kl(latent.prior)).sum(1).tolist()


@torch.no_grad()
def edits(model: TranslationModel, source: Sequence[int], outputs: Sequence[Output]) -> set[Output]:
    """The outputs with one word replaced by what q's alignment makes probable, at the positions of lowest score."""
    batch = pair_batch([source] * len(outputs), outputs)
    choice = model(batch)
    q = choice.observe(batch.target).require_inferred("refinement")
    predicted = choice.average(q.per_query.enumerate())
    score = predicted.gather(-1, batch.target.unsqueeze(-1)).squeeze(-1)
    found = set()
    for row, output in enumerate(outputs):
        weakest = score[row, : len(output)].topk(min(POSITIONS, len(output)), largest=False).indices.tolist()
        for j in weakest:
            for word in predicted[row, j].topk(WORDS + 1).indices.tolist():
                if word > EOS and word != output[j]:
                    found.add((*output[:j], word, *output[j + 1 :]))
    return found - set(outputs)


def refine(
    model: TranslationModel, source: Sequence[int], scored: dict[Output, float], *, alpha: float
) -> dict[Output, float]:
    """The n best outputs of one round, with their log-probabilities."""
    new = sorted(edits(model, source, list(scored)))
    everything = scored | dict(zip(new, log_probs(model, source, new), strict=True)) if new else scored
    ranked = sorted(everything, key=lambda o: length_normalised(everything[o], o, alpha), reverse=True)
    return {output: everything[output] for output in ranked[: len(scored)]}


def best_by_elbo(
    model: TranslationModel, source: Sequence[int], scored: dict[Output, float], *, alpha: float
) -> Output:
    """The output of highest length-normalised ELBO."""
    bounds = dict(zip(scored, elbos(model, source, list(scored)) if scored else [], strict=True))
    return max(bounds, key=lambda o: length_normalised(bounds[o], o, alpha), default=())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--beams", default="1,10")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    trained = TRANSLATION.load(options.run)
    pairs = list(find_split(trained, "test").read())[: options.lines]
    sources, references = [list(side) for side in zip(*pairs, strict=True)]
    if trained.config.tokenizer.lowercase:
        references = [reference.lower() for reference in references]
    model, alpha = trained.model, trained.config.search.length_penalty
    print(f"{len(sources)} lines\n\n| beam | ranked by | rounds | BLEU | log p per line | changed |")
    print("|---:|---|---:|---:|---:|---:|")
    for beam in map(int, options.beams.split(",")):
        job = TranslationJob(trained, sources, TranslationSettings(beam=beam, nbest=beam))
        found = [{o.ids: o.log_prob for o in outputs if o.ids} for outputs in job.translate()]
        ids = [encoded.ids for encoded in job.source]
        rows = {("log p", 0): [next(iter(scored), ()) for scored in found]}
        rows["ELBO", 0] = [best_by_elbo(model, i, s, alpha=alpha) for i, s in zip(ids, found, strict=True)]
        for number in range(1, options.rounds + 1):
            found = [refine(model, i, s, alpha=alpha) if s else s for i, s in zip(ids, found, strict=True)]
            rows["log p", number] = [next(iter(scored), ()) for scored in found]
        for (name, rounds), best in rows.items():
            texts = [trained.vocabulary.decode_target(output) for output in best]
            bleu = sacrebleu.corpus_bleu(texts, [references], force=True).score
            mean = sum(log_probs(model, i, [o])[0] for i, o in zip(ids, best, strict=True) if o) / len(best)
            changed = sum(a != b for a, b in zip(rows["log p", 0], best, strict=True))
            print(f"| {beam} | {name} | {rounds} | {bleu:.2f} | {mean:.3f} | {changed} |", flush=True)


if __name__ == "__main__":
    main()
