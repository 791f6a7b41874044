"""The fetch server and the official one: pages of a small site on this machine, which both are told to allow."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.interop.dropin.harness import Call, Get, Script, ours, pypi

__all__ = ["SCRIPT"]

_PAGE = """<!doctype html><html><head><title>Rivers</title></head><body>
<nav><a href="/">Home</a> <a href="/about">About</a></nav>
<article><h1>Rivers</h1><p>The Danube is the <b>second</b> longest river of Europe, and passes ten countries.</p>
<p>It ends in the <a href="/sea">Black Sea</a>.</p><ul><li>Inn</li><li>Sava</li></ul></article>
<footer>All rights reserved</footer><script>alert(1)</script></body></html>"""
_LONG = "".join(f"line {number}\n" for number in range(2000))
_PAGES = {
    "/robots.txt": (200, "text/plain", b"User-agent: *\nDisallow: /private\n"),
    "/page": (200, "text/html; charset=utf-8", _PAGE.encode()),
    "/plain": (200, "text/html", "<p>Nur ein Absatz über Flüsse.</p>".encode("latin-1")),
    "/text": (200, "text/plain; charset=utf-8", "Grüße\n".encode()),
    "/data.json": (200, "application/json", b'{"rivers": ["Inn", "Sava"]}'),
    "/long": (200, "text/plain", _LONG.encode()),
    "/empty": (200, "text/html", b""),
    "/picture": (200, "image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    "/private/page": (200, "text/html", _PAGE.encode()),
    "/broken": (500, "text/plain", b"no"),
    "/moved": (302, "/text", b""),
    "/moved-to-private": (302, "/private/page", b""),
}


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer with the page of this path."""
        status, kind, body = _PAGES.get(self.path.partition("?")[0], (404, "text/plain", b"none"))
        self.send_response(status)
        self.send_header("Location" if status == 302 else "Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


# The port must be known to the steps; nothing is answered before the first side is prepared.
_SERVER = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
_THREAD = Thread(target=_SERVER.serve_forever, daemon=True)
_SITE = f"http://127.0.0.1:{_SERVER.server_port}"


def _prepare(folder: Path) -> None:
    if not _THREAD.is_alive():
        _THREAD.start()


def _fetch(path: str, **arguments: object) -> Call:
    return Call("fetch", {"url": f"{_SITE}{path}", **arguments}, f"fetch {path}")


def _without_notes(text: str) -> str:
    """Blank the sentences around a content, and keep the content and the numbers in them."""
    text = re.sub(r"\AContent (?:type .* cannot be simplified .*|of type .*):\n", "(type)\n", text)
    text = re.sub(r"<error>[^<]* start_index of (\d+)[^<]*</error>", r"(go on at \1)", text)
    return re.sub(r"<error>(?:No more content|There is nothing)[^<]*</error>", "(end)", text)


_WORDS = "The words of an error are written anew; an error names the host, not the whole URL."
_MARKDOWN = "Markdown comes from a converter of its own: the page's heading is kept, links are absolute."
_RULE = "A refusal names the rule, and does not repeat the site's robots.txt."
_ARGUMENTS = "The words about a wrong argument are those of every server made with Trunkline."

SCRIPT = Script(
    server="fetch",
    official=pypi("mcp-server-fetch", "--allow-private-ips"),
    ours=ours("fetch", "--allow-private-ips"),
    prepare=_prepare,
    steps=(
        _fetch("/page"),
        _fetch("/page", raw=True),
        _fetch("/plain"),
        _fetch("/text"),
        _fetch("/data.json"),
        _fetch("/long"),
        _fetch("/long", start_index=5000, max_length=100),
        _fetch("/long", start_index=21000),
        _fetch("/long", start_index=90000),
        _fetch("/empty"),
        _fetch("/picture"),
        _fetch("/private/page"),
        _fetch("/moved"),
        _fetch("/moved-to-private"),
        _fetch("/nowhere"),
        _fetch("/broken"),
        _fetch("/text?a=1&b=%20#part"),
        _fetch("", max_length=10),
        Call("fetch", {"url": ""}, "fetch without a URL"),
        Call("fetch", {"url": "not a url"}, "fetch of no URL"),
        Call("fetch", {"url": f"{_SITE}/text", "max_length": 0}, "fetch of nothing"),
        Call("fetch", {"url": f"{_SITE}/text", "max_length": 1_000_000}, "fetch of too much"),
        Call("fetch", {"url": f"{_SITE}/text", "start_index": -1}, "fetch from before the begin"),
        Call("fetch", {"url": f"{_SITE}/text", "max_length": "10"}, "fetch with a number as text"),
        Call("fetch", {}, "fetch without arguments"),
        Call("no_such_tool", {}),
        Get("fetch", {"url": f"{_SITE}/page"}),
        Get("fetch", {"url": f"{_SITE}/private/page"}),
        Get("fetch", {"url": f"{_SITE}/nowhere"}),
        Get("fetch", {}),
        Get("no_such_prompt", {}),
    ),
    normalise=_without_notes,
    differences={
        "server:capabilities/*/listChanged": "Lists may change in any server made with Trunkline, which announces it.",
        "server:capabilities/resources": "There are no resources, so none are announced.",
        "server:capabilities/logging": "Log messages are sent to clients that ask for them.",
        "resource*:": "There are no resources, so none are announced.",
        "fetch *:isError": "What is no error does not say so; a file that is no text is an error, not broken text.",
        "fetch /page:content/0/text": _MARKDOWN,
        "get fetch*:messages/0/content/text": _MARKDOWN,
        "fetch /plain:content/0/text": "A page that names no encoding and is not UTF-8 is read as windows-1252.",
        "fetch /empty:content/0/text": _WORDS,
        "fetch /picture:content/0/text": "A file that is no text is an error that says its type and size.",
        "fetch /private/page:content/0/text": _RULE,
        "fetch /moved-to-private:content/0/text": _RULE,
        "fetch /nowhere:content/0/text": _WORDS,
        "fetch /broken:content/0/text": _WORDS,
        "fetch :content/0/text": _WORDS,
        "fetch without *:content/0/text": _ARGUMENTS,
        "fetch of *:content/0/text": _ARGUMENTS,
        "fetch from *:content/0/text": _ARGUMENTS,
        "fetch with a number *:content/0/text": "A number that a model sent as text is read as a number.",
        "get fetch*:description": "Texts for people and models are written anew.",
        "get fetch*:error/message": _ARGUMENTS,
    },
)
