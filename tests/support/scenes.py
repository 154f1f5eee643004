"""Sizes and words of generated scenes."""

from latentalign.data import scenes

SMALL = scenes.Sizes(train=6, valid=2, test=3, questions=4)
WORDS = {
    "size": ["small", "large"],
    "color": ["red", "orange", "yellow", "green", "cyan", "blue", "purple"],
    "pattern": ["plain", "striped", "dotted"],
    "shape": ["circle", "square", "triangle", "star"],
}
