"""latentalign bench"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentalign.cli.common import JsonOption, warn
from latentalign.errors import InputError
from latentalign.progress import Bars

if TYPE_CHECKING:
    from latentalign.bench.measure import Plan

NAME = "bench"


def command(
    preset: Annotated[str, typer.Option(help="sizes and lengths of a random model: multi30k")] = "multi30k",
    run: Annotated[Path | None, typer.Option(help="a run directory: its model and data instead")] = None,
    rows: Annotated[str | None, typer.Option(help="comma-separated NAME or NAME:key=value:...")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="fewer rounds and smaller grids")] = False,
    batch: Annotated[int | None, typer.Option(min=1, help="sentences of a batch [192, or the run's]")] = None,
    threads: Annotated[int, typer.Option(min=1, help="of every process")] = 2,
    compare: Annotated[Path | None, typer.Option(help="an earlier --json result to divide by")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw costs and growth into this PNG")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure speed and memory of objectives and decoding."""
    from latentalign.bench import measure as bench
    from latentalign.bench import report
    from latentalign.bench.rows import parse_rows
    from latentalign.bench.trained import TrainedRun
    from latentalign.bench.workload import PRESETS

    if preset not in PRESETS:
        raise InputError(f"--preset {preset}: choose from {', '.join(PRESETS)}")
    chosen = parse_rows(rows, trained=run is not None)
    other = None if compare is None else report.read_result(compare)
    if plot is not None:
        from latentalign.bench.plot import draw
        from latentalign.reproduction.plots import check_picture_path

        check_picture_path(plot)
    effort, predict = bench.QUICK if quick else bench.FULL, bench.PREDICT
    if run is None:
        random = PRESETS[preset] if batch is None else replace(PRESETS[preset], batch=batch)
        plan = bench.Plan(random, chosen, effort, predict, threads)
    else:
        trained = TrainedRun(run, batch)
        trained.check()
        plan = bench.Plan(trained, chosen, effort, (*predict, *bench.PREDICT_TRAINED), threads)
    result = measure_with_progress(plan)
    if other is not None:
        result["compare"] = report.compare(result, other)
    if plot is not None:
        draw(result, plot)
    if as_json:
        print(json.dumps(result))
    else:
        report.show(result, other=None if compare is None else compare.name)


def measure_with_progress(plan: Plan) -> dict[str, Any]:
    """The result; progress on stderr is shown between measurements and never during one."""
    from latentalign.bench.measure import measure

    with Bars(live=False) as bars:
        bar = bars.add("starting", plan.steps, unit="measurements")
        bar.done = -1

        def report(what: str) -> None:
            bar.update(done=bar.done + 1, name=what)

        result = measure(plan, report)
    for message in result["failures"].values():
        warn(f"failed: {message}")
    if not result["rows"]:
        raise InputError("no row could be measured")
    return result
