"""Findings as data, and the checks that need no I/O: definitions that clients or models have trouble with.

A check has a status and a fix; a recorder collects the checks of a server. Titles and areas are a table, so that a
check has the same title wherever it is made. No I/O.

The linter reads the definitions of a server: schemas, names, descriptions, annotations, and the token cost. No finding
prevents use of the server, so all are warnings; where a host leaves a tool out, the warning says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.host.upstreams.catalog.items import Offering, estimate_tokens
from trunkline.protocol.headers import header_parameters
from trunkline.protocol.json_schema import SchemaError, compile_schema

__all__ = ["TITLES", "Check", "CheckArea", "CheckRecorder", "CheckStatus", "Diagnosis", "lint", "token_cost"]

#: ``skip``: not checked; the detail says why.
CheckStatus: TypeAlias = Literal["ok", "warn", "fail", "skip"]
#: What the finding is about: a file or setting, a login, or the network and the server itself.
CheckArea: TypeAlias = Literal["config", "auth", "reach"]

#: All checks in the order in which they are made, with title and area.
TITLES: Mapping[str, tuple[str, CheckArea]] = MappingProxyType(
    {
        "config": ("configuration", "config"),
        "variables": ("variables", "config"),
        "trust": ("approval", "config"),
        "gateway": ("gateway", "config"),
        "secrets": ("secrets", "config"),
        "command": ("command", "config"),
        "package": ("package", "config"),
        "folder": ("folder", "config"),
        "warnings": ("what it runs", "config"),
        "url": ("URL", "config"),
        "proxy": ("proxy", "reach"),
        "dns": ("host name", "reach"),
        "tcp": ("connection", "reach"),
        "tls": ("TLS", "reach"),
        "http": ("HTTP", "reach"),
        "redirect": ("redirect", "reach"),
        "origin": ("other origins", "reach"),
        "resource-metadata": ("resource metadata", "auth"),
        "authorization-server": ("authorization server", "auth"),
        "login": ("login", "auth"),
        "spawn": ("start", "reach"),
        "stdout": ("stdout", "reach"),
        "handshake": ("handshake", "reach"),
        "revision": ("revision", "reach"),
        "server": ("server", "reach"),
        "tools": ("tools", "reach"),
        "prompts": ("prompts", "reach"),
        "resources": ("resources", "reach"),
        "templates": ("templates", "reach"),
        "schemas": ("schemas", "reach"),
        "headers": ("x-mcp-header", "reach"),
        "names": ("names", "reach"),
        "descriptions": ("descriptions", "reach"),
        "annotations": ("annotations", "reach"),
        "cost": ("token cost", "reach"),
        "instructions": ("instructions", "reach"),
        "sandbox": ("sandbox", "config"),
    }
)


class Check(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    id: str
    title: str
    status: CheckStatus
    detail: str = ""
    #: The suggested fix.
    fix: str | None = None
    area: CheckArea = "reach"


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings about one server."""

    name: str
    #: The command or URL, without secrets.
    target: str
    #: Where it is configured; None if it was given on the command line.
    source: str | None = None
    checks: tuple[Check, ...] = ()
    #: The tokens its definitions cost in each model request; None if unknown.
    tokens: int | None = None


class CheckRecorder:
    """Collects the checks of one server, with secrets redacted."""

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        """Start empty."""
        self.hide = hide
        self._checks: list[Check] = []

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks recorded so far."""
        return tuple(self._checks)

    @property
    def failed(self) -> bool:
        """True if a check has failed."""
        return any(check.status == "fail" for check in self._checks)

    def ok(self, id: str, detail: str) -> None:
        """Record that a check passed."""
        self._add(id, "ok", detail, None)

    def warn(self, id: str, detail: str, *, fix: str | None = None) -> None:
        """Record a problem that does not prevent use of the server."""
        self._add(id, "warn", detail, fix)

    def fail(self, id: str, detail: str, *, fix: str | None = None) -> None:
        """Record a problem that prevents use of the server."""
        self._add(id, "fail", detail, fix)

    def skip(self, id: str, detail: str) -> None:
        """Record that a check was not made, and why."""
        self._add(id, "skip", detail, None)

    def _add(self, id: str, status: CheckStatus, detail: str, fix: str | None) -> None:
        title, area = TITLES[id]
        advice = None if fix is None else self.hide(fix)
        self._checks.append(Check(id=id, title=title, status=status, detail=self.hide(detail), fix=advice, area=area))


#: The tool names that models accept.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME = 64  # The limit of the large providers for tool names.
_LONGEST_DESCRIPTION = 4000  # About 1000 tokens, in every request to a model.
_MANY_TOKENS = 10_000  # A tenth of a window of 100,000 tokens, before the first message.
_MANY_INSTRUCTIONS = 2_000  # They are part of every conversation; usual ones have a few hundred tokens.
_NAMED = 5  # Examples in one line.


def lint(recorder: CheckRecorder, offering: Offering) -> None:
    """Record the problems of an offering, and its token cost."""
    tools = offering.tools
    if tools:
        _schemas(recorder, offering)
        _each(recorder, "headers", tools, _header_problem, "x-mcp-header", quiet=True)
        _names(recorder, [tool.name for tool in tools])
        _descriptions(recorder, tools)
        _annotations(recorder, tools)
    _cost(recorder, offering)


def token_cost(offering: Offering) -> int:
    """Estimate the tokens that a server's tools and instructions cost in each model request."""
    return sum(map(_tokens, offering.tools)) + (estimate_tokens(offering.instructions) if offering.instructions else 0)


def _tokens(tool: t.Tool) -> int:
    return estimate_tokens({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})


# --- tools -----------------------------------------------------------------------------------------------------------


def _each(
    recorder: CheckRecorder,
    id: str,
    tools: Iterable[t.Tool],
    problem: Callable[[t.Tool], str | None],
    what: str,
    *,
    quiet: bool,
) -> bool:
    """Record the tools that have a problem; return True if there are any."""
    found = [f"{tool.name}: {why}" for tool in tools if (why := problem(tool)) is not None]
    if found:
        fix = f"the author of the server has to correct the {what}; until then hosts leave the tool out"
        recorder.warn(id, _first_few(found), fix=fix)
    elif not quiet:
        recorder.ok(id, "all valid")
    return bool(found)


def _schemas(recorder: CheckRecorder, offering: Offering) -> None:
    if offering.unreadable:
        fix = "the author of the server has to correct them; until then they are left out"
        recorder.warn("schemas", f"invalid definitions: {_first_few(offering.unreadable)}", fix=fix)
    _each(recorder, "schemas", offering.tools, _schema_problem, "schema", quiet=bool(offering.unreadable))


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


def _names(recorder: CheckRecorder, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    long = [name for name in names if len(name) > _LONGEST_NAME]
    odd = [name for name in names if len(name) <= _LONGEST_NAME and not _NAME.fullmatch(name)]
    if twice:
        recorder.warn(
            "names", f"duplicate: {_first_few(twice)}", fix="only one of them can be called; rename the other"
        )
    if long:
        fix = f"models accept at most {_LONGEST_NAME} characters; longer names are shortened and harder to understand"
        recorder.warn("names", f"too long: {_first_few(long)}", fix=fix)
    if odd:
        fix = "models accept only letters, digits, _ and -; other characters are replaced"
        recorder.warn("names", f"unusual characters: {_first_few(odd)}", fix=fix)
    if not (twice or long or odd):
        recorder.ok("names", "short, valid and unique")


def _descriptions(recorder: CheckRecorder, tools: Iterable[t.Tool]) -> None:
    tools = tuple(tools)
    bare = [tool.name for tool in tools if not (tool.description or "").strip()]
    huge = [f"{tool.name} ({len(tool.description or '')})" for tool in tools if _is_huge(tool)]
    mute = [f"{tool.name}({', '.join(names)})" for tool in tools if (names := [*_undescribed(tool.input_schema)])]
    if bare:
        recorder.warn(
            "descriptions", f"no description: {_first_few(bare)}", fix="describe in one sentence what the tool does"
        )
    if huge:
        fix = f"keep each under {_LONGEST_DESCRIPTION} characters: a model reads them in every request"
        recorder.warn("descriptions", f"very long, in characters: {_first_few(huge)}", fix=fix)
    if mute:
        recorder.warn(
            "descriptions", f"arguments without a description: {_first_few(mute)}", fix="describe them in the schema"
        )
    if not (bare or huge or mute):
        recorder.ok("descriptions", "every tool and argument has a description")


def _is_huge(tool: t.Tool) -> bool:
    return len(tool.description or "") > _LONGEST_DESCRIPTION


def _undescribed(schema: Mapping[str, object]) -> Iterator[str]:
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        # The target of a reference may have a description.
        if isinstance(inner, dict) and not ({"description", "$ref"} & set(inner)):
            yield str(name)


def _annotations(recorder: CheckRecorder, tools: Iterable[t.Tool]) -> None:
    tools = tuple(tools)
    bare = [tool.name for tool in tools if tool.annotations is None or tool.annotations.read_only_hint is None]
    if bare:
        recorder.warn(
            "annotations",
            f"{len(bare)} of {len(tools)} tools have no readOnlyHint: {_first_few(bare)}",
            fix="set readOnlyHint and destructiveHint; without them a host treats every call as destructive",
        )
    else:
        recorder.ok("annotations", "every tool has a readOnlyHint")


# --- cost ------------------------------------------------------------------------------------------------------------


def _cost(recorder: CheckRecorder, offering: Offering) -> None:
    total = token_cost(offering)
    dearest = sorted(offering.tools, key=_tokens, reverse=True)[:3]
    most = ", ".join(f"{tool.name} {_tokens(tool)}" for tool in dearest)
    detail = f"about {total} tokens in each request" + (f"; most: {most}" if most else "")
    if total > _MANY_TOKENS:
        fix = 'expose fewer tools with "tools": {"allow": [...]} in its entry, or enable catalog search'
        recorder.warn("cost", detail, fix=fix)
    else:
        recorder.ok("cost", detail)
    if offering.instructions:
        size = estimate_tokens(offering.instructions)
        if size > _MANY_INSTRUCTIONS:
            recorder.warn("instructions", f"about {size} tokens", fix="the author of the server should shorten them")
        else:
            recorder.ok("instructions", f"about {size} tokens")


def _first_few(found: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    names = list(found)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
