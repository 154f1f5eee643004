"""Trainings that are killed, and must go on as if nothing had happened."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from faults.lab import (
    PATIENCE,
    Lab,
    Tally,
    before_step,
    die,
    differences,
    fraction,
    spread,
    state,
    step_of,
)
from latentalign.core.objectives import OBJECTIVES
from latentalign.errors import LatentAlignError
from latentalign.training.run import Run

STEPS, CUT = 40, 17
VARIANTS: list[tuple[str, ...]] = [
    *((name,) for name in OBJECTIVES),
    ("hard-sample", "objective.baseline=learned"),
    ("hard-sample", "objective.baseline=running-mean"),
    ("marginal", "training.accumulate=2"),
    ("marginal", "training.validate_steps=6"),
    ("variational-sample", "training.warm_start_objective=soft", "training.warm_start_epochs=1"),
]
"""Every objective, and trainings with more state than usual."""
SAMPLED = "objective.name=variational-sample"
TESTS = Path(__file__).resolve().parents[1]


def resume_errors(lab: Lab, out: Path, *options: str, wanted: dict[str, str]) -> Iterable[str]:
    """What is wrong with a run after `train --resume`; a correct run is deleted."""
    ended = lab.run(lab.train(out, *options, flags=["--resume"]))
    found = list(ended.complaints(0))
    if not found:
        found = list(state_errors(out, wanted))
    if not found:
        shutil.rmtree(out)
    return found


def state_errors(out: Path, wanted: dict[str, str]) -> Iterable[str]:
    """How the state of a run differs from the expected one."""
    try:
        yield from differences(state(out), wanted)
    except LatentAlignError as error:
        yield str(error)


def resume(lab: Lab, scale: float) -> Tally:
    """Killed after the checkpoint of step 17, resumed to step 40: all digests are those of an undisturbed run."""
    tally = lab.tally("kill -9 after step 17, resumed to step 40", "bit for bit as undisturbed")
    for number, (name, *more) in enumerate(spread(VARIANTS, fraction(scale, len(VARIANTS)))):
        options = (f"objective.name={name}", *more, f"training.max_steps={STEPS}")
        kept = f"training.checkpoint_steps={CUT}"
        wanted = state(lab.finished(*options, kept))
        # What was done since the checkpoint is lost and done again.
        out, at = lab.path("cut"), CUT + 1 + number % 5
        complaints = [*lab.run(before_step(at, die, lab.train(out, *options, kept))).complaints(137)]
        first = out / "warm-start" if "training.warm_start_epochs=1" in more else out
        if not CUT <= step_of(first) < at:
            complaints.append(f"the checkpoint is of step {step_of(first)}")
        complaints += resume_errors(lab, out, *options, kept, wanted=wanted)
        tally.check(f"{name} {' '.join(more)}: {c}" for c in complaints)
    return tally


def kill(lab: Lab, scale: float) -> Tally:
    """kill -9 at a random moment; every fourth time the resumed training is killed as well."""
    tally = lab.tally("kill -9 during training", "resumed to the same hash")
    options = (SAMPLED, "training.max_steps=12", "training.batch_sentences=12")  # epochs of eight steps
    whole = lab.finished(*options, "training.checkpoint_steps=1")
    wanted, duration = state(whole), lab.seconds[whole]
    chance, count = random.Random(0), fraction(scale, 200)
    while tally.tried < count:
        out, every = lab.path("killed"), f"training.checkpoint_steps={1 + tally.tried % 2}"
        if not kill_after(lab, lab.train(out, *options, every), chance.uniform(0, duration)):
            duration *= 0.98  # it was over before: no moment of the training
            shutil.rmtree(out)
            continue
        if tally.tried % 4 == 3:
            again = lab.train(out, *options, every, flags=["--resume"])
            kill_after(lab, again, chance.uniform(0, duration))
        tally.check(resume_errors(lab, out, *options, every, wanted=wanted))
    return tally


def kill_after(lab: Lab, action: Callable[[], None], delay: float) -> bool:
    """Kill a child after some seconds; False if it ended by itself before."""
    child = lab.start(action)
    time.sleep(delay)
    child.kill()
    return child.wait().code == 137


def instants(lab: Lab, scale: float) -> Tally:
    """kill -9 before and after every file that a short training replaces and every line of metrics."""
    tally = lab.tally("kill -9 around each write of a training", "resumed to the same hash")
    options = (SAMPLED, "training.max_steps=5", "training.checkpoint_steps=2", "training.validate_steps=4")
    wanted = state(lab.finished(*options))
    total = lab.ask(lambda: writes(lab.train(lab.path("counted"), *options)))
    for n in spread(range(2 * total), fraction(scale, 2 * total)):
        out = lab.path("killed")
        ended = lab.run(struck_at(n, lab.train(out, *options)))
        complaints = [*ended.complaints(137), *resume_errors(lab, out, *options, wanted=wanted)]
        tally.check(
            f"write {n // 2 + 1} of {total}, {'after' if n % 2 else 'before'}: {c}" for c in complaints
        )
    return tally


def struck_at(n: int, action: Callable[[], None]) -> Callable[[], None]:
    """An action that is killed before (n even) or after (n odd) its (n // 2)-th write."""

    def run() -> None:
        left = [n]

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def write(*args: Any, **kwargs: Any) -> Any:
                at, left[0] = left[0], left[0] - 2
                if at == 0:
                    die()
                result = function(*args, **kwargs)
                if at == 1:
                    die()
                return result

            return write

        os.replace, Run.log = counted(os.replace), counted(Run.log)  # only in this child
        action()

    return run


def writes(action: Callable[[], None]) -> int:
    """How many writes an action makes."""
    calls = []
    replace, log = os.replace, Run.log
    os.replace = lambda *a, **k: (calls.append(1), replace(*a, **k))[1]
    Run.log = lambda *a, **k: (calls.append(1), log(*a, **k))[1]
    with suppress(SystemExit):
        action()
    return len(calls)


def sigterm(lab: Lab, scale: float) -> Tally:
    """SIGTERM or Ctrl-C at a random moment, every other time twice: a checkpoint of the step it had got to."""
    tally = lab.tally(
        "SIGTERM or Ctrl-C, once or twice",
        "saved, ended with 143 or 130 within 10 s, and resumed to the same hash",
    )
    options = (SAMPLED, "training.max_steps=32")
    whole = lab.finished(*options)
    wanted, duration = state(whole), lab.seconds[whole]
    chance, count = random.Random(1), fraction(scale, 40)
    while tally.tried < count:
        out = lab.path("stopped")
        child = lab.start(lab.train(out, *options))
        while not Run(out).history() and not child.ended():
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.6 * duration))
        if child.ended():
            child.wait()
            shutil.rmtree(out)
            continue
        number = signal.SIGTERM if tally.tried % 4 < 2 else signal.SIGINT
        child.kill(number)
        asked = time.monotonic()
        if tally.tried % 2 == 0:
            time.sleep(chance.uniform(0, 0.05))
            child.kill(number)  # it may be over: a signal to what is not waited for yet is lost
        complaints = [*child.wait().complaints(128 + number, "--resume")]
        if time.monotonic() - asked > 10:
            complaints.append(f"{time.monotonic() - asked:.1f} s")
        last = Run(out).history()[-1]["step"]
        if step_of(out) != last:
            complaints.append(f"step {last} was done, the checkpoint is of step {step_of(out)}")
        tally.check([*complaints, *resume_errors(lab, out, *options, wanted=wanted)])
    return tally


def processes(lab: Lab, scale: float) -> Tally:
    """As `resume`, with two processes under torchrun, one of which is killed."""
    tally = lab.tally("kill -9 of one of two processes, both resumed", "bit for bit as undisturbed")
    for number, name in enumerate(spread(list(OBJECTIVES), fraction(scale, len(OBJECTIVES)))):
        whole, cut = lab.path("whole"), lab.path("cut")
        sets = [f"objective.name={name}", f"training.max_steps={STEPS}", f"training.checkpoint_steps={CUT}",
                "training.batch_sentences=2"]  # fmt: skip
        codes = [
            together(lab, [], whole, sets, kill=(-1, 0)),
            together(lab, [], cut, sets, kill=(number % 2, CUT + 2)),
            together(lab, ["--resume"], cut, sets, kill=(-1, 0)),
        ]
        wrong = [] if codes[0] == codes[2] == 0 != codes[1] else [f"exit codes {codes}"]
        tally.check(f"{name}: {c}" for c in (*wrong, *(state_errors(cut, state(whole)) if not wrong else ())))
    return tally


def together(lab: Lab, flags: Sequence[str], out: Path, sets: Sequence[str], *, kill: tuple[int, int]) -> int:
    """The exit code of torchrun over two processes; one rank may be killed before a step."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "faults.worker"]
    train = ["train", str(lab.recipe), "--out", str(out), *flags, *(f"--set={o}" for o in sets)]
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, *launcher, *map(str, kill), *train],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()
