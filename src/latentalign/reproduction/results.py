"""Results of rows: one JSON file per row and seed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]


def read_results(out: Path, order: Sequence[str]) -> list[dict[str, Any]]:
    """The results of all rows that were ever finished in a folder, in the order of the tables."""
    records = [json.loads(path.read_bytes()) for path in sorted((out / "rows").glob("*.json"))]
    places = {name: place for place, name in enumerate(order)}
    known = [record for record in records if record["row"] in places]
    return sorted(known, key=lambda record: (places[record["row"]], record["seed"]))


def by_row(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by row, in the order of the tables."""
    rows: dict[str, list[Result]] = {}
    for record in results:
        rows.setdefault(record["row"], []).append(record)
    return rows


def finite_or_none(value: Any) -> Any:
    """A figure; None for one that is infinite or not a number, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
