"""Translation as a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.errors import InputError
from latentalign.tasks.base import EvaluationOptions, Task
from latentalign.tasks.diagnosis import ExampleSet
from latentalign.tasks.nmt.data import Corpus, build_cache, collate
from latentalign.tasks.nmt.external import obtain_links
from latentalign.tasks.nmt.figure_notes import FIGURES
from latentalign.tasks.nmt.model import TranslationModel
from latentalign.tasks.nmt.recipe import NMTConfig, TrainedTranslator
from latentalign.tasks.nmt.splits import DataConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.tasks.nmt.training_data import TranslationData
from latentalign.tasks.text_checks.check import Limits
from latentalign.textfiles import require_equal_lines
from latentalign.training.distributed import World
from latentalign.training.run import Run

if TYPE_CHECKING:
    from fastapi import FastAPI

    from latentalign.links.aligned import AlignedText
    from latentalign.markup.document import Document
    from latentalign.reproduction.experiment import Experiment
    from latentalign.tasks.nmt.translate import TranslationJob
    from latentalign.tasks.text_checks.report import MisalignedOptions


class TranslationTask(Task[NMTConfig, Tokenizer, TranslationModel]):
    """Parallel text in, a model that translates and aligns words out."""

    name = "nmt"
    title = "translation"
    recipe = NMTConfig
    figure_notes = FIGURES

    def required_file(self, config: NMTConfig) -> Path:
        last = config.data.test or config.data.valid
        return last.gold or list(last.files.values())[-1]

    def check_recipe(self, config: NMTConfig) -> None:
        distribution = DISTRIBUTIONS[config.objective.prototype.distribution]
        if config.inference.kind != "network" and not distribution.supports("enumerate"):
            raise InputError(f'{config.objective.name} has no q from links; set inference.kind = "network"')

    def check_files(self, config: NMTConfig) -> None:
        super().check_files(config)
        data = config.data
        for split in filter(None, (data.train, data.valid, data.test)):
            require_equal_lines(split.text("source"), split.text("target"))

    def prepare(self, config: NMTConfig, run: Run, world: World) -> TranslationData:
        tokenizer = obtain_tokenizer(config, run)
        known = run.read_card().get("data")  # there is a card if the run has begun before
        corpora = build_caches(config, tokenizer, run.cache, expected=known)
        links = obtain_links(config, tokenizer, run.cache)
        return TranslationData(config, tokenizer, corpora, links=links, world=world)

    def load_vocabulary(self, run: Run) -> Tokenizer:
        return Tokenizer.load(run.tokenizer)

    def build_model(self, config: NMTConfig, vocabulary: Tokenizer) -> TranslationModel:
        self.check_recipe(config)
        objective = config.objective.build()
        try:
            return TranslationModel(
                config.model,
                source_size=vocabulary.source_size,
                target_size=vocabulary.target_size,
                distribution=objective.distribution,
                prior=config.prior,
                inference=config.inference if objective.needs_inferred else None,
            )
        except ValueError as error:
            raise InputError(str(error)) from None

    def evaluate(
        self, trained: TrainedTranslator, split: str, options: EvaluationOptions
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        from latentalign.tasks.likelihoods import KMAX
        from latentalign.tasks.nmt.details import SentenceScores, details
        from latentalign.tasks.nmt.evaluate import evaluate, open_split, translate_split
        from latentalign.tasks.nmt.translate import TranslationSettings

        outputs = None
        if options.outputs or options.details is not None:
            settings = TranslationSettings(predict=options.predict, beam=options.beam)
            outputs = translate_split(trained, split, settings)
        scores = SentenceScores(open_split(trained, split)) if options.details is not None else None
        result = evaluate(trained, split, predict=options.predict, outputs=outputs, also=scores)
        if options.details is None or outputs is None or scores is None:
            return result, None
        by_kmax = outputs if options.predict == f"kmax:{KMAX}" and options.beam is None else None
        count = options.details
        return result, details(trained, split, outputs, scores, sentences=count, by_kmax=by_kmax)

    def examples(self, trained: TrainedTranslator, split: str, count: int) -> list[dict[str, Any]]:
        from latentalign.tasks.nmt.details import example_alignments

        return example_alignments(trained, split, count)

    def example_set(self, trained: TrainedTranslator, split: str) -> ExampleSet:
        from latentalign.tasks.nmt.evaluate import open_split

        corpus = open_split(trained, split)
        return ExampleSet(len(corpus), lambda start, stop: collate(corpus, range(start, stop)))

    def experiment(self) -> Experiment:
        from latentalign.tasks.nmt.experiment import EXPERIMENT

        return EXPERIMENT

    def serve(self, trained: TrainedTranslator, title: str, options: Mapping[str, Any]) -> FastAPI:
        from latentalign.tasks.nmt.serve import build_app

        return build_app(trained, title)

    def translate(self, trained: TrainedTranslator, lines: Sequence[str], **settings: Any) -> TranslationJob:
        """Lines that are encoded once, to be translated and aligned; the settings are `TranslationSettings`."""
        from latentalign.tasks.nmt.translate import TranslationJob, TranslationSettings

        return TranslationJob(trained, lines, TranslationSettings(**settings))

    def translate_marked(
        self, trained: TrainedTranslator, documents: Sequence[Document], **settings: Any
    ) -> TranslationJob:
        """The same for lines with markup."""
        from latentalign.tasks.nmt.marked import MarkedTranslationJob
        from latentalign.tasks.nmt.translate import TranslationSettings

        return MarkedTranslationJob(trained, documents, TranslationSettings(**settings))

    def align(
        self, trained: TrainedTranslator, pairs: Iterable[tuple[str, str]], **options: Any
    ) -> AlignedText:
        """Word alignments of given sentence pairs; the options are those of `align_text`."""
        from latentalign.tasks.nmt.align_text import align_text

        for name in options.keys() & {"nbest", "phrases"}:
            raise InputError(f"--{name} applies to an aligner; this is a run of translation")
        return align_text(trained, pairs, **options)

    def check_data(self, config: NMTConfig, wanted: MisalignedOptions | None = None) -> dict[str, Any]:
        """Counts of flaws in the text of each split, with warnings and notes."""
        from latentalign.tasks.text_checks.report import check_text

        return check_text(config.data.splits, limits_of(config.data), wanted)


def limits_of(data: DataConfig) -> Limits:
    """What translation does about blank and long pairs."""
    return Limits(data.max_length, "data.max_length", data.max_dropped)


def build_caches(
    config: NMTConfig, tokenizer: Tokenizer, folder: Path, *, expected: Any = None
) -> tuple[Corpus, Corpus]:
    """Training and validation text as ids, encoded unless that was done before.

    `expected` has the fingerprints of each split, as in `card.json`. Other text is refused.
    """
    data, known = config.data, expected if isinstance(expected, dict) else {}
    train = build_cache(
        tokenizer,
        data.train,
        folder / "train",
        max_length=data.max_length,
        max_dropped=data.max_dropped,
        processes=data.processes,
        expected=known.get("train"),
    )
    valid = build_cache(
        tokenizer,
        data.valid,
        folder / "valid",
        max_length=None,
        processes=data.processes,
        expected=known.get("valid"),
    )
    return train, valid


def obtain_tokenizer(config: NMTConfig, run: Run) -> Tokenizer:
    """The run's tokenizer, learned from its training text unless that was done before."""
    if run.tokenizer.is_file():
        return Tokenizer.load(run.tokenizer)
    text = config.data.train
    tokenizer = Tokenizer.learn(config.tokenizer, text.text("source"), text.text("target"))
    tokenizer.save(run.tokenizer)
    return tokenizer


TRANSLATION = TranslationTask()
