"""The Python of the documentation runs, from the top of each page to its end; links lead somewhere."""

import pkgutil
import re
from pathlib import Path

import pytest

from latentalign import DISTRIBUTIONS, OBJECTIVES, PREDICTIVES, SCORES, objectives_table
from latentalign.tasks.registry import TASKS
from support.bugs import BUGS
from support.chain_bugs import CHAIN_BUGS
from support.look_bugs import LOOK_BUGS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    """(line, code) of every Python block; a block in a list is shifted to the margin."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```python\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        line = text[: found.start()].count("\n") + 1
        yield line, re.sub(rf"^{found[1]}", "", found[2], flags=re.MULTILINE)


def outside_of_blocks(page):
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


TRAINING_PAGES = ("README.md", "extending.md", "own-model.md", "tutorial.md", "wrap.md")
"""Pages whose code trains a model, which takes more than a second."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in TRAINING_PAGES else [])
        for page in PAGES
        if any(blocks(page))
    ],
)
def test_python_blocks_run_in_order(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    known = [
        (registry, dict(registry)) for registry in (DISTRIBUTIONS, OBJECTIVES, PREDICTIVES, SCORES, TASKS)
    ]
    namespace = {"__name__": page.stem}
    try:
        for line, code in blocks(page):
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
    finally:
        for registry, entries in known:
            for name in set(registry) - set(entries):
                del registry[name]
            registry.update(entries)


def test_the_pages_that_promise_code_have_it():
    counts = {page.name: len(list(blocks(page))) for page in PAGES}
    assert counts["README.md"] >= 2
    assert counts["CONTRIBUTING.md"] >= 2
    assert counts["extending.md"] >= 9


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"`[^`\n]*`", "", outside_of_blocks(page))
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_objectives_is_the_registry():
    assert objectives_table() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_entries_know_whether_their_objective_needs_q():
    needs = {name: entry().needs_inferred for name, entry in OBJECTIVES.items()}
    assert needs == {name: entry.needs_inferred for name, entry in OBJECTIVES.items()}


def test_code_named_by_the_pages_exists():
    """Every `core/x.py` and every `function` with a file beside it in paper-to-code.md."""
    for page in PAGES:
        for path in re.findall(r"`((?:core|nn|tasks|training|web)/[\w/]+\.py)`", outside_of_blocks(page)):
            assert (ROOT / "src" / "latentalign" / path).exists(), f"{page.name} names {path}"
    rows = re.findall(
        r"^\|.*\| (.+?) \| `([\w/]+\.py)` \|$", (ROOT / "docs" / "paper-to-code.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 30
    for names, path in rows:
        source = (ROOT / "src" / "latentalign" / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Za-z_]\w*)", names):
            assert re.search(rf"\b{name}\b", source), f"{path} has no {name}"


def test_code_named_by_the_glossary_exists():
    names = re.findall(
        r"`(latentalign\.[\w.]+)`", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    )
    assert len(names) > 30
    for name in names:
        assert pkgutil.resolve_name(name) is not None


def test_the_glossary_is_in_alphabetical_order():
    for group in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        terms = re.findall(r"^### (.+)$", group, re.MULTILINE)
        assert terms == sorted(terms, key=str.lower)


def test_every_bug_of_the_list_can_still_be_planted_and_is_documented():
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    bugs = [*BUGS, *CHAIN_BUGS, *LOOK_BUGS]
    assert len({bug.name for bug in bugs}) == len(bugs) >= 60
    for bug in bugs:
        assert bug.old in (ROOT / "src" / "latentalign" / bug.file).read_text(encoding="utf-8"), bug.name
        assert f"| {bug.name} | `{bug.test}` | yes |" in page
