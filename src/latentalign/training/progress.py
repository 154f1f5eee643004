"""Progress on stderr: a bar for the epoch and a line for each validation."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """A bar that shows the epoch, queries per second, the bound and the time left."""

    def __init__(self, name: str, *, shown: bool = True) -> None:
        self.console = Console(stderr=True, quiet=not shown)
        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[bound]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not (shown and self.console.is_terminal),
        )
        self.name = name
        self.task = self.bar.add_task(name, total=1, speed="", bound="")
        self.speed = self.bound = 0.0

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def epoch(self, number: int, epochs: int, batches: int, done: int) -> None:
        """Start an epoch, possibly in its middle."""
        description = f"{self.name} epoch {number}/{epochs}"
        self.bar.reset(self.task, total=batches, completed=done, description=description)

    def advance(self, batches: int, queries: int, seconds: float, value: float) -> None:
        """Count batches that are done, with their queries, time and mean bound."""
        rate = queries / max(1e-9, seconds)
        self.speed = rate if not self.speed else 0.95 * self.speed + 0.05 * rate
        self.bound = -value if not self.bound else 0.95 * self.bound - 0.05 * value
        speed, bound = f"{self.speed:,.0f} queries/s", f"loss {self.bound:.3f}"
        self.bar.update(self.task, advance=batches, speed=speed, bound=bound)

    def show_validation(self, epoch: int, figures: Mapping[str, float], better: bool, *, rate: float) -> None:
        """Print one line that stays."""
        text = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
        mark = "  *" if better else ""
        self.console.print(f"{self.name}  epoch {epoch}  {text}  rate {rate:.2g}{mark}", highlight=False)
