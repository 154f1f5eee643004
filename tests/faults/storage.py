"""A disk that is full: training says how much it needs, and what was saved stays as it was."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.interruptions import resume_errors
from faults.lab import Ended, Lab, Tally, before_step, die, fraction, spread, state
from latentalign import storage
from latentalign.errors import LatentAlignError
from latentalign.training import checkpoint
from latentalign.training.run import Run

SIZE, PAGE = 2**21, 2**12
OPTIONS = ("objective.name=variational-sample", "training.checkpoint_steps=1")
NEED = re.compile(r"need [\d.]+ (B|kB|MB), have [\d.]+ (B|kB|MB)")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of two megabytes; an OSError where one may not be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stderr.strip() or "mount failed")
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    finally:
        folder.rmdir()


def disk(lab: Lab, scale: float) -> Tally:
    """Disks that are full before a training begins or goes on, and disks that something else fills meanwhile."""
    tally = lab.tally(
        "disk full", 'ended with 5 and "need X, have Y", checkpoint intact, resumed to the same hash'
    )
    begun, steps = lab.path("begun"), "training.max_steps=6"
    lab.run(before_step(4, die, lab.train(begun, *OPTIONS, steps)))
    wanted = state(lab.finished(*OPTIONS, steps))
    try:
        with small_disk(lab.path("disk")) as place:
            for n in spread(range(48), fraction(scale, 48)):
                tally.check(f"{n} pages left: {c}" for c in filled(lab, place, begun, pages=n, wanted=wanted))
            for n in spread(range(1, 33), fraction(scale, 32)):
                tally.check(
                    f"{n % 4} pages left at write {n}: {c}"
                    for c in filled(lab, place, begun, pages=n % 4, at=n, wanted=wanted)
                )
    except OSError as error:
        tally.skipped = f"needs the right to mount a small file system: {error}"
    return tally


def filled(
    lab: Lab, place: Path, begun: Path, *, pages: int, at: int = 0, wanted: dict[str, str]
) -> list[str]:
    """What is wrong after a training met a full disk, and after there was room again."""
    out, ballast, fresh = place / "run", place / "ballast", pages % 4 == 3
    if not fresh:
        lab.copy(begun, into=out)
    action = lab.train(out, *OPTIONS, "training.max_steps=6", flags=[] if fresh else ["--resume"])
    if at:
        action = while_writing(at, lambda: fill(ballast, pages), action)
    else:
        fill(ballast, pages)
    ended = lab.run(action)
    found = [*failed_well(ended), *(intact(out) if out.is_dir() else ())]
    ballast.unlink(missing_ok=True)
    if not found:
        found += resume_errors(lab, out, *OPTIONS, "training.max_steps=6", wanted=wanted)
    shutil.rmtree(out, ignore_errors=True)
    return found


def fill(ballast: Path, pages: int) -> None:
    """Leave some pages of room."""
    free = shutil.disk_usage(ballast.parent).free
    with open(ballast, "wb") as file:
        file.write(bytes(free - pages * PAGE))


def while_writing(n: int, strike: Callable[[], None], action: Callable[[], None]) -> Callable[[], None]:
    """An action in which `strike` is run when the n-th file has been given its name but no content yet."""

    def run() -> None:
        calls: list[None] = []
        write = storage.write_durably

        def struck(path: Path, data: bytes) -> None:
            calls.append(None)
            if len(calls) == n:
                path.touch()
                strike()
            write(path, data)

        storage.write_durably = struck  # only in this child
        action()

    return run


def failed_well(ended: Ended) -> Iterator[str]:
    """In what the end differs from a clean refusal."""
    yield from ended.complaints(5)
    if ended.code == 5 and not NEED.search(ended.errors):
        yield f"no need and have in {ended.errors[-200:]!r}"


def intact(out: Path) -> Iterator[str]:
    """What is wrong with the files of a run: each that has its final name must be whole."""
    run = Run(out)
    try:
        if checkpoint.exists(run.checkpoint):
            checkpoint.load(run.checkpoint)
        if run.model.exists():
            run.load_model()
    except LatentAlignError as error:
        yield str(error)
    for path in out.rglob("*"):
        if path.name.endswith(".tmp") or path.name.startswith("."):
            yield f"{path.relative_to(out)} is left over"
