"""What a server says when it starts to listen, and on which addresses it checks the Host header."""

import signal
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from latentalign.errors import InputError, Interrupted
from latentalign.web import listening
from latentalign.web.listening import ServerSettings, listen, open_socket


class Socket:
    """A socket that only has an address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def getsockname(self):
        return (self.address, 8000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.fixture
def started(app, monkeypatch):
    """Listen on an address without opening it: what is announced, and whether the server counts as local."""

    def start(host: str, address: str, token: str | None = None):
        locals_, lines = [], []
        worker = SimpleNamespace(join=lambda seconds: True)
        server = SimpleNamespace(run=lambda sockets: None, worker=worker)
        monkeypatch.setattr(listening, "open_socket", lambda host, port: Socket(address))
        monkeypatch.setattr(listening, "make_server", lambda *_, local: locals_.append(local) or server)
        listen(app, ServerSettings(host, token=token), announce=lines.append)
        return lines, locals_[0]

    return start


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("127.9.8.7", "127.9.8.7"), ("::1", "::1")],
)
def test_every_loopback_address_is_local(started, host, address):
    lines, local = started(host, address)
    name = "[::1]" if host == "::1" else host
    assert lines == [f"open http://{name}:8000 in a browser; ctrl-C ends it"]
    assert local


@pytest.mark.parametrize(("host", "address"), [("0.0.0.0", "0.0.0.0"), ("::", "::"), ("example", "10.0.0.1")])
def test_other_addresses_need_a_token_or_get_a_warning(started, host, address):
    lines, local = started(host, address)
    assert not local
    assert f"warning: everybody who reaches {host} can use this server" in lines[0]
    assert "warning" not in "".join(started(host, address, token="geheim")[0])
    assert "warning" in "".join(started(host, address, token="")[0])


def test_an_address_in_use_is_named():
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1, port {port}: "):
            open_socket("127.0.0.1", port)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, None)])
def test_ctrl_c_is_a_success_and_sigterm_is_not(app, monkeypatch, number, code):
    def run(sockets):
        raise Interrupted(number)

    server = SimpleNamespace(run=run, worker=SimpleNamespace(join=lambda seconds: True))
    monkeypatch.setattr(listening, "make_server", lambda *_, local: server)
    with pytest.raises(Interrupted) if code else nullcontext() as raised:
        listen(app, ServerSettings(port=0), announce=lambda line: None)
    assert code is None or raised.value.exit_code == code
