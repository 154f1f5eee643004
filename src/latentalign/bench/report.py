"""Tables for people, and two results side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from latentalign.bench.rows import label
from latentalign.errors import InputError

Result = Mapping[str, Any]
COMPARED = ("cost_vs_soft", "gemm_share", "tokens_per_second", "peak_memory_mb")
"""The first two hardly depend on the machine."""
HEADINGS = ("objective", "tokens/s", "cost vs\nsoft", "GEMM\nshare", "emitted\n/token", "MFLOP\n/token", "MB")
GROWTH = "tokens/s, MB of a random model; T: members and target tokens, 8 sentences; V: outputs"
BOUNDED = "; outputs are as long as their source, for a random model hardly ever ends"


def read_result(path: Path) -> dict[str, Any]:
    """What an earlier `latentalign bench --json` printed."""
    try:
        found = json.loads(path.read_bytes())
        rows = [(label(row["objective"], row["options"]), row) for row in found["rows"]]
        for _, row in rows:
            for name in COMPARED:
                if row[name] is not None and not float(row[name]) >= 0:
                    raise ValueError(f"{name} is {row[name]}")
    except OSError as error:
        raise InputError(f"--compare {path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"--compare {path}: not a result of `latentalign bench --json`: {type(error).__name__} {error}"
        ) from None
    return dict(found)


def compared(result: Result, other: Result) -> list[dict[str, Any]]:
    """Each row's figures divided by the other's; None where a row or a figure is absent there."""
    theirs = {label(row["objective"], row["options"]): row for row in other["rows"]}
    return [
        {
            "objective": row["objective"],
            "options": row["options"],
            **{
                name: ratio(row, theirs.get(label(row["objective"], row["options"]), {}), name)
                for name in COMPARED
            },
        }
        for row in result["rows"]
    ]


def ratio(row: Mapping[str, Any], other: Mapping[str, Any], name: str) -> float | None:
    return round(row[name] / other[name], 4) if row.get(name) is not None and other.get(name) else None


def cell(value: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def table(title: str, headings: Sequence[str]) -> Table:
    """An empty table: the first column is text, the others are numbers."""
    made = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    made.add_column(headings[0])
    for heading in headings[1:]:
        made.add_column(heading, justify="right")
    return made


def caption(result: Result) -> str:
    """On what and with what it was measured."""
    about, model = result["workload"], result["workload"]["model"]
    what = f"run {about['run']}" if "run" in about else "random model and sentences"
    sizes = (
        f"embedding {model['embedding']}, encoder {model['encoder_layers']} x {model['encoder_size']}, "
        f"decoder {model['decoder_layers']} x {model['decoder_size']}, "
        f"attention {model['attention_size']}, head {model['head_size']}"
    )
    return (
        f"{what}; V {about['vocabulary']:,}, batch {about['batch']},\n{sizes}\n"
        f"GEMM rate {result['gemm_gflops']:,.1f} GFLOP/s in float32, {result['threads']} threads, "
        f"torch {result['versions']['torch']}\n"
        "tokens: of the target, with </s> and without padding\n"
        "GEMM share: counted operations / time / GEMM rate\n"
        "emitted: (query, member) pairs through the output layer, backward passes included"
    )


def rows_table(result: Result) -> Table:
    """Speed, cost and memory of every objective."""
    visits = any("visited" in row for row in result["rows"])
    made = table("training", [*HEADINGS, *["visited"] * visits])
    for row in result["rows"]:
        share = None if row["gemm_share"] is None else 100 * row["gemm_share"]
        made.add_row(
            label(row["objective"], row["options"]).replace(":", "\n  "),
            cell(row["tokens_per_second"], 0),
            cell(row["cost_vs_soft"], 2),
            f"{cell(share, 0)} %",
            cell(row["emissions_per_token"], 2),
            cell(1000 * row["gflop_per_token"], 1),
            cell(row["peak_memory_mb"], 0),
            *([cell(row.get("visited"), 2)] * visits),
        )
    return made


def growth_table(result: Result) -> Table:
    """Tokens a second and MB by length and by vocabulary."""
    names = list(dict.fromkeys(point["objective"] for point in result["growth"]))
    by_point = {(p["axis"], p["size"], p["objective"]): p for p in result["growth"]}
    made = table("growth", ["size", *names])
    for axis, size in dict.fromkeys((p["axis"], p["size"]) for p in result["growth"]):
        points = [by_point.get((axis, size, name), {}) for name in names]
        cells = [
            f"{cell(p.get('tokens_per_second'), 0)}, {cell(p.get('peak_memory_mb'), 0):>5}" for p in points
        ]
        made.add_row(f"{axis} = {size:,}", *cells)
    return made


def decode_table(result: Result) -> Table:
    """Sentences a second by beam and batch."""
    names = list(dict.fromkeys(way["predict"] for way in result["decode"]))
    speeds = {(w["beam"], w["batch"], w["predict"]): w["sentences_per_second"] for w in result["decode"]}
    made = table("decoding", ["beam, batch", *names])
    for beam, batch in dict.fromkeys((w["beam"], w["batch"]) for w in result["decode"]):
        made.add_row(f"{beam}, {batch}", *(cell(speeds.get((beam, batch, name)), 1) for name in names))
    return made


def compare_table(ratios: Sequence[Mapping[str, Any]], other: str) -> Table:
    """This result divided by another."""
    made = table(f"this / {other}", ["objective", "cost vs soft", "GEMM share", "tokens/s", "MB"])
    for row in ratios:
        name = label(row["objective"], row["options"]).replace(":", "\n  ")
        made.add_row(name, *(cell(row[figure], 2) for figure in COMPARED))
    return made


def show(result: Result, *, other: str | None = None, console: Console | None = None) -> None:
    """All tables, and the comparison where there is one."""
    console = console or Console()
    parts = [
        (rows_table(result), caption(result)),
        (growth_table(result), GROWTH),
        (decode_table(result), "sentences/s" + ("" if "run" in result["workload"] else BOUNDED)),
    ]
    if other is not None:
        parts.append((compare_table(result["compare"], other), "the first two hardly depend on the machine"))
    for one, note in parts:
        console.print(one)
        console.print(note, end="\n\n", highlight=False, markup=False)
