"""The training loop of every task: batches in, a run directory out."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from latentalign.core.devices import read_numbers
from latentalign.errors import DivergedError, Interrupted
from latentalign.interrupts import NAMES, handle_signals
from latentalign.progress import detail
from latentalign.training import checkpoint
from latentalign.training.adam import FusedAdam
from latentalign.training.data import TrainingData, Validation
from latentalign.training.distributed import World
from latentalign.training.loggers import RunLogger
from latentalign.training.loss import Batch, Figures, LossModule, Sums
from latentalign.training.memory import device_peak_mb, forget_peak
from latentalign.training.metrics_log import MetricsLog
from latentalign.training.phases import Phase
from latentalign.training.position import Position
from latentalign.training.progress import TrainingProgress
from latentalign.training.recipe import TrainingConfig
from latentalign.training.run import Run
from latentalign.training.schedule import Schedule
from latentalign.training.trainer_state import ADVICE, restore_trainer, save_trainer
from latentalign.training.updates import NotFinite, Updater, compute_finite


class Trainer:
    """One training run, from its current position to its end."""

    def __init__(
        self,
        data: TrainingData[Any, Any],
        module: LossModule,
        run: Run,
        *,
        config: TrainingConfig,
        metadata: dict[str, str],
        world: World | None = None,
        phase: Phase | None = None,
        loggers: Sequence[RunLogger] = (),
    ) -> None:
        self.data, self.module, self.run = data, module, run
        self.config, self.metadata = config, metadata
        self.phase = phase or Phase()
        self.world = world or World()
        self.device = torch.device(config.device)
        self.position = Position()
        self.schedule = Schedule.from_config(config)
        self.updater = Updater(module, config, self.world)
        self.metrics = MetricsLog(run, self.phase, enabled=self.world.leader, loggers=loggers)
        self.signal_received = self.stop_signal = 0
        """The signal that asked this process to stop, and the one on which all processes have agreed."""
        self.time_is_up = False
        self.epoch_batches = (-1, 0)
        """The current epoch and its number of batches."""

    @property
    def optimizer(self) -> FusedAdam:
        """The optimizer of all parameters."""
        return self.updater.optimizer

    def save(self) -> None:
        """Write a checkpoint."""
        save_trainer(self)
        if self.world.leader:
            detail(f"checkpoint of step {self.position.step} saved in {self.run.checkpoint}")

    def load(self) -> None:
        """Return to the last checkpoint."""
        restore_trainer(self)
        self.time_is_up = self.own_time_is_up

    def train(self) -> Schedule:
        """Train until the epochs, the steps or the patience end. Ctrl-C and SIGTERM save and raise Interrupted."""
        forget_peak(self.device)
        with handle_signals(self.request_stop), self.make_progress() as progress:
            while not self.ended:
                self.train_epoch(progress)
                if self.config.validate_steps is None and not self.cut_short:
                    self.validate(progress)
                    self.save()
            if self.position.validated != self.position.step:
                # Cut short between validations: save first, so that the checkpoint equals that of a run that
                # continues undisturbed. The validation is for the reader of this run.
                self.save()
                self.validate(progress)
        return self.schedule

    def make_progress(self) -> TrainingProgress:
        """The progress of this phase, shown by the leading process."""
        folder = self.run.folder
        name = folder.name if self.phase.later is None else f"{folder.parent.name}, {self.phase.name}"
        return TrainingProgress(
            name, self.config, self.position, later=self.phase.later, shown=self.world.leader
        )

    def request_stop(self, number: int) -> None:
        """Ask for a stop after the current step; further signals change nothing."""
        if not self.signal_received and self.world.leader and sys.stderr is not None:
            # Not `print`: the signal may have interrupted one.
            os.write(2, f"\nlatentalign: {NAMES[number]}: saving after the current step\n".encode())
        self.signal_received = self.signal_received or number

    @property
    def cut_short(self) -> bool:
        """Whether the maximum of steps or time ended an epoch before its end."""
        return self.position.batch > 0

    @property
    def ended(self) -> bool:
        """Whether no further update is due."""
        return self.ended_by is not None

    @property
    def ended_by(self) -> str | None:
        """The key of the recipe that has ended training; None if it goes on."""
        limit = self.config.max_steps
        reasons = {
            "epochs": self.position.epoch >= self.config.epochs,
            "max_steps": limit is not None and self.position.step >= limit,
            "max_minutes": self.time_is_up,
            "patience": self.schedule.ended,
        }
        return next((name for name, holds in reasons.items() if holds), None)

    @property
    def epochs(self) -> float:
        """Epochs that are done, the current one as a fraction."""
        if not self.position.batch:
            return float(self.position.epoch)
        return self.position.epoch + self.position.batch / max(1, self.count_batches())

    def count_batches(self) -> int:
        """Batches of the current epoch."""
        if self.epoch_batches[0] != self.position.epoch:
            self.epoch_batches = (
                self.position.epoch,
                len(self.data.batch_keys(self.position.epoch)),
            )
        return self.epoch_batches[1]

    @property
    def own_time_is_up(self) -> bool:
        """Whether `max_minutes` are over by the clock of this process."""
        limit = self.config.max_minutes
        return limit is not None and self.position.seconds >= 60 * limit

    def train_epoch(self, progress: TrainingProgress) -> None:
        """Train on the rest of the current epoch."""
        keys = self.data.batch_keys(self.position.epoch)
        self.epoch_batches = (self.position.epoch, len(keys))
        recent: list[tuple[Figures, float]] = []
        while self.position.batch < len(keys) and not self.ended:
            group = keys[self.position.batch : self.position.batch + self.config.accumulate]
            start = time.perf_counter()
            figures = self.update(group)
            elapsed = time.perf_counter() - start
            self.position.step += 1
            self.position.batch += len(group)
            self.position.queries += figures.queries
            self.position.seconds += elapsed
            recent.append((figures, elapsed))
            progress.advance(figures.queries, elapsed, figures.value / max(1, figures.queries))
            due = self.position.step % self.config.log_steps == 0
            progress.show(self.position, len(keys), log=due)
            if due:
                rate = self.schedule.rate(self.position.step)
                self.metrics.training(self.position, recent, rate, epochs=self.epochs)
                recent = []
            self.act_between_steps(progress)
        if self.position.batch >= len(keys):
            self.position.epoch, self.position.batch = self.position.epoch + 1, 0

    def act_between_steps(self, progress: TrainingProgress) -> None:
        """Validate, save or stop if that is due after an update."""
        steps = self.config.validate_steps
        if steps is not None and self.position.step % steps == 0:
            self.validate(progress)
            self.save()
        elif self.position.step % self.config.checkpoint_steps == 0:
            self.save()
        if self.stop_signal:
            self.save()
            raise Interrupted(
                self.stop_signal, f"saved after step {self.position.step} of the {self.phase.name}"
            )

    def update(self, group: Sequence[Any]) -> Figures:
        """Update the weights once with the gradient of a group of batches; the sums over all processes.

        The program reads from the device once, all figures together.
        """
        loaders: list[Callable[[], Batch]] = [partial(self.data.load_batch, key) for key in group]
        try:
            sums = self.updater.accumulate(loaders)
            total, norm = self.read(sums, self.updater.gradient_norm())
            self.updater.step(total, norm, self.schedule.rate(self.position.step + 1))
        except NotFinite as error:
            lines = "; ".join(self.data.describe_batch(key) for key in group)
            raise DivergedError(
                f"training diverged at step {self.position.step + 1}: {error}; batch of {lines}; the weights were not "
                f"changed; {ADVICE}"
            ) from None
        return total

    def read(self, sums: Sums, norm: Tensor) -> tuple[Figures, float]:
        """Sums over all processes, and the norm of the gradient, which is the same in all of them.

        A request to stop, or the end of the time, of one process holds for all.
        """
        here = [sums.surrogate, sums.value, *sums.terms.values()]
        if self.world.size == 1:
            self.time_is_up, self.stop_signal = self.own_time_is_up, self.signal_received
            surrogate, value, *terms, length = read_numbers([*here, norm])
            found = dict(zip(sums.terms, terms, strict=True))
            return Figures(surrogate, value, found, sums.queries, sums.examples), length
        asked = [self.signal_received == number for number in (signal.SIGTERM, signal.SIGINT)]
        figures: list[float | Tensor] = [*here, sums.queries, sums.examples, *asked, self.own_time_is_up]
        surrogate, value, *terms, queries, examples, term, interrupt, late, length = self.world.add(
            figures, self.device, alike=[norm]
        )
        self.stop_signal = signal.SIGTERM if term else signal.SIGINT if interrupt else 0
        self.time_is_up = late > 0
        found = dict(zip(sums.terms, terms, strict=True))
        return Figures(surrogate, value, found, int(queries), int(examples)), length

    def validate(self, progress: TrainingProgress) -> None:
        """Measure the model, move the schedule and keep the best model."""
        self.position.peak_memory_mb = max(self.position.peak_memory_mb, device_peak_mb(self.device))
        self.module.eval()
        random = checkpoint.random_state()
        torch.manual_seed(self.config.seed)  # a sampled bound is measured with the same draws every time
        found = self.measure()
        checkpoint.restore_random_state(random)
        forget_peak(self.device)
        self.position.validated = self.position.step
        if any(math.isnan(x) for x in found.figures.values()) or math.isinf(found.score):
            raise DivergedError(
                f"validation after step {self.position.step} is not finite: {found.figures}; {ADVICE}"
            )
        better = self.schedule.take(found.bound, found.score)
        rate = self.schedule.rate(self.position.step + 1)
        self.metrics.validation(self.position, found, rate, epochs=self.epochs, best=better)
        if better and self.world.leader:
            self.run.save_model(dict(self.module.model.state_dict()), self.metadata)
        progress.show_validation(self.epochs, self.position.step, found.figures, better=better, rate=rate)

    @torch.no_grad()
    def measure(self) -> Validation:
        """A validation. All processes compute the same; where rounding differs, the leader's figures count."""
        try:
            found: Validation = compute_finite(
                lambda: self.data.validate(self.module.model, self.module.objective)
            )
        except NotFinite as error:
            raise DivergedError(f"validation after step {self.position.step}: {error}; {ADVICE}") from None
        values = [found.bound, found.score, *found.figures.values()]
        bound, score, *figures = self.world.broadcast(values, self.device)
        return Validation(bound, score, dict(zip(found.figures, figures, strict=True)))
