"""FastMCP's search transforms: instead of all tools, one that finds them and one that calls what was found."""

from __future__ import annotations

import inspect
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from trunkline.compat.component_versions import VersionSpec
from trunkline.compat.components import Tool
from trunkline.compat.context import FastContext
from trunkline.compat.exceptions import ToolError
from trunkline.compat.transforms.catalog import CatalogTransform
from trunkline.compat.types import to_plain

__all__ = [
    "BM25SearchTransform",
    "BaseSearchTransform",
    "RegexSearchTransform",
    "serialize_tools_for_output_json",
    "serialize_tools_for_output_markdown",
]

_WORD = re.compile(r"[^\W_]+")
#: Longer patterns are refused: the pattern comes from a model.
_LONGEST_PATTERN = 500


def searchable_text(tool: Any) -> str:
    """Return what a tool is found by: its name, its description, and its parameters with theirs."""
    parts = [tool.name, tool.description or ""]
    properties = tool.parameters.get("properties") if isinstance(tool.parameters, dict) else None
    for name, about in (properties or {}).items():
        parts += [name, str(about.get("description", "")) if isinstance(about, dict) else ""]
    return " ".join(part for part in parts if part)


def serialize_tools_for_output_json(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return tools as they are listed."""
    return [to_plain(each.to_mcp_tool()) for each in tools]


def serialize_tools_for_output_markdown(tools: Sequence[Any]) -> str:
    """Return tools as Markdown: a heading each, the description, and a line for each parameter."""
    if not tools:
        return "No tools matched the query."
    return "\n\n".join(_markdown(each) for each in tools)


def _markdown(tool: Any) -> str:
    lines = [f"### {tool.name}", ""]
    if tool.description:
        lines += [tool.description, ""]
    for title, schema in (("Parameters", tool.parameters), ("Returns", tool.output_schema)):
        properties = (schema or {}).get("properties")
        if not properties:
            continue
        lines.append(f"**{title}**")
        for name, about in properties.items():
            needed = ", required" if title == "Parameters" and name in schema.get("required", ()) else ""
            text = f": {about['description']}" if about.get("description") else ""
            lines.append(f"- `{name}` ({_type(about)}{needed}){text}")
        lines.append("")
    return "\n".join(lines).rstrip()


def _type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    for member in ("anyOf", "oneOf"):
        if member in schema:
            return " | ".join(dict.fromkeys(_type(each) for each in schema[member]))
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    found = schema.get("type", "any")
    if found == "array":
        return f"{_type(schema.get('items', {}))}[]"
    return " | ".join(found) if isinstance(found, list) else str(found)


class BaseSearchTransform(CatalogTransform):
    """Lists two tools instead of all: subclasses say in ``_search`` which ones a query finds."""

    def __init__(
        self,
        *,
        max_results: int = 5,
        always_visible: Sequence[str] | None = None,
        search_tool_name: str = "search_tools",
        call_tool_name: str = "call_tool",
        search_result_serializer: Callable[..., Any] | None = None,
    ) -> None:
        """Initialize with the names of the two tools, and those that stay listed."""
        super().__init__()
        self._max_results = max_results
        self._always_visible = set(always_visible or ())
        self._search_tool_name = search_tool_name
        self._call_tool_name = call_tool_name
        self._search_result_serializer = search_result_serializer or serialize_tools_for_output_json

    async def transform_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Return the two tools, and those that stay listed."""
        kept = [each for each in tools if each.name in self._always_visible]
        return [*kept, self._make_search_tool(), self._make_call_tool()]

    async def get_tool(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Find one of the two tools, or another, listed or not."""
        if name == self._search_tool_name:
            return self._make_search_tool()
        if name == self._call_tool_name:
            return self._make_call_tool()
        return await call_next(name, version=version)

    def _make_search_tool(self) -> Any:
        raise NotImplementedError("Subclasses must implement _make_search_tool()")

    def _make_call_tool(self) -> Any:
        transform = self

        async def call_tool(
            name: Annotated[str, Field(description="The name of the tool to call")],
            arguments: Annotated[dict[str, Any] | None, Field(description="The arguments of the tool")] = None,
            ctx: FastContext = None,  # type: ignore[assignment]
        ) -> Any:
            """Call a tool that was found by a search."""
            if name in (transform._search_tool_name, transform._call_tool_name):
                raise ToolError(f"{name!r} cannot be called through {transform._call_tool_name!r}")
            known = {each.name for each in await transform.get_tool_catalog(ctx)}
            if name not in known:
                raise ToolError(f"Unknown tool: {name!r}")
            server: Any = ctx.fastmcp
            return await server.call_tool(name, arguments)

        return self._named(call_tool, self._call_tool_name)

    def _named(self, function: Any, name: str) -> Any:
        title = name.replace("_", " ").replace("-", " ").title()
        return Tool.from_function(function, name=name, title=title)

    async def _found(self, ctx: Any, query: str) -> Any:
        tools = await self._search(await self._get_visible_tools(ctx), query)
        answer = self._search_result_serializer(tools)
        return await answer if inspect.isawaitable(answer) else answer

    async def _get_visible_tools(self, ctx: Any) -> Sequence[Any]:
        found = await self.get_tool_catalog(ctx)
        return [each for each in found if each.name not in self._always_visible]

    async def _search(self, tools: Sequence[Any], query: str) -> Sequence[Any]:
        raise NotImplementedError("Subclasses must implement _search()")


# --- by pattern ------------------------------------------------------------------------------------------------------


class RegexSearchTransform(BaseSearchTransform):
    """Finds tools by a regular expression, without regard to case.

    The pattern comes from a model, and Python's engine backtracks: only patterns whose matching takes linear or
    quadratic time are run. Anything else finds nothing, as does a pattern that is not valid.
    """

    def _make_search_tool(self) -> Any:
        transform = self

        async def search_tools(
            pattern: Annotated[str, Field(description="A regular expression for names, descriptions and parameters")],
            ctx: FastContext = None,  # type: ignore[assignment]
        ) -> str | list[dict[str, Any]]:
            """Search the tools by a regular expression."""
            found: str | list[dict[str, Any]] = await transform._found(ctx, pattern)
            return found

        return self._named(search_tools, self._search_tool_name)

    async def _search(self, tools: Sequence[Any], query: str) -> Sequence[Any]:
        pattern = _compiled(query)
        if pattern is None:
            return []
        found = [each for each in tools if pattern.search(searchable_text(each))]
        return found[: self._max_results]


_UNSUPPORTED = re.compile(r"\\[1-9]|\\Z|\(\?P[=>]|\(\?<?[=!]|\(\?>|\(\?\(|\(\?[aLu]|[*+?}]\+")


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern that is safe to run, or None."""
    if len(pattern) > _LONGEST_PATTERN or _UNSUPPORTED.search(pattern):
        return None
    try:
        compiled = re.compile(pattern.replace(r"\z", r"\Z"), re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return None
    return None if _repeats_in_repeats(pattern) else compiled


def _repeats_in_repeats(pattern: str) -> bool:
    """Return whether a group that is repeated repeats or chooses inside: what backtracking takes long for."""
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern)
    opened: list[bool] = []
    for place, character in enumerate(plain):
        if character == "(":
            opened.append(False)
        elif character == ")" and opened:
            risky = opened.pop()
            if risky and re.match(r"[*+{]", plain[place + 1 :]):
                return True
            if risky and opened:
                opened[-1] = True
        elif (character in "*+{|" and opened) or (character == "?" and opened and plain[place - 1] != "("):
            opened[-1] = True
    return False


# --- by words --------------------------------------------------------------------------------------------------------


def _tokenize(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


class _BM25Index:
    """The Okapi BM25 ranking of some texts."""

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        self.k1, self.b = k1, b
        self._counts: list[Counter[str]] = []
        self._lengths: list[int] = []
        self._documents_with: Counter[str] = Counter()

    def build(self, documents: list[str]) -> None:
        """Count the words of the texts."""
        tokens = [_tokenize(each) for each in documents]
        self._counts = [Counter(each) for each in tokens]
        self._lengths = [len(each) for each in tokens]
        self._documents_with = Counter(word for each in self._counts for word in each)

    def query(self, text: str, top_k: int) -> list[int]:
        """Return the numbers of the texts that have words of a query, best first."""
        if not self._counts:
            return []
        average = sum(self._lengths) / len(self._lengths) or 1
        words = set(_tokenize(text))
        scores = {}
        for number, counts in enumerate(self._counts):
            score = sum(self._score(word, number, average) for word in words if word in counts)
            if score > 0:
                scores[number] = score
        return sorted(scores, key=lambda number: -scores[number])[:top_k]

    def _score(self, word: str, number: int, average: float) -> float:
        having = self._documents_with[word]
        rarity = math.log(1 + (len(self._counts) - having + 0.5) / (having + 0.5))
        count = self._counts[number][word]
        norm = self.k1 * (1 - self.b + self.b * self._lengths[number] / average)
        return rarity * count * (self.k1 + 1) / (count + norm)


def _catalog_hash(tools: Sequence[Any]) -> str:
    """Return what identifies the texts of a catalog, in any order."""
    return json.dumps(sorted([each.name, searchable_text(each)] for each in tools))


class BM25SearchTransform(BaseSearchTransform):
    """Finds tools by the words of a query, best first."""

    def __init__(self, **options: Any) -> None:
        """Initialize as any search transform."""
        super().__init__(**options)
        self._index = _BM25Index()
        self._indexed: list[str] = []
        self._hash = ""

    def _make_search_tool(self) -> Any:
        transform = self

        async def search_tools(
            query: Annotated[str, Field(description="Words that describe what the tool should do")],
            ctx: FastContext = None,  # type: ignore[assignment]
        ) -> str | list[dict[str, Any]]:
            """Search the tools by words."""
            found: str | list[dict[str, Any]] = await transform._found(ctx, query)
            return found

        return self._named(search_tools, self._search_tool_name)

    async def _search(self, tools: Sequence[Any], query: str) -> Sequence[Any]:
        found = _catalog_hash(tools)
        if found != self._hash:
            index = _BM25Index()
            index.build([searchable_text(each) for each in tools])
            self._index, self._hash, self._indexed = index, found, [each.name for each in tools]
        by_name = {each.name: each for each in tools}
        return [by_name[self._indexed[number]] for number in self._index.query(query, self._max_results)]
