"""Translation of lines of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.core.predictives import Predictive
from latentalign.errors import InputError
from latentalign.links.aligned import alignment_record
from latentalign.links.words import Word, WordAlignment, find_words
from latentalign.markup.project import Projection
from latentalign.search import BeamSearch, Hypothesis
from latentalign.tasks.likelihoods import parse_predictive
from latentalign.tasks.marked_text import projection_record
from latentalign.tasks.nmt.align import Pair, align_in_order
from latentalign.tasks.nmt.constraints import LexiconUse
from latentalign.tasks.nmt.decode import Translator, group_by_size
from latentalign.tasks.nmt.guidance import LexiconGuide
from latentalign.tasks.nmt.recipe import SearchConfig, TrainedTranslator
from latentalign.tasks.nmt.tokenizer import EOS, Encoded

CHUNK = 2000
LEXICON_WEIGHT = 20.0


@dataclass(frozen=True)
class TranslationSettings:
    """How to translate; None means as in the run's recipe."""

    predict: str | None = None
    beam: int | None = None
    length_penalty: float | None = None
    nbest: int = 1
    batch_tokens: int = 1024
    """Padded source tokens of a batch."""
    max_source: int = 1000
    """Source tokens beyond which a line is cut."""
    lexicon: Path | None = None
    """File of translations that outputs should use."""
    lexicon_weight: float = LEXICON_WEIGHT
    """Bonus in nats for every piece of a known translation, times the probability that z points at its source."""

    def __post_init__(self) -> None:
        if not 0 <= self.lexicon_weight < math.inf:
            raise InputError(f"--lexicon-weight is {self.lexicon_weight}: it must be a number of at least 0")

    def search(self, defaults: SearchConfig) -> BeamSearch:
        """The beam search that these settings describe."""
        return BeamSearch(
            beam=defaults.beam if self.beam is None else self.beam,
            length_penalty=defaults.length_penalty if self.length_penalty is None else self.length_penalty,
            eos_norm=defaults.eos_norm,
            max_length_ratio=defaults.max_length_ratio,
            max_length_extra=defaults.max_length_extra,
            nbest=self.nbest,
        )


@dataclass(frozen=True)
class Translation:
    """One output of one line."""

    text: str
    log_prob: float
    score: float
    ids: tuple[int, ...]
    """Without the end of the sentence."""
    projection: Projection | None = None
    """The text with the markup of the source, if that had some."""

    @property
    def printed(self) -> str:
        """The text, with markup if there is some."""
        return self.projection.text if self.projection else self.text


class TranslationJob:
    """Lines of text that are encoded once, then translated and aligned: N in, N out, in order."""

    def __init__(
        self,
        trained: TrainedTranslator,
        lines: Sequence[str],
        settings: TranslationSettings,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`check` is called before every step of the search, which it may end by raising."""
        self.trained, self.lines, self.settings = trained, lines, settings
        predictive = choose_predictive(trained, settings.predict or trained.objective.predict)
        search = settings.search(trained.config.search)
        self.source = trained.vocabulary.encode_source_batch(lines)
        self.lexicon: LexiconUse | None = None
        """The constraints of each line, if there is a lexicon."""
        guide = None
        if settings.lexicon is not None:
            cut = [e.cut(settings.max_source) for e in self.source]
            self.lexicon = LexiconUse.read(settings.lexicon, trained.vocabulary, lines, cut)
            if settings.lexicon_weight > 0:
                guide = LexiconGuide.of(trained.vocabulary, settings.lexicon_weight)
        self.translator = Translator(trained.model, search, predictive, check, guide)
        self.cut_lines = sum(len(encoded.ids) > settings.max_source for encoded in self.source)
        """Number of lines that are longer than `max_source` tokens and are cut."""

    def translate(self, report: Callable[[int], None] | None = None) -> Iterator[list[Translation]]:
        """The n best translations of every line; a line without words gives one empty translation.

        `report` is called with the number of lines that each batch has translated.
        """
        for start in range(0, len(self.source), CHUNK):
            ids = [encoded.ids[: self.settings.max_source] for encoded in self.source[start : start + CHUNK]]
            blank = {i for i, line in enumerate(ids) if not line}
            groups = list(group_by_size([len(i) for i in ids], skip=blank, limit=self.settings.batch_tokens))
            constraints = None
            if self.lexicon is not None:
                constraints = [[self.lexicon.constraints[start + i] for i in group] for group in groups]
            outputs = self.translator.batches([[ids[i] for i in group] for group in groups], constraints)
            found: dict[int, list[Translation]] = {}
            for group, best in zip(groups, outputs, strict=True):
                for i, hypotheses in zip(group, best, strict=True):
                    found[i] = [self.finish(hypothesis) for hypothesis in hypotheses]
                if report is not None:
                    report(len(group))
            for i in range(len(ids)):
                yield found.get(i, [Translation("", 0.0, 0.0, ())])

    def finish(self, hypothesis: Hypothesis) -> Translation:
        """A hypothesis as text."""
        ids = tuple(i for i in hypothesis.tokens if i != EOS)
        text = self.trained.vocabulary.decode_target(ids)
        return Translation(text, hypothesis.log_prob, hypothesis.score, ids)

    def align(self, outputs: Sequence[Sequence[Translation]]) -> list[list[WordAlignment]]:
        """For each output word, the source words that generated it: the exact posterior of the finished output.

        `outputs` has one list of translations for each line, and so has the result.
        """
        return self.align_outputs(self.source, outputs)

    def align_outputs(
        self, sources: Sequence[Encoded], outputs: Sequence[Sequence[Translation]]
    ) -> list[list[WordAlignment]]:
        """The same for the outputs of some lines."""
        vocabulary = self.trained.vocabulary
        using = "posterior" if self.trained.model.distribution.supports("enumerate") else "prior"
        pairs = [
            Pair(source, Encoded(list(one.ids), list(vocabulary.target_words(one.ids))))
            for source, best in zip(sources, outputs, strict=True)
            for one in best
        ]
        found = iter(align_in_order(self.trained, pairs, using))
        return [[next(found) for _ in best] for best in outputs]

    def alignment_records(self, outputs: Sequence[Sequence[Translation]]) -> Iterator[dict[str, Any]]:
        """Every translation of every line with its word links, as `schema.AlignedTranslation` describes them."""
        aligned = zip(self.lines, outputs, self.align(outputs), strict=True)
        for number, (line, best, alignments) in enumerate(aligned):
            for rank, (one, alignment) in enumerate(zip(best, alignments, strict=True), start=1):
                yield {
                    **alignment_record(number, self.words(line, one), alignment, alignment.best()),
                    "rank": rank,
                    "text": one.text,
                    "log_prob": one.log_prob,
                    "score": one.score,
                    **(projection_record(one.projection) if one.projection else {}),
                    **(self.constraint_record(number, one, alignment) if self.lexicon else {}),
                }

    def constraint_record(self, number: int, output: Translation, alignment: WordAlignment) -> dict[str, Any]:
        """What became of the lexicon's entries, as `schema.ConstraintOutcome` describes it."""
        assert self.lexicon is not None
        target = [word.text for word in self.words(self.lines[number], output)[1]]
        return {"constraints": self.lexicon.records(number, target, alignment)}

    def lexicon_summary(self, outputs: Sequence[Sequence[Translation]]) -> list[str]:
        """How many entries of the lexicon the best outputs satisfy, and examples of the others, as lines."""
        if self.lexicon is None:
            return []
        rows = zip(self.lines, outputs, strict=True)
        return self.lexicon.summary(
            [word.text for word in self.words(line, best[0])[1]] for line, best in rows
        )

    def words(self, line: str, output: Translation) -> tuple[list[Word], list[Word]]:
        """The words of a line and of its translation."""
        source, target = self.trained.vocabulary.find_pair_words(line, output.text)
        # The text of segmented words is joined, so that it has no marks to look for.
        return source, find_words(
            output.text
        ) if self.trained.config.tokenizer.kind == "segmented" else target


def translate_lines(
    trained: TrainedTranslator,
    lines: Sequence[str],
    settings: TranslationSettings,
    *,
    check: Callable[[], None] | None = None,
) -> Iterator[list[Translation]]:
    """The n best translations of every line, in order."""
    return TranslationJob(trained, lines, settings, check=check).translate()


def choose_predictive(trained: TrainedTranslator, how: str) -> Predictive:
    """A predictive inference by name, if the model's distribution supports it."""
    found = parse_predictive(how)
    try:
        found.check(trained.model.distribution)
    except (ValueError, TypeError) as error:
        raise InputError(f"{trained.config.objective.name}: {error}") from None
    return found
