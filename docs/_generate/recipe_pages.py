"""Recipe reference: every key of every task's recipe, read from the pydantic models."""

from __future__ import annotations

import inspect

from markdown_tables import table
from pydantic import BaseModel

from latentalign import OBJECTIVES
from latentalign.recipe_reference import REQUIRED, UNSET, RecipeTable, recipe_tables
from latentalign.tasks.alignment.recipe import AlignmentConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.vqa.recipe import VQAConfig

INTRODUCTION = """\
# Recipes

A recipe is a TOML file. Set a key in the file, or on the command line with `--set table.key=value`:

```
latentalign train nmt/demo --out run --set training.epochs=3
```

`latentalign recipe list` names the shipped recipes. `latentalign recipe show NAME` prints a recipe as it takes
effect, with every key; add `--explain` to see the meaning of each key, and `--set` to see what a change does.

A recipe may start from another one. `base` at the top of the file is the name of a shipped recipe, or a file
relative to this one:

```toml
base = "nmt/multi30k-small"

[data.train]
source = "train.fr"
target = "train.en"

[training]
epochs = 10
```

Tables are merged key by key, and the recipe wins over its base. Paths in a base stay relative to the base. A run
directory stores the complete recipe and does not need the base any more.

This page is generated from the models that read recipes. An unknown key is an error, and the message names
the nearest key that exists. Paths are relative to the recipe's folder; paths given with `--set` are relative
to the current folder. A key whose default is *unset* may be absent.
"""


def page() -> str:
    """Markdown of the whole page."""
    tasks = {"Translation": NMTConfig, "Question answering": VQAConfig, "Word alignment": AlignmentConfig}
    parts = [INTRODUCTION, *(task_section(name, model) for name, model in tasks.items()), objective_options()]
    return "\n".join(parts)


def task_section(name: str, model: type[BaseModel]) -> str:
    """All tables of one task's recipe."""
    slug = name.lower().replace(" ", "-")
    return "\n".join([f"## {name}", "", *(table_section(part, slug) for part in recipe_tables(model))])


def table_section(part: RecipeTable, slug: str) -> str:
    """One table of a recipe: its meaning and its keys."""
    title = f"`[{part.name}]`" if part.name else "Top level"
    anchor = f"{slug}-{part.name.replace('.', '-') or 'top'}"
    rows = [(f"`{key.name}`", key.type, default(key.default), key.meaning) for key in part.keys]
    return "\n".join(
        [
            f"### {title} {{ #{anchor} }}",
            "",
            part.meaning,
            "",
            table(("key", "type", "default", "meaning"), rows),
        ]
    )


def default(text: str) -> str:
    """A default in code type; the words `required` and `unset` in italics."""
    return f"*{text}*" if text in (REQUIRED, UNSET) else f"`{text}`"


def objective_options() -> str:
    """The options that each objective accepts in `[objective]`."""
    rows = []
    for name, entry in OBJECTIVES.items():
        options = inspect.signature(entry.build).parameters.values()
        cell = ", ".join(f"`{option.name} = {option_default(option)}`" for option in options)
        rows.append((f"`{name}`", entry.maximises, cell or "no options"))
    header = ("objective", "maximises", "options and defaults")
    return "\n".join(["## Options of the objectives", "", OPTIONS, "", table(header, rows)])


OPTIONS = """\
`[objective]` accepts the options of the objective that `name` selects. p is the prior, q the inferred
alignment, f the likelihood of the output."""


def option_default(option: inspect.Parameter) -> str:
    """The default of an option as TOML."""
    value = option.default
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
