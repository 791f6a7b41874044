"""A protected server and its authorization server on one port of this machine, scripted, over real sockets."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp

from tests.transports.http.scripted_http import Got, HttpScript, Status

__all__ = ["Site", "browse"]


async def browse(url: str) -> None:
    """Play a browser whose user approves: it goes wherever it is sent, and ends on the page of the program."""
    async with aiohttp.ClientSession() as session, session.get(url) as page:
        assert page.status == 200
        assert "You are logged in" in await page.text()


def _json(said: Any, status: int = 200) -> Status:
    return Status(status, json.dumps(said).encode(), {}, "application/json")


class Site(HttpScript):
    """A script that accepts the tokens it issued."""

    def __init__(self, table: HttpScript, *, life: int = 3600) -> None:
        """Protect what another script would answer."""
        super().__init__(table.table)
        self.life = life
        self.given: list[str] = []
        self.valid: set[str] = set()
        self.refused = 0
        #: What the token endpoint answers instead, one after another.
        self.token_answers: list[Status] = []
        self.challenge = 'Bearer resource_metadata="{origin}/.well-known/oauth-protected-resource/mcp"'

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    def asked(self, path: str) -> list[Got]:
        """The requests for a path."""
        return [got for got in self.requests if urlsplit(got.path).path == path]

    def of(self, name: str) -> list[Got]:
        """The requests to the server itself with a method or verb."""
        return [got for got in self.asked("/mcp") if name in (got.method, got.verb)]

    def _answer(self, got: Got) -> Any:
        path = urlsplit(got.path).path
        if path != "/mcp":
            page = getattr(
                self, "_page_" + path.strip("/.").replace("/", "_").replace("-", "_").replace(".", "_"), None
            )
            return _json({}, 404) if page is None else page(got)
        if got.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            self.refused += 1
            return Status(401, b"", {"WWW-Authenticate": self.challenge.format(origin=self.origin)})
        return super()._answer(got)

    def revoke(self) -> None:
        """Reject all tokens issued so far."""
        self.valid.clear()

    def _page_well_known_oauth_protected_resource_mcp(self, got: Got) -> Status:
        return _json({"resource": self.url, "authorization_servers": [self.origin]})

    def _page_well_known_oauth_authorization_server(self, got: Got) -> Status:
        return _json(
            {
                "issuer": self.origin,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "registration_endpoint": f"{self.origin}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    def _page_register(self, got: Got) -> Status:
        return _json({"client_id": "registered"}, 201)

    def _page_authorize(self, got: Got) -> Status:
        query = dict(parse_qsl(urlsplit(got.path).query))
        back = urlencode({"code": "code-1", "state": query["state"], "iss": self.origin})
        return Status(302, b"", {"Location": f"{query['redirect_uri']}?{back}"})

    def _page_token(self, got: Got) -> Status:
        if self.token_answers:
            return self.token_answers.pop(0)
        token = f"token-{len(self.given) + 1}"
        self.given.append(token)
        self.valid.add(token)
        said = {"access_token": token, "token_type": "Bearer", "expires_in": self.life, "refresh_token": "refresh"}
        return _json(said)
