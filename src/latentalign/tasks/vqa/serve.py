"""Answering questions about pictures behind a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
from fastapi import FastAPI, Response
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

LISTED = 1000
"""Pictures whose numbers are told."""


class AnswerRequest(Request):
    """A question about a picture. Regions are looked at given an answer: the likeliest, unless another is named."""

    image_id: int
    question: Annotated[str, StringConstraints(max_length=2000)]
    answer: str | None = None
    predict: Predict | None = None
    top: int = Field(5, ge=1, le=100)


def build_app(
    trained: TrainedAnswerer, title: str, *, features: Path | None = None, images: Path | None = None
) -> FastAPI:
    """A question answering model, its page at `/`. Features and pictures not given are those of the last split."""
    if images is not None and not images.is_dir():
        raise InputError(f"{images}: expected a folder of pictures")
    split = trained.config.data.test or trained.config.data.valid
    split = split.model_copy(
        update={"features": features or split.features, "images": images or split.images}
    )
    corpus = open_questions(trained, [], split)
    known = corpus.features.image_ids
    pictures = find_pictures(split.images) if split.images is not None and split.images.is_dir() else {}
    ids = sorted(pictures.keys() & set(known.tolist())) or sorted(known.tolist())
    objective, vocabulary = trained.config.objective.name, trained.vocabulary
    seen_words = set(vocabulary.words)
    about = {
        "title": title, "task": "question answering", "objective": objective,
        "predict": trained.objective.predict, "answers": len(vocabulary.answers),
        "pictures": len(ids), "image_ids": ids[:LISTED],
    }  # fmt: skip
    summary = f"Trained with the objective {objective}, predicting with {trained.objective.predict}"
    page = Page(title, summary, viewers=[region_viewer({objective: []}, {})], form="answer_form.html")
    app = make_application(render(page), about)

    @app.get("/api/pictures/{image_id}")
    def picture(image_id: int) -> Response:
        """A picture, if there is a file of it."""
        path = pictures.get(image_id)
        return FileResponse(path) if path is not None and path.is_file() else Response(status_code=404)

    @app.post("/api/answer")
    def answer(asked: AnswerRequest) -> dict[str, Any]:
        """The likeliest answers with their probabilities; regions with theirs, and what would be said of each."""
        asked_words = words(asked.question)
        if not asked_words:
            raise InputError("question: there is no word in it")
        if asked.answer is not None and vocabulary.answer(asked.answer) is None:
            raise InputError(f"answer: {asked.answer!r} is not among the answers that the model can give")
        if asked.image_id not in known:
            raise InputError(f"image_id: there are no features of image {asked.image_id}")
        predict = parse_predictive(asked.predict or trained.objective.predict)
        with app.state.model, torch.no_grad():
            batch = corpus.question_batch(Question(0, asked.image_id, asked.question))
            shares = answer_log_probs(trained, batch.to(trained.device), predict)[0].double().exp()
            likeliest = shares.topk(min(asked.top, len(shares)))
            found = [
                {"answer": vocabulary.answers[i], "probability": p}
                for i, p in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
            ]
            given = str(found[0]["answer"]) if asked.answer is None else asked.answer
            batch.target.fill_(vocabulary.answer(given) or 0)
            seen = describe_regions(trained, batch)[0]
        look = {
            "image_id": asked.image_id, "question": asked.question, "predicted": found[0]["answer"],
            "given": given, "gold": [], "pictured": asked.image_id in pictures, **seen,
        }  # fmt: skip
        unknown = [word for word in dict.fromkeys(asked_words) if word not in seen_words]
        return {"answers": found, "unknown_words": unknown, "look": look}

    return app
