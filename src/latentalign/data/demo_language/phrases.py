"""Random noun phrases and places."""

from functools import cache
from random import Random
from typing import TypeVar

from latentalign.data.demo_language.entries import Adjective, Noun, Verb
from latentalign.data.demo_language.lexicon import ADJECTIVES, AT_REST, IN_MOTION, NOUNS, PLACES
from latentalign.data.demo_language.meaning import (
    DEFINITE,
    Adjunct,
    Both,
    Fixed,
    Nominal,
    Phrase,
    Pronoun,
    is_man,
    overlap,
)

T = TypeVar("T")


@cache
def _nouns(tags: str, names: bool) -> tuple[Noun, ...]:
    return tuple(n for n in NOUNS if overlap(n.tags, tags) and (names or tags == "N" or "N" not in n.tags))


@cache
def _adjectives(tags: str) -> tuple[Adjective, ...]:
    return tuple(a for a in ADJECTIVES if a.options(tags))


SINGULAR = {"the": 76, "a": 14, "my": 5, "this": 3, "our": 2}
PLURAL = {"the": 70, "": 10, "my": 4, "two": 5, "three": 2, "many": 4, "all": 3, "this": 2}
MASS = {"the": 65, "": 32, "this": 3}


class PhraseAuthor:
    """Draws noun phrases for one sentence. A noun is repeated only for the same thing or for a contrast."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.used: set[str] = set()
        self.theme: Adjective | None = (
            None  # the last adjective, which may be repeated: an old man likes an old car
        )
        self.known: list[Phrase] = []  # phrases of the first clause; the second clause may mention them again

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def pick(self, items: "tuple[T, ...] | list[T]") -> T:
        """One of the items, with equal probabilities."""
        return items[int(self.rng.random() * len(items))]

    def weighted(self, table: dict[T, int]) -> T:
        """One of the keys, with probabilities proportional to the weights."""
        point = self.rng.random() * sum(table.values())
        for item, weight in table.items():
            point -= weight
            if point < 0:
                return item
        return item

    def noun(self, tags: str, *, names: bool = False) -> Noun:
        """A noun with one of the tags that is new in the sentence."""
        fresh = [n for n in _nouns(tags, names) if n.singular not in self.used]
        noun = self.pick(fresh or list(_nouns(tags, names)))
        self.used.add(noun.singular)
        return noun

    def phrase(
        self, tags: str, *, definite: bool = False, plain: bool = False, names: bool = False
    ) -> Phrase:
        """A noun phrase. Plain phrases have no owner, attachment or relative clause."""
        noun = self.noun(tags, names=names)
        if "N" in noun.tags:
            return Phrase(noun, False, "")
        plural = not noun.mass and self.chance(0.2)
        table = MASS if noun.mass else PLURAL if plural else SINGULAR
        # "isst Kuchen" looks like a mass noun, so a plural without an article must be recognisable.
        same = noun.plural == noun.singular
        table = {
            d: w for d, w in table.items() if (not definite or d in DEFINITE) and (d or not same or noun.mass)
        }
        phrase = Phrase(noun, plural, self.weighted(table))
        if self.chance(0.24):
            self.adorn(phrase)
        if not plain and phrase.determiner == "the":
            self.complete(phrase)
        return phrase

    def adorn(self, phrase: Phrase) -> None:
        """Add an adjective that fits the noun, often the last one used."""
        options = _adjectives(phrase.noun.tags)
        if options:
            again = self.theme in options and self.chance(0.6)
            phrase.adjective = self.theme = self.theme if again else self.pick(options)

    def again(self, tags: str) -> Phrase | None:
        """A phrase with these tags that was mentioned before, now definite. Each is used once."""
        fits = [p for p in self.known if overlap(p.noun.tags, tags)]
        if not fits or self.chance(0.1):
            return None
        known = self.pick(fits)
        self.known = [p for p in self.known if p.noun is not known.noun]
        return self.repeated(known)

    def repeated(self, known: Phrase) -> Phrase:
        """A second mention of the same thing."""
        kept = known.determiner in {"my", "our", "this"} or "N" in known.noun.tags
        return Phrase(known.noun, known.plural, known.determiner if kept else "the")

    def contrast(self, tags: str, subject: Nominal | None) -> Phrase | None:
        """Another thing of the same kind: an old pirate and a young pirate, Anna's dog and the queen's dog."""
        if not isinstance(subject, Phrase) or subject.plural or subject.determiner not in {"the", "a"}:
            return None
        if not overlap(subject.noun.tags, tags) or subject.noun.mass or self.chance(0.35):
            return None
        other = Phrase(subject.noun, False, subject.determiner)
        if overlap(subject.noun.tags, "KA") and subject.determiner == "the" and not subject.adjective:
            subject.owner, other.owner = subject.owner or self.owner(), self.owner()
            return other
        options = _adjectives(subject.noun.tags)
        if subject.owner or len(options) < 2:
            return None
        subject.adjective = subject.adjective or self.pick(options)
        other.adjective = self.pick([a for a in options if a is not subject.adjective])
        return other

    def both(self, tags: str) -> Both:
        """Two phrases, possibly of the same kind."""
        first = self.phrase(tags, definite=True, plain=True)
        return Both(first, self.contrast(tags, first) or self.phrase(tags, definite=True, plain=True))

    def owner(self) -> Phrase:
        """A person who owns things."""
        noun = self.noun("P", names=True)
        return Phrase(noun, False, "" if "N" in noun.tags else "my" if self.chance(0.15) else "the")

    def complete(self, phrase: Phrase) -> None:
        """Sometimes add an owner ("der Hund des Nachbarn") or a belonging ("die Frau mit dem Hut")."""
        if overlap(phrase.noun.tags, "KAFRCTMVW") and self.chance(0.25):
            phrase.owner = self.owner()
        elif "P" in phrase.noun.tags and self.chance(0.08):
            belonging = Phrase(self.noun("z"), False, self.pick(("the", "a")))
            if self.chance(0.3):
                self.adorn(belonging)
            phrase.attachment = Adjunct("mit", 2, ("with",), belonging)

    def object(self, tags: str, subject: Nominal) -> Nominal:
        """An accusative object: a known thing, another of the same kind as the subject, a pronoun or a new phrase."""
        others = [k for k in ("I", "he", "we") if not (isinstance(subject, Pronoun) and subject.kind == k)]
        known = self.again(tags) or self.contrast(tags, subject)
        if known:
            return known
        if "P" in tags and self.chance(0.08):
            return Pronoun(self.pick(others), "P")
        if self.chance(0.06):
            return self.both(tags)
        phrase = self.phrase(tags)
        plain = not (phrase.owner or phrase.attachment or phrase.noun.mass)
        if plain and phrase.determiner in {"the", "a", "my"} and is_man(subject) and self.chance(0.3):
            phrase.determiner = "his"
        return phrase

    def receiver(self, tags: str, subject: Nominal | None) -> Nominal:
        """A dative object."""
        kinds = ["I", "he", "she", "we", "they"]
        others = [k for k in kinds if not (isinstance(subject, Pronoun) and subject.kind == k)]
        known = self.again(tags) or self.contrast(tags, subject)
        if known and known.determiner != "a":
            return known
        if self.chance(0.18):
            return Pronoun(self.pick(others), "P")
        return self.phrase(tags, definite=True, plain=True)

    def location(self, tags: str) -> Adjunct | Fixed:
        """A place to be."""
        fixed = [i for i in AT_REST if overlap(i.tags, tags)]
        places = [p for p in PLACES if overlap(p.tags, tags) and p.noun.singular not in self.used]
        if self.chance(0.25):
            return Fixed(self.pick(fixed))
        place = self.pick(places)
        return Adjunct(place.at, 2, place.at_english, self.site(place.noun))

    def destination(self, verb: Verb) -> Adjunct | Fixed:
        """A place to go to."""
        fixed = [i for i in IN_MOTION if overlap(i.tags, verb.objects)]
        places = [p for p in PLACES if overlap(p.tags, verb.objects) and p.noun.singular not in self.used]
        if fixed and self.chance(0.3):
            return Fixed(self.pick(fixed))
        place = self.pick(places)
        return Adjunct(place.to, 2 if place.to == "zu" else 1, place.to_english, self.site(place.noun))

    def site(self, noun: Noun) -> Phrase:
        """The noun phrase of a place."""
        self.used.add(noun.singular)
        phrase = Phrase(noun, False, self.weighted({"the": 84, "my": 8, "our": 8}))
        if self.chance(0.15):
            phrase.adjective = self.pick(_adjectives(noun.tags))
        return phrase
