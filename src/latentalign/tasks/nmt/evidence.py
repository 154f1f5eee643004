"""The recipe's `[evidence]`: a lexicon or word links as soft evidence about alignments.

For target piece j, e_j is observed: "j was generated as the lexicon (or the links) says". With the match m_ij >= 0 of
source piece i, which is the weight of a lexicon entry or the probability of a link, and 0 where nothing is known,

    log p(e_j | z_j = i, y_j) = weight * (m_ij - max_i' m_i'j) <= 0.

A target piece without any match has no evidence. Training then maximises log p(y, e | x), or a bound of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from latentalign.config import DataPath, Section
from latentalign.errors import InputError
from latentalign.links.sets import LinkProbabilities
from latentalign.tasks.nmt.data import Batch, Corpus
from latentalign.tasks.nmt.lexicon import Lexicon, plain_words, read_lexicon
from latentalign.tasks.nmt.splits import SplitConfig, read_split_links
from latentalign.tasks.nmt.tokenizer import Tokenizer

DEFAULT_WEIGHT = 3.0


class EvidenceConfig(Section):
    """What is known about the alignments of the training text. Validation and evaluation never use it."""

    lexicon: DataPath | None = None
    """File of translations: source, tab, target, and optionally a tab and a weight. Both may have several words."""
    links: DataPath | None = None
    """Word links of the training text in Pharaoh format, `i-j` or `i-j:probability`, one line per pair."""
    weight: float = Field(DEFAULT_WEIGHT, ge=0, allow_inf_nan=False)
    """How much is known, in nats: an alignment that contradicts the evidence is exp(-weight) times as probable. 0
    changes nothing."""

    @model_validator(mode="after")
    def _has_source(self) -> EvidenceConfig:
        default = type(self).model_fields["weight"].default
        if self.lexicon is None and self.links is None and self.weight != default:
            raise ValueError(
                "evidence.weight has no effect without evidence.lexicon or evidence.links; set one of them"
            )
        return self

    @property
    def used(self) -> bool:
        """Whether there is evidence that counts."""
        return (self.lexicon is not None or self.links is not None) and self.weight > 0


@dataclass(frozen=True)
class KnownPair:
    """What is known about one sentence pair: matches between its words, and the words of its pieces."""

    matches: tuple[LinkProbabilities, ...]
    """From every source of knowledge by itself."""
    source: Sequence[int]
    target: Sequence[int]


def log_evidence(
    pairs: Sequence[KnownPair], *, weight: float, shape: tuple[int, int, int], null: bool
) -> Float[Tensor, "B S M"]:
    """log p(e | z, y) of every alignment of a batch. NULL, if there is one, is the last member and matches nothing."""
    found = torch.zeros(shape)
    for b, pair in enumerate(pairs):
        for links in filter(None, pair.matches):
            match = match_pieces(links, pair.source, pair.target)
            best = match.amax(1, keepdim=True)
            rows, columns = match.shape
            found[b, :rows, :columns] += weight * (match - best)
            if null:
                found[b, :rows, -1:] -= weight * best
    return found


def attach_evidence(batch: Batch, pairs: Sequence[KnownPair], *, weight: float, null: bool) -> Batch:
    """A batch with what is known about its pairs."""
    shape = (*batch.target.shape, batch.source.shape[1] + null)
    return dataclasses.replace(batch, evidence=log_evidence(pairs, weight=weight, shape=shape, null=null))


def match_pieces(
    links: LinkProbabilities, source: Sequence[int], target: Sequence[int]
) -> Float[Tensor, "S T"]:
    """The match of every source piece and target piece: that of their words. Links outside the pair are ignored."""
    words = torch.zeros(max(target, default=-1) + 1, max(source, default=-1) + 1)
    for (v, w), value in links.items():
        if v < words.shape[1] and w < words.shape[0]:
            words[w, v] = value
    return words[torch.tensor(target, dtype=torch.long)][:, torch.tensor(source, dtype=torch.long)]


class TrainingEvidence:
    """The evidence of a training corpus, ready to be attached to its batches."""

    def __init__(
        self, config: EvidenceConfig, corpus: Corpus, tokenizer: Tokenizer, *, split: SplitConfig, null: bool
    ) -> None:
        self.config, self.null = config, null
        lines = list(split.read())
        kept = [corpus.line(i) - 1 for i in range(len(corpus))]
        pairs = [lines[i] for i in kept]
        known: list[list[LinkProbabilities]] = []
        if config.lexicon is not None:
            known.append(match_lines(read_lexicon(config.lexicon, tokenizer), tokenizer, pairs))
        if config.links is not None:
            links = read_split_links(config.links, split, len(lines))
            known.append([links[i] for i in kept])
        self.pairs = know_pairs(tokenizer, pairs, known)

    def attach(self, batch: Batch) -> Batch:
        """The same batch with its evidence."""
        pairs = [self.pairs[i] for i in batch.index.tolist()]
        return attach_evidence(batch, pairs, weight=self.config.weight, null=self.null)

    def card(self) -> dict[str, Any]:
        """How much is known about the training text."""
        words = [({*pair.target}, {w for links in pair.matches for _, w in links}) for pair in self.pairs]
        share = sum(len(all_ & known) for all_, known in words) / max(1, sum(len(all_) for all_, _ in words))
        return {"weight": self.config.weight, "target_words_with_evidence": round(share, 4)}


def match_lines(
    lexicon: Lexicon, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> list[LinkProbabilities]:
    """The links between the words of each pair that a lexicon knows; an InputError if it knows none at all."""
    found = [
        lexicon.match(plain_words(tokenizer, source, "source"), plain_words(tokenizer, target, "target"))
        for source, target in pairs
    ]
    if not any(found):
        raise InputError(
            f"{lexicon.path}: no entry occurs in the text; the first column must be in the language of the source, "
            "the second in that of the target"
        )
    return found


def know_pairs(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], known: Sequence[Sequence[LinkProbabilities]]
) -> list[KnownPair]:
    """What each source of knowledge says about each pair."""
    source = tokenizer.encode_source_batch([source for source, _ in pairs])
    target = tokenizer.encode_target_batch([target for _, target in pairs])
    rows = zip(zip(*known, strict=True), source, target, strict=True)
    return [KnownPair(matches, s.words, t.words) for matches, s, t in rows]
