"""Loggers: TensorBoard, or your own for W&B, MLflow or a dashboard.

Name yours in a recipe as `training.logger = "my_package.my_module:make_logger"`, or pass it to `Task.train` as
`logger`. It is called with the recipe and the run directory before the first step, and returns an object with two
methods: `log(record)` for every line of `metrics.jsonl`, and `end(summary)` with the figures that `train` prints, or
None if the run did not come to its end. Only the leading process of a training run calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from latentalign.errors import InputError
from latentalign.extras import require_package
from latentalign.progress import warn

Record = Mapping[str, Any]


class RunLogger(Protocol):
    """What receives the metrics of one training run."""

    def log(self, record: Record) -> None:
        """Take a line of `metrics.jsonl`: its `kind` is `training` or `validation`, its `step` counts updates."""

    def end(self, summary: Record | None) -> None:
        """Take the final figures; None if the run was interrupted or failed."""


LoggerFactory = Callable[[dict[str, Any], Path], RunLogger]
"""Makes a logger from a recipe, as nested tables, and the run directory."""


def find_logger(name: str) -> LoggerFactory:
    """The factory that `training.logger` names as `package.module:function`."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f'training.logger = "{name}": expected "package.module:function"')
    try:
        factory = getattr(import_module(module), attribute)
    except ImportError as error:
        raise InputError(
            f"training.logger: {module} cannot be imported ({error}); install it or add its folder to PYTHONPATH"
        ) from None
    except AttributeError:
        raise InputError(f"training.logger: {module} has no {attribute}") from None
    if not callable(factory):
        raise InputError(f"training.logger: {name} cannot be called; name a function or a class")
    return factory  # type: ignore[no-any-return]


def make_logger(factory: LoggerFactory, recipe: dict[str, Any], folder: Path) -> RunLogger:
    """The logger of a training run; before the first step, every failure is an InputError."""
    try:
        return factory(recipe, folder)
    except Exception as error:
        raise InputError(f"the logger cannot be started: {describe(error)}") from error


class TensorBoard:
    """Curves in event files for TensorBoard."""

    def __init__(self, recipe: Record, folder: Path) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def log(self, record: Record) -> None:
        for name, value in record.items():
            if isinstance(value, float):
                self.writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])
        self.writer.flush()

    def end(self, summary: Record | None) -> None:
        self.writer.close()


def require_tensorboard() -> None:
    """Raise unless the package of `training.tensorboard` is installed."""
    require_package("tensorboard", "training.tensorboard")


class Guarded:
    """A logger whose failures are reported once and never end a training run."""

    def __init__(self, logger: RunLogger) -> None:
        self.logger, self.failures = logger, 0

    def log(self, record: Record) -> None:
        self._call(self.logger.log, dict(record))

    def end(self, summary: Record | None) -> None:
        self._call(self.logger.end, None if summary is None else dict(summary))
        if self.failures > 1:
            warn(f"the logger {name_of(self.logger)} failed {self.failures} times; metrics.jsonl is complete")

    def _call(self, method: Callable[[Any], None], argument: Any) -> None:
        try:
            method(argument)
        except Exception as error:
            if not self.failures:
                warn(f"the logger {name_of(self.logger)} failed and training continues: {describe(error)}")
            self.failures += 1


def name_of(logger: RunLogger) -> str:
    """The class of a logger."""
    return type(logger).__name__


def describe(error: Exception) -> str:
    """The kind of an error and its message."""
    return f"{type(error).__name__}: {error}"
