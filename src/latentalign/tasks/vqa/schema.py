"""The JSON that `evaluate --details` writes for question answering; see `latentalign.tasks.nmt.schema`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Box = tuple[float, float, float, float]


class Document(BaseModel):
    """A JSON object with known keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Look(Document):
    """A question with the regions that the model looks at."""

    question_id: int
    """Id of the question."""
    image_id: int
    """Id of the picture."""
    question: str
    """The question."""
    answer: str
    """The most frequent human answer that the model knows."""
    predicted: str
    """The model's answer."""
    gold: list[Box]
    """Gold regions as x1, y1, x2, y2, in shares of the picture's width and height."""
    boxes: list[Box]
    """The regions of the picture."""
    looks: dict[str, list[float]]
    """For each region its probability, under `prior`, `posterior` and, if there is one, `inferred`. With several
    looks, also those of each look, such as `prior, look 1`."""
    says: list[list[tuple[str, float]]]
    """For each region, the most probable answers and their probabilities if the model looked there."""


class AnsweringDetails(Document):
    """The file of `evaluate --details` for a question answering run."""

    objective: str
    """Name of the objective."""
    split: str
    """The split that was evaluated."""
    scores: dict[str, list[float]]
    """Figures of each question: `nll` and `entropy_prior` in nats (answerable questions), `accuracy` in per cent."""
    groups: dict[str, list[int]]
    """For each list of scores, the picture of each question. Intervals are computed over pictures."""
    looks: list[Look]
    """Some questions, spread over the split."""


DOCUMENTS: dict[str, type[Document]] = {
    "latentalign evaluate --details FILE, question answering": AnsweringDetails,
}
"""Every document by what writes it."""
