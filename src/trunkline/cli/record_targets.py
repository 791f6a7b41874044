"""How ``record`` and ``replay`` reach TARGET: as a raw wire, with no protocol layer of ours in between.

A configured server is started according to its entry, including its sandbox, once it is approved; policy rules do not
apply, since the recorded client talks to the server itself. The secrets of a target are collected, so that they can be
redacted wherever they occur.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import Choices
from trunkline.cli.targets import Named, Site
from trunkline.client.options import settings_from
from trunkline.client.targets import Target, find_target
from trunkline.errors import ConfigError
from trunkline.host.record.link_wire import LinkWire
from trunkline.host.record.wires import ProcessWire, Wire
from trunkline.host.secrecy.redaction import Redaction
from trunkline.protocol.limits import Limits

if TYPE_CHECKING:
    from trunkline.host.entries import ServerEntry
    from trunkline.transports.http.client import HttpLink

__all__ = ["Reach", "find_reach"]

# A shorter value is not distinctive enough to be redacted.
_SHORTEST_SECRET = 8

OnStderr = Callable[[bytes], None]
Note = Callable[[str], None]


class Reach(NamedTuple):
    """A server that can be opened as a wire, and its secrets."""

    #: Its command or URL, without secrets.
    shown: str
    secrets: frozenset[str]
    #: Opens a wire to it; called with handlers for its stderr and for what the wire answers by itself.
    open: Callable[[OnStderr | None, Note], Awaitable[Wire]]
    #: Opens the link to a server at a URL; None for one that is started.
    open_http: Callable[[], Awaitable[HttpLink]] | None = None
    #: The headers of every request to a URL.
    headers: Mapping[str, str] = {}


def find_reach(choices: Choices, limits: Limits, *, typed: str | None = None, whole_environment: bool = False) -> Reach:
    """Return the endpoint for a TARGET; ``whole_environment`` passes our full environment to a started server.

    ``typed`` is the TARGET as typed, used as its display name.

    Raises:
        ConfigError: it cannot be reached this way.
        PolicyDenied: it is a server of a project that is not approved.
    """
    target = choices.target
    if isinstance(target, Named):
        return _configured(target, limits)
    if isinstance(target, Site):
        return _site(target.url, choices, limits)
    env = {**(os.environ if whole_environment else {}), **choices.env}
    start = _starting(target.command, env=env, cwd=choices.cwd, limits=limits)
    return Reach(typed or shlex.join(target.command), _secret(env), start)


def _starting(
    command: list[str], *, env: Mapping[str, str], cwd: str | None, limits: Limits
) -> Callable[[OnStderr | None, Note], Awaitable[Wire]]:
    async def start(on_stderr: OnStderr | None, note: Note) -> Wire:
        return ProcessWire.start(command, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)

    return start


def _site(url: str, choices: Choices, limits: Limits) -> Reach:
    headers = dict(choices.headers)
    if choices.token is not None:
        headers["Authorization"] = f"Bearer {choices.token}"

    async def target() -> Target:
        from trunkline.cli.logins import stored_login

        says_who = any(name.lower() == "authorization" for name in headers)
        login = None if says_who else await stored_login(url)
        options = {"headers": headers, "auth": login, "ca_file": choices.ca_file, "limits": limits}
        return find_target(url, settings_from(options))

    secrets = _secret(headers) | ({choices.token} if choices.token else set())
    return _remote(url.partition("?")[0], frozenset(secrets), target, limits=limits, headers=headers)


def _remote(
    shown: str,
    secrets: frozenset[str],
    find: Callable[[], Awaitable[Target]],
    *,
    limits: Limits,
    headers: Mapping[str, str],
) -> Reach:
    async def open_wire(on_stderr: OnStderr | None, note: Note) -> Wire:
        wire = LinkWire(await find(), limits, note=note)
        await wire.open()
        return wire

    async def open_http() -> HttpLink:
        from trunkline.transports.http.client import HttpLink

        link = await (await find()).open()
        if not isinstance(link, HttpLink):
            await link.aclose()
            raise ConfigError(f'{shown}: its entry has "type": "sse": record it without --http, or remove the type')
        return link

    return Reach(shown, secrets, open_wire, open_http, headers)


# --- configured servers -----------------------------------------------------------------------------------------------


def _configured(named: Named, limits: Limits) -> Reach:
    from trunkline.cli.configs import answers_for, check_approved, read_configuration

    if named.server is None:
        raise click.UsageError("Missing the name of a configured server.")
    if named.rest is not None:
        raise Failure(f"expected the name of a server: give {named.server} alone", Exit.USAGE)
    inputs = answers_for(named.files, (named.server,))
    entry = read_configuration(named.files, inputs=inputs).entries[named.server]
    if entry.problem is not None:
        raise ConfigError(entry.problem)
    if entry.disabled:
        raise ConfigError(f"{entry.name} is disabled in {entry.source}")
    check_approved(entry)
    secrets = entry.secrets | _secret(entry.env) | _secret(entry.headers)
    if entry.url is None:
        from trunkline.host.sandbox import prepare

        launch = prepare(entry)
        start = _starting(list(launch.command), env=launch.env, cwd=launch.cwd, limits=limits)
        return Reach(entry.shown, secrets, start)
    return _remote(entry.shown, secrets, lambda: _entry_target(entry), limits=limits, headers=entry.headers)


async def _entry_target(entry: ServerEntry) -> Target:
    from trunkline.host.supervision.clients import Logins, make_client

    return make_client(entry, {}, auth=await Logins().find(entry))._core.target


def _secret(named: Mapping[str, str]) -> frozenset[str]:
    """Return the values whose names indicate that they are secret."""
    rules = Redaction()
    return frozenset(text for name, text in named.items() if len(text) >= _SHORTEST_SECRET and rules.hides(name))
