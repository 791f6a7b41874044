"""Servers in the console: their state with reason and fix, start and stop, stderr, doctor, approval.

All data comes from the host's status. Changes arrive as events of the host and are published to the pages as views, at
most five times a second: when a host starts, many servers change at once. ``server_config`` edits the files,
``sign_in`` logs in and out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.console.stderr import StderrLines
from trunkline.errors import ConfigError
from trunkline.host.events import CatalogChanged, EventsMissed, EventSubscription, Reloaded, ServerStateChanged
from trunkline.host.integrity.fingerprints import take_fingerprint
from trunkline.host.integrity.trust import approval_rows, shown_command, warnings_for
from trunkline.host.upstreams.catalog.items import estimate_tokens
from trunkline.host.upstreams.supervision.clients import StoredLogins, has_authorization_header

if TYPE_CHECKING:
    from trunkline.console.console import Console
    from trunkline.devtools.doctor.checks import Check
    from trunkline.host.config.model import ServerEntry
    from trunkline.host.upstreams.supervision.upstream import ServerStatus, Upstream

__all__ = ["ServersPart", "server_of"]

_INTERVAL = 0.2  # Seconds between two updates of the views.
_COMMAND_SECONDS = 5.0  # A command that takes longer continues; its outcome is published as an event.
_DOCTOR_SECONDS = 120.0  # All checks of a slow server, each of which has a shorter timeout of its own.
_LONGEST_INSTRUCTIONS = 16 * 1024  # The text comes from the server; no useful instructions are longer.
_RUNNING = frozenset({"ready", "partial", "starting"})
_FIXES: Mapping[str, str] = MappingProxyType(
    {
        "disabled": 'Remove "disabled" from its entry.',
        "unapproved": "Read the command it runs, and trust it if you know it.",
        "needs login": "Sign in.",
        "broken": "Run the checks to find the cause, then start it again.",
        "stopped": "Start it.",
        "misconfigured": "Correct its entry.",
    }
)


def server_of(console: Console, name: str) -> Upstream:
    """Return a server of the host.

    Raises:
        ApiError: there is none of that name.
    """
    found = console.core.supervisor.upstreams.get(name)
    if found is None:
        raise ApiError(404, "unknown_server", f"There is no server {name!r}.")
    return found


class ServersPart(ConsolePart):
    """The servers of the host."""

    def __init__(self, console: Console) -> None:
        """Create the part."""
        super().__init__(console)
        self.stderr = StderrLines(
            lambda text: console.core.secrets.redaction(text_length=8192).text(text),
            lambda server, lines: console.events.publish("stderr", server=server, lines=lines),
        )
        self._views: dict[str, dict[str, Any]] = {}
        #: The fix of the first failed check, and the state of the server at that time.
        self._diagnoses: dict[str, tuple[float, str | None, str | None]] = {}
        self._examined: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/servers", self._list),
            Route("POST", "/servers/{name}/start", self._start),
            Route("POST", "/servers/{name}/stop", self._stop),
            Route("POST", "/servers/{name}/restart", self._restart),
            Route("GET", "/servers/{name}/stderr", self._stderr),
            Route("POST", "/servers/{name}/doctor", self._doctor),
            Route("GET", "/servers/{name}/trust", self._trust),
            Route("POST", "/servers/{name}/trust", self._approve),
        )

    def state(self) -> dict[str, Any]:
        """Return the views of all servers."""
        return {"servers": self.views()}

    async def start(self) -> None:
        """Publish changes of the servers."""
        console = self.console
        for name, upstream in console.core.supervisor.upstreams.items():
            self.stderr.add(name, upstream.stderr.splitlines())
        console.assembly.stderr_listeners.add(self.stderr.received)
        self._views = {view["name"]: view for view in self.views()}
        self.run(self._follow(console.host.events()))
        self.run(self._publish_changes())

    async def aclose(self) -> None:
        """Stop publishing, and cancel what runs."""
        with suppress(ConfigError):  # The host may be closed already.
            self.console.assembly.stderr_listeners.discard(self.stderr.received)
        self.stderr.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background until it ends or the console is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- views -------------------------------------------------------------------------------------------------------

    def views(self) -> list[dict[str, Any]]:
        """Return the views of all servers."""
        return [self._view(status) for status in self.console.host.status()]

    def view(self, name: str) -> dict[str, Any]:
        """Return the view of one server.

        Raises:
            ApiError: there is none of that name.
        """
        server_of(self.console, name)
        return next(view for view in self.views() if view["name"] == name)

    def _view(self, status: ServerStatus) -> dict[str, Any]:
        console = self.console
        upstream = console.core.supervisor.upstreams[status.name]
        entry, offering = upstream.entry, upstream.offering
        reason, fix = self._reason(status)
        info = None if offering is None else offering.server_info
        hide = console.core.secrets.hide_in
        return {
            "name": status.name,
            "state": status.state,
            "reason": reason,
            "fix": fix,
            "actions": self._actions(status, entry),
            "era": status.era,
            "transport": "stdio" if entry.command is not None else "http" if entry.url is not None else "memory",
            "command": status.command,
            "url": status.url,
            "pid": status.pid,
            "tools": status.tools,
            "prompts": status.prompts,
            "resources": status.resources,
            "unusable": status.unusable,
            "tokens": self._tokens(status.name),
            "restarts": status.restarts,
            "since": status.since,
            "source": status.source,
            "failures": status.failures,
            "info": None if info is None else hide({"name": info.name, "title": info.title, "version": info.version}),
            "instructions": None
            if offering is None or not offering.instructions
            else hide(offering.instructions[:_LONGEST_INSTRUCTIONS]),
            "capabilities": {} if offering is None else hide(offering.capabilities),
        }

    def _reason(self, status: ServerStatus) -> tuple[str | None, str | None]:
        """Return the reason for a server's state, and the fix; the last diagnosis applies while the state lasts."""
        reason = status.reason or (status.last_error if status.state in ("waiting", "broken") else None)
        if reason is not None and status.state in ("unapproved", "needs login"):
            # The reason ends with a terminal command; the page has a button instead.
            reason = reason.partition("; run: trunkline ")[0]
        fix = _FIXES.get(status.state)
        if status.state == "misconfigured":
            problems = self.console.host.configuration.provenance(status.name).problems
            found = next((each.fix for each in problems if each.fix), None)
            if found is not None and reason is not None:
                reason, fix = reason.removesuffix(f"; {found}"), found
        since, why, helps = self._diagnoses.get(status.name, (0.0, None, None))
        return (why or reason, helps or fix) if since == status.since else (reason, fix)

    def _actions(self, status: ServerStatus, entry: ServerEntry) -> list[str]:
        state = status.state
        found = []
        if state not in _RUNNING and state not in ("disabled", "unapproved"):
            found.append("start")
        if state not in ("stopped", "disabled", "misconfigured", "unapproved"):
            found.append("stop")
        if state in ("ready", "partial", "waiting", "needs login"):
            found.append("restart")
        if state == "unapproved":
            found.append("trust")
        if entry.url is not None and state != "unapproved" and not has_authorization_header(entry):
            found.append("login")
        editable = entry.source.file is not None and entry.source.scope != "managed"
        if editable and self.console.assembly.reads_files:
            found += ("edit", "remove")
        return found

    def _tokens(self, name: str) -> int:
        part = self.console.host.catalog.parts.get(name)
        if part is None:
            return 0
        tools = sum(item.tokens for item in part.items if item.kind == "tool" and item.for_model)
        return tools + (estimate_tokens(part.offering.instructions) if part.offering.instructions else 0)

    # --- events ------------------------------------------------------------------------------------------------------

    async def _follow(self, events: EventSubscription) -> None:
        async with events:
            async for event in events:
                if isinstance(event, ServerStateChanged | CatalogChanged | Reloaded | EventsMissed):
                    self._changed.set()

    async def _publish_changes(self) -> None:
        """Publish the changed views, whenever a server changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.publish()
            await asyncio.sleep(_INTERVAL)

    def publish(self) -> None:
        """Publish the changed views now."""
        before, self._views = self._views, {view["name"]: view for view in self.views()}
        for name, view in self._views.items():
            if before.get(name) != view:
                self.console.events.publish("server", server=view)
        for name in before.keys() - self._views.keys():
            self.stderr.forget(name)
            self._diagnoses.pop(name, None)
            self.console.events.publish("server_removed", name=name)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _list(self, request: ApiRequest) -> Any:
        return {"servers": self.views()}

    async def _start(self, request: ApiRequest) -> Any:
        return await self._command(request, self.console.host.start)

    async def _stop(self, request: ApiRequest) -> Any:
        return await self._command(request, self.console.host.stop)

    async def _restart(self, request: ApiRequest) -> Any:
        return await self._command(request, self.console.host.restart)

    async def _command(self, request: ApiRequest, command: Any) -> Any:
        name = request.params["name"]
        if server_of(self.console, name).entry.disabled:
            raise ApiError(409, "disabled", f"{name} is disabled in its entry.", fix=_FIXES["disabled"])
        await self.finish(command(name))
        return {"server": self.view(name)}

    async def finish(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait a short time for a command; one that takes longer continues in the background."""
        task = self.run(work)
        await asyncio.wait((task,), timeout=_COMMAND_SECONDS)
        if task.done() and not task.cancelled():
            task.result()
        self.publish()

    async def _stderr(self, request: ApiRequest) -> Any:
        name = request.params["name"]
        server_of(self.console, name)
        return {"lines": self.stderr.lines(name)}

    # --- doctor ------------------------------------------------------------------------------------------------------

    async def _doctor(self, request: ApiRequest) -> Any:
        from trunkline.devtools.doctor.examine import DoctorEnvironment, examine

        name, console = request.params["name"], self.console
        upstream = server_of(console, name)
        if name in self._examined:
            raise ApiError(409, "busy", f"{name} is already being checked.", fix="Wait for the result.")
        environment = DoctorEnvironment(
            trust_store=console.assembly.trust, logins=StoredLogins(), secret=console.assembly.vault.read
        )
        written = console.host.configuration.provenance(name)
        self._examined.add(name)
        try:
            async with asyncio.timeout(_DOCTOR_SECONDS):
                diagnosis = await examine(upstream.entry, environment, written=written)
        except TimeoutError:
            message = f"The checks of {name} took longer than {_DOCTOR_SECONDS:g} s."
            raise ApiError(504, "timeout", message, fix="Read its output for the cause.") from None
        finally:
            self._examined.discard(name)
        failed = next((check for check in diagnosis.checks if check.status == "fail"), None)
        if failed is not None:
            self._diagnoses[name] = (upstream.status.since, console.core.secrets.hide(failed.detail), failed.fix)
            self.publish()
        return {"checks": [self._check(check) for check in diagnosis.checks], "tokens": diagnosis.tokens}

    def _check(self, check: Check) -> dict[str, Any]:
        hide = self.console.core.secrets.hide
        return {
            "name": check.title,
            "ok": {"ok": True, "fail": False}.get(check.status),
            "status": check.status,
            "text": hide(check.detail),
            "fix": None if check.fix is None else hide(check.fix),
        }

    # --- approval ----------------------------------------------------------------------------------------------------

    async def _trust(self, request: ApiRequest) -> Any:
        entry = server_of(self.console, request.params["name"]).entry
        seen = await take_fingerprint(entry)
        status = self.console.assembly.trust.status(entry, seen)
        words = [entry.redact(word) for word in entry.command] if entry.command else [shown_command(entry)]
        changes = [f"Changed: {change}" for change in status.changes]
        return {
            "command": words,
            "cwd": entry.cwd,
            "env": sorted(entry.env),
            "source": str(entry.source),
            "fingerprint": seen.digest,
            "state": status.state,
            "reason": status.reason.partition("; run: trunkline ")[0],
            "notes": [*changes, *(f"It {warning}." for warning in warnings_for(entry))],
            "details": [{"label": label, "text": text} for label, text in approval_rows(entry, seen, status)],
        }

    async def _approve(self, request: ApiRequest) -> Any:
        name, console = request.params["name"], self.console
        shown = request.member("fingerprint")
        entry = server_of(console, name).entry
        seen = await take_fingerprint(entry)
        if seen.digest != shown:
            raise ApiError(409, "changed", f"{name} has changed since it was shown.", fix="Read its command again.")
        status = console.assembly.trust.status(entry, seen)
        if status.obstacle is not None:
            raise ApiError(409, "not_approvable", status.obstacle)
        if not status.may_run:
            try:
                await asyncio.to_thread(console.assembly.trust.approve, entry, seen)
            except ConfigError as error:
                raise ApiError(409, "not_approvable", str(error)) from error
        await self.finish(console.host.restart(name))
        return {"server": self.view(name)}
