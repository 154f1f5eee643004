"""The command line in processes forked from one that has it imported and has computed nothing: no time to start."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
PRELOADED = [
    "latentalign.cli.main", "latentalign.api", "latentalign.reproduction.run", "torch._dynamo", "matplotlib.figure",
    "sacrebleu", *(f"latentalign.tasks.{task}.task" for task in ("nmt", "vqa", "alignment")),
]  # fmt: skip
SERVER.set_forkserver_preload(PRELOADED)


def behave(arguments: list[str], folder: str) -> None:
    """The life of such a process."""
    for number, name in enumerate(("in", "out", "err")):
        os.dup2(os.open(f"{folder}/{name}", os.O_RDONLY if number == 0 else os.O_WRONLY), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(i, m, closefd=False) for i, m in enumerate("rww"))
    from latentalign.cli.main import main

    sys.argv = ["latentalign", *arguments]
    main()


def command(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`latentalign ARGUMENTS`."""
    with tempfile.TemporaryDirectory() as folder:
        streams = {name: Path(folder, name) for name in ("in", "out", "err")}
        streams["in"].write_bytes(stdin)
        for name in ("out", "err"):
            streams[name].touch()
        process = SERVER.Process(target=behave, args=([*map(str, arguments)], folder))
        process.start()
        process.join()
        said = [streams[name].read_bytes() for name in ("out", "err")]
        return subprocess.CompletedProcess(arguments, process.exitcode, *said)
