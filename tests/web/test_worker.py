"""The worker of a server: what waits, what is computed together, and what is given up."""

import json

import pytest

from latentalign.web.worker import MOST_TOGETHER


def waiting(app) -> int:
    return len(app.state.worker._waiting)


def test_the_server_answers_while_everything_waits(app, slow, serving, connect, eventually):
    with serving(app) as client:
        clients = [connect(client) for _ in range(20)]
        for number, one in enumerate(clients):
            one.post("/api/slow", {"number": number})
        eventually(lambda: waiting(app) == 19)
        assert client.found("/api/health") == {"status": "ok"}
        assert client.found("/api/about") == {"title": "test"}
        slow.go.set()
        for number, one in enumerate(clients):
            assert one.response()[::2] == (200, b'{"number":%d}' % number)


def test_a_full_queue_refuses_and_says_when_to_come_back(app, slow, serving, connect, eventually):
    app.state.worker.most_waiting = 2
    with serving(app) as client:
        clients = [connect(client) for _ in range(3)]
        clients[0].post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        for one in clients[1:]:
            one.post("/api/slow", {"number": 1})
        eventually(lambda: waiting(app) == 2)
        late = connect(client)
        late.post("/api/slow", {"number": 2})
        status, headers, content = late.response()
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(content) == {"error": "2 requests are waiting already; try again later"}
        slow.go.set()
        assert [one.response()[0] for one in clients] == [200, 200, 200]


def test_a_computation_ends_when_its_client_is_gone(app, slow, serving, connect):
    with serving(app) as client:
        one = connect(client)
        one.post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        one.close()
        assert slow.ended.wait(10)
        assert not slow.go.is_set()
        assert client.found("/api/double", {"number": 4}) == {"number": 8}  # the worker is free again


def test_a_client_that_leaves_the_queue_gives_up_its_place(app, slow, serving, connect, eventually):
    with serving(app) as client:
        first, second = connect(client), connect(client)
        first.post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        second.post("/api/slow", {"number": 1})
        eventually(lambda: waiting(app) == 1)
        second.close()
        eventually(lambda: waiting(app) == 0)
        slow.go.set()
        assert first.response()[0] == 200
        assert slow.calls == [[0]]


def test_a_deadline_ends_the_wait_and_the_computation(app, slow, serving):
    with serving(app, deadline=0.2) as client:
        status, content = client("/api/slow", {"number": 0})
        assert status == 504
        assert json.loads(content)["error"].startswith("no result within 0.2 seconds")
        assert slow.ended.wait(10)
        assert not slow.go.is_set()


def test_waiting_requests_with_the_same_options_are_computed_together(
    app, slow, serving, connect, eventually
):
    app.state.worker.most_waiting = 2 * MOST_TOGETHER
    with serving(app) as client:
        clients = [connect(client) for _ in range(MOST_TOGETHER + 6)]
        clients[0].post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        for number, one in enumerate(clients[1:], start=1):
            one.post("/api/together", {"number": number, "share": 0.5 if number == 2 else 0.0})
            eventually(lambda number=number: waiting(app) == number)
        slow.go.set()
        for number, one in enumerate(clients):
            assert one.response()[::2] == (200, b'{"number":%d}' % number)
    together = [number for number in range(1, len(clients)) if number != 2]
    assert slow.calls == [[0], together[:MOST_TOGETHER], [2], together[MOST_TOGETHER:]]


def test_one_bad_request_does_not_spoil_the_others_of_its_batch(app, slow, serving, connect, eventually):
    with serving(app) as client:
        clients = [connect(client) for _ in range(4)]
        clients[0].post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        for number, one in zip((1, -2, 3), clients[1:], strict=True):
            one.post("/api/together", {"number": number})
        eventually(lambda: waiting(app) == 3)
        slow.go.set()
        assert [one.response()[0] for one in clients] == [200, 200, 422, 200]


def test_a_batch_goes_on_for_those_who_stay(app, slow, serving, connect, eventually):
    with serving(app) as client:
        clients = [connect(client) for _ in range(3)]
        clients[0].post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        for number, one in enumerate(clients[1:], start=1):
            one.post("/api/together", {"number": number})
        eventually(lambda: waiting(app) == 2)
        clients[0].close()  # frees the worker for the batch
        eventually(lambda: len(slow.calls) == 2)
        clients[1].close()
        assert client.found("/api/health") == {"status": "ok"}
        slow.go.set()
        assert clients[2].response()[::2] == (200, b'{"number":2}')
    assert sorted(slow.calls[1]) == [1, 2]


@pytest.mark.parametrize("ends_in_time", [True, False])
def test_accepted_requests_are_answered_when_the_server_ends(
    app, slow, serving, connect, eventually, ends_in_time
):
    with serving(app) as client:
        running, queued, half = connect(client), connect(client), connect(client)
        running.post("/api/slow", {"number": 0})
        assert slow.started.wait(10)
        queued.post("/api/slow", {"number": 1})
        half.send("POST /api/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        eventually(lambda: waiting(app) == 1)
        if ends_in_time:
            app.state.worker._closed = True  # as at the start of the end, so that `go` comes afterwards
            slow.go.set()
    assert running.response()[0] == (200 if ends_in_time else 503)
    status, _, content = queued.response()
    assert (status, json.loads(content)) == (503, {"error": "the server is ending"})
    assert half.response()[0] == 503
    assert app.state.worker.join(10)


def test_a_bug_is_an_error_in_json_and_in_the_log(app, serving, capfd):
    with serving(app) as client:
        status, content = client("/api/bug", {})
        assert status == 500
        assert json.loads(content)["error"].startswith("internal error (ZeroDivisionError)")
        assert client.found("/api/double", {"number": 4}) == {"number": 8}
    assert "ZeroDivisionError" in capfd.readouterr().err
