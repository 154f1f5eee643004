"""The kinds of entries in the lexicon and the short notations they are written in."""

import re
from dataclasses import dataclass

WEIGHTS = {1: (1.0,), 2: (0.6, 0.4), 3: (0.5, 0.3, 0.2)}  # of English alternatives, most probable first


@dataclass(frozen=True, eq=False)
class Noun:
    """A German noun with its forms and its English renderings (singulars)."""

    singular: str
    plural: str
    oblique: str  # accusative and dative singular; differs from `singular` in weak nouns only
    gender: str
    tags: str
    english: tuple[str, ...]
    mass: bool


@dataclass(frozen=True, eq=False)
class Adjective:
    """A German adjective with its English renderings by the tag of the noun it describes."""

    german: str
    english: tuple[tuple[str, tuple[str, ...]], ...]

    def options(self, tags: str) -> tuple[str, ...]:
        """English translations next to a noun with these tags; empty if the two do not fit."""
        return _matching(self.english, tags)


@dataclass(frozen=True, eq=False)
class Verb:
    """A German verb, its frame (which objects it takes) and its English renderings by the object's tag."""

    particle: str  # separable prefix, or the noun of "Angst haben"
    forms: tuple[str, str, str]  # present: ich, er, wir; the last is the infinitive, too
    participle: str
    english: tuple[tuple[str, tuple[str, ...]], ...]
    subjects: str
    frame: str  # one of "", acc, dat, swap, give, go, at, adj, noun, that, or a preposition with its case
    objects: str
    flags: str  # s: no progressive; S: no progressive, no modal; b: perfect with sein; h: past tense, no perfect;
    # n: the particle is a noun; a: without company

    def options(self, tags: str) -> tuple[str, ...]:
        """English renderings with an object of these tags."""
        return _matching(self.english, tags)


@dataclass(frozen=True, eq=False)
class Idiom:
    """A fixed German phrase; each English rendering is a list of (word, German positions it translates)."""

    german: tuple[str, ...]
    english: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]
    tags: str


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb: forms for ich, er, wir; weighted English renderings, affirmed and negated."""

    forms: tuple[str, str, str]
    affirmed: tuple[tuple[str, float], ...]
    negated: tuple[tuple[str, float], ...]
    past: bool


@dataclass(frozen=True, eq=False)
class Place:
    """A place to be or to go to: German and English prepositions at rest and in motion."""

    noun: Noun
    at: str  # German, with the dative
    to: str  # German, with the accusative ("zu": dative)
    at_english: tuple[str, ...]
    to_english: tuple[str, ...]
    tags: str


def _matching(table: tuple[tuple[str, tuple[str, ...]], ...], tags: str) -> tuple[str, ...]:
    return next((options for accepted, options in table if not accepted or set(accepted) & set(tags)), ())


def lines(text: str) -> list[str]:
    """The lines of a table that are not blank."""
    return [line.strip() for line in text.strip().split("\n") if line.strip()]


def _by_tag(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reads "C: wear; T: carry" (by tag) or "repair/fix" (for all tags)."""
    parts = [part.split(":") if ":" in part else ("", part) for part in text.split(";")]
    return tuple((tags.strip(), tuple(options.strip().split("/"))) for tags, options in parts)


def _noun(line: str, group: str) -> Noun:
    german, english = line.split("=")
    gender, singular, plural, *more = german.split()
    oblique = next((word[1:] for word in more if word.startswith("~")), singular)
    tags = group + "".join(word for word in more if not word.startswith("~"))
    options = tuple(english.strip().split("/"))
    return Noun(singular, plural, oblique, gender, tags, options, mass=plural == "-")


def _verb(line: str) -> Verb:
    german, english, subjects, frame, *flags = (part.strip() for part in line.split("|"))
    particle, _, forms = german.rpartition("+")
    infinitive, first, third, participle = forms.split()
    frame, _, objects = frame.partition(":")
    present = (first, third, infinitive)
    return Verb(particle, present, participle, _by_tag(english), subjects, frame, objects, "".join(flags))


def _idiom(line: str) -> Idiom:
    german, english, *tags = (part.strip() for part in re.split(r"[>|]", line))
    options = []
    for option in english.split("/"):
        pairs = [re.fullmatch(r"(\D+)(\d+)", word) for word in option.split()]
        options.append(tuple((pair[1], tuple(map(int, pair[2]))) for pair in pairs if pair))
    return Idiom(tuple(german.split()), tuple(options), "".join(tags))


def nouns(groups: dict[str, str]) -> tuple[Noun, ...]:
    """Reads lines such as "m Junge Jungen ~Jungen = boy": gender, singular, plural ("-": none), ~oblique, tags."""
    return tuple(_noun(line, group) for group, text in groups.items() for line in lines(text))


def adjectives(text: str) -> tuple[Adjective, ...]:
    """Reads lines such as "faul = PKA: lazy; o: rotten"."""
    return tuple(Adjective(german.strip(), _by_tag(english)) for german, english in _halves(text))


def _halves(text: str) -> list[list[str]]:
    return [line.split("=") for line in lines(text)]


def verbs(text: str) -> tuple[Verb, ...]:
    """Reads lines such as "an+rufen rufe ruft gerufen | call/phone | P | acc:P |": forms, English, frame, flags."""
    return tuple(map(_verb, lines(text)))


def idioms(text: str) -> tuple[Idiom, ...]:
    """Reads lines such as "nach Hause > home01 | fg": the digits say which German words are translated."""
    return tuple(map(_idiom, lines(text)))


def places(text: str, known: tuple[Noun, ...]) -> tuple[Place, ...]:
    """Reads lines such as "Bahnhof | an | zu | at | to | fg": German and English at rest and in motion, tags."""
    by_name = {noun.singular: noun for noun in known}
    rows = [[part.strip() for part in line.split("|")] for line in lines(text)]
    return tuple(
        Place(by_name[name], at, to, tuple(at_english.split("/")), tuple(to_english.split("/")), tags)
        for name, at, to, at_english, to_english, tags in rows
    )


def modals(text: str, *, past: bool) -> tuple[Modal, ...]:
    """Reads lines such as "kann kann können | can 0.85, be able to 0.15 | can 1"."""
    rows = [[part.strip() for part in line.split("|")] for line in lines(text)]
    return tuple(
        Modal(_three(forms), _shares(affirmed), _shares(negated), past) for forms, affirmed, negated in rows
    )


def _three(text: str) -> tuple[str, str, str]:
    first, third, plural = text.split()
    return first, third, plural


def _shares(text: str) -> tuple[tuple[str, float], ...]:
    pairs = [option.strip().rpartition(" ") for option in text.split(",")]
    return tuple((words, float(share)) for words, _, share in pairs)
