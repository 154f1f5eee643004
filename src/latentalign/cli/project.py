"""latentalign project [RUN] --source tagged.html --target plain.txt"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latentalign.cli.common import DeviceOption, OutputOption, OverwriteOption, write_lines
from latentalign.errors import InputError

if TYPE_CHECKING:
    from latentalign.tasks.marked_text import LinkedPair

NAME = "project"


def command(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]",
            help="a run directory that aligns; without it and without --links, an aligner is trained",
        ),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="text with markup; default: standard input")] = None,
    target: Annotated[Path | None, typer.Option(help="its translation without markup")] = None,
    links: Annotated[
        Path | None, typer.Option(help="word links i-j of the text without markup, one line per pair")
    ] = None,
    kind: Annotated[str, typer.Option(help="html, xml or placeholders")] = "html",
    placeholder: Annotated[
        list[str] | None,
        typer.Option(
            help="a regular expression of placeholders, instead of {x}, {{x}}, ${x} and %s; repeatable"
        ),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="repeat an element whose words are not next to each other")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="only print the source without markup, e.g. for another aligner")
    ] = False,
    layout: Annotated[
        str, typer.Option("--format", help="text or json (with spans and confidences)")
    ] = "text",
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    device: DeviceOption = "cpu",
) -> None:
    """Move the markup of a text to its translation, line by line."""
    from latentalign.markup.placeholders import PATTERNS
    from latentalign.storage import require_free
    from latentalign.tasks.marked_text import json_lines, parse_lines, plain_line, project_lines
    from latentalign.textfiles import read_lines, read_stdin

    if layout not in ("text", "json"):
        raise InputError(f"--format must be one of text, json, got {layout!r}")
    if target is None and not plain:
        raise InputError("pass --target with the translation, or --plain to see the source without markup")
    if run is not None and links is not None:
        raise InputError("pass either a run or --links, not both")
    if output is not None:
        require_free(output, overwrite=overwrite)
    name = source or "standard input"
    lines = read_lines(source) if source else read_stdin()
    documents = parse_lines(lines, name, kind, placeholders=placeholder or PATTERNS)
    sources = [plain_line(document) for document in documents]
    if target is None:
        write_lines(sources, output)
        return
    targets = list(read_lines(target))
    if len(targets) != len(sources):
        raise InputError(f"{name} has {len(sources)} lines but {target} has {len(targets)}")
    pairs = list(zip(sources, targets, strict=True))
    linked = _find_links(pairs, run, links, device)
    found = project_lines(documents, targets, linked, split=split, name=links or target)
    write_lines((one.text for one in found) if layout == "text" else json_lines(found), output)


def _find_links(
    pairs: list[tuple[str, str]], run: Path | None, file: Path | None, device: str
) -> list[LinkedPair]:
    """The links of every pair: from a file, a run or a new aligner."""
    from latentalign.tasks.marked_text import links_of_file, links_of_text, train_links
    from latentalign.tasks.registry import load_run

    if file is not None:
        return links_of_file(file, len(pairs))
    if run is None:
        return train_links(pairs)
    task, trained = load_run(run, device=device, ability="align")
    return links_of_text(task.align(trained, pairs).linked_pairs())
