"""What a client saw of a server, in a form that two clients can be compared by.

A snapshot holds the lists and the results of some calls as they are on the wire. Both clients' answers go through the
official SDK's types, so that only what a program would see can differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import mcp_types
from msgspec import Struct, field

from tests.fleet.servers import Call
from trunkline.host.upstreams.catalog.names import inner_uri

__all__ = ["KINDS", "Snapshot", "answer", "definition", "differences", "failure", "named_as_directly"]

#: The four lists: the name, the member that tells two items apart, and the type of an item.
KINDS: dict[str, tuple[str, Any]] = {
    "tools": ("name", mcp_types.Tool),
    "prompts": ("name", mcp_types.Prompt),
    "resources": ("uri", mcp_types.Resource),
    "templates": ("uriTemplate", mcp_types.ResourceTemplate),
}
_RESULTS: dict[str, Any] = {
    "tool": mcp_types.CallToolResult,
    "prompt": mcp_types.GetPromptResult,
    "resource": mcp_types.ReadResourceResult,
}
_SEEN = {"tool": ("content", "structuredContent", "isError"), "prompt": ("description", "messages")}
_LONGEST = 160
_SEPARATOR = "__"


class Snapshot(Struct):
    """The lists and the results of calls, as one client saw them."""

    revision: str
    #: For each kind of item, the definitions by name, URI or template.
    lists: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return how many items each list has."""
        return {kind: len(self.lists.get(kind, {})) for kind in KINDS}


def definition(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item of a list in its comparable form."""
    dumped = _through(KINDS[kind][1], item)
    # Tasks were taken out of the core in 2026-07-28: clients of that revision are not told.
    dumped.pop("execution", None)
    return dumped


def answer(call: Call, result: Mapping[str, Any]) -> Any:
    """Return the result of a call in its comparable form, without what differs from call to call."""
    dumped = _through(_RESULTS[call.kind], result)
    kept = {name: dumped[name] for name in _SEEN.get(call.kind, ("contents",)) if dumped.get(name) is not None}
    # A result that does not say that it failed is the same as one that says it did not.
    if not kept.get("isError", True):
        del kept["isError"]
    return _masked(kept, call.mask)


def failure(call: Call, code: int | None, message: str) -> Any:
    """Return the comparable form of a call that was answered by an error."""
    return _masked({"error": {"code": code, "message": message}}, call.mask)


def _through(type_: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    dumped: dict[str, Any] = type_.model_validate(value).model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _masked(value: Any, mask: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for pattern in mask:
            value = re.sub(pattern, "…", value)
        return value
    if isinstance(value, dict):
        return {name: _masked(each, mask) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, mask) for each in value]
    return value


# --- through the gateway ---------------------------------------------------------------------------------------------


def named_as_directly(seen: Snapshot, server: str, direct: Snapshot) -> Snapshot:
    """Return what was seen through the gateway under the names that the server itself uses.

    A name that is too long for a wire name is shortened by the gateway; it is recognised by the rest of its definition.
    """
    lists = {}
    for kind, items in seen.lists.items():
        inner = {_inner(kind, outer, server): item for outer, item in items.items()}
        lists[kind] = {name: _renamed(kind, name, item) for name, item in _matched(kind, inner, direct).items()}
    calls = json.loads(json.dumps(seen.calls), object_hook=lambda found: _inner_uris(found, server))
    return Snapshot(seen.revision, lists, calls)


def _inner(kind: str, outer: str, server: str) -> str:
    if kind in ("tools", "prompts"):
        return outer.removeprefix(f"{server}{_SEPARATOR}")
    found = inner_uri(outer, [server])
    return outer if found is None else found[1]


def _matched(kind: str, items: dict[str, Any], direct: Snapshot) -> dict[str, Any]:
    known = direct.lists.get(kind, {})
    absent = {name: item for name, item in known.items() if name not in items}
    matched = {}
    for name, item in items.items():
        alike = (
            [] if name in known else [each for each, other in absent.items() if _rest(kind, other) == _rest(kind, item)]
        )
        matched[alike[0] if len(alike) == 1 else name] = item
    return matched


def _rest(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != KINDS[kind][0]}


def _renamed(kind: str, name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, KINDS[kind][0]: name}


def _inner_uris(found: dict[str, Any], server: str) -> dict[str, Any]:
    uri = found.get("uri")
    inner = inner_uri(uri, [server]) if isinstance(uri, str) else None
    return found if inner is None else {**found, "uri": inner[1]}


# --- comparing -------------------------------------------------------------------------------------------------------


def differences(wanted: Snapshot, seen: Snapshot, calls: tuple[Call, ...]) -> list[str]:
    """Return one line for each difference between what the official client saw directly and what was seen otherwise."""
    found = []
    for kind in KINDS:
        expected, got = wanted.lists.get(kind, {}), seen.lists.get(kind, {})
        found += [f"{kind}: {name} is missing" for name in expected if name not in got]
        found += [f"{kind}: {name} is not the server's" for name in got if name not in expected]
        for name in expected:
            if name in got and expected[name] != got[name]:
                found.append(f"{kind}: {name} differs {_first_difference(expected[name], got[name])}")
    for call, right, result in zip(calls, wanted.calls, seen.calls, strict=True):
        if call.kind == "tool" and call.name not in wanted.lists["tools"]:
            found.append(f"tool {call.name} is called here, but the server does not list it")
        elif right != result:
            found.append(f"{call.kind} {call.name} answers otherwise {_first_difference(right, result)}")
    return found


def _first_difference(expected: Any, got: Any, at: str = "") -> str:
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in [*expected, *(name for name in got if name not in expected)]:
            if expected.get(name) != got.get(name):
                return _first_difference(expected.get(name), got.get(name), f"{at}/{name}")
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for number, (one, other) in enumerate(zip(expected, got, strict=True)):
            if one != other:
                return _first_difference(one, other, f"{at}/{number}")
    return f"at {at or '/'}: {_short(expected)} became {_short(got)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
