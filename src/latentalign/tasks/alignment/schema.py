"""The JSON that an aligner writes, as models from which its JSON Schema is generated.

Spans are [start, end): offsets in characters of the line as it was given, so `line[start:end]` is the word.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Span = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
Probability = Annotated[float, Field(ge=0, le=1)]


class Document(BaseModel):
    """A JSON object with known keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class AlignerLink(Document):
    """A link between two words."""

    source: int = Field(ge=0)
    """Position of the source word, from 0."""
    target: int = Field(ge=0)
    """Position of the target word, from 0."""
    probability: Probability
    """Probability of the link."""


class Path(Document):
    """An alignment of all words of one side."""

    log_prob: float
    """Posterior log-probability in nats."""
    path: list[int | None]
    """For each word, the position of its counterpart; null if it has none."""


class Paths(Document):
    """The most probable paths of both directions, best first."""

    forward: list[Path]
    """A source word for each target word."""
    backward: list[Path]
    """A target word for each source word."""


class Phrase(Document):
    """A pair of phrases whose links stay inside them. Ends are exclusive."""

    source_start: int = Field(ge=0)
    """First source word."""
    source_end: int = Field(ge=0)
    """Source word behind the last one."""
    target_start: int = Field(ge=0)
    """First target word."""
    target_end: int = Field(ge=0)
    """Target word behind the last one."""
    probability: Probability
    """Probability of the least probable link."""


class AlignerRecord(Document):
    """One line of `align --format json` from an aligner."""

    line: int = Field(ge=0)
    """Line of the input, from 0."""
    source: list[str]
    """Source words as they stand in the line."""
    target: list[str]
    """Target words."""
    source_spans: list[Span]
    """Start and end of each source word in its line."""
    target_spans: list[Span]
    """Start and end of each target word in its line."""
    links: list[AlignerLink]
    """Links, sorted by source and target."""
    posteriors: list[list[Probability]]
    """Probability of every link: a row for each target word, a column for each source word."""
    target_null: list[Probability]
    """Probability that a target word has no counterpart."""
    source_null: list[Probability]
    """Probability that a source word has no counterpart."""
    entropy: list[float]
    """For each target word, the entropy of its counterpart in nats. 0 means that the model is certain."""
    source_entropy: list[float]
    """The same for each source word."""
    paths: Paths | None = None
    """With `--nbest`."""
    phrases: list[Phrase] | None = None
    """With `--phrases`."""


DOCUMENTS: dict[str, type[BaseModel]] = {"align --format json, of an aligner": AlignerRecord}
"""Documents by the command that writes them."""
