"""What a server refuses before an application sees it, and the headers of everything it says."""

import json
from contextlib import suppress

import pytest

from latentalign.web import guards, listening
from latentalign.web.guards import HEADERS, host_name, is_loopback, page_policy


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:8000", "LOCALHOST:1", "localhost.", "localhost.:80", "127.0.0.1", "127.0.0.1:80",
        "127.1.2.3:9", "[::1]", "[::1]:8000", "[::ffff:127.0.0.1]:1", "[0:0:0:0:0:0:0:1]:8",
    ],
)  # fmt: skip
def test_every_name_of_the_loopback_is_known(host):
    assert is_loopback(host_name(host))


@pytest.mark.parametrize(
    "host",
    [
        "", "elsewhere.example", "localhost.example", "127.0.0.1.example:80", "10.0.0.1", "[::2]:80", "0.0.0.0",
        "localhost:80:80", "[localhost", "[::1]x", "127.0.0.1@evil", "localhost..",
    ],
)  # fmt: skip
def test_no_other_name_is(host):
    assert not is_loopback(host_name(host))


def test_a_foreign_host_and_a_foreign_page_are_refused(app, serving, connect):
    with serving(app) as client:
        for host, status in (("elsewhere.example", 400), ("[::1]:1", 200)):
            one = connect(client)
            one.send(f"GET /api/health HTTP/1.1\r\nHost: {host}\r\n\r\n")
            assert one.response()[0] == status
        for site, status in (("cross-site", 403), ("same-origin", 200)):
            one = connect(client)
            one.post("/api/double", {"number": 1}, Sec_Fetch_Site=site)
            assert one.response()[0] == status


def test_every_response_has_the_headers(app, serving, connect, monkeypatch):
    monkeypatch.setattr(guards, "DISCARD_SECONDS", 0.05)  # the large body never comes
    requests = {
        200: "GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        400: "GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
        404: "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
        405: "DELETE /api/about HTTP/1.1\r\nHost: localhost\r\n\r\n",
        413: "POST /api/double HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000001\r\n\r\n",
        422: "POST /api/double HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    }
    with serving(app) as client:
        for status, text in [*requests.items(), (400, "this is not HTTP\r\n\r\n")]:
            one = connect(client)
            one.send(text)
            found, headers, content = one.response()
            assert found == status
            assert HEADERS.items() <= headers.items()
            assert status == 200 or json.loads(content).keys() == {"error"}
        page = connect(client)
        page.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        _, headers, content = page.response()
        assert headers["content-security-policy"] == page_policy(content.decode())
        assert headers["x-frame-options"] == "DENY"


def test_a_body_that_is_not_declared_as_json_is_told_the_header(app, serving, connect):
    body = '{"number": 1}'
    with serving(app) as client:
        one = connect(client)
        one.send(f"POST /api/double HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        status, _, content = one.response()
    assert status == 422
    assert "the header Content-Type: application/json" in json.loads(content)["error"]


def test_a_policy_allows_what_is_in_the_page_and_nothing_else():
    policy = page_policy("<style>a</style><script>b</script><script type=x>c</script><script>d\n</script>")
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == parts["base-uri"] == parts["frame-ancestors"] == "'none'"
    assert parts["style-src"] == "'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='"  # of "a"
    assert len(parts["script-src"].split()) == 2
    assert "unsafe" not in policy


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_before_it_is_parsed(app, serving, connect, chunked):
    with serving(app) as client:
        one = connect(client)
        length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000001"
        one.send(f"POST /api/double HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n")
        body = b" " * 1_000_001
        one.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
        status, _, content = one.response()
        assert status == 413
        assert json.loads(content) == {"error": "the body is too large: at most 1,000,000 bytes are accepted"}


def test_slow_bodies_and_headers_are_given_up(app, serving, connect, monkeypatch):
    monkeypatch.setattr(listening, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.2)
    with serving(app) as client:
        for text in (
            "POST /api/double HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
            "POST /api/double HTTP/1.1\r\nHost: local",
            "",
            "GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api",
        ):
            one = connect(client)
            one.send(text)
            if "health" in text:
                assert one.response()[0] == 200
                one.send("/health")
            status, headers, _ = one.response()
            assert (status, headers["connection"]) == (408, "close")
            assert one.socket.recv(1) == b""


def test_connections_above_the_limit_are_refused(app, serving, connect, monkeypatch):
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 2)
    with serving(app) as client:
        clients = [connect(client) for _ in range(5)]
        for one, status in zip(clients, (200, 200, 503, 503), strict=False):
            one.send("GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.response()[0] == status
        with suppress(ConnectionResetError):
            assert clients[4].socket.recv(1) == b""


def test_a_client_that_does_not_read_is_dropped(app, serving, connect, monkeypatch, eventually):
    monkeypatch.setattr(listening, "SEND_SECONDS", 0.2)
    app.get("/api/huge")(lambda: "x" * 50_000_000)
    with serving(app) as client:
        one = connect(client)
        one.send("GET /api/huge HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one.socket.recv(1) == b"H"
        eventually(lambda: not client.server.server_state.connections)


@pytest.mark.parametrize(
    "body", [{"number": True}, {"number": "5"}, {"number": 5.0}, {"number": 1, "share": "1"}]
)
def test_types_are_strict(app, serving, body):
    with serving(app) as client:
        assert client.refused("/api/double", body).startswith(list(body)[-1])
        assert client.found("/api/double", {"number": 5, "share": 1}) == {"number": 10}


def test_a_token_is_needed_where_one_is_set(app, serving, connect):
    with serving(app, token="geheim ü") as client:
        assert client("/api/health")[0] == client("/")[0] == 200
        for path in ("/api/about", "/openapi.json", "/nowhere"):
            assert client(path)[0] == 401
        for given, status in (
            ("Bearer geheim ü", 200),
            ("bearer geheim ü", 200),
            ("Bearer geheim", 401),
            ("Basic geheim ü", 401),
            ("Bearer", 401),
        ):
            one = connect(client)
            one.send(f"GET /api/about HTTP/1.1\r\nHost: localhost\r\nAuthorization: {given}\r\n\r\n")
            found, headers, _ = one.response()
            assert found == status
            assert status == 200 or headers["www-authenticate"] == "Bearer"


def test_the_description_lists_every_error(app, serving):
    with serving(app) as client:
        described = client.found("/openapi.json")["paths"]
    for methods in described.values():
        for operation in methods.values():
            assert {"401", "408", "413", "422", "503", "504"} <= operation["responses"].keys()
            schema = operation["responses"]["422"]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorReply"}
