"""The `latentalign` command: one short file per subcommand, errors turned into exit codes here."""

from __future__ import annotations

import os
import sys

import typer

from latentalign.cli import (
    accuracy,
    aer,
    align,
    answer,
    bench,
    check_data,
    data,
    diagnose,
    evaluate,
    features,
    report,
    reproduce,
    serve,
    train,
    translate,
)  # fmt: skip
from latentalign.errors import LatentAlignError
from latentalign.training.loop import Interrupted

app = typer.Typer(
    name="latentalign",
    help="Attention as a latent variable: train, translate, align, answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS = (
    reproduce, train, evaluate, translate, align, answer, aer, accuracy, diagnose, report, serve, data, features,
    check_data, bench,
)  # fmt: skip
for module in COMMANDS:
    app.command(module.NAME)(module.command)


def main() -> None:
    """Run the command line; a message on stderr and an exit code for every foreseen fault."""
    try:
        app(standalone_mode=True)
    except LatentAlignError as error:
        fail(str(error), error.exit_code)
    except Interrupted:
        fail("ended by SIGTERM; the checkpoint is saved, go on with --resume", 143)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'I/O'}: {error.strerror or error}", 5)


def fail(message: str, code: int) -> None:
    """One message, no traceback."""
    print(f"latentalign: {message}", file=sys.stderr)
    sys.exit(code)
