"""Plans an import from other applications: which entries, under which names, and which members are dropped.

Pure functions from documents to a plan and a text. Only members that define how a server is reached are imported;
permissions of the other application, and settings that would increase trust here, are not. Entries of a project keep
its directory. Entries that start this gateway are skipped: it would be its own server.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.devtools.client_configs.files import AppDocument, AppFile
from trunkline.devtools.client_configs.formats import remove_server
from trunkline.devtools.client_configs.json_edit import put_member
from trunkline.errors import ConfigError
from trunkline.host.config.spelling import snake

__all__ = [
    "Conflict",
    "ImportStep",
    "apply_import",
    "is_own_gateway",
    "plan_import",
    "remove_originals",
    "step_remarks",
]

#: What to do with an entry whose name is taken by another one.
Conflict: TypeAlias = Literal["skip", "rename", "replace"]

#: Members that are imported; they mean the same here.
_IMPORTED_MEMBERS = frozenset(
    {"type", "transport", "transport_type", "command", "args", "env", "env_file", "cwd", "url", "http_url",
     "server_url", "headers", "http_headers", "auth", "oauth", "disabled", "enabled", "timeout", "include_tools",
     "enabled_tools", "allowed_tools", "exclude_tools", "disabled_tools"}
)  # fmt: skip
_INPUT = re.compile(r"\$\{input:([^}]+)\}")
_RELATIVE = re.compile(r"\.{1,2}[/\\]")
#: A program called trunkline, as a path, a file of Windows, or with a version as uvx and pipx take it.
_OWN_PROGRAM = re.compile(r"(?:.*[/\\])?trunkline(?:\.exe)?(?:\[[^\]]*\])?(?:(?:@|==).*)?", re.I)
_SKIPPED_OWN = "it starts this gateway (trunkline serve), which cannot be its own server"


class ImportStep(Struct, frozen=True, kw_only=True):
    """One entry of another application, and what to do with it."""

    #: Its name there, and its name here.
    name: str
    target: str
    file: AppFile
    entry: Mapping[str, Any]
    action: Literal["add", "replace", "same", "skip"]
    #: Why it is skipped or renamed.
    why: str = ""
    #: Members that are not imported.
    dropped: tuple[str, ...] = ()
    inputs: tuple[Any, ...] = ()
    #: True if it starts our own gateway.
    own: bool = False

    def __repr__(self) -> str:
        """Return name and action only: the entry may hold secrets."""
        return f"Step({self.name!r}, {self.action})"

    @property
    def writes(self) -> bool:
        """True if the step changes the configuration."""
        return self.action in ("add", "replace")

    @property
    def is_imported(self) -> bool:
        """True if the server is in our configuration after the import."""
        return self.action != "skip"


def plan_import(
    sources: Iterable[AppDocument], target: AppDocument, *, conflict: Conflict = "skip", only: Sequence[str] = ()
) -> list[ImportStep]:
    """Return a step for each entry; ``only`` limits the import to these names, if any are given."""
    taken: dict[str, Any] = dict(target.servers)
    steps = []
    for document in sources:
        for name, raw in document.servers.items():
            if not only or name in only:
                step = _step(document, name, raw, taken=taken, conflict=conflict)
                steps.append(step)
                if step.writes:
                    taken[step.target] = dict(step.entry)
    return steps


def _step(document: AppDocument, name: str, raw: Any, *, taken: Mapping[str, Any], conflict: Conflict) -> ImportStep:
    file = document.file
    raw = _common_members(raw, file.app)
    if not isinstance(raw, dict) or not ({"command", "url", "httpUrl", "serverUrl"} & set(raw)):
        why = "it has neither a command nor a URL"
        return ImportStep(name=name, target=name, file=file, entry={}, action="skip", why=why)
    if is_own_gateway(raw):
        return ImportStep(name=name, target=name, file=file, entry={}, action="skip", why=_SKIPPED_OWN, own=True)
    entry, dropped = _imported_members(raw, file)
    inputs = tuple(_used_inputs(entry, document.inputs))
    step = ImportStep(name=name, target=name, file=file, entry=entry, action="add", dropped=dropped, inputs=inputs)
    if name not in taken:
        return step
    if taken[name] == entry:
        return _changed(step, action="same", why="it is already configured")
    if conflict == "replace":
        return _changed(step, action="replace", why="it replaces another server of that name")
    if conflict == "rename":
        return _renamed(step, taken)
    return _changed(step, action="skip", why="the name is taken (--conflict rename or replace)")


def is_own_gateway(raw: Mapping[str, Any]) -> bool:
    """Return True if an entry starts our gateway: ``trunkline serve``, directly, with ``python -m``, or by a runner."""
    arguments = raw.get("args")
    words = [raw.get("command"), *(arguments if isinstance(arguments, list) else ())]
    if not all(isinstance(word, str) for word in words):
        return False
    return any(_OWN_PROGRAM.fullmatch(word) and after == "serve" for word, after in itertools.pairwise(words))


def step_remarks(step: ImportStep) -> list[str]:
    """Return remarks about a step for the user: reasons, members that are left out, warnings."""
    from trunkline.host.config.loading import configuration_from_mapping, entry_from_mapping
    from trunkline.host.integrity.trust import warnings_for

    remarks = [step.why] if step.why else []
    if step.dropped:
        remarks.append(f"not imported: {', '.join(step.dropped)}")
    if step.writes:
        whole = {"mcpServers": {step.target: step.entry}, "inputs": list(step.inputs)}
        # A server named "command" makes the whole object look like an entry; it is then parsed without the inputs.
        entry = configuration_from_mapping(whole).entries.get(step.target) or entry_from_mapping(
            step.target, step.entry
        )
        remarks += [f"it {warning}" for warning in warnings_for(entry)]
        remarks += [entry.redact(entry.problem)] if entry.problem else []
    return remarks


def remove_originals(
    steps: Iterable[ImportStep], sources: Iterable[AppDocument], target: AppDocument
) -> list[tuple[AppDocument, str, tuple[str, ...]]]:
    """Return each file with imported servers, its text without them, and their names.

    Files that a project shares with others are not changed, and neither is the target of the import.

    Raises:
        ConfigError: a file cannot be changed safely.
    """
    found = []
    taken = [step for step in steps if step.is_imported and step.file.scope != "project"]
    documents = {document.file.path: document for document in reversed(list(sources))}
    for path, document in reversed(documents.items()):
        own = [step for step in taken if step.file.path == path]
        if not own or os.path.realpath(path) == os.path.realpath(target.file.path):
            continue
        text = document.text
        for step in own:
            text = remove_server(text, str(path), step.file.key_path, step.name)
        found.append((document, text, tuple(step.name for step in own)))
    return found


def _changed(step: ImportStep, **changes: Any) -> ImportStep:
    from msgspec.structs import replace

    return replace(step, **changes)


def _renamed(step: ImportStep, taken: Mapping[str, Any]) -> ImportStep:
    for target in _names(f"{step.name}-{step.file.app}"):
        if target not in taken:
            return _changed(step, target=target, why=f"the name {step.name} is taken")
        if taken[target] == step.entry:
            return _changed(step, target=target, action="same", why="it is already configured")
    raise AssertionError("names do not end")


def _names(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


#: Goose has names of its own for what the others have in common.
_GOOSE_MEMBERS: Mapping[str, str] = MappingProxyType({"cmd": "command", "envs": "env", "uri": "url"})
#: Applications whose timeouts are not in the units of ours, or limit something else.
_OTHER_TIMEOUTS = frozenset({"gemini-cli", "goose", "zed"})


def _common_members(raw: Any, app: str) -> Any:
    """Return an entry with the names that most applications use."""
    if not isinstance(raw, dict):
        return raw
    if app == "goose":
        # Its type is derived from the other members.
        raw = {_GOOSE_MEMBERS.get(name, name): value for name, value in raw.items() if name != "type"}
    return {name: value for name, value in raw.items() if name != "timeout"} if app in _OTHER_TIMEOUTS else raw


# --- one entry -------------------------------------------------------------------------------------------------------


def _imported_members(raw: Mapping[str, Any], file: AppFile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the imported members, made independent of the project's directory, and the names of the others."""
    entry = {name: value for name, value in raw.items() if snake(name) in _IMPORTED_MEMBERS and value is not None}
    dropped = tuple(name for name, value in raw.items() if name not in entry and value is not None)
    if file.folder is None:
        return entry, dropped
    folder = file.folder
    entry = {name: _fill_folder(value, folder) for name, value in entry.items()}
    if "command" in entry:
        entry["cwd"] = _absolute(entry.get("cwd", ""), folder)
        if isinstance(entry["command"], str) and _RELATIVE.match(entry["command"]):
            entry["command"] = _absolute(entry["command"], folder)
    for name in entry:
        if snake(name) == "env_file":
            entry[name] = _absolute(entry[name], folder)
    return entry, dropped


def _fill_folder(value: Any, folder: Path) -> Any:
    """Substitute the project's directory for its variables, which have no meaning outside the project."""
    if isinstance(value, str):
        text = value.replace("${workspaceFolder}", str(folder))
        return text.replace("${workspaceFolderBasename}", folder.name)
    if isinstance(value, dict):
        return {name: _fill_folder(each, folder) for name, each in value.items()}
    return [_fill_folder(each, folder) for each in value] if isinstance(value, list) else value


def _absolute(path: Any, folder: Path) -> Any:
    if not isinstance(path, str) or path.startswith(("~", "${")):
        return path
    return os.path.normpath(os.path.join(folder, path))


def _used_inputs(entry: Mapping[str, Any], inputs: Sequence[Any]) -> Iterator[Any]:
    import json

    used = set(_INPUT.findall(json.dumps(entry, ensure_ascii=False)))
    for each in inputs:
        if isinstance(each, dict) and each.get("id") in used:
            yield each


# --- the text --------------------------------------------------------------------------------------------------------


def apply_import(steps: Iterable[ImportStep], target: AppDocument) -> str:
    """Return the text of the target file with the import applied.

    Raises:
        ConfigError: the file cannot be changed safely.
    """
    text = target.text
    inputs = list(target.inputs)
    for step in steps:
        if not step.writes:
            continue
        text = put_member(text, target.file.key_path, step.target, dict(step.entry))
        fresh = [each for each in step.inputs if each not in inputs]
        known = {each.get("id") for each in inputs if isinstance(each, dict)}
        for each in fresh:
            if each["id"] in known:
                raise ConfigError(f"{step.name}: {target.file.path} has another input {each['id']!r}")
        if fresh:
            inputs += fresh
            text = put_member(text, target.file.key_path[:-1], "inputs", inputs)
    return text
