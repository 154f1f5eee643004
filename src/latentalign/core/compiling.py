"""Code that `torch.compile` must leave alone, because its sizes depend on values."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def outside_of_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """A function that compiled code calls as it is: one graph ends before it, another begins after it.

    `torch.compiler.disable` does the same, but it imports the compiler at once, which costs two seconds that an eager
    program need not spend. Here it is used only if something else has imported the compiler.
    """
    disabled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **options)

    marked: Any = call
    marked._torchdynamo_disable = True  # the compiler does not look inside
    return call
