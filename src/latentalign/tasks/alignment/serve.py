"""A web application that aligns the words of sentence pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from pydantic import Field, StringConstraints

from latentalign.aligner.model import Aligner
from latentalign.aligner.text import AlignedStream, LinkOptions
from latentalign.errors import InputError
from latentalign.tasks.alignment.evaluate import describe_for_viewer
from latentalign.web.pages import Page, alignment_viewer, render
from latentalign.web.server import Request, make_application
from latentalign.web.worker import Check, Worker

Line = Annotated[str, StringConstraints(max_length=2000)]
MOST = 100
"""Most sentence pairs of one request."""
TOGETHER = 10
"""Sentence pairs that are aligned before the worker looks whether somebody still waits."""


class SentencePair(Request):
    """A sentence and a translation of it."""

    source: Line
    target: Line


class AlignRequest(Request):
    """Sentence pairs to align."""

    pairs: list[SentencePair] = Field(max_length=MOST)


def build_app(aligner: Aligner, title: str) -> FastAPI:
    """A web application around an aligner, with its page at `/`."""
    summary = "Aligns the words of a sentence and its translation, with probabilities"
    page = Page(title, summary, viewers=[alignment_viewer({"aligner": []})], form="align_form.html")
    app = make_application(render(page), {"title": title, "task": "word alignment"})
    worker: Worker = app.state.worker

    @app.post("/api/align")
    async def align(asked: AlignRequest, request: HttpRequest) -> dict[str, Any]:
        """Words, links and probabilities of the pairs: rows are target words, columns source words."""
        pairs = [(pair.source, pair.target) for pair in asked.pairs]
        found: dict[str, Any] = await worker.run(request, lambda check: align_pairs(aligner, pairs, check))
        return found

    return app


def align_pairs(aligner: Aligner, pairs: Sequence[tuple[str, str]], check: Check) -> dict[str, Any]:
    """The alignments of sentence pairs."""
    for number, pair in enumerate(pairs):
        for side, text in zip(("source", "target"), pair, strict=True):
            if not text.split():
                raise InputError(f"pairs.{number}.{side}: there is no word in it")
    found = []
    for start in range(0, len(pairs), TOGETHER):
        check()
        some = [(" ".join(a.split()), " ".join(b.split())) for a, b in pairs[start : start + TOGETHER]]
        found += [describe_for_viewer(pair) for pair in AlignedStream(aligner, some, LinkOptions())]
    return {"alignments": found}
