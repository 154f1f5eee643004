"""Where tests/mutation.py tries mutants: a copy of the project, and processes that have imported everything."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

from support.live_code import LiveModule
from support.mutants import Mutant

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 12 * 2**30
"""Address space of a mutant; some ask for all there is."""
NO_TESTS = 5
"""pytest's exit code when no test was selected."""
FAST = ["-m", "not slow"]
READY = "ready"
UNABLE = 98
"""Exit code of a process that could not replace the code of a module."""
BROKEN = 99
"""Exit code of a process in which pytest could not do its work."""
CONFIRMED = 50.0
"""Limit in seconds up to which survivors are tried again."""
BUDGETS = {False: 12.0, True: 6.0}
"""Seconds of tests for a mutant, and for one that runs on import; beyond, the slowest tests are left out."""


class Observer:
    """Records which test executes which line, and how long each takes."""

    def __init__(self, measure: coverage.Coverage) -> None:
        self.measure, self.seconds = measure, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measure.switch_context(item.nodeid)
        start = time.perf_counter()
        found = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        self.measure.switch_context("")
        return found


class Chooser:
    """Runs the chosen tests in the given order, and lets Hypothesis fail without looking for a shorter example."""

    def __init__(self, chosen: list[str] | None) -> None:
        self.place = None if chosen is None else {name: place for place, name in enumerate(chosen)}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        quick = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        settings = hypothesis.settings
        settings.register_profile(
            "mutation", parent=settings(), phases=quick, database=None, derandomize=True
        )
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.place is not None:
            items[:] = sorted(
                (item for item in items if item.nodeid in self.place),
                key=lambda item: self.place[item.nodeid],
            )


def fork(task: Callable[[], int], limit: float) -> int | None:
    """The exit code of a task in a process of its own; None if it had to be stopped."""

    def run() -> None:
        code = BROKEN
        try:
            code = task()
        finally:
            os._exit(code)

    pid = os.fork()
    if pid == 0:
        run()
    deadline, pause = time.monotonic() + limit, 0.005
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.1, 1.2 * pause)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


class Server:
    """After collection, tries mutants in processes forked from this one, in which everything is imported."""

    def __init__(self, pipe: Connection, package: Path) -> None:
        self.pipe, self.package = pipe, package
        self.modules: dict[str, LiveModule] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self.pipe.send(READY)
        while (request := self.pipe.recv()) is not None:
            name, source, tests, limit = request
            if name not in self.modules:
                module = importlib.import_module("latentalign." + name.removesuffix(".py").replace("/", "."))
                self.modules[name] = LiveModule(module, (self.package / name).read_bytes())
            task = partial(self.run, self.modules[name], source, [items[test] for test in tests])
            self.pipe.send(fork(task, limit))
        return True

    def run(self, live: LiveModule, source: str, items: list[pytest.Item]) -> int:
        """Exit code of the tests with other code in a module."""
        os.setsid()
        if not live.replace(source.encode()):
            return UNABLE
        session = items[0].session
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
        return 0


class Laboratory:
    """A copy of the project in which mutants are tried."""

    def __init__(self, folder: Path, *, slow: bool) -> None:
        self.folder, self.package, self.slow = folder, folder / "src" / "latentalign", slow
        for name in ("src", "tests", "examples"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.covering: dict[str, dict[int, list[str]]] = {}
        self.seconds: dict[str, float] = {}
        self.clock = int(time.time())
        self.server: Connection | None = None

    def serve(self, files: list[str]) -> None:
        """Start a process that has collected the tests and waits for mutants."""
        self.dismiss()
        here, there = multiprocessing.Pipe()
        if os.fork() == 0:
            here.close()
            self.enter()
            self.pytest(files, [Server(there, self.package), Chooser(None)], str(self.folder / "server.log"))
            os._exit(0)
        there.close()
        self.server = here
        self.ask()

    def ask(self, request: Any = None) -> Any:
        """Send a request to the server and return its answer."""
        try:
            if request is not None:
                self.server.send(request)
            return self.server.recv()
        except (EOFError, OSError):
            raise SystemExit(
                f"the server has ended: {(self.folder / 'server.log').read_text()[-3000:]}"
            ) from None

    def dismiss(self) -> None:
        """End the server."""
        if self.server is not None:
            self.server.send(None)
            self.server.close()
            os.wait()
            self.server = None

    def fate(self, module: str, mutant: Mutant, tests: list[str]) -> str:
        """What becomes of a mutant: killed, timeout, survived, or uncovered by any test.

        What runs while the package is imported cannot be replaced later. Survivors are also imported and tried again,
        unless that takes long.
        """
        if not tests:
            return "uncovered"
        limit = 20 + 10 * sum(self.seconds[t] for t in tests)
        code = UNABLE
        if not self.runs_on_import(module, mutant):
            code = self.ask((module, mutant.source, tests, limit))
        if code in (UNABLE, BROKEN) or (code == 0 and limit <= CONFIRMED):
            code = self.try_import(module, mutant.source, tests, limit)
        return {0: "survived", None: "timeout"}.get(code, "killed")

    def enter(self) -> None:
        """Let this process use the copy."""
        os.setsid()
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder / "src"))
        os.environ |= {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def pytest(self, files: list[str], plugins: list[Any], log: str = os.devnull) -> int:
        """Run tests and return pytest's exit code."""
        temporary = self.folder.parent / "pytest"
        options = ["-x", "-p", "no:cacheprovider", f"--basetemp={temporary}", *([] if self.slow else FAST)]
        options += ["-W", "ignore:Module already imported", *files]
        with open(log, "w") as file, redirect_stdout(file), redirect_stderr(file):
            return int(pytest.main(options, plugins=plugins))

    def observe(self, files: list[str]) -> None:
        """Find out which tests execute which lines; all must pass."""
        self.covering, self.seconds = {}, {}
        out, log = self.folder / "observed.json", str(self.folder / "observed.log")

        def run() -> int:
            self.enter()
            measure = coverage.Coverage(data_file=None, source=[str(self.package)], config_file=False)
            observer = Observer(measure)
            measure.start()
            code = self.pytest(files, [observer, Chooser(None)], log)
            measure.stop()
            data = measure.get_data()
            lines = {f: data.contexts_by_lineno(f) for f in data.measured_files()}
            libraries = [
                n for n, m in sys.modules.items() if "site-packages" in str(getattr(m, "__file__", ""))
            ]
            out.write_text(json.dumps({"lines": lines, "seconds": observer.seconds, "libraries": libraries}))
            return code

        if fork(run, 1800) != 0:
            raise SystemExit(f"without any mutant the tests must pass: {Path(log).read_text()[-3000:]}")
        found = json.loads(out.read_text())
        for name in found["libraries"]:  # imported once here and shared by all forked processes
            with suppress(Exception):
                importlib.import_module(name)
        self.seconds = found["seconds"]
        for file, lines in found["lines"].items():
            name = Path(file).relative_to(self.package).as_posix()
            self.covering[name] = {int(n): tests for n, tests in lines.items()}

    def runs_on_import(self, module: str, mutant: Mutant) -> bool:
        """Whether the changed lines run while the package is imported."""
        covering = self.covering.get(module, {})
        return not mutant.in_function or any("" in covering.get(line, ()) for line in mutant.lines)

    def tests_of(self, module: str, mutant: Mutant) -> list[str]:
        """The tests that execute the changed lines, the fastest first.

        If these run on import: the tests that execute any line of the module, then all others.
        """
        covering, on_import = self.covering.get(module, {}), self.runs_on_import(module, mutant)
        lines = covering if on_import else mutant.lines
        found = {test for line in lines for test in covering.get(line, ())} - {""}
        candidates = self.seconds if on_import else found
        chosen = sorted(candidates, key=lambda t: (t not in found, self.seconds[t], t))
        total, kept = 0.0, []
        for test in chosen:
            total += self.seconds[test]
            if total > BUDGETS[on_import]:
                break
            kept.append(test)
        return kept

    def try_import(self, module: str, source: str, tests: list[str], limit: float) -> int | None:
        """The exit code of the tests if the package is imported with this source in place of a module."""
        path = self.package / module
        clean, times = path.read_text(encoding="utf-8"), path.stat()

        def run() -> int:
            self.enter()
            sys.dont_write_bytecode = True
            code = self.pytest(sorted({t.split("::")[0] for t in tests}), [Chooser(tests)])
            return BROKEN if code == NO_TESTS else code

        try:
            path.write_text(source, encoding="utf-8")
            self.clock += 10  # no compiled file of another version may pass for that of this one
            os.utime(path, (self.clock, self.clock))
            code = fork(run, limit)
        finally:
            path.write_text(clean, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if code == BROKEN:
            raise SystemExit(f"{module}: pytest could not run the chosen tests {tests[:3]}")
        return code
