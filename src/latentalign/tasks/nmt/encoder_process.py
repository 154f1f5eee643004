"""A process that encodes text for another one: chunks of text come in on stdin, ids go out on stdout.

It imports what tokenizing needs and nothing else, above all not PyTorch. It is a fresh program, not a copy of the
process that started it, so threads of the other one cannot disturb it. A message is a kind (one byte), the number of
its parts, and the parts, each after its length. Nothing is pickled.
"""

from __future__ import annotations

import signal
import struct
import sys
from collections.abc import Sequence
from typing import IO

import numpy as np

from latentalign.errors import InputError
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.tasks.splits import Side

HEAD, LENGTH = struct.Struct("<cI"), struct.Struct("<Q")
READY, TEXT, IDS, BAD_INPUT, NO_MEMORY, FAILED = b"r", b"t", b"i", b"e", b"m", b"f"
SIDES: tuple[Side, Side] = ("source", "target")


def send(stream: IO[bytes], kind: bytes, parts: Sequence[bytes] = ()) -> None:
    """Write one message."""
    stream.write(HEAD.pack(kind, len(parts)))
    for part in parts:
        stream.write(LENGTH.pack(len(part)))
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[bytes, list[bytes]]:
    """Read one message: its kind and its parts. EOFError if the other process has ended."""
    kind, count = HEAD.unpack(_read(stream, HEAD.size))
    return kind, [_read(stream, LENGTH.unpack(_read(stream, LENGTH.size))[0]) for _ in range(count)]


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the other process has ended")
    return data


def pack_text(lines: Sequence[str]) -> bytes:
    """Lines as one part of a message. No line contains a line feed, because it would end there."""
    return "\n".join(lines).encode()


def encode_message(tokenizer: Tokenizer, parts: Sequence[bytes]) -> list[bytes]:
    """The ids and lengths of both sides of a chunk, as parts of the answer."""
    answer = []
    for side, part in zip(SIDES, parts, strict=True):
        ids, lengths = tokenizer.id_arrays(part.decode().split("\n"), side)
        answer += [ids.astype("<i4").tobytes(), lengths.astype("<i8").tobytes()]
    return answer


def unpack_ids(parts: Sequence[bytes]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids and lengths of each side, from the parts of an answer."""
    arrays = [np.frombuffer(part, ("<i4", "<i8")[number % 2]) for number, part in enumerate(parts)]
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def main() -> None:
    """Encode every chunk that comes in until the other process closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides what Ctrl-C means
    commands, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        _, (content, largest_table) = receive(commands)
        tokenizer = Tokenizer.from_bytes(content)
        tokenizer.largest_table = int(largest_table)
        send(answers, READY)
        while True:
            _, parts = receive(commands)
            try:
                send(answers, IDS, encode_message(tokenizer, parts))
            except InputError as error:
                send(answers, BAD_INPUT, [str(error).encode()])
            except MemoryError as error:
                send(answers, NO_MEMORY, [str(error).encode()])
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        send(answers, FAILED, [f"{type(error).__name__}: {error}".encode()])


if __name__ == "__main__":
    main()
