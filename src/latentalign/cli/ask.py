"""latentalign ask RUN PICTURE... QUESTION"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.common import DeviceOption, JsonOption, PredictOption, RunArgument, warn

NAME = "ask"
PLACES = 3
"""Parts of a picture that are named."""


def command(
    run: RunArgument,
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURE...", help="picture files of any name")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help='e.g. "what is on the table?"')],
    top: Annotated[int, typer.Option(min=1, help="how many answers to print")] = 5,
    extractor: Annotated[
        str | None, typer.Option(help="efficientnet-lite0 or timm:MODEL; default: the one of the training")
    ] = None,
    predict: PredictOption = None,
    out: Annotated[Path | None, typer.Option(help="write a page that shows where it looked (HTML)")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the page")] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Ask a question about picture files."""
    from latentalign.storage import require_free
    from latentalign.tasks.registry import load_run

    if out is not None:
        require_free(out, overwrite=overwrite)
    task, trained = load_run(run, device=device, ability="ask")
    asked = task.ask(trained, pictures, question, {"extractor": extractor, "predict": predict, "top": top})
    if as_json:
        print(json.dumps(asked))
    else:
        print_answers(asked)
    if out is not None:
        from latentalign.tasks.vqa.ask import ask_page
        from latentalign.web.pages import write_page

        write_page(out, ask_page(trained, asked, pictures))
        warn(f"written: {out}")


def print_answers(asked: Mapping[str, Any]) -> None:
    """Print, for each picture, its answers and the parts that the model looked at."""
    from latentalign.tasks.vqa.ask import likeliest_places

    for reply in asked["pictures"]:
        print(f"{reply['picture']}: {asked['question']}")
        for answer in reply["answers"]:
            print(f"  {answer['probability']:.3f}  {answer['answer']}")
        places = likeliest_places(reply["look"], PLACES)
        print("  it looked: " + ", ".join(f"{place} {share:.2f}" for place, share in places))
        if reply["unknown_words"]:
            print(f"  never seen in training: {', '.join(reply['unknown_words'])}")
