"""Lines of text into lines of text: N in, N out, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latentalign.core.predictives import Predictive, parse_predict
from latentalign.errors import InputError
from latentalign.search import BeamSearch, Hypothesis
from latentalign.tasks.nmt.align import Pair, grouped, word_alignments
from latentalign.tasks.nmt.decode import Translator
from latentalign.tasks.nmt.links import WordAlignment
from latentalign.tasks.nmt.task import SearchConfig, Trained
from latentalign.tasks.nmt.tokenizer import EOS, Encoded

CHUNK = 2000


@dataclass(frozen=True)
class Settings:
    """How to translate; what is None is as in the run's recipe."""

    predict: str | None = None
    beam: int | None = None
    length_penalty: float | None = None
    nbest: int = 1
    batch_tokens: int = 1024
    """Padded source tokens of a batch."""
    max_source: int = 1000
    """Source tokens beyond which a line is cut."""

    def search(self, defaults: SearchConfig) -> BeamSearch:
        """The beam search they describe."""
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


def translate_lines(
    trained: Trained, lines: Sequence[str], settings: Settings
) -> Iterator[list[Translation]]:
    """The n best of every line, in order; a line without words gives one empty translation."""
    predict = predictive(trained, settings.predict or trained.objective.predict)
    translator = Translator(trained.model, settings.search(trained.config.search), predict)
    for start in range(0, len(lines), CHUNK):
        chunk = lines[start : start + CHUNK]
        encoded = [e.ids[: settings.max_source] for e in trained.tokenizer.encode_source_batch(chunk)]
        found: dict[int, list[Translation]] = {}
        blank = {i for i, ids in enumerate(encoded) if not ids}
        groups = list(grouped([len(ids) for ids in encoded], skip=blank, limit=settings.batch_tokens))
        outputs = translator.batches([[encoded[i] for i in group] for group in groups])
        for group, best in zip(groups, outputs, strict=True):
            for i, hypotheses in zip(group, best, strict=True):
                found[i] = [finished(trained, h) for h in hypotheses]
        for i in range(len(chunk)):
            yield found.get(i, [Translation("", 0.0, 0.0, ())])


def predictive(trained: Trained, how: str) -> Predictive:
    """Predictive inference by name, if the model's distribution supports it."""
    try:
        found = parse_predict(how)
        found.check(trained.model.distribution)
    except (ValueError, TypeError) as error:
        raise InputError(f"{trained.config.objective.name}: {error}") from None
    return found


def finished(trained: Trained, hypothesis: Hypothesis) -> Translation:
    """A hypothesis as text."""
    ids = tuple(i for i in hypothesis.tokens if i != EOS)
    return Translation(trained.tokenizer.decode_target(ids), hypothesis.log_prob, hypothesis.score, ids)


def output_alignments(
    trained: Trained, lines: Sequence[str], outputs: Sequence[Translation]
) -> list[WordAlignment]:
    """For every output word the source words that generated it: the exact posterior of the finished output."""
    using = "posterior" if trained.model.distribution.supports("enumerate") else "prior"
    targets = [Encoded(list(o.ids), list(trained.tokenizer.target_words(o.ids))) for o in outputs]
    pairs = [Pair(s, t) for s, t in zip(trained.tokenizer.encode_source_batch(lines), targets, strict=True)]
    found = {i: by_name[using] for i, by_name in word_alignments(trained, pairs, [using])}
    return [found[i] for i in range(len(pairs))]
