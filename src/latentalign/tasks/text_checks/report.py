"""What `latentalign check-data` reports about parallel text, and copies of the text without misaligned pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from latentalign.errors import InputError
from latentalign.progress import inform
from latentalign.storage import require_folder_place, write_text
from latentalign.tasks.splits import TextSplit
from latentalign.tasks.text_checks.check import Limits, as_json, check
from latentalign.tasks.text_checks.misaligned import Misaligned, find_misaligned
from latentalign.tasks.text_checks.swapped import find_swapped, weigh_words
from latentalign.textfiles import count_lines

LEARN_FROM = 100_000
"""Training pairs that the aligner learns from, spread evenly. More make it slower, hardly better at this."""
SERIOUS = 0.01
"""If more than this share of the pairs of a split is misaligned, it is a warning, otherwise a note."""
SHOWN = 10
"""Findings of a split that are printed with their text. JSON has all of them."""
SHORTENED = 100
"""Characters of a line that are printed."""


@dataclass(frozen=True)
class MisalignedOptions:
    """How to look for pairs that do not translate each other."""

    filtered: Path | None = None
    """A new folder for copies of the splits without these pairs and without swapped ones."""


def check_text(
    splits: Mapping[str, TextSplit], limits: Limits, wanted: MisalignedOptions | None
) -> dict[str, Any]:
    """Counts of flaws in each split, with warnings and notes; misaligned pairs too, if they are wanted."""
    if wanted is not None and wanted.filtered is not None:
        require_new_folder(wanted.filtered)
    result = as_json(check(splits, limits))
    if wanted is None:
        return result
    found = find_in_splits(splits, {name: counts["pairs"] for name, counts in result["splits"].items()})
    for name, runs in found.items():
        counts = result["splits"][name]
        counts["misaligned"] = sum(run.last - run.first + 1 for run in runs)
        counts["misaligned_runs"] = [asdict(run) for run in runs]
        serious = counts["misaligned"] > SERIOUS * counts["pairs"]
        texts = [f"{name}: {text}" for text in describe_runs(splits[name], runs, counts["pairs"])]
        result["warnings" if serious else "notes"] += texts
    if wanted.filtered is not None:
        result["filtered"] = write_filtered(splits, found, wanted.filtered)
    return result


def find_in_splits(splits: Mapping[str, TextSplit], pairs: Mapping[str, int]) -> dict[str, list[Misaligned]]:
    """The misaligned pairs of all splits, given their sizes. The aligner learns from the training text."""
    from latentalign.aligner import train_aligner

    step = max(1, -(-pairs["train"] // LEARN_FROM))
    inform("learning to align words, to find pairs that do not translate each other")
    aligner = train_aligner(islice(splits["train"].read(), 0, None, step))
    return {
        name: find_misaligned(aligner, split.read(), pairs[name], name=f"comparing the lines of {name}")
        for name, split in splits.items()
    }


def describe_runs(split: TextSplit, runs: Sequence[Misaligned], pairs: int) -> Iterator[str]:
    """Messages about the misaligned pairs of a split: how many there are, and the longest runs with an example."""
    if not runs:
        return
    total = sum(run.last - run.first + 1 for run in runs)
    yield (
        f"{total} of {pairs} pairs of {split} probably do not translate each other, in {len(runs)} "
        f"place{'s' * (len(runs) > 1)}"
    )
    longest = sorted(runs, key=lambda run: (run.first - run.last, run.gain))[:SHOWN]
    for run in sorted(longest, key=lambda run: run.first):
        yield describe_run(run)
    if len(runs) > SHOWN:
        yield f"... and {len(runs) - SHOWN} shorter ones, which --json has"


def describe_run(run: Misaligned) -> str:
    """One message about consecutive lines."""
    many = run.last > run.first
    where = f"lines {run.first}-{run.last}" if many else f"line {run.first}"
    what = f"fit{'s' * (not many)} nothing nearby"
    if run.lag is not None:
        lines = f"{abs(run.lag)} line{'s' * (abs(run.lag) > 1)} {'below' if run.lag > 0 else 'above'}"
        of = "most targets stand" if many else "the target stands"
        what = f"{of} {lines} (gain {run.moved_gain:.2f} there)"
    example = f"line {run.line}: " if many else ""
    return (
        f"{where}: {what}; gain {run.gain:.2f} nats per word here; {example}"
        f"{shorten(run.source)!r} - {shorten(run.target)!r}"
    )


def shorten(text: str) -> str:
    """The beginning of a line."""
    return text if len(text) <= SHORTENED else f"{text[: SHORTENED - 3]}..."


# Copies


def require_new_folder(folder: Path) -> None:
    """Raise unless a folder is empty or can be made."""
    require_folder_place(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; choose another folder")


def write_filtered(
    splits: Mapping[str, TextSplit], found: Mapping[str, Sequence[Misaligned]], folder: Path
) -> dict[str, list[str]]:
    """Write the pairs that are neither misaligned nor swapped, and their line numbers; the files by split.

    A split of two files becomes NAME.source and NAME.target, a file of pairs NAME.pairs. NAME.lines has the numbers,
    from 1. Gold links and links of other aligners are not copied, because their lines would no longer fit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, weights = {}, weigh_words(splits["train"], count_lines(splits["train"].text("source")))
    for name, split in splits.items():
        bad = {line for run in found[name] for line in range(run.first, run.last + 1)}
        bad |= {int(place) + 1 for place in find_swapped(split, weights)}
        kept = [(n, pair) for n, pair in enumerate(split.read(), start=1) if n not in bad]
        columns = {"lines": [str(number) for number, _ in kept]}
        if split.pairs is not None:
            columns["pairs"] = ["\t".join(pair) for _, pair in kept]
        else:
            columns |= {"source": [pair[0] for _, pair in kept], "target": [pair[1] for _, pair in kept]}
        for key, lines in columns.items():
            write_text(folder / f"{name}.{key}", "".join(f"{line}\n" for line in lines))
        written[name] = [str(folder / f"{name}.{key}") for key in columns]
        if split.gold is not None:
            inform(f"{split.gold} is not copied: it belongs to all lines of {split}")
    return written
