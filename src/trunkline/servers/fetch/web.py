"""Fetching a page for a model: robots.txt first, then the page, and its text in readable form.

All traffic goes through the guarded fetcher, including robots.txt and each redirect. This module knows nothing of tools
and prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from trunkline.errors import FetchError, ToolError
from trunkline.net.addresses import NotPublic
from trunkline.net.urls import Target, parse_target
from trunkline.servers.fetch.decoding import binary_type, kind_of, read_text
from trunkline.servers.fetch.markdown import html_to_markdown
from trunkline.servers.fetch.robots import MAX_ROBOTS_BYTES, Robots, Rule, product_of, read_robots
from trunkline.servers.wording import one_line

if TYPE_CHECKING:
    from trunkline.net.fetcher import Fetched, Fetcher, Resolve

__all__ = ["Page", "Web", "shown_address"]

_MAX_URL = 8000
# A page being processed may take many times its size in memory.
_AT_ONCE = 16
# Converting a page is CPU-bound; more at once would only delay everything else.
_READ_AT_ONCE = 2
_REDIRECTS = 10
_ROBOTS_SECONDS = 10.0
_ROBOTS_REDIRECTS = 5
_KEPT_SECONDS, _KEPT_FAILURE_SECONDS = 600.0, 30.0
_KEPT_SITES = 256
_EMPTY = "<error>No text is left when this page is made readable; set raw to true to get its HTML.</error>"
_TOO_MUCH = "Not all of the page was read: it has too much markup, or its text is too long.\n"


class Page(Struct, frozen=True):
    """A page as returned to a model."""

    text: str
    #: A note to put before the text; may be empty.
    note: str


class _Kept(Struct, frozen=True):
    """The cached robots.txt of a site, with its expiry."""

    robots: Robots
    refusal: str | None
    until: float


class Web:
    """Fetches pages under one User-Agent."""

    def __init__(
        self,
        user_agent: str,
        *,
        obey_robots: bool,
        max_bytes: int,
        seconds: float,
        proxy: str | None = None,
        allow_local: bool = False,
        allow_hosts: Collection[str] = (),
        resolve: Resolve | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize with the settings; no connection is opened yet."""
        self._settings: dict[str, Any] = {
            "allow_private": allow_local,
            "allow_hosts": allow_hosts,
            "allow_http": True,
            "proxy": proxy,
            "resolve_proxied": True,
            "user_agent": user_agent,
            "resolve": resolve,
        }
        self._made: Fetcher | None = None
        self._product = product_of(user_agent)
        self._obey_robots = obey_robots
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._sites: OrderedDict[tuple[str, str, int], _Kept] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)

    async def page(self, url: str, *, raw: bool) -> Page:
        """Fetch a URL and return its text, as Markdown if it is HTML and not wanted raw.

        Raises:
            ToolError: the site or the address guard denies it, it could not be fetched, or it is not text.
        """
        if len(url) > _MAX_URL:
            raise ToolError(f"The URL has {len(url)} characters; at most {_MAX_URL} are taken.")
        async with self._turns:
            answer = await self._fetched(url)
            if answer.status >= 400:
                raise ToolError(f"{_place(answer.url)} answered with status {answer.status} instead of the page.")
            async with self._reading:
                return await asyncio.to_thread(_page_of, answer, raw=raw, max_chars=2 * self._max_bytes)

    @property
    def _fetcher(self) -> Fetcher:
        """The fetcher, created on first use."""
        if self._made is None:
            from trunkline.net.fetcher import Fetcher

            self._made = Fetcher(**self._settings)
        return self._made

    async def _fetched(self, url: str) -> Fetched:
        before = self._ask_site if self._obey_robots else None
        try:
            return await self._fetcher.fetch(
                "GET",
                url,
                max_bytes=self._max_bytes,
                seconds=self._seconds,
                redirects=_REDIRECTS,
                cross_origin=True,
                before_hop=before,
                cut=True,
                gzip=True,
            )
        except FetchError as error:
            raise ToolError(f"{error}.{_way_out(error, url)}") from error

    # --- robots.txt --------------------------------------------------------------------------------------------------

    async def _ask_site(self, url: str) -> None:
        """Raise a ToolError if robots.txt disallows a URL."""
        target = parse_target(url)
        kept = await self._site(target)
        if kept.refusal is not None:
            raise ToolError(kept.refusal)
        if kept.robots.is_long_work_for(target.rest):
            raise ToolError(
                f"The robots.txt of {_site_of(target)} has too many rules to compare with so long a URL, so the page "
                "is not fetched. The user can fetch it with the fetch prompt."
            )
        # In a thread: a file may have many rules, and matching takes time.
        forbidding = await asyncio.to_thread(kept.robots.forbidding, target.rest)
        if forbidding is not None:
            raise ToolError(_forbidden(target, forbidding))

    async def _site(self, target: Target) -> _Kept:
        """Return the robots.txt of a site, from the cache or fetched."""
        kept = self._sites.get(target.origin)
        if kept is None or kept.until <= self._clock():
            kept = await self._asked(target)
            self._sites[target.origin] = kept
            while len(self._sites) > _KEPT_SITES:
                self._sites.popitem(last=False)
        self._sites.move_to_end(target.origin)
        return kept

    async def _asked(self, target: Target) -> _Kept:
        where = f"{_site_of(target)}/robots.txt"
        try:
            answer = await self._fetcher.fetch(
                "GET",
                where,
                max_bytes=MAX_ROBOTS_BYTES,
                seconds=min(_ROBOTS_SECONDS, self._seconds),
                redirects=_ROBOTS_REDIRECTS,
                cross_origin=True,
                cut=True,
                gzip=True,
            )
        except FetchError as error:
            if isinstance(error, NotPublic) and error.where == target.where:
                # The page itself is denied for the same reason, which has nothing to do with robots.txt.
                raise
            return self._refused(f"Its robots.txt must be read before a page is fetched, and it could not be. {error}.")
        if answer.status in (401, 403) or answer.status >= 500:
            return self._refused(
                f"{where} was answered with status {answer.status}, so programs are taken to be unwelcome there. "
                "The user can fetch the page with the fetch prompt."
            )
        text = answer.body.decode("utf-8", "replace") if 200 <= answer.status < 300 else ""
        robots = await asyncio.to_thread(read_robots, text, self._product)
        return _Kept(robots, None, self._clock() + _KEPT_SECONDS)

    def _refused(self, why: str) -> _Kept:
        return _Kept(Robots(()), why, self._clock() + _KEPT_FAILURE_SECONDS)


def shown_address(url: str) -> str:
    """Return a URL in normalized form.

    Raises:
        FetchError: it is not a URL that can be fetched.
    """
    target = parse_target(url)
    fragment = urlsplit(url).fragment
    return target.url + (f"#{quote(fragment, safe='%/?:@!$&()*+,;=-._~')}" if fragment else "")


def _way_out(error: FetchError, url: str) -> str:
    """Return a hint on how to allow a denied host, if it is the requested one and not a redirect target."""
    if isinstance(error, NotPublic) and error.where == parse_target(url).where:
        return f" If the user means that, the server must be started with --allow-host {error.where}."
    return ""


def _site_of(target: Target) -> str:
    return target.url.removesuffix(target.rest)


def _place(url: str) -> str:
    return parse_target(url).where


def _forbidden(target: Target, rule: Rule) -> str:
    return (
        f"The robots.txt of {_site_of(target)} does not let programs fetch this page (rule: Disallow: "
        f"{rule.pattern[:200]!r}). Tell the user that it was not read; the user can fetch it with the fetch prompt."
    )


def _page_of(answer: Fetched, *, raw: bool, max_chars: int) -> Page:
    """Convert a response to text."""
    content_type = answer.headers.get("content-type", "")
    binary = binary_type(content_type, answer.body)
    if binary is not None:
        size = f"more than {len(answer.body)}" if answer.cut else f"{len(answer.body)}"
        raise ToolError(f"{_place(answer.url)} gave {binary[:100]!r} of {size} bytes, which is not text.")
    text = read_text(content_type, answer.body).text
    # A header may contain bytes that are not UTF-8.
    said = one_line(content_type.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), 100)
    cut = f"Only the first {len(answer.body)} bytes were read, which is the limit.\n" if answer.cut else ""
    if kind_of(content_type, text) == "html" and not raw:
        made = html_to_markdown(text, answer.url, max_chars=max_chars)
        return Page(made.text or _EMPTY, cut if made.is_whole else cut + _TOO_MUCH)
    what = "as it is" if raw else "not turned into Markdown"
    return Page(text, f"{cut}Content of type {said or 'unknown'}, {what}:\n")
