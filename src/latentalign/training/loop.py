"""The training loop of both tasks: batches in, a run directory out."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from latentalign.config import Section
from latentalign.core.errors import NonFiniteScoresError
from latentalign.errors import CheckpointError, DivergedError, Interrupted
from latentalign.extras import require_package
from latentalign.training import checkpoint
from latentalign.training.distributed import World
from latentalign.training.memory import device_peak_mb, forget_peak
from latentalign.training.progress import Progress
from latentalign.training.run import Run
from latentalign.training.schedule import Schedule

ADVICE = "the last checkpoint is kept: lower training.learning_rate and --resume"


class TrainingConfig(Section):
    """How long, how fast and on which device to train."""

    learning_rate: float = Field(3e-4, gt=0)
    """Step size of Adam at the start of training."""
    epochs: int = Field(30, ge=1)
    """Passes over the training data after which training ends."""
    max_steps: int | None = Field(None, ge=1)
    """Updates after which training ends, if the epochs have not ended before."""
    max_minutes: float | None = Field(None, gt=0)
    """Minutes of updates after which training ends. The last step then depends on the machine."""
    batch_tokens: int | None = Field(None, ge=1)
    """Source and target tokens of a batch, padding included."""
    batch_sentences: int | None = Field(None, ge=1)
    """Examples of a batch."""
    normalize: Literal["tokens", "sentences"] = "tokens"
    """Divide the summed loss of a batch by its number of queries (`tokens`) or of examples (`sentences`)."""
    accumulate: int = Field(1, ge=1)
    """Number of batches whose gradients are summed for one update."""
    clip: float = Field(5.0, gt=0)
    """Largest norm of the gradient, taken over the model and the inference network together."""
    decay: float = Field(0.5, gt=0, le=1)
    """Factor by which the learning rate falls after a validation without improvement."""
    decay_start: int = Field(2, ge=1)
    """First validation after which the learning rate may fall."""
    decay_always: int | None = Field(None, ge=1)
    """First validation from which the learning rate falls every time, with or without improvement."""
    patience: int = Field(5, ge=1)
    """Validations in a row without improvement after which training ends."""
    min_gain: float = Field(0.0, ge=0, lt=1)
    """Relative decrease of perplexity that counts as an improvement for `decay` and `patience`."""
    validate_steps: int | None = Field(None, ge=1)
    """Updates between validations. If unset, validate once an epoch."""
    checkpoint_steps: int = Field(1000, ge=1)
    """Updates between checkpoints."""
    log_steps: int = Field(50, ge=1)
    """Updates between lines of `metrics.jsonl`."""
    warm_start: str | None = None
    """Run directory whose model to start from."""
    warm_start_epochs: int = Field(0, ge=0)
    """Epochs on `warm_start_objective` before training on the objective and its inference network begins."""
    warm_start_objective: str | None = None
    """Objective of the warm start. It applies if its prior is of the same family as that of the objective. Otherwise
    `relaxed` starts with the Jensen bound, and other objectives start without a warm start."""
    seed: int = 0
    """Seed of all random numbers."""
    threads: int = Field(2, ge=1)
    """Number of CPU threads."""
    device: str = "cpu"
    """Device to train on, such as `cpu` or `cuda:1`."""
    precision: Literal["float32", "float64", "bf16"] = "float32"
    """Number format of training."""
    compile: bool = False
    """Compile the steps of recurrent layers. Useful on a GPU; on a CPU, compiled steps are slower and take half a
    minute to build."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard (needs the extra `tensorboard`)."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What one batch gives: sums over its queries, to be normalised by whoever knows all batches."""

    surrogate: Tensor
    """To be maximised."""
    value: Tensor
    terms: dict[str, Tensor]
    queries: int
    examples: int

    def detached(self) -> Sums:
        """Without the graph, which would keep what a batch computed."""
        terms = {name: term.detach() for name, term in self.terms.items()}
        return Sums(self.surrogate.detach(), self.value.detach(), terms, self.queries, self.examples)


class Task(Protocol):
    """What a task lends to the loop."""

    @property
    def module(self) -> nn.Module:
        """Batch -> Sums; its parameters are what is trained."""

    def epoch(self, number: int) -> Sequence[Any]:
        """The keys of an epoch's batches, the same whenever asked."""

    def batch(self, key: Any) -> Any:
        """The batch of a key, on the device."""

    def describe(self, key: Any) -> str:
        """The lines of a batch, for an error message."""

    def validate(self) -> dict[str, float]:
        """Measurements of the model as it is; `ppl` and `bound` among them, both perplexities."""

    def model_tensors(self) -> dict[str, Tensor]:
        """What the best model is saved as."""


@dataclass
class Position:
    """Where a training stands; with the tensors of a checkpoint, all that is needed to go on."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    """Of updates alone: what a validation takes says nothing of the objective."""
    validated: int = -1
    """The last step after which there was a validation that the schedule knows of."""


class Trainer:
    """One training from where it stands to its end."""

    def __init__(
        self,
        task: Task,
        run: Run,
        config: TrainingConfig,
        *,
        metadata: dict[str, str],
        world: World | None = None,
    ) -> None:
        self.task, self.run, self.config, self.metadata = task, run, config, metadata
        self.world = world or World()
        self.device = torch.device(config.device)
        self.replica = self.world.replica(task.module)
        self.position = Position()
        self.schedule = Schedule(
            config.learning_rate,
            config.decay,
            config.decay_start,
            config.patience,
            config.min_gain,
            config.decay_always,
        )
        self.optimizer = torch.optim.Adam(
            task.module.parameters(), lr=config.learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True
        )
        self.stop_asked = self.time_up = False
        wanted = config.tensorboard and self.world.leader
        self.board = tensorboard_writer(run.folder / "tensorboard") if wanted else None

    # -- state ------------------------------------------------------------------------------------

    def save(self) -> None:
        """Everything that is needed to go on as if nothing had happened; weights that are no numbers never."""
        self.require_finite()
        randoms = self.random_states()
        if not self.world.leader:
            return self.world.wait()
        slots = self.optimizer.state_dict()["state"]
        optimizer = {f"{i}.{name}": x for i, state in slots.items() for name, x in state.items()}
        checkpoint.save(
            self.run.checkpoint,
            tensors={
                "module": dict(self.task.module.state_dict()),
                "optimizer": optimizer,
                **randoms,
            },
            documents={
                "position": dataclasses.asdict(self.position),
                "schedule": dataclasses.asdict(self.schedule),
                "metadata": self.metadata,
            },
        )
        return self.world.wait()

    def require_finite(self) -> None:
        """Raise before weights that are not finite take the place of good ones."""
        for name, tensor in self.task.module.state_dict().items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise DivergedError(f"{name} is not finite after step {self.position.step}; {ADVICE}")

    def random_states(self) -> dict[str, dict[str, Tensor]]:
        """The random state of every process, by the name of its file."""
        own = checkpoint.random_state()
        found = {name: self.world.collected(state, self.device) for name, state in own.items()}
        return {random_name(rank): {n: found[n][rank] for n in own} for rank in range(self.world.size)}

    def load(self) -> None:
        """Go back to the last checkpoint."""
        loaded = checkpoint.load(self.run.checkpoint)
        if loaded.documents["metadata"] != self.metadata:
            raise CheckpointError(
                f"{self.run.checkpoint}: belongs to another training: {loaded.documents['metadata']}, this one is "
                f"{self.metadata}; begin anew with --overwrite"
            )
        try:
            self.task.module.load_state_dict(loaded.tensors["module"])
        except RuntimeError as error:
            raise CheckpointError(f"{self.run.checkpoint}: does not fit the recipe: {error}") from None
        groups = self.optimizer.state_dict()
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in loaded.tensors["optimizer"].items():
            index, name = key.split(".", 1)
            state.setdefault(int(index), {})[name] = tensor
        self.optimizer.load_state_dict({"state": state, "param_groups": groups["param_groups"]})
        position = loaded.documents["position"]
        self.position = Position(**position)
        self.time_up = self.time_used
        self.schedule.resume(loaded.documents["schedule"])
        processes = sum(name.startswith("random") for name in loaded.tensors)
        if processes != self.world.size:
            raise CheckpointError(
                f"{self.run.checkpoint}: was written by {processes} processes, this training has {self.world.size}: "
                f"go on with as many, torchrun --nproc-per-node {processes}"
            )
        checkpoint.restore_random_state(loaded.tensors[random_name(self.world.rank)])
        if "validated" not in position:  # an older checkpoint: only its metrics say so
            steps = [r["step"] for r in self.run.history() if r["kind"] == "validation"]
            self.position.validated = self.position.step if self.position.step in steps else -1
        self.world.wait()
        if self.world.leader:  # a validation that the schedule does not know of will be made again
            self.run.rewind(self.position.step, validated=self.position.validated == self.position.step)
        self.world.wait()

    # -- training ---------------------------------------------------------------------------------

    def train(self) -> Schedule:
        """Until the epochs, the steps or the patience end; SIGTERM saves and raises Interrupted."""
        before = signal.signal(signal.SIGTERM, self.ask_to_stop)
        forget_peak(self.device)
        try:
            with Progress(self.run.folder.name, shown=self.world.leader) as progress:
                while not self.ended:
                    self.one_epoch(progress)
                    if self.config.validate_steps is None and not self.cut_short:
                        self.validate(progress)
                        self.save()
            if self.position.validated != self.position.step:
                # Cut short between validations: the checkpoint is that of a run that goes on undisturbed,
                # the measurement is for the reader of this one.
                self.save()
                self.validate(None)
        finally:
            # After SIGTERM the handler stays: a second one must not end the process before it has said why.
            if not self.stop_asked:
                signal.signal(signal.SIGTERM, before)
        return self.schedule

    def ask_to_stop(self, number: int, frame: Any) -> None:
        self.stop_asked = True

    @property
    def cut_short(self) -> bool:
        """The maximum of steps ended an epoch before its end."""
        return self.position.batch > 0

    @property
    def ended(self) -> bool:
        limit = self.config.max_steps
        return (
            self.position.epoch >= self.config.epochs
            or (limit is not None and self.position.step >= limit)
            or self.time_up
            or self.schedule.ended
        )

    @property
    def time_used(self) -> bool:
        """This process's clock says that `max_minutes` are over."""
        limit = self.config.max_minutes
        return limit is not None and self.position.seconds >= 60 * limit

    def one_epoch(self, progress: Progress) -> None:
        """The rest of the epoch that the position is in."""
        keys = self.task.epoch(self.position.epoch)
        progress.epoch(self.position.epoch + 1, self.config.epochs, len(keys), self.position.batch)
        width = self.config.accumulate
        recent: list[tuple[Sums, float]] = []
        while self.position.batch < len(keys) and not self.ended:
            group = keys[self.position.batch : self.position.batch + width]
            start = time.perf_counter()
            sums = self.update(group)
            elapsed = time.perf_counter() - start
            self.position.step += 1
            self.position.batch += len(group)
            self.position.tokens += sums.queries
            self.position.seconds += elapsed
            recent.append((sums, elapsed))
            progress.advance(len(group), sums.queries, elapsed, float(sums.value) / max(1, sums.queries))
            if self.position.step % self.config.log_steps == 0:
                self.log(recent)
                recent = []
            self.between_steps(progress)
        if self.position.batch >= len(keys):
            self.position.epoch, self.position.batch = self.position.epoch + 1, 0

    def between_steps(self, progress: Progress) -> None:
        """What is due after an update: a validation, a checkpoint, the end."""
        steps = self.config.validate_steps
        if steps is not None and self.position.step % steps == 0:
            self.validate(progress)
            self.save()
        elif self.position.step % self.config.checkpoint_steps == 0:
            self.save()
        if self.stop_asked:
            self.save()
            raise Interrupted

    def update(self, group: Sequence[Any]) -> Sums:
        """One step of Adam on the summed loss of a group of batches."""
        module = self.replica.train()
        self.optimizer.zero_grad(set_to_none=True)
        parts: list[Sums] = []
        for key in group:
            last = len(parts) == len(group) - 1
            with nullcontext() if last else self.world.alone(module), self.world.watched():
                with self.autocast():
                    sums = self.guarded(lambda key=key: module(self.task.batch(key)), group)
                (-sums.surrogate).backward()
            parts.append(sums.detached())
        total = self.everywhere(add_up(parts))
        count = total.queries if self.config.normalize == "tokens" else total.examples
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        mean = self.world.size / max(1, count)  # a replica's gradients are means already
        norm = mean * float(torch.nn.utils.get_total_norm(grads))
        if not (math.isfinite(float(total.surrogate)) and math.isfinite(norm)):
            raise self.diverged(group, f"loss {-float(total.surrogate)}, gradient norm {norm}")
        torch._foreach_mul_(grads, mean * min(1.0, self.config.clip / (norm + 1e-6)))
        for settings in self.optimizer.param_groups:
            settings["lr"] = self.schedule.learning_rate
        self.optimizer.step()
        return total

    def everywhere(self, sums: Sums) -> Sums:
        """Sums of all processes; a stop asked of one is asked of all, and so is the end of the time."""
        if self.world.size == 1:
            self.time_up = self.time_used
            return sums
        names = sorted(sums.terms)
        here = [sums.surrogate, sums.value, *(sums.terms[n] for n in names)]
        figures = [*map(float, here), sums.queries, sums.examples, self.stop_asked, self.time_used]
        surrogate, value, *terms, queries, examples, stop, late = self.world.total(figures, self.device)
        self.stop_asked, self.time_up = stop > 0, late > 0
        wide = partial(torch.tensor, dtype=torch.float64)
        shared = {n: wide(x) for n, x in zip(names, terms, strict=True)}
        return Sums(wide(surrogate), wide(value), shared, int(queries), int(examples))

    def guarded(self, forward: Callable[[], Sums], group: Sequence[Any]) -> Sums:
        """The forward pass; scores that are not finite count as divergence."""
        try:
            return forward()
        except NonFiniteScoresError as error:
            raise self.diverged(group, str(error)) from None

    def diverged(self, group: Sequence[Any], what: str) -> DivergedError:
        lines = "; ".join(self.task.describe(key) for key in group)
        return DivergedError(
            f"training diverged at step {self.position.step + 1}: {what}; batch of {lines}; the weights were not "
            f"touched; {ADVICE}"
        )

    def autocast(self) -> Any:
        if self.config.precision != "bf16":
            return nullcontext()
        return torch.autocast(torch.device(self.config.device).type, dtype=torch.bfloat16)

    def validate(self, progress: Progress | None) -> None:
        """Measure, move the schedule, keep the best model."""
        self.position.peak_memory_mb = max(self.position.peak_memory_mb, device_peak_mb(self.device))
        self.task.module.eval()
        random = checkpoint.random_state()
        torch.manual_seed(self.config.seed)  # a sampled bound is measured with the same draws every time
        measured = self.measured()
        # All have measured the same; where rounding differs, the leader's figures count.
        measured = dict(zip(measured, self.world.of_leader([*measured.values()], self.device), strict=True))
        checkpoint.restore_random_state(random)
        forget_peak(self.device)
        self.position.validated = self.position.step
        if any(math.isnan(x) for x in measured.values()) or math.isinf(measured["ppl"]):
            raise DivergedError(
                f"validation after step {self.position.step} is not finite: {measured}; {ADVICE}"
            )
        better = self.schedule.validated(measured["bound"], measured["ppl"])
        record = {"kind": "validation", **self.where(), **measured, "best": better}
        self.record({**record, "next_learning_rate": self.schedule.learning_rate})
        if better and self.world.leader:
            self.run.save_model(self.task.model_tensors(), self.metadata)
        if progress:
            progress.validated(self.position.epoch, measured, better, self.schedule.learning_rate)

    @torch.no_grad()
    def measured(self) -> dict[str, float]:
        """A validation; scores that are not finite count as divergence."""
        try:
            return self.task.validate()
        except NonFiniteScoresError as error:
            raise DivergedError(f"validation after step {self.position.step}: {error}; {ADVICE}") from None

    def where(self) -> dict[str, Any]:
        return {
            "step": self.position.step,
            "epoch": self.position.epoch,
            "seconds": round(self.position.seconds, 3),
            "tokens": self.position.tokens,
            "learning_rate": self.schedule.learning_rate,
        }

    def log(self, recent: Sequence[tuple[Sums, float]]) -> None:
        """Means over the latest steps, one line."""
        total = add_up([sums for sums, _ in recent])
        count = max(1, total.queries)
        record = {
            "kind": "training",
            **self.where(),
            "bound": perplexity(float(total.value), count),
            "tokens_per_second": round(count / max(1e-9, sum(t for _, t in recent)), 1),
            **{name: float(x) / count for name, x in total.terms.items()},
        }
        self.record(record)

    def record(self, record: dict[str, Any]) -> None:
        """A line of metrics.jsonl and, where asked for, points of TensorBoard's curves."""
        if not self.world.leader:
            return
        self.run.log(record)
        if self.board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{record['kind']}/{name}", value, self.position.step)
            self.board.flush()


def random_name(rank: int) -> str:
    """The file of a process's random state in a checkpoint."""
    return "random" if rank == 0 else f"random-{rank}"


def tensorboard_writer(folder: Path) -> Any:
    """A writer of TensorBoard event files."""
    require_package("tensorboard", "training.tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def perplexity(log_prob: float, count: int) -> float:
    """exp(-log p per token); infinity where that overflows."""
    try:
        return math.exp(-log_prob / count)
    except OverflowError:
        return math.inf


def add_up(parts: Sequence[Sums]) -> Sums:
    """Sums of several batches, without gradient."""
    names = parts[0].terms
    return Sums(
        sum((p.surrogate.detach() for p in parts), torch.zeros(())),
        sum((p.value.detach() for p in parts), torch.zeros(())),
        {n: sum((p.terms[n].detach() for p in parts), torch.zeros(())) for n in names},
        sum(p.queries for p in parts),
        sum(p.examples for p in parts),
    )
