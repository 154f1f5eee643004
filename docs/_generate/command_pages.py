"""Command reference: every command, argument and option, read from the Typer application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from markdown_tables import table
from typer.main import get_command

from latentalign.cli.main import app

INTRODUCTION = """\
# Commands

This page is generated from the program. `latentalign COMMAND --help` prints the same text.
Exit codes are listed under [Reliability](../reliability.md#exit-codes).
"""


def page() -> str:
    """Markdown of the whole page."""
    sections = [section(name, command) for name, command in commands(get_command(app), "latentalign")]
    return "\n".join([INTRODUCTION, *sections])


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Full name and object of every command, those of nested groups included."""
    context = group.make_context("latentalign", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        if hasattr(command, "list_commands"):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def section(name: str, command: Any) -> str:
    """Heading, help text and table of one command."""
    rows = [row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    return "\n".join(
        [
            f"## {name}",
            "",
            help_text(command.help),
            "",
            f"```text\n{usage(name, command)}\n```",
            "",
            table(("argument or option", "meaning", "default"), rows),
        ]
    )


def usage(name: str, command: Any) -> str:
    """The line that `--help` prints first."""
    context = command.make_context(name, [], resilient_parsing=True)
    return " ".join([name, *command.collect_usage_pieces(context)])


def row(parameter: Any) -> tuple[str, str, str]:
    """Name, meaning and default of one parameter."""
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    if parameter.multiple:
        names += " (repeatable)"
    return names, help_text(parameter.help), default(parameter)


def default(parameter: Any) -> str:
    """A default as one would type it."""
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value == [] or value == ():
        return ""
    if isinstance(value, bool):
        return "`on`" if value else "`off`"
    return f"`{value}`"


def help_text(text: str | None) -> str:
    """A help text as Markdown: paragraphs kept, indentation and Typer's marks removed."""
    paragraphs = (text or "").replace("\b", "").replace("\f", "").split("\n\n")
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in paragraphs)
