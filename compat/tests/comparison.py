"""What a server offers and answers, and how two runs of it differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compat.tests.connections import Connection
from compat.tests.schema_differences import differences as schema_differences
from compat.tests.schema_differences import literal_differences

__all__ = ["PARTS", "Difference", "Snapshot", "compare", "literally_different", "take_snapshot"]

#: What is compared, in the order of the table.
PARTS = ("tools", "schemas", "apps", "call", "resources", "templates", "prompts", "reads", "auth")
_MAX_PAGES = 50
#: A server without a kind of component may answer that it lacks the method, or with an empty list.
_METHOD_NOT_FOUND = -32601


class Difference(NamedTuple):
    """A part in which two runs differ, and how."""

    part: str
    text: str


class Snapshot(NamedTuple):
    """Everything that one run of a server offers and answers, as it came over the wire."""

    tools: Sequence[Mapping[str, Any]] = ()
    resources: Sequence[Mapping[str, Any]] = ()
    templates: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] = ()
    #: The response to the one call.
    call: Mapping[str, Any] | None = None
    #: The responses to reading resources and rendering prompts, by what was asked for.
    reads: Mapping[str, Mapping[str, Any]] = {}
    #: Status and headers of a request without a token, and of one with a wrong token.
    auth: Sequence[tuple[int, str]] = ()


def take_snapshot(
    connection: Connection,
    call: tuple[str, Mapping[str, Any]] | None,
    reads: Sequence[str],
    prompts: Mapping[str, Mapping[str, str]],
) -> Snapshot:
    """List what a server offers, call one tool, read the named resources and render the named prompts."""
    answers = {uri: connection.request("resources/read", {"uri": uri}) for uri in reads}
    for name, arguments in prompts.items():
        answers[name] = connection.request("prompts/get", {"name": name, "arguments": dict(arguments)})
    return Snapshot(
        tools=_list_all(connection, "tools/list", "tools"),
        resources=_list_all(connection, "resources/list", "resources"),
        templates=_list_all(connection, "resources/templates/list", "resourceTemplates"),
        prompts=_list_all(connection, "prompts/list", "prompts"),
        call=None if call is None else connection.request("tools/call", {"name": call[0], "arguments": dict(call[1])}),
        reads=answers,
    )


def _list_all(connection: Connection, method: str, key: str) -> list[Mapping[str, Any]]:
    items: list[Mapping[str, Any]] = []
    params: dict[str, Any] = {}
    for _ in range(_MAX_PAGES):
        response = connection.request(method, params)
        if "error" in response:
            if response["error"].get("code") == _METHOD_NOT_FOUND:
                break
            raise RuntimeError(f"{method} failed: {response['error']}")
        items += response["result"].get(key, [])
        cursor = response["result"].get("nextCursor")
        if cursor is None:
            break
        params = {"cursor": cursor}
    return items


def compare(theirs: Snapshot, ours: Snapshot, volatile: Sequence[str] = ()) -> list[Difference]:
    """Return how ours differs from theirs; what a pattern of ``volatile`` matches is not compared."""
    return [
        *_compare_tools(theirs, ours),
        *_compare_lists("resources", "uri", theirs.resources, ours.resources),
        *_compare_lists("templates", "uriTemplate", theirs.templates, ours.templates),
        *_compare_lists("prompts", "name", theirs.prompts, ours.prompts),
        *_compare_answers("call", {"": theirs.call or {}}, {"": ours.call or {}}, volatile),
        *_compare_answers("reads", theirs.reads, ours.reads, volatile),
        *_compare_auth(theirs.auth, ours.auth),
    ]


def literally_different(theirs: Snapshot, ours: Snapshot) -> list[str]:
    """Return the schemas that mean the same and are not written the same."""
    return literal_differences(_schemas(theirs.tools), _schemas(ours.tools))


def _schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {tool["name"]: {"input": tool.get("inputSchema"), "output": tool.get("outputSchema")} for tool in tools}


def _compare_tools(theirs: Snapshot, ours: Snapshot) -> list[Difference]:
    left, right = _schemas(theirs.tools), _schemas(ours.tools)
    differing = []
    for text in schema_differences(left, right):
        if text.startswith(("missing: ", "additional: ")):
            differing.append(Difference("tools", text))
        else:
            place, _, schemas = text.partition(": ")
            their_schema, _, our_schema = schemas.partition(" != ")
            differing.append(Difference("schemas", f"{place}: {_shorten(their_schema, our_schema)}"))
    their_apps, our_apps = _apps(theirs.tools), _apps(ours.tools)
    return differing + [
        Difference("apps", f"{name}: {_shorten(their_apps[name], our_apps[name])}")
        for name in sorted(left.keys() & right.keys())
        if their_apps[name] != our_apps[name]
    ]


def _apps(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a host with MCP Apps reads of each tool: its entries of ``_meta`` about a view."""
    return {
        tool["name"]: {key: value for key, value in (tool.get("_meta") or {}).items() if key.startswith("ui")}
        for tool in tools
    }


def _compare_lists(
    part: str, key: str, theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]
) -> list[Difference]:
    left, right = ({item[key]: _essence(item) for item in items} for items in (theirs, ours))
    differing = [Difference(part, f"missing: {name}") for name in left if name not in right]
    differing += [Difference(part, f"additional: {name}") for name in right if name not in left]
    differing += [
        Difference(part, f"{name}: {_shorten(left[name], right[name])}")
        for name in left
        if name in right and left[name] != right[name]
    ]
    return differing


def _essence(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client acts on: names, media type, arguments with their duty; texts for people left out."""
    essence = {key: item.get(key) for key in ("name", "uri", "uriTemplate", "mimeType")}
    essence["arguments"] = [
        (argument["name"], bool(argument.get("required"))) for argument in item.get("arguments") or ()
    ]
    return essence


def _compare_answers(
    part: str, theirs: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Mapping[str, Any]], volatile: Sequence[str]
) -> list[Difference]:
    differing = []
    for name in theirs:
        left, right = (_masked(_answer(side.get(name, {})), volatile) for side in (theirs, ours))
        if left != right:
            differing.append(Difference(part, f"{name}: {_shorten(left, right)}".removeprefix(": ")))
    return differing


def _answer(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client reads of a response, with what may be left out filled in."""
    if "error" in response:
        return {"code": response["error"].get("code"), "message": response["error"].get("message")}
    result = response.get("result") or {}
    answer = {key: result[key] for key in ("content", "contents", "messages", "structuredContent") if key in result}
    answer["isError"] = bool(result.get("isError"))
    return dict(_without_empty(answer))


def _without_empty(value: Any) -> Any:
    """Drop members that are null, and marks that FastMCP leaves for itself."""
    if isinstance(value, dict):
        members = {key: _without_empty(member) for key, member in value.items() if "fastmcp" not in key}
        return {key: member for key, member in members.items() if member is not None and (key, member) != ("_meta", {})}
    return [_without_empty(member) for member in value] if isinstance(value, list) else value


def _masked(answer: dict[str, Any], volatile: Sequence[str]) -> dict[str, Any]:
    text = json.dumps(answer, sort_keys=True, ensure_ascii=False)
    for pattern in volatile:
        text = re.sub(pattern, "<volatile>", text)
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"text": text}


def _compare_auth(theirs: Sequence[tuple[int, str]], ours: Sequence[tuple[int, str]]) -> list[Difference]:
    left, right = ([(status, challenge_shape(header)) for status, header in side] for side in (theirs, ours))
    return [] if left == right else [Difference("auth", _shorten(left, right))]


def challenge_shape(header: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the scheme of a WWW-Authenticate header and its parameters, the words of a description left out."""
    scheme, _, rest = header.partition(" ")
    parameters = re.findall(r'([\w-]+)\s*=\s*(?:"([^"]*)"|([^\s,]+))', rest)
    return scheme.lower(), frozenset(
        (name.lower(), "" if name.lower() == "error_description" else re.sub(r":\d+", "", quoted or bare))
        for name, quoted, bare in parameters
    )


def _shorten(left: Any, right: Any) -> str:
    """Return both sides from shortly before where they begin to differ."""
    texts = [
        value if isinstance(value, str) else json.dumps(value, default=sorted, sort_keys=True, ensure_ascii=False)
        for value in (left, right)
    ]
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, same - 40)
    return " != ".join(("…" if start else "") + text[start : start + 200] for text in texts)
