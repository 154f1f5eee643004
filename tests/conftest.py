"""Fixtures of all tests: checked shapes, a fixed seed, research data, a browser and a server."""

import html
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import pytest

from support.client import Client

# Shapes are checked in the modules that declare them. Nothing is imported here: the process that only
# distributes tests to workers would otherwise spend seconds on torch before the workers can start.
CHECKED = [f"latentalign.{name}" for name in ("api", "core", "errors", "nn", "search")]
jaxtyping.install_import_hook(CHECKED, "beartype.beartype")

DATA = Path(
    os.environ.get("LATENTALIGN_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data")
)


def pytest_configure(config) -> None:
    """Let Hypothesis try fewer examples in `make test-fast`, unless a test asks for its own number."""
    from hypothesis import settings

    settings.register_profile("fast", max_examples=25, deadline=None)
    settings.register_profile("thorough", deadline=None)
    settings.load_profile("thorough" if is_thorough(config) else "fast")


def is_thorough(config) -> bool:
    """Whether slow tests run too."""
    return config.getoption("markexpr") != "not slow"


@pytest.fixture(scope="session")
def thorough(pytestconfig) -> bool:
    """Whether slow tests run too; `make test-fast` tries fewer random inputs."""
    return is_thorough(pytestconfig)


@pytest.fixture(autouse=True)
def _seed():
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)  # two workers share two cores; a run that was loaded may have asked for more


@pytest.fixture
def unchecked():
    """Switch off shape checks, which cost a third of the time of a long training run."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def corpora() -> Path:
    """The folder of research corpora, or a skip that says how to get it."""
    if not DATA.is_dir():
        pytest.skip("research corpora are absent: set LATENTALIGN_DATA to the folder that holds them")
    return DATA


@pytest.fixture
def browse(tmp_path):
    """Open a page in Chromium and return the JSON that its probe wrote into `<pre id="seen">`.

    The test is skipped if Chromium is not installed.
    """
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine: install the package chromium")

    def visit(address: str, width: int):
        switches = "headless no-sandbox disable-gpu no-first-run disable-background-networking disable-sync"
        switches += f" disable-component-update virtual-time-budget=60000 window-size={width},900 dump-dom"
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [chromium, profile, *(f"--{switch}" for switch in switches.split()), address]
        dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        return json.loads(html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom)[1]))

    return visit


@pytest.fixture
def serving():
    """A context manager that serves an application, with `ServerSettings` by name, and gives its client."""
    pytest.importorskip("uvicorn")
    from latentalign.web.listening import ServerSettings, make_server

    @contextmanager
    def serve(app, **settings):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = make_server(app, ServerSettings(**settings), local=True)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                while not server.started:
                    assert thread.is_alive()
                    time.sleep(0.01)
                client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
                client.server = server
                yield client
            finally:
                server.should_exit = True
                thread.join()

    return serve
