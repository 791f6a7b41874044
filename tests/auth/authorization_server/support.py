"""Drives an authorization server in this process: a browser with cookies, a client with PKCE, third-party documents."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.auth.authorization_server.settings import hash_password
from trunkline.errors import LinkError
from trunkline.net import FetchResponse
from trunkline.store.interface import Commit, Delete, Put, Step, Store
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.server_store import ServerStore

__all__ = [
    "CALLBACK",
    "FILES",
    "ISSUER",
    "KEYS",
    "OWN_RECORDS",
    "PASSWORD",
    "RESOURCE",
    "SHARED",
    "VERIFIER",
    "Browser",
    "Clock",
    "Contents",
    "Documents",
    "FileEngine",
    "OpenFile",
    "OwnEngine",
    "PublicEngine",
    "Response",
    "Start",
    "ask",
    "authorize_url",
    "exchange",
    "in_turn",
    "make_server",
    "register",
    "server_store",
    "written",
    "written_values",
]

ISSUER = "https://auth.example.com"
RESOURCE = "https://auth.example.com/mcp"
CALLBACK = "https://app.example.net/callback"
VERIFIER = "a-verifier-that-is-long-enough-to-be-one-0123456789"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
PASSWORD = "correct horse"
SCOPES = {"files:read": "Read your files", "files:write": "Change your files"}
_HASHED = hash_password(PASSWORD)


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Documents:
    """Stands for the guarded client: what is at which address, and what was asked for."""

    def __init__(self, found: Mapping[str, object] | None = None) -> None:
        self.found = dict(found or {})
        self.asked: list[str] = []
        self.sent: list[dict[str, str]] = []
        self.options: list[dict[str, Any]] = []
        self.headers = {"content-type": "application/json"}

    async def fetch(self, method: str, url: str, **options: Any) -> FetchResponse:
        self.asked.append(f"{method} {url}")
        self.options.append(options)
        self.sent.append(dict(parse_qsl((options.get("body") or b"").decode())))
        if url not in self.found:
            raise LinkError("nothing is there")
        found = self.found[url]
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return FetchResponse(status=200, headers=self.headers, body=body, url=url)

    async def aclose(self) -> None:
        self.asked.append("closed")


class Response:
    """An answer, with its parts at hand."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = {name.decode(): value.decode() for name, value in headers}
        self.cookies = [value.decode() for name, value in headers if name == b"set-cookie"]
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.body)
        return read

    @property
    def location(self) -> str:
        return self.headers["location"]

    @property
    def answer(self) -> dict[str, str]:
        """The parameters that a redirect brings."""
        pairs = parse_qsl(urlsplit(self.location).query)
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    @property
    def sealed(self) -> str:
        """The hidden field of a page that asks."""
        found = re.search(r'name="request" value="([^"]+)"', self.text)
        assert found is not None
        return html.unescape(found[1])


async def ask(
    app: Any,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    lines: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    address: str = "192.0.2.1",
) -> Response:
    """Send one request to an application, as an ASGI server would."""
    parts = urlsplit(url)
    given = {"host": parts.netloc, "content-length": str(len(body)), **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": parts.path,
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (*given.items(), *lines)],
        "client": (address, 40000),
        "server": (parts.hostname, parts.port or 443),
        "scheme": parts.scheme,
        "root_path": "",
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Response(sent[0]["status"], list(sent[0]["headers"]), b"".join(each["body"] for each in sent[1:]))


class Browser:
    """A person's browser: keeps cookies, says where its requests come from."""

    def __init__(self, app: Any, issuer: str = ISSUER) -> None:
        self.app = app
        self.issuer = issuer
        self.jar: dict[str, str] = {}
        self.client_id = ""

    async def get(self, url: str, *, site: str | None = "cross-site") -> Response:
        headers = {} if site is None else {"sec-fetch-site": site}
        return await self._ask("GET", url, headers)

    async def visit(self, *, site: str | None = "cross-site", **changes: Any) -> Response:
        """Open the consent page of a client that is registered at the first visit."""
        self.client_id = self.client_id or (await register(self.app, self.issuer))["client_id"]
        return await self.get(authorize_url(self.client_id, self.issuer, **changes), site=site)

    async def post(
        self, fields: Mapping[str, str], *, origin: str | None = None, site: str | None = "same-origin"
    ) -> Response:
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": origin or self.issuer}
        headers |= {} if site is None else {"sec-fetch-site": site}
        return await self._ask("POST", f"{self.issuer}/authorize", headers, urlencode(fields).encode())

    async def allow(self, page: Response, *, name: str = "ada", password: str = PASSWORD, **more: str) -> Response:
        """Sign in and allow."""
        return await self.post(
            {"request": page.sealed, "decision": "allow", "name": name, "password": password, **more}
        )

    async def _ask(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> Response:
        if self.jar:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.jar.items())
        response = await ask(self.app, method, url, headers=headers, body=body)
        for cookie in response.cookies:
            name, _, rest = cookie.partition("=")
            self.jar[name] = rest.partition(";")[0]
        return response


S = TypeVar("S", bound=AuthorizationServer)
#: Makes a server with these options, which is closed after the test.
Start = Callable[..., AuthorizationServer]
#: Whether servers use the store of a server beside them, which others can read; set by a fixture.
SHARED: ContextVar[bool] = ContextVar("shared", default=False)
#: For tests of what does not depend on where the records are.
OWN_RECORDS = pytest.mark.parametrize("records", ["own"], indirect=True)
KEYS = (b"k" * 32,)


class Contents(MemoryContents):
    """The contents of a store in memory, with a copy of the values for tests of what is written."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__(now=now, random=os.urandom)
        self.written: dict[str, bytes] = {}


class OwnEngine(MemoryEngine):
    """A store in memory that only this process can read."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self._written = contents.written

    async def commit(self, *steps: Step) -> Commit:
        outcome = await super().commit(*steps)
        for step in steps if outcome.done else ():
            if isinstance(step, Put):
                self._written[step.key] = step.value
            elif isinstance(step, Delete):
                self._written.pop(step.key, None)
        return outcome


class PublicEngine(OwnEngine):
    """A store in memory that stands for Redis: it outlives a process, and others can read it."""

    durable = True
    private = False


def server_store(store: Store, keys: Sequence[bytes] = KEYS) -> ServerStore:
    """Return a store as a server passes it to its authentication."""
    return ServerStore(store, name="tests", keys=keys)


def make_server(**options: Any) -> AuthorizationServer:
    """Make a server in memory, with a store of its own or that of a server."""
    given = {"issuer": ISSUER, "scopes": SCOPES, "users": {"ada": _HASHED}, **options}
    return in_turn(AuthorizationServer, given)


def in_turn(kind: Callable[..., S], given: Mapping[str, Any]) -> S:
    """Make a server with a store of its own, or with that of a server, unless the options have one."""
    contents = Contents(given.get("clock", time.time))
    if "store" in given:
        return kind(**given)
    if not SHARED.get():
        return kind(**given, store=OwnEngine(contents))
    server = kind(**given)
    server._share(server_store(PublicEngine(contents)))
    return server


# --- files ------------------------------------------------------------------------------------------------------------


class FileEngine(OwnEngine):
    """A store in memory that stands for a file: opening the same path again opens the same contents."""

    durable = True
    opened: ClassVar[dict[str, Contents]] = {}

    def __init__(self, path: Path) -> None:
        super().__init__(self.opened.setdefault(str(path), Contents()))
        self._path = str(path)

    @property
    def path(self) -> str:
        return self._path


#: What ``store=`` is for a file.
FILES: Mapping[str, Callable[[Path], Any]] = {"memory": FileEngine, "sqlite": str}
OpenFile = Callable[[Path], Any]


def written_values(contents: Contents) -> list[bytes]:
    """Return the names and values that were written to a store."""
    return [*contents.written.values(), *map(str.encode, contents.written)]


def written(folder: Path) -> bytes:
    """Return all that was written to the stores of a folder, and to files beside them."""
    stores = [each for path, each in FileEngine.opened.items() if Path(path).parent == folder]
    values = [value for contents in stores for value in written_values(contents)]
    return b"".join([*values, *(path.read_bytes() for path in folder.iterdir())])


async def register(app: Any, issuer: str = ISSUER, **metadata: Any) -> dict[str, Any]:
    """Register a public client."""
    given = {
        "client_name": "Notes",
        "redirect_uris": [CALLBACK],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        **metadata,
    }
    headers = {"content-type": "application/json"}
    response = await ask(app, "POST", f"{issuer}/register", headers=headers, body=json.dumps(given).encode())
    assert response.status == 201, response.text
    return response.json


def authorize_url(client_id: str | None, issuer: str = ISSUER, **changes: Any) -> str:
    """Write the address a client sends a person to; None leaves a parameter out."""
    parameters: dict[str, str | None] = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": CALLBACK,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "st4te",
        "scope": "files:read",
        "resource": RESOURCE,
        **changes,
    }
    return f"{issuer}/authorize?" + urlencode({name: text for name, text in parameters.items() if text is not None})


async def exchange(app: Any, issuer: str = ISSUER, *, path: str = "token", auth: str = "", **form: Any) -> Response:
    """Ask the token endpoint."""
    headers = {"content-type": "application/x-www-form-urlencoded"} | ({"authorization": auth} if auth else {})
    body = urlencode({name: text for name, text in form.items() if text is not None}).encode()
    return await ask(app, "POST", f"{issuer}/{path}", headers=headers, body=body)
