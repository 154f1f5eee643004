"""A web application that answers questions about pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import FileResponse
from pydantic import Field, StringConstraints

from latentalign.errors import InputError
from latentalign.tasks.likelihoods import parse_predictive
from latentalign.tasks.vqa.answer import open_questions
from latentalign.tasks.vqa.details import describe_regions
from latentalign.tasks.vqa.evaluate import answer_log_probs
from latentalign.tasks.vqa.figures import find_pictures
from latentalign.tasks.vqa.questions import Question, words
from latentalign.tasks.vqa.recipe import TrainedAnswerer
from latentalign.web.pages import Page, region_viewer, render
from latentalign.web.server import Predict, Request, make_application
from latentalign.web.worker import Worker

LISTED = 1000
"""Most pictures whose ids are listed."""


class AnswerRequest(Request):
    """A question about a picture. Regions are shown given the likeliest answer, unless another one is named."""

    image_id: int
    question: Annotated[str, StringConstraints(max_length=2000)]
    answer: str | None = None
    predict: Predict | None = None
    top: int = Field(5, ge=1, le=100)


class AnswerService:
    """Answers questions about the pictures of one features file, which is opened once."""

    def __init__(self, trained: TrainedAnswerer, *, features: Path | None, images: Path | None) -> None:
        """Features and pictures that are not given are those of the last split of the run's data."""
        if images is not None and not images.is_dir():
            raise InputError(f"{images}: expected a folder of pictures")
        split = trained.config.data.test or trained.config.data.valid
        folder = images or split.images
        split = split.model_copy(update={"features": features or split.features})
        self.trained, self.vocabulary = trained, trained.vocabulary
        self.words = set(trained.vocabulary.words)
        self.corpus = open_questions(trained, [], split)
        self.known = set(self.corpus.features.image_ids.tolist())
        self.pictures = find_pictures(folder) if folder is not None and folder.is_dir() else {}

    @property
    def image_ids(self) -> list[int]:
        """Pictures that can be asked about; if there are picture files, only those with one."""
        return sorted(self.pictures.keys() & self.known) or sorted(self.known)

    def check(self, asked: AnswerRequest) -> None:
        """Raise if a request cannot be answered."""
        if not words(asked.question):
            raise InputError("question: there is no word in it")
        if asked.answer is not None and self.vocabulary.answer(asked.answer) is None:
            raise InputError(f"answer: {asked.answer!r} is not among the answers that the model can give")
        if asked.image_id not in self.known:
            raise InputError(f"image_id: there are no features of image {asked.image_id}")

    @torch.no_grad()
    def answer(self, asked: AnswerRequest) -> dict[str, Any]:
        """The likeliest answers and the probabilities of regions, with the answers that each would give."""
        predictive = parse_predictive(asked.predict or self.trained.objective.predict)
        batch = self.corpus.question_batch(Question(0, asked.image_id, asked.question))
        log_probs = answer_log_probs(self.trained, batch.to(self.trained.device), predictive)
        likeliest = log_probs[0].double().exp().topk(min(asked.top, log_probs.shape[-1]))
        answers = [
            {"answer": self.vocabulary.answers[i], "probability": p}
            for i, p in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        ]
        best = str(answers[0]["answer"])
        given = best if asked.answer is None else asked.answer
        batch.target.fill_(self.vocabulary.answer(given) or 0)
        look = {
            "image_id": asked.image_id, "question": asked.question, "predicted": best, "given": given,
            "gold": [], "pictured": asked.image_id in self.pictures,
            **describe_regions(self.trained, batch)[0],
        }  # fmt: skip
        unknown = [word for word in dict.fromkeys(words(asked.question)) if word not in self.words]
        return {"answers": answers, "unknown_words": unknown, "look": look}


def build_app(
    trained: TrainedAnswerer, title: str, *, features: Path | None = None, images: Path | None = None
) -> FastAPI:
    """A web application around a question answering model, with its page at `/`."""
    service = AnswerService(trained, features=features, images=images)
    objective, ids = trained.config.objective.name, service.image_ids
    about = {
        "title": title, "task": "question answering", "objective": objective,
        "predict": trained.objective.predict, "answers": len(trained.vocabulary.answers),
        "pictures": len(ids), "image_ids": ids[:LISTED],
    }  # fmt: skip
    summary = f"Trained with the objective {objective}, predicting with {trained.objective.predict}"
    page = Page(title, summary, viewers=[region_viewer({objective: []}, {})], form="answer_form.html")
    app = make_application(render(page), about)

    worker: Worker = app.state.worker

    @app.get("/api/pictures/{image_id}")
    async def picture(image_id: int) -> Response:
        """A picture, if there is a file of it."""
        path = service.pictures.get(image_id)
        return FileResponse(path) if path is not None and path.is_file() else Response(status_code=404)

    @app.post("/api/answer")
    async def answer(asked: AnswerRequest, request: HttpRequest) -> dict[str, Any]:
        """The likeliest answers, and the regions that the model looks at."""
        service.check(asked)
        return await worker.run(request, lambda _: service.answer(asked))

    return app
