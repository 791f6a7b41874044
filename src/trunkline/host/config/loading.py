"""Loads configuration from the files of all scopes, or from a mapping given in code.

It decides which entries are active. An entry replaces another of the same name as a whole; entries are never merged.
Managed overrides given, given overrides project, project overrides user. A broken file that was named, or that the
administrator installed, is an error, since what it would have said is unknown; one that was merely found is reported as
a problem.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.config.documents import ConfigDocument, InvalidConfigFile, parse_document, read_document
from trunkline.host.config.entry_parser import ParsedEntry, is_disabled, parse_entry
from trunkline.host.config.entry_reader import EntryContext
from trunkline.host.config.jsonc import JsonArray, JsonNode, JsonObject, JsonProperty, JsonScalar
from trunkline.host.config.model import (
    ConfigProblem,
    Configuration,
    InactiveEntry,
    InputVariable,
    LoadedFile,
    Scope,
    ServerEntry,
    ServerRules,
    ServerSettings,
    Source,
    ValueOrigin,
)
from trunkline.host.config.spelling import camel, nearest, quoted
from trunkline.host.config.variables import VariableSources

__all__ = [
    "ConfigFiles",
    "InputPrompt",
    "ScopedDocument",
    "answer_inputs",
    "build_configuration",
    "configuration_from_mapping",
    "entries_from_mapping",
    "entry_from_mapping",
    "explain",
    "find_config_files",
    "load_configuration",
    "managed_config_path",
    "scope_document",
]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESERVED = frozenset({"trunkline"})


class ScopedDocument(Struct, frozen=True, kw_only=True):
    """A document with its scope and the sources of its variables."""

    document: ConfigDocument
    scope: Scope
    context: EntryContext


def build_configuration(
    scoped: Sequence[ScopedDocument], *, files: Iterable[LoadedFile] = (), problems: Iterable[ConfigProblem] = ()
) -> Configuration:
    """Build a configuration from documents; entries of an earlier document override those of a later one."""
    builder = _ConfigurationBuilder(next((each for each in scoped if each.scope == "managed"), None))
    for each in scoped:
        builder.add(each)
    entries = {name: built.entry for name, built in builder.holding.items()}
    documents = (warning for each in scoped for warning in each.document.warnings)
    warnings = (warning for built in builder.holding.values() for warning in built.warnings)
    return Configuration(
        entries=MappingProxyType(entries),
        hidden=tuple(builder.hidden),
        problems=(*problems, *documents, *warnings, *_same_endpoints(entries)),
        files=tuple(files),
        rules=builder.rules,
        written=MappingProxyType({name: built.provenance for name, built in builder.holding.items()}),
        documents=tuple(scoped),
    )


def answer_inputs(configuration: Configuration, ask: InputPrompt) -> Configuration:
    """Build a configuration again from the files it was parsed from, with the answers to its inputs.

    The files are not read again, so the entries are those that the caller has already seen.
    """
    scoped = [replace(each, context=_asking(each.context, ask)) for each in configuration.documents]
    broken = [file.problem for file in configuration.files if file.problem is not None]
    return build_configuration(scoped, files=configuration.files, problems=broken)


def _asking(context: EntryContext, ask: InputPrompt) -> EntryContext:
    return replace(context, sources=replace(context.sources, ask=_once(ask)))


class _Candidate(Struct, frozen=True):
    """An entry that may become active: its JSON value and its source."""

    member: JsonProperty
    scoped: ScopedDocument
    #: The problem with its name, if any.
    problem: ConfigProblem | None

    @property
    def source(self) -> Source:
        return Source(self.scoped.scope, self.scoped.document.file, self.member.line or None)

    def build(self, *, ask: bool) -> ParsedEntry:
        context = self.scoped.context
        if not ask or is_disabled(self.member.value):
            context = replace(context, sources=replace(context.sources, ask=None))
        return parse_entry(
            self.member.name, self.member.value, source=self.source, context=context, problem=self.problem
        )


class _ConfigurationBuilder:
    """The active and inactive entries so far."""

    def __init__(self, managed: ScopedDocument | None) -> None:
        self.rules = ServerRules() if managed is None else managed.document.rules
        self._managed_file = None if managed is None else managed.document.file
        self._holders: dict[str, _Candidate] = {}
        self.holding: dict[str, ParsedEntry] = {}
        self.hidden: list[InactiveEntry] = []

    def add(self, scoped: ScopedDocument) -> None:
        """Add the entries of a document; those whose names are taken by earlier documents become inactive."""
        for candidate in _candidates(scoped):
            folded = candidate.member.name.casefold()
            holder = self._holders.setdefault(folded, candidate)
            if holder.scoped is not scoped:
                by = holder.source
                why = f"hidden by {by} ({by.scope})"
                self.hidden.append(InactiveEntry(entry=candidate.build(ask=False).entry, why=why, by=by))
            else:
                self._take(candidate)

    def _take(self, candidate: _Candidate) -> None:
        exempt = candidate.scoped.scope == "managed"
        built = candidate.build(ask=exempt or not self.rules.exclusive)
        # An entry with a problem cannot run anyway, and its problem is worth showing.
        judged = not exempt and (built.entry.problem is None or self.rules.exclusive)
        denial = self.rules.denial(built.entry) if judged else None
        if denial is None:
            self.holding[candidate.member.name] = built
        else:
            by = Source("managed", self._managed_file, denial.line)
            self.hidden.append(InactiveEntry(entry=built.entry, why=denial.why, by=by))


def _candidates(scoped: ScopedDocument) -> list[_Candidate]:
    seen: dict[str, JsonProperty] = {}
    found = []
    for member in scoped.document.servers:
        problem = _name_problem(member, seen, file=scoped.document.file)
        seen.setdefault(member.name.casefold(), member)
        found.append(_Candidate(member, scoped, problem))
    return found


# --- names and endpoints ---------------------------------------------------------------------------------------------


def _name_problem(member: JsonProperty, seen: Mapping[str, JsonProperty], *, file: str | None) -> ConfigProblem | None:
    name = member.name
    twin = seen.get(name.casefold())
    if not _NAME.fullmatch(name) or ".." in name:
        message = f"the name {quoted(name)} may contain only letters, digits, '.', '_' and '-' (64 at most, no '..')"
    elif name.casefold() in _RESERVED:
        message = f"the name {quoted(name)} is reserved"
    elif twin is not None:
        message = f"the name differs only in case from {quoted(twin.name)} on line {twin.line}"
    else:
        return None
    fix = f'rename it, for example to "{_suggested(name, seen)}"'
    return ConfigProblem(message=message, fix=fix, file=file, line=member.line or None, server=quoted(name)[1:-1])


def _suggested(name: str, taken: Mapping[str, JsonProperty]) -> str:
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name.strip())
    word = re.sub(r"\.{2,}", ".", word).strip("-.")[:50] or "server"
    if word.casefold() in _RESERVED or word.casefold() in taken:
        word = f"{word}-{len(taken) + 1}"
    return word


def _same_endpoints(entries: Mapping[str, ServerEntry]) -> list[ConfigProblem]:
    """Return a warning for each server that is configured under two names."""
    first: dict[object, ServerEntry] = {}
    found = []
    for entry in entries.values():
        if entry.problem is not None or entry.disabled:
            continue
        key = (entry.command, entry.cwd, entry.url, frozenset(entry.env.items()), frozenset(entry.headers.items()))
        other = first.setdefault(key, entry)
        if other is not entry:
            message = f"it is the same server as {other.name!r} ({other.source}): everything it offers is listed twice"
            at = entry.source
            found.append(
                ConfigProblem(message=message, severity="warning", file=at.file, line=at.line, server=entry.name)
            )
    return found


#: Prompts a person for an input; returns None if there is no answer.
InputPrompt: TypeAlias = Callable[[InputVariable], str | None]

_PROJECT = ("mcp.json", ".mcp.json", os.path.join(".vscode", "mcp.json"), os.path.join(".cursor", "mcp.json"))
_EDITORS = frozenset({".vscode", ".cursor"})


class ConfigFiles(Struct, frozen=True, kw_only=True):
    """The configuration files that were found in the default locations."""

    project: Path | None = None
    user: Path | None = None
    managed: Path | None = None


def find_config_files(cwd: Path, *, user_folder: Path | None = None, managed: Path | None = None) -> ConfigFiles:
    """Find the project's file in a folder, the user's file, and the administrator's."""
    from trunkline.host.state_files import config_folder

    user = (config_folder() if user_folder is None else user_folder) / "mcp.json"
    ruled = managed_config_path() if managed is None else managed
    project = next((path for name in _PROJECT if os.path.lexists(path := cwd / name)), None)
    return ConfigFiles(
        # In the user's configuration folder the file is the user's, not a project's.
        project=None if project == user else project,
        user=user if os.path.lexists(user) else None,
        managed=ruled if os.path.lexists(ruled) else None,
    )


def managed_config_path() -> Path:
    """Return the path of the administrator's file on this system."""
    if sys.platform == "darwin":
        return Path("/Library/Application Support/Trunkline/mcp.json")
    if sys.platform == "win32":
        return Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData")) / "Trunkline" / "mcp.json"
    return Path("/etc/trunkline/mcp.json")


def load_configuration(
    *,
    given: Sequence[Path | str] = (),
    project: Path | str | None = None,
    user: Path | str | None = None,
    managed: Path | str | None = None,
    environ: Mapping[str, str],
    inputs: InputPrompt | None = None,
) -> Configuration:
    """Load files into a configuration; of several given files, a later one overrides an earlier.

    Raises:
        InvalidConfigFile: a given file, or the managed one, cannot be used (a ``ConfigError``).
    """
    wanted: list[tuple[Scope, Path | str | None]] = [("managed", managed)]
    wanted += [("given", path) for path in reversed(given)]
    wanted += [("project", project), ("user", user)]
    scoped: list[ScopedDocument] = []
    files: list[LoadedFile] = []
    problems: list[ConfigProblem] = []
    for scope, path in wanted:
        if path is None:
            continue
        file = os.fspath(path)
        try:
            document = read_document(file, scope=scope)
        except InvalidConfigFile as error:
            if scope in ("managed", "given"):
                raise
            files.append(LoadedFile(path=file, scope=scope, problem=error.problem))
            problems.append(error.problem)
            continue
        files.append(LoadedFile(path=file, scope=scope, servers=tuple(each.name for each in document.servers)))
        scoped.append(scope_document(document, scope=scope, environ=environ, ask=inputs))
    return build_configuration(scoped, files=files, problems=problems)


# --- the context of a file -------------------------------------------------------------------------------------------


def scope_document(
    document: ConfigDocument, *, scope: Scope, environ: Mapping[str, str], ask: InputPrompt | None
) -> ScopedDocument:
    """Return a document with its scope: what its paths are relative to, and the sources of its variables."""
    file = document.file
    folder = os.path.dirname(os.path.abspath(file)) if file is not None else os.getcwd()
    folder = os.path.dirname(folder) if os.path.basename(folder) in _EDITORS else folder
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    folders = {"userHome": home, "pathSeparator": os.sep, "/": os.sep}
    if scope in ("given", "project"):
        folders |= {"workspaceFolder": folder, "workspaceFolderBasename": os.path.basename(folder)}
    sources = VariableSources(environ=environ, folders=folders, inputs=document.inputs, ask=ask and _once(ask))
    return ScopedDocument(
        document=document, scope=scope, context=EntryContext(file=file, folder=folder, home=home, sources=sources)
    )


def _once(ask: InputPrompt) -> InputPrompt:
    """Wrap a prompt so that each input is asked for once, however many entries use it."""
    answers: dict[str, str | None] = {}

    def asked(declared: InputVariable) -> str | None:
        if declared.id not in answers:
            answers[declared.id] = ask(declared)
        return answers[declared.id]

    return asked


_KEYS = ("mcpServers", "servers")


def entry_from_mapping(
    name: str, mapping: Mapping[str, Any], *, source: Source | None = None, environ: Mapping[str, str] | None = None
) -> ServerEntry:
    """Parse one entry; whatever is wrong with it is its ``problem``."""
    at = Source("given") if source is None else source
    document = ConfigDocument(file=at.file, servers=(JsonProperty(name, _to_json_node(mapping), at.line or 0),))
    scoped = scope_document(document, scope=at.scope, environ=os.environ if environ is None else environ, ask=None)
    return build_configuration([scoped]).entries[name]


def entries_from_mapping(
    mapping: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> Mapping[str, ServerEntry]:
    """Parse entries by name, with or without ``mcpServers`` around them.

    Raises:
        InvalidConfigFile: the document around them is invalid (a ``ConfigError``).
    """
    return configuration_from_mapping(mapping, environ=environ).entries


def configuration_from_mapping(
    mapping: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> Configuration:
    """Parse entries by name into a configuration, with problems and provenance.

    Raises:
        InvalidConfigFile: the document around them is invalid (a ``ConfigError``).
    """
    whole = mapping if _is_whole(mapping) else {"mcpServers": mapping}
    document = parse_document(_to_json_node(whole), file=None, scope="given")
    return build_configuration(
        [scope_document(document, scope="given", environ=os.environ if environ is None else environ, ask=None)]
    )


def _is_whole(mapping: Mapping[str, Any]) -> bool:
    """Return True for a whole document, False for bare entries (one of which may be named ``servers``)."""
    inner = next((mapping[key] for key in _KEYS if key in mapping), None)
    return inner is not None and not (isinstance(inner, Mapping) and {"command", "url"} & set(inner))


def _to_json_node(value: Any) -> JsonNode:
    """Convert a Python value to a JSON node.

    Raises:
        ConfigError: the value has no JSON form.
    """
    if value is None or isinstance(value, str | int | float):
        return JsonScalar(value)
    if isinstance(value, os.PathLike):
        return JsonScalar(os.fsdecode(value))
    if isinstance(value, Mapping):
        return JsonObject({str(name): JsonProperty(str(name), _to_json_node(each)) for name, each in value.items()})
    if isinstance(value, Sequence | frozenset | set):
        return JsonArray(tuple(_to_json_node(each) for each in value))
    raise ConfigError(f"a value of type {type(value).__name__} cannot be part of a configuration")


def explain(configuration: Configuration, name: str | None = None) -> dict[str, Any]:
    """Describe a configuration, or one entry of it, as JSON values.

    Raises:
        ConfigError: there is no entry of this name.
    """
    names = list(configuration.entries) if name is None else [_found(configuration, name)]
    chosen = set(names) | {name}
    return {
        "files": [_file(each) for each in configuration.files],
        "servers": [_server(configuration, each) for each in names],
        "hidden": [_hidden(each) for each in configuration.hidden if name is None or each.entry.name in chosen],
        "problems": [_problem(each) for each in configuration.problems if name is None or each.server in chosen],
    }


def _found(configuration: Configuration, name: str) -> str:
    if name in configuration.entries:
        return name
    folded = [each for each in configuration.entries if each.casefold() == name.casefold()]
    if folded:
        return folded[0]
    hidden = next((each for each in configuration.hidden if each.entry.name == name), None)
    if hidden is not None:
        raise ConfigError(f"the entry {quoted(name)} ({hidden.entry.source}) is not active: {hidden.why}")
    near = nearest(name, configuration.entries)
    known = ", ".join(quoted(each)[1:-1] for each in configuration.entries) or "none"
    hint = f'did you mean "{near}"?' if near else f"there are: {known}"
    raise ConfigError(f"there is no entry {quoted(name)}; {hint}")


def _server(configuration: Configuration, name: str) -> dict[str, Any]:
    entry, provenance = configuration.entries[name], configuration.provenance(name)
    return {
        "name": entry.name,
        **_source(entry.source),
        "disabled": entry.disabled,
        "problem": entry.problem,
        "problems": [_problem(each) for each in provenance.problems],
        "values": [_written(each) for each in provenance.values],
        "settings": _settings(entry),
    }


def _source(source: Source) -> dict[str, Any]:
    return {"scope": source.scope, "file": source.file, "line": source.line}


def _settings(entry: ServerEntry) -> dict[str, Any]:
    """Return the effective settings; those of the sandbox may contain secrets and are shown among the values."""
    held = msgspec.to_builtins(entry.settings)
    names = [name for name in ServerSettings.__struct_fields__ if name not in ("sampling", "sandbox", "roots")]
    settings = {camel(name): held[name] for name in names}
    roots = entry.settings.roots
    return {**settings, "roots": None if roots is None else [entry.redact(root) for root in roots]}


def _written(value: ValueOrigin) -> dict[str, Any]:
    variables = [{"name": each.name, "kind": each.kind, "state": each.state} for each in value.variables]
    return {"key": value.key, "shown": value.shown, "file": value.file, "line": value.line, "variables": variables}


def _hidden(hidden: InactiveEntry) -> dict[str, Any]:
    by = None if hidden.by is None else _source(hidden.by)
    return {"name": hidden.entry.name, **_source(hidden.entry.source), "why": hidden.why, "by": by}


def _file(file: LoadedFile) -> dict[str, Any]:
    problem = None if file.problem is None else _problem(file.problem)
    return {"path": file.path, "scope": file.scope, "servers": list(file.servers), "problem": problem}


def _problem(problem: ConfigProblem) -> dict[str, Any]:
    return msgspec.structs.asdict(problem)
