"""The generated pages of the documentation site are complete, and links lead to pages of the site."""

import importlib
import json
from pathlib import Path

import pytest
from typer.main import get_command

from latentalign import OBJECTIVES
from latentalign.cli.main import app
from latentalign.recipe_reference import recipe_keys
from latentalign.tasks.alignment import schema as alignment_schema
from latentalign.tasks.nmt import schema as nmt_schema
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.registry import TASKS
from latentalign.tasks.vqa import schema as vqa_schema
from latentalign.tasks.vqa.recipe import VQAConfig

GENERATORS = Path(__file__).resolve().parents[1] / "docs" / "_generate"


@pytest.fixture
def generator(monkeypatch):
    """A module of the folder docs/_generate by its name."""
    monkeypatch.syspath_prepend(str(GENERATORS))
    return importlib.import_module


def test_the_command_reference_has_every_command_and_option(generator):
    page = generator("command_pages").page()
    commands = get_command(app).commands
    inner = {f"recipe {name}": command for name, command in commands["recipe"].commands.items()}
    for name, command in ({**commands, **inner}).items():
        if name == "recipe":
            continue
        section = page.partition(f"## latentalign {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"`{parameter.opts[0]}`" in section, (name, parameter.opts)
            assert parameter.help, f"{name} {parameter.name} needs a help text"


def test_the_recipe_reference_has_every_key(generator):
    page = generator("recipe_pages").page()
    for task, model in (("translation", NMTConfig), ("question-answering", VQAConfig)):
        for key in recipe_keys(model):
            anchor = f"{{ #{task}-{key.table.replace('.', '-') or 'top'} }}"
            section = page.partition(anchor)[2].partition("\n### ")[0]
            assert f"| `{key.name}` | {key.type} |" in section, key


def test_the_recipe_reference_has_the_options_of_every_objective(generator):
    page = generator("recipe_pages").page().partition("## Options of the objectives")[2]
    for name, entry in OBJECTIVES.items():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert [option for option in entry.options if f"`{option} = " not in row] == []
    assert "_empty" not in page


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "docs/design.md#letters", "design.md#letters"),
        ("index.md", "LICENSE", "license.md"),
        ("index.md", "examples/five_objectives.py", "examples.md#five_objectives"),
        ("plugins.md", "../examples/plugin/recipe.toml", "examples.md#recipe"),
        ("index.md", "docs/pictures/demo.svg", "pictures/demo.svg"),
        ("design.md", "../CONTRIBUTING.md", "contributing.md"),
        ("results/demo.md", "../results.md", "../results.md"),
        ("design.md", "#here", "#here"),
        ("design.md", "https://example.org/docs/x", "https://example.org/docs/x"),
    ],
)
def test_links_between_files_become_links_between_pages(generator, page, link, expected):
    rewrite = generator("repository_pages").rewrite_links
    assert rewrite(f"see [this]({link}) now", page=page) == f"see [this]({expected}) now"


def test_links_in_code_and_html_are_told_apart(generator):
    rewrite = generator("repository_pages").rewrite_links
    assert rewrite("`f[i](docs/x.md)`", page="index.md") == "`f[i](docs/x.md)`"
    assert rewrite('<img src="docs/a.svg">', page="index.md") == '<img src="a.svg">'


def test_a_bar_in_a_table_cell_is_escaped(generator):
    table = generator("markdown_tables").table(("a", "b"), [("x|y", "z\nw")])
    assert "| x\\|y | z w |" in table


def test_every_figure_and_every_json_key_is_on_the_site(generator):
    pages = generator("output_pages")
    figures = pages.figures_page()
    for task in TASKS.values():
        for name, note in task.figure_notes.items():
            assert f"| `{name}` | {note.unit or 'text'} | {note.meaning} |" in figures
    documents = pages.documents_page()
    for name, model in {**nmt_schema.DOCUMENTS, **vqa_schema.DOCUMENTS, **alignment_schema.DOCUMENTS}.items():
        section = documents.partition(f"## `{name}`\n")[2].partition("\n## ")[0]
        for inner in pages.models_in(model):
            assert inner.__doc__, inner
            for key, field in inner.model_fields.items():
                assert field.description, f"{inner.__name__}.{key} needs a docstring"
                assert f"| `{key}` |" in section, (name, key)
        shown = section.partition("```json\n")[2].partition("    ```")[0]
        assert json.loads(shown) == model.model_json_schema()
