"""Translation as a task: its configuration, what the training loop needs of it, and models read back from runs."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from latentalign import config as recipes
from latentalign.config import Section
from latentalign.core.objectives import Objective, trainable_parts
from latentalign.core.predict import log_predictive, parse_predict
from latentalign.errors import CheckpointError, InputError
from latentalign.nmt.data import Batch, Batches, Corpus, DataConfig, SplitConfig, build_cache, collate
from latentalign.nmt.inference_network import InferenceConfig, external_scores
from latentalign.nmt.link_formats import read_links
from latentalign.nmt.links import Links
from latentalign.nmt.model import ModelConfig, TranslationModel, count_parameters
from latentalign.nmt.tokenizer import EOS, Tokenizer, TokenizerConfig
from latentalign.textfiles import fingerprint, read_parallel
from latentalign.training import checkpoint
from latentalign.training.distributed import World, joined
from latentalign.training.loop import Sums, Trainer, TrainingConfig, perplexity
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.run import Run

EVALUATION_TOKENS = 4096
RANK_SEED = 1_000_003


class SearchConfig(Section):
    """Beam search, for evaluation and translation."""

    beam: int = Field(10, ge=1)
    length_penalty: float = 1.0
    eos_norm: float = 0.0
    """Subtract this times |x| / length from log p(end of sentence), as the published runs did with 3."""
    max_length_ratio: float = 2.0
    max_length_extra: int = 10


class NMTConfig(Section):
    """A whole recipe."""

    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    inference: InferenceConfig = InferenceConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig(batch_tokens=4096)
    search: SearchConfig = SearchConfig()


class LossModule(nn.Module):
    """Model and objective as one module: batch -> summed surrogate and figures."""

    def __init__(self, model: TranslationModel, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self.parts = trainable_parts(objective)

    def forward(self, batch: tuple[Batch, Tensor | None]) -> Sums:
        pairs, external = batch
        estimate = self.objective(self.model.latent(pairs, external))
        terms = {name: value.sum() for name, value in estimate.terms.items()}
        return Sums(estimate.surrogate.sum(), estimate.value.sum(), terms, pairs.tokens, len(pairs.index))


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
            ppl += float(log_predictive(latent, own).double().sum())
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
    if objective.family != "categorical" and config.inference.kind == "external":
        raise InputError(f'{config.objective.name} has no external q; set inference.kind = "network"')
    try:
        return TranslationModel(
            config.model,
            source_size=tokenizer.source_size,
            target_size=tokenizer.target_size,
            family=objective.family,
            inference=config.inference if objective.needs_inferred else None,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


def train(config: NMTConfig, run: Run, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Train a recipe into a run directory; what the best model measured on the validation set."""
    with joined(config.training.device) as world, run.alone(resume) if world.leader else nullcontext():
        world.wait()
        going_on = resume and checkpoint.exists(run.checkpoint)
        world.wait()
        if world.leader:  # what is written is written before the others look
            prepare(config, run, resume=resume, overwrite=overwrite)
        world.wait()
        return train_together(config, run, world, going_on=going_on)


def prepare(config: NMTConfig, run: Run, *, resume: bool, overwrite: bool) -> None:
    """The run directory with its recipe, tokenizer and cache."""
    run.begin(resume=resume, overwrite=overwrite)
    if resume and run.config.is_file():
        require_same(config, recipes.load(run.config, NMTConfig))
    run.write_config(recipes.dump(config))
    tokenizer = obtain_tokenizer(config, run)
    build_caches(config, tokenizer, run.cache)


def train_together(config: NMTConfig, run: Run, world: World, *, going_on: bool) -> dict[str, Any]:
    """This process's part of a training whose run directory is prepared."""
    torch.set_num_threads(config.training.threads)
    tokenizer = Tokenizer.load(run.tokenizer)
    checkpoint.seed(config.training.seed)
    model = build_model(config, tokenizer).to(torch.device(config.training.device))
    if config.training.precision == "float64":
        model = model.double()
    if not going_on:
        warm_up(model, config, run, tokenizer, world=world)
    task = TranslationTask(config, tokenizer, run.cache, model, world=world)
    metadata = {"task": "nmt", "tokenizer": tokenizer.fingerprint(), "objective": config.objective.name}
    if any(isinstance(p, nn.UninitializedParameter) for p in task.module.parameters()):
        with torch.no_grad():  # lazy layers of a learned baseline take their shape from a first batch
            task.module(task.with_external("train", collate(task.train, [0, 1])))
    if world.rank:  # other noise than the leader's, which is that of a single process
        checkpoint.seed(config.training.seed + world.rank * RANK_SEED)
    trainer = Trainer(task, run, config.training, metadata=metadata, world=world)
    if going_on:
        trainer.load()
    if world.leader:
        write_card(run, config, task, model, processes=world.size)
    schedule = trainer.train()
    return {
        "ppl": schedule.best_ppl,
        "bound": schedule.best_bound,
        "steps": trainer.position.step,
        "epochs": trainer.position.epoch,
        "seconds": round(trainer.position.seconds, 1),
        "tokens_per_second": round(trainer.position.tokens / max(1e-9, trainer.position.seconds), 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def require_same(asked: NMTConfig, trained: NMTConfig) -> None:
    """Raise when a run is to go on as something else than it began; its length may change."""
    free = ("epochs", "max_steps", "max_minutes", "patience", "threads", "checkpoint_steps", "log_steps")
    if asked.training.learning_rate < trained.training.learning_rate:  # what a diverged training needs
        free = (*free, "learning_rate")
    left, right = (
        recipes.dump(c.model_copy(update={"training": strip(c.training, free)})) for c in (asked, trained)
    )
    for ours, theirs in zip(left.splitlines(), right.splitlines(), strict=False):
        if ours != theirs:
            raise InputError(f"--resume: this run was begun with `{theirs}`, the recipe now says `{ours}`")


def strip(training: TrainingConfig, free: Sequence[str]) -> TrainingConfig:
    defaults = TrainingConfig()
    return training.model_copy(update={name: getattr(defaults, name) for name in free})


def obtain_tokenizer(config: NMTConfig, run: Run) -> Tokenizer:
    """The run's tokenizer, learned from its training text unless that was done before."""
    if run.tokenizer.is_file():
        return Tokenizer.load(run.tokenizer)
    tokenizer = Tokenizer.learn(config.tokenizer, config.data.train.source, config.data.train.target)
    tokenizer.save(run.tokenizer)
    return tokenizer


def warm_up(
    model: TranslationModel, config: NMTConfig, run: Run, tokenizer: Tokenizer, *, world: World
) -> None:
    """Start from another run's model, or from one trained on an easier objective first."""
    training = config.training
    source = Path(training.warm_start) if training.warm_start else None
    default = "relaxed-hard" if config.objective.name == "relaxed" else None
    easier = training.warm_start_objective or default
    if source is None and training.warm_start_epochs and easier:
        source = run.folder / "warm-start"
        first = config.model_copy(
            update={
                "objective": ObjectiveConfig(name=easier),
                "training": training.model_copy(
                    update={"warm_start_epochs": 0, "epochs": training.warm_start_epochs}
                ),
            }
        )
        going_on = checkpoint.exists(Run(source).checkpoint)
        world.wait()
        if world.leader:
            source.mkdir(parents=True, exist_ok=True)
            tokenizer.save(Run(source).tokenizer)
            prepare(first, Run(source), resume=True, overwrite=False)
        world.wait()
        train_together(first, Run(source), world, going_on=going_on)
    if source is None:
        return
    tensors, metadata = Run(source).load_model()
    if metadata.get("tokenizer") != tokenizer.fingerprint():
        raise InputError(f"{source}: its model has another tokenizer; warm starts need the same")
    own = model.state_dict()
    wrong = [n for n, t in tensors.items() if n in own and own[n].shape != t.shape]
    if wrong:
        raise InputError(f"{source}: {wrong[0]} has another shape; warm starts need the same model sizes")
    model.load_state_dict({n: t for n, t in tensors.items() if n in own}, strict=False)


def write_card(
    run: Run, config: NMTConfig, task: TranslationTask, model: TranslationModel, *, processes: int
) -> None:
    """What was trained on what."""
    data = {
        name: {"source": fingerprint(split.source), "target": fingerprint(split.target)}
        for name, split in (
            ("train", config.data.train),
            ("valid", config.data.valid),
            ("test", config.data.test),
        )
        if split is not None
    }
    run.write_card(
        {
            "task": "nmt",
            "objective": config.objective.model_dump(),
            "seed": config.training.seed,
            "processes": processes,
            "data": data,
            "pairs": {"train": len(task.train), "valid": len(task.valid)},
            "dropped": dict(task.train.dropped),
            "vocabulary": {"source": task.tokenizer.source_size, "target": task.tokenizer.target_size},
            "parameters": count_parameters(model),
        }
    )


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
        run = Run(Path(folder))
        run.require()
        try:
            config = recipes.load(run.config, NMTConfig)
        except InputError as error:
            raise CheckpointError(f"{run.config}: {error}") from None
        tokenizer = Tokenizer.load(run.tokenizer)
        tensors, metadata = run.load_model()
        if metadata.get("tokenizer") != tokenizer.fingerprint():
            raise CheckpointError(f"{run.tokenizer}: does not belong to {run.model}: the vocabularies differ")
        torch.set_num_threads(config.training.threads)
        model = build_model(config, tokenizer)
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointError(f"{run.model}: does not fit {run.config}: {error}") from None
        model = (model.double() if double else model.float()).to(device).eval()
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
