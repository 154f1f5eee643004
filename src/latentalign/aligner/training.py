"""Expectation maximisation for both directions of an aligner, which have to agree.

In the first passes every direction learns alone, with all positions equally likely. Then both are jump chains with
NULL, and the tables of both learn from the product of their posteriors: a link counts where both directions believe in
it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.aligner.config import AlignerConfig
from latentalign.aligner.corpus import Batch, TrainingCorpus
from latentalign.aligner.lexicon import Lexicon, Words
from latentalign.aligner.model import Aligner, Direction
from latentalign.core.kernels.jump_posterior import JumpPosterior, jump_posterior, uniform_posterior
from latentalign.errors import InputError
from latentalign.links.expected import best_threshold
from latentalign.progress import Bars

SAMPLE = 5000
"""Sentence pairs from which the threshold of links is determined."""
LEAST_CANDIDATE = 0.05
"""Probability from which a link is a candidate for the threshold."""


class NothingToLearnError(InputError):
    """A text without a sentence pair that has words on both sides."""


@dataclass(eq=False)
class Counts:
    """Expected counts of one pass, for one direction."""

    null_words: Float[Tensor, " words"]
    jumps: Float[Tensor, " widths"]
    log_likelihood: float = 0.0
    words: int = 0
    null: float = 0.0


@dataclass(eq=False)
class Pass:
    """Expected counts of one pass over the text."""

    links: list[Float[Tensor, " pairs"]]
    """Of word pairs, for each direction."""
    directions: list[Counts]
    agreed: float = 0.0
    """Expected number of links of both directions together."""
    history: dict[str, float] = field(default_factory=dict)


def train_aligner(
    pairs: Iterable[tuple[str, str]],
    config: AlignerConfig | None = None,
    *,
    folder: Path | None = None,
    name: str = "aligner",
) -> Aligner:
    """Learn to align from sentence pairs. `folder` holds temporary files; without it, a new one is made."""
    config = config or AlignerConfig()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="latentalign-", dir=folder))
    try:
        return _train(TrainingCorpus(place, pairs, config), config, name)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@torch.no_grad()
def _train(corpus: TrainingCorpus, config: AlignerConfig, name: str) -> Aligner:
    if not corpus.batches:
        raise NothingToLearnError("there is no sentence pair to learn from: in every pair, a side is blank")
    words = Words((corpus.source_words, corpus.target_words), corpus.frequencies())
    lexicon = Lexicon(words, corpus.keys, config.units, config.sparsity)
    directions = [
        Direction.new(len(words.vocabularies[1 - side]), config.widest_jump, config.null) for side in (0, 1)
    ]
    passes = config.first_iterations + config.iterations
    history = []
    with Bars() as bars:
        bar = bars.add(name, passes * len(corpus), unit="batches")
        for number in range(passes):
            agree = number >= config.first_iterations
            found = run_pass(
                corpus, lexicon, directions, agree=agree, share=config.own_share, advance=bar.advance
            )
            maximise(lexicon, directions, found)
            history.append(found.history)
        for side, direction in enumerate(directions):  # from now on NULL is as frequent as it was found to be
            seen = found.directions[side]
            direction.null = min(0.9, max(1e-3, 1 - found.agreed / max(1, seen.words)))
            direction.weights = direction.weights**config.jump_weight
        bar.finish(describe(corpus, history[-1]))
    aligner = Aligner(
        config, words, lexicon.levels, lexicon.mixtures, directions, threshold=0.5, history=history
    )
    aligner.threshold = find_threshold(corpus, lexicon, directions)
    return aligner.prune()


def describe(corpus: TrainingCorpus, last: dict[str, Any]) -> str:
    """What was learned from, in one line."""
    return (
        f"learned from {corpus.pairs:,} pairs, {len(corpus.source.ids):,} + {len(corpus.target.ids):,} words, "
        f"perplexity {last['perplexity_forward']:.1f} and {last['perplexity_backward']:.1f}"
    )


def posteriors(
    batch: Batch, emissions: list[Tensor], directions: list[Direction], *, chain: bool, count_jumps: bool
) -> list[JumpPosterior]:
    """The posteriors of both directions; that of the second has target positions as members."""
    found = []
    for side, direction in enumerate(directions):
        emission = emissions[side][batch.cells]
        members, exists, ids = batch.source_exists, batch.target_exists, batch.target
        if side == 1:
            emission = emission.transpose(1, 2)
            members, exists, ids = batch.target_exists, batch.source_exists, batch.source
        null_emission = direction.null_words[ids]
        if chain:
            found.append(
                jump_posterior(
                    emission, null_emission, members, exists,
                    weights=direction.weights, null=direction.null, count_jumps=count_jumps,
                )
            )  # fmt: skip
        else:
            found.append(uniform_posterior(emission, null_emission, members, exists, null=direction.null))
    return found


def run_pass(
    corpus: TrainingCorpus,
    lexicon: Lexicon,
    directions: list[Direction],
    *,
    agree: bool,
    share: float,
    advance: Callable[[], None],
) -> Pass:
    """The E-step over all batches. With `agree`, links count where both directions believe in them."""
    emissions = [lexicon.emissions(side) for side in (0, 1)]
    links = [torch.zeros(lexicon.size) for _ in directions]
    result = Pass(
        links, [Counts(torch.zeros_like(d.null_words), torch.zeros_like(d.weights)) for d in directions]
    )
    for batch in corpus:
        forward, backward = posteriors(batch, emissions, directions, chain=agree, count_jumps=agree)
        backward_links = backward.links.transpose(1, 2)
        both = forward.links * backward_links
        result.agreed += float(both.sum())
        cells = batch.cells.flatten()
        for side, own in enumerate((forward.links, backward_links)):
            counted = own
            if agree:  # a word whose links disagree still learns a little from its own direction
                unexplained = (1 - both.sum(2 - side, keepdim=True)).clamp_min(0)
                counted = both + share * unexplained * own
            links[side].index_add_(0, cells, counted.flatten())
        for counts, found, ids in zip(
            result.directions, (forward, backward), (batch.target, batch.source), strict=True
        ):
            counts.null_words.index_add_(0, ids.flatten(), found.null.flatten())
            counts.log_likelihood += float(found.log_likelihood.sum())
            counts.null += float(found.null.sum())
            if found.jumps is not None:
                counts.jumps += found.jumps
        result.directions[0].words += int(batch.target_exists.sum())
        result.directions[1].words += int(batch.source_exists.sum())
        advance()
    result.history = summarise(result)
    return result


def summarise(found: Pass) -> dict[str, float]:
    """Perplexity and share of NULL of both directions, and how far they agree."""
    forward, backward = found.directions
    return {
        "perplexity_forward": float(np.exp(-forward.log_likelihood / max(1, forward.words))),
        "perplexity_backward": float(np.exp(-backward.log_likelihood / max(1, backward.words))),
        "null_forward": forward.null / max(1, forward.words),
        "null_backward": backward.null / max(1, backward.words),
        "agreed_per_target_word": found.agreed / max(1, forward.words),
    }


def maximise(lexicon: Lexicon, directions: list[Direction], found: Pass) -> None:
    """The M-step: tables, mixture weights, NULL words and jumps."""
    for side, (direction, counts) in enumerate(zip(directions, found.directions, strict=True)):
        lexicon.update(side, found.links[side])
        seen = counts.null_words + 0.01
        direction.null_words = seen / seen.sum()
        if counts.jumps.sum() > 0:
            smoothed = counts.jumps + 0.5
            direction.weights = smoothed / smoothed.max()
    lexicon.trained = True


def find_threshold(corpus: TrainingCorpus, lexicon: Lexicon, directions: list[Direction]) -> float:
    """The probability from which links raise the expected F1, on a part of the text: half of that F1.

    The least probable link that is worth keeping has about the same probability. But links that are almost as probable
    would then depend on rounding, and in other text they are worth keeping too.
    """
    emissions = [lexicon.emissions(side) for side in (0, 1)]
    candidates, total, seen = [], 0.0, 0
    step = max(1, sum(map(len, corpus.batches)) // SAMPLE)
    for number in range(0, len(corpus), step):
        batch = corpus.load(number)
        forward, backward = posteriors(batch, emissions, directions, chain=True, count_jumps=False)
        mean = (forward.links + backward.links.transpose(1, 2)) / 2
        candidates.append(mean[mean >= LEAST_CANDIDATE].double().numpy())
        total += float(mean.sum(dtype=torch.float64))
        seen += len(batch.lines)
    least, f1 = best_threshold(np.concatenate(candidates), total)
    return max(f1 / 2, LEAST_CANDIDATE) if f1 > 0 else least
