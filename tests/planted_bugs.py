"""Plants one bug at a time into a copy of the project and runs the test that must catch it.

    python tests/planted_bugs.py            all bugs: about four minutes on one core
    python tests/planted_bugs.py baseline   bugs whose name contains a word

The bugs are listed in tests/support/bugs.py, chain_bugs.py and aligner_bugs.py. A bug counts as caught if
the test runs and fails. A test that cannot be run has caught nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import beartype  # noqa: F401  (imported once here and shared by all forked processes)
import pytest
import scipy.stats  # noqa: F401
import torch
import torch._dynamo

from support.aligner_bugs import ALIGNER_BUGS
from support.bugs import BUGS, Bug
from support.chain_bugs import CHAIN_BUGS
from support.look_bugs import LOOK_BUGS

ROOT = Path(__file__).resolve().parents[1]
FAILED = 1
"""pytest's exit code when tests ran and some failed."""
NOT_RUN = 99


def copy_project(folder: Path) -> Path:
    """Copy the source and the tests into a folder and return it."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def exit_with_pytest(project: Path, tests: list[str]) -> None:
    """Run some tests of the copy in this process and end it with pytest's exit code."""
    os.chdir(project)
    sys.path.insert(0, str(project / "src"))
    # No compiled files: two versions of a file may share size and second, and the older would be used.
    sys.dont_write_bytecode = True
    nodes = [f"tests/{test}" for test in tests]
    code = NOT_RUN
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            code = int(pytest.main(["-x", "-p", "no:cacheprovider", *nodes]))
        if not Path(sys.modules["latentalign"].__file__ or "").is_relative_to(project):
            code = NOT_RUN
    finally:
        os._exit(code)


def run(project: Path, *tests: str) -> int:
    """pytest's exit code, from a forked process that shares the torch imported here."""
    assert "latentalign" not in sys.modules, "each process must import the copy afresh"
    process = multiprocessing.get_context("fork").Process(
        target=exit_with_pytest, args=(project, list(tests))
    )
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def is_caught(project: Path, bug: Bug) -> bool:
    """Whether the named test fails with the bug planted; the file is restored afterwards."""
    path = project / "src" / "latentalign" / bug.file
    clean = path.read_text(encoding="utf-8")
    if bug.old not in clean:
        raise SystemExit(f"{bug.name}: {bug.file} no longer contains {bug.old!r}; plant it anew")
    try:
        path.write_text(clean.replace(bug.old, bug.new, 1), encoding="utf-8")
        return run(project, bug.test) == FAILED
    finally:
        path.write_text(clean, encoding="utf-8")


def main(words: list[str]) -> int:
    """Plant every chosen bug, print the table, and return 1 if one survived."""
    torch.set_num_threads(1)
    chosen = [
        bug
        for bug in (*BUGS, *CHAIN_BUGS, *LOOK_BUGS, *ALIGNER_BUGS)
        if not words or any(word in bug.name for word in words)
    ]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        project = copy_project(Path(folder).resolve())
        if code := run(project, *dict.fromkeys(bug.test for bug in chosen)):
            raise SystemExit(
                f"without any bug the named tests must pass in the copy; pytest ended with {code}"
            )
        print("| bug | test that catches it | caught |\n|---|---|---|")
        for bug in chosen:
            found = is_caught(project, bug)
            survivors += not found
            print(f"| {bug.name} | `{bug.test}` | {'yes' if found else '**no**'} |", flush=True)
    print(f"\n{len(chosen) - survivors} of {len(chosen)} bugs caught")
    return min(survivors, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
