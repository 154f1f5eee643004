"""Reference of what commands write: the figures of `evaluate`, and the JSON documents with their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator

from markdown_tables import table
from pydantic import BaseModel

from latentalign.recipe_errors import parts_of
from latentalign.tasks.alignment import figure_notes as alignment_figures
from latentalign.tasks.alignment import schema as alignment_schema
from latentalign.tasks.figure_notes import FigureNote
from latentalign.tasks.nmt import figure_notes as nmt_figures
from latentalign.tasks.nmt import schema as nmt_schema
from latentalign.tasks.vqa import figure_notes as vqa_figures
from latentalign.tasks.vqa import schema as vqa_schema

FIGURES = """\
# Figures

`latentalign evaluate RUN` measures these figures, prints them, and stores them in the run as
`evaluation/SPLIT.json`. `latentalign evaluate RUN --explain` prints this page for one run. A figure that does not
exist for a model or its data is `null`.

`report` uses a stored result again if the split, the options, the model, the recipe, the data files and the version
of the program are the same. It says so on stderr.
"""

DOCUMENTS = """\
# JSON output

Programs can rely on these documents. The schemas are generated from the models in `latentalign.tasks.nmt.schema`,
`latentalign.tasks.vqa.schema` and `latentalign.tasks.alignment.schema`, and the tests validate real output
against them. New keys may be added in later versions; keys that exist keep their meaning.

Words are spelt as in the input, also if the tokenizer lowers text. A span `[start, end]` counts characters (Unicode
code points) of the input line from 0: in Python, `line[start:end]` is the word. In JavaScript, use
`Array.from(line).slice(start, end)`, because its strings count UTF-16 units. The pieces of segmented text
(`Hu@@ nd`) are joined to a word (`Hund`), and its span covers all pieces.
"""


def figures_page() -> str:
    """Markdown of the page about figures."""
    tasks = {
        "Translation": nmt_figures.FIGURES,
        "Question answering": vqa_figures.FIGURES,
        "Word alignment": alignment_figures.FIGURES,
    }
    return "\n".join([FIGURES, *(figures_section(name, notes) for name, notes in tasks.items())])


def figures_section(name: str, notes: dict[str, FigureNote]) -> str:
    """The figures of one task."""
    rows = [(f"`{figure}`", note.unit or "text", note.meaning) for figure, note in notes.items()]
    return "\n".join([f"## {name}", "", table(("figure", "unit", "meaning"), rows)])


def documents_page() -> str:
    """Markdown of the page about JSON documents."""
    documents = {**nmt_schema.DOCUMENTS, **vqa_schema.DOCUMENTS, **alignment_schema.DOCUMENTS}
    return "\n".join([DOCUMENTS, *(document_section(name, model) for name, model in documents.items())])


def document_section(name: str, model: type[BaseModel]) -> str:
    """One document: its keys, those of the objects inside it, and its schema."""
    schema = json.dumps(model.model_json_schema(), indent=1)
    parts = [f"## `{name}`", ""]
    for inner in models_in(model):
        rows = [
            (f"`{key}`", "always" if field.is_required() else "optional", field.description or "")
            for key, field in inner.model_fields.items()
        ]
        parts += [f"**{inner.__name__}.** {' '.join((inner.__doc__ or '').split())}", ""]
        parts += [table(("key", "present", "meaning"), rows)]
    indented = "\n".join(f"    {line}" for line in ["```json", *schema.split("\n"), "```"])
    return "\n".join([*parts, '??? note "JSON Schema"', "", indented, ""])


def models_in(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and the models of the objects inside it, each once."""
    found = [model]
    for each in found:
        for field in each.model_fields.values():
            for part in parts_of(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel) and part not in found:
                    found.append(part)
    return iter(found)
