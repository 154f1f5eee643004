"""English verbs: their forms, and the verb group of a clause with every choice that German leaves open."""

from collections.abc import Callable, Sequence
from math import log
from typing import TypeVar

from latentalign.data.demo_language.entries import WEIGHTS
from latentalign.data.demo_language.german import Key, Word
from latentalign.data.demo_language.lexicon import DOUBLED, IRREGULAR_PLURALS, IRREGULAR_VERBS
from latentalign.data.demo_language.meaning import (
    Clause,
    Nominal,
    Pronoun,
    Tense,
    is_plural,
    overlap,
    tags_of,
)

T = TypeVar("T")
MODAL_VERBS = {"can", "could", "must", "may", "should", "would", "will"}
PRESENT, PAST = "present", "past"


class Choices:
    """Draws alternatives and sums the logarithms of their probabilities."""

    def __init__(self, draw: Callable[[Sequence[float]], int]) -> None:
        self.draw = draw
        self.log_prob = 0.0

    def pick(self, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """One of the options. Without weights, the first is the most probable."""
        weights = weights or WEIGHTS[len(options)]
        if len(options) == 1:
            return options[0]
        index = self.draw(weights)
        self.log_prob += log(weights[index])
        return options[index]

    def either(self, probability: float) -> bool:
        """True with this probability."""
        return self.pick((True, False), (probability, 1 - probability))


def plural_of(noun: str) -> str:
    """The plural of a noun, of its last word if there are several."""
    first, _, last = noun.rpartition(" ")
    if last in IRREGULAR_PLURALS:
        last = IRREGULAR_PLURALS[last]
    elif last.endswith(("s", "x", "ch", "sh")):
        last += "es"
    else:
        last = last[:-1] + "ies" if last[-1] == "y" and last[-2] not in "aeiou" else last + "s"
    return f"{first} {last}".strip()


def inflect(verb: str, form: str, person: str = "") -> str:
    """A verb in present or past (person "I", "it" or "they"), as participle or as "ing" form."""
    if verb == "be" and form in {PRESENT, PAST}:
        return {"I": ("am", "was"), "it": ("is", "was"), "they": ("are", "were")}[person][form == PAST]
    if form == PRESENT:
        return (
            verb
            if person != "it"
            else {"have": "has"}.get(verb) or plural_of({"do": "doe", "go": "goe"}.get(verb, verb))
        )
    if form == "ing":
        if verb in DOUBLED:
            return verb + verb[-1] + "ing"
        stem = verb[:-2] + "y" if verb.endswith("ie") else verb
        return (stem[:-1] if stem.endswith("e") and stem not in {"be", "see"} else stem) + "ing"
    if verb in IRREGULAR_VERBS:
        return IRREGULAR_VERBS[verb][form != PAST]
    if verb in DOUBLED:
        return verb + verb[-1] + "ed"
    if verb[-1] == "y" and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def person_of(subject: Nominal) -> str:
    """Agreement of the English verb, as one of "I", "it", "they"."""
    if isinstance(subject, Pronoun) and subject.kind == "I":
        return "I"
    return "they" if is_plural(subject) else "it"


class VerbGroup:
    """The auxiliary (if any) and the rest of the English verb, ready for "not" and for questions."""

    def __init__(
        self, clause: Clause, choices: Choices, *, person: str, asks: bool, denial: Key | None
    ) -> None:
        self.clause, self.choices, self.person = clause, choices, person
        self.support = asks or denial is not None
        self.denial = denial
        self.auxiliary: list[Word] = []
        self.rest: list[Word] = []
        self.stem: Key = (clause, "verb")
        self.finite: Key = (clause, "finite")
        self.head, self.trailing = self._lexical_words()
        self._build()

    def _lexical_words(self) -> tuple[Word, list[Word]]:
        clause, verb = self.clause, self.clause.verb
        goal = clause.accusative or clause.subject
        text, *more = self.choices.pick(verb.options("y" if clause.ride else tags_of(goal))).split()
        particle: Key = (clause, "particle") if verb.particle else self.stem
        trailing = [Word(part, (particle,)) for part in more]
        if clause.oblique:
            trailing[-1] = Word(trailing[-1].text, ((clause.oblique, "preposition"),))
        alone = verb.particle and not more
        return Word(text, (self.stem, particle) if alone else (self.stem,)), trailing

    def _form(self, form: str) -> list[Word]:
        text = self.head.text if form == "base" else inflect(self.head.text, form, self.person)
        return [Word(text, self.head.sure), *self.trailing]

    def _build(self) -> None:
        clause = self.clause
        if clause.tense is Tense.PERFECT:
            self._perfect()
        elif clause.tense is Tense.FUTURE:
            self._modal(self.choices.pick(("will", "be going to"), (0.8, 0.2)), PRESENT)
        elif clause.modal:
            options = clause.modal.negated if self.denial else clause.modal.affirmed
            text = self.choices.pick(*zip(*options, strict=True))
            self._modal(text, PAST if clause.modal.past else PRESENT)
        elif clause.gladly:
            self._gladly()
        elif self.head.text != "be" and clause.tense is Tense.PRESENT and self._progressive():
            self.auxiliary = [Word(inflect("be", PRESENT, self.person), possible=(self.stem,))]
            self.rest = self._form("ing")
        else:
            self._simple(PAST if clause.tense is Tense.PAST else PRESENT)

    def _simple(self, tense: str) -> None:
        """ "reads", "does not read"; "is", which needs no help."""
        if self.head.text == "be":
            self.auxiliary, self.rest = self._form(tense)[:1], self.trailing
        elif self.support:
            self.auxiliary, self.rest = [self._do(tense)], self._form("base")
        else:
            self.rest = self._form(tense)

    def _do(self, tense: str, *keys: Key) -> Word:
        text = "did" if tense == PAST else inflect("do", PRESENT, self.person)
        unclear = (self.denial,) if self.denial else () if keys else (self.stem,)
        return Word(text, keys, unclear)

    def _progressive(self) -> bool:
        """Whether the action is in progress. Adverbs and states decide, otherwise chance."""
        clause = self.clause
        fixed = [node.idiom.tags for node in (clause.time, clause.adverb) if node]
        if any("g" in tags for tags in fixed):
            return True
        if clause.habitual or overlap(clause.verb.flags, "sS") or any("h" in tags for tags in fixed):
            return False
        return self.choices.either(0.5)

    def _perfect(self) -> None:
        """ "hat gesehen": "saw" or "has seen", as the adverbs allow."""
        clause = self.clause
        since = clause.adverb is not None and clause.adverb.idiom.german[0] == "schon"
        dated = clause.in_narrative or clause.time is not None
        if since or (not dated and self.choices.either(0.25)):
            self.auxiliary = [Word(inflect("have", PRESENT, self.person), (self.finite,))]
            self.rest = self._form("participle")
        elif self.support:
            self.auxiliary, self.rest = [self._do(PAST, self.finite)], self._form("base")
        else:
            first, *trailing = self._form(PAST)
            # "hat gesehen", "saw": the link to the participle is sure, the link to the auxiliary is only possible.
            self.rest = [Word(first.text, first.sure, (self.finite, *first.possible)), *trailing]

    def _modal(self, text: str, tense: str) -> None:
        """ "can read", "has to read", "is allowed to read"; "to" has no sure link to a German word."""
        first, *more = text.split()
        tail = [Word(w, possible=(self.finite,)) if w == "to" else Word(w, (self.finite,)) for w in more]
        tail += self._form("base")
        if first in MODAL_VERBS:
            self.auxiliary, self.rest = [Word(first, (self.finite,))], tail
        elif first == "be":
            keys = (self.finite,)
            self.auxiliary, self.rest = [Word(inflect("be", tense, self.person), possible=keys)], tail
        elif self.support:
            self.auxiliary, self.rest = [self._do(tense)], [Word(first, (self.finite,)), *tail]
        else:
            self.rest = [Word(inflect(first, tense, self.person), (self.finite,)), *tail]

    def _gladly(self) -> None:
        """ "liest gern": "likes to read" or "likes reading"."""
        key: Key = (self.clause, "gladly")
        tail = (
            [Word("to", possible=(key,)), *self._form("base")]
            if self.choices.either(0.6)
            else self._form("ing")
        )
        if self.support:
            self.auxiliary, self.rest = [self._do(PRESENT)], [Word("like", (key,)), *tail]
        else:
            self.rest = [Word(inflect("like", PRESENT, self.person), (key,)), *tail]
