"""Looks at what a server offers as a model and a host will: schemas, names, descriptions, annotations, and the cost.

A pure function of a listing. None of it stops a server, so it warns; where a host leaves a tool out, it says so.
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

#: What models take in a tool's name.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 4000
_MANY_TOKENS = 10_000
_MANY_INSTRUCTIONS = 2_000
_NAMED = 5


def lint(sheet: Sheet, offering: Offering) -> None:
    """Note what is wrong with an offering, and what it costs."""
    tools = offering.tools
    if tools:
        _schemas(sheet, offering)
        _each(sheet, "headers", tools, _header_problem, "x-mcp-header", quiet=True)
        _names(sheet, [tool.name for tool in tools])
        _descriptions(sheet, tools)
        _annotations(sheet, tools)
    _cost(sheet, offering)


def tokens_of(offering: Offering) -> int:
    """Estimate what a model is shown of a server in each request: its tools and instructions."""
    return sum(map(_tokens, offering.tools)) + (estimate_tokens(offering.instructions) if offering.instructions else 0)


def _tokens(tool: t.Tool) -> int:
    return estimate_tokens({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})


# --- tools -----------------------------------------------------------------------------------------------------------


def _each(
    sheet: Sheet, id: str, tools: Iterable[t.Tool], problem: Callable[[t.Tool], str | None], what: str, *, quiet: bool
) -> bool:
    """Warn of the tools that have a problem; tell whether there are any."""
    found = [f"{tool.name}: {why}" for tool in tools if (why := problem(tool)) is not None]
    if found:
        fix = f"whoever wrote the server has to correct the {what}; until then hosts leave the tool out"
        sheet.warn(id, _some(found), fix=fix)
    elif not quiet:
        sheet.ok(id, "all can be used")
    return bool(found)


def _schemas(sheet: Sheet, offering: Offering) -> None:
    if offering.unreadable:
        fix = "whoever wrote the server has to correct them; until then they are left out"
        sheet.warn("schemas", f"no definitions at all: {_some(offering.unreadable)}", fix=fix)
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
        sheet.warn("names", f"given twice: {_some(twice)}", fix="only one of them can be called: rename the other")
    if long:
        fix = f"models take {_LONGEST_NAME} characters at most; such names are shortened, and harder to understand"
        sheet.warn("names", f"too long: {_some(long)}", fix=fix)
    if odd:
        fix = "models take letters, digits, _ and - only; other characters are replaced"
        sheet.warn("names", f"unusual characters: {_some(odd)}", fix=fix)
    if not (twice or long or odd):
        sheet.ok("names", "short, plain and each its own")


def _descriptions(sheet: Sheet, tools: Iterable[t.Tool]) -> None:
    tools = tuple(tools)
    bare = [tool.name for tool in tools if not (tool.description or "").strip()]
    huge = [f"{tool.name} ({len(tool.description or '')})" for tool in tools if _is_huge(tool)]
    mute = [f"{tool.name}({', '.join(names)})" for tool in tools if (names := [*_undescribed(tool.input_schema)])]
    if bare:
        sheet.warn("descriptions", f"no description: {_some(bare)}", fix="say in a sentence what the tool does")
    if huge:
        fix = f"keep each under {_LONGEST_DESCRIPTION} characters: a model reads them in every request"
        sheet.warn("descriptions", f"very long, in characters: {_some(huge)}", fix=fix)
    if mute:
        sheet.warn("descriptions", f"arguments without a description: {_some(mute)}", fix="describe them in the schema")
    if not (bare or huge or mute):
        sheet.ok("descriptions", "every tool and argument has one")


def _is_huge(tool: t.Tool) -> bool:
    return len(tool.description or "") > _LONGEST_DESCRIPTION


def _undescribed(schema: Mapping[str, object]) -> Iterator[str]:
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        # What a reference leads to may well describe itself.
        if isinstance(inner, dict) and not ({"description", "$ref"} & set(inner)):
            yield str(name)


def _annotations(sheet: Sheet, tools: Iterable[t.Tool]) -> None:
    tools = tuple(tools)
    bare = [tool.name for tool in tools if tool.annotations is None or tool.annotations.read_only_hint is None]
    if bare:
        sheet.warn(
            "annotations",
            f"{len(bare)} of {len(tools)} tools do not say whether they only read: {_some(bare)}",
            fix="set readOnlyHint and destructiveHint; without them a host takes every call for a dangerous one",
        )
    else:
        sheet.ok("annotations", "every tool says whether it only reads")


# --- cost ------------------------------------------------------------------------------------------------------------


def _cost(sheet: Sheet, offering: Offering) -> None:
    total = tokens_of(offering)
    dearest = sorted(offering.tools, key=_tokens, reverse=True)[:3]
    most = ", ".join(f"{tool.name} {_tokens(tool)}" for tool in dearest)
    detail = f"about {total} tokens in each request" + (f"; most: {most}" if most else "")
    if total > _MANY_TOKENS:
        fix = 'show fewer tools with "tools": {"allow": [...]} in its entry, or have the catalog searched'
        sheet.warn("cost", detail, fix=fix)
    else:
        sheet.ok("cost", detail)
    if offering.instructions:
        size = estimate_tokens(offering.instructions)
        if size > _MANY_INSTRUCTIONS:
            sheet.warn("instructions", f"about {size} tokens", fix="whoever wrote the server should shorten them")
        else:
            sheet.ok("instructions", f"about {size} tokens")


def _some(found: Iterable[str]) -> str:
    """Name the first few, and say how many more there are."""
    names = list(found)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
