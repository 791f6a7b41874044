"""The second origin: serves only the outer frame of each view (MCP Apps).

It has no token and no API. An address contains the unguessable id of a view, and is served only to a frame. The content
security policy of the outer frame is built from the declaration of the page; the inner frame, which holds the HTML of
the page, inherits it. So a page can reach only what it declared. Its origin is opaque, so it shares nothing with the
outer frame, other pages or the console.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from trunkline.console.apps import PageView
from trunkline.extensions.apps.content_security import content_security_policy, frame_permissions
from trunkline.extensions.apps.declarations import AppDeclaration
from trunkline.transports.http.server.asgi import Headers, Receive, Scope, Send

__all__ = ["FRAME_HOST", "AppFrames", "frame_policy", "permissions_policy"]

#: The console is at ``127.0.0.1``. Another port is another origin, but browsers run pages of one *site* in one process,
#: and a site ignores ports: with another host name, a page that hangs or floods its frame does not block the console.
FRAME_HOST = "localhost"

_FOLDER = Path(__file__).parent / "static" / "sandbox"
_PATH = re.compile(r"/([A-Za-z0-9_-]{20,64})/(sandbox\.js)?")
#: The features that a page may request, and features that identify the user or the machine; all are off by default.
_FEATURES = (
    *("camera", "microphone", "geolocation", "clipboard-write", "clipboard-read", "display-capture", "fullscreen"),
    *("payment", "usb", "serial", "hid", "midi", "accelerometer", "gyroscope", "magnetometer"),
    *("screen-wake-lock", "publickey-credentials-get", "xr-spatial-tracking"),
)


def frame_policy(view: PageView) -> str:
    """Return the Content-Security-Policy of a view: the page's own, without forms, framed only by the console.

    No other directive stops WebRTC, which could send data to any host; browsers that do not know this one ignore it.
    """
    policy = content_security_policy(view.csp)
    return f"{policy}; webrtc 'block'; form-action 'none'; frame-ancestors {view.ancestors}"


def permissions_policy(view: PageView) -> str:
    """Return the Permissions-Policy of a view: only the features that the user granted."""
    granted = frame_permissions(AppDeclaration(permissions=view.granted)).split("; ")
    # The inner frame has an opaque origin, which only ``*`` matches; its ``allow`` attribute names the same features.
    return ", ".join(f"{name}={'*' if name in granted else '()'}" for name in _FEATURES)


class AppFrames:
    """An ASGI application with one page for each view."""

    def __init__(self, find: Callable[[str], PageView | None]) -> None:
        """Create the application; the function returns a view by its id."""
        self._find = find

    async def drain(self, seconds: float) -> None:
        """Do nothing: responses are short."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        status, body, headers = self._response(scope)
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length, *_EVERY]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _response(self, scope: Scope) -> tuple[int, bytes, Headers]:
        path = _PATH.fullmatch(scope["path"])
        view = None if path is None else self._find(path[1])
        if path is None or view is None or scope["method"] not in ("GET", "HEAD") or not _is_meant(scope, path[2]):
            return 404, b"", []
        if path[2]:
            return 200, (_FOLDER / "sandbox.js").read_bytes(), [(b"content-type", b"text/javascript; charset=utf-8")]
        return (
            200,
            (_FOLDER / "index.html").read_bytes(),
            [
                (b"content-type", b"text/html; charset=utf-8"),
                (b"content-security-policy", frame_policy(view).encode()),
                (b"permissions-policy", permissions_policy(view).encode()),
            ],
        )


_EVERY: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # A page could leak data by DNS lookups of host names in links.
    (b"x-dns-prefetch-control", b"off"),
    (b"cache-control", b"no-store"),
)


def _is_meant(scope: Scope, file: str | None) -> bool:
    """Return True for a request to exactly this address, made by a frame of the console or by its script tag.

    Another ``Host`` is a name rebound to this address (DNS rebinding). A page has an opaque origin, so its own
    requests have ``Origin: null`` and are rejected.
    """
    sent: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        sent.setdefault(name, []).append(value)
    own = f"{FRAME_HOST}:{scope['server'][1]}".encode()
    if sent.get(b"host") != [own] or sent.get(b"origin", [b"http://" + own]) != [b"http://" + own]:
        return False
    wanted = b"script" if file else b"iframe"
    # Browsers send the purpose of a fetch, which a page cannot change. Other clients may omit it.
    return sent.get(b"sec-fetch-dest", [wanted]) == [wanted]
