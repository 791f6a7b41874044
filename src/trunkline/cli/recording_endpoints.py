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

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import Choices
from trunkline.cli.targets import ConfiguredTarget, UrlTarget
from trunkline.client.options import resolve_settings
from trunkline.client.targets import Target, resolve_target
from trunkline.devtools.recording.link_stream import LinkLineStream
from trunkline.devtools.recording.relay import LineStream, ProcessLineStream
from trunkline.errors import ConfigError
from trunkline.host.secrets.registry import Redaction
from trunkline.protocol.limits import Limits

if TYPE_CHECKING:
    from trunkline.host.config.model import ServerEntry
    from trunkline.transports.http.client.link import HttpLink

__all__ = ["RecordingEndpoint", "find_endpoint"]

# A shorter value is not distinctive enough to be redacted.
_SHORTEST_SECRET = 8

OnStderr = Callable[[bytes], None]
Note = Callable[[str], None]


class RecordingEndpoint(NamedTuple):
    """A server that can be opened as a wire, and its secrets."""

    #: Its command or URL, without secrets.
    shown: str
    secrets: frozenset[str]
    #: Opens a wire to it; called with handlers for its stderr and for what the wire answers by itself.
    open: Callable[[OnStderr | None, Note], Awaitable[LineStream]]
    #: Opens the link to a server at a URL; None for one that is started.
    open_http: Callable[[], Awaitable[HttpLink]] | None = None
    #: The headers of every request to a URL.
    headers: Mapping[str, str] = {}


def find_endpoint(
    choices: Choices, limits: Limits, *, typed: str | None = None, whole_environment: bool = False
) -> RecordingEndpoint:
    """Return the endpoint for a TARGET; ``whole_environment`` passes our full environment to a started server.

    ``typed`` is the TARGET as typed, used as its display name.

    Raises:
        ConfigError: it cannot be reached this way.
        PolicyDenied: it is a server of a project that is not approved.
    """
    target = choices.target
    if isinstance(target, ConfiguredTarget):
        return _configured(target, limits)
    if isinstance(target, UrlTarget):
        return _site(target.url, choices, limits)
    env = {**(os.environ if whole_environment else {}), **choices.env}
    start = _starting(target.command, env=env, cwd=choices.cwd, limits=limits)
    return RecordingEndpoint(typed or shlex.join(target.command), _secret(env), start)


def _starting(
    command: list[str], *, env: Mapping[str, str], cwd: str | None, limits: Limits
) -> Callable[[OnStderr | None, Note], Awaitable[LineStream]]:
    async def start(on_stderr: OnStderr | None, note: Note) -> LineStream:
        return ProcessLineStream.start(command, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)

    return start


def _site(url: str, choices: Choices, limits: Limits) -> RecordingEndpoint:
    headers = dict(choices.headers)
    if choices.token is not None:
        headers["Authorization"] = f"Bearer {choices.token}"

    async def target() -> Target:
        from trunkline.cli.logins import stored_login

        has_authorization = any(name.lower() == "authorization" for name in headers)
        login = None if has_authorization else await stored_login(url)
        options = {"headers": headers, "auth": login, "ca_file": choices.ca_file, "limits": limits}
        return resolve_target(url, resolve_settings(options))

    secrets = _secret(headers) | ({choices.token} if choices.token else set())
    return _remote(url.partition("?")[0], frozenset(secrets), target, limits=limits, headers=headers)


def _remote(
    shown: str,
    secrets: frozenset[str],
    find: Callable[[], Awaitable[Target]],
    *,
    limits: Limits,
    headers: Mapping[str, str],
) -> RecordingEndpoint:
    async def open_wire(on_stderr: OnStderr | None, note: Note) -> LineStream:
        wire = LinkLineStream(await find(), limits, note=note)
        await wire.open()
        return wire

    async def open_http() -> HttpLink:
        from trunkline.transports.http.client.link import HttpLink

        link = await (await find()).open()
        if not isinstance(link, HttpLink):
            await link.aclose()
            raise ConfigError(f'{shown}: its entry has "type": "sse": record it without --http, or remove the type')
        return link

    return RecordingEndpoint(shown, secrets, open_wire, open_http, headers)


# --- configured servers -----------------------------------------------------------------------------------------------


def _configured(named: ConfiguredTarget, limits: Limits) -> RecordingEndpoint:
    from trunkline.cli.host_session import check_approved, resolve_inputs

    if named.server is None:
        raise click.UsageError("Missing the name of a configured server.")
    if named.rest is not None:
        raise CommandError(f"expected the name of a server: give {named.server} alone", Exit.USAGE)
    entry = resolve_inputs(named.configuration, (named.server,)).configuration.entries[named.server]
    if entry.problem is not None:
        raise ConfigError(entry.problem)
    if entry.disabled:
        raise ConfigError(f"{entry.name} is disabled in {entry.source}")
    check_approved(entry)
    secrets = entry.secrets | _secret(entry.env) | _secret(entry.headers)
    if entry.url is None:
        from trunkline.host.sandbox import prepare_launch

        launch = prepare_launch(entry)
        start = _starting(list(launch.command), env=launch.env, cwd=launch.cwd, limits=limits)
        return RecordingEndpoint(entry.shown, secrets, start)
    return _remote(entry.shown, secrets, lambda: _entry_target(entry), limits=limits, headers=entry.headers)


async def _entry_target(entry: ServerEntry) -> Target:
    from trunkline.host.upstreams.supervision.clients import StoredLogins, make_client

    return make_client(entry, {}, auth=await StoredLogins().find(entry))._core.target


def _secret(named: Mapping[str, str]) -> frozenset[str]:
    """Return the values whose names indicate that they are secret."""
    rules = Redaction()
    return frozenset(text for name, text in named.items() if len(text) >= _SHORTEST_SECRET and rules.hides(name))
