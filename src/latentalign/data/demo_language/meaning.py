"""Meanings of the demo language: everything that the German sentence shows, nothing else.

A meaning fixes the German sentence word by word, and the German sentence fixes the meaning up to what both
languages render alike; whatever else English may choose is drawn later, with its probability on record.
"""

from dataclasses import dataclass
from enum import Enum

from latentalign.data.demo_language.entries import Adjective, Idiom, Modal, Noun, Verb


class Tense(Enum):
    """The German tense, by which verb is finite."""

    PRESENT, PERFECT, PAST, FUTURE, MODAL = range(5)


ANY, NOW, THEN = frozenset(Tense), frozenset({Tense.PRESENT}), frozenset({Tense.PERFECT, Tense.PAST})
AHEAD = frozenset({Tense.FUTURE, Tense.MODAL})


# Nodes are compared by identity. If a noun occurs twice in a sentence, there are two nodes.
@dataclass(eq=False)
class Fixed:
    """An idiom at one place of a sentence."""

    idiom: Idiom


@dataclass(eq=False)
class Pronoun:
    """A pronoun and the tags of what it stands for."""

    kind: str
    tags: str


@dataclass(eq=False)
class Adjunct:
    """A preposition with its case (1 accusative, 2 dative), its English renderings and its noun phrase."""

    german: str
    case: int
    english: tuple[str, ...]
    phrase: "Phrase"


@dataclass(eq=False)
class Phrase:
    """A noun with its determiner, adjective and other dependents."""

    noun: Noun
    plural: bool
    determiner: str
    adjective: Adjective | None = None
    owner: "Phrase | None" = None
    attachment: Adjunct | None = None
    relative: "Clause | None" = None


@dataclass(eq=False)
class Both:
    """Two noun phrases joined by "und"."""

    first: Phrase
    second: Phrase


@dataclass(eq=False)
class Relative:
    """The relative pronoun of a clause that describes `head`."""

    head: Phrase


Nominal = Phrase | Pronoun | Both | Relative


@dataclass(eq=False)
class Clause:
    """A verb with its arguments, circumstances and what stands first in German (None: the verb or the subject)."""

    verb: Verb
    subject: Nominal
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    accusative: Nominal | None = None
    dative: Nominal | None = None
    oblique: Phrase | None = None  # with the preposition that the verb's frame names
    predicate: Adjective | Phrase | None = None
    equal: Phrase | None = None  # "so müde wie der Hund"
    place: Adjunct | Fixed | None = None
    company: Adjunct | None = None
    ride: Fixed | None = None
    time: Fixed | None = None
    adverb: Fixed | None = None
    comment: Fixed | None = None
    gladly: bool = False
    too: bool = False
    negated: bool = False  # by "nicht"; "kein" is a determiner
    habitual: bool = False  # English without progressive
    in_narrative: bool = False  # English past without "has"
    first: object = None


@dataclass(eq=False)
class Sentence:
    """One or two clauses with what joins them."""

    main: Clause
    joint: Fixed | None = None
    second: Clause | None = None
    subordinate_first: bool = False
    question: bool = False
    asks: Fixed | None = None  # warum, wann, wo
    tied: bool = False  # the later clause speaks of what the earlier one named: English keeps their order


def tags_of(nominal: Nominal) -> str:
    """The tags of what the phrase refers to."""
    if isinstance(nominal, Pronoun):
        return nominal.tags
    if isinstance(nominal, Relative):
        return nominal.head.noun.tags
    return (nominal.first if isinstance(nominal, Both) else nominal).noun.tags


def settle(sentence: Sentence) -> Sentence:
    """The sentence with those traits of its English tenses and order that two clauses fix together.

    They are read off what German shows, never off how the sentence came about: the same German sentence may
    come about in several ways.
    """
    main, second, joint = sentence.main, sentence.second, sentence.joint
    if second is None or joint is None:
        return sentence
    echo = not _nouns_of(main).isdisjoint(_nouns_of(second))
    for clause in (main, second):
        clause.in_narrative = True
        clause.habitual = echo or "h" in joint.idiom.tags
    referring = isinstance(main.subject, Pronoun) and main.subject.kind not in {"I", "we"}
    sentence.tied = echo or referring
    return sentence


def _nouns_of(clause: Clause) -> set[str]:
    """The nouns of a clause's subject and objects."""
    parts = (clause.subject, clause.accusative, clause.dative, clause.oblique, clause.equal)
    pairs = [(p.first, p.second) if isinstance(p, Both) else (p,) for p in parts]
    return {p.noun.singular for pair in pairs for p in pair if isinstance(p, Phrase)}


def is_plural(nominal: Nominal) -> bool:
    """Whether the verb agrees with it in the plural."""
    if isinstance(nominal, Pronoun):
        return nominal.kind in {"we", "they"}
    if isinstance(nominal, Both):
        return True
    return (nominal.head if isinstance(nominal, Relative) else nominal).plural


def overlap(one: str, other: str) -> bool:
    """Whether two strings of tags share a tag."""
    return not set(one).isdisjoint(other)


DEFINITE = {"the", "my", "our", "this", "his", "all", "every"}


def is_definite(phrase: Phrase) -> bool:
    """Whether the phrase is definite."""
    return phrase.determiner in DEFINITE or "N" in phrase.noun.tags


def is_past(clause: Clause) -> bool:
    """Whether the clause is about the past."""
    return clause.tense in THEN or (clause.modal is not None and clause.modal.past)


def suits(verb: Verb, subject: Phrase, other: Phrase) -> bool:
    """Whether the verb accepts these two."""
    return overlap(subject.noun.tags, verb.subjects) and overlap(other.noun.tags, verb.objects)


def denies(clause: Clause) -> bool:
    """Whether the clause contains a negation."""
    phrases = (clause.subject, clause.accusative, clause.predicate)
    return clause.negated or any(isinstance(p, Phrase) and p.determiner == "no" for p in phrases)


def deniable(subject: Nominal) -> bool:
    """Whether a negation after this subject is unambiguous ("alle Hunde bellen nicht" has two readings)."""
    if isinstance(subject, Phrase) and "N" not in subject.noun.tags:
        return subject.determiner in {"the", "my", "our", "this"}
    return True


def is_man(nominal: Nominal) -> bool:
    """Whether "sein" can only mean "his"."""
    if isinstance(nominal, Pronoun):
        return nominal.kind == "he"
    if not isinstance(nominal, Phrase):
        return False
    return overlap(nominal.noun.tags, "PK") and nominal.noun.gender == "m" and not nominal.plural


def is_named(phrase: Phrase) -> bool:
    """Whether the phrase is a name or belongs to one ("Annas Hund"). Such phrases do not show their case."""
    return "N" in phrase.noun.tags or (phrase.owner is not None and "N" in phrase.owner.noun.tags)


def shows_case(nominal: Nominal) -> bool:
    """Whether the form alone distinguishes a subject from an accusative object."""
    if isinstance(nominal, Pronoun):
        return nominal.kind in {"I", "he", "we"}
    if not isinstance(nominal, Phrase) or nominal.plural or nominal.noun.gender != "m" or is_named(nominal):
        return False
    return nominal.determiner in {"the", "this", "every", "my", "our", "a", "no"}
