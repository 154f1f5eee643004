"""The German sentence for a meaning: declension, verb position and the order of the middle field."""

from collections.abc import Iterable
from dataclasses import dataclass

from latentalign.data.demo_language.entries import Adjective, Noun
from latentalign.data.demo_language.lexicon import BE, DETERMINERS, HAVE, PAST_FORMS, PRONOUNS, WILL
from latentalign.data.demo_language.meaning import (
    Adjunct,
    Both,
    Clause,
    Fixed,
    Nominal,
    Phrase,
    Pronoun,
    Relative,
    Sentence,
    Tense,
    is_definite,
    is_plural,
)

Key = tuple[object, object]  # a part of the meaning: a node and which part of it


@dataclass(frozen=True)
class Word:
    """A word of either language, and the parts of the meaning that it surely or possibly expresses."""

    text: str
    sure: tuple[Key, ...] = ()
    possible: tuple[Key, ...] = ()


# Strong endings by gender (p: plural) for nominative, accusative, dative, genitive.
ENDINGS = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
ARTICLES = {"er": "der", "e": "die", "es": "das", "en": "den", "em": "dem"}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}
STEMS = {"teuer": "teur", "müde": "müd"}


def article(gender: str, case: int) -> str:
    """The definite article, which is also the relative pronoun."""
    return "des" if case == 3 and gender in "mn" else ARTICLES[ENDINGS[gender][case]]


def determiner(name: str, gender: str, case: int) -> str:
    """A declined determiner."""
    kind, stem = DETERMINERS[name][:2]
    if stem == "d":
        return article(gender, case)
    return stem if kind == "none" or _bare(kind, gender, case) else stem + ENDINGS[gender][case]


def _bare(kind: str, gender: str, case: int) -> bool:
    """Whether "ein" and similar words have no ending."""
    return kind == "ein" and (gender + str(case)) in {"m0", "n0", "n1"}


def adjective(german: str, name: str, *, gender: str, case: int) -> str:
    """A declined adjective: strong if no determiner shows the case, otherwise weak."""
    kind = DETERMINERS[name][0]
    if kind in {"none", "strong"} or _bare(kind, gender, case):
        ending = ENDINGS[gender][case]
    else:
        ending = "e" if (gender + str(case)) in {"m0", "f0", "n0", "f1", "n1"} else "en"
    return STEMS.get(german, german) + ending


def noun_form(noun: Noun, case: int, *, plural: bool) -> str:
    """A declined noun."""
    if plural:
        return noun.plural + ("n" if case == 2 and noun.plural[-1] not in "ns" else "")
    if case == 3 and noun.oblique == noun.singular and (noun.gender != "f" or "N" in noun.tags):
        return noun.singular + ("es" if noun.singular.endswith(("nn", "zt", "nd")) else "s")
    return noun.singular if case == 0 else noun.oblique


def nominal(node: Nominal, case: int) -> list[Word]:
    """A noun phrase or pronoun in a case, including its relative clause."""
    if isinstance(node, Pronoun):
        return [Word(PRONOUNS[node.kind][case], ((node, "noun"),))]
    if isinstance(node, Both):
        return [*nominal(node.first, case), Word("und", ((node, "and"),)), *nominal(node.second, case)]
    if isinstance(node, Relative):
        gender = "p" if node.head.plural else node.head.noun.gender
        return [Word(article(gender, case), ((node, "noun"),))]
    return core(node, case) + relative(node)


def core(node: Phrase, case: int) -> list[Word]:
    """A noun phrase without its relative clause."""
    gender = "p" if node.plural else node.noun.gender
    words = []
    if node.owner and "N" in node.owner.noun.tags:  # "Annas Hund"
        words.append(
            Word(noun_form(node.owner.noun, 3, plural=False), ((node.owner, "noun"), (node.owner, "'s")))
        )
    elif node.determiner:
        words.append(Word(determiner(node.determiner, gender, case), ((node, "determiner"),)))
    if node.adjective:
        name = "" if node.owner and "N" in node.owner.noun.tags else node.determiner
        text = adjective(node.adjective.german, name, gender=gender, case=case)
        words.append(Word(text, ((node, "adjective"),)))
    words.append(Word(noun_form(node.noun, case, plural=node.plural), ((node, "noun"),)))
    if node.owner and "N" not in node.owner.noun.tags:
        words += core(node.owner, 3)
    return words + (adjunct(node.attachment) if node.attachment else [])


def relative(node: Phrase) -> list[Word]:
    """The relative clause between its commas."""
    return [Word(","), *verb_final(node.relative), Word(",")] if node.relative else []


def adjunct(node: Adjunct | Fixed) -> list[Word]:
    """A prepositional phrase. Preposition and article are contracted as usual in German."""
    if isinstance(node, Fixed):
        return fixed(node)
    return prepositional(node, node.german, node.phrase, case=node.case)


def prepositional(node: object, preposition: str, phrase: Phrase, *, case: int) -> list[Word]:
    words = nominal(phrase, case)
    short = CONTRACTIONS.get((preposition, words[0].text)) if phrase.determiner == "the" else None
    if short:
        return [Word(short, ((node, "preposition"), *words[0].sure)), *words[1:]]
    return [Word(preposition, ((node, "preposition"),)), *words]


def fixed(node: Fixed) -> list[Word]:
    """The words of an idiom."""
    return [Word(text, ((node, i),)) for i, text in enumerate(node.idiom.german)]


# -- clauses ------------------------------------------------------------------------------------------------


def verbs(clause: Clause) -> tuple[Word, list[Word]]:
    """The finite verb, and the particle, participle or infinitive at the end of the clause."""
    verb, person = clause.verb, _person(clause.subject)
    stem, particle, auxiliary = (clause, "verb"), (clause, "particle"), (clause, "finite")
    infinitive = verb.forms[2]
    prefix = "" if "n" in verb.flags else verb.particle
    whole = (stem, particle) if prefix else (stem,)
    if clause.tense is Tense.PERFECT:
        forms = BE if "b" in verb.flags else HAVE
        return Word(forms[person], (auxiliary,)), [Word(prefix + verb.participle, whole)]
    if clause.tense is Tense.FUTURE:
        return Word(WILL[person], (auxiliary,)), [Word(prefix + infinitive, whole)]
    if clause.modal:
        return Word(clause.modal.forms[person], (auxiliary,)), [Word(prefix + infinitive, whole)]
    forms = (
        PAST_FORMS[infinitive] if clause.tense is Tense.PAST else BE if infinitive == "sein" else verb.forms
    )
    return Word(forms[person], (stem,)), [Word(prefix, (particle,))] if prefix else []


def _person(subject: Nominal) -> int:
    if isinstance(subject, Pronoun) and subject.kind == "I":
        return 0
    return 2 if is_plural(subject) else 1


def middle(clause: Clause) -> list[Word]:
    """Everything between the finite verb and the end of the clause, except what comes first."""
    goal, receiver, verb = clause.accusative, clause.dative, clause.verb
    early = isinstance(goal, Both) or (isinstance(goal, Phrase) and is_definite(goal))
    late_adverb = clause.adverb is not None and "n" in clause.adverb.idiom.tags
    slots: list[tuple[object, Iterable[Word]]] = [
        (clause.subject, nominal(clause.subject, 0)),
        (goal, nominal(goal, 1) if isinstance(goal, Pronoun) else ()),
        (receiver, nominal(receiver, 2) if isinstance(receiver, Pronoun) else ()),
        (clause.comment, fixed(clause.comment) if clause.comment else ()),
        (clause.time, fixed(clause.time) if clause.time else ()),
        (clause.adverb, fixed(clause.adverb) if clause.adverb and not late_adverb else ()),
        (receiver, nominal(receiver, 2) if receiver and not isinstance(receiver, Pronoun) else ()),
        (goal, _object(goal) if early else ()),
        (clause.adverb, fixed(clause.adverb) if clause.adverb and late_adverb else ()),
        (clause, [Word("nicht", ((clause, "not"),))] if clause.negated else ()),
        (clause, [Word("auch", ((clause, "too"),))] if clause.too else ()),
        (clause, [Word("gern", ((clause, "gladly"),))] if clause.gladly else ()),
        (goal, _object(goal) if not early else ()),
        (clause, [Word(verb.particle, ((clause, "particle"),))] if "n" in verb.flags else ()),
        (clause, adjunct(clause.company) if clause.company else ()),
        (clause, fixed(clause.ride) if clause.ride else ()),
        (clause.place, adjunct(clause.place) if clause.place else ()),
        (clause, _oblique(clause)),
        (clause, _predicate(clause)),
    ]
    return [word for node, words in slots if node is None or node is not clause.first for word in words]


def _object(goal: Nominal | None) -> list[Word]:
    """The accusative object. Its relative clause comes at the end of the whole clause."""
    if goal is None or isinstance(goal, Pronoun | Relative):
        return []
    return core(goal, 1) if isinstance(goal, Phrase) else nominal(goal, 1)


def _oblique(clause: Clause) -> list[Word]:
    if clause.oblique is None:
        return []
    preposition, case = clause.verb.frame.split()
    return prepositional(clause.oblique, preposition, clause.oblique, case=int(case))


def _predicate(clause: Clause) -> list[Word]:
    if isinstance(clause.predicate, Adjective):
        degree = [Word("so", ((clause, "so"),))] if clause.equal else []
        return [*degree, Word(clause.predicate.german, ((clause, "predicate"),))]
    return nominal(clause.predicate, 0) if clause.predicate else []


def _tail(clause: Clause) -> list[Word]:
    """Parts that German moves after the verb: comparisons and the relative clause of the object."""
    if clause.equal:
        return [Word("wie", ((clause, "wie"),)), *nominal(clause.equal, 0)]
    return relative(clause.accusative) if isinstance(clause.accusative, Phrase) else []


def opening(clause: Clause) -> list[Word]:
    """The words before the finite verb."""
    node = clause.first
    if isinstance(node, Fixed | Adjunct):
        return adjunct(node)
    cases = ((clause.subject, 0), (clause.accusative, 1), (clause.dative, 2))
    return next((nominal(part, case) for part, case in cases if part is node and part is not None), [])


def verb_second(clause: Clause) -> list[Word]:
    """A main clause. A question, or a clause after a subordinate clause, starts with the verb."""
    finite, closing = verbs(clause)
    return [*opening(clause), finite, *middle(clause), *closing, *_tail(clause)]


def verb_final(clause: Clause) -> list[Word]:
    """A subordinate clause. A separable verb is one word in it, and a relative pronoun comes first."""
    finite, closing = verbs(clause)
    if finite.sure == ((clause, "verb"),) and closing:
        closing, finite = [], Word(closing[0].text + finite.text, (*finite.sure, *closing[0].sure))
    pronoun = nominal(clause.accusative, 1) if isinstance(clause.accusative, Relative) else []
    return [*pronoun, *middle(clause), *closing, finite, *_tail(clause)]


def german(sentence: Sentence) -> list[Word]:
    """The German sentence, word by word."""
    words = fixed(sentence.asks) if sentence.asks else []
    main, end = verb_second(sentence.main), Word("?" if sentence.question else ".", ((sentence, "end"),))
    comma = Word(",", ((sentence, "comma"),))
    if sentence.second is None or sentence.joint is None:
        return _tidy([*words, *main, end])
    if sentence.second.first is not None:
        commas = [comma] if sentence.joint.idiom.tags else []
        return _tidy([*main, *commas, *fixed(sentence.joint), *verb_second(sentence.second), end])
    second = [*fixed(sentence.joint), *verb_final(sentence.second)]
    return _tidy([*second, comma, *main, end] if sentence.subordinate_first else [*main, comma, *second, end])


def _tidy(words: list[Word]) -> list[Word]:
    """Merge repeated commas, and remove a comma before the full stop."""
    kept: list[Word] = []
    for word in words:
        if kept and kept[-1].text == "," and word.text in {",", ".", "?"}:
            comma = kept.pop()
            word = Word(word.text, word.sure + comma.sure) if word.text == "," else word
        kept.append(word)
    return kept
