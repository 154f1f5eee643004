"""latentalign serve RUN"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentalign.cli.common import DeviceOption, RunArgument, warn

NAME = "serve"


def command(
    run: RunArgument,
    host: Annotated[str, typer.Option(help="the address to listen on; 0.0.0.0 is all of them")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    features: Annotated[
        Path | None, typer.Option(help="question answering: a features file instead of the recipe's")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="question answering: the folder of pictures")] = None,
    extractor: Annotated[
        str | None,
        typer.Option(help="question answering: for uploaded pictures; default: that of the training"),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=0.1, help="seconds after which a request gets the answer 504")
    ] = 60.0,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="LATENTALIGN_TOKEN", help="what clients have to send as Authorization: Bearer TOKEN"
        ),
    ] = None,
    device: DeviceOption = "cpu",
) -> None:
    """Serve a page and a JSON interface for one model."""
    from latentalign.tasks.registry import load_run, select_serve_options
    from latentalign.web.listening import ServerSettings, listen

    task, trained = load_run(run, device=device)
    options = select_serve_options(task, features=features, images=images, extractor=extractor)
    app = task.serve(trained, f"latentalign: {run.absolute().name}", options)
    listen(app, ServerSettings(host, port, token, deadline), announce=warn)
