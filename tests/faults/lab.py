"""Where faults are injected: tiny trainings in forked processes, and digests of what they leave behind.

A child is forked from a process that has everything imported and has never computed anything, so it starts in
milliseconds and no thread pool is lost in the fork. It runs the `latentalign` command itself: the same exit codes,
the same messages.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch, whose threads would not survive a fork
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch._dynamo  # what the first optimizer would load, in every child again

from latentalign import config as recipes
from latentalign.cli.main import main
from latentalign.data import demo
from latentalign.errors import CheckpointError
from latentalign.tasks.nmt.data import Batches, build_cache, collate
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.training import checkpoint
from latentalign.training.loop import Trainer
from latentalign.training.run import Run

PAIRS, BATCH = 96, 4
"""24 batches an epoch: 40 steps see the end of one."""
RECIPE = f"""
tokenizer = {{kind = "words", joint = false}}
inference = {{layers = 1, size = 6}}
search = {{beam = 2}}
[model]
embedding = 8
encoder_layers = 1
encoder_size = 6
decoder_layers = 1
decoder_size = 8
attention_size = 6
head_size = 8
dropout = 0.2
[training]
learning_rate = 5e-3
epochs = 1000
patience = 1000
batch_sentences = {BATCH}
log_steps = 1
threads = 1
"""
T = TypeVar("T")
TIMES = ("seconds", "tokens_per_second", "peak_memory_mb")
PATIENCE = 120.0
"""Seconds after which a child that should have ended is given up."""


class OutOfTimeError(Exception):
    """The time for all faults together is used up."""


@dataclass
class Tally:
    """How often a promise was put to the test, and how often it was kept."""

    fault: str
    kept_words: str
    tried: int = 0
    broken: list[str] = field(default_factory=list)
    skipped: str = ""
    note: str = ""
    """Further figures for people to read."""

    @property
    def kept(self) -> int:
        return self.tried - len(self.broken)

    @property
    def holds(self) -> bool:
        return bool(self.skipped) or (self.tried > 0 and not self.broken)

    def check(self, complaints: Iterable[str]) -> None:
        """One injection; it is broken when there is anything to complain about."""
        self.tried += 1
        found = "; ".join(complaints)
        if found:
            self.broken.append(found)

    def line(self) -> str:
        if self.skipped:
            return f"{self.fault}: skipped ({self.skipped})"
        return f"{self.fault}: {self.kept}/{self.tried} {self.kept_words}" + (
            f"; {self.note}" if self.note else ""
        )


@dataclass(frozen=True)
class Ended:
    """What a child left: its exit code as a shell shows it, its messages, its time."""

    code: int
    errors: str
    seconds: float

    def complaints(self, code: int, *words: str) -> Iterable[str]:
        """In what the end differs from a clean one with this code and these words in the message."""
        if self.code != code:
            yield f"exit {self.code} instead of {code}: {self.errors[-300:]!r}"
        if "Traceback" in self.errors:
            yield "a traceback"
        for word in words:
            if word not in self.errors:
                yield f"{word!r} is not in the message {self.errors[-300:]!r}"


@dataclass(frozen=True)
class Child:
    """A process of ours that runs."""

    pid: int
    errors: Path
    began: float

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def ended(self) -> bool:
        """Whether it is over; it remains to be waited for."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self, limit: float = PATIENCE) -> Ended:
        """Its end; a child that does not end is killed and counts as ended by that."""
        stop = time.monotonic() + limit
        while not self.ended():
            if time.monotonic() > stop:
                self.kill()
            time.sleep(0.002)
        seconds = time.monotonic() - self.began
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        errors = self.errors.read_text("utf-8", "replace")
        self.errors.unlink()
        return Ended(code if code >= 0 else 128 - code, errors, seconds)


def command(*arguments: object) -> Callable[[], None]:
    """The command line, to be run in a child."""

    def run() -> None:
        sys.argv = ["latentalign", *map(str, arguments)]
        main()

    return run


class Lab:
    """A folder with a tiny corpus in which runs are made, damaged and thrown away."""

    def __init__(self, folder: Path, *, seconds: float = 1200.0) -> None:
        torch.set_num_threads(1)
        self.folder, self.deadline, self.count = folder, time.monotonic() + seconds, 0
        self.recipe = folder / "recipe.toml"
        demo.write(folder / "data", train=PAIRS, valid=8, test=8)
        tables = [
            f'[data.{split}]\nsource = "data/{split}.de"\ntarget = "data/{split}.en"\n'
            for split in ("train", "valid", "test")
        ]
        self.recipe.write_text(RECIPE + "".join(tables))
        self.made: dict[tuple[str, ...], Path] = {}
        self.seconds: dict[Path, float] = {}
        self.current = Tally("", "")

    def tally(self, fault: str, kept_words: str) -> Tally:
        """Begin to count a promise."""
        self.current = Tally(fault, kept_words)
        return self.current

    def path(self, name: str) -> Path:
        """A new name in the folder."""
        self.count += 1
        return self.folder / f"{name}-{self.count}"

    def start(self, action: Callable[[], None], *, stdin: bytes = b"") -> Child:
        """Fork a child that runs an action and ends with its exit code."""
        if time.monotonic() > self.deadline:
            raise OutOfTimeError
        errors, began = self.path("errors"), time.monotonic()
        errors.touch()  # a child may be killed before it has made anything
        pid = os.fork()
        if pid == 0:
            behave(action, errors, stdin)
        return Child(pid, errors, began)

    def run(self, action: Callable[[], None], *, stdin: bytes = b"") -> Ended:
        """A child from its beginning to its end."""
        return self.start(action, stdin=stdin).wait()

    def ask(self, question: Callable[[], Any]) -> Any:
        """What a function answers in a child, by way of JSON; this process itself computes nothing."""
        answer = self.path("answer")
        ended = self.run(lambda: void(answer.write_text(json.dumps(question()))))
        if ended.code:
            raise RuntimeError(f"a question ended with {ended.code}: {ended.errors}")
        result = json.loads(answer.read_text())
        answer.unlink()
        return result

    def train(self, out: Path, *options: str, flags: Iterable[str] = ()) -> Callable[[], None]:
        """`latentalign train` on the tiny corpus."""
        return command("train", self.recipe, "--out", out, *flags, *(f"--set={o}" for o in options))

    def finished(self, *options: str) -> Path:
        """A run trained without any fault, made once for the same options; not to be changed."""
        if options not in self.made:
            out = self.path("finished")
            ended = self.run(self.train(out, *options))
            if ended.code:
                raise RuntimeError(f"training without faults ended with {ended.code}: {ended.errors}")
            self.made[options], self.seconds[out] = out, ended.seconds
        return self.made[options]

    def copy(self, run: Path, *, into: Path | None = None) -> Path:
        """A copy of a run that may be changed."""
        out = into or self.path("copy")
        shutil.copytree(run, out)
        return out


def behave(action: Callable[[], None], errors: Path, stdin: bytes) -> None:
    """The life of a child: own standard streams, the action, its exit code, never a way back."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        given = errors.with_name(f"{errors.name}.in")
        given.write_bytes(stdin)
        for target, path, mode in (
            (0, given, os.O_RDONLY),
            (1, Path(os.devnull), os.O_WRONLY),
            (2, errors, os.O_WRONLY | os.O_CREAT),
        ):
            os.dup2(os.open(path, mode, 0o600), target)
        given.unlink()
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(i, m, buffering=1, closefd=False) for i, m in enumerate("rww")
        )
        action()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def before_step(
    step: int, strike: Callable[[Trainer], None], action: Callable[[], None]
) -> Callable[[], None]:
    """An action in which `strike` is run just before the update that would complete a step."""

    def run() -> None:
        update = Trainer.update

        def struck(self: Trainer, group: Any) -> Any:
            if self.position.step + 1 == step:
                strike(self)
            return update(self, group)

        Trainer.update = struck  # only in this child
        action()

    return run


def die(trainer: Trainer | None = None) -> None:
    """kill -9 of this very process."""
    os.kill(os.getpid(), signal.SIGKILL)


def void(value: object) -> None:
    """Forget a result."""


def fraction(scale: float, full: int) -> int:
    """A share of a count, one at least."""
    return min(full, max(1, round(scale * full)))


def spread(items: Sequence[T], count: int) -> list[T]:
    """Some of many, evenly spread, the last among them."""
    return [items[len(items) - 1 - i * len(items) // count] for i in range(count)][::-1]


# What a run holds


def sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def tensors_sha256(tensors: dict[str, torch.Tensor]) -> str:
    """Names, types, shapes and bytes."""
    parts = [(name, str(t.dtype), str(tuple(t.shape)), t) for name, t in sorted(tensors.items())]
    return sha256(*(part for *words, t in parts for part in (*map(str.encode, words), t.numpy().tobytes())))


def state(folder: Path) -> dict[str, str]:
    """Digests of all that a training is: what it has learned, where it stands, what it will see next."""
    run = Run(folder)
    loaded = checkpoint.load(run.checkpoint)
    found = {name: tensors_sha256(tensors) for name, tensors in loaded.tensors.items()}
    position = loaded.documents["position"]
    records = [{k: v for k, v in r.items() if k not in TIMES} for r in run.history()]
    documents = {
        "position": {k: v for k, v in position.items() if k not in TIMES},
        "schedule": loaded.documents["schedule"],
        "metrics": records,
    }
    found |= {name: sha256(json.dumps(document).encode()) for name, document in documents.items()}
    model, metadata = run.load_model()
    found["model"] = sha256(tensors_sha256(model).encode(), json.dumps(metadata, sort_keys=True).encode())
    processes = sum(name.startswith("random") for name in loaded.tensors)
    found["batches"] = sha256(*next_batches(run, position["epoch"], position["batch"], processes))
    return found


def next_batches(run: Run, epoch: int, first: int, processes: int, *, count: int = 5) -> list[bytes]:
    """The batches that every process will train on next."""
    config = recipes.load(run.config, NMTConfig)
    tokenizer, data = Tokenizer.load(run.tokenizer), config.data
    corpus = build_cache(tokenizer, data.train, run.cache / "train", max_length=data.max_length)
    parts: list[bytes] = []
    for rank in range(processes):
        batches = Batches(
            corpus,
            seed=config.training.seed,
            batch_sentences=config.training.batch_sentences,
            rank=rank,
            world=processes,
        )
        keys = [*batches.epoch_batches(epoch)[first:], *batches.epoch_batches(epoch + 1)][:count]
        for batch in (collate(corpus, key) for key in keys):
            values = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
            parts += [value.numpy().tobytes() for value in values if isinstance(value, torch.Tensor)]
    return parts


def differences(found: dict[str, str], wanted: dict[str, str]) -> Iterable[str]:
    """The parts of a training that are not as they should be."""
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            yield f"{name} differs"


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder."""
    return {str(path.relative_to(folder)): sha256(path.read_bytes()) for path in files_of(folder)}


def step_of(folder: Path) -> int:
    """How far the checkpoint of a run has got; -1 where there is none."""
    try:
        return int(checkpoint.load(Run(folder).checkpoint).documents["position"]["step"])
    except CheckpointError:
        return -1
