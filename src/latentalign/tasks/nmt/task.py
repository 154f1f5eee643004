"""Translation as a task: its configuration, what the training loop needs of it, and models read back from runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch
from pydantic import Field
from torch import Tensor, nn

from latentalign.config import Section
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.objectives import Objective
from latentalign.core.predictives import parse_predict
from latentalign.errors import CheckpointError, InputError
from latentalign.storage import fingerprint
from latentalign.tasks.nmt.data import Batch, Batches, Corpus, DataConfig, SplitConfig, build_cache, collate
from latentalign.tasks.nmt.inference_network import InferenceConfig, external_scores
from latentalign.tasks.nmt.link_formats import read_links
from latentalign.tasks.nmt.links import Links
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel, count_parameters
from latentalign.tasks.nmt.tokenizer import EOS, Tokenizer, TokenizerConfig
from latentalign.textfiles import read_parallel
from latentalign.training.distributed import World
from latentalign.training.loop import Task, TrainingConfig, perplexity
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.run import Run
from latentalign.training.session import Craft, LossModule, Recipe, load_parts

EVALUATION_TOKENS = 4096


class SearchConfig(Section):
    """Beam search in evaluation and translation."""

    beam: int = Field(10, ge=1)
    """Number of hypotheses kept at each step."""
    length_penalty: float = 1.0
    """Exponent of the length normalisation ((5 + length) / 6). Use 0 to disable it."""
    eos_norm: float = 0.0
    """Subtract this value times |x| / length from log p(end of sentence). The paper's published runs used 3."""
    max_length_ratio: float = 2.0
    """A translation ends at this many tokens per source token, plus `max_length_extra`."""
    max_length_extra: int = 10
    """Tokens that a translation may have beyond `max_length_ratio`."""


class NMTConfig(Recipe):
    """A whole recipe."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    inference: InferenceConfig = InferenceConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig(batch_tokens=4096)
    search: SearchConfig = SearchConfig()


class ExternalLinks:
    """q from another aligner: the links of a corpus, ready to become scores of a batch."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, split: SplitConfig, *, key: str, smoothing: float
    ) -> None:
        if split.links is None:
            raise InputError(f'inference.kind = "external" needs data.{key}.links, a Pharaoh file')
        links = read_links(split.links)
        lines = list(read_parallel(split.source, split.target))
        if len(links) != len(lines):
            raise InputError(f"{split.links} has {len(links)} lines, {split.source} has {len(lines)}")
        kept = [corpus.line(i) - 1 for i in range(len(corpus))]
        self.links: list[Links] = [links[i] for i in kept]
        self.source = [e.words for e in tokenizer.encode_source_batch([lines[i][0] for i in kept])]
        self.target = [e.words for e in tokenizer.encode_target_batch([lines[i][1] for i in kept])]
        self.smoothing = smoothing

    def scores(self, batch: Batch) -> Tensor:
        rows = batch.index.tolist()
        picked = ([x[i] for i in rows] for x in (self.links, self.source, self.target))
        shape = (len(rows), batch.target.shape[1], batch.source.shape[1])
        return external_scores(*picked, smoothing=self.smoothing, shape=shape)


class TranslationTask:
    """What the training loop needs of translation."""

    def __init__(
        self,
        config: NMTConfig,
        tokenizer: Tokenizer,
        folder: Path,
        model: TranslationModel,
        *,
        world: World | None = None,
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.objective = config.objective.build()
        self.module = LossModule(model, self.objective)
        data, training = config.data, config.training
        self.train, self.valid = build_caches(config, tokenizer, folder)
        sizes = {"batch_tokens": training.batch_tokens, "batch_sentences": training.batch_sentences}
        if not any(sizes.values()):
            sizes["batch_tokens"] = 4096
        place = {} if world is None else {"rank": world.rank, "world": world.size}
        self.batches = Batches(self.train, seed=training.seed, **sizes, **place)
        self.device = torch.device(training.device)
        self.external: dict[str, ExternalLinks] = {}
        if self.objective.needs_inferred and config.inference.kind == "external":
            smoothing = config.inference.smoothing
            for key, corpus, split in (("train", self.train, data.train), ("valid", self.valid, data.valid)):
                self.external[key] = ExternalLinks(corpus, tokenizer, split, key=key, smoothing=smoothing)

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return self.batches.epoch_batches(number)

    def batch(self, key: np.ndarray) -> tuple[Batch, Tensor | None]:
        return self.with_external("train", collate(self.train, key) if len(key) else nothing())

    def with_external(self, split: str, batch: Batch) -> tuple[Batch, Tensor | None]:
        external = None
        if split in self.external:
            shape = (*batch.target.shape, batch.source.shape[1])
            given = self.external[split].scores(batch) if len(batch.index) else torch.zeros(shape)
            external = given.to(self.device)
        return batch.to(self.device), external

    def describe(self, key: np.ndarray) -> str:
        lines = ", ".join(str(self.train.line(int(i))) for i in key)
        return f"{self.config.data.train.source} lines {lines}"

    def validate(self) -> dict[str, float]:
        """The bound's perplexity and the objective's own honest one."""
        own = parse_predict(self.objective.predict)
        bound = ppl = entropy = 0.0
        tokens = 0
        for batch in evaluation_batches(self.valid):
            pairs, external = self.with_external("valid", batch)
            latent = self.module.model.latent(pairs, external)
            bound += float(self.objective(latent).value.double().sum())
            ppl += float(own.log_prob(latent).double().sum())
            entropy += float(mean_entropy(latent.prior.mean).double().sum())
            tokens += pairs.tokens
        return {
            "bound": perplexity(bound, tokens),
            "ppl": perplexity(ppl, tokens),
            "entropy": entropy / tokens,
        }

    def model_tensors(self) -> dict[str, Tensor]:
        return dict(self.module.model.state_dict())


def nothing() -> Batch:
    """A process's share of a batch that has none for it: no token, but every parameter takes part."""
    one, here = torch.full((1, 1), EOS), torch.ones(1, 1, dtype=torch.bool)
    return Batch(one, here, one, ~here, torch.zeros(0, dtype=torch.int64))


def build_caches(config: NMTConfig, tokenizer: Tokenizer, folder: Path) -> tuple[Corpus, Corpus]:
    """Training and validation text as ids; made where they are not there yet."""
    data = config.data
    train = build_cache(
        tokenizer, data.train, folder / "train", max_length=data.max_length, max_dropped=data.max_dropped
    )
    return train, build_cache(tokenizer, data.valid, folder / "valid", max_length=None)


def bleu_metric(config: NMTConfig) -> sacrebleu.BLEU:
    """BLEU as the recipe wants it."""
    return sacrebleu.BLEU(
        lowercase=config.tokenizer.lowercase, tokenize=config.data.bleu_tokenize, force=True
    )


def bleu_signature(config: NMTConfig) -> str:
    """What sacrebleu says of that metric; it has to have scored something first."""
    metric = bleu_metric(config)
    metric.corpus_score(["-"], [["-"]])
    return str(metric.get_signature())


def mean_entropy(mean: Tensor) -> Tensor:
    """The entropy of an alignment distribution's mean, in nats: the paper's "implied discrete entropy"."""
    return -torch.xlogy(mean, mean).sum(-1)


def evaluation_batches(corpus: Corpus) -> Iterator[Batch]:
    """All pairs of a corpus in order of length."""
    for indices in Batches(corpus, batch_tokens=EVALUATION_TOKENS, shuffle=False).epoch_batches(0):
        yield collate(corpus, indices)


def build_model(config: NMTConfig, tokenizer: Tokenizer) -> TranslationModel:
    """The model that a recipe describes, with the parts its objective needs."""
    objective = config.objective.build()
    if config.inference.kind == "external" and not DISTRIBUTIONS[objective.distribution].supports(
        "enumerate"
    ):
        raise InputError(f'{config.objective.name} has no external q; set inference.kind = "network"')
    try:
        return TranslationModel(
            config.model,
            source_size=tokenizer.source_size,
            target_size=tokenizer.target_size,
            distribution=objective.distribution,
            inference=config.inference if objective.needs_inferred else None,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


def obtain_tokenizer(config: NMTConfig, run: Run) -> Tokenizer:
    """The run's tokenizer, learned from its training text unless that was done before."""
    if run.tokenizer.is_file():
        return Tokenizer.load(run.tokenizer)
    tokenizer = Tokenizer.learn(config.tokenizer, config.data.train.source, config.data.train.target)
    tokenizer.save(run.tokenizer)
    return tokenizer


class Translation(Craft[NMTConfig, Tokenizer]):
    """Translation as a task that can be trained."""

    name = "nmt"
    recipe = NMTConfig

    def needed(self, config: NMTConfig) -> Path:
        last = config.data.test or config.data.valid
        return last.gold or last.target

    def prepare(self, config: NMTConfig, run: Run) -> None:
        build_caches(config, obtain_tokenizer(config, run), run.cache)

    def vocabulary(self, run: Run) -> Tokenizer:
        return Tokenizer.load(run.tokenizer)

    def model(self, config: NMTConfig, vocabulary: Tokenizer, run: Run) -> TranslationModel:
        return build_model(config, vocabulary)

    def task(
        self, config: NMTConfig, vocabulary: Tokenizer, run: Run, *, model: nn.Module, world: World
    ) -> TranslationTask:
        return TranslationTask(config, vocabulary, run.cache, model, world=world)

    def card(self, config: NMTConfig, task: Task, model: nn.Module) -> dict[str, Any]:
        """Hashes of the text, what was kept of it, and sizes."""
        assert isinstance(task, TranslationTask)
        splits = {"train": config.data.train, "valid": config.data.valid, "test": config.data.test}
        data = {
            name: {"source": fingerprint(split.source), "target": fingerprint(split.target)}
            for name, split in splits.items()
            if split is not None
        }
        return {
            "data": data,
            "pairs": {"train": len(task.train), "valid": len(task.valid)},
            "dropped": dict(task.train.dropped),
            "vocabulary": {"source": task.tokenizer.source_size, "target": task.tokenizer.target_size},
            "bleu": bleu_signature(config),
            "parameters": count_parameters(model),
        }


TRANSLATION = Translation()
train = TRANSLATION.train


@dataclass(frozen=True, eq=False)
class Trained:
    """A model read back from a run directory, with all that belongs to it."""

    run: Run
    config: NMTConfig
    tokenizer: Tokenizer
    model: TranslationModel
    objective: Objective

    @classmethod
    def load(cls, folder: Path | str, *, device: str = "cpu", double: bool = False) -> Trained:
        """The best model of a run; every fault of its files is a CheckpointError."""
        run, config, tokenizer, model = load_parts(TRANSLATION, folder, device=device, double=double)
        return cls(run, config, tokenizer, model, config.objective.build())

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return self.run.history()

    def card(self) -> dict[str, Any]:
        """card.json."""
        try:
            card: dict[str, Any] = json.loads(self.run.card.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.run.card}: cannot be read: {error}") from None
        return card
