"""A document of hundreds of operations with long names, ids that collide, and schemas that all refer to each other."""

from __future__ import annotations

import json
import re

import pytest

from servers.tests.openapi.fake_api import running_double
from servers.tests.openapi.large_document import OPERATIONS, large_document
from servers.tests.openapi.support import call
from trunkline import Client, ConfigError, Server
from trunkline_servers.openapi import make_server, read_document

BASE = "https://api.example.com"


#: Nothing changes a document, so one that was read once is enough.
LARGE = read_document(large_document())


@pytest.fixture(scope="module")
def server() -> Server:
    """Make the whole server once."""
    return make_server(LARGE, base_url=BASE, output_schemas=False)


def test_every_operation_has_a_valid_name_of_its_own(server: Server) -> None:
    names = list(server.registry.tools)
    assert len(names) == OPERATIONS
    assert [name for name in names if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)] == []


def test_a_schema_stays_small_although_all_hang_together(server: Server) -> None:
    largest = max(len(json.dumps(tool.listed().input_schema)) for tool in server.registry.tools.values())
    assert largest < 20_000


async def test_all_tools_are_listed_to_a_client(server: Server) -> None:
    async with Client(server) as client:
        assert len(await client.list_tools()) == OPERATIONS


def test_names_do_not_depend_on_order_or_choice(server: Server) -> None:
    turned = {**LARGE.root, "paths": dict(reversed(LARGE.root["paths"].items()))}
    few = make_server(turned, base_url=BASE, include=["*/things011*"], output_schemas=False)
    assert set(few.registry.tools) < set(server.registry.tools)


async def test_operations_whose_ids_collide_are_called_each_at_its_own_path() -> None:
    options = {"include": ["PATCH *things00[12]*"], "output_schemas": False}
    names = sorted(make_server(LARGE, base_url=BASE, **options).registry.tools)  # type: ignore[arg-type]
    arguments = {"group": "g", "id": "1", "name": "N", "group_body": None}
    async with running_double() as double:
        small = make_server(LARGE, base_url=double.url, **options)  # type: ignore[arg-type]
        async with Client(small) as client:
            await client.call_tool(names[0], arguments)
            await client.call_tool(names[1], arguments)
            paths = {heard.path for heard in double.heard}
    assert len(paths) == 2
    assert all(re.fullmatch(r"/groups/g/things00\d/1", path) for path in paths)


def test_one_name_in_path_query_and_body_is_three_arguments() -> None:
    arguments = {"group": "g", "group_query": "q", "group_body": "b", "name": "N"}
    options = {"include": ["POST */things007"], "output_schemas": False}
    (name,) = make_server(LARGE, base_url=BASE, **options).registry.tools  # type: ignore[arg-type]
    _, double = call(LARGE, name, arguments, **options)
    assert double.last.path == "/groups/g/things007"
    assert double.last.query == "group=q"
    assert json.loads(double.last.body) == {"name": "N", "group": "b"}


def test_too_many_operations_are_refused_with_the_ways_to_choose() -> None:
    with pytest.raises(ConfigError, match=rf"{OPERATIONS} operations.*--include.*--max-operations"):
        make_server(LARGE, base_url=BASE, max_operations=OPERATIONS - 1)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"tags": ["Thing001"]}, 8),
        ({"include": ["*things001*"], "methods": ["get", "post"]}, 5),
        ({"include": ["*things001*"], "read_only": True}, 3),
        ({"include": ["*things001*"], "exclude": ["DELETE *", "PUT *"]}, 6),
        ({"include": ["search_Thing00[0-4]"]}, 5),
    ],
    ids=["tag", "method", "read-only", "exclude", "id"],
)
def test_filters_choose(options: dict[str, list[str]], count: int) -> None:
    assert len(make_server(LARGE, base_url=BASE, output_schemas=False, **options).registry.tools) == count  # type: ignore[arg-type]


def test_filters_that_leave_nothing_are_an_error() -> None:
    with pytest.raises(ConfigError, match="filters leave all out"):
        make_server(LARGE, base_url=BASE, include=["nothing"])
