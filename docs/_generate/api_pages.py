"""API reference: one page for each module of the package, found by walking the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = "latentalign"
NOT_AN_API = {"cli", "__main__", "demo_language", "scenes_world"}
"""Modules without an interface for users: the commands have their own reference, the rest is data in Python form."""


def pages(source: Path) -> dict[str, str]:
    """Markdown of every page, which mkdocstrings fills in."""
    return {page_of(module): module_page(module) for module in modules(source)}


def module_page(module: str) -> str:
    """The directive of one module; the package itself lists what it exports."""
    page = f"---\ntitle: {module.rpartition('.')[2]}\n---\n\n::: {module}\n"
    if module == PACKAGE:
        page += "    options:\n      show_submodules: false\n      members: []\n"
    return page


def navigation(source: Path) -> list[Any]:
    """The tree of modules; a package's own page is the index of its section."""
    return subtree(PACKAGE, modules(source))


def subtree(package: str, names: list[str]) -> list[Any]:
    """A package's page, then its modules and packages in alphabetical order."""
    entries: list[Any] = [page_of(package)]
    for name in names:
        if name.rpartition(".")[0] == package:
            title = name.rpartition(".")[2]
            is_package = any(other.startswith(f"{name}.") for other in names)
            entries.append({title: subtree(name, names) if is_package else page_of(name)})
    return entries


def modules(source: Path) -> list[str]:
    """Dotted names of the public modules; a package is named like a module."""
    found = []
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part in NOT_AN_API or part.startswith("_") for part in parts):
            found.append(".".join(parts))
    return sorted(found)


def page_of(module: str) -> str:
    """Path of a module's page."""
    return f"reference/api/{module}.md"
