"""Meanings of the demo language, drawn at random: everything that the German sentence shows, nothing else.

A meaning fixes the German sentence word by word, and the German sentence fixes the meaning up to what both
languages render alike; whatever else English may choose is drawn later, with its probability on record.
"""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from random import Random
from typing import TypeVar

from latentalign.data.demo_lexicon import (
    ADJECTIVES,
    ADVERBS,
    AT_REST,
    COMMENTS,
    CONJUNCTIONS,
    COORDINATORS,
    IN_MOTION,
    MODALS,
    NOUNS,
    PLACES,
    PRAISE,
    PREDICATES,
    QUESTION_WORDS,
    RIDES,
    THAT,
    TIMES,
    VERBS,
    WHETHER,
    Adjective,
    Idiom,
    Modal,
    Noun,
    Verb,
)

T = TypeVar("T")


class Tense(Enum):
    """The German tense, by which verb is finite."""

    PRESENT, PERFECT, PAST, FUTURE, MODAL = range(5)


ANY, NOW, THEN = frozenset(Tense), frozenset({Tense.PRESENT}), frozenset({Tense.PERFECT, Tense.PAST})
AHEAD = frozenset({Tense.PRESENT, Tense.FUTURE, Tense.MODAL})


# Nodes are compared by identity: the same noun twice in a sentence is two nodes, and words point to nodes.
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
    """A noun with all that belongs to it."""

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
    place: Adjunct | Fixed | None = None
    company: Adjunct | None = None
    ride: Fixed | None = None
    time: Fixed | None = None
    adverb: Fixed | None = None
    comment: Fixed | None = None
    gladly: bool = False
    negated: bool = False  # by "nicht"; "kein" is a determiner
    habitual: bool = False
    first: object = None


@dataclass(eq=False)
class Sentence:
    """One or two clauses with what joins them."""

    main: Clause
    joint: Fixed | None = None
    second: Clause | None = None
    subordinate_first: bool = False
    object_clause: bool = False
    question: bool = False
    asks: Fixed | None = None  # warum, wann, wo
    tied: bool = False  # a pronoun of one clause stands for the subject of the other


def tags_of(nominal: Nominal) -> str:
    """What the phrase is about, as tags."""
    if isinstance(nominal, Pronoun):
        return nominal.tags
    if isinstance(nominal, Relative):
        return nominal.head.noun.tags
    return (nominal.first if isinstance(nominal, Both) else nominal).noun.tags


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


@cache
def _nouns(tags: str, names: bool) -> tuple[Noun, ...]:
    return tuple(n for n in NOUNS if overlap(n.tags, tags) and (names or "N" not in n.tags))


@cache
def _adjectives(tags: str) -> tuple[Adjective, ...]:
    return tuple(a for a in ADJECTIVES if a.options(tags))


@cache
def _verbs(frame: str, subjects: str) -> tuple[Verb, ...]:
    """Verbs of a frame ("prep": any preposition) that accept such a subject."""
    fits = [v for v in VERBS if overlap(v.subjects, subjects)]
    return tuple(v for v in fits if (v.frame == frame or (frame == "prep" and " " in v.frame)))


@cache
def _tenses(verb: Verb) -> dict[Tense, int]:
    """How often the verb stands in each tense."""
    if "h" in verb.flags:
        return {Tense.PRESENT: 7, Tense.PAST: 3}
    if "S" in verb.flags:
        return {Tense.PRESENT: 7, Tense.PERFECT: 3}
    return {Tense.PRESENT: 42, Tense.PERFECT: 30, Tense.MODAL: 19, Tense.FUTURE: 7}


FRAMES = {"": 13, "acc": 40, "dat": 5, "swap": 8, "give": 15, "prep": 10, "go": 9, "at": 5, "adj": 8, "noun": 2}
SINGULAR = {"the": 50, "a": 24, "my": 10, "this": 7, "our": 6}
PLURAL = {"the": 45, "": 16, "my": 8, "two": 8, "three": 4, "many": 6, "all": 5, "this": 5}
MASS = {"the": 45, "": 45, "this": 5}
DEFINITE = {"the", "my", "our", "this", "his", "all", "every"}


class Author:
    """Draws the meaning of one sentence; no noun is used twice in it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.used: set[str] = set()

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: "tuple[T, ...] | list[T]") -> T:
        return items[int(self.rng.random() * len(items))]

    def weighted(self, table: dict[T, int]) -> T:
        point = self.rng.random() * sum(table.values())
        for item, weight in table.items():
            point -= weight
            if point < 0:
                return item
        return item

    # -- noun phrases ---------------------------------------------------------------------------------------

    def noun(self, tags: str, *, names: bool = False) -> Noun:
        fresh = [n for n in _nouns(tags, names) if n.singular not in self.used]
        noun = self.pick(fresh or list(_nouns(tags, names)))
        self.used.add(noun.singular)
        return noun

    def phrase(self, tags: str, *, definite: bool = False, plain: bool = False, names: bool = False) -> Phrase:
        """A noun phrase; plain ones have no owner, attachment or relative clause."""
        noun = self.noun(tags, names=names)
        if "N" in noun.tags:
            return Phrase(noun, False, "")
        plural = not noun.mass and self.chance(0.2)
        table = MASS if noun.mass else PLURAL if plural else SINGULAR
        # "isst Kuchen" would be read as a mass: a plural without article must look like one.
        same = noun.plural == noun.singular
        table = {d: w for d, w in table.items() if (not definite or d in DEFINITE) and (d or not same or noun.mass)}
        phrase = Phrase(noun, plural, self.weighted(table))
        if self.chance(0.25):
            phrase.adjective = self.pick(_adjectives(noun.tags)) if _adjectives(noun.tags) else None
        if not plain and phrase.determiner == "the":
            self.complete(phrase)
        return phrase

    def complete(self, phrase: Phrase) -> None:
        """Adds an owner ("der Hund des Nachbarn") or a piece of clothing ("die Frau mit dem Hut") now and then."""
        if overlap(phrase.noun.tags, "KAFRCTMVW") and self.chance(0.15):
            phrase.owner = self.phrase("PK", definite=True, plain=True, names=True)
            phrase.owner.plural, phrase.owner.adjective = False, None
            if phrase.owner.determiner not in {"", "the", "my"}:
                phrase.owner.determiner = "the"
        elif "P" in phrase.noun.tags and self.chance(0.08):
            clothing = self.phrase("C", plain=True)
            clothing.plural, clothing.determiner = False, self.pick(("the", "a"))
            phrase.attachment = Adjunct("mit", 2, ("with",), clothing)

    def subject(self, verb: Verb, *, alone: bool) -> Nominal:
        """A subject that suits the verb; he, she and they only in a clause that stands alone."""
        tags = verb.subjects
        if "P" in tags and verb.frame != "noun" and self.chance(0.2):
            return Pronoun(self.pick(("I", "he", "she", "we", "they") if alone else ("I", "we")), "P")
        people = "P" in tags and self.chance(0.12)
        if overlap("PKA", tags) and self.chance(0.06):
            living = "".join(tag for tag in "PKA" if tag in tags)
            return Both(*(self.phrase(living, definite=True, plain=True) for _ in range(2)))
        # An owner in the genitive before a dative would read like one more dative.
        plain = verb.frame in {"dat", "give"}
        phrase = self.phrase("N" if people else tags, definite=verb.frame == "swap", plain=plain, names=people)
        if phrase.determiner == "the" and not phrase.plural and overlap("PKA", tags) and self.chance(0.05):
            if not (phrase.owner or phrase.attachment):
                phrase.determiner = "every" if self.chance(0.7) else "no"
        return phrase

    def relative(self, head: Phrase) -> None:
        """Adds a relative clause to a phrase that has none of the other companions."""
        if head.owner or head.attachment or not head.determiner or head.determiner in {"no", "every", "many"}:
            return
        tags, pronoun = head.noun.tags, Relative(head)
        if overlap(tags, "PKA") and self.chance(0.6):
            clause = self.clause(subject=pronoun, alone=False, plain=True)
        else:
            verbs = [v for v in VERBS if v.frame == "acc" and overlap(v.objects, tags) and "h" not in v.flags]
            if not verbs:
                return
            verb = self.pick(verbs)
            subject = self.subject(verb, alone=False)
            masculine = head.noun.gender == "m" and not head.plural
            if not (masculine or marked_nominative(subject)):
                return
            tense = self.pick((Tense.PRESENT, Tense.PERFECT, Tense.PERFECT))
            clause = Clause(verb, subject, tense, accusative=pronoun)
        head.relative = clause

    # -- clauses --------------------------------------------------------------------------------------------

    def verb(self, subject: Nominal | None, tenses: frozenset[Tense], *, plain: bool) -> Verb:
        tags = tags_of(subject) if subject else "PKAFDRCTMVLQx"
        weights = {f: w for f, w in FRAMES.items() if not (subject and f in {"swap", "noun"})}
        if plain:
            weights = {f: w for f, w in weights.items() if f not in {"dat", "give", "noun"}}
        while True:
            verbs = [v for v in _verbs(self.weighted(weights), tags) if not tenses.isdisjoint(_tenses(v))]
            if verbs:
                return self.pick(verbs)

    def clause(
        self,
        tenses: frozenset[Tense] = ANY,
        *,
        subject: Nominal | None = None,
        alone: bool = True,
        plain: bool = False,
        habitual: bool = False,
    ) -> Clause:
        """A clause; plain ones have no adverbs; `alone` is False for the second of two clauses."""
        verb = self.verb(subject, tenses, plain=plain)
        tense = self.weighted({t: w for t, w in _tenses(verb).items() if t in tenses})
        clause = Clause(verb, subject or self.subject(verb, alone=alone), tense, habitual=habitual)
        if tense is Tense.MODAL:
            clause.modal = self.pick([m for m in MODALS if tenses == ANY or not m.past])
        self.arguments(clause)
        self.circumstances(clause)
        self.negation(clause)
        if not plain:
            self.adverbs(clause)
        return clause

    def arguments(self, clause: Clause) -> None:
        verb = clause.verb
        if verb.frame == "acc":
            clause.accusative = self.object(verb.objects, clause.subject)
        elif verb.frame in {"dat", "swap"}:
            clause.dative = self.receiver(verb.objects, clause.subject)
        elif verb.frame == "give":
            dative, accusative = verb.objects.split(":")
            clause.dative = self.receiver(dative, clause.subject)
            clause.accusative = self.phrase(accusative)
        elif " " in verb.frame:
            clause.oblique = self.phrase(verb.objects, plain=verb.frame.endswith("2"))
            if verb.objects == "m":
                clause.oblique.determiner = ""
        elif verb.frame == "adj":
            clause.predicate = self.pick([p for p in PREDICATES if p.options(tags_of(clause.subject))])
        elif verb.frame == "noun":
            self.profession(clause)

    def object(self, tags: str, subject: Nominal) -> Nominal:
        others = [k for k in ("I", "he", "we") if not (isinstance(subject, Pronoun) and subject.kind == k)]
        if "P" in tags and self.chance(0.12):
            return Pronoun(self.pick(others), "P")
        if self.chance(0.04):
            return Both(*(self.phrase(tags, definite=True, plain=True) for _ in range(2)))
        phrase = self.phrase(tags)
        plain = not (phrase.owner or phrase.attachment or phrase.noun.mass)
        if plain and phrase.determiner in {"the", "a", "my"} and is_man(subject) and self.chance(0.3):
            phrase.determiner = "his"
        return phrase

    def receiver(self, tags: str, subject: Nominal) -> Nominal:
        kinds = ["I", "he", "she", "we", "they"]
        others = [k for k in kinds if not (isinstance(subject, Pronoun) and subject.kind == k)]
        if self.chance(0.25):
            return Pronoun(self.pick(others), "P")
        return self.phrase(tags, definite=True, plain=True)

    def profession(self, clause: Clause) -> None:
        """ "Karl ist ein guter Koch": the predicate's gender follows the subject's."""
        subject = clause.subject
        if not isinstance(subject, Phrase):
            subject = clause.subject = self.phrase("P", definite=True)
        subject.plural = False
        if subject.determiner == "all":
            subject.determiner = "the"
        names = {"m": ("Koch", "Lehrer", "Pirat", "Philosoph", "Arzt"), "f": ("Lehrerin", "Ärztin", "Hexe", "Chefin")}
        options = [n for n in NOUNS if n.singular in names[subject.noun.gender] and n.singular not in self.used]
        clause.predicate = Phrase(self.pick(options), False, "a", self.pick(PRAISE))

    def circumstances(self, clause: Clause) -> None:
        """Places, companions and vehicles."""
        verb = clause.verb
        if verb.frame == "go":
            clause.place = self.destination(verb)
            if "fahre" in verb.forms and self.chance(0.6):
                clause.ride = Fixed(self.pick(RIDES))
        elif verb.frame == "at":
            clause.place = self.location(verb.objects)
        elif verb.frame in {"", "acc"} and not overlap(verb.flags, "Sb") and self.chance(0.2):
            clause.place = self.location("gjik")
        elif verb.frame in {"", "go"} and "n" not in verb.flags and self.chance(0.15):
            german, case, english = self.pick((("mit", 2, "with"), ("mit", 2, "with"), ("ohne", 1, "without")))
            clause.company = Adjunct(german, case, (english,), self.phrase("PKt", definite=True, plain=True, names=True))

    def location(self, tags: str) -> Adjunct | Fixed:
        fixed = [i for i in AT_REST if overlap(i.tags, tags)]
        places = [p for p in PLACES if overlap(p.tags, tags) and p.noun.singular not in self.used]
        if self.chance(0.25):
            return Fixed(self.pick(fixed))
        place = self.pick(places)
        return Adjunct(place.at, 2, place.at_english, self.site(place.noun))

    def destination(self, verb: Verb) -> Adjunct | Fixed:
        fixed = [i for i in IN_MOTION if overlap(i.tags, verb.objects)]
        places = [p for p in PLACES if overlap(p.tags, verb.objects) and p.noun.singular not in self.used]
        if fixed and self.chance(0.3):
            return Fixed(self.pick(fixed))
        place = self.pick(places)
        return Adjunct(place.to, 2 if place.to == "zu" else 1, place.to_english, self.site(place.noun))

    def site(self, noun: Noun) -> Phrase:
        self.used.add(noun.singular)
        phrase = Phrase(noun, False, self.weighted({"the": 84, "my": 8, "our": 8}))
        if self.chance(0.15):
            phrase.adjective = self.pick(_adjectives(noun.tags))
        return phrase

    def negation(self, clause: Clause) -> None:
        """ "nicht", or "kein" where the object is indefinite; never beside words that change what it denies."""
        goal, verb = clause.accusative, clause.verb
        if "n" in verb.flags or not deniable(clause.subject) or not self.chance(0.18):
            return
        if verb.frame == "noun" and isinstance(clause.predicate, Phrase):
            clause.predicate.determiner = "no"
        elif isinstance(goal, Phrase) and goal.determiner in {"a", ""}:
            goal.determiner = "no"
        elif goal is None or isinstance(goal, Pronoun) or (isinstance(goal, Phrase) and goal.determiner in DEFINITE):
            if goal is None or clause.place is None:
                clause.negated = not (isinstance(goal, Phrase) and goal.determiner in {"all", "every"})

    # -- adverbs and word order -----------------------------------------------------------------------------

    def adverbs(self, clause: Clause) -> None:
        verb, state = clause.verb, "S" in clause.verb.flags and clause.verb.frame not in {"adj", "at"}
        letter = "q" if is_past(clause) else "p" if clause.tense is Tense.PRESENT else "f"
        busy = not overlap(verb.flags, "sS")
        glad = letter == "p" and busy and (verb.frame in {"acc", "go", "give"} or (verb.frame, verb.flags) == ("", ""))
        if glad and clause.negated == denies(clause) and self.chance(0.1):
            clause.gladly = True
            return
        if self.chance(0.4) and not state:
            times = [t for t in TIMES if letter in t.tags and ("g" not in t.tags or (busy and not clause.habitual))]
            clause.time = Fixed(self.pick(times))
        if not denies(clause) and clause.modal is None and self.chance(0.25) and verb.frame != "swap":
            fits = [a for a in ADVERBS if letter in a.tags and (not state or "S" in a.tags)]
            if clause.time and overlap(clause.time.idiom.tags, "gh"):
                fits = [a for a in fits if "h" not in a.tags]
            if verb.frame in {"adj", "at"}:
                fits = [a for a in fits if overlap(a.tags, "h") or a.german[0] == "wahrscheinlich"]
            clause.adverb = Fixed(self.pick(fits)) if fits else None

    def comment(self, clause: Clause) -> None:
        if not (clause.time or clause.adverb or clause.gladly) and self.chance(0.15):
            clause.comment = Fixed(self.pick(COMMENTS))

    def front(self, clause: Clause) -> None:
        """Chooses what stands before the finite verb: the subject, an adverb, a place or an object."""
        options: dict[object, float] = {}
        if clause.time:
            options[clause.time] = 0.5
        if clause.adverb and "v" in clause.adverb.idiom.tags:
            options[clause.adverb] = 0.3
        if clause.comment:
            options[clause.comment] = 0.7
        if clause.place and clause.verb.frame in {"", "acc", "at"} and not clause.negated and not denies(clause):
            options[clause.place] = 0.15
        if clause.verb.frame == "swap" and not isinstance(clause.subject, Both):
            options[clause.dative] = 0.5
        if clause.verb.frame == "acc" and self.frontable(clause):
            options[clause.accusative] = 0.15
        clause.first = next((node for node, weight in options.items() if self.chance(weight)), clause.subject)

    def frontable(self, clause: Clause) -> bool:
        """Whether the object may stand first and still be known as the object by its form."""
        goal = clause.accusative
        if not isinstance(goal, Phrase) or goal.determiner not in {"the", "this", "my", "our"} or goal.relative:
            return False
        masculine = goal.noun.gender == "m" and not goal.plural
        return masculine or marked_nominative(clause.subject)

    # -- sentences ------------------------------------------------------------------------------------------

    def sentence(self) -> Sentence:
        kinds = {self.simple: 44, self.joined: 25, self.reported: 14, self.coordinated: 7, self.asked: 10}
        return self.weighted(kinds)()

    def simple(self) -> Sentence:
        clause = self.clause()
        for nominal in (clause.subject, clause.accusative):
            if isinstance(nominal, Phrase) and nominal.determiner not in {"no", "his", ""} and self.chance(0.22):
                if nominal is clause.subject or not clause.place:
                    self.relative(nominal)
                    break
        self.comment(clause)
        self.front(clause)
        return Sentence(clause)

    def joined(self) -> Sentence:
        """A main clause with a subordinate clause before or behind it; the later one may take up the subject."""
        joint = self.pick(CONJUNCTIONS)
        habitual, purpose = "h" in joint.tags, "c" in joint.tags
        before = "v" in joint.tags and self.chance(0.5)
        tenses = AHEAD if purpose else NOW | THEN if "t" in joint.tags else NOW if habitual else ANY
        opening = self.clause(tenses, habitual=habitual)
        tied = self.pronoun_for(opening.subject) if not purpose and self.chance(0.5) else None
        if purpose:
            later = frozenset({Tense.MODAL})
        else:
            later = THEN if is_past(opening) else NOW
        closing = self.clause(later, subject=tied, habitual=habitual, alone=False, plain=True)
        if purpose:
            closing.modal = MODALS[0]
        main, second = (closing, opening) if before else (opening, closing)
        if not before:
            self.comment(main)
            self.front(main)
        return Sentence(main, Fixed(joint), second, subordinate_first=before, tied=tied is not None)

    def reported(self) -> Sentence:
        """A verb of saying or thinking with its clause ("dass", "ob")."""
        verb = self.pick(_verbs("that", "PK") * 2 + _verbs("whether", "PK"))
        tense = Tense.PERFECT if "S" not in verb.flags and self.chance(0.3) else Tense.PRESENT
        main = Clause(verb, self.subject(verb, alone=True), tense)
        main.first = main.subject
        doubts = verb.frame == "whether" and "S" in verb.flags
        sceptic = verb.forms[0] == "glaube" and deniable(main.subject) and self.chance(0.3)
        if doubts and not deniable(main.subject):
            main.subject = main.first = self.phrase("P", definite=True, plain=True)
        main.negated = doubts or sceptic
        tied = self.pronoun_for(main.subject) if self.chance(0.3) else None
        second = self.clause(THEN if tense is Tense.PERFECT else ANY, subject=tied, alone=False)
        joint = Fixed(WHETHER if verb.frame == "whether" else THAT)
        return Sentence(main, joint, second, object_clause=True, tied=tied is not None)

    def coordinated(self) -> Sentence:
        joint = self.pick(COORDINATORS)
        main, second = self.clause(), self.clause(alone=False, plain=True)
        self.front(main)
        second.first = second.subject
        return Sentence(main, Fixed(joint), second)

    def asked(self) -> Sentence:
        """A question: yes or no, "wer", or with warum, wann, wo."""
        clause = self.clause(plain=True)
        while clause.verb.frame == "noun" or (denies(clause) and not clause.negated):
            self.used.clear()
            clause = self.clause(plain=True)
        asks = self.pick(QUESTION_WORDS) if self.chance(0.5) else None
        if asks and "l" in asks.tags and (clause.place or clause.verb.frame in {"adj", "swap", "prep"}):
            asks = None
        if asks is None and overlap(clause.verb.subjects, "PK") and clause.verb.frame != "swap" and self.chance(0.4):
            clause.subject = clause.first = Pronoun("who", "P")
        return Sentence(clause, question=True, asks=Fixed(asks) if asks else None)

    def pronoun_for(self, subject: Nominal) -> Pronoun | None:
        """The pronoun that takes up a subject; None where German or English would hesitate."""
        tags = tags_of(subject)
        if isinstance(subject, Pronoun):
            return Pronoun(subject.kind, tags)
        if not isinstance(subject, Phrase) or not overlap(tags, "PKA") or subject.determiner in {"no", "every"}:
            return None
        if subject.plural:
            return Pronoun("they", tags)
        if "A" in tags:
            return Pronoun(f"it {subject.noun.gender}", tags)
        return {"m": Pronoun("he", tags), "f": Pronoun("she", tags)}.get(subject.noun.gender)


def is_past(clause: Clause) -> bool:
    """Whether the clause tells of the past."""
    return clause.tense in THEN or (clause.modal is not None and clause.modal.past)


def denies(clause: Clause) -> bool:
    """Whether the clause holds a negation of any kind."""
    phrases = (clause.subject, clause.accusative, clause.predicate)
    return clause.negated or any(isinstance(p, Phrase) and p.determiner == "no" for p in phrases)


def deniable(subject: Nominal) -> bool:
    """Whether a negation behind this subject has one reading only ("alle Hunde bellen nicht" has two)."""
    if isinstance(subject, Phrase) and "N" not in subject.noun.tags:
        return subject.determiner in {"the", "my", "our", "this"}
    return True


def is_man(nominal: Nominal) -> bool:
    """Whether "sein" can only mean "his"."""
    if isinstance(nominal, Pronoun):
        return nominal.kind == "he"
    person = isinstance(nominal, Phrase) and overlap(nominal.noun.tags, "PK")
    return person and nominal.noun.gender == "m" and not nominal.plural


def marked_nominative(nominal: Nominal) -> bool:
    """Whether its form alone says that it is the subject."""
    if isinstance(nominal, Pronoun):
        return nominal.kind in {"I", "he", "we"}
    single = isinstance(nominal, Phrase) and not nominal.plural and nominal.noun.gender == "m"
    return single and nominal.determiner in {"the", "this", "every", "my", "our", "a", "no"}
