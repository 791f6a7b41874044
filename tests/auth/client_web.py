"""A made-up web for the flows of a client: documents by URL, token endpoints that answer by script, and a user.

Everything a flow asks for is written down, so that a test can say what left and what did not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from trunkline.auth.jose import ProofKey
from trunkline.auth.login_flow import LoginRequest, log_in
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import ClockAndRandom, Fetch, Flow, ListenForRedirect, VisitPage
from trunkline.auth.tokens import Login
from trunkline.auth.www_authenticate import TokenChallenge
from trunkline.errors import FetchError
from trunkline.net import FetchResponse

__all__ = ["ISSUER", "PRM", "REDIRECT", "SERVER", "Web", "answer", "enter", "html", "metadata", "play", "resource"]

T = TypeVar("T")
SERVER = "https://mcp.example.com/mcp"
PRM = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
ISSUER = "https://auth.example.com"
REDIRECT = "http://127.0.0.1:4321/callback"
NOW = 1_700_000_000.0


def answer(body: Any, status: int = 200, **headers: str) -> FetchResponse:
    """An answer as the network would give it."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FetchResponse(status, {"content-type": "application/json", **headers}, sent, "")


def html(text: str = "<html>", status: int = 200) -> FetchResponse:
    return FetchResponse(status, {"content-type": "text/html; charset=utf-8"}, text.encode(), "")


def resource(**changes: Any) -> dict[str, Any]:
    """The metadata of the server; None takes a member away."""
    return _changed({"resource": SERVER, "authorization_servers": [ISSUER]}, changes)


def metadata(issuer: str = ISSUER, **changes: Any) -> dict[str, Any]:
    """The metadata of the authorization server; None takes a member away."""
    said = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "authorization_response_iss_parameter_supported": True,
    }
    return _changed(said, changes)


def _changed(said: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**said, **changes}.items() if value is not None}


class Web:
    """What is where, and what was asked for."""

    def __init__(
        self, pages: Mapping[str, Any] | None = None, *, redirect: Mapping[str, str | None] | None = None
    ) -> None:
        #: Documents, answers, lists of answers to be given one after another, or failures.
        self.pages: dict[str, Any] = {
            PRM: resource(),
            f"{ISSUER}/.well-known/oauth-authorization-server": metadata(),
            f"{ISSUER}/register": answer({"client_id": "registered"}, 201),
            f"{ISSUER}/token": {"access_token": "token-1", "token_type": "Bearer", "expires_in": 3600},
            **(pages or {}),
        }
        self.redirect = redirect or {}
        self.fetched: list[Fetch] = []
        self.visited: list[dict[str, str]] = []

    def fetch(self, step: Fetch) -> FetchResponse | FetchError:
        self.fetched.append(step)
        found = self.pages.get(step.url, answer({}, 404))
        if isinstance(found, list):
            found = found.pop(0)
        return found if isinstance(found, FetchResponse | FetchError) else answer(found)

    async def fetch_later(self, step: Fetch) -> FetchResponse:
        """The same as an authorizer wants it."""
        found = self.fetch(step)
        if isinstance(found, FetchError):
            raise found
        return found

    def visit(self, url: str) -> dict[str, str]:
        """Play the user who approves, and the authorization server that sends them back."""
        query = dict(parse_qsl(urlsplit(url).query))
        self.visited.append({**query, ":page": url.partition("?")[0]})
        page = urlsplit(url)
        back = {"code": "code-1", "state": query["state"], "iss": f"{page.scheme}://{page.netloc}", **self.redirect}
        return {name: value for name, value in back.items() if value is not None}

    @property
    def urls(self) -> list[str]:
        return [step.url for step in self.fetched]

    def sent(self, ending: str) -> list[dict[str, str]]:
        """The forms that were posted to URLs with this ending."""
        return [
            dict(parse_qsl((step.body or b"").decode()))
            for step in self.fetched
            if step.method == "POST" and step.url.endswith(ending)
        ]

    def registrations(self) -> list[dict[str, Any]]:
        return [json.loads(step.body or b"") for step in self.fetched if step.url.endswith("/register")]

    def heads(self, ending: str) -> list[dict[str, str]]:
        return [dict(step.headers) for step in self.fetched if step.method == "POST" and step.url.endswith(ending)]


def play(flow: Flow[T], web: Web, *, redirect_uri: str = REDIRECT) -> T:
    """Feed a flow by hand until it ends."""
    try:
        step = next(flow)
        while True:
            match step:
                case Fetch():
                    step = flow.send(web.fetch(step))
                case ListenForRedirect():
                    step = flow.send(step.preferred or redirect_uri)
                case VisitPage():
                    step = flow.send(web.visit(step.url))
    except StopIteration as end:
        result: T = end.value
        return result


def counted() -> Callable[[], str]:
    numbers = iter(range(1, 1000))
    return lambda: f"chance-{next(numbers):036d}"


def enter(
    web: Web, options: OAuth | None = None, *, url: str = SERVER, challenge: TokenChallenge | None = None, **more: Any
) -> tuple[Login, ProofKey | None]:
    """Play a whole login."""
    sources = ClockAndRandom(lambda: NOW, counted())
    wish = LoginRequest(
        url=url, challenge=challenge or TokenChallenge(), options=options or OAuth(), sources=sources, **more
    )
    return play(log_in(wish), web)
