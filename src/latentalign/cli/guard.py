"""What every command has in common: `-q` and `-v`, a clean end after Ctrl-C, and streams that can be written."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from latentalign.errors import StorageError
from latentalign.interrupts import (
    NAMES,
    first_interruption,
    handle_signals,
    ignore_signals,
    raise_interrupted,
)
from latentalign.progress import Verbosity, set_verbosity, warn

QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="print no progress, only warnings and errors", show_default=False),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="print more about what is done", show_default=False)
]
OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
    for name, option in (("quiet", QuietOption), ("verbose", VerboseOption))
]


def choose_verbosity(quiet: bool, verbose: bool) -> None:
    """Follow `-q` and `-v`, which stand before or after the name of a command; `-q` wins."""
    if quiet:
        set_verbosity(Verbosity.QUIET)
    elif verbose:
        set_verbosity(Verbosity.VERBOSE)


def guard(command: Callable[..., None]) -> Callable[..., None]:
    """A command that also takes `-q` and `-v`, and whose end by a signal is one message and an exit code."""

    @functools.wraps(command)
    def run(*arguments: Any, quiet: bool = False, verbose: bool = False, **options: Any) -> None:
        choose_verbosity(quiet, verbose)
        try:
            with handle_signals(raise_interrupted):
                command(*arguments, **options)
                sys.stdout.flush()
        except KeyboardInterrupt as error:
            ignore_signals()
            stop = first_interruption(error)
            if is_leader():
                name = NAMES.get(stop.number, f"signal {stop.number}")
                warn(f"ended by {name}" + (f"; {stop.saved}" if stop.saved else ""))
            sys.exit(stop.exit_code)
        except BrokenPipeError:  # typer would exit with code 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)

    signature = inspect.signature(command, eval_str=True)
    parameters = [*signature.parameters.values(), *OPTIONS]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def is_leader() -> bool:
    """Whether this process speaks for all that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"


def require_streams() -> None:
    """Make the standard streams usable; without a standard output there is nothing to do.

    The next file that is opened would take the place of a closed stream, and messages would be written into it.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    if sys.stdout is None:
        os.open(os.devnull, os.O_WRONLY)
        if sys.stderr is None:
            os.open(os.devnull, os.O_WRONLY)
        raise StorageError("standard output is closed; redirect it to a file or to /dev/null")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
