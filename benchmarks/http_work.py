"""The work over HTTP: raw requests of both revisions, ready to be written to a socket.

Knows the wire and nothing of processes, sockets or clocks. A request carries `MARK` where its id stands, for the load
driver to put a new one there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.work import CLIENT, HANDSHAKE, META

if TYPE_CHECKING:
    from benchmarks.work import Work

__all__ = ["MARK", "NOTICE", "HttpRequests"]

# Twelve digits, so that every number counted up from it is as wide.
MARK = 100_000_000_000
NOTICE = b"notifications/tools/list_changed"
PROGRESS_TOKEN = 1


class HttpRequests:
    """Makes the requests to one server in one revision."""

    def __init__(self, revision: str, *, port: int, path: str = "/mcp", token: str | None = None) -> None:
        self.revision = revision
        self._host = f"127.0.0.1:{port}"
        self.handshake = revision == HANDSHAKE
        self._path = path
        self._token = token

    def initialize(self) -> bytes:
        """Give the request that opens a session."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
        return self._post({"id": 0, "method": "initialize", "params": params})

    def initialized(self, session: str | None) -> bytes:
        """Give the notification that makes a session ready."""
        return self._post({"method": "notifications/initialized"}, session=session)

    def call(self, work: Work, session: str | None) -> bytes:
        """Give a call with `MARK` for its id."""
        return self.call_tool(str(work.tool), work.params(MARK)["arguments"], session=session)

    def call_tool(self, name: str, arguments: dict[str, Any], *, session: str | None, progress: bool = False) -> bytes:
        """Give a call of any tool with `MARK` for its id, asking for progress or not."""
        meta: dict[str, Any] = {"progressToken": PROGRESS_TOKEN} if progress else {}
        params = {"name": name, "arguments": arguments} | ({"_meta": meta} if meta else {})
        return self._post({"id": MARK, "method": "tools/call", "params": params}, session=session)

    def list_tools(self, session: str | None) -> bytes:
        """Give the request for the list of tools."""
        return self._post({"id": MARK, "method": "tools/list", "params": {}}, session=session)

    def stream(self, session: str | None) -> bytes:
        """Give the request that opens a stream of changes: GET in a session, `subscriptions/listen` without."""
        if not self.handshake:
            params = {"notifications": {"toolsListChanged": True}}
            return self._post({"id": MARK, "method": "subscriptions/listen", "params": params})
        return self._request("GET", {"Accept": "text/event-stream"}, b"", session=session)

    def _post(self, message: dict[str, Any], *, session: str | None = None) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if not self.handshake:
            params = message["params"]
            message = message | {"params": params | {"_meta": META | params.get("_meta", {})}}
            headers |= {"Mcp-Method": message["method"]} | ({"Mcp-Name": params["name"]} if "name" in params else {})
        body = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":")).encode()
        return self._request("POST", headers | {"Content-Length": str(len(body))}, body, session=session)

    def _request(self, verb: str, headers: dict[str, str], body: bytes, *, session: str | None) -> bytes:
        headers = {"Host": self._host, "MCP-Protocol-Version": self.revision} | headers
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if session is not None:
            headers["Mcp-Session-Id"] = session
        lines = (f"{verb} {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()))
        return "\r\n".join((*lines, "\r\n")).encode() + body
