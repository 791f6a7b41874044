"""Runs configured servers for one command: the host, behind the interface of a client.

Only the named server is started, and its tools, prompts and resources keep their own names. For all servers, names are
IDs, ``server/name``. Trust, policy, approval and audit belong to the host and cannot be bypassed by a command. A call
that the user typed counts as approved: the terminal asks only if a rule requires approval, or if a definition is
flagged or changed. Without a terminal such a call is denied.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any, cast

import msgspec

import trunkline.types as t
from trunkline.cli.approvals import terminal_face
from trunkline.cli.changes import change_lines
from trunkline.cli.configs import answers_for, name_hint, read_configuration
from trunkline.cli.exits import Exit, exit_for
from trunkline.cli.output import one_line
from trunkline.cli.secrecy import book_here
from trunkline.cli.session import Offers, Talk
from trunkline.cli.targets import Named
from trunkline.client.client import Client
from trunkline.client.listening import Change
from trunkline.client.options import Progress
from trunkline.client.tool_facts import CallResult
from trunkline.errors import (
    AuthError,
    ConfigError,
    PolicyDenied,
    RequestTimeout,
    ServerUnavailable,
    TrunklineError,
)
from trunkline.host.assembly import HostOptions
from trunkline.host.catalog.items import Item, Kind
from trunkline.host.catalog.names import id_of, inner_uri, outer_uri
from trunkline.host.gateway.options import GatewayOptions
from trunkline.host.host import Host
from trunkline.host.supervision.clients import start_seconds
from trunkline.host.supervision.upstream import Status
from trunkline.host.usable import is_usable

__all__ = ["NotOffered", "problem_of", "through_host"]

# The command stops waiting before the server task gives up, so that the failure is reported as a timeout.
_LONGER = 2.0
_MEMBERS: Mapping[Kind, str] = MappingProxyType(
    {"tool": "name", "prompt": "name", "resource": "uri", "template": "uri_template"}
)


class NotOffered(TrunklineError):
    """The server does not have the requested item; the message says what it has, or why the item is left out."""


def through_host(talk: Talk) -> AbstractAsyncContextManager[Offers]:
    """Load the configuration, prompt for open inputs, and return a context manager that runs the servers.

    Raises:
        ConfigError: a given file cannot be used.
    """
    choices, target = talk.choices, talk.choices.target
    assert isinstance(target, Named)
    entries = read_configuration(target.files).entries
    wanted = [entry for name, entry in entries.items() if target.server in (None, name)]
    names = None if target.server is None else (target.server,)
    inputs = answers_for(target.files, names, no_input=choices.no_input)
    seconds = choices.timeout or max(map(start_seconds, wanted), default=1.0)
    options: HostOptions = {
        "only": names,
        **choices.guard.options(),
        "typed": True,
        "consent": terminal_face(talk.screen, no_input=choices.no_input, turn=talk.questions.turn, one_call=True),
        "sampling": talk.questions.sample,
        "elicitation": talk.questions.elicit,
        "elicitation_urls": True,
        "logging": talk.logged if choices.verbosity else None,
        "inputs": inputs,
        "secret_book": book_here(),
        "wait": "all",
        "wait_seconds": seconds,
        "settings": _settings(choices.revision, choices.timeout, start=seconds + _LONGER),
    }
    return _opened(talk, target, options, seconds)


def _settings(revision: str, timeout: float | None, *, start: float) -> dict[str, Any]:
    # The command waits for every server equally.
    settings: dict[str, Any] = {"start_timeout": start, "required": False}
    if timeout is not None:
        settings |= {"timeout": timeout, "total_timeout": timeout}
    if revision != "auto":
        settings["era"] = revision
    return settings


@asynccontextmanager
async def _opened(talk: Talk, target: Named, options: HostOptions, seconds: float) -> AsyncIterator[Offers]:
    async with Host.open(*target.files, **options) as host:
        statuses = host.status()
        if target.server is not None:
            problem = problem_of(statuses[0], seconds)
            if problem is not None:
                raise problem
        else:
            _tell_of_missing(talk, host, seconds)
        if talk.choices.verbosity:
            for status in statuses:
                talk.screen.line(f"{one_line(status.name)} is {status.state}, revision {status.era or 'not known'}")
        yield cast("Offers", HostedServers(talk, host, target.server))


def problem_of(status: Status, seconds: float) -> TrunklineError | None:
    """Return the error for a server in this state; None if it can be used."""
    name = one_line(status.name)
    why = f"{name}: {status.last_error or status.reason or status.state}"
    match status.state:
        case "ready" | "partial" | "known":
            return None
        case "starting":
            return RequestTimeout(f"{name}: not ready after {seconds:g} s", clock="connect", seconds=seconds)
        case "misconfigured":
            return ConfigError(status.reason or why)
        case "disabled":
            return ConfigError(f"{name} is disabled in {status.source}")
        case "unapproved":
            return PolicyDenied(
                f"{name}: {status.reason or f'it is not approved; run: trunkline trust approve {name}'}"
            )
        case "needs login":
            return AuthError(f"{name}: {status.reason or f'run: trunkline auth login {name}'}")
        case _:
            return ServerUnavailable(why)


def _tell_of_missing(talk: Talk, host: Host, seconds: float) -> None:
    """Print which servers are missing from a list of all servers; disabled ones are not reported."""
    for problem in host.configuration.problems:
        talk.screen.line(f"trunkline: {problem}")
        if problem.severity == "error":
            talk.trouble = Exit.CONFIG
    for status in host.status():
        missing = None if status.state == "disabled" else problem_of(status, seconds)
        if missing is not None:
            talk.screen.line(f"trunkline: {missing}")
            talk.trouble = talk.trouble or exit_for(missing)


class HostedServers:
    """The interface of ``Client`` over a host: one server under its own names, or all servers under IDs."""

    def __init__(self, talk: Talk, host: Host, server: str | None) -> None:
        """Use the servers of this host; ``server`` None stands for all of them."""
        self._talk = talk
        self._host = host
        self._server = server

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list_tools(self) -> list[Any]:
        """List the tools that the policy does not hide."""
        return self._list("tool")

    async def list_prompts(self) -> list[Any]:
        """List the prompts."""
        return self._list("prompt")

    async def list_resources(self) -> list[Any]:
        """List the resources."""
        return self._list("resource")

    async def list_resource_templates(self) -> list[Any]:
        """List the resource templates."""
        return self._list("template")

    def _list(self, kind: Kind) -> list[Any]:
        catalog = self._host.catalog
        self._tell_of_failed(kind)
        items = [item for item in catalog.of(kind).values() if self._server in (None, item.server)]
        seen = [item for item in items if self._sees(item)]
        if len(seen) < len(items):
            count = len(items) - len(seen)
            self._note(f"hidden, because the policy denies it: {count} {kind}{'s' if count > 1 else ''}")
        for drop in catalog.dropped:
            if drop.kind == kind and self._server in (None, drop.server):
                self._note(f"{drop.server}/{drop.name} is left out: {drop.reason}")
        # Changed definitions that are hidden were reported above, as left out.
        shown = {(item.server, item.name) for item in seen if item.changed}
        for line in change_lines(
            each for each in self._host.inspected() if each.kind == kind and (each.server, each.name) in shown
        ):
            self._note(line)
        return [self._shown(item) for item in seen]

    def _tell_of_failed(self, kind: Kind) -> None:
        """Print which servers failed to list this kind, and set the exit code for that."""
        method = "resources/templates/list" if kind == "template" else f"{kind}s/list"
        for status in self._host.status():
            if self._server in (None, status.name) and method in status.failures:
                self._note(f"{status.name}: {method} failed: {status.failures[method]}")
                self._talk.trouble = self._talk.trouble or Exit.FAILED

    def _sees(self, item: Item) -> bool:
        return is_usable(item, self._host.policy)

    def _shown(self, item: Item) -> Any:
        if self._server is not None:
            return item.definition
        return msgspec.structs.replace(item.definition, **{_MEMBERS[item.kind]: item.id})

    def _note(self, text: str) -> None:
        self._talk.notes.append(one_line(text))

    # --- using them --------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Progress | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
        raise_on_error: bool = True,
    ) -> CallResult:
        """Call a tool; the timeouts are already in the settings of the server."""
        id = self._id("tool", name)
        with self._explained():
            return await self._host.call_tool(id, arguments, on_progress=on_progress, raise_on_error=raise_on_error)

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource."""
        id = id_of(self._named(uri), uri)
        if self._host.catalog.find_resource(id) is None:
            raise NotOffered(self._why_not("resource", uri))
        with self._explained():
            return await self._host.read_resource(id)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> t.GetPromptResult:
        """Render a prompt."""
        id = self._id("prompt", name)
        with self._explained():
            return await self._host.get_prompt(id, arguments)

    async def complete(
        self,
        ref: t.CompletionReference,
        argument: Mapping[str, str],
        *,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument."""
        id = self._id("prompt", ref.name) if isinstance(ref, t.PromptReference) else self._id("template", ref.uri)
        with self._explained():
            return await self._host.complete(id, argument["name"], argument["value"], context=context)

    @asynccontextmanager
    async def listen(self, *, uris: Iterable[str] = (), **wanted: bool | None) -> AsyncIterator[AsyncIterator[Change]]:
        """Subscribe to changes, as the gateway reports them to its clients."""
        server = self._named("changes")
        gateway = self._host.gateway(GatewayOptions(servers=frozenset({server})))
        outer = [outer_uri(server, uri) for uri in uris]
        try:
            async with Client(gateway) as client, client.listen(uris=outer, **wanted) as changes:
                yield _inner(changes, server)
        finally:
            await gateway.aclose()

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _named(self, what: str) -> str:
        if self._server is None:
            raise NotOffered(f"{what}: name the server too")
        return self._server

    def _id(self, kind: Kind, name: str) -> str:
        """Return the ID of an item of the server.

        Raises:
            NotOffered: there is no usable item of that name.
        """
        id = id_of(self._named(name), name)
        if id not in self._host.catalog.of(kind):
            raise NotOffered(self._why_not(kind, name))
        return id

    def _why_not(self, kind: Kind, name: str) -> str:
        server, catalog = self._server, self._host.catalog
        for words, drops in (("hidden by a filter", catalog.hidden), ("left out", catalog.dropped)):
            for drop in drops:
                if (drop.server, drop.kind, drop.name) == (server, kind, name):
                    return f"{server} has no {kind} {name!r} here: {words}: {drop.reason}"
        names = [item.name for item in catalog.of(kind).values() if item.server == server]
        return f"{server} has no {kind} {name!r}; {name_hint(name, names)}"

    def _explained(self) -> _Explained:
        return _Explained(self._host, self._server)


class _Explained:
    """Replaces ``ServerUnavailable`` by the error for the state of the server, which says what to do about it."""

    def __init__(self, host: Host, server: str | None) -> None:
        self._host = host
        self._server = server

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ServerUnavailable):
            for status in self._host.status():
                problem = problem_of(status, 0.0) if status.name == self._server else None
                if problem is not None and not isinstance(problem, RequestTimeout):
                    raise problem from error


async def _inner(changes: AsyncIterator[Change], server: str) -> AsyncIterator[Change]:
    """Translate the URIs in changes back to those of the server."""
    async for change in changes:
        pair = None if change.uri is None else inner_uri(change.uri, (server,))
        yield change if pair is None else Change(change.kind, pair[1])
