"""Read-only operations as resources: a fixed path becomes a URI, a path with variables a template."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from keyword import iskeyword
from typing import Any

import msgspec

from trunkline.errors import HandlerError, InvalidParams, ResourceError, ResourceNotFound
from trunkline.server import File, Validator, compile_schema
from trunkline.servers.members import as_list
from trunkline.servers.openapi.calling import Calls, answer_text, media_type
from trunkline.servers.openapi.document import Document
from trunkline.servers.openapi.operations import Operation
from trunkline.servers.openapi.styles import Parameter
from trunkline.servers.rest import ApiError

__all__ = ["resource_reader", "resource_uri"]

#: Statuses that mean "not found".
_GONE = (404, 410)
_VARIABLE = re.compile(r"\{([^{}]*)\}")


def resource_uri(document: Document, operation: Operation, authority: str) -> str | None:
    """Return the URI or template of an operation; None if a URI cannot express its parameters."""
    body = operation.body
    if operation.listed.method != "GET" or (body is not None and body.required):
        return None
    said: list[str] = []
    for parameter in operation.parameters:
        simple = _simple(document, parameter)
        if parameter.required and (not simple or parameter.where not in ("path", "query")):
            return None
        if simple and parameter.where == "query":
            said.append(_name(parameter) + ("*" if simple == "list" else ""))
        if parameter.where == "path" and simple == "list":
            return None
    names = [_name(each) for each in operation.parameters]
    if len(set(names)) < len(names):
        return None
    path = _VARIABLE.sub(lambda found: "{" + _name(operation.variables[found.group(1)]) + "}", operation.listed.path)
    return f"openapi://{authority}{path}" + (f"{{?{','.join(said)}}}" if said else "")


def resource_reader(
    document: Document, operation: Operation, calls: Calls, *, base: str, schema: dict[str, Any]
) -> Callable[..., Any]:
    """Return the handler of a resource: the variables of its URI are its parameters, checked by the tool's schema."""
    wanted = {
        _name(each): each
        for each in operation.parameters
        if each.where in ("path", "query") and _simple(document, each)
    }

    @cache
    def validator() -> Validator:
        return compile_schema(schema)

    async def read(**given: Any) -> Any:
        arguments = {
            wanted[name].argument: _typed(document, wanted[name].schema, value)
            for name, value in given.items()
            if value is not None
        }
        missing = [name for name, each in wanted.items() if each.required and each.argument not in arguments]
        if missing:
            raise InvalidParams(f"The URI needs {', '.join(missing)}.")
        problem = validator().first_problem(arguments)
        if problem is not None:
            raise InvalidParams(f"The URI does not fit. {problem.path}: {problem.message}")
        try:
            reply = await calls.send(operation, arguments, base)
        except ApiError as error:
            raise (ResourceNotFound if error.status in _GONE else ResourceError)(str(error)) from error
        except HandlerError as error:
            raise InvalidParams(str(error)) from error
        text = answer_text(reply)
        kind = media_type(reply) or "application/octet-stream"
        return File(data=reply.body if text is None else text.encode(), name=operation.listed.name, mime_type=kind)

    hints = {name: _hint(document, each) for name, each in wanted.items()}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[name],
            default=inspect.Parameter.empty if each.where == "path" else None,
        )
        for name, each in wanted.items()
    ]
    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    read.__annotations__ = hints
    return read


def _typed(document: Document, node: Any, value: Any) -> Any:
    """Convert text from a URI to the type that a schema asks for; return it unchanged if it does not fit."""
    schema = document.follow(node, "a parameter") if isinstance(node, dict) else {}
    kind = schema.get("type", "string")
    kinds = set(as_list(kind) or [kind])
    if "array" in kinds:
        return [_typed(document, schema.get("items"), each) for each in ([value] if isinstance(value, str) else value)]
    if "string" in kinds or not kinds & {"integer", "number", "boolean"}:
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _hint(document: Document, parameter: Parameter) -> Any:
    if parameter.where == "path":
        return str
    return list[str] | str | None if _simple(document, parameter) == "list" else str | None


def _name(parameter: Parameter) -> str:
    """Return a name that is valid in a template and as a Python parameter."""
    name = re.sub(r"\W", "_", parameter.argument, flags=re.ASCII)
    usable = name.isidentifier() and not name.startswith("_") and not iskeyword(name)
    return name if usable else f"p_{name}"


def _simple(document: Document, parameter: Parameter) -> str:
    """Return ``text`` or ``list`` if a parameter is a scalar or an array; an empty string otherwise."""
    if parameter.as_json or not isinstance(parameter.schema, dict):
        return ""
    schema = document.follow(parameter.schema, "a parameter")
    kind = schema.get("type", "string")
    kinds = set(as_list(kind) or [kind]) - {"null"}
    if kinds <= {"string", "integer", "number", "boolean"}:
        return "text"
    return "list" if kinds == {"array"} else ""
