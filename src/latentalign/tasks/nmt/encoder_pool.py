"""Several processes that encode one corpus. The result is that of a single process, in the same order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType

import numpy as np

from latentalign.errors import InputError, LatentAlignError, LostProcessError
from latentalign.progress import detail
from latentalign.tasks.nmt import encoder_process as messages
from latentalign.tasks.nmt.tokenizer import LARGEST_TABLE, Tokenizer

MOST_PROCESSES = 8
"""Without a number in the recipe, start at most so many: one process has to read all text."""

Lines = list[tuple[str, str]]
Encoded = list[tuple[np.ndarray, np.ndarray]]
"""Ids and lengths of the source lines, and of the target lines."""


def usable_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_processes(wanted: int | None) -> int:
    """The number of processes that a recipe asks for, or one for each core."""
    return min(MOST_PROCESSES, usable_cores()) if wanted is None else wanted


class EncoderProcess:
    """One process that encodes, and the pipes to it."""

    def __init__(self) -> None:
        # The module is found as it was found here. A group of its own keeps Ctrl-C in a terminal away from it.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", messages.__name__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0 if os.name == "posix" else None,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.commands, self.answers = self.process.stdin, self.process.stdout

    def encode(self, lines: Lines) -> Encoded:
        """The ids of a chunk of pairs."""
        try:
            text = [messages.pack_text([pair[side] for pair in lines]) for side in (0, 1)]
            messages.send(self.commands, messages.TEXT, text)
            kind, parts = messages.receive(self.answers)
        except (EOFError, OSError):
            raise LostProcessError(self.describe_end()) from None
        if kind == messages.IDS:
            return messages.unpack_ids(parts)
        text_of_error = parts[0].decode()
        if kind == messages.BAD_INPUT:
            raise InputError(text_of_error)
        raise (MemoryError if kind == messages.NO_MEMORY else RuntimeError)(text_of_error)

    def describe_end(self) -> str:
        """Why the process has ended, and what to do."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return (
            f"a process that encodes text has ended unexpectedly ({how}); if memory was short, set "
            "data.processes = 1. No part of the text was kept: run the command again"
        )

    def end(self) -> None:
        """End the process at once. It has nothing to save."""
        self.process.kill()
        self.process.wait()
        for stream in (self.commands, self.answers):
            with suppress(OSError):  # what was not written is lost with the process
                stream.close()


class EncoderPool:
    """Processes that encode chunks side by side. A thread waits for each of them."""

    def __init__(self, tokenizer: Tokenizer, encoders: Sequence[EncoderProcess]) -> None:
        self.tokenizer, self.encoders = tokenizer, encoders
        self.free: SimpleQueue[EncoderProcess] = SimpleQueue()
        for encoder in encoders:
            self.free.put(encoder)
        self.threads = ThreadPoolExecutor(max(1, len(encoders)))

    @classmethod
    def start(cls, tokenizer: Tokenizer, processes: int) -> EncoderPool | None:
        """A pool; None where no processes can be started."""
        encoders: list[EncoderProcess] = []
        content = [tokenizer.to_bytes(), str(LARGEST_TABLE // processes).encode()]
        try:
            for _ in range(processes):  # all of them start at the same time
                encoders.append(EncoderProcess())
            for encoder in encoders:
                messages.send(encoder.commands, messages.TEXT, content)
            for encoder in encoders:
                kind, parts = messages.receive(encoder.answers)
                if kind != messages.READY:
                    raise OSError(parts[0].decode())
        except (EOFError, OSError, ValueError) as error:
            detail(f"no processes can be started to encode text ({error}); one process encodes all of it")
            end_all(encoders)
            return None
        except BaseException:
            end_all(encoders)
            raise
        return cls(tokenizer, encoders)

    def __enter__(self) -> EncoderPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_all(self.encoders)  # first, because threads wait for them
        self.threads.shutdown(cancel_futures=True)

    def encode(self, chunks: Iterable[Lines]) -> Iterator[tuple[Lines, Encoded]]:
        """Each chunk with its ids, in order.

        While chunks are encoded, the next ones are read. An error in reading is raised only after all chunks before it,
        as if one process did everything.
        """
        waiting: deque[tuple[Lines, Future[Encoded]]] = deque()
        problem: LatentAlignError | None = None
        reading = iter(chunks)
        while True:
            while problem is None and len(waiting) <= len(self.encoders):
                try:
                    lines = next(reading, None)
                except LatentAlignError as error:
                    problem = error
                    break
                if lines is None:
                    break
                waiting.append((lines, self.threads.submit(self._encode, lines)))
            if not waiting:
                break
            lines, found = waiting.popleft()
            yield lines, found.result()
        if problem is not None:
            raise problem

    def _encode(self, lines: Lines) -> Encoded:
        encoder = self.free.get()
        try:
            return encoder.encode(lines)
        finally:
            self.free.put(encoder)


def end_all(encoders: Iterable[EncoderProcess]) -> None:
    """End some processes."""
    for encoder in encoders:
        encoder.end()
