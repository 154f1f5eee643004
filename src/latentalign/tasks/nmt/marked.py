"""Translation of lines with markup: the model sees the text, and tags follow the words that generated the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from latentalign.links.words import WordAlignment
from latentalign.markup.document import Document
from latentalign.markup.project import project_document
from latentalign.tasks.marked_text import plain_line, weighted_links
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.translate import Translation, TranslationJob, TranslationSettings

TOGETHER = 100
"""Lines that are aligned together."""


class MarkedTranslationJob(TranslationJob):
    """Lines with markup to translate. Every translation has a projection, along its exact posterior."""

    def __init__(
        self,
        trained: TrainedTranslator,
        documents: Sequence[Document],
        settings: TranslationSettings,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(trained, [plain_line(document) for document in documents], settings, check=check)
        self.documents = documents

    def translate(self, report: Callable[[int], None] | None = None) -> Iterator[list[Translation]]:
        """The n best translations of every line, with the markup of the line."""
        translated, start = super().translate(report), 0
        while group := list(islice(translated, TOGETHER)):
            best = [outputs[: self.settings.nbest] for outputs in group]
            aligned = self.align_outputs(self.source[start : start + len(group)], best)
            for number, (outputs, alignments) in enumerate(zip(best, aligned, strict=True), start=start):
                pairs = zip(outputs, alignments, strict=True)
                yield [self.mark_up(number, one, alignment) for one, alignment in pairs]
            start += len(group)

    def mark_up(self, number: int, output: Translation, alignment: WordAlignment) -> Translation:
        """A translation with the markup of its line."""
        links = weighted_links(alignment.probability, alignment.best())
        words = self.words(self.lines[number], output)
        return replace(
            output, projection=project_document(self.documents[number], output.text, links, words=words)
        )
