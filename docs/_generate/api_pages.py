"""API reference: one page for each module of the package, found by walking the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import griffe
from markdown_tables import table

PACKAGE = "latentalign"
FOLDER = "reference/api"
NOT_AN_API = {"api", "cli", "demo_language", "scenes_world"}
"""Modules without a page: the index lists the names of `api`, the commands have their own reference, and the rest is
data in Python form."""


def pages(source: Path) -> dict[str, str]:
    """Markdown of every page, which mkdocstrings fills in."""
    names = modules(source)
    found = {page_path(name, names): module_page(name) for name in names}
    found[page_path(PACKAGE, names)] = index_page(source)
    return found


def module_page(module: str) -> str:
    """The directive of one module; the page of a package describes the package and not its modules."""
    return f"""\
---
title: {module.rpartition(".")[2]}
search:
  boost: 0.5
---

::: {module}
    options:
      show_submodules: false
"""


def index_page(source: Path) -> str:
    """The public names of the package, each with a link to its documentation."""
    api = griffe.load(f"{PACKAGE}.api", search_paths=[source], resolve_aliases=True)
    rows = []
    for name in sorted(str(export) for export in api.exports or []):
        member = api.members[name]
        docstring = member.docstring.value if member.docstring else ""
        rows.append((f"[`{name}`][{member.canonical_path}]", docstring.partition("\n\n")[0]))
    return INDEX + table(("name", "meaning"), rows)


INDEX = """\
# latentalign

The public names. Import them from the package itself: `from latentalign import LatentAttention`. The other pages of
this section document every module.

"""


def navigation(source: Path) -> list[Any]:
    """The tree of modules; a package's own page is the index of its section."""
    return subtree(PACKAGE, modules(source))


def subtree(package: str, names: list[str]) -> list[Any]:
    """A package's page, then its modules and packages in alphabetical order."""
    entries: list[Any] = [page_path(package, names)]
    for name in names:
        if name.rpartition(".")[0] == package:
            title = name.rpartition(".")[2]
            entries.append(
                {title: subtree(name, names) if is_package(name, names) else page_path(name, names)}
            )
    return entries


def modules(source: Path) -> list[str]:
    """Dotted names of the public modules and packages."""
    found = []
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part in NOT_AN_API or part.startswith("_") for part in parts):
            found.append(".".join(parts))
    return sorted(found)


def is_package(module: str, names: list[str]) -> bool:
    """Whether other modules are inside this one."""
    return any(name.startswith(f"{module}.") for name in names)


def page_path(module: str, names: list[str]) -> str:
    """Path of a module's page; a package's page is the index of its folder."""
    inside = module.split(".")[1:]
    return "/".join([FOLDER, *inside, "index"] if is_package(module, names) else [FOLDER, *inside]) + ".md"
