"""Ten simulated people who answer a question. Most give the correct answer, some a plausible other one."""

from __future__ import annotations

from random import Random

PEOPLE = 10
DISSENT = (50, 24, 14, 8, 4)
"""Weights of 0, 1, ..., 4 people who do not give the correct answer."""
OTHER_ANSWERS = {
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


def draw_answers(correct: str, rng: Random) -> list[str]:
    """The answers of ten people, in random order. The correct answer has at least six votes."""
    wrong = rng.choices(range(len(DISSENT)), DISSENT)[0]
    others = _neighbours(int(correct)) if correct.isdigit() else OTHER_ANSWERS[correct]
    answers = [correct] * (PEOPLE - wrong) + [rng.choice(others) for _ in range(wrong)]
    rng.shuffle(answers)
    return answers


def _neighbours(number: int) -> tuple[str, ...]:
    """The numbers next to a number, as text."""
    return (str(number + 1), str(number - 1)) if number else ("1",)
