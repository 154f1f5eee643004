"""What accuracy the generated scenes allow, for a model that sees everything and for one that looks at one thing.

    python benchmarks/scenes_ceiling.py [--pictures 4000]

Perception is perfect here: a thing shows its attributes and its position. The last answerer looks at one thing: every
thing has a score that depends on the question and on this thing alone, the highest one is looked at, and the answer is
given from the question and this thing. The scores are written by hand, one for each kind of question:

- attribute, comparison, existence: the number of named attributes that the thing has;
- spatial: the same, then how far the thing is on the named side. `A left of B` is the leftmost A by construction;
- counting: the same, then how far it is to the left. The leftmost of many is further left than the only one.

The two things that a comparison names differ in size, so one of them suffices. Only counting needs more than one look:
there, the answer is the best one in a table from other pictures, by whether the thing fits, where it is, and
which attributes the question names.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

from latentalign.data.scenes_world.crowd import draw_answers
from latentalign.data.scenes_world.questions import DIRECTIONS, KINDS, Question, ask
from latentalign.data.scenes_world.things import ATTRIBUTES, WIDTH, Thing, draw_scene

Asked = tuple[Sequence[Thing], Question, Sequence[str]]
OF = {value: name for name, values in ATTRIBUTES.items() for value in values}
SIDES = {word: (right, down) for word, right, down in DIRECTIONS.values()} | {
    word: (right, down) for word, (_, right, down) in DIRECTIONS.items()
}
CELLS = 16
"""Columns of the picture in the table for counting."""


def draw(pictures: int, seed: str) -> list[Asked]:
    """Questions about random scenes, with ten answers each; five about a picture, as in the data."""
    rng, found = Random(f"ceiling {seed}"), []
    while len(found) < 5 * pictures:
        scene = draw_scene(rng)
        questions = ask(scene, 5, rng)
        if len(questions) == 5:
            found += [(scene, q, draw_answers(q.answer, rng)) for q in questions]
    return found


def described(phrase: str) -> dict[str, str]:
    """The attributes that a phrase names."""
    words = (word if word in OF else word.removesuffix("s") for word in re.findall(r"\w+", phrase))
    return {OF[word]: word for word in words if word in OF}


def named(question: Question) -> tuple[dict[str, str], tuple[int, int]]:
    """The attributes of the thing to look at, and the side on which to look for it."""
    phrase = question.text.removesuffix("?").split(" than ")[0]
    for word, side in SIDES.items():
        before, found, after = phrase.partition(f" {word} ")
        if found:  # `the A left of the B` is about an A, `the leftmost A` is about an A
            return described(after if word in {w for w, *_ in DIRECTIONS.values()} else before), side
    return described(phrase), (-1, 0) if question.kind == "counting" else (0, 0)


def look(scene: Sequence[Thing], question: Question) -> tuple[Thing, bool]:
    """The thing with the highest score, and whether it has all that the question names."""
    wanted, (right, down) = named(question)

    def score(thing: Thing) -> tuple[int, float]:
        return sum(thing.value(k) == v for k, v in wanted.items()), right * thing.x + down * thing.y

    thing = max(scene, key=score)
    return thing, thing.fits(wanted)


def asked_attribute(question: Question) -> str:
    """The attribute that an `attribute` or `spatial` question asks for."""
    text = question.text
    return (
        "size" if text.startswith("how big") else next(a for a in ATTRIBUTES if re.search(rf"\b{a}\b", text))
    )


def counting_key(question: Question, thing: Thing, fits: bool) -> tuple[object, ...]:
    """What one look tells about a number."""
    return tuple(sorted(named(question)[0])), fits, int(CELLS * thing.x / WIDTH) if fits else None


def learn_numbers(data: Iterable[Asked]) -> dict[tuple[object, ...], str]:
    """The number with the highest expected accuracy for everything that one look may show."""
    seen: dict[tuple[object, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for scene, question, given in data:
        if question.kind == "counting":
            gains = seen[counting_key(question, *look(scene, question))]
            for answer in set(given):
                gains[answer] += accuracy(answer, given)
    return {key: max(gains, key=gains.__getitem__) for key, gains in seen.items()}


def answer_from_one(
    scene: Sequence[Thing], question: Question, numbers: dict[tuple[object, ...], str]
) -> str:
    """The answer of a model that looks at one thing."""
    thing, fits = look(scene, question)
    if question.kind == "existence":
        return "yes" if fits else "no"
    if question.kind == "comparison":
        return "yes" if (thing.size == "large") == (" larger than " in question.text) else "no"
    if question.kind == "counting":
        return numbers.get(counting_key(question, thing, fits), "0")
    return thing.value(asked_attribute(question))


def answer_from_all(scene: Sequence[Thing], question: Question) -> str:
    """The answer of a model that sees the whole scene: one look, except that it counts."""
    if question.kind == "counting":
        return str(sum(thing.fits(named(question)[0]) for thing in scene))
    return answer_from_one(scene, question, {})


def accuracy(answer: str, given: Sequence[str]) -> float:
    """min(votes / 3, 1) in per cent."""
    return 100 * min(given.count(answer) / 3, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="The accuracy that the generated scenes allow.")
    parser.add_argument(
        "--pictures", type=int, default=4000, help="scenes to measure on, and as many to learn from"
    )
    pictures = parser.parse_args().pictures
    numbers = learn_numbers(draw(pictures, "learn"))
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for scene, question, given in draw(pictures, "measure"):
        answers = answer_from_all(scene, question), answer_from_one(scene, question, numbers)
        for kind in (question.kind, "all"):
            scores[kind].append((accuracy(answers[0], given), accuracy(answers[1], given)))
    print(f"{'questions':>12}  {'share':>6}  {'whole scene':>11}  {'one thing':>9}")
    total = len(scores["all"])
    for kind in [*(k.__name__ for k in KINDS), "all"]:
        both = [sum(column) / len(column) for column in zip(*scores[kind], strict=True)]
        print(f"{kind:>12}  {100 * len(scores[kind]) / total:5.1f}%  {both[0]:10.2f}%  {both[1]:8.2f}%")


if __name__ == "__main__":
    main()
