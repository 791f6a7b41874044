"""Holds every message that a server of ours sent against the schema of its revision, where the schemas are at hand.

They are an extra: without the folder nothing is checked here, and every test still makes its own claims.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

__all__ = ["misfits"]

SPECIFICATION = Path(__file__).parents[3] / "shared" / "spec"
VERSION = "io.modelcontextprotocol/protocolVersion"
RESULTS: Mapping[str, str] = {
    "completion/complete": "CompleteResult",
    "initialize": "InitializeResult",
    "logging/setLevel": "EmptyResult",
    "ping": "EmptyResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/unsubscribe": "EmptyResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/get": "GetTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/result": "CallToolResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}
#: What an extension adds to a revision.
EXTENSIONS: Mapping[str, Sequence[str]] = {
    "2026-07-28": ("tasks/get", "tasks/update", "tasks/cancel", "notifications/tasks")
}


def misfits(revision: str, sent: Sequence[Any], heard: Sequence[Any]) -> list[str]:
    """Return the messages of a server that its revision does not allow."""
    if not (SPECIFICATION / revision / "schema.json").is_file():
        return []
    requests = _requests(sent)
    messages = [each for message in heard for each in (message if isinstance(message, list) else [message])]
    return [problem for message in messages for problem in _problems(revision, message, requests)]


def _requests(sent: Sequence[Any]) -> dict[Any, dict[str, Any] | None]:
    """Return the requests by id; None if an id was used twice, since its response is ambiguous then."""
    requests: dict[Any, dict[str, Any] | None] = {}
    for message in sent:
        if isinstance(message, dict) and "method" in message and isinstance(message.get("id"), int | str):
            id = (type(message["id"]), message["id"])
            requests[id] = None if id in requests else message
    return requests


def _problems(revision: str, message: Any, requests: Mapping[Any, dict[str, Any] | None]) -> list[str]:
    if message.get("method") in EXTENSIONS.get(revision, ()):
        return []
    if "method" in message:
        name = _methods(revision).get(message["method"])
        return [f"{message['method']} is not in {revision}"] if name is None else _check(revision, name, message)
    request = requests.get((type(message.get("id")), message.get("id")))
    if "result" not in message or request is None:
        return []
    name = RESULTS.get(request["method"])
    if message["result"].get("resultType") == "input_required":
        name = "InputRequiredResult"
    spoken = request.get("params", {}).get("_meta", {}).get(VERSION, revision)
    if request["method"] in EXTENSIONS.get(spoken, ()) or message["result"].get("resultType") == "task":
        # An extension has no schema of this kind.
        return []
    if "task" in request.get("params", {}) and "task" in message["result"]:
        name = "CreateTaskResult"
    return [] if name is None else _check(spoken, name, message["result"])


def _check(revision: str, name: str, value: Any) -> list[str]:
    problems = _validator(revision, name).iter_errors(value)
    return [f"{name} of {revision}: {problem.message} at {list(problem.instance_path)}" for problem in problems]


@cache
def _schema(revision: str) -> tuple[str, dict[str, Any]]:
    whole = json.loads((SPECIFICATION / revision / "schema.json").read_text())
    place = "$defs" if "$defs" in whole else "definitions"
    return place, {"$schema": whole["$schema"], place: whole[place]}


@cache
def _methods(revision: str) -> dict[str, str]:
    place, schema = _schema(revision)
    consts = ((name, each.get("properties", {}).get("method", {}).get("const")) for name, each in schema[place].items())
    return {method: name for name, method in consts if method is not None}


@cache
def _validator(revision: str, name: str) -> Any:
    place, schema = _schema(revision)
    return jsonschema_rs.validator_for({**schema, "$ref": f"#/{place}/{name}"})
