"""What a flow asks of whoever drives it: to fetch something, to receive a redirect, to send the user to a page.

A flow is a generator: it yields one of these and is sent what came of it. It opens no connection and no browser, so a
test feeds it by hand, and ``drive`` is the only file that does what is asked for.
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
from trunkline.net import Fetched

__all__ = ["Answer", "Fetch", "Flow", "Receive", "Sources", "Step", "Visit", "get", "post_form", "post_json", "shown"]

T = TypeVar("T")
_SHOWN = 300


class Fetch(Struct, frozen=True):
    """Send an HTTP request and give the answer, whatever its status, or the failure."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None

    def __repr__(self) -> str:
        """Show no header and no body: both may hold secrets."""
        return f"Fetch({self.method} {self.url})"


class Receive(Struct, frozen=True):
    """Be ready for the redirect that ends a login; give the URI that it will come to."""

    #: The one to use if it can be had; whoever registered with it need not do so again.
    preferred: str | None = None


class Visit(Struct, frozen=True):
    """Send the user to a page of the authorization server; give the query of the redirect that comes back."""

    url: str
    #: What the redirect has to carry; another one is not the answer to this visit.
    state: str = ""


def _token() -> str:
    return secrets.token_urlsafe(32)


class Sources(Struct, frozen=True):
    """Where a flow's time and chance come from; tests bring their own."""

    #: Gives the seconds since 1970.
    now: Callable[[], float] = time.time
    #: Gives a text that nobody can guess: 256 bits, safe in URLs.
    token: Callable[[], str] = _token


Step: TypeAlias = Fetch | Receive | Visit
#: To a Fetch an answer or the failure, to a Receive a URI, to a Visit the parameters of the redirect.
Answer: TypeAlias = Fetched | FetchError | str | Mapping[str, str]
Flow: TypeAlias = Generator[Step, Answer, T]

_ACCEPT: Mapping[str, str] = MappingProxyType({"Accept": "application/json"})


def get(url: str) -> Flow[Fetched | FetchError]:
    """Fetch a document."""
    answer = yield Fetch("GET", url, _ACCEPT)
    assert isinstance(answer, Fetched | FetchError)
    return answer


def post_form(
    url: str, form: Mapping[str, str], *, headers: Mapping[str, str] | None = None
) -> Flow[Fetched | FetchError]:
    """Send a form."""
    head = {**_ACCEPT, "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    answer = yield Fetch("POST", url, head, urlencode(form).encode())
    assert isinstance(answer, Fetched | FetchError)
    return answer


def post_json(url: str, body: bytes) -> Flow[Fetched | FetchError]:
    """Send a JSON document."""
    answer = yield Fetch("POST", url, {**_ACCEPT, "Content-Type": "application/json"}, body)
    assert isinstance(answer, Fetched | FetchError)
    return answer


def shown(text: str) -> str:
    """Give what another party wrote as a message may repeat it: on one line, and not all of a long one."""
    return "".join(char if char.isprintable() else " " for char in text)[:_SHOWN].strip()
