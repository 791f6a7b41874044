"""A server as a process, and a connection to it over stdio or HTTP, with what it costs.

Blocking and without our own client: a measure of compat must not change with what it measures. Linux only: processor
time and memory of another process are read as Linux offers them.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from trunkline.protocol.revisions import NEWEST_HANDSHAKE

__all__ = ["Connection", "ConnectionLost", "HttpConnection", "HttpResponse", "ServerProcess", "StdioConnection"]

#: How long a server may take to answer, in seconds; a busy machine starts some frameworks in twenty.
TIMEOUT = 120.0
_METHOD_NOT_FOUND = -32601


class ConnectionLost(Exception):
    """The server ended, or did not answer in time."""


class ServerProcess:
    """A started server: its streams, and what it has cost so far."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], folder: Path, *, over_stdio: bool) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.started_at = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            # A server that listens writes its log there, and nothing reads it.
            stdout=subprocess.PIPE if over_stdio else subprocess.DEVNULL,
            stderr=self._errors,
            env=dict(env),
            cwd=folder,
            bufsize=0,
            start_new_session=True,
        )

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """Standard input and output of a server over stdio."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def cpu_seconds(self) -> float:
        """Return the processor time of the process so far, user and system, its ended threads included."""
        # Linux numbers the clock of another process after its id; /proc/PID/stat has only hundredths of a second.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def peak_memory(self) -> int:
        """Return the highest resident memory so far, in KiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii", errors="replace")
        return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)

    def error_tail(self) -> str:
        """Return the last lines the server wrote to stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-4:])

    def close(self) -> None:
        """End the process: by the end of its input, then by a signal."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        for signal_process in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(120)
                break
            except subprocess.TimeoutExpired:
                signal_process()
        self._process.wait(120)
        self._errors.close()


class Connection(ABC):
    """A session with a server: requests and their answers, one after the other."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self._last_id = 0

    @abstractmethod
    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the response to it."""

    @abstractmethod
    def _send(self, message: dict[str, Any]) -> None:
        """Send a message that has no response."""

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the response to a request: a message with ``result`` or ``error``."""
        self._last_id += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self._last_id, "method": method}
        if params is not None:
            message["params"] = params
        return self._exchange(message)

    def initialize(self) -> dict[str, Any]:
        """Open the session and return what the server is."""
        capabilities = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
        params = {
            "protocolVersion": NEWEST_HANDSHAKE.name,
            "capabilities": capabilities,
            "clientInfo": {"name": "compat-servers", "version": "1"},
        }
        response = self.request("initialize", params)
        if "result" not in response:
            raise ConnectionLost(f"initialize failed: {response.get('error')}")
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return dict(response["result"])

    def close(self) -> None:
        """End the session and the server."""
        self.process.close()


class StdioConnection(Connection):
    """A session over the streams of a process."""

    def __init__(self, process: ServerProcess) -> None:
        super().__init__(process)
        self._buffer = bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(process.streams[1], selectors.EVENT_READ)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self.process.streams[0].write(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ConnectionLost(f"the server ended | {self.process.error_tail()}") from error

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self._send(message)
        deadline = time.monotonic() + TIMEOUT
        while True:
            received = self._next_message(deadline)
            if "method" in received and "id" in received:
                error = {"code": _METHOD_NOT_FOUND, "message": "not offered by this client"}
                self._send({"jsonrpc": "2.0", "id": received["id"], "error": error})
            elif received.get("id") == message["id"]:
                return received

    def _next_message(self, deadline: float) -> dict[str, Any]:
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                if line.strip().startswith(b"{"):
                    return dict(json.loads(line))
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise ConnectionLost(f"no answer in {TIMEOUT:g} s | {self.process.error_tail()}")
            chunk = os.read(self.process.streams[1].fileno(), 1 << 16)
            if not chunk:
                raise ConnectionLost(f"the server ended | {self.process.error_tail()}")
            self._buffer += chunk

    def close(self) -> None:
        """End the session and the server."""
        self._selector.close()
        super().close()


class HttpResponse(NamedTuple):
    """What an endpoint answered."""

    status: int
    headers: Mapping[str, str]
    body: str


class HttpConnection(Connection):
    """A session with an endpoint of a process that listens on this machine."""

    def __init__(self, process: ServerProcess, url: str, token: str) -> None:
        super().__init__(process)
        self._parts = urlsplit(url)
        self._token = token
        self._session: str | None = None
        self._client: http.client.HTTPConnection | None = None

    def wait_until_listening(self) -> None:
        """Wait until the port accepts connections."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            if self.process.has_ended or time.monotonic() > deadline:
                raise ConnectionLost(f"nothing listens at {self._parts.geturl()} | {self.process.error_tail()}")
            client = http.client.HTTPConnection(self._parts.netloc, timeout=TIMEOUT)
            try:
                client.connect()
                self._client = client
                return
            except OSError:
                time.sleep(0.01)

    def post(self, message: Mapping[str, Any], token: str | None) -> HttpResponse:
        """Send a message and return the endpoint's response, whatever its status is."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
            headers["MCP-Protocol-Version"] = NEWEST_HANDSHAKE.name
        client = self._client or http.client.HTTPConnection(self._parts.netloc, timeout=TIMEOUT)
        self._client = client
        try:
            client.request("POST", self._parts.path, json.dumps(message), headers)
            response = client.getresponse()
            body = response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            client.close()
            raise ConnectionLost(f"no answer: {error!r} | {self.process.error_tail()}") from error
        return HttpResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, body)

    def _send(self, message: dict[str, Any]) -> None:
        self.post(message, self._token)

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        response = self.post(message, self._token)
        if response.status != 200:
            raise ConnectionLost(f"HTTP {response.status}: {response.body[:200]} | {self.process.error_tail()}")
        self._session = response.headers.get("mcp-session-id", self._session)
        for line in response.body.splitlines():
            data = line.removeprefix("data:").strip()
            if data.startswith("{"):
                received = json.loads(data)
                if received.get("id") == message["id"] and "method" not in received:
                    return dict(received)
        raise ConnectionLost(f"no response in the body: {response.body[:200]}")

    def close(self) -> None:
        """End the session and the server."""
        if self._client is not None:
            self._client.close()
        super().close()
