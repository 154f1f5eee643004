"""The JSON that translation commands and the server write, as models from which its JSON Schema is generated.

The programs build plain dictionaries. The tests validate real output against these models, and the documentation shows
their schemas. A key that a model marks as absent by default may be missing. Spans are [start, end): offsets in
characters (Unicode code points) of the line as it was given, so `line[start:end]` is the word.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Span = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
Probability = Annotated[float, Field(ge=0, le=1 + 1e-6)]


class Document(BaseModel):
    """A JSON object with known keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Link(Document):
    """A link between two words."""

    source: int = Field(ge=0)
    """Position of the source word, from 0."""
    target: int = Field(ge=0)
    """Position of the target word, from 0."""
    probability: Probability
    """Probability that the target word was generated from the source word."""


class WordPair(Document):
    """The words of a sentence pair."""

    source: list[str]
    """Source words as they stand in the line. Pieces of segmented text are joined."""
    target: list[str]
    """Target words."""
    source_spans: list[Span]
    """Start and end of each source word in its line."""
    target_spans: list[Span]
    """Start and end of each target word in its line."""


class AlignedPair(WordPair):
    """One line of `align --format json`: a sentence pair with its word links."""

    line: int = Field(ge=0)
    """Line of the input, from 0."""
    links: list[Link]
    """Links, sorted by source and target."""
    entropy: list[float]
    """For each target word, the entropy of its alignment in nats. 0 means that the model is certain."""


class MovedMarkup(Document):
    """An element, void tag, comment or placeholder of the source, and where it went."""

    markup: str
    """Its start tag, or all of it if it has no content, as in the source."""
    source: Span
    """Start and end of its content in the source text without markup."""
    target: Span
    """Start and end of its content in the translation without markup."""
    confidence: Probability
    """Mean probability of the word links that decided; 0 if none did."""


class ProjectedLine(Document):
    """One line of `project --format json`: a translation with the markup of its source."""

    line: int = Field(ge=0)
    """Line of the input, from 0."""
    markup: str
    """The translation with markup."""
    spans: list[MovedMarkup]
    """Everything that was moved, in the order of the source."""


class ConstraintOutcome(Document):
    """Source words that `translate --lexicon` knows the translation of, and whether the output has it."""

    source: Span
    """The source words, from `start` to before `end`."""
    alternatives: list[str] = Field(min_length=1)
    """The translations that the lexicon gives."""
    satisfied: bool
    """Whether the output has one of them."""
    target: Span | None
    """The output words that are this translation; null if it is missing."""
    probability: Probability | None
    """Probability that these output words were generated from the source words; null if the translation is missing."""


class AlignedTranslation(AlignedPair):
    """One line of `translate --alignments`: a translation with its word links. N-best lists have a line per entry."""

    rank: int = Field(ge=1)
    """Place in the list of translations of this line, from 1."""
    text: str
    """The translation, which `target` and `target_spans` refer to."""
    log_prob: float
    """Log-probability of the translation in nats."""
    score: float
    """What translations are ranked by: the log-probability, normalised by length."""
    markup: str | None = None
    """With markup in the source only: the translation with that markup."""
    spans: list[MovedMarkup] | None = None
    """With markup in the source only: where each element and placeholder went."""
    constraints: list[ConstraintOutcome] | None = None
    """With `--lexicon` only: what became of the source words that the lexicon knows, in the order of the source."""


class TranslationEntry(Document):
    """One translation in the answer of `POST /api/translate`."""

    text: str
    """The translation."""
    log_prob: float
    """Log-probability in nats."""
    score: float
    """What translations are ranked by."""
    segmented: str | None = None
    """With a segmented tokenizer only: the translation as its pieces, which is the text to align."""
    markup: str | None = None
    """With markup in the source only: the translation with that markup."""
    spans: list[MovedMarkup] | None = None
    """With markup in the source only: where each element and placeholder went."""
    plain_source: str | None = None
    """With markup in the source only: the sentence without it, which is the text to align."""


class TranslateResponse(Document):
    """The answer of `POST /api/translate`."""

    translations: list[list[TranslationEntry]]
    """For each sentence, its translations, the best first."""


class PathDetails(WordPair):
    """What a chain adds to a sentence pair: its most probable path, and NULL. Absent for other models."""

    path: list[tuple[int | None, int]] | None = None
    """(source word, target word) along the most probable path of a chain; the source of NULL is null."""
    path_log_prob: float | None = None
    """Posterior log-probability of the whole path in nats, including the step that ends the sentence."""
    null: dict[str, list[Probability]] | None = None
    """Probability of NULL for each target word, by the names of `matrices`. Absent if the model has no NULL."""
    piece_path: list[tuple[int | None, int]] | None = None
    """The path of subwords. Absent if words are the tokens."""
    piece_null: dict[str, list[Probability]] | None = None
    """Probability of NULL for each subword of the target."""


class Matrices(PathDetails):
    """A sentence pair with every alignment that the model has. Rows are target words, columns source words."""

    matrices: dict[str, list[list[Probability]]]
    """Probabilities of source words for each target word, under `prior`, `inferred` and `posterior`.

    A chain also has `path`: the posterior on its most probable path, and 0 elsewhere.
    """
    source_pieces: list[str] | None = None
    """Subwords of the source. Absent if words are the tokens."""
    target_pieces: list[str] | None = None
    """Subwords of the target."""
    piece_matrices: dict[str, list[list[Probability]]] | None = None
    """The same probabilities for subwords."""


class AlignResponse(Document):
    """The answer of `POST /api/align`."""

    alignments: list[Matrices]
    """One for each pair."""


class ExampleAlignment(PathDetails):
    """A sentence pair in the details of an evaluation. Matrices are packed."""

    sentence: int = Field(ge=1)
    """Line of the split, from 1."""
    matrices: dict[str, str]
    """Probabilities times 255 as bytes, row by row, in base64. Rows are target words, columns source words."""
    source_pieces: list[str] | None = None
    """Subwords of the source. Absent if words are the tokens."""
    target_pieces: list[str] | None = None
    """Subwords of the target."""
    piece_matrices: dict[str, str] | None = None
    """The same matrices for subwords."""
    sure: list[tuple[int, int]] | None = None
    """Sure gold links (source, target). Absent without gold links."""
    possible: list[tuple[int, int]] | None = None
    """Gold links that are only possible."""


class TranslationDetails(Document):
    """The file of `evaluate --details` for a translation run."""

    objective: str
    """Name of the objective."""
    split: str
    """The split that was evaluated."""
    tokens: list[int]
    """For each sentence, its target tokens, including the end of the sentence."""
    scores: dict[str, list[float]]
    """For each sentence, sums over its tokens: log-probabilities (`ppl...`) and entropies of the prior, in nats."""
    kmax_curve: list[float] | None = None
    """Perplexity if the K most probable alignments count, for K = 1, 2, ... Absent for relaxed models."""
    ppl_kmax1: float | None = None
    """The first entry of `kmax_curve`."""
    bleu_kmax5: float | None = None
    """BLEU if translations are searched with `kmax:5`."""
    bleu_statistics: list[list[int]]
    """For each sentence: length, reference length, 4 matches and 4 counts of n-grams. BLEU follows from the sums."""
    outputs: list[str]
    """The translation of each sentence."""
    alignments: list[ExampleAlignment]
    """Alignments of some sentences."""


DOCUMENTS: dict[str, type[Document]] = {
    "latentalign align --format json (one object per line)": AlignedPair,
    "latentalign translate --alignments FILE (one object per line)": AlignedTranslation,
    "latentalign project --format json (one object per line)": ProjectedLine,
    "latentalign evaluate --details FILE, translation": TranslationDetails,
    "POST /api/translate": TranslateResponse,
    "POST /api/align": AlignResponse,
}
"""Every document by what writes it."""
