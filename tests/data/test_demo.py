"""The embedded language: its German, its English, its gold links and its exact probabilities."""

import hashlib
import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from latentalign.data import demo
from latentalign.data.demo_language.english import english
from latentalign.data.demo_language.english_verbs import Choices, inflect, plural_of
from latentalign.data.demo_language.german import adjective, determiner, german, noun_form
from latentalign.data.demo_language.lexicon import ADJECTIVES, NOUNS, PREDICATES, VERBS
from latentalign.data.demo_language.sentences import Author
from latentalign.errors import InputError
from latentalign.tasks.nmt.baselines import diagonal_links, train_ibm1


@pytest.fixture(scope="module")
def corpus():
    return demo.splits(2000, 100, 300)


def translations(meaning):
    """Every English sentence for a meaning with its probability, by trying every sequence of choices."""
    found, script = Counter(), []
    while True:
        taken = []

        def draw(weights, script=script, taken=taken):
            taken.append((script[len(taken)] if len(taken) < len(script) else 0, len(weights)))
            return taken[-1][0]

        choices = Choices(draw)
        target = tuple(word.text for word in english(meaning, choices))
        assert target not in found, f"two ways to the same English sentence: {target}"
        found[target] = math.exp(choices.log_prob)
        while taken and taken[-1][0] == taken[-1][1] - 1:
            taken.pop()
        if not taken:
            return found
        script = [choice for choice, _ in taken]
        script[-1] += 1


class Terse(Author):
    """An author of few words, who writes the same German sentence again and again."""

    shift = 0

    def pick(self, items):
        start = self.shift % len(items)
        return super().pick([*items[start:], *items[:start]][: 1 + (self.rng.random() < 0.1)])


def aer(pairs, links):
    found = [(links(p), p.sure, p.sure | p.possible) for p in pairs]
    hits = sum(len(a & s) + len(a & p) for a, s, p in found)
    return 1 - hits / sum(len(a) + len(s) for a, s, _ in found)


# -- probabilities ------------------------------------------------------------------------------------------


def test_english_probabilities_sum_to_one():
    rng = Random(1)
    for _ in range(150):
        meaning, _ = demo._draw_meaning(rng)
        assert math.isclose(sum(translations(meaning).values()), 1.0)


def repeated_meanings(shifts, per_shift):
    """Pairs of meanings that came about separately and have the same German sentence."""
    for shift in shifts:
        rng, seen = Random(shift), {}
        Terse.shift = shift
        for _ in range(per_shift):
            meaning = Terse(rng).sentence()
            source = tuple(word.text for word in german(meaning))
            if len(source) <= 12:
                yield source, seen.setdefault(source, meaning), meaning


@pytest.mark.slow
def test_a_german_sentence_has_one_distribution_of_translations():
    repeated = 0
    for source, first, again in repeated_meanings(range(12), 600):
        if first is not again:
            repeated += 1
            assert translations(first) == pytest.approx(translations(again)), " ".join(source)
    assert repeated > 100


def test_a_fronted_object_is_known_by_its_form():
    rng, fronted = Random(8), 0
    for meaning in (Author(rng).simple() for _ in range(900)):
        main = meaning.main
        if main.first is not None and main.first is main.accusative:
            fronted += 1
            exchanged = replace(main, subject=main.accusative, accusative=main.subject)
            texts = [[w.text for w in german(replace(meaning, main=clause))] for clause in (main, exchanged)]
            assert texts[0] != texts[1]
    assert fronted > 15


def test_drawn_translations_are_as_frequent_as_their_probability():
    rng = Random(3)
    meaning = next(m for m in (demo._draw_meaning(rng)[0] for _ in range(500)) if len(translations(m)) == 8)
    expected, drawn, logs = translations(meaning), Counter(), {}
    for _ in range(2000):
        choices = demo._sampler(rng)
        target = tuple(word.text for word in english(meaning, choices))
        drawn[target] += 1
        logs[target] = choices.log_prob
    for target, probability in expected.items():
        error = math.sqrt(probability * (1 - probability) / 2000)
        assert abs(drawn[target] / 2000 - probability) < 5 * error
        assert math.isclose(math.exp(logs[target]), probability)


def test_floor_perplexity_is_the_mean_probability_of_targets(corpus):
    pairs = corpus["test"]
    tokens = sum(len(p.target) + 1 for p in pairs)
    floor = demo.statistics(pairs).floor_perplexity
    assert math.isclose(floor, math.exp(-sum(p.log_prob for p in pairs) / tokens))
    assert 1.05 < floor < 1.3
    assert all(p.log_prob <= 0 for p in pairs)


# -- reproducibility and files ------------------------------------------------------------------------------


def test_a_seed_gives_the_same_pairs_everywhere():
    text = "\n".join(" ".join((*p.source, *p.target, demo.pharaoh(p))) for p in demo.generate(200, seed=5))
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "0901ef83f84394f1e291bbe250a17936ac92a9bfb06d409280dd59a7571dfbf1"
    )


def test_generated_sources_are_distinct_and_not_excluded():
    first = demo.generate(300, seed=0)
    again = demo.generate(300, seed=0, exclude={p.source for p in first})
    sources = [p.source for p in (*first, *again)]
    assert len(set(sources)) == len(sources) == 600


def test_splits_share_no_source(corpus):
    train, valid, test = ({p.source for p in corpus[name]} for name in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (2000, 100, 300)
    assert len(train | valid | test) == 2400


def test_the_test_set_does_not_depend_on_the_size_of_the_others():
    assert demo.splits(50, 10, 30, seed=2)["test"] == demo.splits(5, 3, 30, seed=2)["test"]


def test_written_files_hold_the_pairs_and_are_not_replaced_unasked(tmp_path):
    demo.write(tmp_path / "new", train=20, valid=5, test=5, seed=4)
    pairs = demo.splits(20, 5, 5, seed=4)
    for name in ("train", "valid", "test"):
        for kind, side in (("de", "source"), ("en", "target")):
            lines = (tmp_path / "new" / f"{name}.{kind}").read_bytes().decode().split("\n")
            assert lines == [*(" ".join(getattr(p, side)) for p in pairs[name]), ""]
    gold = (tmp_path / "new" / "train.gold").read_text().split("\n")[:-1]
    for line, pair in zip(gold, pairs["train"], strict=True):
        sure = {tuple(map(int, link.split("-"))) for link in line.split() if "-" in link}
        possible = {tuple(map(int, link.split("?"))) for link in line.split() if "?" in link}
        assert (sure, possible) == (pair.sure, pair.possible)
    with pytest.raises(InputError, match=r"train\.de already exists"):
        demo.write(tmp_path / "new", train=1, valid=1, test=1)
    assert len((tmp_path / "new" / "train.de").read_text().split("\n")) == 21
    demo.write(tmp_path / "new", train=1, valid=1, test=1, overwrite=True)
    assert len((tmp_path / "new" / "train.de").read_text().split("\n")) == 2


# -- difficulty ---------------------------------------------------------------------------------------------


def test_links_cross_often_and_are_rarely_arguable(corpus):
    facts = demo.statistics(corpus["train"])
    assert facts.crossing_share > 0.2
    assert 0 < facts.possible_share < 0.1
    assert 400 < facts.source_vocabulary < 850
    assert 400 < facts.target_vocabulary < 850
    assert 9 < facts.source_tokens / facts.pairs < 13


@pytest.mark.slow
def test_neither_the_diagonal_nor_ibm1_solves_the_alignment():
    corpus = demo.splits(5000, 0, 300)
    model = train_ibm1([(p.source, p.target) for p in corpus["train"]])
    assert aer(corpus["test"], lambda p: diagonal_links(len(p.source), len(p.target))) > 0.25
    assert aer(corpus["test"], lambda p: model.align(p.source, p.target)) > 0.25


def test_one_link_per_target_word_suffices_for_a_good_alignment(corpus):
    def best(pair):
        ranked = [*sorted(pair.possible), *sorted(pair.sure)]
        return {(i, j) for j, i in {j: i for i, j in ranked}.items()}

    assert aer(corpus["test"], best) < 0.03


def test_every_english_word_has_a_link_within_the_sentences(corpus):
    for pair in corpus["train"]:
        links = pair.sure | pair.possible
        assert {j for _, j in links} == set(range(len(pair.target)))
        assert {i for i, _ in links} <= set(range(len(pair.source)))
        assert not pair.sure & pair.possible


# -- German and English -------------------------------------------------------------------------------------

SEPARABLE = {v.particle for v in VERBS if v.particle.islower()}


@pytest.mark.parametrize(
    ("name", "gender", "case", "expected"),
    [
        ("the", "m", 0, "der alte"),
        ("the", "m", 1, "den alten"),
        ("the", "m", 2, "dem alten"),
        ("the", "f", 1, "die alte"),
        ("the", "f", 2, "der alten"),
        ("the", "p", 2, "den alten"),
        ("a", "m", 0, "ein alter"),
        ("a", "m", 1, "einen alten"),
        ("a", "n", 1, "ein altes"),
        ("no", "p", 0, "keine alten"),
        ("two", "p", 0, "zwei alte"),
        ("two", "p", 2, "zwei alten"),
        ("many", "p", 1, "viele alte"),
        ("", "n", 1, "altes"),
        ("", "m", 2, "altem"),
        ("this", "n", 0, "dieses alte"),
        ("our", "f", 2, "unserer alten"),
    ],
)
def test_determiners_and_adjectives_are_declined(name, gender, case, expected):
    words = (determiner(name, gender, case), adjective("alt", name, gender=gender, case=case))
    assert " ".join(filter(None, words)) == expected


@pytest.mark.parametrize(
    ("singular", "case", "plural", "expected"),
    [
        ("Junge", 1, False, "Jungen"),
        ("Hund", 2, True, "Hunden"),
        ("Auto", 2, True, "Autos"),
        ("Mann", 3, False, "Mannes"),
        ("Nachbar", 3, False, "Nachbarn"),
        ("Koch", 3, False, "Kochs"),
        ("Frau", 3, False, "Frau"),
        ("Anna", 3, False, "Annas"),
    ],
)
def test_nouns_are_declined(singular, case, plural, expected):
    noun = next(n for n in NOUNS if n.singular == singular)
    assert noun_form(noun, case, plural=plural) == expected


@pytest.mark.parametrize(
    ("verb", "form", "expected"),
    [
        ("carry", "present", "carries"),
        ("go", "present", "goes"),
        ("have", "present", "has"),
        ("watch", "present", "watches"),
        ("lie", "ing", "lying"),
        ("hug", "ing", "hugging"),
        ("chase", "ing", "chasing"),
        ("see", "ing", "seeing"),
        ("carry", "past", "carried"),
        ("hug", "past", "hugged"),
        ("bite", "participle", "bitten"),
    ],
)
def test_english_verbs_are_inflected(verb, form, expected):
    assert inflect(verb, form, "it") == expected


def test_english_plurals():
    words = ("baby", "witch", "boy", "mother-in-law", "police officer", "mouse", "bus")
    plurals = ["babies", "witches", "boys", "mothers-in-law", "police officers", "mice", "buses"]
    assert [plural_of(word) for word in words] == plurals


def test_adjectives_know_their_nouns():
    faul = next(a for a in ADJECTIVES if a.german == "faul")
    assert (faul.options("A"), faul.options("Fo"), faul.options("V")) == (("lazy",), ("rotten",), ())
    assert all(predicate.english for predicate in PREDICATES)


def test_a_comma_stands_before_every_german_subordinate_clause(corpus):
    joints = {"dass", "weil", "obwohl", "wenn", "während", "bevor", "damit", "ob", "aber", "denn"}
    for pair in corpus["train"]:
        for before, word in zip(pair.source, pair.source[1:], strict=False):
            assert word not in joints or before == ","
            assert not (before == "," and word in {",", ".", "?"})


def test_an_stands_before_vowels_only(corpus):
    for pair in corpus["train"]:
        for word, after in zip(pair.target, pair.target[1:], strict=False):
            if word in {"a", "an"}:
                assert (word == "an") == (after[0] in "aeiou")


def links_of(pairs, source_words, target_word):
    """How often the German words of a pair are all surely linked to the English word."""
    count = 0
    for pair in pairs:
        for j, word in enumerate(pair.target):
            linked = {pair.source[i] for i, k in pair.sure if k == j}
            count += word == target_word and set(source_words) <= linked
    return count


@pytest.mark.parametrize(
    ("source_words", "target_word"),
    [
        (("ruft", "an"), "calls"),  # separable verb
        (("gesehen",), "saw"),  # perfect
        (("hat",), "has"),
        (("frisst",), "eats"),  # animals eat with another verb than people
        (("isst",), "eats"),
        (("kennt",), "knows"),
        (("weiß",), "knows"),
        (("Haustür",), "front"),  # compound
        (("Haustür",), "door"),
        (("im",), "the"),  # contraction
        (("nicht",), "not"),
        (("keine",), "no"),
        (("keine",), "not"),
        (("große",), "tall"),
        (("große",), "big"),
        (("große",), "large"),
        (("gern",), "likes"),
        (("gefällt",), "likes"),
    ],
)
def test_phenomena_occur_with_their_links(corpus, source_words, target_word):
    assert links_of(corpus["train"], source_words, target_word) > 0


def test_the_auxiliary_of_a_perfect_is_a_possible_link_of_a_simple_past(corpus):
    linked = {
        frozenset({(pair.source[i], "sure") for i, k in pair.sure if k == j}
                  | {(pair.source[i], "possible") for i, k in pair.possible if k == j})
        for pair in corpus["train"]
        for j, word in enumerate(pair.target)
        if word == "saw"
    }  # fmt: skip
    assert frozenset({("gesehen", "sure"), ("hat", "possible")}) in linked


def test_a_separated_verb_is_one_word_at_the_end_of_a_subordinate_clause(corpus):
    finals = {v.particle + v.forms[1] for v in VERBS if v.particle in SEPARABLE}
    seen = [(p, i) for p in corpus["train"] for i, word in enumerate(p.source) if word in finals]
    assert len(seen) > 20
    assert all(pair.source[i + 1] in {",", ".", "?"} for pair, i in seen)


def test_the_module_shows_pairs_and_statistics(capsys):
    demo.main()
    shown = capsys.readouterr().out
    assert shown.count("\n\n") == 20
    assert "floor_perplexity" in shown
