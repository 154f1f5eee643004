"""Gives damaged files to every reader: only the project's own errors may come out.

    PYTHONPATH=tests python -m fuzz 100000             that many inputs, spread over the readers
    PYTHONPATH=tests python -m fuzz 1000 recipe        readers whose name contains a word
    PYTHONPATH=tests python -m fuzz --seed 17 recipe   one input again, with its traceback

Each input is random bytes or a damaged valid file. It depends only on the reader's name and the seed.
A reader may refuse it, or read it if the result is consistent. Anything else is a failure, which is
printed with its seed and a minimal input. The command exits with code 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random

from fuzz.fuzzer import Failure, Reader, draw, fuzz
from fuzz.readers import READERS


def main() -> None:
    """Fuzz all readers, or those whose name contains a word."""
    options = parse_options()
    words = [argument for argument in options.arguments if not argument.isdecimal()]
    counts = [int(argument) for argument in options.arguments if argument.isdecimal()] or [2000]
    readers = [reader for reader in READERS if not words or any(word in reader.name for word in words)]
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory() as name:
        for place, reader in enumerate(readers):
            if options.seed is not None:
                repeat_input(reader, options.seed, Path(name))
                continue
            share = counts[0] // len(readers) + (place < counts[0] % len(readers))
            tally = fuzz(reader, range(options.first, options.first + share), Path(name))
            failures += tally.failures
            print(
                f"{reader.name:<30} {share:>7} inputs: {tally.read:>6} read, {tally.refused:>6} refused, "
                f"{len(tally.failures):>4} failed; slowest {1000 * tally.slowest:.0f} ms",
                flush=True,
            )
    for failure in failures[:40]:
        print(failure)
    sys.exit(bool(failures))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arguments", nargs="*", metavar="[inputs] [word]")
    parser.add_argument("--seed", type=int, help="run only the input of this seed and show its traceback")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    return parser.parse_args()


def repeat_input(reader: Reader, seed: int, folder: Path) -> None:
    """Print the input of a seed, give it to the reader, and print the traceback."""
    data = draw(reader, seed)
    print(data[:2000])
    try:
        reader.check(data, Random(seed), folder)
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    main()
