"""Digits to number words as a task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI
from fastapi import Request as HttpRequest
from torch import Tensor, nn

from latentalign import LatentAttention
from latentalign.core.choice import LatentChoice
from latentalign.core.latent import Latent
from latentalign.reproduction.experiment import Experiment, GeneratedData, objective_rows
from latentalign.reproduction.tables import Column, FigureTable
from latentalign.tasks.base import EvaluationOptions, Task, Trained
from latentalign.tasks.diagnosis import ExampleSet
from latentalign.tasks.likelihoods import parse_predictive, sum_log_probabilities
from latentalign.training.data import WeightedBatch, perplexity
from latentalign.training.distributed import World
from latentalign.training.run import Run
from latentalign.web.pages import Page, alignment_viewer, render
from latentalign.web.server import Request, make_application
from toy_task.data import (
    LONGEST,
    WORDS,
    Batch,
    DigitsData,
    DigitsRecipe,
    DigitsVocabulary,
    collate,
    digits_settings,
    read_digits,
    write_digits,
)

RECIPE = Path(__file__).parent / "digits.toml"


class DigitsModel(nn.Module):
    """A word for each position, through a latent alignment to one digit."""

    def __init__(self, size: int, *, inference: bool) -> None:
        super().__init__()
        self.digit, self.position = nn.Embedding(10, size), nn.Embedding(LONGEST, size)
        self.attention = LatentAttention(size, size, len(WORDS), hidden=size, inference=inference)

    def forward(self, batch: Batch) -> LatentChoice:
        positions = self.position(torch.arange(batch.digits.shape[1])).expand(len(batch.digits), -1, -1)
        padding = ~batch.mask
        memory = self.digit(batch.digits) + positions
        return self.attention(positions, memory, key_padding_mask=padding, query_padding_mask=padding)

    def latent(self, batch: Batch) -> Latent:
        return self(batch).observe(batch.digits)


class DigitsRequest(Request):
    """Digits to spell."""

    digits: list[int]


TrainedDigits = Trained[DigitsRecipe, DigitsVocabulary, DigitsModel]
PPL, ACCURACY = Column("ppl", "ppl", 3), Column("accuracy", "accuracy", 2)
EXPERIMENT = Experiment(
    task="digits",
    recipe_model=DigitsRecipe,
    rows=objective_rows(["soft", "variational-sample"]),
    figures=("ppl", "accuracy", "lines"),
    examples="lines",
    tables=(FigureTable("Digits", "Lower perplexity is better.", (PPL, ACCURACY)),),
    terminal_columns=(PPL,),
    run_columns=(PPL, ACCURACY),
    details=("--sentences=2",),
    viewers=lambda context: [alignment_viewer(context.examples)],
    data=GeneratedData("digits", str(RECIPE), write_digits, "test.txt", digits_settings),
)


class DigitsTask(Task[DigitsRecipe, DigitsVocabulary, DigitsModel]):
    """Digits in, number words out."""

    name = "digits"
    title = "spelling digits"
    recipe = DigitsRecipe

    def required_file(self, config: DigitsRecipe) -> Path:
        return config.data.test

    def prepare(self, config: DigitsRecipe, run: Run, world: World) -> DigitsData:
        return DigitsData(config)

    def load_vocabulary(self, run: Run) -> DigitsVocabulary:
        return DigitsVocabulary()

    def build_model(self, config: DigitsRecipe, vocabulary: DigitsVocabulary) -> DigitsModel:
        return DigitsModel(config.model.size, inference=config.objective.build().needs_inferred)

    def evaluate(
        self, trained: TrainedDigits, split: str, options: EvaluationOptions
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        rows = read_digits(getattr(trained.config.data, split))
        batch = collate(rows)
        how = options.predict or trained.objective.predict
        with torch.no_grad():
            found = trained.model(batch)
            latent = found.observe(batch.digits)
            correct = (found.predict(how).argmax(-1) == batch.digits) & batch.mask
        sums = sum_log_probabilities([(WeightedBatch(batch), latent)], parse_predictive(how))
        result = {"split": split, "objective": trained.config.objective.name, "lines": len(rows)}
        result |= {"ppl": perplexity(sums["own"], batch.queries)}
        result |= {"accuracy": 100 * int(correct.sum()) / batch.queries}
        if options.details is None:
            return result, None
        return result, {"examples": self.examples(trained, split, options.details)}

    @torch.no_grad()
    def examples(self, trained: TrainedDigits, split: str, count: int) -> list[dict[str, Any]]:
        rows = read_digits(getattr(trained.config.data, split))[:count]
        means: Tensor = trained.model(collate(rows)).prior.mean
        return [
            {
                "sentence": i + 1,
                "source": [str(digit) for digit in row],
                "target": [WORDS[digit] for digit in row],
                "matrices": {"prior": means[i, : len(row), : len(row)].tolist()},
            }
            for i, row in enumerate(rows)
        ]

    def example_set(self, trained: TrainedDigits, split: str) -> ExampleSet:
        rows = read_digits(getattr(trained.config.data, split))
        return ExampleSet(len(rows), lambda start, stop: collate(rows[start:stop]))

    def experiment(self) -> Experiment:
        return EXPERIMENT

    def serve(self, trained: TrainedDigits, title: str, options: Mapping[str, Any]) -> FastAPI:
        app = make_application(render(Page(title, "digits to words")), {"title": title, "task": self.title})

        @torch.no_grad()
        def spell(digits: list[int]) -> dict[str, Any]:
            batch = collate([torch.tensor(digits).numpy()])
            best = trained.model(batch).predict("exact").argmax(-1)[0]
            return {"words": [WORDS[i] for i in best.tolist()]}

        @app.post("/api/spell")
        async def reply(asked: DigitsRequest, request: HttpRequest) -> dict[str, Any]:
            return await app.state.worker.run(request, lambda _: spell(asked.digits))

        return app
