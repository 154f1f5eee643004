"""Random clauses: a verb, its arguments, and optional additions."""

from functools import cache

from latentalign.data.demo_language.entries import Verb
from latentalign.data.demo_language.lexicon import (
    ADVERBS,
    COMMENTS,
    MODALS,
    NOUNS,
    PRAISE,
    PREDICATES,
    RIDES,
    TIMES,
    VERBS,
)
from latentalign.data.demo_language.meaning import (
    ANY,
    DEFINITE,
    Adjunct,
    Clause,
    Fixed,
    Nominal,
    Phrase,
    Pronoun,
    Relative,
    Tense,
    deniable,
    denies,
    is_named,
    is_past,
    overlap,
    shows_case,
    tags_of,
)
from latentalign.data.demo_language.phrases import PhraseAuthor

# Weights of the frames of verbs.
FRAMES = {
    "": 13,
    "acc": 40,
    "dat": 5,
    "swap": 8,
    "give": 15,
    "prep": 10,
    "go": 9,
    "at": 5,
    "adj": 8,
    "noun": 2,
}


@cache
def verbs_of(frame: str, subjects: str, tenses: frozenset[Tense] = ANY) -> tuple[Verb, ...]:
    """Verbs of a frame ("prep": any preposition) that accept such a subject and one of the tenses."""
    fits = [v for v in VERBS if overlap(v.subjects, subjects) and not tenses.isdisjoint(tenses_of(v))]
    return tuple(v for v in fits if (v.frame == frame or (frame == "prep" and " " in v.frame)))


@cache
def tenses_of(verb: Verb) -> dict[Tense, int]:
    """Weights of the tenses of a verb."""
    if "h" in verb.flags:
        return {Tense.PRESENT: 7, Tense.PAST: 3}
    if "S" in verb.flags:
        return {Tense.PRESENT: 7, Tense.PERFECT: 3}
    return {Tense.PRESENT: 34, Tense.PERFECT: 42, Tense.MODAL: 16, Tense.FUTURE: 6}


@cache
def mutual_verbs() -> tuple[Verb, ...]:
    """Verbs whose subject and object may exchange roles."""
    framed = [v for v in VERBS if v.frame in {"acc", "dat"} or " " in v.frame]
    return tuple(v for v in framed if set("PKA") & set(v.subjects) & set(v.objects))


class ClauseAuthor(PhraseAuthor):
    """Draws clauses for one sentence."""

    def subject(self, verb: Verb, *, alone: bool) -> Nominal:
        """A subject that fits the verb. Only a clause that stands alone may have he, she and they."""
        tags = verb.subjects
        if "P" in tags and verb.frame != "noun" and self.chance(0.12):
            return Pronoun(self.pick(("I", "he", "she", "we", "they") if alone else ("I", "we")), "P")
        people = "P" in tags and self.chance(0.09)
        if overlap("PKA", tags) and self.chance(0.1):
            return self.both("".join(tag for tag in "PKA" if tag in tags))
        # A genitive before a dative would look like a second dative.
        plain = verb.frame in {"dat", "give", "swap"}
        phrase = self.phrase(
            "N" if people else tags, definite=verb.frame == "swap", plain=plain, names=people
        )
        bare = phrase.determiner == "the" and not (phrase.plural or phrase.owner or phrase.attachment)
        if bare and overlap("PKA", tags) and self.chance(0.06):
            phrase.determiner = "every" if self.chance(0.7) else "no"
        return phrase

    def relative(self, head: Phrase) -> None:
        """Add a relative clause to a phrase that has no other dependents."""
        if (
            head.owner
            or head.attachment
            or head.determiner not in {"the", "a", "two", "three", "many", "all"}
        ):
            return
        tags, pronoun = head.noun.tags, Relative(head)
        if overlap(tags, "PKA") and self.chance(0.6):
            clause = self.clause(subject=pronoun, alone=False, plain=True)
            if isinstance(clause.accusative, Phrase) and not denies(clause) and self.chance(0.3):
                self.relative(clause.accusative)
        else:
            verbs = [v for v in VERBS if v.frame == "acc" and overlap(v.objects, tags) and "h" not in v.flags]
            if not verbs:
                return
            verb = self.pick(verbs)
            subject = self.subject(verb, alone=False)
            masculine = head.noun.gender == "m" and not head.plural
            if not (masculine or shows_case(subject)):
                return
            tense = self.pick((Tense.PRESENT, Tense.PERFECT, Tense.PERFECT))
            clause = Clause(verb, subject, tense, accusative=pronoun)
        head.relative = clause

    def some_verb(self, subject: Nominal | None, tenses: frozenset[Tense], *, plain: bool) -> Verb:
        """A verb that fits the subject and one of the tenses."""
        tags = tags_of(subject) if subject else "PKAFDRCTMVLQx"
        weights = {f: w for f, w in FRAMES.items() if not (subject and f in {"swap", "noun"})}
        if plain:
            weights = {f: w for f, w in weights.items() if f not in {"dat", "give", "noun"}}
        while True:
            verbs = verbs_of(self.weighted(weights), tags, tenses)
            if verbs:
                return self.pick(verbs)

    def clause(
        self,
        tenses: frozenset[Tense] = ANY,
        *,
        verb: Verb | None = None,
        subject: Nominal | None = None,
        alone: bool = True,
        plain: bool = False,
        habitual: bool = False,
        deniable: bool = True,
    ) -> Clause:
        """A clause. Plain clauses have no adverbs. `alone` is False for the second of two clauses."""
        verb = verb or self.some_verb(subject, tenses, plain=plain)
        tense = self.weighted({t: w for t, w in tenses_of(verb).items() if t in tenses})
        clause = Clause(verb, subject or self.subject(verb, alone=alone), tense, habitual=habitual)
        if tense is Tense.MODAL:
            clause.modal = self.pick([m for m in MODALS if tenses == ANY or not m.past])
        self.arguments(clause)
        self.circumstances(clause)
        if deniable:
            self.negation(clause)
        if not plain:
            self.adverbs(clause)
        return clause

    def arguments(self, clause: Clause) -> None:
        """Add the arguments that the frame of the verb needs."""
        verb = clause.verb
        if verb.frame == "acc":
            clause.accusative = self.object(verb.objects, clause.subject)
        elif verb.frame == "dat":
            clause.dative = self.receiver(verb.objects, clause.subject)
        elif verb.frame == "swap":
            clause.dative = self.receiver(verb.objects, None)
        elif verb.frame == "give":
            dative, accusative = verb.objects.split(":")
            clause.dative = self.receiver(dative, clause.subject)
            clause.accusative = self.phrase(accusative)
        elif " " in verb.frame:
            known = self.again(verb.objects)
            clause.oblique = known or self.phrase(verb.objects, plain=verb.frame.endswith("2"))
            if verb.objects == "m":
                clause.oblique.determiner = ""
        elif verb.frame == "adj":
            self.quality(clause)
        elif verb.frame == "noun":
            self.profession(clause)

    def quality(self, clause: Clause) -> None:
        """ "ist müde", "ist so müde wie der Hund"."""
        tags = tags_of(clause.subject)
        clause.predicate = self.pick([p for p in PREDICATES if p.options(tags)])
        if overlap(tags, "PKA") and self.chance(0.35):
            other = self.contrast(tags, clause.subject) or self.again("PKA")
            clause.equal = other or self.phrase("PKA", definite=True)

    def profession(self, clause: Clause) -> None:
        """ "Karl ist ein guter Koch": the gender of the predicate follows the subject."""
        subject = clause.subject
        if not isinstance(subject, Phrase):
            subject = clause.subject = self.phrase("P", definite=True)
        if subject.plural:
            subject.plural, subject.determiner = False, "the"
        names = {
            "m": ("Koch", "Lehrer", "Pirat", "Philosoph", "Arzt"),
            "f": ("Lehrerin", "Ärztin", "Hexe", "Chefin"),
        }
        options = [
            n for n in NOUNS if n.singular in names[subject.noun.gender] and n.singular not in self.used
        ]
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
        elif verb.frame in {"", "acc"} and not overlap(verb.flags, "Sb") and self.chance(0.27):
            people = clause.accusative is not None and overlap(tags_of(clause.accusative), "PK")
            clause.place = self.location("g" if people else "gjik")
        elif verb.frame in {"", "go"} and not overlap(verb.flags, "na") and self.chance(0.15):
            german, case, english = self.pick(
                (("mit", 2, "with"), ("mit", 2, "with"), ("ohne", 1, "without"))
            )
            clause.company = Adjunct(
                german, case, (english,), self.phrase("PKt", definite=True, plain=True, names=True)
            )

    def negation(self, clause: Clause) -> None:
        """ "nicht", or "kein" if the object is indefinite; never with words that change its scope."""
        goal, verb = clause.accusative, clause.verb
        if "n" in verb.flags or not deniable(clause.subject) or not self.chance(0.18):
            return
        if verb.frame == "noun" and isinstance(clause.predicate, Phrase):
            clause.predicate.determiner = "no"
        elif isinstance(goal, Phrase) and goal.determiner in {"a", ""}:
            goal.determiner = "no"
        elif goal is None:
            clause.negated = True
        elif clause.place is None:
            known = isinstance(goal, Phrase) and goal.determiner in DEFINITE - {"all", "every"}
            clause.negated = known or isinstance(goal, Pronoun)

    # -- adverbs and word order -----------------------------------------------------------------------------

    def adverbs(self, clause: Clause) -> None:
        """Add "gern", a time or an adverb that fits the tense and the verb."""
        verb, busy = clause.verb, not overlap(clause.verb.flags, "sS")
        letter = "q" if is_past(clause) else "p" if clause.tense is Tense.PRESENT else "f"
        glad = verb.frame in {"acc", "go", "give"} or (verb.frame == "" and "b" not in verb.flags)
        if glad and busy and letter == "p" and clause.negated == denies(clause) and self.chance(0.1):
            clause.gladly = True
            return
        state = "S" in verb.flags and verb.forms[2] != "sein"
        if not state and verb.frame != "noun" and self.chance(0.4):
            under_way = busy and not clause.habitual
            times = [t for t in TIMES if letter in t.tags and (under_way or "g" not in t.tags)]
            clause.time = Fixed(self.pick(times))
        if verb.frame != "swap" and clause.modal is None and not denies(clause) and self.chance(0.25):
            fits = [a for a in ADVERBS if letter in a.tags and (not state or "S" in a.tags)]
            if clause.time:
                fits = [a for a in fits if "h" not in a.tags and a.german[0] != "schon"]
            if verb.frame in {"adj", "at"}:
                fits = [a for a in fits if "h" in a.tags or a.german[0] == "wahrscheinlich"]
            clause.adverb = Fixed(self.pick(fits)) if fits else None

    def comment(self, clause: Clause) -> None:
        """Sometimes add "leider" or a similar word."""
        if not (clause.time or clause.adverb or clause.gladly) and self.chance(0.15):
            clause.comment = Fixed(self.pick(COMMENTS))

    def front(self, clause: Clause) -> None:
        """Choose what comes before the finite verb: the subject, an adverb, a place or an object."""
        options: dict[object, float] = {}
        if clause.time:
            options[clause.time] = 0.5
        if clause.adverb and "v" in clause.adverb.idiom.tags:
            options[clause.adverb] = 0.3
        if clause.comment:
            options[clause.comment] = 0.7
        if clause.place and clause.verb.frame in {"", "acc", "at"} and not denies(clause):
            options[clause.place] = 0.15
        if clause.verb.frame == "swap" and not (
            isinstance(clause.dative, Phrase) and is_named(clause.dative)
        ):
            options[clause.dative] = 0.5
        if clause.verb.frame == "acc" and not (clause.time or clause.adverb) and self.frontable(clause):
            options[clause.accusative] = 0.5
        clause.first = next((node for node, weight in options.items() if self.chance(weight)), clause.subject)

    def frontable(self, clause: Clause) -> bool:
        """Whether the object may come first and is still recognisable as the object."""
        goal = clause.accusative
        if (
            not isinstance(goal, Phrase)
            or goal.determiner not in {"the", "this", "my", "our"}
            or goal.relative
        ):
            return False
        return not is_named(goal) and (shows_case(goal) or shows_case(clause.subject))
