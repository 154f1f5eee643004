"""Trainings that must not begin, and trainings that must not go on."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch

from faults.lab import Ended, Lab, Tally, before_step, contents, die, fraction, spread, step_of
from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import LatentAlignError
from latentalign.training import checkpoint
from latentalign.training.loop import Trainer
from latentalign.training.run import Run

SAMPLED = "objective.name=variational-sample"
RATES = ["1e12", "1e24", "1e36", "1e38"]
MOMENTS = ["training.checkpoint_steps=1", "training.validate_steps=1"]
"""A checkpoint or a validation after every step meets bad weights before the next batch does."""


def occupied(lab: Lab, scale: float) -> Tally:
    """A second training into a directory that is in use: refused, nothing touched."""
    tally = lab.tally("a second training into the same directory", "ended with 2, not one byte changed")
    steps = "training.max_steps=3"
    whole = lab.finished(SAMPLED, steps)

    def torn(run: Path) -> None:
        lab.run(before_step(2, die, lab.train(run, SAMPLED, steps, "training.checkpoint_steps=1")))

    def stray(run: Path) -> None:
        run.mkdir()
        (run / "notes.txt").write_text("mine\n")

    makers: dict[str, Callable[[Path], object]] = {
        "finished": lambda run: lab.copy(whole, into=run),
        "killed": torn,
        "strange": stray,
    }
    for what, make in makers.items():
        for flags in ([], ["--resume", "--overwrite"]):
            run = lab.path("occupied")
            make(run)
            before = contents(run)
            ended = lab.run(lab.train(run, SAMPLED, steps, flags=flags))
            complaints = [*ended.complaints(2, "--resume", "--overwrite")]
            if contents(run) != before:
                complaints.append("files have changed")
            tally.check(f"{what} {flags}: {c}" for c in complaints)
        complaints = [*lab.run(lab.train(run, SAMPLED, steps, flags=["--overwrite"])).complaints(0)]
        if what == "strange" and not (run / "notes.txt").exists():
            complaints.append("--overwrite has removed what is not its own")
        tally.check(f"{what} overwritten: {c}" for c in complaints)
    tally.check(beside_a_running_one(lab))
    return tally


def beside_a_running_one(lab: Lab) -> Iterator[str]:
    """A second training while the first one runs."""
    run = lab.path("running")
    first = lab.start(lab.train(run, SAMPLED))
    while not Run(run).history() and not first.ended():
        time.sleep(0.005)
    yield from lab.run(lab.train(run, SAMPLED)).complaints(2, "another process is training here")
    if first.ended():
        yield "the first training has ended"
    first.kill()
    first.wait()


def diverged(lab: Lab, scale: float) -> Tally:
    """A parameter set to NaN before step 5, and learning rates that explode."""
    tally = lab.tally("a loss that is not finite", "ended with 3 and the step, last checkpoint good")
    names = spread(list(OBJECTIVES), fraction(scale, len(OBJECTIVES)))
    for number, name in enumerate(names):
        options = (f"objective.name={name}", "training.max_steps=26", "training.checkpoint_steps=2")
        parameters = lab.ask(lambda options=options: trained_parameters(lab, *options))
        for parameter in spread(parameters, fraction(scale, len(parameters))):
            run = lab.path("poisoned")
            ended = lab.run(before_step(5, poison(parameter), lab.train(run, *options)))
            complaints = [*stopped(run, ended, step=5, kept=4)]
            if parameter == parameters[-1]:  # what the message advises
                lower = ("training.learning_rate=1e-3", "training.max_steps=6")
                complaints += lab.run(lab.train(run, *options, *lower, flags=["--resume"])).complaints(0)
            tally.check(f"{name}, {parameter} is NaN: {c}" for c in complaints)
            shutil.rmtree(run, ignore_errors=True)
        for rate in RATES[number % 2 :: 2]:
            for more in MOMENTS:
                run = lab.path("exploded")
                ended = lab.run(lab.train(run, *options, f"training.learning_rate={rate}", more))
                tally.check(f"{name}, rate {rate}, {more}: {c}" for c in stopped(run, ended))
                shutil.rmtree(run, ignore_errors=True)
    return tally


def trained_parameters(lab: Lab, *options: str) -> list[str]:
    """The parameters that a training moves: a NaN in any other would be seen by nobody."""
    found: list[str] = []

    def look(trainer: Trainer) -> None:
        found.extend(n for n, p in trainer.module.named_parameters() if p.grad is not None)

    with suppress(SystemExit):
        before_step(2, look, lab.train(lab.path("looked"), *options, "training.max_steps=2"))()
    return found


def poison(parameter: str) -> Callable[[Trainer], None]:
    """Set one value of a parameter to NaN."""

    def strike(trainer: Trainer) -> None:
        with torch.no_grad():
            trainer.module.get_parameter(parameter).fill_(float("nan"))

    return strike


def stopped(run: Path, ended: Ended, *, step: int | None = None, kept: int | None = None) -> Iterator[str]:
    """What is wrong with how a training that diverged has ended."""
    yield from ended.complaints(3)
    message = ended.errors.strip().split("\n")[-1]  # after the lines of progress
    named = re.search(r"step (\d+)", message)
    if not named or (step is not None and int(named[1]) != step):
        yield f"the step is not named: {ended.errors[-300:]!r}"
    if step is not None and not re.search(r"train\.de lines \d+, \d+", ended.errors):
        yield "the lines are not named"
    if not checkpoint.exists(Run(run).checkpoint):
        return
    try:
        if kept is not None and step_of(run) != kept:
            yield f"the checkpoint is of step {step_of(run)}"
        tensors = checkpoint.load(Run(run).checkpoint).tensors
        bad = [
            f"{g}.{n}"
            for g in ("module", "optimizer")
            for n, t in tensors[g].items()
            if not t.isfinite().all()
        ]
        if bad:
            yield f"the checkpoint holds {bad[0]} that is not finite"
    except LatentAlignError as error:
        yield str(error)
