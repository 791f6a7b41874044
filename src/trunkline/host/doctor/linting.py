"""Lints the definitions of a server: schemas, names, descriptions, annotations, and the token cost.

Pure functions of a listing. No finding prevents use of the server, so all are warnings; where a host leaves a tool out,
the warning says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import trunkline.types as t
from trunkline.host.catalog.items import estimate_tokens
from trunkline.host.catalog.offerings import Offering
from trunkline.host.doctor.checks import Sheet
from trunkline.protocol.headers import header_parameters
from trunkline.protocol.json_schema import SchemaError, compile_schema

__all__ = ["lint", "tokens_of"]

#: The tool names that models accept.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 4000
_MANY_TOKENS = 10_000
_MANY_INSTRUCTIONS = 2_000
_NAMED = 5


def lint(sheet: Sheet, offering: Offering) -> None:
    """Record the problems of an offering, and its token cost."""
    tools = offering.tools
    if tools:
        _schemas(sheet, offering)
        _each(sheet, "headers", tools, _header_problem, "x-mcp-header", quiet=True)
        _names(sheet, [tool.name for tool in tools])
        _descriptions(sheet, tools)
        _annotations(sheet, tools)
    _cost(sheet, offering)


def tokens_of(offering: Offering) -> int:
    """Estimate the tokens that a server's tools and instructions cost in each model request."""
    return sum(map(_tokens, offering.tools)) + (estimate_tokens(offering.instructions) if offering.instructions else 0)


def _tokens(tool: t.Tool) -> int:
    return estimate_tokens({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})


# --- tools -----------------------------------------------------------------------------------------------------------


def _each(
    sheet: Sheet, id: str, tools: Iterable[t.Tool], problem: Callable[[t.Tool], str | None], what: str, *, quiet: bool
) -> bool:
    """Record the tools that have a problem; return True if there are any."""
    found = [f"{tool.name}: {why}" for tool in tools if (why := problem(tool)) is not None]
    if found:
        fix = f"the author of the server has to correct the {what}; until then hosts leave the tool out"
        sheet.warn(id, _some(found), fix=fix)
    elif not quiet:
        sheet.ok(id, "all valid")
    return bool(found)


def _schemas(sheet: Sheet, offering: Offering) -> None:
    if offering.unreadable:
        fix = "the author of the server has to correct them; until then they are left out"
        sheet.warn("schemas", f"invalid definitions: {_some(offering.unreadable)}", fix=fix)
    _each(sheet, "schemas", offering.tools, _schema_problem, "schema", quiet=bool(offering.unreadable))


def _schema_problem(tool: t.Tool) -> str | None:
    if tool.input_schema.get("type") != "object":
        return 'the input schema must have "type": "object" at its root'
    for which, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        try:
            if schema is not None:
                compile_schema(schema)
        except SchemaError as error:
            return f"the {which} schema cannot be used: {error}"
    return None


def _header_problem(tool: t.Tool) -> str | None:
    try:
        header_parameters(tool.input_schema)
    except ValueError as error:
        return str(error)
    return None


def _names(sheet: Sheet, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    long = [name for name in names if len(name) > _LONGEST_NAME]
    odd = [name for name in names if len(name) <= _LONGEST_NAME and not _NAME.fullmatch(name)]
    if twice:
        sheet.warn("names", f"duplicate: {_some(twice)}", fix="only one of them can be called; rename the other")
    if long:
        fix = f"models accept at most {_LONGEST_NAME} characters; longer names are shortened and harder to understand"
        sheet.warn("names", f"too long: {_some(long)}", fix=fix)
    if odd:
        fix = "models accept only letters, digits, _ and -; other characters are replaced"
        sheet.warn("names", f"unusual characters: {_some(odd)}", fix=fix)
    if not (twice or long or odd):
        sheet.ok("names", "short, valid and unique")


def _descriptions(sheet: Sheet, tools: Iterable[t.Tool]) -> None:
    tools = tuple(tools)
    bare = [tool.name for tool in tools if not (tool.description or "").strip()]
    huge = [f"{tool.name} ({len(tool.description or '')})" for tool in tools if _is_huge(tool)]
    mute = [f"{tool.name}({', '.join(names)})" for tool in tools if (names := [*_undescribed(tool.input_schema)])]
    if bare:
        sheet.warn("descriptions", f"no description: {_some(bare)}", fix="describe in one sentence what the tool does")
    if huge:
        fix = f"keep each under {_LONGEST_DESCRIPTION} characters: a model reads them in every request"
        sheet.warn("descriptions", f"very long, in characters: {_some(huge)}", fix=fix)
    if mute:
        sheet.warn("descriptions", f"arguments without a description: {_some(mute)}", fix="describe them in the schema")
    if not (bare or huge or mute):
        sheet.ok("descriptions", "every tool and argument has a description")


def _is_huge(tool: t.Tool) -> bool:
    return len(tool.description or "") > _LONGEST_DESCRIPTION


def _undescribed(schema: Mapping[str, object]) -> Iterator[str]:
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        # The target of a reference may have a description.
        if isinstance(inner, dict) and not ({"description", "$ref"} & set(inner)):
            yield str(name)


def _annotations(sheet: Sheet, tools: Iterable[t.Tool]) -> None:
    tools = tuple(tools)
    bare = [tool.name for tool in tools if tool.annotations is None or tool.annotations.read_only_hint is None]
    if bare:
        sheet.warn(
            "annotations",
            f"{len(bare)} of {len(tools)} tools have no readOnlyHint: {_some(bare)}",
            fix="set readOnlyHint and destructiveHint; without them a host treats every call as destructive",
        )
    else:
        sheet.ok("annotations", "every tool has a readOnlyHint")


# --- cost ------------------------------------------------------------------------------------------------------------


def _cost(sheet: Sheet, offering: Offering) -> None:
    total = tokens_of(offering)
    dearest = sorted(offering.tools, key=_tokens, reverse=True)[:3]
    most = ", ".join(f"{tool.name} {_tokens(tool)}" for tool in dearest)
    detail = f"about {total} tokens in each request" + (f"; most: {most}" if most else "")
    if total > _MANY_TOKENS:
        fix = 'expose fewer tools with "tools": {"allow": [...]} in its entry, or enable catalog search'
        sheet.warn("cost", detail, fix=fix)
    else:
        sheet.ok("cost", detail)
    if offering.instructions:
        size = estimate_tokens(offering.instructions)
        if size > _MANY_INSTRUCTIONS:
            sheet.warn("instructions", f"about {size} tokens", fix="the author of the server should shorten them")
        else:
            sheet.ok("instructions", f"about {size} tokens")


def _some(found: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    names = list(found)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
