"""The drop-in proof: one recorded client script, run against the official server and against ours, and the differences.

A module of this package has ``SCRIPT``, a ``Script``: how the official server and ours are started, what both find
when they start, and the steps, which are requests. The lists (tools, prompts, resources, templates) are always asked
for first. Every answer, error answers included, is taken as JSON; the two are compared member by member, and a
difference is named ``<step>:<path>``, such as ``tools:read_file/inputSchema/properties/path/type`` (lists of named
things are compared by name, other lists by position) or ``call read_file#3:content/0/text``. A step's name is
``call <tool>``, ``read <uri>``, ``get <prompt>``, ``complete``, with ``#n`` from its second use on, or the name given.

``Script.differences`` maps patterns (``fnmatch``, case-sensitive) of such names to the reason. A difference without a
reason fails the proof, and so does a reason that explains nothing. ``COMMON`` holds what is true of every server. The
reasons stand, word for word, in the server's page under ``docs/servers``.

In arguments, texts and the environment ``{folder}`` stands for the side's own folder; in answers the folder's path is
put back as ``{folder}``. ``Script.normalise`` can blank what no two runs share (times, ids).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from trunkline import Client, MissingCapability, RequestFailed

__all__ = [
    "ARCHIVED",
    "COMMON",
    "NPM",
    "PYPI",
    "Call",
    "Complete",
    "Difference",
    "Get",
    "Notify",
    "Read",
    "RunTask",
    "Script",
    "differences",
    "npm",
    "ours",
    "pypi",
    "unexplained",
    "unused",
]

_ROOT = Path(__file__).parents[3] / ".interop"
NPM = _ROOT / "node_modules" / "@modelcontextprotocol"
PYPI = _ROOT / "python-servers" / "bin"
ARCHIVED = _ROOT / "archived-servers" / "bin"

#: True of every server of ours, and so not repeated for each.
COMMON: Mapping[str, str] = MappingProxyType(
    {
        "*/description": "Texts for people and models are written anew.",
        "*/title": "Texts for people and models are written anew.",
        "server:serverInfo/*": "The server says who it is.",
        "server:instructions": "Texts for people and models are written anew.",
        "*/icons*": "Texts for people and models are written anew.",
        "*/$schema": "JSON Schema 2020-12 is the protocol's default and need not be named.",
        "*/execution": "Only tools that can run as tasks say so; that the others cannot is the default.",
        "*/outputSchema/additionalProperties": "An output schema says what there is, and forbids nothing.",
    }
)


class Call(NamedTuple):
    """Calls a tool."""

    tool: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    name: str | None = None


class Read(NamedTuple):
    """Reads a resource."""

    uri: str
    name: str | None = None


class Get(NamedTuple):
    """Fills in a prompt."""

    prompt: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    name: str | None = None


class Complete(NamedTuple):
    """Asks for proposals."""

    ref: Mapping[str, Any]
    argument: Mapping[str, Any]
    name: str | None = None


class RunTask(NamedTuple):
    """Calls a tool as a task, follows it to its end, and fetches its result."""

    tool: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    name: str | None = None


class Notify(NamedTuple):
    """Asks for any other method."""

    method: str
    params: Mapping[str, Any] = MappingProxyType({})
    name: str | None = None


Step = Call | RunTask | Read | Get | Complete | Notify


class Script(NamedTuple):
    """A client's script for a server and its official original."""

    server: str
    #: The official server's command, in which ``{folder}`` is filled in; its first word must exist, else it is skipped.
    official: Sequence[str]
    ours: Sequence[str]
    steps: Sequence[Step]
    differences: Mapping[str, str] = MappingProxyType({})
    #: Fills a side's folder before its server starts.
    prepare: Callable[[Path], None] | None = None
    environment: Mapping[str, str] = MappingProxyType({})
    #: Other names and values of the environment for ours, where they differ.
    our_environment: Mapping[str, str] = MappingProxyType({})
    #: Options of the client, such as what it answers when it is asked.
    client: Mapping[str, Any] = MappingProxyType({})
    #: Blanks in any text of an answer what no two runs share.
    normalise: Callable[[str], str] = str


class Difference(NamedTuple):
    """One place where the two answered differently; None where one side has nothing."""

    where: str
    official: Any
    ours: Any


def npm(name: str, *arguments: str) -> list[str]:
    """Give the command of an official npm server."""
    main = NPM / f"server-{name}" / "dist" / "index.js"
    return ["node", str(main), *arguments]


def pypi(program: str, *arguments: str, archived: bool = False) -> list[str]:
    """Give the command of an official PyPI server, such as ``mcp-server-time``."""
    return [str((ARCHIVED if archived else PYPI) / program), *arguments]


def ours(name: str, *arguments: str) -> list[str]:
    """Give the command of our server."""
    return [sys.executable, "-m", f"trunkline_servers.{name}", *arguments]


# --- running ---------------------------------------------------------------------------------------------------------


async def differences(script: Script, official: Path, own: Path) -> list[Difference]:
    """Run the script against both servers, each in a folder of its own, and compare."""
    theirs = await _record(script, script.official, official, {})
    mine = await _record(script, script.ours, own, script.our_environment)
    return [
        Difference(f"{step}:{path}", one, other)
        for step in theirs
        for path, one, other in _compare("", theirs[step], mine[step])
    ]


async def _record(
    script: Script, command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    if script.prepare is not None:
        script.prepare(folder)
    words = [_filled(word, folder) for word in command]
    env = {name: _filled(value, folder) for name, value in {**script.environment, **environment}.items()}
    answers: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    # The official servers know the handshake alone; both are asked the same way.
    options = {"revision": "handshake", **script.client}
    async with Client(words, env=env, cwd=str(folder), **options) as client:
        answers["server"] = {
            "serverInfo": msgspec.to_builtins(client.server_info),
            "capabilities": client.server_capabilities,
            "instructions": client.instructions,
        }
        for method, member in _LISTS.items():
            answers[member] = await _listed(client, method, member)
        for step in script.steps:
            method, params, name = _request(step)
            seen[name] += 1
            key = name if seen[name] == 1 else f"{name}#{seen[name]}"
            given = _filled(params, folder)
            answers[key] = await (_run_task(client, given) if "task" in given else _answer(client, method, given))
    return {step: _made_same(answer, folder, script.normalise) for step, answer in answers.items()}


_LISTS = MappingProxyType(
    {
        "tools/list": "tools",
        "prompts/list": "prompts",
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
    }
)


def _request(step: Step) -> tuple[str, dict[str, Any], str]:
    match step:
        case Call(tool, arguments, name):
            return "tools/call", {"name": tool, "arguments": dict(arguments)}, name or f"call {tool}"
        case RunTask(tool, arguments, name):
            return "tools/call", {"name": tool, "arguments": dict(arguments), "task": {}}, name or f"task {tool}"
        case Read(uri, name):
            return "resources/read", {"uri": uri}, name or f"read {uri}"
        case Get(prompt, arguments, name):
            return "prompts/get", {"name": prompt, "arguments": dict(arguments)}, name or f"get {prompt}"
        case Complete(ref, argument, name):
            return "completion/complete", {"ref": dict(ref), "argument": dict(argument)}, name or "complete"
        case Notify(method, params, name):
            return method, dict(params), name or method


async def _listed(client: Client, method: str, member: str) -> Any:
    named: dict[str, Any] = {}
    params: dict[str, Any] = {}
    while True:
        answer = await _answer(client, method, params)
        if "error" in answer:
            return None
        named |= {str(each.get("name")): each for each in answer.get(member, [])}
        if (cursor := answer.get("nextCursor")) is None:
            return named
        params = {"cursor": cursor}


async def _answer(client: Client, method: str, params: Mapping[str, Any]) -> Any:
    try:
        result = await client.request(method, params)
    except RequestFailed as error:
        return {"error": {"code": error.code, "message": str(error)}}
    except MissingCapability:
        return {"error": {"code": -32601, "message": "not declared"}}
    plain = msgspec.to_builtins(result)
    assert isinstance(plain, dict)
    # What only the stateless era has, and what is nobody's business.
    return {name: value for name, value in plain.items() if name not in ("resultType", "_meta", "ttlMs", "cacheScope")}


async def _run_task(client: Client, params: Mapping[str, Any]) -> Any:
    created = await _answer(client, "tools/call", params)
    if "task" not in created:
        return created
    handle = client.task(created["task"]["taskId"], tool=params["name"])
    async for _ in handle.updates():
        pass
    result = await _answer(client, "tasks/result", {"taskId": handle.id})
    # Ids, times and what is told on the way are never the same twice.
    shown = {name: value for name, value in created["task"].items() if name in ("status", "ttl", "pollInterval")}
    return {"created": shown, "ended": handle.status, "result": result}


def _filled(value: Any, folder: Path) -> Any:
    match value:
        case str():
            return value.replace("{folder}", str(folder))
        case Mapping():
            return {name: _filled(each, folder) for name, each in value.items()}
        case list() | tuple():
            return [_filled(each, folder) for each in value]
    return value


def _made_same(value: Any, folder: Path, normalise: Callable[[str], str]) -> Any:
    match value:
        case str():
            return normalise(re.sub(re.escape(str(folder)), "{folder}", value))
        case Mapping():
            return {name: _made_same(each, folder, normalise) for name, each in value.items()}
        case list() | tuple():
            return [_made_same(each, folder, normalise) for each in value]
    return value


# --- comparing -------------------------------------------------------------------------------------------------------

_ABSENT = object()


def _compare(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            yield from _compare(f"{path}/{name}" if path else name, one.get(name, _ABSENT), other.get(name, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list) and not _scalars(one, other):
        for place in range(max(len(one), len(other))):
            here = [side[place] if place < len(side) else _ABSENT for side in (one, other)]
            yield from _compare(f"{path}/{place}" if path else str(place), *here)
    elif one != other:
        yield path, None if one is _ABSENT else one, None if other is _ABSENT else other


def _scalars(*sides: list[Any]) -> bool:
    """Tell whether these are lists of words such as ``required``, whose order says nothing."""
    plain = all(isinstance(each, str) for side in sides for each in side)
    return plain and sorted(sides[0]) == sorted(sides[1])


def unexplained(script: Script, found: Sequence[Difference]) -> list[Difference]:
    """Give the differences that have no reason."""
    reasons = [*COMMON, *script.differences]
    return [each for each in found if not any(fnmatchcase(each.where, pattern) for pattern in reasons)]


def unused(script: Script, found: Sequence[Difference]) -> list[str]:
    """Give the reasons that explain nothing."""
    return [pattern for pattern in script.differences if not any(fnmatchcase(each.where, pattern) for each in found)]
