"""The rules themselves: each must bite on a made-up source, and let its legal twin pass."""

from __future__ import annotations

import pytest

from tests.architecture.rules import (
    MAX_FUNCTION,
    MAX_MODULE,
    Module,
    all_faults,
    constant_faults,
    date_faults,
    docstring_faults,
    import_faults,
    mutable_faults,
    size_faults,
)

FORBIDDEN = [
    pytest.param("trunkline.types.tools", "from trunkline.protocol import peer", id="types-know-no-protocol"),
    pytest.param("trunkline.errors", "import trunkline.types", id="errors-know-nothing"),
    pytest.param("trunkline.protocol.peer", "from trunkline.transports.link import Link", id="protocol-transport"),
    pytest.param("trunkline.protocol.peer", "import asyncio", id="protocol-has-no-loop"),
    pytest.param("trunkline.protocol.peer", "from time import monotonic", id="protocol-has-no-clock"),
    pytest.param("trunkline.types.base", "import logging.handlers", id="types-have-no-log"),
    pytest.param("trunkline.protocol.peer", "def f():\n    import random", id="also-inside-a-function"),
    pytest.param("trunkline.protocol.peer", "import_module('trunkline.server')", id="also-by-name"),
    pytest.param("trunkline.server.server", "from trunkline.client import Client", id="server-knows-no-client"),
    pytest.param("trunkline.client.client", "from trunkline.server import Server", id="client-knows-no-server"),
    pytest.param("trunkline.client.client", "from ..server import Server", id="also-relative"),
    pytest.param("trunkline.client.client", "from .. import server", id="also-relative-module"),
    pytest.param("trunkline.client.client", "from trunkline import server", id="also-from-the-top"),
    pytest.param("trunkline.client.client", "from trunkline import Server", id="also-by-friendly-name"),
    pytest.param("trunkline.transports.stdio", "from trunkline.connection import Connection", id="transport-owner"),
    pytest.param("trunkline.connection", "from trunkline.transports.stdio import StdioLink", id="connection-stdio"),
    pytest.param("trunkline.connection", "from trunkline.transports import stdio", id="connection-stdio-module"),
    pytest.param("trunkline.net", "import trunkline.transports.http", id="net-knows-no-transport"),
    pytest.param("trunkline.auth.driver", "import trunkline.transports", id="auth-knows-no-transport"),
    pytest.param("trunkline.host.host", "import trunkline.cli.main", id="host-knows-no-cli"),
    pytest.param("trunkline.server.run", "import trunkline.testing", id="server-knows-no-testing"),
    pytest.param("trunkline.host.authorization.policy.rules", "import time", id="policy-has-no-clock"),
    pytest.param(
        "trunkline.host.authorization.policy.rules",
        "from trunkline.host.audit.trail import AuditTrail",
        id="policy-audit",
    ),
    pytest.param("trunkline.server.run", "from trunkline._lazy import lazy_exports", id="lazy-names-of-a-module"),
    pytest.param("trunkline.unheard", "import trunkline.errors", id="an-unknown-layer-knows-nothing"),
]

ALLOWED = [
    pytest.param("trunkline", "from trunkline.host import Host", id="the-top-names-anything"),
    pytest.param("trunkline.connection", "from trunkline.transports.link import Link", id="connection-link"),
    pytest.param("trunkline.connection", "from trunkline.transports import link", id="connection-link-module"),
    pytest.param("trunkline.connection", "import asyncio", id="connection-loop"),
    pytest.param("trunkline.server.server", "from trunkline import __version__", id="version"),
    pytest.param("trunkline.server.server", "from trunkline.server.registry import Registry", id="own-layer"),
    pytest.param("trunkline.server", "from .registry import Registry", id="own-layer-relative"),
    pytest.param("trunkline.server.run", "from trunkline.auth import tokens", id="server-auth"),
    pytest.param("trunkline.server", "from trunkline._lazy import lazy_exports", id="lazy-names-of-a-package"),
    pytest.param(
        "trunkline.host.authorization.policy.rules",
        "from trunkline.host.authorization.policy.decisions import Act",
        id="policy-act",
    ),
    pytest.param("trunkline.testing.recordings", "from trunkline.client import Client", id="testing-client"),
    pytest.param("trunkline.types.base", "import timeit_like", id="a-name-that-only-begins-alike"),
]


@pytest.mark.parametrize(("name", "text"), FORBIDDEN)
def test_a_forbidden_import_is_found(name: str, text: str) -> None:
    assert import_faults(Module(name, text, is_package=name == "trunkline.server")) != []


@pytest.mark.parametrize(("name", "text"), ALLOWED)
def test_an_allowed_import_passes(name: str, text: str) -> None:
    assert import_faults(Module(name, text, is_package=name in {"trunkline", "trunkline.server"})) == []


@pytest.mark.parametrize(
    "text",
    ["X = '2025-06-18'", "def f(v):\n    return v >= '2026-07-28'", "x = f'since {y} and 2024-11-05'"],
    ids=["constant", "comparison", "f-string"],
)
def test_a_date_in_code_is_found(text: str) -> None:
    assert date_faults(Module("trunkline.server.server", text)) != []


@pytest.mark.parametrize(
    "text",
    [
        '"""Written after 2025-06-18."""',
        "# 2026-07-28, basic\nx = 1",
        "x = '2025-6'",
        "x = '2001-02-03'",
    ],
    ids=["docstring", "comment", "no-date", "before-the-first-revision"],
)
def test_a_cited_page_is_no_date_in_code(text: str) -> None:
    assert date_faults(Module("trunkline.server.server", text)) == []


def test_the_revisions_file_may_have_dates() -> None:
    assert date_faults(Module("trunkline.protocol.revisions", "X = '2025-06-18'")) == []


def test_a_module_over_its_ceiling_is_found() -> None:
    assert size_faults(Module("trunkline.errors", "x = 1\n" * (MAX_MODULE + 1))) != []
    assert size_faults(Module("trunkline.errors", "x = 1\n" * MAX_MODULE)) == []


def test_a_function_over_its_ceiling_is_found() -> None:
    assert size_faults(Module("trunkline.errors", "def f():\n" + "    x = 1\n" * MAX_FUNCTION)) != []
    assert size_faults(Module("trunkline.errors", "def f():\n" + "    x = 1\n" * (MAX_FUNCTION - 1))) == []


def test_a_long_docstring_does_not_make_a_function_long() -> None:
    docstring = '    """One.\n' + "    more\n" * MAX_FUNCTION + '    """\n'
    assert size_faults(Module("trunkline.errors", "async def f():\n" + docstring + "    x = 1\n")) == []


def test_a_module_without_docstring_is_found() -> None:
    assert docstring_faults(Module("trunkline.errors", "x = 1")) != []
    assert docstring_faults(Module("trunkline.errors", '"""What it is."""')) == []


@pytest.mark.parametrize(
    "text",
    ["x = 1", "__all__ = ['b', 'a']", "__all__ = ['a', 'B']", "__all__ = [n for n in dir()]"],
    ids=["none", "unsorted", "class-after-function", "computed"],
)
def test_a_bad_list_of_public_names_is_found(text: str) -> None:
    assert all_faults(Module("trunkline.errors", text)) != []


@pytest.mark.parametrize(
    "text",
    ["__all__ = ['A_CONSTANT', 'Class', 'Other', 'function']", "__all__: list[str] = []", "__all__ = ('a', 'b')"],
    ids=["three-kinds", "empty", "tuple"],
)
def test_a_good_list_of_public_names_passes(text: str) -> None:
    assert all_faults(Module("trunkline.errors", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "cache = {}",
        "_seen: set[str] = set()",
        "ROWS = [1, 2]",
        "TABLE = {k: 1 for k in 'ab'}",
        "PAIR = (1, [2])",
        "if True:\n    cache = {}",
        "try:\n    pass\nexcept ImportError:\n    cache = []",
        "queue = collections.deque()",
        "lock = threading.Lock()",
        "x = 1\ndef f():\n    global x\n    x = 2",
    ],
)
def test_what_can_change_at_module_level_is_found(text: str) -> None:
    assert mutable_faults(Module("trunkline.errors", text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "__all__ = ['a']",
        "ROWS = (1, 2)",
        "TABLE = MappingProxyType({'a': 1})",
        "NAMES = frozenset({'a'})",
        "def f():\n    x = []\n    return x",
        "class A(Struct):\n    x: list[int] = []",
    ],
)
def test_what_cannot_change_at_module_level_passes(text: str) -> None:
    assert mutable_faults(Module("trunkline.errors", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "SECONDS = 5.0",
        "_SIZE = 64 * 1024",
        "SIZE: int = 3",
        "STEPS = (1.0, -2.0)",
        "# The first one.\nONE = 1\nTWO = 2",
    ],
)
def test_a_number_without_a_comment_is_found(text: str) -> None:
    assert constant_faults(Module("trunkline.errors", text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "# As RFC 1 has it.\nSECONDS = 5.0",
        "SIZE = 64 * 1024  # As long as a frame.",
        "NAMES = ('a', 'b')",
        "IS_SET = True",
        "def f():\n    SIZE = 3\n    return SIZE",
    ],
)
def test_a_number_with_a_comment_and_other_values_pass(text: str) -> None:
    assert constant_faults(Module("trunkline.errors", text)) == []
