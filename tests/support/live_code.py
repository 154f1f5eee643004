"""Replaces the code of functions that are already imported, so that a mutant needs no new import."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType, ModuleType


def functions_in(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions of a module, of its classes, and of functions inside functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & CO_OPTIMIZED:  # a function; the body of a class has no fast locals
                yield constant
            yield from functions_in(constant)


class LiveModule:
    """An imported module whose functions can be replaced in a forked process."""

    def __init__(self, module: ModuleType, source: bytes) -> None:
        self.loader, self.path = module.__loader__, module.__file__
        self.original = self.compile(source)
        objects: defaultdict[tuple[str, int], list[FunctionType]] = defaultdict(list)
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename == self.path:
                objects[found.__code__.co_qualname, found.__code__.co_firstlineno].append(found)
        self.objects = objects

    def compile(self, source: bytes) -> list[CodeType]:
        """The functions of a source, compiled as on import."""
        return list(functions_in(self.loader.source_to_code(source, self.path)))

    def replace(self, source: bytes) -> bool:
        """Let the imported functions do what they do in another source; False if they cannot."""
        changed = self.compile(source)
        if [c.co_qualname for c in changed] != [c.co_qualname for c in self.original]:
            return False
        replaced = 0
        for old, new in zip(self.original, changed, strict=True):
            if (old.co_code, old.co_consts, old.co_names) == (new.co_code, new.co_consts, new.co_names):
                continue
            for function in self.objects[old.co_qualname, old.co_firstlineno]:
                if function.__code__.co_freevars != new.co_freevars:
                    return False
                function.__code__ = new
                replaced += 1
        return replaced > 0
