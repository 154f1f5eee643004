"""The training loop of every task: batches in, a run directory out."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch

from latentalign.errors import DivergedError, Interrupted
from latentalign.training import checkpoint
from latentalign.training.adam import FusedAdam
from latentalign.training.data import TrainingData, Validation
from latentalign.training.distributed import World
from latentalign.training.loss import Batch, LossModule, Sums
from latentalign.training.memory import device_peak_mb, forget_peak
from latentalign.training.metrics_log import MetricsLog
from latentalign.training.position import Position
from latentalign.training.progress import Progress
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
    ) -> None:
        self.data, self.module, self.run = data, module, run
        self.config, self.metadata = config, metadata
        self.world = world or World()
        self.device = torch.device(config.device)
        self.position = Position()
        self.schedule = Schedule.from_config(config)
        self.updater = Updater(module, config, self.world)
        self.metrics = MetricsLog(run, enabled=self.world.leader, tensorboard=config.tensorboard)
        self.stop_requested = self.time_is_up = False

    @property
    def optimizer(self) -> FusedAdam:
        """The optimizer of all parameters."""
        return self.updater.optimizer

    def save(self) -> None:
        """Write a checkpoint."""
        save_trainer(self)

    def load(self) -> None:
        """Return to the last checkpoint."""
        restore_trainer(self)
        self.time_is_up = self.own_time_is_up

    def train(self) -> Schedule:
        """Train until the epochs, the steps or the patience end. SIGTERM saves and raises Interrupted."""
        forget_peak(self.device)
        with self.stop_on_sigterm(), Progress(self.run.folder.name, shown=self.world.leader) as progress:
            while not self.ended:
                self.train_epoch(progress)
                if self.config.validate_steps is None and not self.cut_short:
                    self.validate(progress)
                    self.save()
            if self.position.validated != self.position.step:
                # Cut short between validations: save first, so that the checkpoint equals that of a run that
                # continues undisturbed. The validation is for the reader of this run.
                self.save()
                self.validate(None)
        return self.schedule

    @contextmanager
    def stop_on_sigterm(self) -> Iterator[None]:
        """Turn SIGTERM into a request to stop after the current step."""

        def request_stop(number: int, frame: FrameType | None) -> None:
            self.stop_requested = True

        before = signal.signal(signal.SIGTERM, request_stop)
        try:
            yield
        finally:
            # After SIGTERM the handler stays: a second one must not end the process before it has said why.
            if not self.stop_requested:
                signal.signal(signal.SIGTERM, before)

    @property
    def cut_short(self) -> bool:
        """Whether the maximum of steps or time ended an epoch before its end."""
        return self.position.batch > 0

    @property
    def ended(self) -> bool:
        """Whether no further update is due."""
        limit = self.config.max_steps
        return (
            self.position.epoch >= self.config.epochs
            or (limit is not None and self.position.step >= limit)
            or self.time_is_up
            or self.schedule.ended
        )

    @property
    def own_time_is_up(self) -> bool:
        """Whether `max_minutes` are over by the clock of this process."""
        limit = self.config.max_minutes
        return limit is not None and self.position.seconds >= 60 * limit

    def train_epoch(self, progress: Progress) -> None:
        """Train on the rest of the current epoch."""
        keys = self.data.batch_keys(self.position.epoch)
        progress.epoch(self.position.epoch + 1, self.config.epochs, len(keys), self.position.batch)
        recent: list[tuple[Sums, float]] = []
        while self.position.batch < len(keys) and not self.ended:
            group = keys[self.position.batch : self.position.batch + self.config.accumulate]
            start = time.perf_counter()
            sums = self.update(group)
            elapsed = time.perf_counter() - start
            self.position.step += 1
            self.position.batch += len(group)
            self.position.queries += sums.queries
            self.position.seconds += elapsed
            recent.append((sums, elapsed))
            progress.advance(len(group), sums.queries, elapsed, float(sums.value) / max(1, sums.queries))
            if self.position.step % self.config.log_steps == 0:
                self.metrics.training(self.position, recent, self.schedule.learning_rate)
                recent = []
            self.act_between_steps(progress)
        if self.position.batch >= len(keys):
            self.position.epoch, self.position.batch = self.position.epoch + 1, 0

    def act_between_steps(self, progress: Progress) -> None:
        """Validate, save or stop if that is due after an update."""
        steps = self.config.validate_steps
        if steps is not None and self.position.step % steps == 0:
            self.validate(progress)
            self.save()
        elif self.position.step % self.config.checkpoint_steps == 0:
            self.save()
        if self.stop_requested:
            self.save()
            raise Interrupted

    def update(self, group: Sequence[Any]) -> Sums:
        """Update the weights once with the gradient of a group of batches; the sums over all processes."""
        loaders: list[Callable[[], Batch]] = [partial(self.data.load_batch, key) for key in group]
        try:
            total = self.add_processes(self.updater.accumulate(loaders))
            self.updater.step(total, self.schedule.learning_rate)
        except NotFinite as error:
            lines = "; ".join(self.data.describe_batch(key) for key in group)
            raise DivergedError(
                f"training diverged at step {self.position.step + 1}: {error}; batch of {lines}; the weights were not "
                f"changed; {ADVICE}"
            ) from None
        return total

    def add_processes(self, sums: Sums) -> Sums:
        """Sums over all processes. A request to stop, or the end of the time, of one process holds for all."""
        if self.world.size == 1:
            self.time_is_up = self.own_time_is_up
            return sums
        names = sorted(sums.terms)
        here = [sums.surrogate, sums.value, *(sums.terms[n] for n in names)]
        figures = [*map(float, here), sums.queries, sums.examples, self.stop_requested, self.own_time_is_up]
        surrogate, value, *terms, queries, examples, stop, late = self.world.add(figures, self.device)
        self.stop_requested, self.time_is_up = stop > 0, late > 0
        wide = partial(torch.tensor, dtype=torch.float64)
        shared = {n: wide(x) for n, x in zip(names, terms, strict=True)}
        return Sums(wide(surrogate), wide(value), shared, int(queries), int(examples))

    def validate(self, progress: Progress | None) -> None:
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
        self.metrics.validation(self.position, found, self.schedule.learning_rate, best=better)
        if better and self.world.leader:
            self.run.save_model(dict(self.module.model.state_dict()), self.metadata)
        if progress:
            progress.show_validation(
                self.position.epoch, found.figures, better, rate=self.schedule.learning_rate
            )

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
