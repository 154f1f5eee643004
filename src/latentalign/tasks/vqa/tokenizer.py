"""Words of questions and answers as ids."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from latentalign.config import Section
from latentalign.errors import CheckpointError
from latentalign.storage import write_bytes
from latentalign.tasks.vqa.questions import Annotation, Question, answer_vocabulary, words

FORMAT, VERSION = "latentalign-vqa-vocabulary", 1
PAD, UNK = 0, 1
SPECIALS = ("<pad>", "<unk>")


class TokenizerConfig(Section):
    """Sizes of the vocabularies of words and answers."""

    min_count: int = Field(1, ge=1)
    """Occurrences in training questions that a word needs. Rarer words are unknown."""
    answers: int = Field(3000, ge=2)
    """Number of answers that can be predicted: the most frequent ones of the training questions."""


@dataclass(frozen=True)
class Vocabulary:
    """Words of questions, the specials first, answers, and how many numbers describe a region."""

    words: tuple[str, ...] = field(repr=False)
    answers: tuple[str, ...] = field(repr=False)
    region_dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_words", {w: i for i, w in enumerate(self.words)})
        object.__setattr__(self, "_answers", {a: i for i, a in enumerate(self.answers)})

    @classmethod
    def learn(
        cls,
        config: TokenizerConfig,
        questions: Iterable[Question],
        annotations: Sequence[Annotation],
        *,
        region_dim: int,
    ) -> Vocabulary:
        """The vocabulary of training questions and their human answers."""
        counts = Counter(word for question in questions for word in words(question.question))
        kept = [w for w, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])) if n >= config.min_count]
        answers, _ = answer_vocabulary(annotations, config.answers)
        return cls((*SPECIALS, *kept), tuple(answers), region_dim)

    def encode(self, question: str) -> list[int]:
        """Ids of the words of a question; one unknown word where there is none."""
        known: dict[str, int] = self._words  # type: ignore[attr-defined]
        return [known.get(word, UNK) for word in words(question)] or [UNK]

    def answer(self, text: str) -> int | None:
        """The number of an answer, None if it is not among those that can be predicted."""
        known: dict[str, int] = self._answers  # type: ignore[attr-defined]
        return known.get(text)

    def coverage(self, annotations: Sequence[Annotation]) -> str:
        """How many human answers, and of how many questions at least one, can be given."""
        votes = [sum(a in self._answers for a in x.answers) for x in annotations]  # type: ignore[attr-defined]
        total = sum(len(x.answers) for x in annotations)
        some = sum(v > 0 for v in votes)
        return (
            f"{len(self.answers):,} answers cover {100 * sum(votes) / max(1, total):.2f} % of human answers and "
            f"{100 * some / max(1, len(annotations)):.2f} % of questions"
        )

    def fingerprint(self) -> str:
        """SHA-256 of all that decides how text becomes ids."""
        return hashlib.sha256(json.dumps(self._content()).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write one JSON file, whole or not at all."""
        content = {**self._content(), "sha256": self.fingerprint()}
        write_bytes(path, json.dumps(content).encode())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """The vocabulary that `save` wrote; a CheckpointError if the file is not that any more."""
        try:
            raw = path.read_bytes()
            content = json.loads(raw)
            loaded = cls(tuple(content["words"]), tuple(content["answers"]), content["region_dim"])
            same = raw == json.dumps({**loaded._content(), "sha256": loaded.fingerprint()}).encode()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CheckpointError(f"{path}: checksum mismatch: damaged, or not a vocabulary of vqa") from None
        if not same:
            raise CheckpointError(f"{path}: checksum mismatch: damaged, or of another version")
        return loaded

    def _content(self) -> dict[str, Any]:
        own = {"format": FORMAT, "version": VERSION}
        known = {"words": list(self.words), "answers": list(self.answers), "region_dim": self.region_dim}
        return {**own, **known}
