"""A web application that answers questions about pictures."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException
from fastapi import Request as HttpRequest
from fastapi.responses import FileResponse
from pydantic import Field, StringConstraints

from latentalign.data.region_features.format import Array
from latentalign.errors import InputError
from latentalign.tasks.vqa.answer import answer_regions, check_question, open_questions
from latentalign.tasks.vqa.ask import extract_regions, find_extractor
from latentalign.tasks.vqa.extractors import Extractor, make_extractor, open_picture
from latentalign.tasks.vqa.figures import find_pictures
from latentalign.tasks.vqa.recipe import TrainedAnswerer
from latentalign.web.pages import Page, region_viewer, render
from latentalign.web.server import Predict, Request, make_application
from latentalign.web.worker import Worker

LISTED = 1000
"""Most pictures whose ids are listed."""
LARGEST_PICTURE = 1_000_000
"""Characters of an uploaded picture. The body of a request cannot be larger."""
MOST_PIXELS = 20_000_000
"""Pixels of an uploaded picture. A small file can hold a picture that fills the memory."""
UPLOADED_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


class AnswerRequest(Request):
    """A question about a picture: one of the features file by its id, or an uploaded one in base64.

    Regions are shown given the likeliest answer, unless another one is named.
    """

    image_id: int | None = None
    picture: Annotated[str, StringConstraints(max_length=LARGEST_PICTURE)] | None = None
    question: Annotated[str, StringConstraints(max_length=2000)]
    answer: str | None = None
    predict: Predict | None = None
    top: int = Field(5, ge=1, le=100)


class AnswerService:
    """Answers questions about the pictures of one features file, which is opened once, and about uploaded ones."""

    def __init__(
        self, trained: TrainedAnswerer, *, features: Path | None, images: Path | None, extractor: str | None
    ) -> None:
        """Features and pictures that are not given are those of the last split of the run's data."""
        if images is not None and not images.is_dir():
            raise InputError(f"{images}: expected a folder of pictures")
        split = trained.config.data.test or trained.config.data.valid
        folder = images or split.images
        split = split.model_copy(update={"features": features or split.features})
        self.trained = trained
        self.features = open_questions(trained, [], split).features
        self.known = set(self.features.image_ids.tolist())
        self.pictures = find_pictures(folder) if folder is not None and folder.is_dir() else {}
        self.extractor: Extractor | None = None
        self.no_upload = ""
        """Why pictures cannot be uploaded; empty if they can."""
        try:
            self.extractor = make_extractor(extractor or find_extractor(trained))
        except InputError as error:
            if extractor is not None:
                raise
            self.no_upload = str(error)

    @property
    def image_ids(self) -> list[int]:
        """Pictures that can be asked about; if there are picture files, only those with one."""
        return sorted(self.pictures.keys() & self.known) or sorted(self.known)

    def check(self, asked: AnswerRequest) -> None:
        """Raise if a request cannot be answered."""
        check_question(self.trained, asked.question, asked.answer)
        if (asked.image_id is None) == (asked.picture is None):
            raise InputError("image_id: name a picture by its id, or send one as `picture`")
        if asked.image_id is not None and asked.image_id not in self.known:
            raise InputError(f"image_id: there are no features of image {asked.image_id}")
        if asked.picture is not None and self.extractor is None:
            raise InputError(f"picture: {self.no_upload}")

    def answer(self, asked: AnswerRequest) -> dict[str, Any]:
        """The likeliest answers and the probabilities of regions, with the answers that each would give."""
        reply = answer_regions(
            self.trained,
            asked.question,
            self.regions(asked),
            answer=asked.answer,
            predict=asked.predict,
            top=asked.top,
        )
        pictured = asked.image_id in self.pictures
        return reply | {"look": {"image_id": asked.image_id, "pictured": pictured, **reply["look"]}}

    def regions(self, asked: AnswerRequest) -> tuple[Array, Array]:
        """Features and boxes of the picture that a request is about. An uploaded picture is not kept."""
        if asked.image_id is not None:
            return self.features.regions(self.features.index(asked.image_id))
        assert asked.picture is not None
        assert self.extractor is not None
        try:
            data = base64.b64decode(asked.picture, validate=True)
        except ValueError:
            raise InputError("picture: not base64; send the bytes of a picture file in base64") from None
        picture = open_picture(data, "picture", most_pixels=MOST_PIXELS, formats=UPLOADED_FORMATS)
        return extract_regions(self.extractor, picture)


def build_app(
    trained: TrainedAnswerer,
    title: str,
    *,
    features: Path | None = None,
    images: Path | None = None,
    extractor: str | None = None,
) -> FastAPI:
    """A web application around a question answering model, with its page at `/`."""
    service = AnswerService(trained, features=features, images=images, extractor=extractor)
    objective, ids = trained.config.objective.name, service.image_ids
    about = {
        "title": title, "task": "question answering", "objective": objective,
        "predict": trained.objective.predict, "answers": len(trained.vocabulary.answers),
        "pictures": len(ids), "image_ids": ids[:LISTED],
        "extractor": None if service.extractor is None else service.extractor.name, "no_upload": service.no_upload,
    }  # fmt: skip
    summary = f"Trained with the objective {objective}, predicting with {trained.objective.predict}"
    page = Page(title, summary, viewers=[region_viewer({objective: []}, {})], form="answer_form.html")
    app = make_application(render(page), about)
    worker: Worker = app.state.worker

    @app.get("/api/pictures/{image_id}", response_class=FileResponse)
    async def picture(image_id: int) -> FileResponse:
        """A picture, if there is a file of it."""
        path = service.pictures.get(image_id)
        if path is None or not path.is_file():
            raise HTTPException(404, f"there is no file of picture {image_id}")
        return FileResponse(path)

    @app.post("/api/answer")
    async def answer(asked: AnswerRequest, request: HttpRequest) -> dict[str, Any]:
        """The likeliest answers, and the regions that the model looks at."""
        service.check(asked)
        return await worker.run(request, lambda _: service.answer(asked))

    return app
