"""Arrows point down: cli -> tasks -> training -> core; the two tasks never import each other."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "latentalign"

BASE = {"errors", "extras", "storage", "config", "recipe_errors", "textfiles"}
BASE |= {"progress", "interrupts", "memory"}
LIBRARY = {"core", "nn", "search", "training", "data", "reproduction", "web", "links", "markup", "aligner"}
LIBRARY |= {"wrapping"}
SHARED = {"tasks/base", "tasks/diagnosis", "tasks/figure_notes", "tasks/likelihoods", "tasks/padding"}
SHARED |= {"tasks/looks", "tasks/marked_text", "tasks/splits", "tasks/text_checks"}
"""Modules that all tasks may use; the registry is not among them."""
MAY_IMPORT = {
    "core": {"core"},
    "nn": {"core", "nn"},
    "storage": {"errors"},
    "progress": set(),
    "interrupts": {"errors"},
    "memory": {"storage"},
    "textfiles": {"errors", "storage"},
    "links": {"links", "errors", "storage"},
    "markup": {"markup", "errors", "links"},
    "aligner": {"aligner", "core", "links", "config", "errors", "progress"},
    "wrapping": {"wrapping", "core", "nn", "links", "errors", "progress", "storage"},
    "search": {"core", "search", "static_search", "errors"},
    "static_search": {"core", "search", "errors"},
    "training": {"core", "nn", "training"} | BASE,
    "web": {"web", "core"} | BASE,
    "data": {"data", "errors", "extras", "storage", "textfiles"},
    "reproduction": {"core", "training", "reproduction", "web"} | BASE,
    "tasks": LIBRARY | BASE | SHARED,
    "tasks/nmt": LIBRARY | BASE | SHARED | {"tasks/nmt"},
    "tasks/alignment": LIBRARY | BASE | SHARED | {"tasks/alignment"},
    "tasks/vqa": LIBRARY | BASE | SHARED | {"tasks/vqa"},
    "tasks/text_checks": {"aligner", "links", "tasks/splits", "tasks/text_checks"} | BASE,
    "bench": {"core", "nn", "training", "tasks/nmt", "bench", "reproduction", "search"} | BASE,
}


def room_of(parts):
    """The folder that a module belongs to; of a task, `tasks/NAME`."""
    return "/".join(parts[:2]) if parts[0] == "tasks" and len(parts) > 2 else parts[0]


def imported_rooms(path):
    """The rooms of this package that a file imports from."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {room_of([*n.split(".")[1:], ""]) for n in names if n.startswith("latentalign.")}
    return rooms


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_arrows_point_down(path):
    room = room_of(path.relative_to(SRC).with_suffix("").parts)
    if room in MAY_IMPORT:
        assert imported_rooms(path) <= MAY_IMPORT[room]


def test_core_imports_nothing_but_torch():
    allowed = {
        "torch",
        "jaxtyping",
        "latentalign",
        "__future__",
        "abc",
        "collections",
        "dataclasses",
        "functools",
        "itertools",
    }
    allowed |= {"contextlib", "difflib", "importlib", "inspect", "math", "sys", "typing"}
    allowed |= {"pathlib", "platform"}  # which processor this is
    for path in (SRC / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            assert {n.split(".")[0] for n in names} <= allowed, path
