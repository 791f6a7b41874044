"""What counts as similar, and which names count as imported."""

from __future__ import annotations

from compat.tests.imports import Use, format_table, uses_of
from compat.tests.similarity import Function, functions_of, literals_of, nearest, shared_literals, similarity

_THEIRS = '''
class Server:
    async def call(self, name: str, arguments: dict[str, int]) -> list[str]:
        """Call a tool."""
        tools: list[str] = []
        for tool in self._tools:  # every tool
            if tool.name == name:
                tools.append(tool.run("arguments"))
        return tools
'''
_COPIED = """
def call(server, name):
    tools = []
    for tool in self._tools:
        if (tool.name == name):
            tools.append(tool.run('arguments'))
    return tools
"""
_WRITTEN = """
def call(server, name):
    '''Find a tool, and run it.'''
    found = server.registry.find(name)
    return [found.handler(name)] if found else []
"""


def _only(source: str) -> Function:
    (function,) = functions_of(source, "module.py")
    return function


def test_layout_quotes_docstrings_comments_signatures_and_annotations_do_not_count() -> None:
    assert _only(_THEIRS).tokens == _only(_COPIED).tokens
    assert _only(_THEIRS).place == "module.py:3 Server.call"


def test_the_ratio_is_twice_the_matching_tokens_divided_by_all() -> None:
    assert similarity(["a", "b", "c", "d"], ["a", "b", "x", "d"]) == 0.75
    assert similarity(_only(_THEIRS).tokens, _only(_WRITTEN).tokens) < 0.6


def test_the_nearest_candidate_is_found_if_it_is_over_the_floor() -> None:
    ours = _only(_WRITTEN)
    candidates = [_only(_THEIRS), _only(_WRITTEN.replace("found", "entry"))]

    match = nearest(ours, candidates)

    assert match is not None
    assert match.theirs is candidates[1]
    assert match.ratio == similarity(ours.tokens, candidates[1].tokens)
    assert nearest(ours, candidates, 0.99) is None


def test_long_literals_are_shared_if_forty_characters_in_a_row_are() -> None:
    theirs = literals_of('raise ValueError(f"The name of a tool must not be empty, and {name} is: choose another")')
    ours = literals_of(
        '"""The name of a tool must not be empty, and it is a docstring."""\n'
        'A = "Sorry. The name of a tool must not be empty, and so on"\n'
        'B = "A text of ours that is long enough, and nobody else has it"\n'
        'C = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"'
    )

    assert len(ours) == 3
    shared = shared_literals(ours, {**dict.fromkeys(theirs, "a.py"), **dict.fromkeys(ours, "b.py")} | {"x": "c.py"})
    assert set(shared) == {text for text in ours if " " in text}
    assert set(shared_literals(ours, dict.fromkeys(theirs, "a.py"))) == {
        "Sorry. The name of a tool must not be empty, and so on"
    }


def test_imports_and_attributes_of_the_frameworks_are_listed_with_their_full_path() -> None:
    uses = set(
        uses_of(
            "import os, mcp.types as t, fastmcp\n"
            "from mcp.server import Server as S\n"
            "from .mcp import other\n"
            "try:\n    from fastmcp.server.auth import JWTVerifier\nexcept ImportError:\n    pass\n"
            "t.Tool, fastmcp.settings.port, os.path, S.run\n"
        )
    )

    assert uses == {
        Use("mcp.types", "import", False),
        Use("fastmcp", "import", False),
        Use("mcp.server.Server", "import", False),
        Use("fastmcp.server.auth.JWTVerifier", "import", True),
        Use("mcp.types.Tool", "attribute", False),
        Use("fastmcp.settings", "attribute", False),
        Use("fastmcp.settings.port", "attribute", False),
        Use("mcp.server.Server.run", "attribute", False),
    }


def test_the_table_of_imports_has_the_most_used_name_first() -> None:
    table = format_table(
        {("import", "mcp.types.Tool"): {"a": False}, ("import", "fastmcp.FastMCP"): {"a": False, "b": True}}
    )

    assert [line.split()[:3] for line in table.splitlines()[1:3]] == [
        ["2", "1", "fastmcp.FastMCP"],
        ["1", "0", "mcp.types.Tool"],
    ]
