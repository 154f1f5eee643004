"""A benchmark's result as tables, and the comparison of two results."""

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
COMPARED_FIGURES = ("cost_vs_soft", "gemm_share", "tokens_per_second", "peak_memory_mb")
"""Figures that are compared; the first two hardly depend on the machine."""
HEADINGS = ("objective", "tokens/s", "cost vs\nsoft", "GEMM\nshare", "emitted\n/token", "MFLOP\n/token", "MB")
GROWTH_NOTE = "tokens/s and MB of a random model; T: members and target tokens, 8 sentences; V: outputs"
RANDOM_NOTE = "; outputs are as long as their source, because a random model hardly ever ends a sentence"


def read_result(path: Path) -> dict[str, Any]:
    """The result that an earlier `latentalign bench --json` printed."""
    try:
        found = json.loads(path.read_bytes())
        rows = [(label(row["objective"], row["options"]), row) for row in found["rows"]]
        for _, row in rows:
            for name in COMPARED_FIGURES:
                if row[name] is not None and not float(row[name]) >= 0:
                    raise ValueError(f"{name} is {row[name]}")
    except OSError as error:
        raise InputError(f"--compare {path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"--compare {path}: not a result of `latentalign bench --json`: {type(error).__name__} {error}"
        ) from None
    return dict(found)


def compare(result: Result, other: Result) -> list[dict[str, Any]]:
    """Each row's figures divided by those of the other result; None where a row or a figure is absent there."""
    theirs = {label(row["objective"], row["options"]): row for row in other["rows"]}
    return [
        {
            "objective": row["objective"],
            "options": row["options"],
            **{
                name: ratio(row, theirs.get(label(row["objective"], row["options"]), {}), name)
                for name in COMPARED_FIGURES
            },
        }
        for row in result["rows"]
    ]


def ratio(row: Mapping[str, Any], other: Mapping[str, Any], name: str) -> float | None:
    """A figure divided by the other row's; None where one is absent or zero."""
    return round(row[name] / other[name], 4) if row.get(name) is not None and other.get(name) else None


def format_number(value: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def new_table(title: str, headings: Sequence[str]) -> Table:
    """An empty table: the first column is text, the others are numbers."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    table.add_column(headings[0])
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    return table


def describe_sizes(model: Mapping[str, Any]) -> str:
    """The sizes of a model's layers."""
    if model.get("backbone") == "transformer":
        fed = " with the expected member" if model.get("feed_expected") else ""
        return (
            f"transformer: width {model['embedding']}, {model['heads']} heads, encoder {model['encoder_layers']} and "
            f"decoder {model['decoder_layers']} layers, {model['emission_state']} state{fed}"
        )
    return (
        f"embedding {model['embedding']}, encoder {model['encoder_layers']} x {model['encoder_size']}, "
        f"decoder {model['decoder_layers']} x {model['decoder_size']}, "
        f"attention {model['attention_size']}, head {model['head_size']}"
    )


def caption(result: Result) -> str:
    """The model, the data and the machine that were measured."""
    about, model = result["workload"], result["workload"]["model"]
    what = f"run {about['run']}" if "run" in about else "random model and sentences"
    return (
        f"{what}; V {about['vocabulary']:,}, batch {about['batch']},\n{describe_sizes(model)}\n"
        f"GEMM rate {result['gemm_gflops']:,.1f} GFLOP/s in float32, {result['threads']} threads, "
        f"torch {result['versions']['torch']}\n"
        "tokens: target tokens with </s>, without padding\n"
        "GEMM share: counted operations / time / GEMM rate\n"
        "emitted: (query, member) pairs through the output layer, backward passes included"
        + "\ncertificate: share of the time that decides which members are visited"
        * has_certificates(result)
    )


def has_certificates(result: Result) -> bool:
    """Whether a row has a certified sum."""
    return any("visited" in row for row in result["rows"])


def format_share(share: float | None) -> str:
    """A share of the time in per cent."""
    return "-" if share is None else f"{100 * share:.0f} %"


def rows_table(result: Result) -> Table:
    """Speed, cost and memory of every objective."""
    visits = has_certificates(result)
    table = new_table("training", [*HEADINGS, *["visited", "certi-\nficate"] * visits])
    for row in result["rows"]:
        share = None if row["gemm_share"] is None else 100 * row["gemm_share"]
        certificate = [format_number(row.get("visited"), 2), format_share(row.get("certificate_share"))]
        table.add_row(
            label(row["objective"], row["options"]).replace(":", "\n  "),
            format_number(row["tokens_per_second"], 0),
            format_number(row["cost_vs_soft"], 2),
            f"{format_number(share, 0)} %",
            format_number(row["emissions_per_token"], 2),
            format_number(1000 * row["gflop_per_token"], 1),
            format_number(row["peak_memory_mb"], 0),
            *(certificate if visits else []),
        )
    return table


def growth_table(result: Result) -> Table:
    """Tokens per second and MB by length and by vocabulary."""
    names = list(dict.fromkeys(point["objective"] for point in result["growth"]))
    by_point = {(p["axis"], p["size"], p["objective"]): p for p in result["growth"]}
    table = new_table("growth", ["size", *names])
    for axis, size in dict.fromkeys((p["axis"], p["size"]) for p in result["growth"]):
        points = [by_point.get((axis, size, name), {}) for name in names]
        cells = [
            f"{format_number(p.get('tokens_per_second'), 0)}, {format_number(p.get('peak_memory_mb'), 0):>5}"
            for p in points
        ]
        table.add_row(f"{axis} = {size:,}", *cells)
    return table


def decode_table(result: Result) -> Table:
    """Sentences per second by beam and batch."""
    names = list(dict.fromkeys(way["predict"] for way in result["decode"]))
    speeds = {(w["beam"], w["batch"], w["predict"]): w["sentences_per_second"] for w in result["decode"]}
    table = new_table("decoding", ["beam, batch", *names])
    for beam, batch in dict.fromkeys((w["beam"], w["batch"]) for w in result["decode"]):
        table.add_row(
            f"{beam}, {batch}", *(format_number(speeds.get((beam, batch, name)), 1) for name in names)
        )
    return table


def compare_table(ratios: Sequence[Mapping[str, Any]], other: str) -> Table:
    """This result divided by another."""
    table = new_table(f"this / {other}", ["objective", "cost vs soft", "GEMM share", "tokens/s", "MB"])
    for row in ratios:
        name = label(row["objective"], row["options"]).replace(":", "\n  ")
        table.add_row(name, *(format_number(row[figure], 2) for figure in COMPARED_FIGURES))
    return table


def show(result: Result, *, other: str | None = None, console: Console | None = None) -> None:
    """Print all tables, and the comparison if there is one."""
    console = console or Console()
    parts = [
        (rows_table(result), caption(result)),
        (growth_table(result), GROWTH_NOTE),
        (decode_table(result), "sentences/s" + ("" if "run" in result["workload"] else RANDOM_NOTE)),
    ]
    if other is not None:
        parts.append((compare_table(result["compare"], other), "the first two hardly depend on the machine"))
    for one, note in parts:
        console.print(one)
        console.print(note, end="\n\n", highlight=False, markup=False)
