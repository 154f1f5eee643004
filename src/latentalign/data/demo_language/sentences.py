"""Random sentences: one clause, or two related clauses."""

from latentalign.data.demo_language.clauses import ClauseAuthor, mutual_verbs, tenses_of, verbs_of
from latentalign.data.demo_language.entries import Verb
from latentalign.data.demo_language.lexicon import (
    CONJUNCTIONS,
    COORDINATORS,
    MODALS,
    QUESTION_WORDS,
    THAT,
    VERBS,
    WHETHER,
)
from latentalign.data.demo_language.meaning import (
    AHEAD,
    ANY,
    NOW,
    THEN,
    Clause,
    Fixed,
    Nominal,
    Phrase,
    Pronoun,
    Sentence,
    Tense,
    deniable,
    denies,
    is_past,
    overlap,
    settle,
    suits,
    tags_of,
)


class Author(ClauseAuthor):
    """Draws the meaning of one sentence."""

    def sentence(self) -> Sentence:
        """A sentence of any kind."""
        kinds = {
            self.simple: 33,
            self.joined: 17,
            self.reported: 8,
            self.coordinated: 12,
            self.mirrored: 30,
            self.asked: 7,
        }
        return settle(self.weighted(kinds)())

    def simple(self) -> Sentence:
        """One main clause."""
        if self.chance(0.12):
            return self.presented()
        clause = self.clause()
        if not clause.negated and self.chance(0.4):
            self.describe(clause)
        self.comment(clause)
        self.front(clause)
        return Sentence(clause)

    def presented(self) -> Sentence:
        """ "das ist der Hund , der die Katze gebissen hat , die ...": the house that Jack built."""
        verb = next(v for v in VERBS if v.frame == "noun")
        phrase = Phrase(self.noun("PKA"), False, "the")
        while phrase.relative is None:
            self.relative(phrase)
        this, tense = Pronoun("this", "P"), Tense.PAST if self.chance(0.35) else Tense.PRESENT
        return Sentence(Clause(verb, this, tense, predicate=phrase, first=this))

    def describe(self, clause: Clause) -> None:
        """Add a relative clause to the subject or the object, if possible."""
        for nominal in (clause.subject, clause.accusative):
            if (
                isinstance(nominal, Phrase)
                and (nominal is clause.subject or not clause.place)
                and self.chance(0.6)
            ):
                self.relative(nominal)
                return

    def joined(self) -> Sentence:
        """A main clause with a subordinate clause before or after it."""
        joint = self.pick(CONJUNCTIONS)
        habitual, purpose = "h" in joint.tags, "c" in joint.tags
        before = "v" in joint.tags and self.chance(0.5)
        tenses = AHEAD if purpose else NOW | THEN if "t" in joint.tags else NOW if habitual else ANY
        opening = self.clause(tenses, habitual=habitual)
        tied = self.pronoun_for(opening.subject) if not purpose and self.chance(0.25) else None
        later = frozenset({Tense.MODAL}) if purpose else THEN if is_past(opening) else NOW
        closing = self.following(opening, later, subject=tied, deniable=joint.german[0] != "bevor")
        if purpose:
            closing.modal = MODALS[0]
        main, second = (closing, opening) if before else (opening, closing)
        if not before:
            self.comment(main)
            self.front(main)
        return Sentence(main, Fixed(joint), second, subordinate_first=before)

    def following(
        self, opening: Clause, tenses: frozenset[Tense], *, subject: Nominal | None, deniable: bool = True
    ) -> Clause:
        """A second clause that may repeat the nouns or the verb of the first."""
        parts = (opening.accusative, opening.dative, opening.oblique)
        vague = {"no", "every", "his", "many", "all"}
        self.known = [p for p in parts if isinstance(p, Phrase) and p.determiner not in vague]
        subject = subject or self.again("PKA")
        free = not isinstance(
            subject, Pronoun
        )  # otherwise, the pronoun refers to the subject of the first clause
        if free and isinstance(opening.subject, Phrase) and opening.subject.determiner not in vague:
            self.known.append(opening.subject)
        verb = opening.verb
        fits = verb.frame in {"", "acc"} and "n" not in verb.flags and not tenses.isdisjoint(tenses_of(verb))
        same = fits and free and not opening.gladly and self.chance(0.6)
        if same and subject and not overlap(tags_of(subject), verb.subjects):
            subject = None
        closing = self.clause(
            tenses,
            verb=verb if same else None,
            subject=subject,
            alone=False,
            plain=True,
            habitual=opening.habitual,
            deniable=deniable,
        )
        reserved = denies(opening) or denies(closing) or opening.time or opening.adverb
        closing.too = same and verb.frame == "" and not reserved
        return closing

    def mirrored(self) -> Sentence:
        """ "der Koch liebt die Hexe , aber die Hexe liebt den Koch nicht": the roles are exchanged."""
        verb = self.pick(mutual_verbs())
        joint = self.pick([i for i in (*CONJUNCTIONS, *COORDINATORS) if not overlap(i.tags, "ct")])
        tenses = NOW if "h" in joint.tags else NOW | THEN
        tense = self.weighted({t: w for t, w in tenses_of(verb).items() if t in tenses})
        tags = "".join(tag for tag in "PKA" if tag in verb.subjects and tag in verb.objects)
        one, two = self.partner(tags), self.partner(tags)
        others = [v for v in mutual_verbs() if tense in tenses_of(v) and suits(v, two, one)]
        answer = self.pick(others) if others and self.chance(0.2) else verb
        first = self.roles(verb, one, two, tense=tense)
        second = self.roles(answer, self.repeated(two), self.repeated(one), tense=tense)
        second.negated = answer is verb and joint.german[0] in {"aber", "obwohl"} and "n" not in verb.flags
        if joint in CONJUNCTIONS and self.chance(0.4):
            return Sentence(second, Fixed(joint), first, subordinate_first=True)
        first.first = first.subject
        second.first = second.subject if joint in COORDINATORS else None
        return Sentence(first, Fixed(joint), second)

    def partner(self, tags: str) -> Phrase:
        """A person who can be both subject and object of the verb."""
        phrase = self.phrase("N" if "P" in tags and self.chance(0.08) else tags, plain=True)
        kept = phrase.determiner in {"a", "my"} and not phrase.plural
        phrase.determiner = phrase.determiner if kept or "N" in phrase.noun.tags else "the"
        return phrase

    def roles(self, verb: Verb, subject: Phrase, other: Phrase, *, tense: Tense) -> Clause:
        """A clause with a subject and one object."""
        clause = Clause(verb, subject, tense)
        if verb.frame == "acc":
            clause.accusative = other
        elif verb.frame == "dat":
            clause.dative = other
        else:
            clause.oblique = other
        return clause

    def reported(self) -> Sentence:
        """A verb of saying or thinking with its clause ("dass", "ob")."""
        verb = self.pick(verbs_of("that", "PK") * 2 + verbs_of("whether", "PK"))
        tense = Tense.PERFECT if "S" not in verb.flags and self.chance(0.3) else Tense.PRESENT
        main = Clause(verb, self.subject(verb, alone=True), tense)
        main.first = main.subject
        doubts = verb.frame == "whether" and "S" in verb.flags
        sceptic = verb.forms[0] == "glaube" and deniable(main.subject) and self.chance(0.3)
        if doubts and not deniable(main.subject):
            main.subject = main.first = self.phrase("P", definite=True, plain=True)
        main.negated = doubts or sceptic
        tied = self.pronoun_for(main.subject) if self.chance(0.3) else None
        tenses = THEN if tense is Tense.PERFECT else ANY
        second = self.clause(tenses, subject=tied, alone=False, deniable=not main.negated)
        joint = Fixed(WHETHER if verb.frame == "whether" else THAT)
        return Sentence(main, joint, second)

    def coordinated(self) -> Sentence:
        """Two main clauses."""
        joint = self.pick(COORDINATORS)
        main = self.clause()
        second = self.following(main, THEN if is_past(main) else NOW, subject=None)
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
        if asks and asks.tags and (clause.place or clause.negated or clause.verb.frame in {"adj", "swap"}):
            asks = None
        person = overlap(tags_of(clause.subject), "PK") and clause.verb.frame != "swap"
        if asks is None and person and self.chance(0.4):
            clause.subject = clause.first = Pronoun("who", "P")
        return Sentence(clause, question=True, asks=Fixed(asks) if asks else None)

    def pronoun_for(self, subject: Nominal) -> Pronoun | None:
        """The pronoun that refers to a subject; None if it would be unusual in German or English."""
        tags = tags_of(subject)
        if isinstance(subject, Pronoun):
            return Pronoun(subject.kind, tags)
        if (
            not isinstance(subject, Phrase)
            or not overlap(tags, "PKA")
            or subject.determiner in {"no", "every"}
        ):
            return None
        if subject.plural:
            return Pronoun("they", tags)
        if "A" in tags:
            return Pronoun(f"it {subject.noun.gender}", tags)
        return {"m": Pronoun("he", tags), "f": Pronoun("she", tags)}.get(subject.noun.gender)
