"""Configuration files in the console: adds, changes, removes and imports servers, and reloads the host.

A file is edited as text (``devtools/client_configs``): comments and order are kept, the result is parsed again, and a
backup is written beside it. Secrets are masked in responses, and a masked value that is sent back unchanged keeps its
old value. An entry that the user types here needs no further approval, as one in the user's own file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import to_builtins

from trunkline.console.api.servers import ServersPart, server_of
from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.console.server_json import fill_in, parse_server_json
from trunkline.devtools.client_configs.entries import masked_entry
from trunkline.devtools.client_configs.files import (
    APPS,
    AppDocument,
    current_machine,
    files_of,
    read_app_file,
    read_own_file,
    write_with_backup,
)
from trunkline.devtools.client_configs.formats import put_server, remove_server
from trunkline.devtools.client_configs.import_plan import ImportStep, apply_import, plan_import, step_remarks
from trunkline.errors import ConfigError, FetchError
from trunkline.host.integrity.fingerprints import take_fingerprint
from trunkline.host.state_files import config_folder
from trunkline.host.upstreams.catalog.names import server_name_problem

if TYPE_CHECKING:
    from trunkline.console.console import Console
    from trunkline.host.config.model import ServerEntry

__all__ = ["ServerConfigPart"]

T = TypeVar("T")
_MASK = "***"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REACHING = frozenset({"command", "url", "httpUrl", "serverUrl"})
_FETCH_BYTES = 1024 * 1024  # A server.json has a few kilobytes, and a page of a registry a few hundred.
_FETCH_SECONDS = 15.0  # About as long as a user waits for a page.


class ServerConfigPart(ConsolePart):
    """Changes the configuration files of the host."""

    def __init__(self, console: Console) -> None:
        """Create the part."""
        super().__init__(console)
        #: Serializes changes: each edits the text that it has read.
        self._changing = asyncio.Lock()

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("POST", "/servers", self._add),
            Route("PUT", "/servers/{name}", self._edit),
            Route("DELETE", "/servers/{name}", self._remove),
            Route("GET", "/servers/{name}/entry", self._entry),
            Route("GET", "/import", self._importable),
            Route("POST", "/import", self._import),
            Route("POST", "/registry", self._parse_server_json),
            Route("POST", "/reload", self._reload),
        )

    # --- one entry ---------------------------------------------------------------------------------------------------

    async def _entry(self, request: ApiRequest) -> Any:
        entry = server_of(self.console, request.params["name"]).entry
        if entry.source.file is None:
            raise ApiError(409, "no_file", f"{entry.name} is not in a configuration file.")
        document = await _in_thread(lambda: read_own_file(Path(entry.source.file or "")))
        raw = document.servers.get(entry.name)
        if raw is None:
            message = f"{entry.name} is no longer in {entry.source.file}."
            raise ApiError(409, "stale", message, fix="Reload the configuration.")
        return {"entry": self._masked(raw), "file": entry.source.file, "line": entry.source.line}

    def _masked(self, raw: Any) -> Any:
        return self.console.core.secrets.hide_in(masked_entry(raw))

    async def _add(self, request: ApiRequest) -> Any:
        name, entry = request.member("name"), _checked(request.member("entry", dict))
        values = request.member("values", dict, required=False)
        if values is not None:
            entry = fill_in(entry, {str(key): str(value) for key, value in values.items()})
        problem = server_name_problem(name)
        if problem is not None:
            raise ApiError(400, "invalid_name", problem[:1].upper() + problem[1:])
        if name in self.console.core.supervisor.upstreams:
            raise ApiError(409, "taken", f"A server {name} already exists.", fix="Choose another name.")
        if _has_mask(entry):
            raise ApiError(400, "masked", f"A value is the mask {_MASK}, not a secret.", fix="Enter the value itself.")
        async with self._changing:
            path = self._target(request.member("file", required=False))
            document = await _in_thread(lambda: read_own_file(path))
            if name in document.servers:
                raise ApiError(409, "taken", f"{path} already has a server {name}.", fix="Choose another name.")
            await self._put(document, name, entry)
            await self._reloaded()
            await self._approve_typed(name)
        return {"server": self.console.part(ServersPart).view(name)}

    async def _edit(self, request: ApiRequest) -> Any:
        name, entry = request.params["name"], _checked(request.member("entry", dict))
        async with self._changing:
            before = self._editable(name)
            allowed = await self.console.assembly.trust.check(before)
            document = await _in_thread(lambda: read_own_file(Path(before.source.file or "")))
            raw = document.servers.get(name)
            if not isinstance(raw, dict):
                message = f"{name} is no longer in {before.source.file}."
                raise ApiError(409, "stale", message, fix="Reload the configuration.")
            await self._put(document, name, _restored(entry, raw, self._masked(raw)))
            await self._reloaded()
            if allowed[0]:
                # Editing an entry does not approve it: correcting a timeout says nothing about the command.
                await self._approve_typed(name)
        return {"server": self.console.part(ServersPart).view(name)}

    async def _remove(self, request: ApiRequest) -> Any:
        name = request.params["name"]
        async with self._changing:
            entry = self._editable(name)
            document = await _in_thread(lambda: read_own_file(Path(entry.source.file or "")))
            file = document.file
            text = await _in_thread(lambda: remove_server(document.text, str(file.path), file.key_path, name))
            await self._write(document, text, name)
            await self._reloaded()
        return {}

    async def _put(self, document: AppDocument, name: str, entry: Mapping[str, Any]) -> None:
        file = document.file
        text = await _in_thread(lambda: put_server(document.text, str(file.path), file.key_path, name, entry))
        await self._write(document, text, name)

    async def _write(self, document: AppDocument, text: str, name: str | None) -> None:
        plain = (
            name if name is not None and name.isascii() and name.replace("-", "").replace("_", "").isalnum() else None
        )
        content = document.encoded(text)
        await _in_thread(lambda: write_with_backup(document.file.path, content, before=document.content, server=plain))

    async def _reloaded(self) -> None:
        try:
            await self.console.host.reload()
        except ConfigError as error:
            raise ApiError(409, "not_reloaded", f"Saved, but the host could not reload it: {error}") from error
        self.console.part(ServersPart).publish()

    async def _approve_typed(self, name: str) -> None:
        """Approve a server of a project's file that the user has just typed in the page."""
        upstream = self.console.core.supervisor.upstreams.get(name)
        if upstream is None or upstream.entry.source.scope != "project" or upstream.entry.problem is not None:
            return
        trust, seen = self.console.assembly.trust, await take_fingerprint(upstream.entry)
        status = trust.status(upstream.entry, seen)
        if not status.may_run and status.obstacle is None:
            await _in_thread(lambda: trust.approve(upstream.entry, seen))
            self.console.part(ServersPart).run(self.console.host.restart(name))

    # --- files -------------------------------------------------------------------------------------------------------

    def _target(self, wanted: str | None = None) -> Path:
        """Return the file for new entries: the requested one, else a file passed with ``-c``, else the user's own.

        Raises:
            ApiError: the host reads no file, or not this one.
        """
        self._require_files()
        files = [file.path for file in self.console.host.configuration.files if file.scope != "managed"]
        own = str(config_folder() / "mcp.json")
        if wanted is not None:
            if wanted not in (*files, own):
                raise ApiError(400, "invalid_file", f"{wanted} is not a configuration file of this host.")
            return Path(wanted)
        scopes = {file.scope: file.path for file in reversed(self.console.host.configuration.files)}
        return Path(scopes.get("given") or scopes.get("user") or own)

    def _editable(self, name: str) -> ServerEntry:
        entry = server_of(self.console, name).entry
        if entry.source.file is None:
            self._require_files()
            raise ApiError(409, "no_file", f"{name} is not in a configuration file.")
        if entry.source.scope == "managed":
            raise ApiError(409, "managed", f"{name} is managed by your administrator, in {entry.source.file}.")
        return entry

    def _require_files(self) -> None:
        if not self.console.assembly.reads_files:
            raise ApiError(
                409,
                "no_file",
                "The server of this console is not in a configuration file.",
                fix="To edit a configuration file, run: trunkline console -c FILE",
            )

    # --- import ------------------------------------------------------------------------------------------------------

    async def _importable(self, request: ApiRequest) -> Any:
        target = self._target()
        plans = await _in_thread(lambda: _plans(target))
        return {
            "apps": [
                {
                    "app": document.file.title,
                    "file": str(document.file.path),
                    "servers": [self._importable_row(step) for step in steps],
                }
                for document, steps in plans
            ],
            "into": str(target),
        }

    def _importable_row(self, step: ImportStep) -> dict[str, Any]:
        state = {"add": "new", "same": "same"}.get(step.action, "differs")
        hide = self.console.core.secrets.hide
        return {
            "name": step.name,
            "entry": self._masked(dict(step.entry)),
            "state": state,
            "notes": [hide(_sentence(each)) for each in step_remarks(step) if state != "differs" or each != step.why],
        }

    async def _import(self, request: ApiRequest) -> Any:
        app, names = request.member("app"), request.member("names", list)
        async with self._changing:
            path = self._target()
            sources = await _in_thread(_sources)
            chosen = [document for document in sources if app in (document.file.title, document.file.app)]
            if not chosen:
                raise ApiError(404, "unknown_app", f"{app} has no configuration file with servers.")
            target = await _in_thread(lambda: read_own_file(path))
            steps = plan_import(chosen, target, conflict="rename", only=[str(name) for name in names])
            missing = sorted({str(name) for name in names} - {step.name for step in steps})
            if missing or not names:
                raise ApiError(404, "unknown_server", f"{app} has no server {', '.join(missing) or '(none chosen)'}.")
            text = await _in_thread(lambda: apply_import(steps, target))
            if text != target.text:
                await self._write(target, text, None)
                await self._reloaded()
            for step in steps:
                if step.writes:
                    await self._approve_typed(step.target)
        return {"imported": [step.target for step in steps if step.writes], "into": str(path)}

    # --- the registry ------------------------------------------------------------------------------------------------

    async def _parse_server_json(self, request: ApiRequest) -> Any:
        text, url = request.member("text", required=False), request.member("url", required=False)
        if (text is None) == (url is None):
            raise ApiError(400, "invalid_request", 'The body must have either "text" or "url".')
        try:
            found = parse_server_json(text if text is not None else await _fetched(url))
        except ConfigError as error:
            raise ApiError(400, "invalid_server_json", _sentence(str(error))) from error
        return to_builtins(found)

    async def _reload(self, request: ApiRequest) -> Any:
        try:
            changes = await self.console.host.reload()
        except ConfigError as error:
            raise ApiError(409, "not_reloaded", str(error), fix="Nothing was changed.") from error
        self.console.part(ServersPart).publish()
        return to_builtins(changes)


# --- entries ---------------------------------------------------------------------------------------------------------


def _checked(entry: dict[str, Any]) -> dict[str, Any]:
    reaching = [name for name in entry if name in _REACHING]
    if not reaching or not all(isinstance(entry[name], str) and entry[name].strip() for name in reaching):
        raise ApiError(400, "invalid_entry", "An entry must have a command or a url.")
    return entry


def _has_mask(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    return any(map(_has_mask, value)) if isinstance(value, list) else isinstance(value, str) and _MASK in value


def _restored(edited: Any, raw: Any, masked: Any) -> Any:
    """Return an edited entry with its masked secrets restored.

    Raises:
        ApiError: a mask is at a place where the original value is not known.
    """
    if isinstance(edited, dict):
        known = raw if isinstance(raw, dict) else {}
        shown = masked if isinstance(masked, dict) else {}
        return {name: _restored(value, known.get(name), shown.get(name)) for name, value in edited.items()}
    if isinstance(edited, list):
        pairs = [*zip(raw, masked, strict=True)] if isinstance(raw, list) and isinstance(masked, list) else []
        return [_restored(value, *_counterpart(at, value, pairs)) for at, value in enumerate(edited)]
    if not _has_mask(edited) or edited == raw:
        return edited
    if edited == masked:
        return raw
    message = f"A value contains the mask {_MASK}, and its original value is not known."
    raise ApiError(400, "masked", message, fix="Enter the value itself.")


def _counterpart(at: int, value: Any, pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the original and the masked form of a list item: at the same index, or the only item with this mask."""
    if at < len(pairs) and pairs[at][1] == value:
        return pairs[at]
    alike = [pair for pair in pairs if pair[1] == value]
    return alike[0] if len(alike) == 1 else (None, None)


# --- files -----------------------------------------------------------------------------------------------------------


async def _in_thread(work: Callable[[], T]) -> T:
    """Run a function that reads or writes files in a thread.

    Raises:
        ApiError: the file cannot be read or changed.
    """
    try:
        return await asyncio.to_thread(work)
    except ConfigError as error:
        raise ApiError(409, "file", str(error)) from error


def _sources() -> list[AppDocument]:
    """Read the configuration files of other applications; files without servers or that cannot be read are skipped."""
    machine, found = current_machine(), []
    for app in APPS:
        for file in files_of(app, machine):
            try:
                document = read_app_file(file)
            except ConfigError:
                continue
            if document.servers:
                found.append(document)
    return found


def _plans(path: Path) -> list[tuple[AppDocument, list[ImportStep]]]:
    target = read_own_file(path)
    plans = [(document, plan_import([document], target)) for document in _sources()]
    usable = [(document, [step for step in steps if step.entry]) for document, steps in plans]
    return [(document, steps) for document, steps in usable if steps and document.file.path != path]


async def _fetched(url: str) -> bytes:
    """Fetch a document from a public URL.

    Raises:
        ApiError: it cannot be fetched.
    """
    from trunkline.net.fetcher import Fetcher

    try:
        async with Fetcher() as fetcher:
            answer = await fetcher.fetch(
                "GET",
                url,
                headers={"Accept": "application/json"},
                max_bytes=_FETCH_BYTES,
                seconds=_FETCH_SECONDS,
                cross_origin=True,
            )
    except (FetchError, ConfigError) as error:
        raise ApiError(502, "not_fetched", f"{url} cannot be fetched: {error}") from error
    if answer.status != 200:
        raise ApiError(502, "not_fetched", f"{url} answered with status {answer.status}.")
    return answer.body


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
