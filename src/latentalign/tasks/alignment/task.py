"""The alignment task: an aligner as a run directory, for every command that takes one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from latentalign.aligner import Aligner, train_aligner
from latentalign.aligner.training import NothingToLearnError
from latentalign.errors import CheckpointError, InputError
from latentalign.progress import inform
from latentalign.storage import RECOVERY, format_json, parse_saved_json, read_saved, sha256, write_text
from latentalign.tasks.alignment.figure_notes import FIGURES
from latentalign.tasks.alignment.recipe import AlignmentConfig
from latentalign.tasks.base import EvaluationOptions, Task, Trained, choose_split
from latentalign.tasks.splits import TextSplit
from latentalign.textfiles import require_equal_lines
from latentalign.training.distributed import World
from latentalign.training.resume import require_same_recipe
from latentalign.training.run import Run

if TYPE_CHECKING:
    from fastapi import FastAPI

    from latentalign.aligner.text import AlignedStream, LinkOptions
    from latentalign.reproduction.experiment import Experiment
    from latentalign.tasks.diagnosis import ExampleSet
    from latentalign.tasks.text_checks.report import MisalignedOptions


class WordLists:
    """The words of both languages, in the order of the aligner's tables."""

    def __init__(self, source: list[str], target: list[str]) -> None:
        self.source, self.target = source, target

    def fingerprint(self) -> str:
        """SHA-256 of the words."""
        return sha256("\n".join([*self.source, "", *self.target]).encode())


class AlignerModel(nn.Module):
    """An aligner in the place of a neural model."""

    def __init__(self, aligner: Aligner) -> None:
        super().__init__()
        self.aligner = aligner
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)  # tells where the model computes


def list_words(aligner: Aligner) -> WordLists:
    """The words that an aligner knows."""
    source, target = (list(vocabulary.ids) for vocabulary in aligner.words.vocabularies)
    return WordLists(source, target)


def recipe_of_files(
    source: Path | None, target: Path | None, pairs: Path | None, *, tokenize: str
) -> AlignmentConfig:
    """The recipe that learns from the files that a command was given."""
    files = {"source": source, "target": target, "pairs": pairs}
    given = {name: str(path.absolute()) for name, path in files.items() if path is not None}
    if sorted(given) not in (["pairs"], ["source", "target"]):
        raise InputError("pass --source and --target with one file each, or --pairs with one file for both")
    kinds = tokenize.split(",")
    if len(kinds) > 2 or not set(kinds) <= {"words", "characters"}:
        raise InputError(
            "--tokenize must be words or characters, or one of them for each side with a comma between, "
            f"got {tokenize!r}"
        )
    sides = dict(zip(("tokenize", "target_tokenize"), kinds, strict=False))
    return AlignmentConfig.model_validate({"data": {"train": given}, "aligner": sides})


TrainedAligner = Trained[AlignmentConfig, WordLists, AlignerModel]


def refuse_gradients(what: str) -> NoReturn:
    """Say why something about gradients does not apply."""
    raise InputError(f"{what} is about training by gradients; an aligner learns by counting")


class AlignmentTask(Task[AlignmentConfig, WordLists, AlignerModel]):
    """Parallel text in, word links with probabilities out."""

    name = "alignment"
    title = "word alignment"
    recipe = AlignmentConfig
    figure_notes = FIGURES
    optional_files = frozenset({"gold"})

    def required_file(self, config: AlignmentConfig) -> Path:
        last = config.data.test or config.data.train
        return last.gold or list(last.files.values())[-1]

    def check_recipe(self, config: AlignmentConfig) -> None:
        if config.objective.name != "marginal":
            raise InputError(
                f"an aligner maximises the exact marginal likelihood; it has no objective {config.objective.name}"
            )

    def check_files(self, config: AlignmentConfig) -> None:
        super().check_files(config)
        for split in filter(None, (config.data.train, config.data.test)):
            require_equal_lines(split.text("source"), split.text("target"))

    def prepare(self, config: AlignmentConfig, run: Run, world: World) -> NoReturn:
        refuse_gradients("preparing batches")

    def build_model(self, config: AlignmentConfig, vocabulary: WordLists) -> NoReturn:
        refuse_gradients("building a model before training")

    def train(
        self, config: AlignmentConfig, run: Run, *, resume: bool, overwrite: bool, logger: Any = None
    ) -> dict[str, Any]:
        """Train an aligner into a run directory. If it is complete, `resume` has nothing to do."""
        self.check(config)
        run.check_free(resume=resume, overwrite=overwrite)
        self.check_files(config)
        with ExitStack() as stack:
            stack.enter_context(run.lock(wait=resume))
            stack.enter_context(run.undo_if_refused())
            if resume and run.model.is_file():
                require_same_recipe(config, run.read_recipe().build(self.recipe))
                return self.summarise(run)
            self.open_run(config, run, resume=resume, overwrite=overwrite)
            torch.set_num_threads(config.training.threads)
            began = time.monotonic()
            aligner = train_aligner(
                config.data.train.read(), config.aligner, folder=run.cache, name=str(run.folder)
            )
            return self.save(aligner, config, run, seconds=time.monotonic() - began)

    def train_on_text(
        self, config: AlignmentConfig, folder: Path | None, *, overwrite: bool
    ) -> TrainedAligner:
        """A new aligner. Without a folder it is not kept, and a text without words is no error."""
        if folder is not None:
            run = Run(folder)
            self.train(config, run, resume=False, overwrite=overwrite)
            return self.load(folder)
        self.check(config)
        self.check_files(config)
        torch.set_num_threads(config.training.threads)
        try:
            aligner = train_aligner(config.data.train.read(), config.aligner)
        except NothingToLearnError as error:
            inform(str(error))
            aligner = Aligner.untrained(config.aligner)
        return Trained(
            Run(Path()), config, list_words(aligner), AlignerModel(aligner), config.objective.prototype
        )

    def save(self, aligner: Aligner, config: AlignmentConfig, run: Run, *, seconds: float) -> dict[str, Any]:
        """Write an aligner into an open run directory."""
        words = list_words(aligner)
        write_text(run.tokenizer, format_json({"source": words.source, "target": words.target}))
        metadata = {"task": self.name, "tokenizer": words.fingerprint(), "objective": config.objective.name}
        run.save_model(aligner.tensors(), metadata)
        run.forget_replaced()
        for step, figures in enumerate(aligner.history, start=1):
            run.log({"kind": "pass", "step": step, **figures})
        run.write_card(
            {
                "task": self.name,
                "seconds": seconds,
                "words": [len(words.source), len(words.target)],
                "data": {"train": config.data.train.fingerprints()},
            }
        )
        return self.summarise(run)

    def summarise(self, run: Run) -> dict[str, Any]:
        """The figures of a trained run."""
        passes = [record for record in run.history() if record["kind"] == "pass"]
        last = {k: v for k, v in passes[-1].items() if k not in ("kind", "step")} if passes else {}
        card = run.read_card()
        return {"seconds": card.get("seconds"), "words": card.get("words"), **last, "phases": []}

    def load_vocabulary(self, run: Run) -> WordLists:
        lists = parse_saved_json(run.tokenizer, read_saved(run.tokenizer))
        try:
            source, target = ([str(word) for word in lists[side]] for side in ("source", "target"))
        except (KeyError, TypeError):
            raise CheckpointError(f"{run.tokenizer}: expected two lists of words; {RECOVERY}") from None
        return WordLists(source, target)

    def restore_model(
        self, config: AlignmentConfig, vocabulary: WordLists, tensors: Mapping[str, torch.Tensor]
    ) -> AlignerModel:
        words = (vocabulary.source, vocabulary.target)
        return AlignerModel(Aligner.from_tensors(config.aligner, words, tensors))

    def align(
        self,
        trained: TrainedAligner,
        pairs: Iterable[tuple[str, str]],
        *,
        reverse: Any = None,
        **options: Any,
    ) -> AlignedStream:
        """Word links of sentence pairs; the options are those of `link_options`."""
        from latentalign.aligner.text import AlignedStream

        if reverse is not None:
            raise InputError("--reverse does not apply: an aligner has both directions already")
        if "lexicon" in options:
            raise InputError("--lexicon does not apply to an aligner; align with a translation run")
        return AlignedStream(trained.model.aligner, pairs, self.link_options(**options))

    def link_options(
        self,
        *,
        threshold: float | None = None,
        at_least: float | None = None,
        symmetrize: str | None = None,
        **options: Any,
    ) -> LinkOptions:
        """The options of `align`; an InputError if one is wrong."""
        from latentalign.aligner.text import LinkOptions

        least = at_least if at_least is not None else threshold
        return LinkOptions(symmetrize=symmetrize or "mean", at_least=least, **options)

    def find_split(self, trained: TrainedAligner, split: str) -> TextSplit:
        data = trained.config.data
        found: TextSplit = choose_split({"train": data.train, "test": data.test}, split, trained.run.folder)
        return found

    def evaluate(
        self, trained: TrainedAligner, split: str, options: EvaluationOptions
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        from latentalign.tasks.alignment.evaluate import evaluate, example_records

        text = self.find_split(trained, split)
        result = {"split": split, **evaluate(trained.model.aligner, text)}
        if options.details is None:
            return result, None
        return result, {"examples": example_records(trained.model.aligner, text, options.details)}

    def examples(self, trained: TrainedAligner, split: str, count: int) -> list[dict[str, Any]]:
        from latentalign.tasks.alignment.evaluate import example_records

        return example_records(trained.model.aligner, self.find_split(trained, split), count)

    def example_set(self, trained: TrainedAligner, split: str) -> ExampleSet:
        refuse_gradients("`latentalign diagnose`")

    def experiment(self) -> Experiment:
        from latentalign.tasks.alignment.experiment import EXPERIMENT

        return EXPERIMENT

    def check_data(self, config: AlignmentConfig, wanted: MisalignedOptions | None = None) -> dict[str, Any]:
        """Counts of flaws in the text of each split, with warnings and notes."""
        from latentalign.tasks.text_checks.check import Limits
        from latentalign.tasks.text_checks.report import check_text

        # The text of a test set may be learned from: its links are what is tested.
        limits = Limits(
            config.aligner.longest, "aligner.longest", 1.0, refuses_blanks=False, may_know_test=True
        )
        found = {"train": config.data.train, "test": config.data.test}
        return check_text({name: text for name, text in found.items() if text}, limits, wanted)

    def serve(self, trained: TrainedAligner, title: str, options: Mapping[str, Any]) -> FastAPI:
        from latentalign.tasks.alignment.serve import build_app

        return build_app(trained.model.aligner, title)


ALIGNMENT = AlignmentTask()
