"""Fetching a page for a model: robots.txt first, then the page, decoded and as Markdown or plain text.

All traffic goes through the guarded fetcher, robots.txt and each redirect included.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from msgspec import Struct

from trunkline.errors import FetchError, ToolError
from trunkline.net import NotPublicAddress, ParsedURL, parse_url
from trunkline_servers.fetch.markdown import html_to_markdown
from trunkline_servers.fetch.robots import MAX_ROBOTS_BYTES, RobotsRule, RobotsRules, parse_robots, product_of
from trunkline_servers.untrusted import one_line

__all__ = ["DecodedText", "Page", "PageFetcher", "TextKind", "binary_type", "decode_text", "kind_of", "normalized_url"]

TextKind = Literal["html", "text"]

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"\x00asm", "application/wasm"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
)
# Signatures that a text may begin with too; they count only if bytes follow that no text has. With their offsets.
_TEXTUAL_MAGIC = (
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"OggS", "application/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (4, b"ftyp", "video/mp4"),
)
_NEVER_IN_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_CONTAINERS = MappingProxyType({b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"})
# The encoding labels of browsers and the Python codec of each; where browsers decode one encoding with the table of a
# larger one, the larger one.
_ENCODINGS = MappingProxyType(
    {
        **{name: name for name in ("utf-8", "utf-16le", "utf-16be", "gb18030", "euc-jp", "iso-2022-jp")},
        **{name: name for name in ("koi8-r", "koi8-u")},
        **{f"iso-8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
        **{f"{name}{page}": f"cp{page}" for name in ("windows-", "cp", "x-cp") for page in range(1250, 1259)},
        **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "ms_kanji", "windows-31j"), "cp932"),
        **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "windows-949"), "cp949"),
        **dict.fromkeys(("gbk", "gb2312", "x-gbk", "gb_2312-80"), "gb18030"),
        **dict.fromkeys(("big5", "big5-hkscs"), "big5hkscs"),
        "x-euc-jp": "euc-jp",
        "iso-8859-8-i": "iso-8859-8",
        "iso-8859-1": "cp1252",
        "latin1": "cp1252",
        "us-ascii": "cp1252",
        "ascii": "cp1252",
        "iso-8859-9": "cp1254",
        "iso-8859-11": "cp874",
        "windows-874": "cp874",
        "tis-620": "cp874",
        "utf8": "utf-8",
        "utf-16": "utf-16le",
        "ibm866": "cp866",
        "macintosh": "mac-roman",
        "x-mac-cyrillic": "mac-cyrillic",
    }
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,400}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]{1,40})")
_LOOKS_HTML = re.compile(r"\s*(?:<!doctype\s+html|<(?:html|head|body|title|h1|div|p|table|article|main)\b)", re.I)
_TEXT_TYPES = ("text/", "message/")
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml", "/json", "/xml", "/yaml", "/javascript", "/x-ndjson", "/sql", "/toml")


class DecodedText(Struct, frozen=True):
    """A decoded body."""

    text: str
    encoding: str


def binary_type(content_type: str, body: bytes) -> str | None:
    """Return the media type of binary content; None if it is, or may be, text."""
    said = _media_type(content_type)
    head = body[:1024]
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF") and head[8:12] in _CONTAINERS:
        return _CONTAINERS[head[8:12]]
    if _NEVER_IN_TEXT.search(head):
        for place, letters, name in _TEXTUAL_MAGIC:
            if head.startswith(letters, place):
                return name
    if _bom(head) or "utf-16" in content_type.lower():
        return None
    if b"\0" in head:
        return said or "application/octet-stream"
    is_text = not said or said.startswith(_TEXT_TYPES) or said.endswith(_TEXT_SUFFIXES)
    return said if not is_text and _is_noise(head) else None


def kind_of(content_type: str, text: str) -> TextKind:
    """Return whether a text is HTML: by its Content-Type, or by its beginning if there is none."""
    said = _media_type(content_type)
    if said in ("text/html", "application/xhtml+xml") or "<html" in text[:100].lower():
        return "html"
    return "html" if not said and _LOOKS_HTML.match(text[:1024]) else "text"


def decode_text(content_type: str, body: bytes) -> DecodedText:
    """Decode a body: by its BOM, the Content-Type, the declaration in HTML or XML, or the encoding that fits."""
    mark = _bom(body)
    if mark is not None:
        return DecodedText(body.decode(mark, "replace").removeprefix("\ufeff"), mark)
    for label in (_CHARSET.search(content_type), _META.search(body[:2048]), _XML.match(body[:256])):
        if label is not None:
            given = label.group(1)
            named = _ENCODINGS.get((given.decode() if isinstance(given, bytes) else given).lower())
            if named is not None:
                # A page whose label is readable as ASCII cannot be UTF-16.
                named = "utf-8" if named.startswith("utf-16") and isinstance(given, bytes) else named
                return DecodedText(body.decode(named, "replace"), named)
    try:
        # A truncated body may end in the middle of a character.
        return DecodedText(codecs.getincrementaldecoder("utf-8")().decode(body), "utf-8")
    except UnicodeDecodeError:
        return DecodedText(body.decode("cp1252", "replace"), "cp1252")


def _bom(body: bytes) -> str | None:
    return next((name for mark, name in _BOMS if body.startswith(mark)), None)


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].partition(",")[0].strip().lower()[:100]


def _is_noise(head: bytes) -> bool:
    """Return True if more than one in ten characters is a control character or invalid."""
    broken = sum(1 for character in head.decode("utf-8", "replace") if character < " " and character not in "\t\n\r\f")
    broken += head.decode("utf-8", "replace").count("\ufffd")
    return broken * 10 > len(head)


if TYPE_CHECKING:
    from trunkline.net import Fetcher, FetchResponse, Resolve


_MAX_URL = 8000
# A page being processed may take many times its size in memory.
_AT_ONCE = 16
# Converting a page is CPU-bound; more at once would only delay everything else.
_READ_AT_ONCE = 2
_REDIRECTS = 10
_ROBOTS_SECONDS = 10.0
_ROBOTS_REDIRECTS = 5
_CACHE_SECONDS, _FAILURE_CACHE_SECONDS = 600.0, 30.0
_KEPT_SITES = 256
_EMPTY = "<error>The page has no text after conversion to Markdown; set raw to true to get its HTML.</error>"
_TOO_MUCH = "Not all of the page was read: it has too much markup, or its text is too long.\n"


class Page(Struct, frozen=True):
    """A page as returned to a model."""

    text: str
    #: A note to put before the text; may be empty.
    note: str


class _CachedRobots(Struct, frozen=True):
    """The cached robots.txt of a site, with its expiry."""

    robots: RobotsRules
    refusal: str | None
    until: float


class PageFetcher:
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
        self._sites: OrderedDict[tuple[str, str, int], _CachedRobots] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)

    async def page(self, url: str, *, raw: bool) -> Page:
        """Fetch a URL and return its text, as Markdown if it is HTML and not wanted raw.

        Raises:
            ToolError: the site or the address guard denies it, it could not be fetched, or it is not text.
        """
        if len(url) > _MAX_URL:
            raise ToolError(f"The URL has {len(url)} characters; at most {_MAX_URL} are allowed.")
        async with self._turns:
            answer = await self._fetched(url)
            if answer.status >= 400:
                raise ToolError(f"{_host_of(answer.url)} answered with status {answer.status} instead of the page.")
            async with self._reading:
                return await asyncio.to_thread(_page_of, answer, raw=raw, max_chars=2 * self._max_bytes)

    @property
    def _fetcher(self) -> Fetcher:
        """The fetcher, created on first use."""
        if self._made is None:
            from trunkline.net import Fetcher

            self._made = Fetcher(**self._settings)
        return self._made

    async def _fetched(self, url: str) -> FetchResponse:
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
            raise ToolError(f"{error}.{_allow_host_hint(error, url)}") from error

    # --- robots.txt --------------------------------------------------------------------------------------------------

    async def _ask_site(self, url: str) -> None:
        """Raise a ToolError if robots.txt disallows a URL."""
        target = parse_url(url)
        kept = await self._site(target)
        if kept.refusal is not None:
            raise ToolError(kept.refusal)
        if kept.robots.is_too_expensive_for(target.rest):
            raise ToolError(
                f"The robots.txt of {_site_of(target)} has too many rules to compare with so long a URL, so the page "
                "is not fetched. The user can fetch it with the fetch prompt."
            )
        # In a thread: a file may have many rules, and matching takes time.
        forbidding = await asyncio.to_thread(kept.robots.disallowing_rule, target.rest)
        if forbidding is not None:
            raise ToolError(_forbidden(target, forbidding))

    async def _site(self, target: ParsedURL) -> _CachedRobots:
        """Return the robots.txt of a site, from the cache or fetched."""
        kept = self._sites.get(target.origin)
        if kept is None or kept.until <= self._clock():
            kept = await self._asked(target)
            self._sites[target.origin] = kept
            while len(self._sites) > _KEPT_SITES:
                self._sites.popitem(last=False)
        self._sites.move_to_end(target.origin)
        return kept

    async def _asked(self, target: ParsedURL) -> _CachedRobots:
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
            if isinstance(error, NotPublicAddress) and error.where == target.where:
                # The page itself is denied for the same reason, which has nothing to do with robots.txt.
                raise
            return self._refused(
                f"The robots.txt of the site must be read before a page is fetched, and it could not be read. {error}."
            )
        if answer.status in (401, 403) or answer.status >= 500:
            return self._refused(
                f"{where} was answered with status {answer.status}, which means that programs may not fetch pages "
                "there. The user can fetch the page with the fetch prompt."
            )
        text = answer.body.decode("utf-8", "replace") if 200 <= answer.status < 300 else ""
        robots = await asyncio.to_thread(parse_robots, text, self._product)
        return _CachedRobots(robots, None, self._clock() + _CACHE_SECONDS)

    def _refused(self, why: str) -> _CachedRobots:
        return _CachedRobots(RobotsRules(()), why, self._clock() + _FAILURE_CACHE_SECONDS)


def normalized_url(url: str) -> str:
    """Return a URL in normalized form.

    Raises:
        FetchError: it is not a URL that can be fetched.
    """
    target = parse_url(url)
    fragment = urlsplit(url).fragment
    return target.url + (f"#{quote(fragment, safe='%/?:@!$&()*+,;=-._~')}" if fragment else "")


def _allow_host_hint(error: FetchError, url: str) -> str:
    """Return a hint on how to allow a denied host, if it is the requested one and not a redirect target."""
    if isinstance(error, NotPublicAddress) and error.where == parse_url(url).where:
        return f" If the user means that, the server must be started with --allow-host {error.where}."
    return ""


def _site_of(target: ParsedURL) -> str:
    return target.url.removesuffix(target.rest)


def _host_of(url: str) -> str:
    return parse_url(url).where


def _forbidden(target: ParsedURL, rule: RobotsRule) -> str:
    return (
        f"The robots.txt of {_site_of(target)} does not allow programs to fetch this page (rule: Disallow: "
        f"{rule.pattern[:200]!r}). Tell the user that it was not read; the user can fetch it with the fetch prompt."
    )


def _page_of(answer: FetchResponse, *, raw: bool, max_chars: int) -> Page:
    """Convert a response to text."""
    content_type = answer.headers.get("content-type", "")
    binary = binary_type(content_type, answer.body)
    if binary is not None:
        size = f"more than {len(answer.body)}" if answer.cut else f"{len(answer.body)}"
        raise ToolError(f"{_host_of(answer.url)} gave {binary[:100]!r} of {size} bytes, which is not text.")
    text = decode_text(content_type, answer.body).text
    # A header may contain bytes that are not UTF-8.
    said = one_line(content_type.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), 100)
    cut = f"Only the first {len(answer.body)} bytes were read, which is the limit.\n" if answer.cut else ""
    if kind_of(content_type, text) == "html" and not raw:
        made = html_to_markdown(text, answer.url, max_chars=max_chars)
        return Page(made.text or _EMPTY, cut if made.is_whole else cut + _TOO_MUCH)
    what = "as it is" if raw else "not turned into Markdown"
    return Page(text, f"{cut}Content of type {said or 'unknown'}, {what}:\n")
