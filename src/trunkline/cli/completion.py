"""Finds what may follow on a command line, for the completion of a shell.

Nothing is contacted, and no configured server is started: server names come from the configuration, and tools and
arguments from the catalogs cached in earlier runs. The server of a Python file is run to list its tools, within a
deadline. Every failure means that there is nothing to propose.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from trunkline.host.config.model import Configuration

__all__ = ["FILES", "Proposal", "propose"]

#: Stands for the names of files, which the shell completes itself.
FILES = ":files"
_DEADLINE_SECONDS = 3.0  # As long as a person waits for the Tab key before they type on.
#: The positional arguments that name a configured server, by the name of the parameter.
_SERVER_ARGUMENTS = frozenset({"name", "names", "server", "servers", "target", "targets"})
#: The list that has the items of a command, and its member with their names.
_LISTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "call": ("tools", "name"),
        "describe": ("tools", "name"),
        "get": ("prompts", "name"),
        "read": ("resources", "uri"),
        "complete": ("prompts", "name"),
    }
)
#: The commands whose target may be a Python file.
_FILE_TARGETS = frozenset(
    {"call", "complete", "describe", "doctor", "get", "install", "list", "listen", "read", "record", "run", "task"}
)


T = TypeVar("T")


class Proposal(NamedTuple):
    """A word that may follow."""

    word: str
    help: str = ""


class _Typed(NamedTuple):
    """A command line, read as far as it was typed."""

    command: click.Command
    #: The names of the commands, without that of the program.
    path: tuple[str, ...]
    positional: list[str]
    #: The option whose value is being typed, if any.
    option: click.Parameter | None
    config: list[str]
    current: str


def propose(root: click.Group, words: Sequence[str]) -> list[Proposal]:
    """Return the words that may take the place of the last one."""
    *before, current = words or [""]
    context = click.Context(root, info_name="trunkline")
    typed = _read(root, context, before, current)
    found = [each for each in _candidates(typed, context) if each.word == FILES or each.word.startswith(current)]
    return list({each.word: each for each in found}.values())


def _read(root: click.Command, context: click.Context, before: Sequence[str], current: str) -> _Typed:
    command: click.Command = root
    path: tuple[str, ...] = ()
    positional: list[str] = []
    config: list[str] = []
    waiting: click.Parameter | None = None
    only_arguments = False
    for word in before:
        if waiting is not None:
            config += [word] if waiting.name == "config" else []
            waiting = None
        elif word == "--":
            only_arguments = True
        elif word.startswith("-") and not only_arguments:
            name, equals, value = word.partition("=")
            option = _option(command, context, name)
            if option is not None and _takes_value(option):
                config += [value] if equals and option.name == "config" else []
                waiting = None if equals else option
        elif isinstance(command, click.Group) and (inner := command.get_command(context, word)) is not None:
            command, path = inner, (*path, word)
        else:
            positional.append(word)
    return _Typed(command, path, positional, waiting, config, current)


def _option(command: click.Command, context: click.Context, name: str) -> click.Parameter | None:
    return next((each for each in command.get_params(context) if name in (*each.opts, *each.secondary_opts)), None)


def _takes_value(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and not option.is_flag and not option.count


def _candidates(typed: _Typed, context: click.Context) -> Iterable[Proposal]:
    if typed.option is not None:
        return _values(typed.option)
    if typed.current.startswith("-"):
        return _options(typed.command, context)
    if isinstance(typed.command, click.Group):
        return _commands(typed.command, context)
    return _arguments(typed)


def _commands(group: click.Group, context: click.Context) -> Iterator[Proposal]:
    summaries: Mapping[str, str] = getattr(group, "summaries", {})
    for name in group.list_commands(context):
        if name in summaries:
            yield Proposal(name, summaries[name])
        elif (found := group.get_command(context, name)) is not None:
            yield Proposal(name, found.get_short_help_str(200))


def _options(command: click.Command, context: click.Context) -> Iterator[Proposal]:
    for each in command.get_params(context):
        if isinstance(each, click.Option) and not each.hidden:
            yield from (Proposal(word, each.help or "") for word in each.opts if word.startswith("--"))


def _values(option: click.Parameter) -> Iterator[Proposal]:
    if isinstance(option.type, click.Choice):
        yield from (Proposal(str(each)) for each in option.type.choices)
    elif isinstance(option.type, click.Path) or option.metavar == "FILE":
        yield Proposal(FILES)


# --- positional arguments --------------------------------------------------------------------------------------------


def _arguments(typed: _Typed) -> Iterator[Proposal]:
    verb, given = typed.path[0], typed.positional
    declared = [each for each in typed.command.params if isinstance(each, click.Argument)]
    place = min(len(given), len(declared) - 1)
    if place < 0:
        return
    argument = declared[place]
    if isinstance(argument.type, click.Choice):
        yield from (Proposal(str(each)) for each in argument.type.choices)
    elif verb in _LISTS and given and argument.name == "words":
        yield from _items(typed, verb)
    elif argument.name in _SERVER_ARGUMENTS:
        yield from _servers(typed)
        if verb in _FILE_TARGETS:
            yield Proposal(FILES)
    elif argument.name in ("spec", "file", "files", "path") or isinstance(argument.type, click.Path):
        yield Proposal(FILES)


def _servers(typed: _Typed) -> Iterator[Proposal]:
    configuration = _configuration(typed.config)
    if configuration is None:
        return
    server, slash, _ = typed.current.partition("/")
    if slash and server in configuration.entries and typed.path[0] in (*_LISTS, "grants", "pins"):
        offered = _cached(configuration, server)
        kind, member = _LISTS.get(typed.path[0], ("tools", "name"))
        yield from (Proposal(f"{server}/{each[member]}", _about(each)) for each in offered.get(kind, ()))
        return
    for name, entry in configuration.entries.items():
        yield Proposal(name, entry.shown if entry.problem is None else entry.problem)


def _items(typed: _Typed, verb: str) -> Iterator[Proposal]:
    kind, member = _LISTS[verb]
    target, *given = typed.positional
    offered = _offered(typed, target, (kind,) if verb != "complete" else (kind, "resources"))
    server, slash, item = target.partition("/")
    if slash and not given and server and item in [each[member] for each in offered.get(kind, ())]:
        given = [item]
    if not given:
        yield from (Proposal(each[member], _about(each)) for each in offered.get(kind, ()))
        if verb in ("read", "complete"):
            templates = offered.get("resourceTemplates", ())
            yield from (Proposal(each["uriTemplate"], _about(each)) for each in templates)
        return
    found = next((each for each in offered.get(kind, ()) if each.get(member) == given[0]), None)
    if found is not None and verb != "read":
        used = {word.partition("=")[0] for word in given[1:]}
        yield from _argument_words(found, used, typed.current, bare=verb == "complete")


def _argument_words(item: Mapping[str, Any], used: set[str], current: str, *, bare: bool) -> Iterator[Proposal]:
    """Propose the names of arguments, required ones first, and the values of one that has a few."""
    name, equals, _ = current.partition("=")
    for key, about, values in _parameters(item):
        if equals and key == name:
            yield from (Proposal(f"{key}={value}") for value in values)
        elif not equals and key not in used:
            yield Proposal(key if bare else f"{key}=", about)


def _parameters(item: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    if "inputSchema" not in item:
        for argument in item.get("arguments") or ():
            yield argument["name"], argument.get("description") or "", []
        return
    schema = item["inputSchema"]
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    for key in sorted(properties, key=lambda each: each not in required):
        inner = properties[key] if isinstance(properties[key], dict) else {}
        values = inner.get("enum") or (["true", "false"] if inner.get("type") == "boolean" else [])
        yield key, inner.get("description") or "", [str(value) for value in values]


def _about(item: Mapping[str, Any]) -> str:
    return str(item.get("description") or item.get("title") or "")


# --- what servers offer ----------------------------------------------------------------------------------------------


def _offered(typed: _Typed, target: str, kinds: Sequence[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return what a target offers, as its lists on the wire; empty if that is not known."""
    if not typed.config and target.partition(":")[0].endswith(".py"):
        return {name: items for kind in kinds for name, items in _listed(kind, target).items()}
    configuration = _configuration(typed.config)
    server = target.partition("/")[0]
    if configuration is None or server not in configuration.entries:
        return {}
    return _cached(configuration, server)


def _configuration(files: Sequence[str]) -> Configuration | None:
    from trunkline.cli.host_session import load_cli_configuration

    return _quietly(lambda: load_cli_configuration(files))


def _cached(configuration: Configuration, server: str) -> Mapping[str, Any]:
    import msgspec

    from trunkline.cli.ui.output import wire_json
    from trunkline.host.assembly import in_project_folder
    from trunkline.host.state_files import state_folder
    from trunkline.host.upstreams.catalog.catalog import CatalogCache

    def read() -> Mapping[str, Any]:
        entry = in_project_folder(configuration.entries[server])
        offering = CatalogCache(state_folder() / "catalogs").get(entry)
        if offering is None:
            return {}
        lists = {
            "tools": offering.tools,
            "prompts": offering.prompts,
            "resources": offering.resources,
            "resourceTemplates": offering.templates,
        }
        found: Mapping[str, Any] = msgspec.json.decode(wire_json(lists))
        return found

    return _quietly(read) or {}


def _listed(kind: str, spec: str) -> Mapping[str, Any]:
    """Run the server of a file in a process of its own and list one kind of items."""
    import subprocess

    import msgspec

    command = [sys.executable, "-P", "-m", "trunkline", "list", kind, spec, "--json", "--no-input"]

    def read() -> Mapping[str, Any]:
        done = subprocess.run(
            [*command, "--timeout", str(_DEADLINE_SECONDS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_DEADLINE_SECONDS,
            check=True,
        )
        found: Mapping[str, Any] = msgspec.json.decode(done.stdout)
        return found

    return (_quietly(read) if os.path.isfile(spec.rpartition(":")[0] or spec) or os.path.isfile(spec) else None) or {}


def _quietly(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Exception:  # noqa: BLE001 - a shell that completes a word shows no errors
        return None
