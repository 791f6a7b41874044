"""Announces a server in the terminal where it was started: what it offers, and how to call it."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from trunkline.cli.ui.output import counted, is_terminal, one_line, print_notice
from trunkline.net.addresses import reachable_url

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["announce_address", "announce_http", "announce_stdio"]


def announce_stdio(server: Server, spec: str) -> None:
    """Print what a stdio server offers and how to call it; not if a client started it, which has no terminal there."""
    if not (is_terminal(sys.stderr) and is_terminal(sys.stdin)):
        return
    target = shlex.quote(spec)
    print_notice(f"{one_line(server.name)} serves {_offer(server)} over stdio, and waits for a client; Ctrl-C ends it")
    print_notice(f"to try it, in another terminal: {_example(server, target)}")
    print_notice(f"to serve it over HTTP instead: trunkline run {target} --http 8000")


def announce_address(server: Server, origin: str, path: str) -> str:
    """Print where an HTTP server is and how to list its tools; return its URL."""
    url, listens_everywhere = reachable_url(origin, path)
    command = f"trunkline list tools {url}{_credentials(server)}"
    print_notice(f"{one_line(server.name)} is served at {url}{listens_everywhere}; try: {command}")
    return url


def announce_http(server: Server, url: str) -> None:
    """Print what an HTTP server offers and how to call it, if it was started at a terminal."""
    if is_terminal(sys.stderr):
        example = _example(server, url) + _credentials(server)
        print_notice(f"it offers {_offer(server)} over HTTP; Ctrl-C ends it; to call it: {example}")


def _credentials(server: Server) -> str:
    """Return the option with which a command calls a protected server: a token or a key, unless it names a login."""
    if server.settings.auth is None or getattr(server.settings.auth, "authorization_servers", None):
        return ""
    from trunkline.auth.static_tokens import ApiKeys

    if isinstance(server.settings.auth, ApiKeys):
        return f" --header {shlex.quote(f'{server.settings.auth.header}: KEY')}"
    return " --token TOKEN"


def _offer(server: Server) -> str:
    registry = server.registry
    counts = {
        "tool": len(registry.tools),
        "resource": len(registry.resources) + len(registry.templates) - len(registry.skills),
        "prompt": len(registry.prompts),
        "skill": len(registry.skills),
    }
    return ", ".join(counted(count, kind) for kind, count in counts.items() if count) or "nothing yet"


def _example(server: Server, target: str) -> str:
    """Return a command that calls the first tool, or lists what there is."""
    for name, tool in server.registry.tools.items():
        schema = tool.listed().input_schema
        required = schema.get("required") or []
        arguments = "".join(f" {one_line(key)}=..." for key in required)
        return f"trunkline call {target} {shlex.quote(one_line(name))}{arguments}"
    registry = server.registry
    kind = "prompts" if registry.prompts else "skills" if registry.skills else "resources"
    return f"trunkline list {kind} {target}"
