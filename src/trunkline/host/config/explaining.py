"""Explains a configuration as JSON: which entries are active, and the file and line of each value, without secrets.

Variables are shown as they are written, with whether they are set; settings that are not written have their defaults.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.errors import ConfigError
from trunkline.host.config.records import Configuration, Hidden, LoadedFile, Problem, Written
from trunkline.host.config.spelling import camel, nearest, quoted
from trunkline.host.entries import ServerEntry, ServerSettings, Source

__all__ = ["explain"]


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


def _written(value: Written) -> dict[str, Any]:
    variables = [{"name": each.name, "kind": each.kind, "state": each.state} for each in value.variables]
    return {"key": value.key, "shown": value.shown, "file": value.file, "line": value.line, "variables": variables}


def _hidden(hidden: Hidden) -> dict[str, Any]:
    by = None if hidden.by is None else _source(hidden.by)
    return {"name": hidden.entry.name, **_source(hidden.entry.source), "why": hidden.why, "by": by}


def _file(file: LoadedFile) -> dict[str, Any]:
    problem = None if file.problem is None else _problem(file.problem)
    return {"path": file.path, "scope": file.scope, "servers": list(file.servers), "problem": problem}


def _problem(problem: Problem) -> dict[str, Any]:
    return msgspec.structs.asdict(problem)
