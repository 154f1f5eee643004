"""Values that are computed once, without stopping gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class cached_with_gradient(Generic[T]):
    """Like `functools.cached_property`, but a value from `no_grad` is never used where gradients are wanted.

    A baseline asks for the same quantity without gradient before the objective does.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.names = {True: f"_{name}_with_gradient", False: f"_{name}_without_gradient"}

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        stored, with_gradient = instance.__dict__, torch.is_grad_enabled()
        for name in (self.names[True], *([] if with_gradient else [self.names[False]])):
            if name in stored:
                found: T = stored[name]
                return found
        value = stored[self.names[with_gradient]] = self.compute(instance)
        return value
