"""Questions about a scene, with their answers and the things that the answers depend on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from random import Random

from latentalign.data.scenes_world.things import ATTRIBUTES, Description, Thing, describe

Scene = Sequence[Thing]
NUMBERS = (10, 12, 15, 26, 37)
"""Weights with which counting questions try to have the answer 0, 1, ... Large numbers are rare in scenes."""
CLEARLY, HARDLY, AHEAD = 14.0, 3.0, 7.0
"""Distances in pixels: at least CLEARLY is left of an anchor, at most HARDLY is not, AHEAD is left of all others."""
FORMS = {
    "color": ("what color is the {}?", "what is the color of the {}?"),
    "shape": ("what shape is the {}?", "what is the shape of the {}?"),
    "pattern": ("what pattern does the {} have?", "what is the pattern of the {}?"),
    "size": ("what size is the {}?", "how big is the {}?"),
}
ATTRIBUTE_WEIGHTS = {"color": 40, "shape": 30, "pattern": 20, "size": 10}
DIRECTIONS = {  # the word for the outermost thing, and the step to the right and down
    "left of": ("leftmost", -1, 0),
    "right of": ("rightmost", 1, 0),
    "above": ("topmost", 0, -1),
    "below": ("bottommost", 0, 1),
}


@dataclass(frozen=True)
class Question:
    """A question, its correct answer, and the things that one has to look at to answer it."""

    text: str
    kind: str
    answer: str
    about: tuple[Thing, ...]

    @property
    def answer_type(self) -> str:
        """One of the three types of the official files."""
        return {"existence": "yes/no", "comparison": "yes/no", "counting": "number"}.get(self.kind, "other")

    @property
    def topic(self) -> object:
        """A value that is equal for questions with the same meaning."""
        return (self.about, self.answer) if self.answer_type == "other" else self.text


def ask(scene: Scene, count: int, rng: Random) -> list[Question]:
    """Up to `count` different questions about a scene. A simple scene may have fewer."""
    questions: dict[object, Question] = {}
    kinds, weights = list(KINDS), list(KINDS.values())
    for _ in range(4 * count):
        kind = rng.choices(kinds, weights)[0]
        for question in filter(None, (kind(scene, rng) for _ in range(30))):
            if question.topic not in questions:
                questions[question.topic] = question
                break
        if len(questions) == count:
            break
    return list(questions.values())


def _descriptions(thing: Thing, names: Sequence[str], sizes: Sequence[int]) -> Iterator[Description]:
    """Descriptions of a thing by some of the attributes `names`; `sizes` are the numbers of attributes."""
    for size in sizes:
        for chosen in combinations(names, size):
            yield {name: thing.value(name) for name in chosen}


def _unique_description(scene: Scene, thing: Thing, names: Sequence[str], rng: Random) -> Description | None:
    """A description by the attributes `names` that fits only this thing; None if there is none."""
    fitting = [
        description
        for description in _descriptions(thing, names, range(1, len(names) + 1))
        if not any(other.fits(description) for other in scene if other is not thing)
    ]
    return rng.choice(fitting) if fitting else None


def _draw_attribute(rng: Random) -> str:
    """The attribute that a question is about."""
    return rng.choices(list(ATTRIBUTE_WEIGHTS), list(ATTRIBUTE_WEIGHTS.values()))[0]


def _attributes_except(*names: str) -> list[str]:
    """All attributes except some."""
    return [name for name in ATTRIBUTES if name not in names]


def attribute(scene: Scene, rng: Random) -> Question | None:
    """A question about an attribute of a thing that other attributes identify."""
    thing, wanted = rng.choice(scene), _draw_attribute(rng)
    description = _unique_description(scene, thing, _attributes_except(wanted), rng)
    if description is None:
        return None
    text = rng.choice(FORMS[wanted]).format(describe(description))
    return Question(text, "attribute", thing.value(wanted), (thing,))


def spatial(scene: Scene, rng: Random) -> Question | None:
    """A question about an attribute of a thing that its position identifies, among all things or one group."""
    wanted = _draw_attribute(rng)
    example, names = (
        rng.choice(scene),
        rng.choice([(), (), *((name,) for name in _attributes_except(wanted, "size"))]),
    )
    group = {name: example.value(name) for name in names}
    found = rng.choices((_outermost, _beside), (1, 3))[0](scene, group, rng)  # the second finds fewer things
    if found is None:
        return None
    phrase, thing = found
    return Question(rng.choice(FORMS[wanted]).format(phrase), "spatial", thing.value(wanted), (thing,))


def _outermost(scene: Scene, group: Description, rng: Random) -> tuple[str, Thing] | None:
    """The outermost thing of a group in one direction, by its centre and its outline."""
    word, right, down = rng.choice(list(DIRECTIONS.values()))
    members = sorted((t for t in scene if t.fits(group)), key=lambda t: -(right * t.x + down * t.y))
    if len(members) < 2:
        return None
    first, *others = members

    def reach(thing: Thing) -> float:
        return max(right * x + down * y for x, y in thing.outline())

    for other in others:
        ahead = right * (first.x - other.x) + down * (first.y - other.y)
        if ahead < AHEAD or reach(first) - reach(other) < HARDLY:
            return None
    return f"{word} {describe(group)}", first


def _beside(scene: Scene, group: Description, rng: Random) -> tuple[str, Thing] | None:
    """The only thing of a group that is clearly on one side of another thing."""
    word = rng.choice(list(DIRECTIONS))
    _, right, down = DIRECTIONS[word]
    anchor = rng.choice(scene)
    others = [t for t in scene if t.fits(group) and t is not anchor]
    ahead = [right * (t.x - anchor.x) + down * (t.y - anchor.y) for t in others]
    there = [t for t, distance in zip(others, ahead, strict=True) if distance > HARDLY]
    if len(there) != 1 or max(ahead) < CLEARLY:
        return None
    description = _unique_description(scene, anchor, list(ATTRIBUTES), rng)
    if description is None:
        return None
    return f"{describe(group)} {word} the {describe(description)}", there[0]


def comparison(scene: Scene, rng: Random) -> Question | None:
    """A question that compares the sizes of two things."""
    first = rng.choice(scene)
    others = [t for t in scene if t.size != first.size]
    if not others:
        return None
    second = rng.choice(others)
    names = _attributes_except("size")
    one, two = (_unique_description(scene, thing, names, rng) for thing in (first, second))
    if one is None or two is None:
        return None
    word = rng.choice(("larger", "smaller"))
    answer = "yes" if (first.size == "large") == (word == "larger") else "no"
    text = f"is the {describe(one)} {word} than the {describe(two)}?"
    return Question(text, "comparison", answer, (first, second))


def existence(scene: Scene, rng: Random) -> Question | None:
    """A question whether a thing exists. If not, there is one that differs in a single attribute."""
    names = rng.choice([*combinations(ATTRIBUTES, 2), *combinations(ATTRIBUTES, 3)])
    present = {tuple(t.value(name) for name in names) for t in scene}
    near = {
        (*values[:k], option, *values[k + 1 :])
        for values in present
        for k, name in enumerate(names)
        for option in ATTRIBUTES[name]
    }
    if near == present:
        return None
    answer = rng.choice(("yes", "no"))
    values = rng.choice(sorted(present if answer == "yes" else near - present))
    description = dict(zip(names, values, strict=True))
    phrase = describe(description)
    article = "an" if phrase[0] in "aeiou" else "a"
    about = tuple(t for t in scene if t.fits(description))
    return Question(f"is there {article} {phrase}?", "existence", answer, about)


def counting(scene: Scene, rng: Random) -> Question | None:
    """A question about the number of things. All numbers are about equally frequent."""
    names = rng.choice([*combinations(ATTRIBUTES, 1), *combinations(ATTRIBUTES, 2)])
    counts = Counter(tuple(t.value(name) for name in names) for t in scene)
    wanted = rng.choices(range(len(NUMBERS)), NUMBERS)[0]
    fitting = [
        values for values in product(*(ATTRIBUTES[name] for name in names)) if counts[values] == wanted
    ]
    if not fitting:
        return None
    description = dict(zip(names, rng.choice(fitting), strict=True))
    about = tuple(t for t in scene if t.fits(description))
    text = f"how many {describe(description, plural=True)} are there?"
    return Question(text, "counting", str(wanted), about)


KINDS: dict[Callable[[Scene, Random], Question | None], int] = {
    attribute: 40,
    spatial: 25,
    existence: 14,
    counting: 12,
    comparison: 9,
}
