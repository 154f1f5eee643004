"""Arrows point down: cli -> tasks -> training -> core; the two tasks never import each other."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "latentalign"

MAY_IMPORT = {
    "core": {"core"},
    "nn": {"core", "nn"},
    "search": {"core", "search", "errors"},
    "training": {"core", "nn", "training", "errors", "config"},
    "serving": {"serving", "core", "errors"},
    "data": {"data", "errors", "textfiles"},
    "reproduction": {"core", "training", "reproduction", "errors", "config"},
    "nmt": {
        "core",
        "nn",
        "training",
        "data",
        "nmt",
        "errors",
        "config",
        "textfiles",
        "search",
        "reproduction",
        "serving",
    },
    "bench": {"core", "nn", "training", "nmt", "bench", "errors", "config", "search", "textfiles"},
    "vqa": {
        "core",
        "nn",
        "training",
        "data",
        "vqa",
        "errors",
        "config",
        "textfiles",
        "reproduction",
        "serving",
    },
}


def imported_rooms(path):
    """The rooms of this package that a file imports from."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "latentalign":
                names = [f"latentalign.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {n.split(".")[1] for n in names if n.startswith("latentalign.")}
    return rooms


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_arrows_point_down(path):
    room = path.relative_to(SRC).parts[0].removesuffix(".py")
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
        "itertools",
    }
    allowed |= {"contextlib", "math", "typing"}
    for path in (SRC / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            assert {n.split(".")[0] for n in names} <= allowed, path
