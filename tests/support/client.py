"""A client of the servers under test."""

from __future__ import annotations

import json
import urllib.error
import urllib.request


class Client:
    """Sends requests to a server under test."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, path: str, body=None) -> tuple[int, bytes]:
        """Status and content of the response; a body is posted as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read()
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
