"""Shape annotations are checked while the tests run; research data is found or skipped."""

import html
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import pytest
from jaxtyping import install_import_hook

with install_import_hook("latentalign", "beartype.beartype"):
    import latentalign.api  # noqa: F401

import torch

DATA = Path(
    os.environ.get("LATENTALIGN_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data")
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two workers share two cores; a run that was loaded may have asked for more


@pytest.fixture
def unchecked():
    """For long trainings: shapes are checked in all others, and cost a third of the time."""
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
    """What a probe on a page at an address, `<pre id="seen">` of JSON, saw in Chromium; a skip without it."""
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


class Client:
    """Asks a server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, path: str, body=None) -> tuple[int, bytes]:
        """Status and content of an answer; a body is posted as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def found(self, path: str, body=None):
        status, content = self(path, body)
        assert status == 200, content
        return json.loads(content)

    def refused(self, path: str, body) -> str:
        status, content = self(path, body)
        assert status == 422, content
        return json.loads(content)["error"]


@pytest.fixture
def serving():
    """A context in which an application is served, with its client."""
    uvicorn = pytest.importorskip("uvicorn")

    @contextmanager
    def serve(app):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                while not server.started:
                    assert thread.is_alive()
                    time.sleep(0.01)
                yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
            finally:
                server.should_exit = True
                thread.join()

    return serve
