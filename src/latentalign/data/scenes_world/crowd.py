"""Ten simulated people who answer a question: most are right, some say something else that one may say."""

from __future__ import annotations

from random import Random

PEOPLE = 10
DISSENT = (50, 24, 14, 8, 4)  # weights of 0, 1, ... people who do not give the right answer: 4 at most
SAID_INSTEAD = {
    "yes": ("no",),
    "no": ("yes",),
    "small": ("little", "little", "tiny", "large"),
    "large": ("big", "big", "big", "small"),
    "red": ("orange", "orange", "pink"),
    "orange": ("red", "yellow", "brown"),
    "yellow": ("orange", "gold", "gold"),
    "green": ("dark green", "cyan"),
    "cyan": ("light blue", "turquoise", "blue"),
    "blue": ("dark blue", "purple", "cyan"),
    "purple": ("violet", "violet", "blue", "pink"),
    "plain": ("solid", "solid", "none", "dotted"),
    "striped": ("stripes", "stripes", "lines", "dotted"),
    "dotted": ("dots", "polka dots", "spotted", "striped"),
    "circle": ("round", "round", "ball", "oval"),
    "square": ("rectangle", "box", "cube"),
    "triangle": ("pyramid", "cone", "star"),
    "star": ("starfish", "triangle", "flower"),
}


def answers(right: str, rng: Random) -> list[str]:
    """What each of ten people answers, in any order; the right answer has at least six votes."""
    wrong = rng.choices(range(len(DISSENT)), DISSENT)[0]
    others = _neighbours(int(right)) if right.isdigit() else SAID_INSTEAD[right]
    said = [right] * (PEOPLE - wrong) + [rng.choice(others) for _ in range(wrong)]
    rng.shuffle(said)
    return said


def _neighbours(number: int) -> tuple[str, ...]:
    return (str(number + 1), str(number - 1)) if number else ("1",)
