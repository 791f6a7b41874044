"""The steps that a flow yields to its driver: fetch a URL, listen for a redirect, send the user to a page.

A flow is a generator: it yields a step and is sent the result. It opens no connection and no browser, so a test can
feed it by hand, and ``driver`` is the only file that performs the steps.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from trunkline.errors import FetchError
from trunkline.net import FetchResponse

__all__ = [
    "ClockAndRandom",
    "Fetch",
    "Flow",
    "ListenForRedirect",
    "Step",
    "StepResult",
    "VisitPage",
    "get",
    "post_form",
    "post_json",
    "printable_excerpt",
]

T = TypeVar("T")
_SHOWN = 300  # An error description of a server is shown in one or two lines.


class Fetch(Struct, frozen=True):
    """Send an HTTP request; the result is the response, whatever its status, or the error."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None

    def __repr__(self) -> str:
        """Show no header and no body: both may hold secrets."""
        return f"Fetch({self.method} {self.url})"


class ListenForRedirect(Struct, frozen=True):
    """Start listening for the redirect that ends a login; the result is the redirect URI."""

    #: The URI to use if possible: a client that is registered with it need not register again.
    preferred: str | None = None


class VisitPage(Struct, frozen=True):
    """Send the user to a page of the authorization server; the result is the query of the redirect."""

    url: str
    #: The state that the redirect must carry; one with another state does not belong to this step.
    state: str = ""


def _token() -> str:
    return secrets.token_urlsafe(32)


class ClockAndRandom(Struct, frozen=True):
    """The clock and random source of a flow; tests supply their own."""

    #: Returns the seconds since 1970.
    now: Callable[[], float] = time.time
    #: Returns an unguessable string of 256 bits, safe in URLs.
    token: Callable[[], str] = _token


Step: TypeAlias = Fetch | ListenForRedirect | VisitPage
#: For Fetch the response or the error, for ListenForRedirect a URI, for VisitPage the parameters of the redirect.
StepResult: TypeAlias = FetchResponse | FetchError | str | Mapping[str, str]
Flow: TypeAlias = Generator[Step, StepResult, T]

_ACCEPT: Mapping[str, str] = MappingProxyType({"Accept": "application/json"})


def get(url: str) -> Flow[FetchResponse | FetchError]:
    """Fetch a document."""
    answer = yield Fetch("GET", url, _ACCEPT)
    assert isinstance(answer, FetchResponse | FetchError)
    return answer


def post_form(
    url: str, form: Mapping[str, str], *, headers: Mapping[str, str] | None = None
) -> Flow[FetchResponse | FetchError]:
    """Post a form."""
    head = {**_ACCEPT, "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    answer = yield Fetch("POST", url, head, urlencode(form).encode())
    assert isinstance(answer, FetchResponse | FetchError)
    return answer


def post_json(url: str, body: bytes) -> Flow[FetchResponse | FetchError]:
    """Post a JSON document."""
    answer = yield Fetch("POST", url, {**_ACCEPT, "Content-Type": "application/json"}, body)
    assert isinstance(answer, FetchResponse | FetchError)
    return answer


def printable_excerpt(text: str) -> str:
    """Return a remote party's text in a form that an error message may contain: one line, printable, shortened."""
    return "".join(char if char.isprintable() else " " for char in text)[:_SHOWN].strip()
