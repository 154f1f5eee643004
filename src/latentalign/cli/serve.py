"""latentalign serve RUN"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, RunArgument, warn
from latentalign.errors import InputError

NAME = "serve"


def command(
    run: RunArgument,
    host: Annotated[str, typer.Option(help="the address to listen on; 0.0.0.0 is all of them")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    features: Annotated[
        Path | None, typer.Option(help="question answering: a features file instead of the recipe's")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="question answering: the folder of its pictures")
    ] = None,
    device: DeviceOption = "cpu",
) -> None:
    """A page to translate and align, or to ask about pictures, with the alignments to look at; JSON for programs."""
    from latentalign.cli.tasks import is_vqa_run
    from latentalign.web.server import listen

    title = f"latentalign: {run.absolute().name}"
    if is_vqa_run(run):
        from latentalign.tasks.vqa.serve import served as served_answering
        from latentalign.tasks.vqa.task import Trained as TrainedAnswering

        trained = TrainedAnswering.load(run, device=device)
        app = served_answering(trained, title, features=features, images=images)
    else:
        from latentalign.tasks.nmt.serve import served
        from latentalign.tasks.nmt.task import Trained

        if features or images:
            raise InputError("--features and --images are of question answering; this run translates")
        app = served(Trained.load(run, device=device), title)
    listen(app, host, port, announce=warn)
