"""The kinds of target that a client accepts, and how a link to each is opened.

A target is a server object, a link, a URL, a Python file, a command, or one ``mcpServers`` entry. Each becomes a
``Target``: a function that opens a link, whether it can be called again, and a fingerprint under which the era of the
server may be remembered. Nothing is started before ``open``, and nothing is run by a shell. URLs are handled in
``url_targets``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from trunkline.client.options import ClientSettings
from trunkline.errors import ConfigError, LinkError
from trunkline.transports.link import Link, LinkWrapper
from trunkline.transports.python_files import launch_python_file, split_spec

__all__ = ["Target", "resolve_target"]


class Target(Struct, frozen=True):
    """A server that a client can connect to."""

    #: The display name, for messages.
    name: str
    #: Opens a link, or raises LinkError.
    open: Callable[[], Awaitable[Link]]
    #: A digest of the launch; None if nothing outlives one client.
    fingerprint: str | None = None
    #: Whether it can be opened a second time.
    can_reopen: bool = True
    #: Each request is its own exchange: no answer is late, and a failure concerns that request alone.
    separate: bool = False
    #: The target has no stateless revision.
    handshake_only: bool = False
    #: Opens a link of an older kind, in case the server does not know the first; None if there is none.
    fallback: Callable[[], Awaitable[Link]] | None = None
    #: What to do if it does not answer, appended to the error.
    timeout_hint: Callable[[], str] = str
    #: Returns True while the user is logging in, which does not count towards the connect timeout.
    is_logging_in: Callable[[], bool] | None = None


def resolve_target(target: object, settings: ClientSettings) -> Target:
    """Return the target that the user's argument describes.

    Raises:
        ConfigError: it is not a valid target; the message lists the valid kinds.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, Mapping):
        return _entry(target, settings)
    if isinstance(target, str | os.PathLike):
        return _text(os.fspath(target), settings)
    _check_no_auth(settings)
    if isinstance(target, Sequence):
        return _command([os.fspath(part) for part in target], settings)
    if hasattr(target, "accept"):
        return Target(
            getattr(target, "name", None) or type(target).__name__, lambda: _open_in_process(target, settings)
        )
    if isinstance(target, Link):
        return Target(type(target).__name__, _single_use(target), can_reopen=False)
    raise ConfigError(
        f"{type(target).__name__} is not a valid target: give a server, a link, a .py file, a command "
        "(a list, or one string as in a terminal), an mcpServers entry or a URL."
    )


def _check_no_auth(settings: ClientSettings) -> None:
    # The specification: over stdio credentials come from the environment.
    if settings.auth is not None:
        raise ConfigError("auth= is for servers with a URL: pass the credentials of this one in its environment, env=.")


def _text(text: str, settings: ClientSettings) -> Target:
    import shlex

    if text.startswith(("http://", "https://")):
        from trunkline.client.url_targets import url_target

        return url_target(text, settings)
    _check_no_auth(settings)
    path, name = split_spec(text)
    if path.endswith(".py") and (os.path.exists(path) or " " not in text):
        path = _within(settings.cwd, path)
        if not os.path.isfile(path):
            raise ConfigError(f"There is no file {path}.")
        launch = launch_python_file(path, name)
        return _process(launch.command, settings, env={**launch.env, **(settings.env or {})}, cwd=settings.cwd)
    if text.endswith(".json") and os.path.isfile(_within(settings.cwd, text)):
        raise ConfigError(
            f"{text} is a configuration file, and a client connects to one server: pass one entry of it as a mapping, "
            f"or use a host, Host.open({text!r})."
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"The command {text!r} cannot be parsed: {error}.") from error
    return _command(words, settings)


def _within(folder: str | None, path: str) -> str:
    """Resolve a path as the server process would; a file relative to the caller is found as well."""
    if folder is None or os.path.exists(path):
        return path
    return os.path.join(folder, path)


def _entry(entry: Mapping[str, Any], settings: ClientSettings) -> Target:
    """Resolve one entry of an ``mcpServers`` table."""
    if "mcpServers" in entry:
        servers = entry["mcpServers"]
        if isinstance(servers, Mapping) and len(servers) == 1:
            return _entry(next(iter(servers.values())), settings)
        raise ConfigError("A client connects to one server: give one entry of mcpServers, or use a host for several.")
    if "url" in entry:
        from trunkline.client.url_targets import entry_target

        return entry_target(entry, settings)
    _check_no_auth(settings)
    if entry.get("sandbox"):
        raise ConfigError(
            'A client starts a server without a sandbox, and the entry has "sandbox": connect through a host, '
            'Host.open({"NAME": entry}), or remove "sandbox" from the entry.'
        )
    command, arguments = entry.get("command"), entry.get("args") or []
    if not isinstance(command, str) or not isinstance(arguments, list):
        raise ConfigError("An mcpServers entry has a command (a string) with args (a list of strings), or a url.")
    env = {**(entry.get("env") or {}), **(settings.env or {})}
    cwd = settings.cwd if settings.cwd is not None else entry.get("cwd")
    return _process([command, *map(str, arguments)], settings, env=env, cwd=cwd)


def _command(command: list[str], settings: ClientSettings) -> Target:
    return _process(command, settings, env=dict(settings.env or {}), cwd=settings.cwd)


def _display_name(command: Sequence[str]) -> str:
    """Return the most telling word of a command: the script it runs, else the program."""
    return next((part for part in command[1:] if part.endswith((".py", ".js"))), command[0])


def _process(command: list[str], settings: ClientSettings, *, env: dict[str, str], cwd: str | None) -> Target:
    if not command:
        raise ConfigError("The command is empty.")

    async def spawn() -> Link:
        if sys.platform == "win32":
            raise ConfigError(
                "Starting a server needs pipes that an event loop can wait for, process groups and signals, which "
                "Windows lacks; use Linux or macOS."
            )
        from trunkline.transports.process import ProcessLink

        return ProcessLink.spawn(
            command, env=env, cwd=cwd, limits=settings.limits, on_stderr=settings.on_stderr, name=_display_name(command)
        )

    return Target(
        os.path.basename(command[0]),
        spawn,
        fingerprint=_fingerprint(command, env=env, cwd=cwd),
        timeout_hint=lambda: (
            "; the program runs, but has not answered: is it an MCP server over stdio (for one over "
            "HTTP, give its URL), or does it need a longer timeout?"
        ),
    )


def _fingerprint(command: list[str], *, env: Mapping[str, str], cwd: str | None) -> str:
    """Return a digest of a launch: it may be stored in a file, and the environment may hold secrets."""
    import hashlib

    import msgspec

    launch = msgspec.json.encode([command, sorted(env.items()), cwd])
    return hashlib.sha256(launch).hexdigest()


async def _open_in_process(server: Any, settings: ClientSettings) -> Link:
    from trunkline.transports.memory import memory_pair

    ours, theirs = memory_pair(settings.limits)
    accepted = server.accept(theirs)
    return _InProcessLink(ours, await accepted if hasattr(accepted, "__await__") else accepted)


class _InProcessLink(LinkWrapper):
    """Our end of a pair whose other end lives in this process: closing it also waits until the server is done."""

    def __init__(self, link: Link, other_side: Any) -> None:
        super().__init__(link)
        self._other_side = other_side
        # Each call goes straight to the inner link.
        self.send = link.send  # type: ignore[method-assign]

    async def aclose(self) -> None:
        """Close both ends: nothing that the server still does for this client has a reader."""
        await self._link.aclose()
        for name in ("aclose", "ended"):
            end = getattr(self._other_side, name, None)
            if end is not None:
                await end()


def _single_use(link: Any) -> Callable[[], Awaitable[Link]]:
    unused = [link]

    async def give() -> Link:
        if not unused:
            raise LinkError("This link has been used: a client that was given a link cannot reconnect by itself.")
        return unused.pop()  # type: ignore[no-any-return]

    return give
