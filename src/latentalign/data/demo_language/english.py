"""English sentences for a meaning. Every choice that German leaves open is drawn, and its probability is known."""

from latentalign.data.demo_language.english_verbs import Choices, VerbGroup, person_of, plural_of
from latentalign.data.demo_language.german import Key, Word
from latentalign.data.demo_language.lexicon import DETERMINERS, PRONOUNS
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
    overlap,
    tags_of,
)

# -- noun phrases -------------------------------------------------------------------------------------------


def several(text: str, *keys: Key) -> list[Word]:
    """The words of a translation, which all express the same parts of the meaning."""
    return [Word(part, keys) for part in text.split()]


def idiom(node: Fixed, choices: Choices) -> list[Word]:
    """The translation of an idiom. A comma in it has no sure link."""
    words = []
    for text, sources in choices.pick(node.idiom.english):
        keys = tuple((node, i) for i in sources)
        words.append(Word(text, possible=keys) if text == "," else Word(text, keys))
    return words


def nominal(node: Nominal, choices: Choices, *, subject: bool = False, denied: bool = False) -> list[Word]:
    """A noun phrase or pronoun. `denied` means that "not" before the verb already translates "kein"."""
    if isinstance(node, Pronoun):
        return [Word(PRONOUNS[node.kind][3 if subject else 4], ((node, "noun"),))]
    if isinstance(node, Both):
        return [*nominal(node.first, choices), Word("and", ((node, "and"),)), *nominal(node.second, choices)]
    if isinstance(node, Relative):
        pronouns = ("who", "that") if overlap(node.head.noun.tags, "PK") else ("that", "which")
        return [Word(choices.pick(pronouns), ((node, "noun"),))]
    of = node.owner is not None and "N" not in node.owner.noun.tags and choices.either(0.25)
    words = _specifier(node, choices, denied=denied, owned=node.owner is not None and not of)
    if node.adjective:
        words += several(choices.pick(node.adjective.options(node.noun.tags)), (node, "adjective"))
    text = choices.pick(node.noun.english)
    words += several(plural_of(text) if node.plural else text, (node, "noun"))
    if of and node.owner:
        words += [Word("of", possible=((node.owner, "determiner"),)), *nominal(node.owner, choices)]
    if node.attachment:
        words += adjunct(node.attachment, choices)
    return words + (relative(node.relative, choices) if node.relative else [])


def _specifier(node: Phrase, choices: Choices, *, denied: bool, owned: bool) -> list[Word]:
    """The determiner, or the owner with "'s"."""
    if owned and node.owner:
        named = "N" in node.owner.noun.tags
        mark = (
            Word("'s", ((node.owner, "'s"),)) if named else Word("'s", possible=((node.owner, "determiner"),))
        )
        return [*nominal(node.owner, choices), mark]
    text = DETERMINERS[node.determiner][3 if node.plural else 2]
    if denied:
        text = "any" if node.plural or node.noun.mass else "a"
    return [Word(text, ((node, "determiner"),))] if text else []


def relative(clause: Clause, choices: Choices) -> list[Word]:
    """A relative clause. English may omit the pronoun of an object."""
    goal = clause.accusative
    if isinstance(goal, Relative):
        options = ("that", "") if overlap(goal.head.noun.tags, "PK") else ("that", "", "which")
        return several(choices.pick(options), (goal, "noun")) + statement(clause, choices)
    return statement(clause, choices)


def adjunct(node: Adjunct | Fixed, choices: Choices) -> list[Word]:
    """A prepositional phrase."""
    if isinstance(node, Fixed):
        return idiom(node, choices)
    return several(choices.pick(node.english), (node, "preposition")) + nominal(node.phrase, choices)


# -- clauses ------------------------------------------------------------------------------------------------


def statement(clause: Clause, choices: Choices, *, asks: bool = False, opens: bool = False) -> list[Word]:
    """A clause in English order. `asks`: the auxiliary precedes the subject. `opens`: adverbs may come first."""
    swapped = clause.verb.frame == "swap"  # "das Bild gefällt der Frau": the woman likes the picture
    subject, goal = (clause.dative, clause.subject) if swapped else (clause.subject, clause.accusative)
    if subject is None:
        raise ValueError("a clause whose verb swaps its roles needs a dative")
    denial = _denial(clause, choices)
    group = VerbGroup(clause, choices, person=person_of(subject), asks=asks, denial=denial)
    lead, final = _outer_adverbs(clause, choices, opens=opens)
    adverb = idiom(clause.adverb, choices) if clause.adverb else []
    negation = [Word("not", (denial,))] if denial else []
    auxiliary = group.auxiliary
    if denial and auxiliary and auxiliary[0].text == "can" and not asks:
        auxiliary, negation = [Word("cannot", (*auxiliary[0].sure, denial))], []
    who = nominal(subject, choices, subject=True)
    start = [*auxiliary, *who] if asks else [*who, *auxiliary]
    verbal = [*start, *negation, *adverb, *group.rest]
    denied = denial is not None and not clause.negated
    return [*lead, *verbal, *_complements(clause, goal, choices, denied=denied), *final]


def _denial(clause: Clause, choices: Choices) -> Key | None:
    """What "not" translates: "nicht", or the "kein" of an object if English negates the verb instead."""
    if clause.negated:
        return (clause, "not")
    for phrase in (clause.accusative, clause.predicate):
        if isinstance(phrase, Phrase) and phrase.determiner == "no":
            flexible = clause.modal is None and phrase is clause.accusative
            return None if flexible and choices.either(0.3) else (phrase, "determiner")
    return None


def _outer_adverbs(clause: Clause, choices: Choices, *, opens: bool) -> tuple[list[Word], list[Word]]:
    """Adverbs at the start and at the end of the English clause."""
    if clause.comment:
        return idiom(clause.comment, choices), []
    if clause.time is None:
        return [], []
    words = idiom(clause.time, choices)
    return (
        (words, []) if opens and choices.either(0.6 if clause.first is clause.time else 0.15) else ([], words)
    )


def _complements(clause: Clause, goal: Nominal | None, choices: Choices, *, denied: bool) -> list[Word]:
    """Objects, predicate, company and place."""
    objects = [] if goal is None or isinstance(goal, Relative) else nominal(goal, choices, denied=denied)
    if clause.dative and clause.verb.frame == "give":
        objects = _give(clause, objects, choices)
    elif clause.dative and clause.verb.frame == "dat":
        objects = nominal(clause.dative, choices)
    if clause.oblique:
        objects += nominal(clause.oblique, choices)
    if isinstance(clause.predicate, Phrase):
        objects += nominal(clause.predicate, choices, denied=denied)
    elif clause.predicate:
        text = choices.pick(clause.predicate.options(tags_of(clause.subject)))
        words = several(text, (clause, "predicate"))
        if clause.equal:
            words = [Word("as", ((clause, "so"),)), *words, Word("as", ((clause, "wie"),))]
            words += nominal(clause.equal, choices)
        objects += words
    for node in (clause.place, clause.ride, clause.company):
        if node:
            objects += adjunct(node, choices)
    if clause.too:
        objects += several(choices.pick(("too", "as well")), (clause, "too"))
    return objects


def _give(clause: Clause, objects: list[Word], choices: Choices) -> list[Word]:
    """ "gives the child a book" or "gives a book to the child"; things are only explained *to* people."""
    receiver = nominal(clause.dative, choices) if clause.dative else []
    heavy = isinstance(clause.accusative, Phrase) and clause.accusative.relative is not None
    explains = clause.verb.options("") == ("explain",)
    if not explains and (heavy or choices.either(0.6)):
        return [*receiver, *objects]
    return [*objects, Word("to", possible=receiver[0].sure), *receiver]


# -- sentences ----------------------------------------------------------------------------------------------


def english(sentence: Sentence, choices: Choices) -> list[Word]:
    """An English sentence. Each word knows the parts of the meaning that it expresses."""
    main, end = sentence.main, Word("?" if sentence.question else ".", ((sentence, "end"),))
    if sentence.question:
        words = idiom(sentence.asks, choices) if sentence.asks else []
        asks = not (isinstance(main.subject, Pronoun) and main.subject.kind == "who")
        return _articles([*words, *statement(main, choices, asks=asks), end])
    opens = not sentence.subordinate_first
    words = statement(main, choices, opens=opens)
    if sentence.second is None or sentence.joint is None:
        return _articles([*words, end])
    comma = Word(",", ((sentence, "comma"),))
    joint, second = idiom(sentence.joint, choices), statement(sentence.second, choices)
    if sentence.joint.idiom.german[0] == "dass" and choices.either(0.3):
        joint = []
    if sentence.subordinate_first and (sentence.tied or choices.either(0.7)):
        return _articles([*joint, *second, comma, *words, end])
    # A comma is linked to ", but" and to the German comma.
    commas = [Word(",", comma.sure, joint[0].sure)] if sentence.joint.idiom.german[0] == "aber" else []
    return _articles([*words, *commas, *joint, *second, end])


def _articles(words: list[Word]) -> list[Word]:
    """ "a" becomes "an" before a vowel."""
    following = [*(word.text for word in words[1:]), ""]
    return [
        Word("an", word.sure, word.possible) if word.text == "a" and after[:1] in tuple("aeiou") else word
        for word, after in zip(words, following, strict=True)
    ]
