"""The `latentalign` command: one short module per subcommand. Errors become exit codes here."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

import latentalign
from latentalign.cli import (
    accuracy,
    aer,
    align,
    answer,
    ask,
    bench,
    check_data,
    convert,
    data,
    diagnose,
    evaluate,
    features,
    project,
    recipe,
    report,
    reproduce,
    serve,
    train,
    translate,
)
from latentalign.cli.guard import QuietOption, VerboseOption, choose_verbosity, guard, require_streams
from latentalign.core.registry import PluginError
from latentalign.errors import LatentAlignError, OutOfMemoryError
from latentalign.memory import explain_memory

COMMANDS = (
    reproduce, train, convert, evaluate, translate, align, project, answer, ask, aer, accuracy, diagnose, report, serve,
    data, features, check_data, bench,
)  # fmt: skip
HELP_NAMES = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="latentalign",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP_NAMES,
)
for module in COMMANDS:
    app.command(module.NAME, context_settings=HELP_NAMES)(guard(module.command))
app.add_typer(recipe.app, name=recipe.NAME, context_settings=HELP_NAMES)


def print_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        print(f"latentalign {latentalign.__version__}")
        raise typer.Exit


@app.callback()
def latentalign_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="print the version and exit"),
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Attention as a latent variable: train, translate, align, answer."""
    choose_verbosity(quiet, verbose)
    if os.environ.get("LATENTALIGN_PLUGINS"):
        from latentalign.tasks.registry import import_plugins

        import_plugins()


def main() -> None:
    """Run the command line; print one message and set the exit code for every expected error."""
    try:
        require_streams()
        app(standalone_mode=True)
    except LatentAlignError as error:
        fail(str(error), error.exit_code)
    except PluginError as error:
        fail(str(error), 2)
    except (MemoryError, RuntimeError, OSError) as error:
        message = explain_memory(error)
        if message is not None:
            fail(message, OutOfMemoryError.exit_code)
        if not isinstance(error, OSError):
            raise
        fail(f"{error.filename or 'I/O'}: {error.strerror or error}", 5)


def fail(message: str, code: int) -> NoReturn:
    """Print one message, without a traceback, and exit."""
    with suppress(OSError):  # nobody may be listening
        print(f"latentalign: {message}", file=sys.stderr)
    sys.exit(code)
