"""A web application that translates and aligns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse
from pydantic import Field, StringConstraints

from latentalign.core.predictives import parse_predict
from latentalign.errors import InputError
from latentalign.markup.document import Document
from latentalign.markup.project import parse_markup
from latentalign.tasks.marked_text import projection_record
from latentalign.tasks.nmt.align import encode_pairs
from latentalign.tasks.nmt.details import describe_pairs, round_matrix
from latentalign.tasks.nmt.marked import MarkedTranslationJob
from latentalign.tasks.nmt.recipe import TrainedTranslator
from latentalign.tasks.nmt.schema import AlignResponse, TranslateResponse
from latentalign.tasks.nmt.translate import Translation, TranslationSettings, translate_lines
from latentalign.web.pages import Page, alignment_viewer, render
from latentalign.web.server import Predict, Request, make_application
from latentalign.web.worker import Check, Worker

Line = Annotated[str, StringConstraints(max_length=2000)]
MOST = 100
"""Most sentences of one request."""
CELLS = 50_000
"""Of the alignment matrices of one request: its target subwords times their source subwords."""

SHORT = 400
"""Characters of a sentence that is translated together with those of other requests."""
STEP_PRODUCTS = 10**10
"""Multiplications of the output layer in one step of the search, so that steps are short and can be abandoned soon.

A step of one long sentence may need more.
"""
ALIGNED_TOGETHER = 10
"""Sentence pairs that are aligned before the worker looks whether somebody still waits."""


class TranslateRequest(Request):
    """Sentences to translate; settings that are not given are those of the run's recipe."""

    source: list[Line] = Field(max_length=MOST)
    predict: Predict | None = None
    beam: int | None = Field(None, ge=1, le=50)
    length_penalty: float | None = Field(None, ge=0, le=10)
    nbest: int = Field(1, ge=1, le=50)
    markup: Literal["html", "xml", "placeholders"] | None = None
    """The markup of the sentences, which is moved to their translations."""


class SentencePair(Request):
    """A sentence and a translation of it."""

    source: Line
    target: Line


class AlignRequest(Request):
    """Sentence pairs to align."""

    pairs: list[SentencePair] = Field(max_length=MOST)


def build_app(trained: TrainedTranslator, title: str) -> FastAPI:
    """A web application around a translation model, with its page at `/`."""
    objective = trained.config.objective.name
    about = {
        "title": title, "task": "translation", "objective": objective, "predict": trained.objective.predict,
        "beam": trained.config.search.beam, "length_penalty": trained.config.search.length_penalty,
    }  # fmt: skip
    summary = f"Trained with the objective {objective}, predicting with {trained.objective.predict}"
    page = Page(title, summary, viewers=[alignment_viewer({objective: []})], form="translate_form.html")
    app = make_application(render(page), about)

    worker: Worker = app.state.worker

    @app.post("/api/translate", response_model=TranslateResponse)
    async def translate(asked: TranslateRequest, request: HttpRequest) -> Response:
        """The best translations of every sentence, with log-probabilities; as many lists as sentences."""
        how = parse_predict(asked.predict or trained.objective.predict)
        settings = choose_settings(trained, asked, draws=how.draws)
        if asked.markup:
            return await worker.run(
                request, lambda check: JSONResponse(translate_marked(trained, settings, asked, check))
            )
        lines = [on_one_line(text) for text in asked.source]
        work = partial(translate_each, trained, settings)
        if len(lines) == 1 and len(lines[0]) <= SHORT and how.deterministic:
            translations = [await worker.run_together(request, lines[0], key=settings, work=work)]
        else:
            translations = await worker.run(request, lambda check: work(lines, check))
        return JSONResponse({"translations": translations})

    @app.post("/api/align", response_model=AlignResponse)
    async def align(asked: AlignRequest, request: HttpRequest) -> Response:
        """Words, subwords and every alignment of the pairs: rows are target words, columns source words."""
        pairs = [(pair.source, pair.target) for pair in asked.pairs]
        return await worker.run(request, lambda check: JSONResponse(align_pairs(trained, pairs, check)))

    return app


def choose_settings(
    trained: TrainedTranslator, asked: TranslateRequest, *, draws: int
) -> TranslationSettings:
    """How to translate for a request: as asked, in batches whose steps are short."""
    beam = asked.beam or trained.config.search.beam
    products = (
        beam * trained.model.head.output.weight.numel() * max(1, draws // 20)
    )  # a sentence has some 20 tokens
    tokens = min(TranslationSettings.batch_tokens, max(1, STEP_PRODUCTS // products))
    return TranslationSettings(
        asked.predict, asked.beam, asked.length_penalty, asked.nbest, batch_tokens=tokens
    )


def translate_each(
    trained: TrainedTranslator, settings: TranslationSettings, lines: Sequence[str], check: Check
) -> list[list[dict[str, Any]]]:
    """The best translations of each sentence."""
    require_short(trained, settings, lines)
    found = translate_lines(trained, lines, settings, check=check)
    return [[describe_translation(trained, one) for one in best[: settings.nbest]] for best in found]


def translate_marked(
    trained: TrainedTranslator, settings: TranslationSettings, asked: TranslateRequest, check: Check
) -> dict[str, Any]:
    """The best translations of each sentence with markup."""
    documents = parse_sentences(asked.source, asked.markup or "html")
    job = MarkedTranslationJob(trained, documents, settings, check=check)
    require_short(trained, settings, job.lines)
    found = [
        [{**describe_translation(trained, one), "plain_source": line} for one in best]
        for line, best in zip(job.lines, job.translate(), strict=True)
    ]
    return {"translations": found}


def parse_sentences(sources: Sequence[str], kind: str) -> list[Document]:
    """Sentences separated into text and markup."""
    found = []
    for number, text in enumerate(sources):
        try:
            found.append(parse_markup(text, kind))
        except InputError as error:
            raise InputError(f"source.{number}: {error}") from None
    return found


def require_short(trained: TrainedTranslator, settings: TranslationSettings, lines: Sequence[str]) -> None:
    """Refuse sentences that would be cut."""
    for number, ids in enumerate(trained.vocabulary.source_ids(lines)):
        if len(ids) > settings.max_source:
            raise InputError(
                f"source.{number}: {len(ids)} tokens, at most {settings.max_source} are translated"
            )


def align_pairs(trained: TrainedTranslator, pairs: Sequence[tuple[str, str]], check: Check) -> dict[str, Any]:
    """The alignments of sentence pairs."""
    for number, pair in enumerate(pairs):
        for side, words in zip(("source", "target"), trained.vocabulary.find_pair_words(*pair), strict=True):
            if not words:
                raise InputError(f"pairs.{number}.{side}: there is no word in it")
    encoded = encode_pairs(trained, [s for s, _ in pairs], [t for _, t in pairs])
    cells = sum(len(pair.source.ids) * len(pair.target.ids) for pair in encoded)
    if cells > CELLS:
        raise InputError(
            f"pairs: {cells:,} pairs of subwords, at most {CELLS:,}; send shorter or fewer sentences"
        )
    found = []
    for start in range(0, len(pairs), ALIGNED_TOGETHER):
        check()
        found += describe_pairs(trained, pairs[start : start + ALIGNED_TOGETHER], round_matrix)
    return {"alignments": found}


def describe_translation(trained: TrainedTranslator, one: Translation) -> dict[str, Any]:
    """A translation; of segmented text also as its pieces, by which it is aligned."""
    found: dict[str, Any] = {"text": one.text, "log_prob": one.log_prob, "score": one.score}
    if trained.config.tokenizer.kind == "segmented":
        found["segmented"] = " ".join(trained.vocabulary.target_pieces(one.ids))
    if one.projection is not None:
        found |= projection_record(one.projection)
    return found


def on_one_line(text: str) -> str:
    """A sentence whose line breaks are spaces."""
    return " ".join(text.split())
